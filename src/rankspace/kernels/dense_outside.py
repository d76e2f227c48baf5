"""Derivatives with respect to rho of all spans of a width, gathered from the wider spans that they are a part of.

    left part [i, j):   sum over k > j of above(i, k) x(j, k)      above(i, k)[B, C]: derivative of pair(i, k)
    right part [i, j):  sum over k < i of x(k, i) above(k, j)

and, where the sibling is a word, the transposed link of the word. Nothing is added from two places.
"""

from typing import no_type_check

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

from rankspace.kernels.dense_chart import DenseAbove, DenseChart, Span, row_of, spans_of, tile_of
from rankspace.kernels.interpreted import only_if
from rankspace.kernels.scales import ZERO, power_of_two

TERMS = 4  # parents at a time: loads that wait together


def dense_outside_sums(chart: DenseChart, above: DenseAbove, width: int) -> None:
    """Fills the rows of a width of `above.rho`; zero where the vector of a span is, and behind the end of a sentence.

    A program owns a block of the nonterminals of a span. Reads 4m^2 bytes for each parent, of which a span of w words
    in a sentence of n has n - w.
    """
    rows, size = chart.rows, chart.size
    tile = tile_of(size)
    _dense_outside_sums[(rows.num_spans(width), triton.cdiv(size, tile))](
        chart.spans,
        chart.links,
        chart.exponent,
        chart.base,
        above.rho,
        above.pairs,
        above.whole,
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
        TERMS=TERMS,
        num_warps=4 if tile > 16 else 1,
    )


@triton.jit(do_not_specialize=["width", "first_row", "first_token", "num_tokens", "first_wider", "size"])
@no_type_check
def _dense_outside_sums(
    spans,
    links,
    exponent,
    base,
    of_rho,
    of_pairs,
    of_whole,
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
    TERMS: tl.constexpr,
):
    row = first_row + tl.program_id(0)
    symbols = tl.program_id(1) * TILE + tl.arange(0, TILE)
    place = tl.load(token_place + first_token + tl.program_id(0))
    end = tl.load(token_time + first_token + tl.program_id(0)) + 1
    begin = end - width
    words = tl.load(length + place)
    own = tl.load(exponent + row)
    total = tl.zeros([TILE], tl.float32)
    for side in tl.static_range(2):  # the span is the left part (0) or the right one
        count = words - end if side == 0 else tl.where(end <= words, begin, 0)  # of parents
        for start in range(0, size, TILE):
            others = start + tl.arange(0, TILE)
            sums = tl.zeros([TERMS, TILE, TILE], tl.float32)
            for first in range(2, count + 1, TERMS):
                t = first + tl.arange(0, TERMS)  # words of the sibling
                exists = t <= count
                parent, sibling = _family(before, shift, t, exists, begin, end, width, place, side)
                weight = _weight(exponent, base, own, parent, sibling, exists, num_tokens)
                at = (sibling - num_tokens).to(tl.int64)[:, None] * size + others[None, :]
                entries = tl.load(spans + at, mask=exists[:, None] & (others < size)[None, :], other=0.0)
                entries *= weight[:, None]  # [TERMS, TILE]
                slopes = _slopes(of_pairs, parent - first_wider, exists, symbols, others, size, side)
                if side == 0:
                    sums += slopes * entries[:, None, :]
                else:
                    sums += slopes * entries[:, :, None]
            total += tl.sum(tl.sum(sums, 0), 1 - side)
        total += _from_word(
            links,
            exponent,
            base,
            of_rho,
            before,
            shift,
            begin,
            end,
            width,
            place,
            own,
            count,
            symbols,
            num_tokens,
            size,
            side,
            TILE,
        )
    is_own = symbols < size
    whole = tl.load(of_whole + place * size + symbols, mask=is_own, other=0.0)
    total = tl.where(width == words, whole, total)
    at = (row - num_tokens).to(tl.int64) * size + symbols
    possible = (tl.load(spans + at, mask=is_own, other=0.0) > 0) & (end <= words)
    divided = own - tl.load(base + row - num_tokens)
    tl.store(of_rho + at, tl.where(possible, total, 0.0) * power_of_two(-divided), mask=is_own)


@triton.jit
@no_type_check
def _family(before, shift, t, exists, begin, end, width, place, side: tl.constexpr):
    """Rows of the parents, and of the siblings of t words."""
    if side == 0:
        at_end = tl.load(before + end + t, mask=exists, other=0) + place
        sibling = tl.load(shift + t, mask=exists, other=0) + at_end
        parent = tl.load(shift + width + t, mask=exists, other=0) + at_end
    else:
        sibling = tl.load(shift + t, mask=exists, other=0) + tl.load(before + begin) + place
        parent = tl.load(shift + width + t, mask=exists, other=0) + tl.load(before + end) + place
    return parent, sibling


@triton.jit
@no_type_check
def _weight(exponent, base, own, parent, sibling, exists, num_tokens):
    """That of a split in the sum of its parent: a power of two, at most one."""
    scale = tl.load(base + parent - num_tokens, mask=exists, other=0)
    return power_of_two(own + tl.load(exponent + sibling, mask=exists, other=ZERO) - scale)


@triton.jit
@no_type_check
def _slopes(of_pairs, parent, exists, symbols, others, size, side: tl.constexpr):
    """[TERMS, left, right]: derivatives of the pairs of parents; own symbols are on one side, others on the other."""
    left = symbols if side == 0 else others
    right = others if side == 0 else symbols
    both = (left < size)[:, None] & (right < size)[None, :]
    at = parent.to(tl.int64)[:, None, None] * size * size + (left[:, None] * size + right[None, :])[None, :, :]
    return tl.load(of_pairs + at, mask=exists[:, None, None] & both[None, :, :], other=0.0)


@triton.jit
@no_type_check
def _from_word(
    links,
    exponent,
    base,
    of_rho,
    before,
    shift,
    begin,
    end,
    width,
    place,
    own,
    count,
    symbols,
    num_tokens,
    size,
    side: tl.constexpr,
    TILE: tl.constexpr,
):
    """The share of the parent that has one word more: a right one (side 0), or a left one."""
    exists = count > 0
    parent_end = end + 1 if side == 0 else end
    at_end = tl.load(before + parent_end, mask=exists, other=0) + place
    parent = tl.load(shift + width + 1, mask=exists, other=0) + at_end
    word = at_end if side == 0 else tl.load(before + begin) + place
    total = tl.zeros([TILE], tl.float32)
    for start in range(0, size, TILE):
        others = start + tl.arange(0, TILE)
        wanted = only_if(others < size, exists)
        slopes = tl.load(of_rho + (parent - num_tokens).to(tl.int64) * size + others, mask=wanted, other=0.0)
        both = wanted[:, None] & (symbols < size)[None, :]
        at = (word.to(tl.int64) * 2 + (1 - side)) * size * size + others[:, None] * size + symbols[None, :]
        total += tl.sum(tl.load(links + at, mask=both, other=0.0) * slopes[:, None], 0)
    return total * _weight(exponent, base, own, parent, word, exists, num_tokens)


def dense_outside_sums_by_torch(chart: DenseChart, above: DenseAbove, width: int) -> None:
    """What `dense_outside_sums` must equal: a span at a time, in float64."""
    rows, first = chart.rows, chart.rows.num_tokens
    for own, span in enumerate(spans_of(rows, width), rows.offsets[width]):
        words = int(rows.length[span.place])
        total = torch.zeros(chart.size, dtype=torch.float64, device=chart.spans.device)
        if width == words:
            total += above.whole[span.place].double()
        elif span.end <= words:
            for k in range(span.end + 1, words + 1):
                total += _share(chart, above, span, span._replace(begin=span.end, end=k), 0)
            for k in range(span.begin):
                total += _share(chart, above, span, span._replace(begin=k, end=span.begin), 1)
        divided = int(chart.exponent[own]) - int(chart.base[own - first])
        possible = (chart.spans[own - first] > 0) & (span.end <= words)
        above.rho[own - first] = (total * 2.0 ** -max(divided, -1000)).where(possible, 0).float()


def _share(chart: DenseChart, above: DenseAbove, own: Span, sibling: Span, side: int) -> Float[Tensor, "nonterminal"]:
    rows, first = chart.rows, chart.rows.num_tokens
    parent = Span(own.place, min(own.begin, sibling.begin), max(own.end, sibling.end))
    row, beside = row_of(rows, parent), row_of(rows, sibling)
    relative = int(chart.exponent[row_of(rows, own)]) + int(chart.exponent[beside]) - int(chart.base[row - first])
    weight = 2.0 ** max(relative, -1000)
    if sibling.end - sibling.begin == 1:
        found: Tensor = above.rho[row - first].double() @ chart.links[beside, 1 - side].double()
        return found * weight
    slopes = above.pairs[row - rows.offsets[3]].double()
    vector = chart.spans[beside - first].double()
    return (slopes @ vector if side == 0 else vector @ slopes) * weight
