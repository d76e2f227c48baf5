"""The inside pass of a grammar with a rule tensor, in scaled linear space, width by width over all sentences.

With x_ij the vector of a span and x_i that of a word,

    pair_ij = sum_k x_ik (outer) x_kj      rho_ij[q] = sum_{B,C} rule[q, B, C] pair_ij[B, C]      x_ij = head . rho_ij

(x_ij = rho_ij without a head). Children that are spans: their outer products are summed over the splits by one batched
matrix product, and one matrix product takes the sums to the ranks. A child that is a word occurs in all spans that
begin or end there, so its preterminals are summed out once: `right_words[token]` is the matrix from the left sibling to
the ranks. Two words meet in spans of two words alone.

Cost, for n words, m nonterminals, p preterminals, R rows of the rule tensor: n^3 m^2 + n^2 m^2 R + n m p R + n p^2 R.
Memory: the chart, i.e. n^2/2 vectors of m numbers (of m + R with a head), two tables [token, R, m], and temporaries of
a few times BUDGET numbers or one row [max(m, p)^2], whichever is more.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from rankspace.inference.dense_tree.groups import Rows, SpanGroup, span_groups
from rankspace.inference.dense_tree.weights import DenseWeights
from rankspace.inference.links import product
from rankspace.inference.ragged import Ragged
from rankspace.inference.scaled import ZERO, lowest, plus, power_of_two

LOG2_E = 1.4426950408889634


@dataclass(frozen=True)
class Chart:
    """Vectors of all words and spans: value = mantissa * 2^exponent, one exponent for each.

    `base` is the exponent at which the sum over splits was taken, `ranks` that sum (rho) at it, kept for grammars with
    a head. What arithmetic dropped from a row is at most about the smallest normal number times 2^base.
    """

    words: Float[Tensor, "token preterminal"]
    spans: Float[Tensor, "span nonterminal"]  # of two words or more
    exponent: Int[Tensor, "rows"]  # words, then spans
    base: Int[Tensor, "span"]
    ranks: Float[Tensor, "span rank"] | None


class WordLinks(NamedTuple):
    """Matrices of the words of a batch, preterminals summed out, from their siblings to the ranks."""

    left: Float[Tensor, "token rank nonterminal"]  # the word is the left child
    right: Float[Tensor, "token rank nonterminal"]


class SpanScale(NamedTuple):
    """Weights of spans as mantissa * 2^exponent, the mantissa in (1/2, 1], or zero."""

    mantissa: Float[Tensor, "rows"]
    exponent: Int[Tensor, "rows"]


def inside(weights: DenseWeights, layout: Ragged, support: bool = False) -> Chart:
    """The chart. With `support`, weights are zeros and ones, and so is every vector: what is possible at all."""
    chart = _empty(weights, layout)
    scale = span_scale(weights, layout)
    _fill_words(weights, chart, scale)
    links = word_links(weights, layout, chart.words)
    for width in range(2, layout.longest + 1):
        for group in groups_of(weights, layout, width):
            ranks, base = _sum_splits(weights, chart, links, group)
            _store(weights, chart, scale, group, ranks, base, support)
    return chart


def groups_of(weights: DenseWeights, layout: Ragged, width: int) -> tuple[SpanGroup, ...]:
    """The spans of a width in portions."""
    numbers = weights.num_nonterminals * max(weights.num_nonterminals, weights.num_ranks, width)
    if width == 2:
        numbers = weights.num_preterminals**2
    return span_groups(layout, width, weights.per_sentence, numbers)


def _empty(weights: DenseWeights, layout: Ragged) -> Chart:
    count = layout.total_spans - layout.num_tokens
    make = weights.words.new_empty
    return Chart(
        torch.empty_like(weights.words),
        make(count, weights.num_nonterminals),
        make(layout.total_spans, dtype=torch.int32),
        make(count, dtype=torch.int32),
        None if weights.head is None else make(count, weights.num_ranks),
    )


def span_scale(weights: DenseWeights, layout: Ragged) -> SpanScale | None:
    if weights.log_span is None:
        return None
    log = weights.log_span.double() * LOG2_E
    forbidden = log == -torch.inf
    log = log.masked_fill(forbidden, 0)
    exponent = log.ceil()
    mantissa = torch.exp2(log - exponent).masked_fill(forbidden, 0).to(weights.dtype)
    return SpanScale(mantissa, exponent.int().masked_fill(forbidden, ZERO))


def _fill_words(weights: DenseWeights, chart: Chart, scale: SpanScale | None) -> None:
    chart.words.copy_(weights.words)
    exponent = torch.where(weights.words.amax(1) > 0, 0, ZERO).int() if len(weights.words) else chart.exponent[:0]
    if scale is not None:
        tokens = slice(0, len(weights.words))
        chart.words.mul_(scale.mantissa[tokens, None])
        exponent = plus(exponent, scale.exponent[tokens])
    chart.exponent[: len(exponent)] = exponent


def word_links(weights: DenseWeights, layout: Ragged, words: Float[Tensor, "token preterminal"]) -> WordLinks:
    shape = (-1, weights.num_ranks, weights.num_nonterminals)
    sides = (weights.blocks.word_span, weights.blocks.span_word)
    if not weights.per_sentence:
        return WordLinks(*(product(words, side[0].T, weights.precision).view(shape) for side in sides))
    found = [words.new_empty(len(words), side.shape[1]) for side in sides]
    for group in span_groups(layout, 1, True, max(weights.num_preterminals, sides[0].shape[1])):
        mine = words[group.rows].view(group.num_groups, group.num_members, -1)
        for side, table in zip(sides, found, strict=True):
            table[group.rows] = product(mine, side[group.groups].mT, weights.precision).flatten(0, 1)
    return WordLinks(*(table.view(shape) for table in found))


class Splits(NamedTuple):
    """The ways to cut the spans of a group in two, first split first. Powers of two weigh them on a common scale."""

    power: Float[Tensor, "row split"]
    base: Int[Tensor, "row"]
    left_rows: Int[Tensor, "row inner"]  # of children that are spans, in the span table
    right_rows: Int[Tensor, "row inner"]


def splits(chart: Chart, group: SpanGroup) -> Splits:
    left, right = group.left(1, group.width - 1), group.right(1, group.width - 1)
    exponent = plus(chart.exponent[left], chart.exponent[right])
    base = exponent.amax(1)
    first = len(chart.words)
    return Splits(
        power_of_two(exponent - base[:, None], chart.words.dtype), base, left[:, 1:-1] - first, right[:, 1:-1] - first
    )


def _sum_splits(weights: DenseWeights, chart: Chart, links: WordLinks, group: SpanGroup) -> tuple[Tensor, Tensor]:
    """rho of the spans of a group, and the exponent it is scaled by."""
    cut = splits(chart, group)
    if group.width == 2:
        pairs = word_pairs(chart, group) * cut.power[:, :, None]
        return _to_ranks(weights, weights.blocks.words, group, pairs), cut.base
    ranks = _beside_word(links.right, group.last_words, chart, cut.power[:, -1:], group.without_last)
    ranks += _beside_word(links.left, group.first_words, chart, cut.power[:, :1], group.without_first)
    if group.width > 3:
        left, right = inner_children(chart, cut)
        ranks += _to_ranks(weights, weights.blocks.spans, group, torch.bmm(left.mT, right))
    return ranks, cut.base


def _to_ranks(weights: DenseWeights, block: Tensor, group: SpanGroup, pairs: Float[Tensor, "row b c"]) -> Tensor:
    flat = pairs.view(group.num_groups, group.num_members, -1)
    return product(flat, block[group.groups].mT, weights.precision).flatten(0, 1)


def word_pairs(chart: Chart, group: SpanGroup) -> Float[Tensor, "row preterminal preterminal"]:
    return chart.words[group.first_words][:, :, None] * chart.words[group.last_words][:, None, :]


def inner_children(chart: Chart, cut: Splits) -> tuple[Tensor, Tensor]:
    """Vectors of children that are spans, [row, inner, nonterminal]; the left ones carry the weight of the split."""
    shape = (*cut.left_rows.shape, -1)
    left = chart.spans.index_select(0, cut.left_rows.flatten()).view(shape)
    right = chart.spans.index_select(0, cut.right_rows.flatten()).view(shape)
    return left * cut.power[:, 1:-1, None], right


def _beside_word(table: Tensor, words: Rows, chart: Chart, power: Tensor, siblings: Rows) -> Float[Tensor, "row rank"]:
    """sum_B table[word, q, B] sibling[B], weighed."""
    sibling = chart.spans[siblings] * power
    return (table[words] * sibling[:, None, :]).sum(2)


def _store(
    weights: DenseWeights,
    chart: Chart,
    scale: SpanScale | None,
    group: SpanGroup,
    ranks: Float[Tensor, "row rank"],
    base: Int[Tensor, "row"],
    support: bool,
) -> None:
    """Writes head . rho, its largest entry brought to [1/2, 1) by a power of two."""
    raw = ranks if weights.head is None else through_head(weights, group, ranks)
    top = raw.amax(1)
    bounded = top.clamp(min=lowest(raw.dtype))
    fraction, shift = torch.frexp(bounded)
    power = fraction / bounded  # 2^-shift, exactly
    exponent = torch.where(top > 0, base + shift, ZERO)
    if support:
        raw, power, exponent = (raw > 0).to(raw.dtype), torch.ones_like(power), torch.where(top > 0, 0, ZERO).int()
    if scale is not None:
        power = power * scale.mantissa[group.among_all]
        exponent = plus(exponent, scale.exponent[group.among_all])
    chart.spans[group.own] = raw * power[:, None]
    chart.exponent[group.among_all] = exponent
    chart.base[group.own] = base
    if chart.ranks is not None:
        chart.ranks[group.own] = ranks


def through_head(weights: DenseWeights, group: SpanGroup, ranks: Float[Tensor, "row rank"]) -> Tensor:
    assert weights.head is not None
    flat = ranks.view(group.num_groups, group.num_members, -1)
    return product(flat, weights.head[group.groups].mT, weights.precision).flatten(0, 1)
