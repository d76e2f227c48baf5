"""Elementwise parts of residual networks, y + relu(x), and their derivatives: one pass over each table."""

from typing import NamedTuple, no_type_check

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

from rankspace.kernels.halves import halves_by_torch

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
    """Derivatives before and after a rectifier, and what its bias gets."""

    total: Float[Tensor, "row size"]  # of what it is added to
    passed: Float[Tensor, "row size"]  # zero where the rectifier is; an operand of products
    low: Float[Tensor, "row size"] | None  # what rounding left of `passed`, if that is asked for
    sums: Float[Tensor, "size"]  # of `passed` over rows, before it is rounded


def passed_back(
    first: Float[Tensor, "row size"],
    second: Float[Tensor, "row size"] | None,
    source: Float[Tensor, "row size"] | None,
    dtype: torch.dtype,
    halved: bool = False,
) -> Passed:
    """total = first + second, in some dtype; passed = total, before it is rounded, where the source is positive, and
    everywhere without one. If it is to be halved, `passed` and `low` are its halves (`kernels/halves.py`).

    `sums` come from parts of the rows that are put together in a fixed order.
    """
    num_rows, size = first.shape
    width = triton.next_power_of_2(size)
    rows = max(1, NUMBERS // width)
    programs = triton.cdiv(num_rows, rows * TILES)
    total = first if second is None else torch.empty_like(first, dtype=dtype)
    passed = torch.empty_like(first, dtype=torch.bfloat16 if halved else dtype)
    low = torch.empty_like(passed) if halved else None
    sums = first.new_empty(programs, size, dtype=torch.float32)
    _passed_back[(programs,)](
        first,
        first if second is None else second,
        first if source is None else source,
        total,
        passed,
        passed if low is None else low,
        sums,
        num_rows,
        size,
        SECOND=second is not None,
        MASKED=source is not None,
        HALVED=halved,
        ROWS=rows,
        WIDTH=width,
        TILES=TILES,
    )
    return Passed(total, passed, low, sums.sum(0))


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
    SECOND: tl.constexpr,
    MASKED: tl.constexpr,
    HALVED: tl.constexpr,
    ROWS: tl.constexpr,
    WIDTH: tl.constexpr,
    TILES: tl.constexpr,
):
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
    dtype: torch.dtype,
    halved: bool = False,
) -> Passed:
    """What `passed_back` must equal."""
    total = first.float() if second is None else first.float() + second.float()
    passed = total if source is None else total.where(source > 0, 0)
    high, low = halves_by_torch(passed) if halved else (passed.to(dtype), None)
    return Passed(first if second is None else total.to(dtype), high, low, passed.sum(0))
