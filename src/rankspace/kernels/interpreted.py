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
