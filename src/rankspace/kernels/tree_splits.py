"""Sums over the splits of all spans of a width: alpha(i, j) = sum over k of left(i, k) * right(k, j), elementwise.

`split_sums` completes a width: a program owns one span, reads two rows for each split, adds their products with exact
powers of two as weights, and divides the sums by the power of two of the largest. `begin_sums` has gone before for
several widths at once: it takes all splits whose parts are known by then, and as spans that begin or end together share
these parts, it reads each for several sums.
"""

from typing import no_type_check

import torch
import triton
import triton.language as tl

from rankspace.kernels.interpreted import only_if
from rankspace.kernels.scales import DOUBTFUL, FLOOR, FURTHEST, LEAST_POWER, ZERO, power_of, power_of_two
from rankspace.kernels.tree_chart import Chart
from rankspace.kernels.tree_tiles import BEGINS, WIDTHS, early_ranks, row_tile

HIGHEST = 2.0**100
LOW, LOST = 1, 2  # marks of a sentence


def split_sums(chart: Chart, width: int, known: int = 0) -> None:
    """Fills alpha, exponent and power of all spans of a width, from two on. With `known`, splits into parts of at most
    that many words have been summed by `begin_sums`.

    Marks sentences in which an entry, or one of a child that is read for the first time, is doubtful (LOW; see
    `tree_doubt`), or in which sums leave the range (LOST). Reads 8R bytes for each split, writes 4R for each span.
    """
    rows, weights = chart.rows, chart.weights
    near = width - 1 - known if known else width - 1  # splits at either end
    num_terms = 2 * near if known else near
    tile = row_tile(rows.num_spans(width), num_terms, chart.padded)
    factor, weight_power = (chart.alpha, chart.power) if weights is None else weights
    inverse_mass = chart.alpha if chart.inverse_mass is None else chart.inverse_mass
    _split_sums[(rows.num_spans(width),)](
        chart.children,
        chart.alpha,
        chart.exponent,
        chart.power,
        chart.partial_base,
        chart.lost,
        factor,
        weight_power,
        inverse_mass,
        rows.before,
        rows.shift,
        rows.token_place,
        rows.token_time,
        rows.length,
        width,
        near,
        num_terms,
        rows.offsets[width],
        rows.num_before[width],
        rows.num_tokens,
        chart.rank,
        chart.padded,
        BEGUN=known > 0,
        TERMS=tile.terms,
        RANKS=tile.ranks,
        WEIGHTED=weights is not None,
        DIVIDED=chart.inverse_mass is not None,
        HIGHEST=HIGHEST,
        LOW=LOW,
        LOST=LOST,
        num_warps=tile.warps,
    )


@triton.jit(do_not_specialize=["width", "near", "num_terms", "first_row", "first_token", "num_tokens", "rank"])
@no_type_check
def _split_sums(
    children,
    alpha,
    exponent,
    power,
    partial_base,
    lost,
    factor,
    weight_power,
    inverse_mass,
    before,
    shift,
    token_place,
    token_time,
    length,
    width,
    near,
    num_terms,
    first_row,
    first_token,
    num_tokens,
    rank,
    padded,
    BEGUN: tl.constexpr,
    TERMS: tl.constexpr,
    RANKS: tl.constexpr,
    WEIGHTED: tl.constexpr,
    DIVIDED: tl.constexpr,
    HIGHEST: tl.constexpr,
    LOW: tl.constexpr,
    LOST: tl.constexpr,
):
    own = first_row + tl.program_id(0)
    ranks = tl.arange(0, RANKS)
    place = tl.load(token_place + first_token + tl.program_id(0))
    end = tl.load(token_time + first_token + tl.program_id(0)) + 1
    begin = end - width
    is_span = end <= tl.load(length + place)  # else behind the end of its sentence: nothing
    num_terms = tl.where(is_span, num_terms, 0)
    at_end = tl.load(before + end) + place
    target = alpha + (own - num_tokens).to(tl.int64) * padded + ranks
    # Asked for first, so that their rows arrive while splits are summed.
    new_left = tl.load(shift + width - 1) + tl.load(before + end - 1) + place
    low = _low(children, exponent, power, new_left, 0, width == 2, ranks, rank, padded)
    low |= _low(children, exponent, power, tl.load(shift + width - 1) + at_end, 1, width == 2, ranks, rank, padded)
    if BEGUN:
        sums = tl.load(target, mask=only_if(ranks < padded, is_span), other=0.0).to(tl.float32)
        peak = tl.load(partial_base + own, mask=is_span, other=2 * ZERO)
    else:
        sums = tl.zeros([RANKS], tl.float32)
        peak = tl.full([], 2 * ZERO, tl.int32)
    for first in range(0, num_terms, TERMS):
        term = first + tl.arange(0, TERMS)
        exists = term < num_terms
        a = tl.where(term < near, term + 1, width - num_terms + term)  # words of the left part
        left_row = tl.load(shift + a, mask=exists, other=0) + tl.load(before + begin + a, mask=exists, other=0) + place
        right_row = tl.load(shift + width - a, mask=exists, other=0) + at_end
        left = _rows(children, left_row, 0, exists, ranks, padded)  # [TERMS, RANKS]
        right = _rows(children, right_row, 1, exists, ranks, padded)
        pair = tl.load(exponent + left_row, mask=exists, other=ZERO)
        pair += tl.load(exponent + right_row, mask=exists, other=ZERO)
        highest = tl.maximum(peak, tl.max(pair, 0))
        right *= power_of_two(pair - highest)[:, None]
        sums = sums * power_of_two(peak - highest) + tl.sum(left * right, 0)
        peak = highest

    if DIVIDED:
        sums *= tl.load(inverse_mass + ranks, mask=ranks < padded, other=0.0)
    scale = peak
    nothing = peak < 2 * -FURTHEST
    if WEIGHTED:
        weight = tl.load(factor + own)
        sums *= weight
        scale += tl.load(weight_power + own)
        nothing |= weight == 0
    largest = tl.max(sums, 0)
    divided = power_of(largest)
    nothing |= largest == 0
    something = (ranks < rank) & (nothing == 0)
    raised = tl.where(something, tl.where(sums < FLOOR, FLOOR, sums), 0.0)  # a NaN stays one
    tl.store(target, raised * power_of_two(-divided), mask=ranks < padded)
    scale += divided
    tl.store(exponent + own, tl.where(nothing, ZERO, scale))
    tl.store(power + own, divided)
    beyond = ((scale <= -FURTHEST) | (scale >= FURTHEST)) & (nothing == 0)
    # A sum of something that came out as zero is low as well.
    wrong = beyond | (largest > HIGHEST) | ((largest == 0) & (peak >= 2 * -FURTHEST))
    low |= something & (sums < DOUBTFUL)
    marks = tl.max(tl.where(sums != sums, LOST, tl.where(low, LOW, 0)), 0)  # the largest number may leave NaN out
    marks = tl.where(wrong, LOST, marks)
    if WEIGHTED:
        marks = tl.where((weight == 0) & (marks == LOST), tl.max(low.to(tl.int32), 0) * LOW, marks)
    tl.atomic_max(lost + place, marks, mask=(marks > 0) & is_span)


@triton.jit
@no_type_check
def _rows(children, row, side, exists, ranks, padded):
    at = row.to(tl.int64) * (2 * padded) + side * padded
    mask = exists[:, None] & (ranks < padded)[None, :]
    return tl.load(children + at[:, None] + ranks[None, :], mask=mask, other=0.0).to(tl.float32)


@triton.jit
@no_type_check
def _low(children, exponent, power, row, side, is_word, ranks, rank, padded):
    """Which entries of a child that is not nothing are doubtful: of a word, before its row was divided."""
    at = row.to(tl.int64) * (2 * padded) + side * padded
    entries = tl.load(children + at + ranks, mask=ranks < padded, other=1.0).to(tl.float32)
    lowest = tl.where(is_word, DOUBTFUL * power_of_two(-tl.load(power + row)), DOUBTFUL)
    return ((entries >= lowest) == 0) & (ranks < rank) & (tl.load(exponent + row) != ZERO)


def begin_sums(chart: Chart, width: int, known: int) -> None:
    """Sums over splits into parts of at most `known` words, of all spans of WIDTHS widths from `width` on.

    A program owns BEGINS neighbouring spans of each width and a block of ranks. Reads, for each k, BEGINS left parts
    and BEGINS + WIDTHS - 1 right ones, for BEGINS * WIDTHS products.
    """
    rows, ranks = chart.rows, early_ranks(chart.padded)
    begins = triton.cdiv(rows.longest - width + 1, BEGINS)
    _begin_sums[(rows.num_sentences, begins, triton.cdiv(chart.padded, ranks))](
        chart.children,
        chart.alpha,
        chart.exponent,
        chart.partial_base,
        rows.before,
        rows.shift,
        rows.length,
        width,
        known,
        rows.num_tokens,
        chart.padded,
        WIDTHS=WIDTHS,
        BEGINS=BEGINS,
        RANKS=ranks,
        num_warps=1,
    )


@triton.jit(do_not_specialize=["width", "known", "num_tokens"])
@no_type_check
def _begin_sums(
    children,
    alpha,
    exponent,
    partial_base,
    before,
    shift,
    length,
    width,
    known,
    num_tokens,
    padded,
    WIDTHS: tl.constexpr,
    BEGINS: tl.constexpr,
    RANKS: tl.constexpr,
):
    place = tl.program_id(0)
    first = tl.program_id(1) * BEGINS
    ranks = tl.program_id(2) * RANKS + tl.arange(0, RANKS)
    words = tl.load(length + place)
    if first + width <= words:
        i = first + tl.arange(0, BEGINS)
        widths = width + tl.arange(0, WIDTHS)
        j = widths[:, None] + i[None, :]  # [WIDTHS, BEGINS]
        at_end = tl.load(before + j, mask=j <= words, other=0) + place
        sums = tl.zeros([WIDTHS, BEGINS, RANKS], tl.float32)
        peak = tl.full([WIDTHS, BEGINS], 2 * ZERO, tl.int32)
        for k in range(first + 1, tl.minimum(first + BEGINS + known, words)):
            is_left = (i < k) & (k - i <= known)
            left_row = tl.load(shift + k - i, mask=is_left, other=0) + tl.load(before + k) + place
            left = _rows(children, left_row, 0, is_left, ranks, padded)
            is_right = (j <= words) & (k < j) & (j - k <= known)
            right_row = tl.load(shift + j - k, mask=is_right, other=0) + at_end
            at = right_row.to(tl.int64) * (2 * padded) + padded
            mask = is_right[:, :, None] & (ranks < padded)[None, None, :]
            right = tl.load(children + at[:, :, None] + ranks[None, None, :], mask=mask, other=0.0).to(tl.float32)
            pair = tl.load(exponent + left_row, mask=is_left, other=ZERO)[None, :]
            pair += tl.load(exponent + right_row, mask=is_right, other=ZERO)
            highest = tl.maximum(peak, pair)
            right *= power_of_two(pair - highest)[:, :, None]
            sums = sums * power_of_two(peak - highest)[:, :, None] + left[None, :, :] * right
            peak = highest
        row = tl.load(shift + widths, mask=widths <= words, other=0)[:, None] + at_end
        at = (row - num_tokens).to(tl.int64) * padded
        mask = (j <= words)[:, :, None] & (ranks < padded)[None, None, :]
        tl.store(alpha + at[:, :, None] + ranks[None, None, :], sums, mask=mask)
        tl.store(partial_base + row, peak, mask=only_if(j <= words, tl.program_id(2) == 0))


def split_sums_by_torch(chart: Chart, width: int) -> None:
    """What `split_sums` must equal, with `begin_sums` before it or not: a span at a time, sums in float64."""
    rows, zero = chart.rows, ZERO.value
    for row in range(rows.offsets[width], rows.offsets[width + 1]):
        token = rows.num_before[width] + row - rows.offsets[width]
        place, end = int(rows.token_place[token]), int(rows.token_time[token]) + 1
        if end > int(rows.length[place]):
            chart.alpha[row - rows.num_tokens], chart.exponent[row], chart.power[row] = 0, zero, LEAST_POWER.value
            continue
        cuts = torch.arange(end - width + 1, end, device=rows.shift.device)
        left = rows.shift[cuts - end + width] + rows.before[cuts] + place
        right = rows.shift[end - cuts] + rows.before[end] + place
        pair = chart.exponent[left].long() + chart.exponent[right]
        peak, factor, power = int(pair.amax()), 1.0, 0
        products = chart.children[left, 0].double() * chart.children[right, 1].double()
        sums = (products * torch.exp2((pair - peak).double())[:, None]).sum(0)
        if chart.weights is not None:
            factor, power = float(chart.weights.factor[row]), int(chart.weights.power[row])
        sums = sums * factor
        if chart.inverse_mass is not None:
            sums = sums * chart.inverse_mass
        highest = torch.frexp(sums.amax()).exponent if float(sums.amax()) else LEAST_POWER.value
        divided = max(int(highest), LEAST_POWER.value)
        possible = float(sums.amax()) > 0 and peak > zero // 2
        raised = sums.clamp(min=FLOOR.value) if possible else sums * 0
        chart.alpha[row - rows.num_tokens] = (raised * 2.0**-divided).to(chart.alpha.dtype)
        chart.alpha[row - rows.num_tokens, chart.rank :] = 0
        chart.exponent[row] = peak + power + divided if possible else zero
        chart.power[row] = divided
        is_low = possible and bool((sums[: chart.rank] < DOUBTFUL.value).any())
        for child, side in ((left[-1], 0), (right[0], 1)):
            lowest = DOUBTFUL.value * (2.0 ** -int(chart.power[child]) if width == 2 else 1.0)
            entries = chart.children[child, side, : chart.rank]
            is_low |= bool((entries < lowest).any()) and int(chart.exponent[child]) != zero
        if is_low:
            chart.lost[place] = max(int(chart.lost[place]), LOW)
