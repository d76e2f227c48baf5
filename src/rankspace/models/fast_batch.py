"""What kernels are told of a batch besides its words."""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from rankspace.inference.links import Precision
from rankspace.inference.ragged import Ragged


class Batch(NamedTuple):
    """How the words of a batch lie, and how they are computed with."""

    layout: Ragged
    precision: Precision
    seed: Int[Tensor, ""]  # a number on the device, which chooses what is dropped
    true_lengths: Int[Tensor, "batch"] | None = None  # in the order of the caller; without them those of the layout
    doubt: Bool[Tensor, "batch"] | None = None  # the backward pass writes there which were lost after all

    def with_doubt(self) -> "Batch":
        """With a place for what the backward pass of a padded batch marks; as it is where there will be none."""
        if self.true_lengths is None or not torch.is_grad_enabled():
            return self
        return self._replace(doubt=torch.zeros_like(self.true_lengths, dtype=torch.bool))
