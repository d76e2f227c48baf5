"""Numbers as (mantissa, power of two): linear arithmetic that neither under- nor overflows (DESIGN section 4).

An array of items carries one integer exponent per item, chosen so that its largest mantissa lies in [1/2, 1). Scaling by
powers of two is exact. An item that is zero throughout has the exponent ZERO, which no sum of others can reach.
"""

from typing import NamedTuple

import torch
from torch import Tensor

ZERO = -(2**40)  # exponent of an all-zero item; sums of a few of these stay far from the range of int64


class Scaled(NamedTuple):
    """value[i] = mantissa[i] * 2^exponent[i]; leading axes of the mantissa are those of the exponent."""

    mantissa: Tensor
    exponent: Tensor


def normalise(raw: Tensor, axes: int) -> tuple[Scaled, Tensor]:
    """Splits off one exponent for each index of the first `axes` axes.

    Also returns which items have entries too small to be trusted: between zero and the smallest normal number, or a
    largest entry so near to that number that what was lost below it is no longer mere rounding.
    """
    flat = raw.detach().reshape((*raw.shape[:axes], -1))
    top = flat.amax(-1) if flat.shape[-1] else flat.new_zeros(flat.shape[:-1])
    _, exponent = torch.frexp(top)
    exponent = exponent.to(torch.int64)
    info = torch.finfo(raw.dtype)
    low = ((flat > 0) & (flat < info.tiny)).any(-1) | ((top > 0) & (top < info.tiny / info.eps))
    mantissa = times_power(raw, -_trailing(exponent, raw))
    return Scaled(mantissa, torch.where(top > 0, exponent, ZERO)), low


def times_power(values: Tensor, exponent: Tensor) -> Tensor:
    """values * 2^exponent, exactly where the result is a normal number; exponents of any size."""
    limit = 1000 if values.dtype == torch.float64 else 120
    power = exponent.clamp(-2 * limit, 2 * limit)
    half = power // 2
    return values * _power(half, values.dtype) * _power(power - half, values.dtype)


def _power(exponent: Tensor, dtype: torch.dtype) -> Tensor:
    """2^exponent for exponents of normal numbers, by writing the bits: exact on every device."""
    if dtype == torch.float64:
        return ((exponent + 1023) << 52).view(torch.float64)
    return ((exponent + 127) << 23).to(torch.int32).view(torch.float32)


def _trailing(exponent: Tensor, like: Tensor) -> Tensor:
    return exponent.reshape((*exponent.shape, *[1] * (like.dim() - exponent.dim())))
