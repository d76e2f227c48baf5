"""Derivatives with respect to the children of all spans of a width, gathered from the wider spans they are a part of.

    left(i, k):   sum over j > k of above(i, j) * right(k, j)
    right(k, j):  sum over i < k of above(i, j) * left(i, k)

`outside_sums` completes a width: a program owns one span, one side and a block of ranks; nothing is added from two
places. `begin_outside_sums` has gone before for several widths at once, over all parents that are known by then. All
derivatives are those with respect to numbers as they are stored, at the scale of their span.
"""

import math
from typing import NamedTuple, no_type_check

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

from rankspace.kernels.interpreted import only_if
from rankspace.kernels.scales import LARGEST_POWER, ZERO, power_of_two
from rankspace.kernels.tree_chart import Chart
from rankspace.kernels.tree_tiles import BEGINS, WIDTHS, block_tile, early_ranks


class Above(NamedTuple):
    """Derivatives of the sum over sentences of slope * log Z."""

    alpha: Float[Tensor, "wide padded"]  # with respect to alpha; rows of whole sentences are not read
    children: Float[Tensor, "span 2 padded"]  # with respect to children
    top: Float[Tensor, "batch"]  # [place]: with respect to Z at the scale of the chart
    root: Float[Tensor, "padded"]  # not a derivative: what alpha of a whole sentence is multiplied with to give Z


def new_above(chart: Chart, of_top: Float[Tensor, "batch"], root: Float[Tensor, "padded"]) -> Above:
    """Tables that nothing was written to. The widest spans have no rows: they are whole sentences."""
    parts = chart.rows.num_parts
    wide = max(parts - chart.rows.num_tokens, 0)
    return Above(torch.empty_like(chart.alpha[:wide]), torch.empty_like(chart.children[:parts]), of_top, root)


def outside_sums(chart: Chart, above: Above, width: int, known: int = 0) -> None:
    """Fills the rows of a width of `above.children`. With `known`, the shares of parents of at least that many words
    have been summed by `begin_outside_sums`.

    Reads 8R bytes for each pair of a parent and a sibling, and there are two for each split of the inside pass; writes
    8R bytes for each span.
    """
    rows, weights = chart.rows, chart.weights
    most = known - 1 - width if known else rows.longest - width
    tile = block_tile(most, chart.padded)
    factor, weight_power = (chart.alpha, chart.power) if weights is None else weights
    inverse_mass = chart.alpha if chart.inverse_mass is None else chart.inverse_mass
    _outside_sums[(rows.num_spans(width), triton.cdiv(chart.padded, tile.ranks), 2)](
        chart.children,
        above.alpha,
        above.children,
        above.top,
        above.root,
        chart.exponent,
        factor,
        weight_power,
        inverse_mass,
        rows.before,
        rows.shift,
        rows.token_place,
        rows.token_time,
        rows.length,
        width,
        most,
        rows.offsets[width],
        rows.num_before[width],
        rows.num_tokens,
        chart.padded,
        BEGUN=known > 0,
        TERMS=tile.terms,
        RANKS=tile.ranks,
        WEIGHTED=weights is not None,
        DIVIDED=chart.inverse_mass is not None,
        num_warps=tile.warps,
    )


@triton.jit(do_not_specialize=["width", "most", "first_row", "first_token", "num_tokens"])
@no_type_check
def _outside_sums(
    children,
    of_alpha,
    of_children,
    of_top,
    root,
    exponent,
    factor,
    weight_power,
    inverse_mass,
    before,
    shift,
    token_place,
    token_time,
    length,
    width,
    most,
    first_row,
    first_token,
    num_tokens,
    padded,
    BEGUN: tl.constexpr,
    TERMS: tl.constexpr,
    RANKS: tl.constexpr,
    WEIGHTED: tl.constexpr,
    DIVIDED: tl.constexpr,
):
    row = tl.program_id(0)
    ranks = tl.program_id(1) * RANKS + tl.arange(0, RANKS)
    side = tl.program_id(2)
    place = tl.load(token_place + first_token + row)
    end = tl.load(token_time + first_token + row) + 1
    begin = end - width
    words = tl.load(length + place)
    own = tl.load(exponent + first_row + row)
    of_whole = tl.load(root + ranks, mask=ranks < padded, other=0.0) * tl.load(of_top + place)
    target = of_children + (first_row + row).to(tl.int64) * (2 * padded) + side * padded + ranks
    sums = tl.zeros([RANKS], tl.float32)
    if BEGUN:
        sums += tl.load(target, mask=only_if(ranks < padded, end <= words), other=0.0)
    count = tl.minimum(tl.where(side == 0, words - end, begin), most)  # of parents
    count = tl.where(end <= words, count, 0)  # what lies behind the end of its sentence has none
    for first in range(0, count, TERMS):
        t = first + 1 + tl.arange(0, TERMS)  # words of the sibling
        exists = t <= count
        parent_end = tl.where(side == 0, end + t, end)
        sibling_end = tl.where(side == 0, end + t, begin)
        parent = tl.load(shift + width + t, mask=exists, other=0)
        parent += tl.load(before + parent_end, mask=exists, other=0) + place
        sibling = tl.load(shift + t, mask=exists, other=0) + tl.load(before + sibling_end, mask=exists, other=0) + place
        is_whole = (width + t == words) & (parent_end == words)
        derivative = _derivatives(of_alpha, of_whole, parent, exists, is_whole, ranks, num_tokens, padded)
        at = sibling.to(tl.int64) * (2 * padded) + (1 - side) * padded
        mask = exists[:, None] & (ranks < padded)[None, :]
        entries = tl.load(children + at[:, None] + ranks[None, :], mask=mask, other=0.0).to(tl.float32)
        scale, weight = _scale(exponent, factor, weight_power, parent, exists, WEIGHTED)
        relative = own + tl.load(exponent + sibling, mask=exists, other=ZERO) - scale
        entries *= (power_of_two(tl.minimum(relative, LARGEST_POWER)) * weight)[:, None]
        sums += tl.sum(entries * derivative, 0)
    if DIVIDED:
        sums *= tl.load(inverse_mass + ranks, mask=ranks < padded, other=0.0)
    tl.store(target, sums, mask=ranks < padded)


@triton.jit
@no_type_check
def _derivatives(of_alpha, of_whole, parent, exists, is_whole, ranks, num_tokens, padded):
    """Rows of parents. Those of whole sentences are not stored: theirs is of_top * root."""
    at = (parent - num_tokens).to(tl.int64) * padded
    mask = (exists & (is_whole == 0))[:, None] & (ranks < padded)[None, :]
    found = tl.load(of_alpha + at[:, None] + ranks[None, :], mask=mask, other=0.0).to(tl.float32)
    return tl.where((exists & is_whole)[:, None], of_whole[None, :], found)


@triton.jit
@no_type_check
def _scale(exponent, factor, weight_power, parent, exists, WEIGHTED: tl.constexpr):
    """The exponent of a parent without its weight, and the factor of that; far above all others if it is nothing."""
    scale = tl.load(exponent + parent, mask=exists, other=ZERO)
    scale = tl.where(scale == ZERO, -ZERO, scale)
    weight = 1.0
    if WEIGHTED:
        scale -= tl.load(weight_power + parent, mask=exists, other=0)
        weight = tl.load(factor + parent, mask=exists, other=0.0)
    return scale, weight


def begin_outside_sums(chart: Chart, above: Above, width: int, known: int) -> None:
    """Shares of parents of at least `known` words, for all spans of WIDTHS widths from `width` down.

    A program owns, of one side, BEGINS neighbouring spans of each width: those that begin (right: end) at neighbouring
    places have the parent in common. Places are counted from the left for left parts, from the right for right ones.
    """
    rows, ranks, weights = chart.rows, early_ranks(chart.padded), chart.weights
    begins = triton.cdiv(rows.longest - (width - WIDTHS + 1) + 1, BEGINS)
    factor, weight_power = (chart.alpha, chart.power) if weights is None else weights
    _begin_outside_sums[(rows.num_sentences, 2 * begins, triton.cdiv(chart.padded, ranks))](
        chart.children,
        above.alpha,
        above.children,
        above.top,
        above.root,
        chart.exponent,
        factor,
        weight_power,
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
        WEIGHTED=weights is not None,
        num_warps=1,
    )


@triton.jit(do_not_specialize=["width", "known", "num_tokens"])
@no_type_check
def _begin_outside_sums(
    children,
    of_alpha,
    of_children,
    of_top,
    root,
    exponent,
    factor,
    weight_power,
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
    WEIGHTED: tl.constexpr,
):
    place = tl.program_id(0)
    first = (tl.program_id(1) // 2) * BEGINS
    side = tl.program_id(1) % 2
    ranks = tl.program_id(2) * RANKS + tl.arange(0, RANKS)
    words = tl.load(length + place)
    if first + width - WIDTHS + 1 <= words:
        x = first + tl.arange(0, BEGINS)
        widths = width - tl.arange(0, WIDTHS)
        y = widths[:, None] + x[None, :]  # [WIDTHS, BEGINS]: where own spans stop, and siblings begin
        exists = y <= words
        own_end = tl.where(side == 0, y, words - x[None, :])
        own_row = tl.load(shift + widths, mask=widths <= words, other=0)[:, None]
        own_row += tl.load(before + own_end, mask=exists, other=0) + place
        own = tl.load(exponent + own_row, mask=exists, other=ZERO)
        of_whole = tl.load(root + ranks, mask=ranks < padded, other=0.0) * tl.load(of_top + place)
        sums = tl.zeros([WIDTHS, BEGINS, RANKS], tl.float32)
        for z in range(first + known, words + 1):
            is_parent = z - x >= known
            parent_end = tl.where(side == 0, z, words - x)
            parent = tl.load(shift + z - x, mask=is_parent, other=0)
            parent += tl.load(before + parent_end, mask=is_parent, other=0) + place
            derivative = _derivatives(of_alpha, of_whole, parent, is_parent, z - x == words, ranks, num_tokens, padded)
            is_sibling = exists & is_parent[None, :]
            sibling_end = tl.where(side == 0, z, words - y)
            sibling = tl.load(shift + z - y, mask=is_sibling, other=0)
            sibling += tl.load(before + sibling_end, mask=is_sibling, other=0) + place
            at = sibling.to(tl.int64) * (2 * padded) + (1 - side) * padded
            mask = is_sibling[:, :, None] & (ranks < padded)[None, None, :]
            entries = tl.load(children + at[:, :, None] + ranks[None, None, :], mask=mask, other=0.0).to(tl.float32)
            scale, weight = _scale(exponent, factor, weight_power, parent, is_parent, WEIGHTED)
            relative = own + tl.load(exponent + sibling, mask=is_sibling, other=ZERO) - scale[None, :]
            entries *= power_of_two(tl.minimum(relative, LARGEST_POWER))[:, :, None]
            if WEIGHTED:
                derivative *= weight[:, None]
            sums += entries * derivative[None, :, :]
        at = own_row.to(tl.int64) * (2 * padded) + side * padded
        mask = exists[:, :, None] & (ranks < padded)[None, None, :]
        tl.store(of_children + at[:, :, None] + ranks[None, None, :], sums, mask=mask)


def outside_sums_by_torch(chart: Chart, above: Above, width: int) -> None:
    """What `outside_sums` must equal, with `begin_outside_sums` before it or not: a span at a time, in float64."""
    rows = chart.rows
    for row in range(rows.offsets[width], rows.offsets[width + 1]):
        token = rows.num_before[width] + row - rows.offsets[width]
        place, end = int(rows.token_place[token]), int(rows.token_time[token]) + 1
        begin, words = end - width, int(rows.length[place])
        if end > words:
            above.children[row] = 0
            continue
        total = torch.zeros(2, chart.padded, dtype=torch.float64, device=above.root.device)
        for j in range(end + 1, words + 1):
            total[0] += _share(chart, above, place, row, (begin, j), (end, j), 1)
        for i in range(begin):
            total[1] += _share(chart, above, place, row, (i, end), (i, begin), 0)
        if chart.inverse_mass is not None:
            total *= chart.inverse_mass
        above.children[row] = total.to(above.children.dtype)


def _share(
    chart: Chart, above: Above, place: int, own: int, parent: tuple[int, int], sibling: tuple[int, int], side: int
) -> Float[Tensor, "padded"]:
    rows = chart.rows
    parent_row, sibling_row = (int(rows.shift[j - i] + rows.before[j]) + place for i, j in (parent, sibling))
    exponents = [int(chart.exponent[row]) for row in (own, sibling_row, parent_row)]
    if ZERO.value in exponents:
        return torch.zeros_like(above.root, dtype=torch.float64)
    if parent == (0, int(rows.length[place])):
        derivative = (above.top[place] * above.root).double()
    else:
        derivative = above.alpha[parent_row - rows.num_tokens].double()
    factor, power = 1.0, 0
    if chart.weights is not None:
        factor, power = float(chart.weights.factor[parent_row]), int(chart.weights.power[parent_row])
    relative = exponents[0] + exponents[1] - (exponents[2] - power)
    share: Tensor = derivative * chart.children[sibling_row, side].double() * factor
    return share * math.ldexp(1.0, relative)
