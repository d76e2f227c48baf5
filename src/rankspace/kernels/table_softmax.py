"""Tables of probabilities from logits, row by row, with entries left out at random; and back.

    p = exp(x - max) / sum        of logits: p * (slope - mean)        mean = sum of p * slope / sum of p

Nothing but p is kept for the way back: what was left out has p = 0, hence no gradient. Zero means left out and nothing
else; an entry that float32 cannot hold is the smallest normal number, so that whoever finds it low can tell.

The sum of p is one but for rounding, which in bfloat16 is up to 2^-9. Slopes are counts over p, and most of what they
are is alike in a whole row: without the division 2^-9 of that would be left in the derivatives of the logits, where
what is not alike may be no larger, and would move all logits of a row one way, step after step, for nothing in the loss
holds them.
"""

from typing import no_type_check

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Int
from torch import Tensor

from rankspace.kernels.dropping import kept_by_torch, lots, threshold_of
from rankspace.kernels.multiples import multiple_of

WIDEST = 2**15  # columns that one program holds in registers, or reads at a time
TINY = torch.finfo(torch.float32).tiny


def softmax_rows(
    logits: Float[Tensor, "row column"],
    probabilities: Float[Tensor, "row column"],
    seed: Int[Tensor, ""],
    dropout: float = 0.0,
    table: int = 0,
    first_row: int = 0,
    masses: Float[Tensor, "row 2"] | None = None,
    border: int = 0,
) -> None:
    """Fills `probabilities`, of any dtype. Rows of both may have gaps between them; `first_row` is the number of the
    first in its table. Reads 4 bytes an entry and writes what the dtype takes. `masses` takes what each row sums to as
    it was rounded, before the border and from it on."""
    num_rows, num_columns = logits.shape
    block = max(8, min(WIDEST, triton.next_power_of_2(num_columns)))
    sizes = num_columns, logits.stride(0), probabilities.stride(0)
    unit = multiple_of(*sizes)
    _softmax_rows[(num_rows,)](
        logits,
        probabilities,
        seed,
        *(size // unit for size in sizes),
        first_row,
        threshold_of(dropout),
        probabilities if masses is None else masses,
        border,
        UNIT=unit,
        SUMS=masses is not None,
        TABLE=table,
        DROPS=dropout > 0,
        WHOLE=block >= num_columns,
        TINY=TINY,
        BLOCK=block,
        num_warps=_warps(block),
    )


@triton.jit(do_not_specialize=["first_row", "threshold", "border"])
@no_type_check
def _softmax_rows(
    logits,
    probabilities,
    seed,
    num_columns,
    logit_stride,
    stride,
    first_row,
    threshold,
    masses,
    border,
    UNIT: tl.constexpr,
    SUMS: tl.constexpr,
    TABLE: tl.constexpr,
    DROPS: tl.constexpr,
    WHOLE: tl.constexpr,
    TINY: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0)
    num_columns *= UNIT
    source = logits + row.to(tl.int64) * logit_stride * UNIT
    target = probabilities + row.to(tl.int64) * stride * UNIT
    random = tl.load(seed)
    entries = _entries(source, random, TABLE, first_row + row, 0, num_columns, threshold, DROPS, BLOCK)
    top = tl.max(entries, 0)
    if WHOLE:
        if top == float("-inf"):  # nothing would be left
            entries = _entries(source, random, TABLE, first_row + row, 0, num_columns, 0, False, BLOCK)
            top = tl.max(entries, 0)
        weights = tl.exp(entries - top)
        found = _store(target, weights, entries, 1 / tl.sum(weights, 0), 0, num_columns, TINY, BLOCK)
        if SUMS:
            is_first = tl.arange(0, BLOCK) < border
            tl.store(masses + 2 * row, tl.sum(tl.where(is_first, found, 0.0), 0))
            tl.store(masses + 2 * row + 1, tl.sum(tl.where(is_first, 0.0, found), 0))
    else:
        for first in range(BLOCK, num_columns, BLOCK):
            entries = _entries(source, random, TABLE, first_row + row, first, num_columns, threshold, DROPS, BLOCK)
            top = tl.maximum(top, tl.max(entries, 0))
        if top == float("-inf"):
            threshold = threshold * 0
            for first in range(0, num_columns, BLOCK):
                entries = _entries(source, random, TABLE, 0, first, num_columns, 0, False, BLOCK)
                top = tl.maximum(top, tl.max(entries, 0))
        total = tl.zeros([BLOCK], tl.float32)
        for first in range(0, num_columns, BLOCK):
            entries = _entries(source, random, TABLE, first_row + row, first, num_columns, threshold, DROPS, BLOCK)
            total += tl.exp(entries - top)
        share = 1 / tl.sum(total, 0)
        before = tl.zeros([BLOCK], tl.float32)
        behind = tl.zeros([BLOCK], tl.float32)
        for first in range(0, num_columns, BLOCK):
            entries = _entries(source, random, TABLE, first_row + row, first, num_columns, threshold, DROPS, BLOCK)
            found = _store(target, tl.exp(entries - top), entries, share, first, num_columns, TINY, BLOCK)
            if SUMS:
                is_first = first + tl.arange(0, BLOCK) < border
                before += tl.where(is_first, found, 0.0)
                behind += tl.where(is_first, 0.0, found)
        if SUMS:
            tl.store(masses + 2 * row, tl.sum(before, 0))
            tl.store(masses + 2 * row + 1, tl.sum(behind, 0))


@triton.jit
@no_type_check
def _entries(source, random, table, row, first, num_columns, threshold, DROPS: tl.constexpr, BLOCK: tl.constexpr):
    """Logits; minus infinity for what is left out and beyond the row."""
    columns = first + tl.arange(0, BLOCK)
    found = tl.load(source + columns, mask=columns < num_columns, other=float("-inf"))
    if DROPS:
        found = tl.where(lots(random, table, row, first, BLOCK) < threshold, float("-inf"), found)
    return found


@triton.jit
@no_type_check
def _store(target, weights, entries, share, first, num_columns, TINY: tl.constexpr, BLOCK: tl.constexpr):
    """What was stored, rounded; zero beyond the row."""
    columns = first + tl.arange(0, BLOCK)
    found = weights * share
    found = tl.where(entries == float("-inf"), 0.0, tl.where(found < TINY, TINY, found))  # a NaN stays one
    rounded = found.to(target.dtype.element_ty)
    tl.store(target + columns, rounded, mask=columns < num_columns)
    return rounded.to(tl.float32)


def softmax_rows_by_torch(
    logits: Float[Tensor, "row column"],
    probabilities: Float[Tensor, "row column"],
    seed: Int[Tensor, ""],
    dropout: float = 0.0,
    table: int = 0,
    first_row: int = 0,
    masses: Float[Tensor, "row 2"] | None = None,
    border: int = 0,
) -> None:
    """What `softmax_rows` must equal."""
    if dropout:
        kept = kept_by_torch(seed, table, len(logits), logits.shape[1], dropout, first_row)
        left = logits.where(kept, -torch.inf)
        logits = left.where((left > -torch.inf).any(1, keepdim=True), logits)
    probabilities.copy_(logits.softmax(1).clamp(min=TINY).where(logits > -torch.inf, 0))
    if masses is not None:
        parts = probabilities[:, :border], probabilities[:, border:]
        masses.copy_(torch.stack([part.sum(1, dtype=torch.float32) for part in parts], 1))


def softmax_rows_backward(
    slopes: Float[Tensor, "row column"], probabilities: Float[Tensor, "row column"], found: Float[Tensor, "row column"]
) -> None:
    """Fills `found`, derivatives with respect to the logits, of any dtype; rows of all three may have gaps between
    them. Reads and writes what the dtypes take; rows wider than WIDEST are read twice."""
    num_rows, num_columns = slopes.shape
    block = min(WIDEST, triton.next_power_of_2(num_columns))
    sizes = num_columns, slopes.stride(0), probabilities.stride(0), found.stride(0)
    unit = multiple_of(*sizes)
    _softmax_rows_backward[(num_rows,)](
        slopes,
        probabilities,
        found,
        *(size // unit for size in sizes),
        UNIT=unit,
        WHOLE=block >= num_columns,
        BLOCK=block,
        num_warps=min(_warps(2 * block), 16),
    )


@triton.jit
@no_type_check
def _softmax_rows_backward(
    slopes,
    probabilities,
    found,
    num_columns,
    slope_stride,
    stride,
    found_stride,
    UNIT: tl.constexpr,
    WHOLE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    num_columns *= UNIT
    slopes += row * slope_stride * UNIT
    probabilities += row * stride * UNIT
    found += row * found_stride * UNIT
    columns = tl.arange(0, BLOCK)
    slope = tl.load(slopes + columns, mask=columns < num_columns, other=0.0)
    weight = tl.load(probabilities + columns, mask=columns < num_columns, other=0.0).to(tl.float32)
    if WHOLE:
        result = weight * (slope - tl.sum(weight * slope, 0) / tl.sum(weight, 0))
        tl.store(found + columns, result.to(found.dtype.element_ty), mask=columns < num_columns)
    else:
        total = weight * slope
        mass = tl.sum(weight, 0)
        for first in range(BLOCK, num_columns, BLOCK):
            at = first + columns
            slope = tl.load(slopes + at, mask=at < num_columns, other=0.0)
            weight = tl.load(probabilities + at, mask=at < num_columns, other=0.0).to(tl.float32)
            total += weight * slope
            mass += tl.sum(weight, 0)
        mean = tl.sum(total, 0) / mass
        for first in range(0, num_columns, BLOCK):
            at = first + columns
            slope = tl.load(slopes + at, mask=at < num_columns, other=0.0)
            weight = tl.load(probabilities + at, mask=at < num_columns, other=0.0).to(tl.float32)
            tl.store(found + at, (weight * (slope - mean)).to(found.dtype.element_ty), mask=at < num_columns)


def softmax_rows_backward_by_torch(
    slopes: Float[Tensor, "row column"], probabilities: Float[Tensor, "row column"], found: Float[Tensor, "row column"]
) -> None:
    """What `softmax_rows_backward` must equal."""
    weights = probabilities.float()
    mean = (weights * slopes).sum(1, keepdim=True) / weights.sum(1, keepdim=True)
    found.copy_(weights * (slopes - mean))


def _warps(block: int) -> int:
    """As many as make 32 entries a thread, within what a program can have."""
    return min(max(block // 1024, 4), 32)
