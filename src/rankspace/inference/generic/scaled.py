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


def normalise(raw: Tensor, axes: int) -> tuple[Scaled, Tensor]:
    """Splits off one exponent for each index of the first `axes` axes; also returns the largest raw entries there.

    For sums of products of mantissas: nothing much above one. Entries below `lowest` become zero: what was lost on the
    way to them may be more than rounding. Whoever needs to know asks whether a zero is one.
    """
    tiny = lowest(raw.dtype)
    top = raw.amax(tuple(range(axes, raw.dim()))) if raw.dim() > axes else raw
    exponent = torch.frexp(top)[1]
    power = power_of_two(-exponent, raw.dtype)
    mantissa = torch.threshold(raw, tiny, 0) * power.reshape((*top.shape, *[1] * (raw.dim() - axes)))
    return Scaled(mantissa, torch.where(top > tiny, exponent, ZERO)), top


def scale_factor(factor: Tensor) -> Scaled:
    """A factor of any scale with its largest entry in [1/2, 1) and one exponent; no entry is lost."""
    top = factor.max() if factor.numel() else factor.new_zeros(())
    exponent = torch.frexp(top)[1]
    return Scaled(times_power(factor, -exponent), torch.where(top > 0, exponent, ZERO))


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
    table, lowest = _powers(dtype, exponent.device)
    return table[(exponent - lowest).clamp(0, len(table) - 1)]


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
def _powers(dtype: torch.dtype, device: torch.device) -> tuple[Tensor, int]:
    """0, then the powers of two that are normal numbers; and the exponent the first entry stands for."""
    info = torch.finfo(dtype)
    lowest, highest = round(torch.log2(torch.tensor(info.tiny, dtype=torch.float64)).item()), _top_exponent(dtype)
    powers = [0.0, *(2.0**exponent for exponent in range(lowest, highest + 1))]
    return torch.tensor(powers, dtype=dtype, device=device), lowest - 1


def _top_exponent(dtype: torch.dtype) -> int:
    return 1023 if dtype == torch.float64 else 127
