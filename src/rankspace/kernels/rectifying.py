"""Elementwise parts of residual networks, y + relu(x), and their derivatives: one pass over each table."""

from typing import NamedTuple, no_type_check

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

from rankspace.kernels.halves import halves_by_torch
from rankspace.kernels.multiples import multiple_of

BLOCK = 2048
NUMBERS = 4096  # of a program at a time
TILES = 4  # of a program


def plus_rectified(y: Float[Tensor, "row size"], x: Float[Tensor, "row size"]) -> Float[Tensor, "row size"]:
    """y + relu(x)."""
    found = torch.empty_like(y)
    _plus_rectified[(triton.cdiv(y.numel(), BLOCK),)](y, x, found, y.numel(), BLOCK=BLOCK)
    return found


@triton.jit
@no_type_check
def _plus_rectified(y, x, found, count, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    added = tl.load(x + at, mask=at < count, other=0.0).to(tl.float32)
    result = tl.load(y + at, mask=at < count, other=0.0).to(tl.float32) + tl.where(added < 0, 0.0, added)
    tl.store(found + at, result.to(found.dtype.element_ty), mask=at < count)


def plus_rectified_by_torch(y: Float[Tensor, "row size"], x: Float[Tensor, "row size"]) -> Float[Tensor, "row size"]:
    """What `plus_rectified` must equal."""
    return (y.float() + x.float().relu()).to(y.dtype)


class Passed(NamedTuple):
    """Derivatives before and after a rectifier."""

    total: Float[Tensor, "row size"]  # of what it is added to
    passed: Float[Tensor, "row size"]  # zero where the rectifier is; an operand of products
    low: Float[Tensor, "row size"] | None  # what rounding left of `passed`, if that is asked for


def new_sums(rows: Float[Tensor, "row size"], num: int) -> Float[Tensor, "num part size"]:
    """Room for the sums that `num` calls of `passed_back` with tables of this shape fill, part by part of the rows.
    Adding the parts up is left to the caller, for one sum of all takes as long as one of each."""
    return rows.new_empty(
        num, triton.cdiv(len(rows), _rows_of_a_part(rows.shape[1])), rows.shape[1], dtype=torch.float32
    )


def _rows_of_a_part(size: int) -> int:
    width: int = triton.next_power_of_2(size)
    return TILES * max(1, NUMBERS // width)


def passed_back(
    first: Float[Tensor, "row size"],
    second: Float[Tensor, "row size"] | None,
    source: Float[Tensor, "row size"] | None,
    sums: Float[Tensor, "part size"],
    dtype: torch.dtype,
    halved: bool = False,
) -> Passed:
    """total = first + second, in some dtype; passed = total, before it is rounded, where the source is positive, and
    everywhere without one. If it is to be halved, `passed` and `low` are its halves (`kernels/halves.py`).

    Fills `sums`, of `passed` over the rows of each part (`new_sums`), before it is rounded.
    """
    (num_rows, size), unit = first.shape, multiple_of(first.shape[1])
    total = first if second is None else torch.empty_like(first, dtype=dtype)
    passed = torch.empty_like(first, dtype=torch.bfloat16 if halved else dtype)
    low = torch.empty_like(passed) if halved else None
    _passed_back[(len(sums),)](
        first,
        first if second is None else second,
        first if source is None else source,
        total,
        passed,
        passed if low is None else low,
        sums,
        num_rows,
        size // unit,
        UNIT=unit,
        SECOND=second is not None,
        MASKED=source is not None,
        HALVED=halved,
        ROWS=_rows_of_a_part(size) // TILES,
        WIDTH=triton.next_power_of_2(size),
        TILES=TILES,
    )
    return Passed(total, passed, low)


@triton.jit
@no_type_check
def _passed_back(
    first,
    second,
    source,
    total,
    passed,
    low,
    sums,
    num_rows,
    size,
    UNIT: tl.constexpr,
    SECOND: tl.constexpr,
    MASKED: tl.constexpr,
    HALVED: tl.constexpr,
    ROWS: tl.constexpr,
    WIDTH: tl.constexpr,
    TILES: tl.constexpr,
):
    size *= UNIT
    columns = tl.arange(0, WIDTH)
    added = tl.zeros([ROWS, WIDTH], tl.float32)
    for tile in range(TILES):
        rows = (tl.program_id(0) * TILES + tile) * ROWS + tl.arange(0, ROWS)
        exists = (rows < num_rows)[:, None] & (columns < size)[None, :]
        at = rows.to(tl.int64)[:, None] * size + columns[None, :]
        found = tl.load(first + at, mask=exists, other=0.0).to(tl.float32)
        if SECOND:
            found += tl.load(second + at, mask=exists, other=0.0).to(tl.float32)
            tl.store(total + at, found.to(total.dtype.element_ty), mask=exists)
        if MASKED:
            found = tl.where(tl.load(source + at, mask=exists, other=0.0).to(tl.float32) > 0, found, 0.0)
        rounded = found.to(passed.dtype.element_ty)
        tl.store(passed + at, rounded, mask=exists)
        if HALVED:
            tl.store(low + at, (found - rounded.to(tl.float32)).to(tl.bfloat16), mask=exists)
        added += found
    tl.store(sums + tl.program_id(0) * size + columns, tl.sum(added, 0), mask=columns < size)


def passed_back_by_torch(
    first: Float[Tensor, "row size"],
    second: Float[Tensor, "row size"] | None,
    source: Float[Tensor, "row size"] | None,
    sums: Float[Tensor, "part size"],
    dtype: torch.dtype,
    halved: bool = False,
) -> Passed:
    """What `passed_back` must equal."""
    total = first.float() if second is None else first.float() + second.float()
    passed = total if source is None else total.where(source > 0, 0)
    for part, rows in zip(sums, passed.split(_rows_of_a_part(passed.shape[1])), strict=True):
        part.copy_(rows.sum(0))
    high, low = halves_by_torch(passed) if halved else (passed.to(dtype), None)
    return Passed(first if second is None else total.to(dtype), high, low)
