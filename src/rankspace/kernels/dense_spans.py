"""The vectors of all spans of a width: what their pairs of parts come to, with what single words at either end add."""

from typing import no_type_check

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

from rankspace.kernels.dense_chart import DenseChart, Span, row_block, row_of, spans_of
from rankspace.kernels.interpreted import only_if
from rankspace.kernels.scales import FURTHEST, LEAST_POWER, LOWEST, ZERO, power_of, power_of_two

NUMBERS = 2048  # of a link at a time


def span_vectors(chart: DenseChart, rho: Float[Tensor, "row nonterminal"], width: int) -> None:
    """Fills spans and exponent of a width, from two on. `rho` has the sums over splits at the scale of `base`, without
    those of three words and more that cut off a single word: they are added here. Behind the end of a sentence a span
    is nothing.

    Marks sentences in which a span that is not all of them has an entry below LOWEST at that scale. A program owns a
    span and reads the links of its first and last word: 8m^2 bytes.
    """
    rows, size = chart.rows, chart.size
    block = row_block(size)
    _span_vectors[(rows.num_spans(width),)](
        rho,
        chart.links,
        chart.spans,
        chart.exponent,
        chart.base,
        chart.lost,
        rows.before,
        rows.shift,
        rows.token_place,
        rows.token_time,
        rows.length,
        width,
        rows.offsets[width],
        rows.num_before[width],
        rows.num_tokens,
        size,
        HAS_PARTS=width > 2,
        LOWEST=LOWEST,
        BLOCK=block,
        OTHERS=min(block, max(NUMBERS // block, 1)),
    )


@triton.jit(do_not_specialize=["width", "first_row", "first_token", "num_tokens", "size"])
@no_type_check
def _span_vectors(
    rho,
    links,
    spans,
    exponent,
    base,
    lost,
    before,
    shift,
    token_place,
    token_time,
    length,
    width,
    first_row,
    first_token,
    num_tokens,
    size,
    HAS_PARTS: tl.constexpr,
    LOWEST: tl.constexpr,
    BLOCK: tl.constexpr,
    OTHERS: tl.constexpr,
):
    row = first_row + tl.program_id(0)
    symbols = tl.arange(0, BLOCK)
    place = tl.load(token_place + first_token + tl.program_id(0))
    end = tl.load(token_time + first_token + tl.program_id(0)) + 1
    words = tl.load(length + place)
    is_inside = end <= words
    scale = tl.load(base + row - num_tokens)
    mask = only_if(symbols < size, is_inside)
    sums = tl.load(rho + tl.program_id(0).to(tl.int64) * size + symbols, mask=mask, other=0.0)
    if HAS_PARTS:
        last = tl.load(before + end) + place  # rows of words
        first = tl.load(before + end - width + 1) + place
        at = tl.load(shift + width - 1)
        without_last = at + tl.load(before + end - 1) + place
        sums += _beside(links, spans, exponent, last, 1, without_last, scale, mask, num_tokens, size, BLOCK, OTHERS)
        sums += _beside(links, spans, exponent, first, 0, at + last, scale, mask, num_tokens, size, BLOCK, OTHERS)
    largest = tl.max(sums, 0)
    divided = power_of(largest)
    target = spans + (row - num_tokens).to(tl.int64) * size + symbols
    tl.store(target, sums * power_of_two(-divided), mask=symbols < size)
    tl.store(exponent + row, tl.where(largest == 0, ZERO, scale + divided))
    low = ((sums >= LOWEST) == 0) & mask
    # Of a whole sentence Z is judged, not the entries; but something that came out as zero is lost there as well.
    judged = (width < words) | ((largest > 0) == 0)
    wrong = (tl.max(low.to(tl.int32), 0) > 0) & judged & (scale >= -2 * FURTHEST)
    tl.atomic_max(lost + place, 1, mask=wrong)


@triton.jit
@no_type_check
def _beside(
    links,
    spans,
    exponent,
    word,
    side,
    sibling,
    scale,
    mask,
    num_tokens,
    size,
    BLOCK: tl.constexpr,
    OTHERS: tl.constexpr,
):
    """What a word adds with its sibling: its link times the vector of the sibling."""
    symbols = tl.arange(0, BLOCK)
    table = links + (word.to(tl.int64) * 2 + side) * size * size
    vector = spans + (sibling - num_tokens).to(tl.int64) * size
    total = tl.zeros([BLOCK], tl.float32)
    for start in range(0, size, OTHERS):
        others = start + tl.arange(0, OTHERS)
        both = mask[:, None] & (others < size)[None, :]
        entries = tl.load(table + symbols[:, None] * size + others[None, :], mask=both, other=0.0)
        total += tl.sum(entries * tl.load(vector + others, mask=others < size, other=0.0)[None, :], 1)
    weight = power_of_two(tl.load(exponent + word) + tl.load(exponent + sibling) - scale)
    return tl.where(mask, total * weight, 0.0)


def span_vectors_by_torch(chart: DenseChart, rho: Float[Tensor, "row nonterminal"], width: int) -> None:
    """What `span_vectors` must equal: a span at a time, sums in float64."""
    rows = chart.rows
    for own, span in enumerate(spans_of(rows, width), rows.offsets[width]):
        wide, words = own - rows.num_tokens, int(rows.length[span.place])
        if span.end > words:
            chart.spans[wide], chart.exponent[own] = 0.0, ZERO.value
            continue
        sums = rho[own - rows.offsets[width]].double()
        if width > 2:
            sums = sums + beside_by_torch(chart, span, 0) + beside_by_torch(chart, span, 1)
        largest, scale = sums.float().amax(), int(chart.base[wide])
        divided = max(int(torch.frexp(largest).exponent), LEAST_POWER.value) if largest > 0 else LEAST_POWER.value
        chart.spans[wide] = (sums * 2.0**-divided).float()
        chart.exponent[own] = scale + divided if largest > 0 else ZERO.value
        judged = width < words or float(largest) == 0
        if scale >= -2 * FURTHEST.value and judged and bool((sums < LOWEST).any()):
            chart.lost[span.place] = 1


def beside_by_torch(chart: DenseChart, span: Span, side: int) -> Float[Tensor, "nonterminal"]:
    """What the first (0) or last (1) word of a span adds, with all others as its sibling, at the scale of the span."""
    if side == 0:
        word, rest = span._replace(end=span.begin + 1), span._replace(begin=span.begin + 1)
    else:
        word, rest = span._replace(begin=span.end - 1), span._replace(end=span.end - 1)
    token, sibling = row_of(chart.rows, word), row_of(chart.rows, rest)
    first = chart.rows.num_tokens
    relative = int(chart.exponent[token]) + int(chart.exponent[sibling])
    relative -= int(chart.base[row_of(chart.rows, span) - first])
    found: Tensor = chart.links[token, side].double() @ chart.spans[sibling - first].double()
    return found * 2.0 ** max(relative, -1000)
