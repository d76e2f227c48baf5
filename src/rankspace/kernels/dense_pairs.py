"""Sums over the splits of all spans of a width whose parts are spans themselves: pair(i, j) = sum over k of the outer
product of the vectors of [i, k) and [k, j); and the scale on which all splits of these spans are added."""

from typing import no_type_check

import torch
import triton
import triton.language as tl

from rankspace.kernels.dense_chart import SPLITS, DenseChart, Span, row_of, spans_of, tile_of
from rankspace.kernels.scales import ZERO, power_of_two


def pair_sums(chart: DenseChart, width: int) -> None:
    """Fills pairs and base of all spans of a width, from three on. Behind the end of a sentence pairs are zero.

    A program owns a tile of the pairs of one span. It asks all splits for their scales, then adds the products of those
    at which neither part is a word: blocks of vectors, a product of tiles at a time, in float32 throughout.
    """
    rows, size = chart.rows, chart.size
    tile = tile_of(size)
    tiles = triton.cdiv(size, tile)
    _pair_sums[(rows.num_spans(width), tiles, tiles)](
        chart.spans,
        chart.exponent,
        chart.base,
        chart.pairs,
        rows.before,
        rows.shift,
        rows.token_place,
        rows.token_time,
        rows.length,
        width,
        rows.offsets[width],
        rows.num_before[width],
        rows.num_tokens,
        rows.offsets[3],
        size,
        TILE=tile,
        SPLITS=SPLITS,
        num_warps=4 if tile > 16 else 1,
    )


@triton.jit(do_not_specialize=["width", "first_row", "first_token", "num_tokens", "first_wider", "size"])
@no_type_check
def _pair_sums(
    spans,
    exponent,
    base,
    pairs,
    before,
    shift,
    token_place,
    token_time,
    length,
    width,
    first_row,
    first_token,
    num_tokens,
    first_wider,
    size,
    TILE: tl.constexpr,
    SPLITS: tl.constexpr,
):
    row = first_row + tl.program_id(0)
    left_symbols = tl.program_id(1) * TILE + tl.arange(0, TILE)
    right_symbols = tl.program_id(2) * TILE + tl.arange(0, TILE)
    place = tl.load(token_place + first_token + tl.program_id(0))
    end = tl.load(token_time + first_token + tl.program_id(0)) + 1
    begin = end - width
    at_end = tl.load(before + end) + place
    limit = tl.where(end <= tl.load(length + place), width, 0)  # no splits behind the end
    peak = tl.full([], 2 * ZERO, tl.int32)
    for first in range(1, limit, SPLITS):
        a = first + tl.arange(0, SPLITS)  # words of the left part
        exists = a < limit
        left_row, right_row = _parts(before, shift, a, exists, begin, width, at_end, place)
        peak = tl.maximum(peak, tl.max(_both(exponent, left_row, right_row, exists), 0))
    sums = tl.zeros([TILE, TILE], tl.float32)
    for first in range(2, limit - 1, SPLITS):
        a = first + tl.arange(0, SPLITS)
        exists = a < limit - 1
        left_row, right_row = _parts(before, shift, a, exists, begin, width, at_end, place)
        weight = power_of_two(_both(exponent, left_row, right_row, exists) - peak)
        left = _vectors(spans, left_row - num_tokens, exists, left_symbols, size) * weight[:, None]
        right = _vectors(spans, right_row - num_tokens, exists, right_symbols, size)  # [SPLITS, TILE]
        sums = tl.dot(tl.trans(left), right, sums, input_precision="ieee")
    at = (row - first_wider).to(tl.int64) * size * size
    at += left_symbols[:, None] * size + right_symbols[None, :]
    tl.store(pairs + at, sums, mask=(left_symbols < size)[:, None] & (right_symbols < size)[None, :])
    tl.store(base + row - num_tokens, peak, mask=tl.program_id(1) + tl.program_id(2) == 0)


@triton.jit
@no_type_check
def _parts(before, shift, a, exists, begin, width, at_end, place):
    left = tl.load(shift + a, mask=exists, other=0) + tl.load(before + begin + a, mask=exists, other=0) + place
    right = tl.load(shift + width - a, mask=exists, other=0) + at_end
    return left, right


@triton.jit
@no_type_check
def _both(exponent, left, right, exists):
    found = tl.load(exponent + left, mask=exists, other=ZERO)
    return found + tl.load(exponent + right, mask=exists, other=ZERO)


@triton.jit
@no_type_check
def _vectors(spans, row, exists, symbols, size):
    at = row.to(tl.int64)[:, None] * size + symbols[None, :]
    return tl.load(spans + at, mask=exists[:, None] & (symbols < size)[None, :], other=0.0)


def pair_sums_by_torch(chart: DenseChart, width: int) -> None:
    """What `pair_sums` must equal: a span at a time, sums in float64."""
    rows, first = chart.rows, chart.rows.num_tokens
    for own, span in enumerate(spans_of(rows, width), rows.offsets[width]):
        inside = span.end <= int(rows.length[span.place])
        splits = [split_of(chart, span, k) for k in range(span.begin + 1, span.end)] if inside else []
        peak = max((exponent for _, _, exponent in splits), default=2 * ZERO.value)
        total = torch.zeros(chart.size, chart.size, dtype=torch.float64, device=chart.spans.device)
        for left, right, exponent in splits[1:-1]:
            weight = 2.0 ** max(exponent - peak, -1000)
            total += weight * torch.outer(chart.spans[left - first].double(), chart.spans[right - first].double())
        chart.pairs[own - rows.offsets[3]] = total.float()
        chart.base[own - first] = peak


def split_of(chart: DenseChart, span: Span, k: int) -> tuple[int, int, int]:
    """Rows of both parts, and the sum of their exponents."""
    left, right = (row_of(chart.rows, span._replace(**part)) for part in ({"end": k}, {"begin": k}))
    return left, right, int(chart.exponent[left]) + int(chart.exponent[right])
