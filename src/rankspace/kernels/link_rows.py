"""The link between two steps, from the product of two tables: rows that sum to one as computed, in both layouts.

Rows of a product of many positive terms do not: matrix units cut off what they cannot hold of a sum, always downwards.
"""

from typing import no_type_check

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

BLOCK = 4096
TILE = 64


def normalised(
    table: Float[Tensor, "from to"], dtype: torch.dtype, both: bool
) -> tuple[Float[Tensor, "from to"], Float[Tensor, "to from"] | None]:
    """Each row divided by its sum, in a dtype, and the same transposed. Reads the table twice."""
    num_rows, num_columns = table.shape
    total = table.new_empty(num_rows)
    _row_sums[(num_rows,)](
        table, total, num_columns, BLOCK=min(BLOCK, triton.next_power_of_2(num_columns)), num_warps=8
    )
    found = torch.empty_like(table, dtype=dtype)
    transposed = table.new_empty(num_columns, num_rows, dtype=dtype) if both else None
    _divided[(triton.cdiv(num_rows, TILE), triton.cdiv(num_columns, TILE))](
        table,
        total,
        found,
        found if transposed is None else transposed,
        num_rows,
        num_columns,
        BOTH=both,
        TILE=TILE,
    )
    return found, transposed


@triton.jit
@no_type_check
def _row_sums(table, total, num_columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    sums = tl.zeros([BLOCK], tl.float32)
    for first in range(0, num_columns, BLOCK):
        columns = first + tl.arange(0, BLOCK)
        sums += tl.load(table + row * num_columns + columns, mask=columns < num_columns, other=0.0)
    tl.store(total + row, tl.sum(sums, 0))


@triton.jit
@no_type_check
def _divided(table, total, found, transposed, num_rows, num_columns, BOTH: tl.constexpr, TILE: tl.constexpr):
    rows = tl.program_id(0) * TILE + tl.arange(0, TILE)
    columns = tl.program_id(1) * TILE + tl.arange(0, TILE)
    exists = (rows < num_rows)[:, None] & (columns < num_columns)[None, :]
    at = rows.to(tl.int64)[:, None] * num_columns + columns[None, :]
    entries = tl.load(table + at, mask=exists, other=0.0)
    entries = (entries / tl.load(total + rows, mask=rows < num_rows, other=1.0)[:, None]).to(found.dtype.element_ty)
    tl.store(found + at, entries, mask=exists)
    if BOTH:
        there = columns.to(tl.int64)[:, None] * num_rows + rows[None, :]
        turned = (columns < num_columns)[:, None] & (rows < num_rows)[None, :]
        tl.store(transposed + there, tl.trans(entries), mask=turned)


def normalised_by_torch(
    table: Float[Tensor, "from to"], dtype: torch.dtype, both: bool
) -> tuple[Float[Tensor, "from to"], Float[Tensor, "to from"] | None]:
    """What `normalised` must equal."""
    found = (table / table.sum(1, keepdim=True)).to(dtype)
    return found, found.T.contiguous() if both else None
