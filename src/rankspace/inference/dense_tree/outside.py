"""The outside pass: derivatives of log Z, top-down, from the chart alone.

Adjoints are derivatives of log Z with respect to mantissas. An entry times its adjoint is the posterior probability
that its span carries its symbol; summed over symbols, that of the span. Adjoints of entries that are zero could be
beyond all range and carry nothing to weights that are not zero: they are left out.

Within one width every child occurs once as a left and once as a right child, so that adding to rows is deterministic.
Costs three times the inside pass (twice without gradients of the rules). Memory: a second chart, and two further tables
[token, R, m], the adjoints of the words' links. Pairs of children are computed again, not kept.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from rankspace.inference.dense_tree.groups import SpanGroup, num_long, span_groups
from rankspace.inference.dense_tree.inside import (
    Chart,
    SpanScale,
    Splits,
    WordLinks,
    groups_of,
    inner_children,
    span_scale,
    splits,
    word_links,
    word_pairs,
)
from rankspace.inference.dense_tree.weights import DenseWeights
from rankspace.inference.links import product
from rankspace.inference.ragged import Ragged
from rankspace.inference.scaled import power_of_two


@dataclass(frozen=True)
class Adjoint:
    """Derivatives with respect to the mantissas of a chart, and of the words as they were given."""

    words: Float[Tensor, "token preterminal"]
    spans: Float[Tensor, "span nonterminal"]


class Collector:
    """Sees the adjoints where weights are used, to make gradients of them, or slopes. This one collects nothing."""

    def pairs(self, group: SpanGroup, block: str, adjoint: Tensor, pairs: Tensor) -> None:
        """Ranks' adjoints [row, rank] and the pairs [row, B, C] that the block of the rule tensor was applied to."""

    def heads(self, group: SpanGroup, adjoint: Tensor, ranks: Tensor) -> None:
        """Adjoints [row, nonterminal] and the vectors over ranks that the head matrix was applied to."""

    def words(self, group: SpanGroup, side: str, adjoint: Tensor, words: Tensor) -> None:
        """Adjoints [word, rank * nonterminal] of a word's link, and the words [word, preterminal] it was made of."""


def outside(
    weights: DenseWeights,
    layout: Ragged,
    chart: Chart,
    seed: Float[Tensor, "long nonterminal"],
    collector: Collector,
) -> Adjoint:
    """Adjoints of the chart, from those of the whole sentences of two words or more (`seed`)."""
    run = _Run(weights, layout, chart, collector)
    run.adjoint.spans[layout.whole[: num_long(layout)] - layout.num_tokens] = seed
    for width in range(layout.longest, 1, -1):
        for group in groups_of(weights, layout, width):
            run.descend(group)
    run.finish_words()
    return run.adjoint


class _Run:
    def __init__(self, weights: DenseWeights, layout: Ragged, chart: Chart, collector: Collector) -> None:
        self.weights, self.layout, self.chart, self.collector = weights, layout, chart, collector
        self.adjoint = Adjoint(torch.zeros_like(chart.words), torch.zeros_like(chart.spans))
        self.scale: SpanScale | None = span_scale(weights, layout)
        self.links = word_links(weights, layout, chart.words)
        self.of_links = WordLinks(*(torch.zeros_like(table) for table in self.links))

    def descend(self, group: SpanGroup) -> None:
        """Passes the adjoints of a group of spans on to their children."""
        ranks = self.of_ranks(group)
        cut = splits(self.chart, group)
        if group.width == 2:
            self.to_two_words(group, cut, ranks)
            return
        self.to_word_and_span(group, cut, ranks)
        if group.width > 3:
            self.to_two_spans(group, cut, ranks)

    def of_ranks(self, group: SpanGroup) -> Float[Tensor, "row rank"]:
        """Adjoint of rho, at the scale its sum over splits was taken."""
        own = group.own
        mine = torch.where(self.chart.spans[own] > 0, self.adjoint.spans[own], 0)
        self.adjoint.spans[own] = mine
        raw = mine * unscaled(self.chart, self.scale, group)[:, None]
        head = self.weights.head
        if head is None or self.chart.ranks is None:
            return raw
        self.collector.heads(group, raw, self.chart.ranks[own])
        flat = raw.view(group.num_groups, group.num_members, -1)
        return product(flat, head[group.groups], self.weights.precision).flatten(0, 1)

    def of_pairs(self, group: SpanGroup, block: Tensor, ranks: Tensor, size: int) -> Float[Tensor, "row b c"]:
        flat = ranks.view(group.num_groups, group.num_members, -1)
        return product(flat, block[group.groups], self.weights.precision).view(-1, size, size)

    def to_two_words(self, group: SpanGroup, cut: Splits, ranks: Tensor) -> None:
        pairs = word_pairs(self.chart, group) * cut.power[:, :, None]
        self.collector.pairs(group, "words", ranks, pairs)
        of_pairs = self.of_pairs(group, self.weights.blocks.words, ranks, self.weights.num_preterminals)
        of_pairs *= cut.power[:, :, None]
        words, first, last = self.chart.words, group.first_words, group.last_words
        of_first = torch.bmm(of_pairs, words[last][:, :, None])[:, :, 0]
        of_last = torch.bmm(words[first][:, None, :], of_pairs)[:, 0]
        self.adjoint.words[first] += of_first
        self.adjoint.words[last] += of_last

    def to_word_and_span(self, group: SpanGroup, cut: Splits, ranks: Tensor) -> None:
        last = (self.links.right, self.of_links.right, group.last_words, group.without_last, cut.power[:, -1:])
        first = (self.links.left, self.of_links.left, group.first_words, group.without_first, cut.power[:, :1])
        for link, of_link, words, siblings, power in (last, first):
            weighed = ranks * power
            of_link[words] += weighed[:, :, None] * self.chart.spans[siblings][:, None, :]
            self.adjoint.spans[siblings] += torch.bmm(weighed[:, None, :], link[words])[:, 0]

    def to_two_spans(self, group: SpanGroup, cut: Splits, ranks: Tensor) -> None:
        left, right = inner_children(self.chart, cut)
        self.collector.pairs(group, "spans", ranks, torch.bmm(left.mT, right))
        of_pairs = self.of_pairs(group, self.weights.blocks.spans, ranks, self.weights.num_nonterminals)
        of_left = torch.bmm(right, of_pairs.mT) * cut.power[:, 1:-1, None]
        of_right = torch.bmm(left, of_pairs)
        self.adjoint.spans.index_add_(0, cut.left_rows.flatten(), of_left.flatten(0, 1))
        self.adjoint.spans.index_add_(0, cut.right_rows.flatten(), of_right.flatten(0, 1))

    def finish_words(self) -> None:
        """What the words' links passed on to the words, once for all spans."""
        sides = (("word_span", self.of_links.left), ("span_word", self.of_links.right))
        numbers = self.weights.num_ranks * self.weights.num_nonterminals
        for group in span_groups(self.layout, 1, self.weights.per_sentence, numbers):
            words = self.chart.words[group.rows]
            for side, table in sides:
                adjoint = table[group.rows].flatten(1)
                self.collector.words(group, side, adjoint, words)
                block = getattr(self.weights.blocks, side)[group.groups]
                flat = adjoint.view(group.num_groups, group.num_members, -1)
                self.adjoint.words[group.rows] += product(flat, block, self.weights.precision).flatten(0, 1)
        self.adjoint.words.masked_fill_(self.chart.words == 0, 0)


def unscaled(chart: Chart, scale: SpanScale | None, group: SpanGroup) -> Float[Tensor, "row"]:
    """What head . rho was multiplied by to give the mantissas of a span."""
    own, among_all = group.own, group.among_all
    shift = chart.base[own] - chart.exponent[among_all]
    if scale is None:
        return power_of_two(shift, chart.spans.dtype)
    return power_of_two(shift + scale.exponent[among_all], chart.spans.dtype) * scale.mantissa[among_all]
