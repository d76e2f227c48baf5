"""What distributions over trees with a full rule tensor share: their parameters as weights of the dense tree engine."""

import math
from abc import abstractmethod
from collections.abc import Mapping
from functools import partial
from typing import ClassVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from rankspace.distributions.contract import Batch, Parameters
from rankspace.distributions.directional import derivative_along
from rankspace.distributions.memory import Work
from rankspace.distributions.own_parameters import OWN, OwnParameters
from rankspace.distributions.parses import LabelVisitor
from rankspace.distributions.spans import WEIGHTS, Lengths
from rankspace.inference.dense_tree.cost import explained
from rankspace.inference.dense_tree.groups import BUDGET
from rankspace.inference.dense_tree.inside import Chart
from rankspace.inference.dense_tree.log_space import LogChart, LogWeights, Offsets, log_inside, out_of_range
from rankspace.inference.dense_tree.partition import log_partition, posterior, scaled_chart
from rankspace.inference.dense_tree.prefixes import left_to_right
from rankspace.inference.dense_tree.prior import branch, length_probabilities
from rankspace.inference.dense_tree.slopes import slopes
from rankspace.inference.dense_tree.traces import best_way, drawn, trace
from rankspace.inference.dense_tree.weights import DenseWeights
from rankspace.inference.differentiation import depending_on
from rankspace.inference.left_corners import LeftToRight
from rankspace.inference.tree.nodes import Nodes, Spans


class DenseTreeDistribution(OwnParameters):
    """A distribution whose rules are a full tensor [row, left, right]; see `PCFG` and `LPCFG`."""

    WIDTH: ClassVar = "nonterminal"

    @classmethod
    def numbers_kept(cls, sizes: Mapping[str, int], work: Work) -> int:
        """m nonterminals, R rows of rules: m numbers for each span (m + R with ranks) and 2 R m for each word, with
        both passes twice that; a second copy of the rules; temporaries, pairs of symbols of some spans at a time. By
        kernels m^2 numbers for each span, and all pairs of two words."""
        m, p, rank, twice = sizes["nonterminal"], sizes["preterminal"], sizes.get("rank", 0), 1 + work.both_passes
        if work.kernels and rank:  # the head is multiplied out, over whichever are fewer
            m, rank = min(m, rank), 0
        rows, pairs = rank or m, max(m, p) ** 2
        of_span = m * m if work.kernels else m + rank
        together = work.num_tokens * pairs if work.kernels else 2 * min(BUDGET, work.num_tokens * pairs)
        rules = rows * (m + p) ** 2
        return twice * (of_span * work.num_spans + 2 * rows * m * work.num_tokens + rules) + together

    def explain(self, words: Int[Tensor, "batch length"], lengths: Lengths = None) -> str:
        """In which order a batch is computed, and what each part of it costs."""
        rule, head = self._rules()
        rank = self.parameters[rule].shape[-3]
        lengths = self._batch(words, lengths).lengths
        return explained(lengths, self.num_nonterminals, self.num_preterminals, rank, head is not None)

    # Parameters as weights.

    @abstractmethod
    def _rules(self) -> tuple[str, str | None]:
        """Names of the rule tensor and of the head matrix, if there is one."""

    def _log_weights(self, parameters: Parameters, batch: Batch) -> LogWeights:
        """By place. A linear function of the parameters: directions go through it as well."""
        rule, head = self._rules()
        together = self._own(rule) or (head is not None and self._own(head))
        return LogWeights(
            self._by_place(parameters, rule, batch, together),
            None if head is None else self._by_place(parameters, head, batch, together),
            self._by_place(parameters, "log_root", batch, self._own("log_root")),
            self._words(parameters["log_emission"], batch),
            batch.layout.from_chart(batch.extras[WEIGHTS]) if WEIGHTS in batch.extras else None,
        )

    def _by_place(self, parameters: Parameters, label: str, batch: Batch, each: bool) -> Tensor:
        """[1, ...] for all places, or [place, ...] if each sentence is to have its own."""
        parameter = parameters[label]
        if not each:
            return parameter[None]
        if not self._own(label):
            return parameter.expand(len(batch.lengths), *parameter.shape)
        return parameter[batch.extras[OWN][batch.layout.sentence_at]]

    def _words(self, log_emission: Tensor, batch: Batch) -> Float[Tensor, "token preterminal"]:
        if not self._own("log_emission"):
            return log_emission.mT[batch.tokens]
        sentence = batch.layout.sentence_at[batch.layout.token_place]
        return log_emission.mT[batch.extras[OWN][sentence], batch.tokens]

    # What the contract asks for.

    def _linear(self, parameters: Parameters, batch: Batch) -> tuple[Float[Tensor, "batch"], Bool[Tensor, "batch"]]:
        log_weights = self._log_weights(parameters, batch)
        weights, scale = log_weights.linear(self.precision)
        log_z, lost = log_partition(weights, batch.layout, log_weights.support)
        back = batch.layout.in_callers_order
        return back(log_z) + batch.layout.unpack(scale).sum(1), back(lost) | _beyond_range(log_weights, batch)

    def _log_space(self, parameters: Parameters, batch: Batch) -> Float[Tensor, "batch"]:
        log_z = log_inside(self._log_weights(parameters, batch), batch.layout).log_z
        return batch.layout.in_callers_order(log_z)

    def _slope(self, batch: Batch, direction: Parameters) -> Float[Tensor, "batch"]:
        log_weights, moved = self._log_weights(self.parameters, batch), self._log_weights(direction, batch)
        weights, _ = log_weights.linear(self.precision)
        found = slopes(weights, _tangent(weights, moved), batch.layout, log_weights.support)
        slope, lost = (batch.layout.in_callers_order(part) for part in found)
        if bool(lost.any()):
            again = lost.nonzero()[:, 0]
            slope = slope.index_put((again,), self._log_slope(batch.subset(again), direction))
        return slope.to(self.dtype)

    def _log_slope(self, batch: Batch, direction: Parameters) -> Float[Tensor, "batch"]:
        own = {name: value.double() for name, value in self.parameters.items()}
        log_z = partial(self._log_space, batch=batch.to_dtype(torch.float64))
        slope: Tensor = derivative_along(log_z, own, direction)
        return slope

    # What trees ask for.

    def _labels(
        self, parameters: Parameters, batch: Batch, log_space: bool, wanted: Tensor | None, visit: LabelVisitor
    ) -> Bool[Tensor, "batch"]:
        log_weights, layout = self._log_weights(parameters, batch), batch.layout
        if log_space:
            words, spans = _posterior_in_log_space(log_weights, batch)
            lost = torch.zeros(len(batch.lengths), dtype=torch.bool, device=self.device)
        else:
            found = posterior(log_weights.linear(self.precision)[0], layout, log_weights.support)
            words, spans = found.chart.words * found.adjoint.words, found.chart.spans * found.adjoint.spans
            lost = layout.in_callers_order(found.lost) | _beyond_range(log_weights, batch)
        for width in range(1, layout.longest + 1):
            rows = layout.spans(width)
            p = words if width == 1 else spans[rows.start - layout.num_tokens : rows.stop - layout.num_tokens]
            self._show(batch, width, p, wanted, visit)
        return lost

    def _show(self, batch: Batch, width: int, p: Tensor, wanted: Tensor | None, visit: LabelVisitor) -> None:
        layout = batch.layout
        begin = layout.span_begin(width)
        spans = Spans(layout.sentence_at[layout.span_place(width)], begin, begin + width)
        if wanted is not None:
            kept = wanted[spans].nonzero()[:, 0]
            spans, p = Spans(*(column[kept] for column in spans)), p[kept]
        if len(p):
            visit(spans, self.num_nonterminals if width == 1 else 0, p)

    def _draw(
        self, parameters: Parameters, batch: Batch, log_space: bool, num: int, generator: torch.Generator | None
    ) -> tuple[Nodes, Bool[Tensor, "batch"]]:
        log_weights, layout = self._log_weights(parameters, batch), batch.layout
        if log_space:
            chart = log_inside(log_weights, layout)
            lost = torch.zeros(len(batch.lengths), dtype=torch.bool, device=self.device)
        else:
            weights, _ = log_weights.linear(self.precision)
            linear, log_z, lost = scaled_chart(weights, layout, log_weights.support)
            lost = lost | _beyond_range(log_weights, batch)[layout.sentence_at]
            chart = _in_logs(linear, log_z)
        nodes = trace(log_weights, chart, layout, num, drawn(generator), skip=lost)
        return nodes, layout.in_callers_order(lost)

    def _best(self, parameters: Parameters, batch: Batch) -> tuple[Nodes, Float[Tensor, "batch"]]:
        weights = self._log_weights({name: value.double() for name, value in parameters.items()}, batch)
        chart = log_inside(weights, batch.layout, best=True)
        nodes = trace(weights, chart, batch.layout, 1, best_way)
        return nodes, batch.layout.in_callers_order(chart.log_z)

    def _left_to_right(self, batch: Batch) -> LeftToRight:
        """By the chart of the linear engine, in float64, where it lost nothing but rounding in any entry."""
        wide, layout = {name: value.detach().double() for name, value in self.parameters.items()}, batch.layout
        log_weights = self._log_weights(wide, batch)
        weights, scale = log_weights.linear("highest")
        linear, log_z, lost = scaled_chart(weights, layout, log_weights.support)
        if bool(lost.any()):
            return left_to_right(log_weights, layout, log_inside(log_weights, layout))
        found, scales = left_to_right(log_weights, layout, _in_logs(linear, log_z)), layout.unpack(scale)
        before, whole = layout.pack(scales.cumsum(1) - scales), scales.sum(1)[layout.sentence_at]
        return LeftToRight(found.before + before[:, None], found.log_z + whole)

    def _branch(self, symbols: Int[Tensor, "node"], generator: torch.Generator | None) -> tuple[Tensor, Tensor]:
        rule, head = self._rules()
        log_head = None if head is None else self.parameters[head].detach()
        return branch(self.parameters[rule].detach(), log_head, symbols, drawn(generator))

    def _log_lengths(self, max_length: int) -> Float[Tensor, "length"]:
        rule, head = self._rules()
        log = {name: value.detach().double() for name, value in self.parameters.items()}
        weights = (log[rule].exp(), None if head is None else log[head].exp(), log["log_root"].exp())
        return length_probabilities(*weights, max_length).log()


def _beyond_range(weights: LogWeights, batch: Batch) -> Bool[Tensor, "batch"]:
    """Sentences with a span weight that the linear engine left out."""
    if weights.span is None:
        return torch.zeros(len(batch.lengths), dtype=torch.bool, device=batch.words.device)
    return batch.layout.to_chart(out_of_range(weights.span).to(weights.span.dtype)).flatten(1).any(1)


def _tangent(weights: DenseWeights, moved: LogWeights) -> DenseWeights:
    """How the weights move when their logarithms move: weight times direction, nothing where the weight is zero."""
    return DenseWeights(
        weights.rule * moved.rule,
        None if weights.head is None or moved.head is None else weights.head * moved.head,
        weights.root * moved.root,
        weights.words * moved.words,
    )


def _posterior_in_log_space(weights: LogWeights, batch: Batch) -> tuple[Tensor, Tensor]:
    """Posterior probabilities of symbols: derivatives with respect to what is added to the chart's entries."""
    layout, (n, p, _) = batch.layout, weights.sizes
    make = weights.words.new_zeros
    with torch.enable_grad():
        offsets = Offsets(
            make(layout.num_tokens, p).requires_grad_(),
            make(layout.total_spans - layout.num_tokens, n).requires_grad_(),
        )
        log_z = log_inside(weights, layout, offsets).log_z
        total = depending_on(log_z.masked_fill(log_z == -math.inf, 0).sum(), *offsets)
        words, spans = torch.autograd.grad(total, offsets)
    return words, spans


def _in_logs(chart: Chart, log_z: Tensor) -> LogChart:
    """Logarithms of a chart, in float64."""
    exponent = chart.exponent.double()[:, None] * math.log(2)
    first = len(chart.words)
    words, spans = chart.words.double().log() + exponent[:first], chart.spans.double().log() + exponent[first:]
    base = chart.base.double()[:, None] * math.log(2)
    return LogChart(words, spans, None if chart.ranks is None else chart.ranks.double().log() + base, log_z)
