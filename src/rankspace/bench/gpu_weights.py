"""How far the gradient of each weight is from float64.

One norm over all weights says little of those that are small in it: a network with a hundredth of the norm can be noise
and leave it as it is. So every weight is held against its own gradient as well.

A gradient that is off by the share d < 1 of its norm makes an angle of at most arcsin d with the true one. Beyond
`LIMIT` it has no meaning any more: 30 degrees. Weights below `SHARE` of the whole norm need only be nearer to their
gradient than nothing at all is, which is off by one: bfloat16 rounds operands by up to 2^-9 = 2e-3, and what is smaller
than that in the whole may be mostly rounding, though every product is right. But the transition of a chain can be as
small, and its gradient must not be missing. Below `LEAST` they are recorded and not judged.
"""

import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from jaxtyping import Float
from torch import Tensor

SHARE = 1e-3  # of the norm of the whole gradient
LIMIT = 0.5  # of its own norm
SMALL_LIMIT = 0.9  # the same, below SHARE
LEAST = 1e-6  # of the norm of the whole gradient

Gradients = Mapping[str, Float[Tensor, "..."]]


class WeightError(NamedTuple):
    """Of one weight: the norm of the difference over the norm of its gradient, and that over the norm of all."""

    name: str
    error: float
    share: float

    @property
    def is_judged(self) -> bool:
        return self.share >= LEAST

    @property
    def limit(self) -> float:
        return LIMIT if self.share >= SHARE else SMALL_LIMIT


class GradientErrors(NamedTuple):
    """`whole`: norm of the difference over the norm of the gradient, all weights together. Weights whose gradient is
    zero have no error of their own."""

    whole: float
    weights: tuple[WeightError, ...]

    @property
    def why_wrong(self) -> str:
        """Nothing where every weight that is judged has a gradient."""
        worst = worst_of(self.weights)
        if worst is None or worst.error <= worst.limit:
            return ""
        return f"the gradient of {worst.name} is off by {worst.error:.1e} of its norm, more than {worst.limit:g}"


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
    """The weight that is nearest to its limit or furthest beyond, among those that are judged, or among the others; NaN
    is furthest of all."""
    some = [weight for weight in weights if weight.is_judged == judged]
    return max(some, key=lambda each: math.inf if math.isnan(each.error) else each.error / each.limit, default=None)
