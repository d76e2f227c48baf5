"""Powers of two in float32 by their bits, inside kernels: exact, without logarithms.

The numbers of a span stand at the scale of its `exponent`: true value = number * 2^exponent. They are divided by the
power of two that brings the largest of them into [1/2, 1). Nothing has the exponent ZERO, far below all others, so that
it stays far below when others are added: no weight of a sum that it is a part of is positive.
"""

from typing import no_type_check

import triton
import triton.language as tl

ZERO = tl.constexpr(-(2**28))  # exponent of nothing
FURTHEST = tl.constexpr(2**26)  # exponents of something lie between this and its negative
LEAST_POWER = tl.constexpr(-111)  # a row whose largest number is lower is not brought up all the way: all of it is low
FLOOR = tl.constexpr(2.0**-109)  # lower numbers, at the scale at which they were summed, are raised to it: above what
# sums of 2^16 products that underflow amount to, so it also bounds by how much any number is wrong but for rounding
LINK_FLOOR = 2.0**-124  # the same for a link, of which up to 2^15 entries meet; see inference/tree/kernel_bounds.py
DOUBTFUL = tl.constexpr(2.0**-88)  # lower numbers must not matter (see `tree_doubt`); others are right to rounding
TOLERANCE = tl.constexpr(2.0**-26)  # how wrong log Z may be by what was raised in one span or at one word
LOWEST = 2.0**-103  # the smallest normal number over the rounding unit; see inference/scaled.py
LARGEST_POWER = tl.constexpr(112)  # of derivatives: beyond it only what is lost or impossible


@triton.jit
@no_type_check
def power_of_two(exponent):
    """2^exponent up to 2^127; zero below the normal numbers."""
    bits = (tl.minimum(tl.maximum(exponent, -127), 127) + 127) << 23
    return bits.to(tl.float32, bitcast=True)


@triton.jit
@no_type_check
def power_of(largest):
    """The power of two that divides a row whose largest number, not negative, is given."""
    return tl.maximum((largest.to(tl.int32, bitcast=True) >> 23) - 126, LEAST_POWER)
