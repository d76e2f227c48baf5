"""A table of float32 as the sum of two in bfloat16: what its numbers round to, and what what is left rounds to.

Both together have 16 bits. Products of bfloat16 are so much faster than those of float32 that three of them, all but
that of what is left of both, are too.
"""

from typing import NamedTuple, no_type_check

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

from rankspace.kernels.multiples import multiple_of

NUMBERS = 4096  # of a program: 16 of a thread
WIDEST = 1024


class Halves(NamedTuple):
    high: Float[Tensor, "row column"]
    low: Float[Tensor, "row column"]

    @property
    def T(self) -> "Halves":  # noqa: N802, as tensors have it
        return Halves(self.high.T, self.low.T)


def halves(table: Float[Tensor, "row column"]) -> Halves:
    """Both halves, which lie in memory as the table does; in one pass over it."""
    if table.stride(0) == 1 and table.stride(1) != 1:
        return _by_rows(table.T).T
    return _by_rows(table if table.stride(1) == 1 else table.contiguous())


def _by_rows(table: Float[Tensor, "row column"]) -> Halves:
    num_rows, num_columns = table.shape
    padded = -(-num_columns // 16) * 16  # rows begin at 32 bytes, as products like them
    high, low = table.new_empty(2, num_rows, padded, dtype=torch.bfloat16)[:, :, :num_columns]
    if num_rows and num_columns:
        width = min(WIDEST, triton.next_power_of_2(num_columns))
        rows = NUMBERS // width
        grid = (triton.cdiv(num_rows, rows), triton.cdiv(num_columns, width))
        sizes = num_columns, table.stride(0), padded
        unit = multiple_of(*sizes)
        units = [size // unit for size in sizes]
        _halves[grid](table, high, low, num_rows, *units, UNIT=unit, ROWS=rows, WIDTH=width, num_warps=8)
    return Halves(high, low)


@triton.jit(do_not_specialize=["num_rows"])
@no_type_check
def _halves(
    table,
    high,
    low,
    num_rows,
    num_columns,
    stride,
    padded,
    UNIT: tl.constexpr,
    ROWS: tl.constexpr,
    WIDTH: tl.constexpr,
):
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    columns = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    exists = (rows < num_rows)[:, None] & (columns < num_columns * UNIT)[None, :]
    number = tl.load(table + rows.to(tl.int64)[:, None] * stride * UNIT + columns[None, :], mask=exists, other=0.0)
    rounded = number.to(tl.bfloat16)
    at = rows.to(tl.int64)[:, None] * padded * UNIT + columns[None, :]
    tl.store(high + at, rounded, mask=exists)
    tl.store(low + at, (number - rounded.to(tl.float32)).to(tl.bfloat16), mask=exists)


def halves_by_torch(table: Float[Tensor, "row column"]) -> Halves:
    """What `halves` must equal."""
    high = table.bfloat16()
    return Halves(high, (table - high.float()).bfloat16())
