"""The same recursion in log space, in plain differentiable operations: for what leaves all range, and for checks.

Any number of derivatives, none of them NaN where weights are zero. Sums over pairs are taken one element at a time, so
this is slower than the linear engine by the cost of an exponential; portions that are large are computed again in the
backward pass instead of being kept.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from rankspace.inference.dense_tree.groups import BUDGET, SpanGroup, num_long, span_groups
from rankspace.inference.dense_tree.weights import DenseWeights
from rankspace.inference.links import Precision
from rankspace.inference.logarithms import log_sum_exp, maximum
from rankspace.inference.ragged import Ragged
from rankspace.inference.tree.inside import LARGEST_WEIGHT


@dataclass(frozen=True)
class LogWeights:
    """Logarithms of `DenseWeights`, with the same axes."""

    rule: Float[Tensor, "group rank symbol symbol"]
    head: Float[Tensor, "group nonterminal rank"] | None
    root: Float[Tensor, "places nonterminal"]
    words: Float[Tensor, "token preterminal"]
    span: Float[Tensor, "span"] | None = None

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Nonterminals, preterminals, ranks."""
        return self.root.shape[1], self.words.shape[1], self.rule.shape[1]

    @property
    def per_sentence(self) -> bool:
        return self.rule.shape[0] != 1

    def linear(self, precision: Precision) -> tuple[DenseWeights, Float[Tensor, "token"]]:
        """Exponentials, each word divided by its largest entry; and the logarithm of that, in float64.

        Weights of spans that are `out_of_range` count as one: their sentences are lost.
        """
        top = self.words.detach().amax(1) if self.words.numel() else self.words.new_zeros(len(self.words))
        top = top.masked_fill(top == -torch.inf, 0)
        head = None if self.head is None else self.head.exp()
        words = (self.words - top[:, None]).exp()
        span = None if self.span is None else self.span.masked_fill(out_of_range(self.span), 0)
        return DenseWeights(self.rule.exp(), head, self.root.exp(), words, span, precision), top.double()

    def support(self) -> DenseWeights | None:
        """Ones where weights are not exactly zero: what is possible at all. None if everything is."""
        tensors = [t.detach() for t in (self.rule, self.head, self.root, self.words, self.span) if t is not None]
        if not any(bool((t == -torch.inf).any()) for t in tensors):
            return None
        head = None if self.head is None else _possible(self.head)
        span = None if self.span is None else _possible(self.span).log()
        return DenseWeights(_possible(self.rule), head, _possible(self.root), _possible(self.words), span)


def out_of_range(span: Float[Tensor, "span"]) -> Bool[Tensor, "span"]:
    """Weights of spans that are finite and too large for the exponents of the linear engine."""
    return (span.detach().abs() > LARGEST_WEIGHT) & span.detach().isfinite()


def _possible(log: Tensor) -> Tensor:
    return (log.detach() > -torch.inf).to(log.dtype)


class LogChart(NamedTuple):
    words: Float[Tensor, "token preterminal"]
    spans: Float[Tensor, "span nonterminal"]  # of two words or more
    ranks: Float[Tensor, "span rank"] | None  # rho, without the span's weight
    log_z: Float[Tensor, "places"]


class Offsets(NamedTuple):
    """Added to a chart's entries as they are computed: log Z's derivative there is the posterior probability."""

    words: Float[Tensor, "token preterminal"]
    spans: Float[Tensor, "span nonterminal"]


def log_inside(weights: LogWeights, layout: Ragged, offsets: Offsets | None = None, best: bool = False) -> LogChart:
    """The chart and log Z, [places]; -inf for sentences without a derivation. With `best`, maxima in place of sums."""
    run = _Run(weights, layout, maximum if best else log_sum_exp)
    words = weights.words if offsets is None else weights.words + offsets.words
    if weights.span is not None:
        words = words + weights.span[: len(words), None]
    left, right = _word_links(run, words)
    spans, ranks = [words.new_zeros(0, weights.sizes[0])], [words.new_zeros(0, weights.sizes[2])]
    for width in range(2, layout.longest + 1):
        rho = run.width(width, words, torch.cat(spans), left, right)
        found = rho if weights.head is None else run.through_head(width, rho)
        rows = layout.spans(width)
        if weights.span is not None:
            found = found + weights.span[rows, None]
        if offsets is not None:
            found = found + offsets.spans[rows.start - len(words) : rows.stop - len(words)]
        spans.append(found)
        ranks.append(rho)
    table = torch.cat(spans)
    return LogChart(words, table, None if weights.head is None else torch.cat(ranks), run.log_z(table))


@dataclass(frozen=True)
class _Run:
    weights: LogWeights
    layout: Ragged
    total: Callable[[Tensor, int], Tensor]  # log-sum-exp or maximum over an axis

    def width(self, width: int, words: Tensor, spans: Tensor, left: Tensor, right: Tensor) -> Tensor:
        """rho of all spans of a width, in the order of their rows."""
        n, p, q = self.weights.sizes
        numbers = q * p * p if width == 2 else n * n * max(width, q)
        groups = span_groups(self.layout, width, self.weights.per_sentence, numbers)
        parts = []
        for group in groups:
            if width == 2:
                parts.append(_economically(numbers * group.num_rows, self._two_words, group, words))
            else:
                parts.append(_economically(numbers * group.num_rows, self._splits, group, spans, left, right))
        return _in_order(groups, parts)

    def _block(self, group: SpanGroup, left: slice, right: slice) -> Float[Tensor, "group 1 rank pair"]:
        return self.weights.rule[group.groups, :, left, right].flatten(2)[:, None]

    def _two_words(self, group: SpanGroup, words: Tensor) -> Tensor:
        n = self.weights.sizes[0]
        pairs = words[group.first_words][:, :, None] + words[group.last_words][:, None, :]
        return self._to_ranks(group, pairs, slice(n, None), slice(n, None))

    def _to_ranks(self, group: SpanGroup, pairs: Float[Tensor, "row b c"], left: slice, right: slice) -> Tensor:
        flat = pairs.reshape(group.num_groups, group.num_members, 1, -1)
        return self.total(flat + self._block(group, left, right), 3).flatten(0, 1)

    def _splits(self, group: SpanGroup, spans: Tensor, left: Tensor, right: Tensor) -> Tensor:
        n, last, first = self.weights.sizes[0], spans[group.without_last], spans[group.without_first]
        terms = [
            self.total(right[group.last_words] + last[:, None, :], 2),
            self.total(left[group.first_words] + first[:, None, :], 2),
        ]
        if group.width > 3:
            start = self.layout.num_tokens
            before = spans[group.left(2, group.width - 2) - start]
            after = spans[group.right(2, group.width - 2) - start]
            pairs = self.total(before[:, :, :, None] + after[:, :, None, :], 1)
            terms.append(self._to_ranks(group, pairs, slice(n), slice(n)))
        return self.total(torch.stack(terms), 0)

    def through_head(self, width: int, ranks: Float[Tensor, "row rank"]) -> Tensor:
        head = self.weights.head
        assert head is not None
        groups = span_groups(self.layout, width, self.weights.per_sentence, head.shape[1] * head.shape[2])
        parts = []
        for group in groups:
            mine = ranks[group.rows].view(group.num_groups, group.num_members, 1, -1)
            parts.append(self.total(mine + head[group.groups][:, None], 3).flatten(0, 1))
        return _in_order(groups, parts)

    def log_z(self, spans: Float[Tensor, "span nonterminal"]) -> Float[Tensor, "places"]:
        layout = self.layout
        count = num_long(layout)
        root = self.weights.root if len(self.weights.root) == 1 else self.weights.root[:count]
        found = self.total(spans[layout.whole[:count] - layout.num_tokens] + root, 1)
        return torch.cat([found, found.new_full((len(layout.lengths) - count,), -torch.inf)])


def _word_links(run: _Run, words: Float[Tensor, "token preterminal"]) -> tuple[Tensor, Tensor]:
    """[token, rank, nonterminal]: a word's preterminals summed out, as left and as right child."""
    n, p, q = run.weights.sizes
    groups = span_groups(run.layout, 1, run.weights.per_sentence, q * n * p)
    found = []
    for left, right in ((slice(n, None), slice(n)), (slice(n), slice(n, None))):

        def link(group: SpanGroup, words: Tensor, left: slice = left, right: slice = right) -> Tensor:
            block = run.weights.rule[group.groups, :, left, right]
            block = block.transpose(2, 3) if left.start == n else block
            mine = words[group.rows].view(group.num_groups, group.num_members, 1, 1, -1)
            return run.total(mine + block[:, None], 4).flatten(0, 1)

        parts = [_economically(q * n * p * group.num_rows, link, group, words) for group in groups]
        found.append(_in_order(groups, parts) if parts else words.new_zeros(0, q, n))
    return found[0], found[1]


def _in_order(groups: tuple[SpanGroup, ...], parts: list[Tensor]) -> Tensor:
    """Parts of a width in the order of its rows."""
    joined = torch.cat(parts)
    rows = [group.rows for group in groups if isinstance(group.rows, Tensor)]
    return joined[torch.argsort(torch.cat(rows))] if rows else joined


def _economically(numbers: int, compute: Callable[..., Tensor], *inputs: object) -> Tensor:
    """What is large is computed again in the backward pass."""
    if torch.is_grad_enabled() and numbers > BUDGET // 8:
        found: Tensor = checkpoint(compute, *inputs, use_reentrant=False)
        return found
    return compute(*inputs)
