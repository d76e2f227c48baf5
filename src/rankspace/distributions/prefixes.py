"""What distributions over parse trees offer of sentences read from left to right: prefixes, surprisal, next words."""

from abc import abstractmethod
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from rankspace.distributions.contract import Batch
from rankspace.distributions.memory import within_memory
from rankspace.distributions.parses import TreeDistribution
from rankspace.distributions.spans import Lengths
from rankspace.inference.left_corners import LeftToRight
from rankspace.inference.logarithms import CHUNK, exact_log_product, log_sum_exp


class Prefixes(NamedTuple):
    """In float64."""

    log_prefix: Float[Tensor, "batch one_more_than_length"]
    log_z: Float[Tensor, "batch"]  # log p(the sentence)


class PrefixDistribution(TreeDistribution):
    """Queries on the words so far, whatever comes after them. They are answered in float64 logarithms, exact in every
    entry, and have no derivatives.

    A tree grows from its root, leftmost first, and its words are read as they come. A prefix has the probability of all
    trees whose words begin with it, including trees that never end, if a grammar has them. Parameters are taken to sum
    to one.
    """

    @within_memory
    def log_prefix(
        self, words: Int[Tensor, "batch length"], lengths: Lengths = None
    ) -> Float[Tensor, "batch one_more_than_length"]:
        """log p(the sentence begins with these t words), for t = 0 .. n: 0 at first, never rising, -inf once that is
        impossible. 0 in padding."""
        return self._prefixes(self._asked("log_prefix", words, lengths)).log_prefix.to(self.dtype)

    @within_memory
    def surprisal(
        self, words: Int[Tensor, "batch length"], lengths: Lengths = None, end: bool = False
    ) -> Float[Tensor, "batch _"]:
        """- log p(w_t | words before it), in nats; inf from the first word that cannot follow on, 0 in padding.

        [batch, length]; with `end` one more column: after the last word of a sentence comes its end, which has a
        surprisal, too. Rows then sum to - log p(sentence).
        """
        batch = self._asked("surprisal", words, lengths)
        log_prefix, log_z = self._prefixes(batch)
        ends = _ends(batch)
        after = torch.cat([log_prefix[:, 1:], log_z[:, None]], 1).scatter(1, ends, log_z[:, None])
        found = torch.where(after > -torch.inf, log_prefix - after, torch.inf)
        times = torch.arange(found.shape[1], device=self.device)
        return found.masked_fill(times >= ends + end, 0)[:, : len(times) - (not end)].to(self.dtype)

    @within_memory
    def next_word(self, words: Int[Tensor, "batch length"], lengths: Lengths = None) -> Float[Tensor, "batch vocab"]:
        """log p(next word | prefix) for each prefix, which may be empty; -inf throughout if it is impossible.

        p sums to 1 - p(the sentence ends here) - p(the tree comes to no further word and does not end); the last term
        is there if a grammar has such trees. Reads the whole emission table: preterminals * vocab operations for each
        prefix.
        """
        return self._next_words(self._asked("next_word", words, lengths)).to(self.dtype)

    def _is_wide(self, query: str) -> bool:
        return query in ("log_prefix", "surprisal", "next_word") or super()._is_wide(query)

    def _asked(self, query: str, words: Tensor, lengths: Lengths) -> Batch:
        self._check_parameters(query)
        return self._batch(words, lengths)

    def _prefixes(self, batch: Batch) -> Prefixes:
        with torch.no_grad():
            found = self._left_to_right(batch)
            log_prefix = self._with_words(batch, found.before)
            last = log_prefix.gather(1, _ends(batch))[:, 0]
            return Prefixes(log_prefix, batch.layout.in_callers_order(found.log_z).minimum(last))

    def _next_words(self, batch: Batch) -> Float[Tensor, "batch vocab"]:
        """log p(next word | the words of the sentence)."""
        with torch.no_grad():
            longer = _with_one_more(batch)
            before, emission = self._left_to_right(longer).before, self.parameters["log_emission"].detach()
            so_far = self._with_words(longer, before).gather(1, _ends(batch))
            last = longer.layout.in_callers_order(before[longer.layout.last_token])
            parts = emission.split(max(1, CHUNK // len(emission)), 1)
            joint = torch.cat([exact_log_product(part.double().T)(last) for part in parts], 1)
            return torch.where(so_far > -torch.inf, joint.minimum(so_far) - so_far, -torch.inf)

    def _with_words(
        self, batch: Batch, before: Float[Tensor, "token preterminal"]
    ) -> Float[Tensor, "batch one_more_than_length"]:
        """log p of each prefix, from what is probable before its last word; rounding does not make it rise."""
        emission = self.parameters["log_emission"].detach()[:, batch.tokens].T.double()
        table = before.new_zeros(len(batch.words), batch.words.shape[1] + 1)
        table[:, 1 : batch.layout.longest + 1] = batch.layout.unpack(log_sum_exp(before + emission, 1))
        times = torch.arange(table.shape[1], device=self.device)
        return table.cummin(1).values.masked_fill(times > _ends(batch), 0)

    @abstractmethod
    def _left_to_right(self, batch: Batch) -> LeftToRight:
        """The sentences read word by word, in float64, by parameters that all of them share."""


def _ends(batch: Batch) -> Int[Tensor, "batch 1"]:
    return torch.tensor(batch.lengths, dtype=torch.int64, device=batch.words.device)[:, None]


def _with_one_more(batch: Batch) -> Batch:
    """The same sentences, each with a word after it; which one does not matter to what is asked about that place."""
    words = torch.nn.functional.pad(batch.words, (0, 1))
    for sentence, length in enumerate(batch.lengths):
        words[sentence, length] = 0
    return Batch(words, tuple(length + 1 for length in batch.lengths), batch.extras)
