"""Exponentially averaged weights, which are evaluated and saved in place of the last ones."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn


class Average:
    """average <- d average + (1 - d) weights after each step, with d = min(decay, (1 + step) / (10 + step)).

    So the first steps, in which weights change most, are soon forgotten.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.model, self.decay, self.num_steps = model, decay, 0
        self.weights = {name: weight.detach().clone() for name, weight in model.named_parameters()}

    def update(self) -> None:
        decay = min(self.decay, (1 + self.num_steps) / (10 + self.num_steps))
        self.num_steps += 1
        with torch.no_grad():
            torch._foreach_lerp_(list(self.weights.values()), list(self.model.parameters()), 1 - decay)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Within, the model has the averaged weights."""
        own = {name: weight.detach().clone() for name, weight in self.model.named_parameters()}
        self._set(self.weights)
        try:
            yield
        finally:
            self._set(own)

    def _set(self, weights: Mapping[str, Tensor]) -> None:
        with torch.no_grad():
            for name, weight in self.model.named_parameters():
                weight.copy_(weights[name])
