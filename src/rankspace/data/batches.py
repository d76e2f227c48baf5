"""Ragged batches of a corpus: by budget, bucketed by length, in an order that seed and epoch determine."""

import zlib
from bisect import bisect_right
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jaxtyping import Int64

from rankspace.data.corpus import Corpus
from rankspace.errors import RankspaceError

if TYPE_CHECKING:
    from jaxtyping import Int
    from torch import Tensor

PAD = 0  # any number of a word will do: padding is never read

Plan = list[Int64[np.ndarray, "_"]]  # the sentences of each batch


class Batch(NamedTuple):
    """Sentences of a corpus: `words[b, : lengths[b]]` is sentence `numbers[b]`; beyond that is padding."""

    words: "Int[Tensor, 'batch length']"
    lengths: "Int[Tensor, 'batch']"
    numbers: "Int[Tensor, 'batch']"

    @property
    def num_tokens(self) -> int:
        return int(self.lengths.sum())


class Batches:
    """The batches of one epoch after the other. Iterating yields those of the current epoch that are still to come.

    max_tokens: words in a batch; if `padded`, its sentences times its longest one. A sentence longer than that is a
        batch of its own.
    max_sentences: sentences in a batch.
    min_length, max_length: shorter and longer sentences, <eos> not counted, are left out; `num_left_out` of them.
    eos: append the <eos> of the vocabulary to every sentence; it counts as a word.
    shuffle: an order of its own for each epoch; otherwise short sentences come first in each.

    Sentences are sorted by length, those of one length by chance, and cut into batches, which are then shuffled.
    Planning an epoch takes O(sentences log sentences). `state_dict`, taken at any time, holds epoch and position;
    `load_state_dict` on batches of the same corpus and options goes on with exactly those that were to come.
    """

    def __init__(
        self,
        corpus: Corpus,
        *,
        max_tokens: int | None = None,
        max_sentences: int | None = None,
        padded: bool = True,
        min_length: int = 1,
        max_length: int | None = None,
        eos: bool = False,
        shuffle: bool = True,
        seed: int = 0,
    ) -> None:
        _check_budget(max_tokens, max_sentences)
        if eos and corpus.vocabulary.eos is None:
            raise RankspaceError("Batches: eos=True, but the vocabulary has no <eos>; prepare the data with --eos.")
        self.corpus = corpus
        self.epoch = self.position = 0
        self._budget = max_tokens, max_sentences, padded
        self._shuffle, self._seed = shuffle, seed
        self._end = corpus.vocabulary.eos if eos else None
        self._lengths = corpus.lengths + eos
        fits = (corpus.lengths >= min_length) & (corpus.lengths <= (max_length or np.inf))
        self._chosen = np.flatnonzero(fits)
        self._planned: tuple[int, Plan] | None = None

    @property
    def num_left_out(self) -> int:
        """Sentences that are too short or too long."""
        return len(self.corpus) - len(self._chosen)

    def __len__(self) -> int:
        """The number of batches in the current epoch."""
        return len(self.plan())

    def __iter__(self) -> Iterator[Batch]:
        plan = self.plan()
        while self.position < len(plan):
            self.position += 1  # first, so that a state saved after work on a batch does not repeat it
            yield self.batch(plan[self.position - 1])
        self.epoch, self.position = self.epoch + 1, 0

    def plan(self) -> Plan:
        """The sentences of each batch of the current epoch."""
        if self._planned is None or self._planned[0] != self.epoch:
            self._planned = self.epoch, self._make_plan(self.epoch)
        return self._planned[1]

    def state_dict(self) -> dict[str, int]:
        """Epoch, position in it, and a checksum of the epoch's plan, as plain numbers."""
        return {"epoch": self.epoch, "position": self.position, "plan": self._checksum()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes to the place of a `state_dict`. Raises RankspaceError where corpus or options are others."""
        before = self.epoch, self.position
        self.epoch, self.position = int(state["epoch"]), int(state["position"])
        if state["plan"] != self._checksum():
            epoch, (self.epoch, self.position) = self.epoch, before
            raise RankspaceError(
                f"Batches: the batches of epoch {epoch} are not those of the saved state; give the same corpus, seed, "
                f"budget and lengths."
            )

    def batch(self, numbers: Int64[np.ndarray, "batch"]) -> Batch:
        """The batch of some sentences of the corpus."""
        import torch

        lengths = self._lengths[numbers]
        steps = np.arange(lengths.max(initial=0))
        places = self.corpus.offsets[numbers, None] + steps
        words = self.corpus.tokens[np.minimum(places, len(self.corpus.tokens) - 1)].astype(np.int64)
        words[steps >= lengths[:, None]] = PAD
        if self._end is not None:
            words[np.arange(len(numbers)), lengths - 1] = self._end
        return Batch(*(torch.from_numpy(np.ascontiguousarray(array)) for array in (words, lengths, numbers)))

    def _make_plan(self, epoch: int) -> Plan:
        numbers = self._chosen
        generator = np.random.default_rng([self._seed, epoch])
        if self._shuffle:
            numbers = generator.permutation(numbers)
        numbers = numbers[np.argsort(self._lengths[numbers], kind="stable")]
        plan = np.split(numbers, _cuts(self._lengths[numbers], *self._budget))
        plan = [part for part in plan if len(part)]
        return [plan[place] for place in generator.permutation(len(plan))] if self._shuffle else plan

    def _checksum(self) -> int:
        plan = self.plan()
        sizes = np.array([len(part) for part in plan], np.int64)
        return zlib.crc32(np.concatenate([sizes, *plan]).astype("<i8").tobytes())


def _check_budget(max_tokens: int | None, max_sentences: int | None) -> None:
    if max_tokens is None and max_sentences is None:
        raise RankspaceError("Batches: there is no budget; give max_tokens or max_sentences.")
    for name, value in (("max_tokens", max_tokens), ("max_sentences", max_sentences)):
        if value is not None and value < 1:
            raise RankspaceError(f"Batches: {name} is {value}; give at least 1.")


def _cuts(
    lengths: Int64[np.ndarray, "chosen"], max_tokens: int | None, max_sentences: int | None, padded: bool
) -> list[int]:
    """Where batches end, of sentences sorted by length: each is as large as the budget allows."""
    total = np.concatenate([[0], np.cumsum(lengths)])

    def cost(end: int) -> int:  # of a batch from begin to end; rises with the end
        return int((end - begin) * lengths[end - 1] if padded else total[end] - total[begin])

    cuts, begin = list[int](), 0
    while begin < len(lengths):
        ends = range(begin + 1, min(len(lengths), begin + (max_sentences or len(lengths))) + 1)
        num_ends = len(ends) if max_tokens is None else bisect_right(ends, max_tokens, key=cost)
        begin = ends[max(num_ends, 1) - 1]
        cuts.append(begin)
    return cuts[:-1]
