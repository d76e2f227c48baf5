"""On which side of zero the inputs of rectifiers lie: gradients are compared on the same sides.

relu(x) has no derivative at zero. Of the millions of units of a network some are nearer to zero than float32 rounds;
float32 and float64 then take different sides, and both gradients are right up to rounding of x. A pass that notes sides
and one that keeps to them have the same derivative, however near to zero a unit is.
"""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.overrides import TorchFunctionMode

NEAR = 1e-5  # of the root mean square of a rectifier's inputs: what float32 may take to the other side


class Rectifiers(TorchFunctionMode):
    """Within, inputs of rectifiers go to `rectified`."""

    def __torch_function__(
        self, function: Callable[..., Any], types: Iterable[type], args: Any = (), kwargs: Any = None
    ) -> Any:
        if function in (torch.relu, Tensor.relu):
            return self.rectified(args[0])
        return function(*args, **(kwargs or {}))

    def rectified(self, x: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        return torch.relu(x)


class NotedSides(Rectifiers):
    """Notes which inputs of each rectifier are positive, in the order of the calls."""

    def __init__(self) -> None:
        super().__init__()
        self.sides: list[Bool[Tensor, ...]] = []

    def rectified(self, x: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        self.sides.append(x.detach() > 0)
        return super().rectified(x)


class KeptSides(Rectifiers):
    """Rectifiers take the noted side of zero wherever their input is `NEAR` it.

    `num_moved` counts the units on whose side the two passes differ; `num_left` sides were noted and not asked for.
    """

    def __init__(self, sides: Iterable[Bool[Tensor, "..."]]) -> None:
        super().__init__()
        self._sides = list(sides)
        self.num_moved = 0

    @property
    def num_left(self) -> int:
        return len(self._sides)

    def rectified(self, x: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        seen = x.detach()
        own, noted = seen > 0, self._sides.pop(0)
        moved = (own != noted) & (seen.abs() <= NEAR * seen.square().mean().sqrt())
        self.num_moved += int(moved.sum())
        return x * torch.where(moved, noted, own).to(x.dtype)
