"""Distributions over trees whose parameters can be those of each sentence: what compound grammars need."""

from collections.abc import Mapping, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from rankspace.distributions.contract import Batch
from rankspace.distributions.parameters import Axes
from rankspace.distributions.parses import PriorSample
from rankspace.distributions.prefixes import PrefixDistribution, Prefixes
from rankspace.errors import RankspaceError, ShapeError

OWN = "own_parameters"  # in Batch.extras: which of the per-sentence parameters belong to each sentence


class OwnParameters(PrefixDistribution):
    """Any parameter may have a leading axis `batch`: then every sentence has its own, and every query must have just as
    many sentences. Gradients, counts and samples are those of each."""

    @property
    def num_sentences(self) -> int | None:
        """How many sentences the parameters are for; None if they are the same for all."""
        return self.sizes.get("batch")

    def _axes(self) -> Mapping[str, Axes]:
        return {
            label: ("batch", *axes) if self.parameters[label].dim() == len(axes) + 1 else axes
            for label, axes in self.AXES.items()
        }

    def _own(self, label: str) -> bool:
        """Whether every sentence has its own parameter of this name."""
        return self.parameters[label].dim() > len(self.AXES[label])

    def _batch(
        self, words: Tensor, lengths: Sequence[int] | Tensor | None, extras: Mapping[str, Tensor] | None = None
    ) -> Batch:
        if self.num_sentences is None:
            return super()._batch(words, lengths, extras)
        if words.dim() == 2 and words.shape[0] != self.num_sentences:
            raise ShapeError(
                f"{type(self).__name__}: words are {tuple(words.shape)} but the parameters are for "
                f"{self.num_sentences} sentences; give one row for each."
            )
        own = torch.arange(len(words), device=self.device)
        return super()._batch(words, lengths, {**(extras or {}), OWN: own})

    def _of_sentence(self, sentence: int) -> "OwnParameters":
        """The distribution of one of the sentences."""
        own = {label: value[sentence] if self._own(label) else value for label, value in self.parameters.items()}
        return self.with_parameters(own)

    def _prefixes(self, batch: Batch) -> Prefixes:
        if self.num_sentences is None:
            return super()._prefixes(batch)
        table = torch.zeros(len(batch.words), batch.words.shape[1] + 1, dtype=torch.float64, device=self.device)
        log_z = torch.zeros_like(table[:, 0])
        for b, length in enumerate(batch.lengths):
            alone = self._of_sentence(b)._prefixes(_one(batch, b))
            table[b, : length + 1], log_z[b] = alone.log_prefix[0, : length + 1], alone.log_z[0]
        return Prefixes(table, log_z)

    def _next_words(self, batch: Batch) -> Float[Tensor, "batch vocab"]:
        if self.num_sentences is None:
            return super()._next_words(batch)
        none = torch.zeros(0, self.vocabulary, dtype=torch.float64, device=self.device)
        each = (self._of_sentence(b)._next_words(_one(batch, b)) for b in range(self.num_sentences))
        return torch.cat([none, *each])

    def sample(self, num: int, max_length: int, generator: torch.Generator | None = None) -> PriorSample:
        if self.num_sentences is not None:
            raise RankspaceError(
                f"{type(self).__name__}.sample: the parameters are those of {self.num_sentences} sentences; make a "
                f"distribution of one sentence's parameters and sample from that."
            )
        return super().sample(num, max_length, generator)


def _one(batch: Batch, sentence: int) -> Batch:
    """A sentence on its own, as a distribution without parameters of each sentence takes it."""
    return Batch(batch.words[sentence : sentence + 1], batch.lengths[sentence : sentence + 1], {})
