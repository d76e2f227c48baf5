"""What Triton's interpreter, in which kernels run as Python on a CPU, does otherwise than a GPU."""

from typing import no_type_check

import triton
import triton.language as tl

from rankspace.kernels.scales import power_of_two

INTERPRETED = tl.constexpr(not isinstance(power_of_two, triton.JITFunction))  # as Triton decided when it was defined


@triton.jit
@no_type_check
def factor(tile):
    """An operand of `tl.dot`, which in the interpreter multiplies the bits of bfloat16 as integers: there the same
    numbers in float32."""
    if INTERPRETED:
        tile = tile.to(tl.float32)
    return tile


@triton.jit
@no_type_check
def only_if(mask, condition):
    """`mask` if a single condition holds, else nothing of it. `mask & condition` is the same on a GPU; the interpreter
    spreads a condition as integers, which it refuses as a mask from Triton 3.9 on."""
    return tl.where(condition, mask, False)
