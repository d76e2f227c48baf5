"""How far the gradient of each weight is from float64.

One norm over all weights says little of those that are small in it: a network with a hundredth of the norm can be noise
and leave it as it is. So every weight is held against its own gradient as well.

A gradient that is off by the share d < 1 of its norm makes an angle of at most arcsin d with the true one. Beyond
`LIMIT` it has no meaning any more: 30 degrees. Weights below `SHARE` of the whole norm are recorded and not judged.
bfloat16 rounds operands by up to 2^-9 = 2e-3: what is smaller than that in the whole may be all rounding, though every
product is right.
"""

import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from jaxtyping import Float
from torch import Tensor

SHARE = 1e-3  # of the norm of the whole gradient
LIMIT = 0.5  # of its own norm

Gradients = Mapping[str, Float[Tensor, "..."]]


class WeightError(NamedTuple):
    """Of one weight: the norm of the difference over the norm of its gradient, and that over the norm of all."""

    name: str
    error: float
    share: float

    @property
    def is_judged(self) -> bool:
        return self.share >= SHARE


class GradientErrors(NamedTuple):
    """`whole`: norm of the difference over the norm of the gradient, all weights together. Weights whose gradient is
    zero have no error of their own."""

    whole: float
    weights: tuple[WeightError, ...]

    @property
    def why_wrong(self) -> str:
        """Nothing where every weight that is judged has a gradient."""
        worst = worst_of(self.weights)
        if worst is None or worst.error <= LIMIT:
            return ""
        return f"the gradient of {worst.name} is off by {worst.error:.1e} of its norm, more than {LIMIT:g}"


def gradient_errors(found: Gradients, expected: Gradients) -> GradientErrors:
    """A weight that has no gradient in one of them has zeros there."""
    differences, norms = {}, {}
    for name in {**expected, **found}:
        one, other = found.get(name), expected.get(name)
        norms[name] = _norm(other)
        differences[name] = _norm(one) if other is None else _norm(other if one is None else one - other)
    difference, size = (math.hypot(*each.values()) for each in (differences, norms))
    own = [WeightError(name, differences[name] / norm, norm / size) for name, norm in norms.items() if norm]
    return GradientErrors(difference / size if size else difference, tuple(own))


def _norm(gradient: Float[Tensor, "..."] | None) -> float:
    return 0.0 if gradient is None else float(gradient.norm())


def worst_of(weights: Iterable[WeightError], judged: bool = True) -> WeightError | None:
    """The weight that is furthest off, among those that are judged, or among the others; NaN is furthest of all."""
    some = [weight for weight in weights if weight.is_judged == judged]
    return max(some, key=lambda weight: math.inf if math.isnan(weight.error) else weight.error, default=None)
