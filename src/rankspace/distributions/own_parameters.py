"""Distributions over trees whose parameters can be those of each sentence: what compound grammars need."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from rankspace.distributions.contract import Batch
from rankspace.distributions.parameters import Axes
from rankspace.distributions.parses import PriorSample, TreeDistribution
from rankspace.errors import RankspaceError, ShapeError

OWN = "own_parameters"  # in Batch.extras: which of the per-sentence parameters belong to each sentence


class OwnParameters(TreeDistribution):
    """Any parameter may have a leading axis `batch`: then every sentence has its own, and as many sentences must be
    asked about as there are. Gradients, counts and samples are those of each."""

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

    def sample(self, num: int, max_length: int, generator: torch.Generator | None = None) -> PriorSample:
        if self.num_sentences is not None:
            raise RankspaceError(
                f"{type(self).__name__}.sample: the parameters are those of {self.num_sentences} sentences; make a "
                f"distribution of one sentence's parameters and sample from that."
            )
        return super().sample(num, max_length, generator)
