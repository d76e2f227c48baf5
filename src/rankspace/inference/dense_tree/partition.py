"""log Z of every sentence, with an explicit backward pass, and what of it cannot be trusted."""

import math
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from rankspace.inference.dense_tree.groups import SpanGroup, num_long
from rankspace.inference.dense_tree.inside import Chart, inside, span_scale
from rankspace.inference.dense_tree.outside import Adjoint, Collector, outside
from rankspace.inference.dense_tree.precision_loss import SupportOf, lost_sentences
from rankspace.inference.dense_tree.weights import DenseWeights, root_rows
from rankspace.inference.differentiation import first_derivatives_only, tell_of_lacks, with_large_slopes
from rankspace.inference.links import product
from rankspace.inference.ragged import Ragged


def log_partition(
    weights: DenseWeights, layout: Ragged, support_of: SupportOf
) -> tuple[Float[Tensor, "places"], Bool[Tensor, "places"]]:
    """log Z of the scaled weights at every place, and which sentences lost more than rounding (see `precision_loss`).

    -inf for sentences that have no derivation, and for those of one word or none. Differentiable once in rule, head,
    root, words and log_span. `support_of` tells which weights are exactly zero, if that is asked.
    """
    tensors = (weights.rule, weights.head, weights.root, weights.words, weights.log_span)
    log_z, lost = _LogPartition.apply(layout, weights.precision, support_of, *tensors)  # type: ignore[no-untyped-call]
    return log_z, lost


class Root(NamedTuple):
    """The last step: root . x of the whole sentence."""

    whole: Float[Tensor, "long nonterminal"]  # sentences of two words or more
    z: Float[Tensor, "long"]


def at_root(weights: DenseWeights, layout: Ragged, chart: Chart) -> Root:
    rows = layout.whole[: num_long(layout)] - layout.num_tokens
    whole = chart.spans.index_select(0, rows)
    return Root(whole, (whole * root_rows(weights, len(rows))).sum(1))


def log_z_of(layout: Ragged, chart: Chart, root: Root) -> Float[Tensor, "places"]:
    count = len(root.z)
    exponent = chart.exponent.index_select(0, layout.whole[:count])
    found = root.z.double().log() + exponent.double() * math.log(2)
    log_z = found.new_full((len(layout.lengths),), -torch.inf)
    log_z[:count] = torch.where(root.z == 0, -torch.inf, found)  # NaN stays NaN
    return log_z


def seed_of(root: Root, trusted: Bool[Tensor, "places"], slope: Float[Tensor, "places"]) -> Float[Tensor, "long"]:
    """d log Z / d z times the incoming slope; exactly zero for sentences without a derivation or lost."""
    count = len(root.z)
    good = trusted[:count] & (root.z > 0)
    return torch.where(good, slope[:count].to(root.z.dtype) / torch.where(good, root.z, 1), 0)


class Posterior(NamedTuple):
    """A chart and the derivatives of log Z with respect to it, of sentences that were not lost."""

    chart: Chart
    adjoint: Adjoint
    log_z: Float[Tensor, "places"]
    lost: Bool[Tensor, "places"]


def posterior(weights: DenseWeights, layout: Ragged, support_of: SupportOf) -> Posterior:
    """Both passes, without gradients of weights. Rows of lost and impossible sentences are zero in the adjoint."""
    chart, log_z, lost = scaled_chart(weights, layout, support_of)
    root = at_root(weights, layout, chart)
    seed = seed_of(root, ~lost, torch.ones_like(log_z))
    adjoint = outside(weights, layout, chart, seed[:, None] * root_rows(weights, len(seed)), Collector())
    return Posterior(chart, adjoint, log_z, lost)


class ScaledChart(NamedTuple):
    chart: Chart
    log_z: Float[Tensor, "places"]
    lost: Bool[Tensor, "places"]


def scaled_chart(weights: DenseWeights, layout: Ragged, support_of: SupportOf) -> ScaledChart:
    """The inside pass with log Z and the sentences that lost more than rounding."""
    chart = inside(weights, layout)
    root = at_root(weights, layout, chart)
    lost = lost_sentences(weights, layout, chart, root.z, support_of)
    return ScaledChart(chart, log_z_of(layout, chart, root), lost)


@tell_of_lacks
class _LogPartition(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        layout: Ragged,
        precision: Any,
        support_of: SupportOf,
        rule: Tensor,
        head: Tensor | None,
        root: Tensor,
        words: Tensor,
        log_span: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        weights = DenseWeights(rule, head, root, words, log_span, precision)
        chart, log_z, lost = scaled_chart(weights, layout, support_of)
        ctx.layout, ctx.precision = layout, precision
        ctx.save_for_backward(rule, head, root, words, log_span, lost, *_unpacked(chart))
        ctx.mark_non_differentiable(lost)
        return log_z, lost

    @staticmethod
    @first_derivatives_only
    @with_large_slopes
    def backward(ctx: Any, slope: Tensor, _: Tensor) -> tuple[Any, ...]:
        rule, head, root, words, log_span, lost, *tables = ctx.saved_tensors
        weights = DenseWeights(rule, head, root, words, log_span, ctx.precision)
        layout, chart = ctx.layout, Chart(*tables)
        wanted = ctx.needs_input_grad[3:]
        top = at_root(weights, layout, chart)
        seed = seed_of(top, ~lost, slope)
        collector = Gradients(weights) if wanted[0] or wanted[1] else Collector()
        adjoint = outside(weights, layout, chart, seed[:, None] * root_rows(weights, len(seed)), collector)
        of_rule, of_head = collector.found() if isinstance(collector, Gradients) else (None, None)
        of_words = given_words(weights, layout, adjoint) if wanted[3] else None
        of_spans = span_mass(chart, adjoint) if wanted[4] else None
        return None, None, None, of_rule, of_head, _of_root(weights, top, seed), of_words, _like(of_spans, log_span)


def _unpacked(chart: Chart) -> tuple[Tensor | None, ...]:
    return chart.words, chart.spans, chart.exponent, chart.base, chart.ranks


def _like(found: Tensor | None, given: Tensor | None) -> Tensor | None:
    return None if found is None or given is None else found.to(given.dtype)


def given_words(weights: DenseWeights, layout: Ragged, adjoint: Adjoint) -> Float[Tensor, "token preterminal"]:
    """Adjoints of the words as they were given, without the weight of their span."""
    scale = span_scale(weights, layout)
    return adjoint.words if scale is None else adjoint.words * scale.mantissa[: len(adjoint.words), None]


def span_mass(chart: Chart, adjoint: Adjoint) -> Float[Tensor, "rows"]:
    """Posterior probability of every word and span: the derivative of log Z with respect to its log weight."""
    return torch.cat([(chart.words * adjoint.words).sum(1), (chart.spans * adjoint.spans).sum(1)])


def _of_root(weights: DenseWeights, top: Root, seed: Float[Tensor, "long"]) -> Float[Tensor, "places nonterminal"]:
    each = seed[:, None] * top.whole
    if len(weights.root) == 1:
        found = each.sum(0, keepdim=True)
    else:
        found = weights.root.new_zeros(weights.root.shape)
        found[: len(each)] = each
    return found.masked_fill(weights.root == 0, 0)


class Gradients(Collector):
    """Gradients of the rule tensor and the head matrix: one matrix product for each portion of a width."""

    def __init__(self, weights: DenseWeights) -> None:
        self.weights = weights
        self.blocks = weights.blocks.zeros()
        self.head = None if weights.head is None else torch.zeros_like(weights.head)

    def pairs(self, group: SpanGroup, block: str, adjoint: Tensor, pairs: Tensor) -> None:
        self._add(getattr(self.blocks, block), group, adjoint, pairs.flatten(1))

    def words(self, group: SpanGroup, side: str, adjoint: Tensor, words: Tensor) -> None:
        self._add(getattr(self.blocks, side), group, adjoint, words)

    def heads(self, group: SpanGroup, adjoint: Tensor, ranks: Tensor) -> None:
        assert self.head is not None
        self._add(self.head, group, adjoint, ranks)

    def _add(self, total: Tensor, group: SpanGroup, adjoint: Tensor, inputs: Tensor) -> None:
        shape = (group.num_groups, group.num_members, -1)
        total[group.groups] += product(adjoint.view(shape).mT, inputs.view(shape), self.weights.precision)

    def found(self) -> tuple[Tensor, Tensor | None]:
        """Gradients; zero where the weight is, for there the derivative could be beyond all range."""
        rule = self.blocks.joined(self.weights.num_nonterminals).masked_fill_(self.weights.rule == 0, 0)
        if self.head is None or self.weights.head is None:
            return rule, None
        return rule, self.head.masked_fill_(self.weights.head == 0, 0)
