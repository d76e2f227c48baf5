"""What distributions over trees with low-rank rules share: their parameters as inputs of the low-rank tree engine."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from rankspace.distributions.contract import Backend, Batch, Own, Parameters
from rankspace.distributions.directional import derivative_along
from rankspace.distributions.memory import Work
from rankspace.distributions.own_parameters import OWN, OwnParameters
from rankspace.distributions.parses import WEIGHTS, LabelVisitor
from rankspace.errors import RankspaceError
from rankspace.inference.backends import runs_triton
from rankspace.inference.left_corners import LeftToRight
from rankspace.inference.logarithms import maximum
from rankspace.inference.tree.choosing import Choose, best, drawn
from rankspace.inference.tree.descent import ChartLogs, Descent
from rankspace.inference.tree.engine import log_z
from rankspace.inference.tree.inputs import Sentences, TreeInputs
from rankspace.inference.tree.inside import LARGEST_WEIGHT, SpanWeights, inside
from rankspace.inference.tree.kernel_bounds import unfit
from rankspace.inference.tree.linear_inputs import linear_inputs, support_of, word_scale
from rankspace.inference.tree.log_space import LogInputs, log_chart, log_lengths
from rankspace.inference.tree.nodes import Nodes, Spans
from rankspace.inference.tree.posteriors import slopes_along, state_posteriors, state_posteriors_in_log_space
from rankspace.inference.tree.prefixes import left_to_right
from rankspace.inference.tree.raised import raised_log_z
from rankspace.inference.tree.range_check import lost_sentences


class LowRankTreeDistribution(OwnParameters):
    """A distribution in which the two parts of a span are independent given a rank; see `RankSpacePCFG`."""

    BACKENDS: ClassVar[tuple[Backend, ...]] = ("auto", "torch", "triton", "autograd")

    @classmethod
    def numbers_kept(cls, sizes: Mapping[str, int], work: Work) -> int:
        """R ranks: 2R numbers for each span, with both passes 3R (by kernels 3R and 6R); the link; as much again for
        words, the widest rows of the chart."""
        rank = sizes[cls.WIDTH]
        of_span = (3 if work.kernels else 2) + (work.both_passes and (3 if work.kernels else 1))
        return rank * (of_span * (work.num_spans + work.num_tokens) + 2 * rank)

    def _by_kernels(self) -> bool:
        return self.num_sentences is None and self.dtype == torch.float32 and self._runs_kernels(self.dtype)

    @abstractmethod
    def _assembled(self, parameters: Parameters, emission: Float[Tensor, "word preterminal"]) -> LogInputs:
        """The recursion for some words, whose emissions are given. A linear function of the parameters.

        Rules are one for all or of each sentence's own, all of them, and with them the root.
        """

    @abstractmethod
    def _multiplies(self, batch: Batch) -> bool:
        """Whether the link is to be multiplied out for a batch."""

    def _batch(
        self, words: Tensor, lengths: Sequence[int] | Tensor | None, extras: Mapping[str, Tensor] | None = None
    ) -> Batch:
        if self.backend == "triton":
            self._runs_kernels(self.dtype)  # tells what they lack, also for a query that needs none
        return super()._batch(words, lengths, extras)

    def _log_inputs(self, parameters: Parameters, batch: Batch) -> LogInputs:
        """The recursion for a batch: its distinct words or, where sentences have their own, all tokens."""
        return self._assembled(self._by_place(parameters, batch), self._emission(parameters, batch))

    @property
    def _own_rules(self) -> bool:
        return any(self._own(label) for label in self.AXES if label not in ("log_root", "log_emission"))

    def _by_place(self, parameters: Parameters, batch: Batch) -> Parameters:
        if self.num_sentences is None:
            return parameters
        return self._stacked(parameters, batch.extras[OWN][batch.layout.sentence_at])

    def _stacked(self, parameters: Parameters, sentences: Int[Tensor, "place"]) -> Parameters:
        """Rules and root of some sentences. Where one of the rules is each sentence's own, all are taken as such."""
        found = dict(parameters)
        for label in (name for name in self.AXES if name != "log_emission"):
            if self._own(label):
                found[label] = parameters[label][sentences]
            elif self._own_rules:
                found[label] = parameters[label].expand(len(sentences), *parameters[label].shape)
        return found

    def _emission(self, parameters: Parameters, batch: Batch) -> Float[Tensor, "word preterminal"]:
        log_emission = parameters["log_emission"]
        if not self._own("log_emission"):
            return log_emission.index_select(1, self._distinct(batch)[0]).T
        sentence = batch.layout.sentence_at[batch.layout.token_place]
        return log_emission.mT[batch.extras[OWN][sentence], batch.tokens]

    def _distinct(self, batch: Batch) -> tuple[Int[Tensor, "word"], Int[Tensor, "token"]]:
        """Words that differ as children, and the place of each token among them; all tokens where sentences differ."""
        if self._own("log_emission") or self._own_rules:
            return batch.tokens, torch.arange(len(batch.tokens), device=self.device)
        return batch.distinct

    def _sentences(self, inputs: LogInputs, batch: Batch) -> Sentences:
        return Sentences(batch.layout, self._distinct(batch)[1], word_scale(inputs.emission).double())

    def _linear_inputs(self, inputs: LogInputs, sentences: Sentences, batch: Batch) -> TreeInputs:
        scale = sentences.log_scale.to(inputs.root.dtype)
        return linear_inputs(inputs, scale, self._multiplies(batch), self.precision, batch.layout)

    def _prepared(self, parameters: Parameters, batch: Batch) -> tuple[TreeInputs, Sentences]:
        """What the linear engine takes. Logarithms are not kept: a batch's emissions can be as large as its chart."""
        logs = self._log_inputs(parameters, batch)
        sentences = self._sentences(logs, batch)
        return self._linear_inputs(logs, sentences, batch), sentences

    def _support(self, parameters: Parameters, batch: Batch) -> TreeInputs | None:
        with torch.no_grad():
            logs = self._log_inputs(parameters, batch)
            return support_of(logs, self._multiplies(batch), self.precision, batch.layout)

    def to(self: Own, *args: Any, **kwargs: Any) -> Own:
        """The same distribution on another device or in another dtype, as Tensor.to. Kernels are for float32: what was
        to run them runs in torch in any other dtype."""
        made = super().to(*args, **kwargs)
        if made.backend == "triton" and made.dtype != torch.float32:
            made.backend = "auto"
        return made

    # What the contract asks for.

    def _linear(self, parameters: Parameters, batch: Batch) -> tuple[Float[Tensor, "batch"], Bool[Tensor, "batch"]]:
        inputs, sentences = self._prepared(parameters, batch)
        kernels = self._runs_kernels(inputs.dtype)
        support = partial(self._support, parameters, batch)
        found, lost = log_z(inputs, sentences, support, _log_weights(batch), kernels)
        lost = lost | _beyond_range(batch)
        if not kernels or not bool(lost.any()):
            return found, lost
        again = lost.nonzero()[:, 0]  # weights of zero count as lost there: the torch engine looks at supports
        return self._by_torch(parameters, batch.subset(again), found, lost, again)

    def _runs_kernels(self, dtype: torch.dtype) -> bool:
        """Whether by Triton, whose kernels know one link and one root, in float32."""
        if self.backend == "triton" and self.dtype != torch.float32:
            raise RankspaceError(
                f"{type(self).__name__}: backend is 'triton', but the parameters are {self.dtype} and it needs "
                f"float32; give backend='auto'."
            )
        if self.num_sentences is None:
            return self._fits_kernels() and runs_triton(type(self).__name__, self.backend, dtype, self.device)
        if self.backend == "triton":
            raise RankspaceError(
                f"{type(self).__name__}: backend is 'triton', but the parameters are those of {self.num_sentences} "
                f"sentences; give 'auto' or 'torch'."
            )
        return False

    def _fits_kernels(self) -> bool:
        reason = unfit(self.sizes[self.WIDTH], self.num_nonterminals, self.num_preterminals)
        if reason and self.backend == "triton":
            raise RankspaceError(f"{type(self).__name__}: backend is 'triton', but {reason}; give backend='auto'.")
        return not reason

    def _by_torch(
        self, parameters: Parameters, some: Batch, found: Tensor, lost: Tensor, again: Tensor
    ) -> tuple[Float[Tensor, "batch"], Bool[Tensor, "batch"]]:
        """Some sentences again by the torch engine, put where they belong."""
        inputs, sentences = self._prepared(parameters, some)
        log_zs, still = log_z(inputs, sentences, partial(self._support, parameters, some), _log_weights(some))
        still = still | _beyond_range(some)
        return found.index_put((again,), log_zs), lost.index_put((again,), still)

    def _last_resort(self, parameters: Parameters, batch: Batch) -> Float[Tensor, "batch"]:
        """By raising what is too low, and in log space where that could matter: log space is slow with many ranks."""
        inputs, sentences = self._prepared(parameters, batch)
        found, right = raised_log_z(inputs, sentences, _log_weights(batch))
        again = (~right | _beyond_range(batch)).nonzero()[:, 0]
        if not len(again):
            return found
        return found.index_put((again,), self._log_space(parameters, batch.subset(again)))

    def _log_space(self, parameters: Parameters, batch: Batch) -> Float[Tensor, "batch"]:
        logs = self._log_inputs(parameters, batch)
        logs = logs.multiplied() if self._multiplies(batch) else logs
        chart = log_chart(logs, batch.layout, self._distinct(batch)[1], _log_weights(batch))
        return batch.layout.in_callers_order(chart.log_z)

    def _slope(self, batch: Batch, direction: Parameters) -> Float[Tensor, "batch"]:
        inputs, sentences = self._prepared(self.parameters, batch)
        inputs = inputs.detach()

        def tensors(parameters: Parameters) -> tuple[Tensor, ...]:
            moved = self._log_inputs(parameters, batch)
            return self._linear_inputs(moved, sentences, batch).tensors

        moved = inputs.like(derivative_along(tensors, self.parameters, direction))
        slope, lost = slopes_along(inputs, sentences, partial(self._support, self.parameters, batch), moved)
        if bool(lost.any()):
            again = lost.nonzero()[:, 0]
            slope = slope.index_put((again,), self._log_space_slope(batch.subset(again), direction))
        return slope.to(self.dtype)

    def _log_space_slope(self, batch: Batch, direction: Parameters) -> Float[Tensor, "batch"]:
        wide = {name: value.double() for name, value in self.parameters.items()}
        slope: Tensor = derivative_along(partial(self._log_space, batch=batch), wide, direction)
        return slope

    # What trees ask for.

    def _labels(
        self, parameters: Parameters, batch: Batch, log_space: bool, wanted: Tensor | None, visit: LabelVisitor
    ) -> Bool[Tensor, "batch"]:
        logs, layout = self._log_inputs(parameters, batch), batch.layout
        sentences = self._sentences(logs, batch)

        def spans(width: int) -> Spans:
            begin = layout.span_begin(width)
            return Spans(layout.sentence_at[layout.span_place(width)], begin, begin + width)

        def rows_of(width: int) -> Tensor:
            if wanted is None:
                return torch.arange(layout.num_spans(width), device=layout.device)
            return wanted[spans(width)].nonzero()[:, 0]

        def show(width: int, p: Tensor) -> None:
            rows = rows_of(width)
            visit(Spans(*(column[rows] for column in spans(width))), self.num_nonterminals if width == 1 else 0, p)

        if log_space:
            state_posteriors_in_log_space(logs, sentences, show, rows_of, _log_weights(batch))
            return torch.zeros(len(batch.lengths), dtype=torch.bool, device=self.device)
        inputs = self._linear_inputs(logs, sentences, batch)
        support = partial(self._support, parameters, batch)
        lost = state_posteriors(inputs, logs, sentences, support, show, rows_of, _span_weights(batch))
        return lost | _beyond_range(batch)

    def _draw(
        self, parameters: Parameters, batch: Batch, log_space: bool, num: int, generator: torch.Generator | None
    ) -> tuple[Nodes, Bool[Tensor, "batch"]]:
        logs, layout = self._log_inputs(parameters, batch), batch.layout
        lost = torch.zeros(len(batch.lengths), dtype=torch.bool, device=self.device)
        if log_space:
            in_logs = log_chart(logs.multiplied(), layout, self._distinct(batch)[1], _log_weights(batch))
            possible, chart = in_logs.log_z > -torch.inf, ChartLogs.of_logs(in_logs, layout)
        else:
            sentences = self._sentences(logs, batch)
            inputs = self._linear_inputs(logs, sentences, batch)
            weights, support = _span_weights(batch), partial(self._support, parameters, batch)
            linear = inside(inputs, sentences, weights, keep_alpha=True)
            lost, _ = lost_sentences(inputs, sentences, linear, weights, support)
            lost = lost | _beyond_range(batch)
            possible, chart = ((linear.log_z > -torch.inf) & ~lost)[layout.sentence_at], ChartLogs.of_linear(linear)
        return self._descend(logs, logs.multiplied(), chart, batch, drawn(generator)).trees(possible, num), lost

    def _best(self, parameters: Parameters, batch: Batch) -> tuple[Nodes, Float[Tensor, "batch"]]:
        """By max-product links, in float64: the chart of the best derivations, ranks included."""
        parameters = {name: value.double() for name, value in parameters.items()}
        logs, layout = self._log_inputs(parameters, batch), batch.layout
        ranks = logs.multiplied(maximum)
        chart = log_chart(ranks, layout, self._distinct(batch)[1], _log_weights(batch), total=maximum)
        descent = self._descend(logs, ranks, ChartLogs.of_logs(chart, layout), batch, best)
        nodes = descent.trees(chart.log_z > -torch.inf, 1)
        return nodes, layout.in_callers_order(chart.log_z)

    def _left_to_right(self, batch: Batch) -> LeftToRight:
        inputs = self._log_inputs(self.detach().parameters, batch).map(Tensor.double)
        return left_to_right(inputs, batch.layout, self._distinct(batch)[1])

    def _descend(self, logs: LogInputs, ranks: LogInputs, chart: ChartLogs, batch: Batch, choose: Choose) -> Descent:
        return Descent(chart, logs, self._distinct(batch)[1], ranks, choose)

    def _log_lengths(self, max_length: int) -> Float[Tensor, "length"]:
        parameters = {name: value.detach().double() for name, value in self.parameters.items()}
        one_word = parameters["log_emission"].logsumexp(1)  # stands for all
        return log_lengths(self._assembled(parameters, one_word[None]), max_length)


def _beyond_range(batch: Batch) -> Bool[Tensor, "batch"]:
    """Sentences with a span weight that is finite and too large for the exponents of the engine."""
    log_weights, layout = _log_weights(batch), batch.layout
    if log_weights is None:
        return torch.zeros(len(batch.lengths), dtype=torch.bool, device=batch.words.device)
    beyond = (log_weights.abs() > LARGEST_WEIGHT) & log_weights.isfinite()
    return layout.to_chart(beyond.to(log_weights.dtype)).flatten(1).any(1)


def _span_weights(batch: Batch) -> SpanWeights | None:
    log_weights = _log_weights(batch)
    return None if log_weights is None else SpanWeights.split(log_weights.detach())


def _log_weights(batch: Batch) -> Float[Tensor, "span"] | None:
    return batch.layout.from_chart(batch.extras[WEIGHTS]) if WEIGHTS in batch.extras else None
