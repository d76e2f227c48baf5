"""Products of few rows with a table that no cache holds: reading it once is the time they take.

A program reads some columns of the table over a share of what is summed over, enough of it at a time to keep the memory
busy. Shares of the same columns are added up in their order by one more launch.
"""

from typing import no_type_check

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

from rankspace.kernels.interpreted import factor

ROWS = 64  # that a program takes at most: a table is read again for more
COLUMNS = 128  # of a program
MIDDLE = 64  # summed over at a time
PROGRAMS = 256  # about, that read one table: two on each multiprocessor
WARPS = 4
STAGES = 4  # for numbers of two bytes; half as many for others
SHARES = 32  # that are added up at a time
BLOCK = 128  # columns of a program that adds up


def product_in_shares(
    rows: Float[Tensor, "row middle"], table: Float[Tensor, "middle column"]
) -> Float[Tensor, "share row column"]:
    """Parts of rows @ table in float32. Both have one dtype; the table may be contiguous along either axis."""
    (num_rows, num_middle), num_columns = rows.shape, table.shape[1]
    num_shares, step = shares_of(num_middle, num_columns)
    found = rows.new_empty(num_shares, num_rows, num_columns, dtype=torch.float32)
    turned = table.stride(1) != 1
    tile = min(ROWS, max(16, triton.next_power_of_2(num_rows)))
    _product_in_shares[(triton.cdiv(num_columns, COLUMNS), num_shares, triton.cdiv(num_rows, tile))](
        rows,
        table,
        found,
        num_rows,
        num_middle,
        num_columns,
        rows.stride(0),
        table.stride(1 if turned else 0),
        step,
        TURNED=turned,
        ROWS=tile,
        COLUMNS=COLUMNS,
        MIDDLE=MIDDLE,
        num_warps=WARPS,
        num_stages=STAGES * 2 // table.element_size(),
    )
    return found


def shares_of(num_middle: int, num_columns: int) -> tuple[int, int]:
    """How many programs share the sums of a column, and how much each sums over."""
    wanted = max(1, PROGRAMS // triton.cdiv(num_columns, COLUMNS))
    step = MIDDLE * max(1, triton.cdiv(triton.cdiv(num_middle, wanted), MIDDLE))
    return max(1, triton.cdiv(num_middle, step)), step


@triton.jit(do_not_specialize=["num_rows"])
@no_type_check
def _product_in_shares(
    rows,
    table,
    found,
    num_rows,
    num_middle,
    num_columns,
    row_stride,
    stride,
    step,
    TURNED: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    MIDDLE: tl.constexpr,
):
    columns = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    share = tl.program_id(1)
    own = tl.program_id(2) * ROWS + tl.arange(0, ROWS)
    exists, wanted = own < num_rows, columns < num_columns
    last = tl.minimum((share + 1) * step, num_middle)
    left = rows + own.to(tl.int64)[:, None] * row_stride
    total = tl.zeros([ROWS, COLUMNS], tl.float32)
    for first in range(share * step, last, MIDDLE):
        at = first + tl.arange(0, MIDDLE)
        inside = at < last
        one = tl.load(left + at[None, :], mask=exists[:, None] & inside[None, :], other=0.0)  # [ROWS, MIDDLE]
        if TURNED:
            there = table + columns.to(tl.int64)[:, None] * stride + at[None, :]
            mask = wanted[:, None] & inside[None, :]
            other = tl.trans(tl.load(there, mask=mask, other=0.0, eviction_policy="evict_first"))
        else:
            there = table + at.to(tl.int64)[:, None] * stride + columns[None, :]
            mask = inside[:, None] & wanted[None, :]
            other = tl.load(there, mask=mask, other=0.0, eviction_policy="evict_first")  # [MIDDLE, COLUMNS]
        total = tl.dot(factor(one), factor(other), total, input_precision="ieee")
    to = (share * num_rows + own).to(tl.int64)[:, None] * num_columns + columns[None, :]
    tl.store(found + to, total, mask=exists[:, None] & wanted[None, :])


def add_up(parts: Float[Tensor, "share row column"], found: Float[Tensor, "row column"]) -> None:
    """Fills `found`, of any dtype, whose rows may have gaps between them, with the sum of the parts."""
    num_shares, num_rows, num_columns = parts.shape
    block = min(BLOCK, triton.next_power_of_2(num_columns))
    _add_up[(num_rows, triton.cdiv(num_columns, block))](
        parts,
        found,
        num_shares,
        num_rows,
        num_columns,
        found.stride(0),
        SHARES=min(SHARES, triton.next_power_of_2(num_shares)),
        BLOCK=block,
    )


@triton.jit(do_not_specialize=["num_shares", "num_rows"])
@no_type_check
def _add_up(parts, found, num_shares, num_rows, num_columns, stride, SHARES: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    exists = columns < num_columns
    total = tl.zeros([SHARES, BLOCK], tl.float32)
    for first in range(0, num_shares, SHARES):
        share = first + tl.arange(0, SHARES)
        at = (share * num_rows + row)[:, None] * num_columns + columns[None, :]
        total += tl.load(parts + at, mask=(share < num_shares)[:, None] & exists[None, :], other=0.0)
    tl.store(found + row * stride + columns, tl.sum(total, 0).to(found.dtype.element_ty), mask=exists)


def add_up_by_torch(parts: Float[Tensor, "share row column"], found: Float[Tensor, "row column"]) -> None:
    """What `add_up` must equal."""
    found.copy_(parts.sum(0))


def product_in_shares_by_torch(
    rows: Float[Tensor, "row middle"], table: Float[Tensor, "middle column"]
) -> Float[Tensor, "share row column"]:
    """What `product_in_shares` must equal."""
    num_shares, step = shares_of(*table.shape)
    parts = [slice(share * step, (share + 1) * step) for share in range(num_shares)]
    return torch.stack([rows[:, part].float() @ table[part].float() for part in parts])
