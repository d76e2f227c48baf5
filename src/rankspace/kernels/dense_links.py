"""Derivatives with respect to the links of single words, gathered from all spans that a word begins or ends."""

from typing import no_type_check

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

from rankspace.kernels.dense_chart import SPLITS, DenseAbove, DenseChart, Span, row_of, tile_of
from rankspace.kernels.scales import ZERO, power_of_two


def link_slopes(chart: DenseChart, above: DenseAbove) -> Float[Tensor, "token 2 parent nonterminal"]:
    """Sums over parents of three words or more: the outer product of the derivative of rho of a parent with the vector
    of the word's sibling. A program owns a tile of one link of one word."""
    rows, size = chart.rows, chart.size
    tile = tile_of(size)
    tiles = triton.cdiv(size, tile)
    found = torch.empty_like(chart.links)
    _link_slopes[(rows.num_tokens, 2, tiles * tiles)](
        chart.spans,
        chart.exponent,
        chart.base,
        above.rho,
        found,
        rows.before,
        rows.shift,
        rows.token_place,
        rows.token_time,
        rows.length,
        rows.num_tokens,
        size,
        TILE=tile,
        SPLITS=SPLITS,
        num_warps=4 if tile > 16 else 1,
    )
    return found


@triton.jit(do_not_specialize=["num_tokens", "size"])
@no_type_check
def _link_slopes(
    spans,
    exponent,
    base,
    of_rho,
    found,
    before,
    shift,
    token_place,
    token_time,
    length,
    num_tokens,
    size,
    TILE: tl.constexpr,
    SPLITS: tl.constexpr,
):
    token = tl.program_id(0)
    side = tl.program_id(1)  # the word is the left part (0) or the right one
    tiles = tl.cdiv(size, TILE)
    parents = tl.program_id(2) // tiles * TILE + tl.arange(0, TILE)
    others = tl.program_id(2) % tiles * TILE + tl.arange(0, TILE)
    place = tl.load(token_place + token)
    time = tl.load(token_time + token)
    words = tl.load(length + place)
    own = tl.load(exponent + token)
    count = tl.where(side == 0, words - time - 1, tl.where(time < words, time, 0))  # words of the widest sibling
    sums = tl.zeros([TILE, TILE], tl.float32)
    for first in range(2, count + 1, SPLITS):
        t = first + tl.arange(0, SPLITS)  # words of the sibling
        exists = t <= count
        parent_end = tl.where(side == 0, time + 1 + t, time + 1)
        sibling_end = tl.where(side == 0, time + 1 + t, time)
        parent = tl.load(shift + t + 1, mask=exists, other=0) + place - num_tokens
        parent += tl.load(before + parent_end, mask=exists, other=0)
        sibling = tl.load(shift + t, mask=exists, other=0) + place
        sibling += tl.load(before + sibling_end, mask=exists, other=0)
        scale = tl.load(base + parent, mask=exists, other=0)
        weight = power_of_two(own + tl.load(exponent + sibling, mask=exists, other=ZERO) - scale)
        slopes = _rows(of_rho, parent, exists, parents, size) * weight[:, None]
        vectors = _rows(spans, sibling - num_tokens, exists, others, size)
        sums = tl.dot(tl.trans(slopes), vectors, sums, input_precision="ieee")
    at = (token.to(tl.int64) * 2 + side) * size * size + parents[:, None] * size + others[None, :]
    tl.store(found + at, sums, mask=(parents < size)[:, None] & (others < size)[None, :])


@triton.jit
@no_type_check
def _rows(table, row, exists, symbols, size):
    at = row.to(tl.int64)[:, None] * size + symbols[None, :]
    return tl.load(table + at, mask=exists[:, None] & (symbols < size)[None, :], other=0.0)


def link_slopes_by_torch(chart: DenseChart, above: DenseAbove) -> Float[Tensor, "token 2 parent nonterminal"]:
    """What `link_slopes` must equal: a word at a time, in float64."""
    rows, found = chart.rows, torch.zeros_like(chart.links, dtype=torch.float64)
    for token, (place, time) in enumerate(zip(rows.token_place.tolist(), rows.token_time.tolist(), strict=True)):
        words = int(rows.length[place])
        if time >= words:
            continue
        for end in range(time + 3, words + 1):
            found[token, 0] += _share(chart, above, token, Span(place, time, end), Span(place, time + 1, end))
        for begin in range(time - 1):
            found[token, 1] += _share(chart, above, token, Span(place, begin, time + 1), Span(place, begin, time))
    return found.float()


def _share(
    chart: DenseChart, above: DenseAbove, token: int, parent: Span, sibling: Span
) -> Float[Tensor, "parent nonterminal"]:
    first = chart.rows.num_tokens
    row, beside = row_of(chart.rows, parent) - first, row_of(chart.rows, sibling)
    relative = int(chart.exponent[token]) + int(chart.exponent[beside]) - int(chart.base[row])
    outer = torch.outer(above.rho[row].double(), chart.spans[beside - first].double())
    return outer * 2.0 ** max(relative, -1000)
