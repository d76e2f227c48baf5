"""The batches of each epoch, and the share of each that a process takes."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int, Int64
from torch import Tensor

from rankspace.data.batches import Batches, Plan
from rankspace.data.corpus import Corpus
from rankspace.devices import is_gpu
from rankspace.errors import RankspaceError
from rankspace.training.config import Config
from rankspace.training.processes import Processes

DEFAULT_SENTENCES = 16  # of a batch, where no budget is given


class Share(NamedTuple):
    """What one process computes of a batch."""

    words: Int[Tensor, "batch length"]
    lengths: tuple[int, ...]
    device_lengths: Int[Tensor, "batch"]  # the same, beside the words
    counts: Float[Tensor, "batch"]  # 1; 0 for a sentence that stands in where a process has none of its own
    predictions: Float[Tensor, "batch"]  # words of each with <eos>, which perplexity counts for trees too
    scale: float  # what the sum of the losses is multiplied by
    stands_in: bool  # all counts are 0
    num_sentences: int  # of the batch in all processes
    num_predictions: int


class Epochs:
    """Plans epochs. The longest sentence grows with the curriculum, and seed and epoch determine everything else."""

    def __init__(self, corpus: Corpus, config: Config, kind: str, processes: Processes) -> None:
        self.corpus, self.config, self.processes = corpus, config, processes
        self.is_tree = kind == "tree"
        self.num_left_out = len(corpus) - len(self._lengths_of(self.limit(10**9)))
        if self.num_left_out == len(corpus):
            raise RankspaceError(
                f"train: no sentence of the split {config.data.train!r} is left; look at batches.min_length and "
                f"batches.max_length."
            )

    def limit(self, epoch: int) -> int | None:
        """The longest sentence of an epoch."""
        start, growth, most = (
            self.config.curriculum.start,
            self.config.curriculum.growth,
            self.config.batches.max_length,
        )
        limits = [most] if most else []
        if start:
            limits.append(start + growth * epoch)
        return min(limits, default=None)

    @property
    def shortest(self) -> int:
        """Grammars cannot write a single word."""
        return max(self.config.batches.min_length, 2 if self.is_tree else 1)

    def batches(self, epoch: int) -> Batches:
        """The batches of an epoch, from its first."""
        options = self.config.batches
        sentences = options.max_sentences or (0 if options.max_tokens else DEFAULT_SENTENCES)
        batches = Batches(
            self.corpus,
            max_tokens=options.max_tokens or None,
            max_sentences=sentences or None,
            padded=options.padded,
            min_length=self.shortest,
            max_length=self.limit(epoch),
            eos=not self.is_tree,
            seed=self.config.run.seed,
        )
        batches.epoch = epoch
        return batches

    def num_steps(self, batches: Batches) -> int:
        return -(-len(batches) // self.config.batches.accumulate)

    def num_steps_of_run(self, most: int) -> int:
        """Steps of all epochs. Counting plans each epoch, and ends at `most`."""
        run, num = self.config.run, 0
        most = min(most, run.max_steps or most)
        for epoch in range(run.epochs):
            if num >= most:
                break
            num += self.num_steps(self.batches(epoch))
        return min(num, most)

    def steps(self, batches: Batches) -> "Steps":
        """The shares of each step that is still to come."""
        return Steps(self, batches)

    def shares(self, batches: Batches, group: Plan) -> list[Share]:
        """What this process computes of the batches of one step."""
        normaliser = sum(self._size(numbers) for numbers in group)
        return [self._share(batches, numbers, self.processes.world / normaliser) for numbers in group]

    def _size(self, numbers: Int64[np.ndarray, "batch"]) -> int:
        if self.config.objective.normalise == "sentence":
            return len(numbers)
        return int((self.corpus.lengths[numbers] + (not self.is_tree)).sum())

    def _share(self, batches: Batches, numbers: Int64[np.ndarray, "batch"], scale: float) -> Share:
        """Every process takes each n-th sentence, so that all have about the same lengths."""
        own = numbers[self.processes.rank :: self.processes.world]
        stands_in = not len(own)
        own = numbers[:1] if stands_in else own
        counts = torch.full((len(own),), 1.0 - stands_in)
        predictions = torch.from_numpy(self.corpus.lengths[own] + 1).float()
        words, lengths, _ = batches.batch(own)
        total = int(self.corpus.lengths[numbers].sum()) + len(numbers)
        return Share(
            self._sent(words),
            tuple(lengths.tolist()),
            self._sent(lengths),
            self._sent(counts),
            self._sent(predictions),
            scale,
            stands_in,
            len(numbers),
            total,
        )

    def _sent(self, tensor: Tensor) -> Tensor:
        """On the device, without waiting for it."""
        pinned = tensor.pin_memory() if is_gpu(self.processes.device) else tensor
        return pinned.to(self.processes.device, non_blocking=True)

    def _lengths_of(self, limit: int | None) -> Int64[np.ndarray, "_"]:
        lengths = self.corpus.lengths
        return lengths[(lengths >= self.shortest) & (lengths <= (limit or np.inf))]


class Steps(Iterator[list[Share]]):
    """The shares of one step after the other; the position of the batches moves on with each that is taken."""

    def __init__(self, epochs: Epochs, batches: Batches) -> None:
        self._epochs, self._batches, self._plan = epochs, batches, batches.plan()
        self._ready: list[Share] | None = None

    def __next__(self) -> list[Share]:
        self.prepare()
        if self._ready is None:
            raise StopIteration
        found, self._ready = self._ready, None
        self._batches.position += len(found)
        return found

    def prepare(self) -> None:
        """Has the next ones ready, if there are any, so that taking them takes no time."""
        first = self._batches.position
        if self._ready is None and first < len(self._plan):
            group = self._plan[first : first + self._epochs.config.batches.accumulate]
            self._ready = self._epochs.shares(self._batches, group)
