"""Numbers as (mantissa, power of two): linear arithmetic that neither under- nor overflows.

An array of items carries one integer exponent per item, chosen so that its largest mantissa lies in [1/2, 1) (up to
the number of groups it is a sum of). Scaling by powers of two is exact. An item that is zero throughout has the
exponent ZERO, far below all that can occur.
"""

from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

ZERO = -(2**28)  # exponent of nothing; sums of several of these still fit into int32


class Scaled(NamedTuple):
    """value[i] = mantissa[i] * 2^exponent[i]; leading axes of the mantissa are those of the exponent."""

    mantissa: Tensor
    exponent: Tensor  # int32


class Normalised(NamedTuple):
    """Rows of a matrix times `scale`, a power of two, with their exponents and their largest entries before that."""

    mantissa: Tensor
    exponent: Tensor
    scale: Tensor
    top: Tensor


def normalise(raw: Tensor) -> Normalised:
    """Splits off one exponent for each row of a matrix of sums of products of mantissas: nothing much above one.

    Entries below `lowest` become zero: what was lost on the way to them may be more than rounding. Whoever needs to
    know asks whether a zero is one.
    """
    least = lowest(raw.dtype)
    top = raw.amax(1)
    bounded = top.clamp(min=least)
    fraction, exponent = torch.frexp(bounded)
    scale = fraction / bounded  # 2^-exponent, exactly
    mantissa = torch.threshold(raw, least, 0).mul_(scale[:, None])
    return Normalised(mantissa, exponent.add_(top <= least, alpha=ZERO), scale, top)


def shifted(values: Tensor, exponent: int) -> Tensor:
    """values * 2^exponent, in two steps where the power itself is outside of the normal numbers."""
    if exponent == 0:
        return values
    if abs(exponent) <= furthest_power(values.dtype):
        return values * 2.0**exponent
    half = exponent // 2
    return values * 2.0**half * 2.0 ** (exponent - half)


def lowest(dtype: torch.dtype) -> float:
    """The smallest number that is kept: the smallest normal one over the rounding unit.

    Whatever arithmetic or `power_of_two` drops is at most about the smallest normal number, so what is kept is off by
    no more than rounding for every term of its sum.
    """
    info = torch.finfo(dtype)
    return info.tiny / info.eps


def too_low(top: Tensor) -> Tensor:
    """Which items are so low as a whole that what was lost is more than rounding."""
    return (top <= lowest(top.dtype)) & (top > 0)


def power_of_two(exponent: Tensor, dtype: torch.dtype) -> Tensor:
    """2^exponent, exactly, within the normal numbers of a dtype: zero below their range, the largest power above it."""
    table, lowest, highest = _powers(dtype, exponent.device)
    return table.take((exponent.long() - lowest).clamp_(0, highest))


def half_to_the(depth: Tensor, dtype: torch.dtype) -> Tensor:
    """2^-depth for depths from zero on, exactly; zero below the range of normal numbers. Overwrites the depths."""
    table, _, highest = _powers(dtype, depth.device, downwards=True)
    return table.take(depth.clamp_(max=highest))


def times_power(values: Tensor, exponent: Tensor) -> Tensor:
    """values * 2^exponent over twice the range of `power_of_two`; the exponent has leading axes of the values."""
    half = exponent // 2
    shape = (*exponent.shape, *[1] * (values.dim() - exponent.dim()))
    first, second = power_of_two(half, values.dtype), power_of_two(exponent - half, values.dtype)
    return values * first.reshape(shape) * second.reshape(shape)


def plus(left: Tensor, right: Tensor) -> Tensor:
    """Sum of exponents; nothing times anything is nothing."""
    return (left + right).clamp(min=ZERO)


@lru_cache(maxsize=16)
def _powers(dtype: torch.dtype, device: torch.device, downwards: bool = False) -> tuple[Tensor, int, int]:
    """0, then the powers of two that are normal numbers; the exponent the first entry stands for; the last place.

    Downwards they are 1, 1/2, ..., 0.
    """
    lowest, highest = -furthest_power(dtype), furthest_power(dtype) + 1
    powers = [0.0, *(2.0**exponent for exponent in range(lowest, highest + 1))]
    if downwards:
        powers = [*(2.0**exponent for exponent in range(0, lowest - 1, -1)), 0.0]
    with torch.inference_mode(False):  # it outlives the mode of whoever asks first
        return torch.tensor(powers, dtype=dtype, device=device), lowest - 1, len(powers) - 1


def furthest_power(dtype: torch.dtype) -> int:
    """The largest exponent for which 2^exponent and 2^-exponent are normal numbers."""
    return 1022 if dtype == torch.float64 else 126
