"""A program evaluated in scaled linear space, with an explicit backward pass.

Forward: each group is one meeting and one conclusion on mantissas, with integer exponents beside them. Backward: the
same groups in reverse order; each is recomputed from the tables and differentiated on its own, so nothing but the
tables (one number per entry of each item and message) is kept between the passes.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from rankspace.fgg.semirings import Real
from rankspace.inference.generic.contraction_plan import Message
from rankspace.inference.generic.program import Ends, Group, Passing, Program
from rankspace.inference.generic.scaled import ZERO, Scaled, normalise, times_power
from rankspace.inference.generic.stages import conclude, meet, send

REAL = Real()


class Chart(NamedTuple):
    """Items and messages of a batch in scaled form, and which sentences came too near the end of the range."""

    items: dict[Ends, Scaled]
    messages: dict[Message, Scaled]
    low: Tensor  # [sentence]

    def table(self, message: Message) -> Scaled:
        return self.items[message.ends] if message.is_identity else self.messages[message]


class Weights(NamedTuple):
    """Factors in scaled form, each with one exponent."""

    mantissa: Mapping[str, Tensor]
    exponent: Mapping[str, Tensor]

    @property
    def like(self) -> Tensor:
        return next(iter(self.mantissa.values()))

    def total(self, labels: Iterable[str]) -> Tensor:
        """Sum of the exponents of some factors."""
        total = torch.zeros((), dtype=torch.int64, device=self.like.device)
        for label in labels:
            total = _plus(total, self.exponent[label])
        return total


def scale_factors(factors: Mapping[str, Tensor]) -> Weights:
    """Each factor with its largest entry in [1/2, 1), and the power of two that was taken out."""
    scaled = {label: normalise(factor.detach(), 0)[0] for label, factor in factors.items()}
    return Weights({k: s.mantissa for k, s in scaled.items()}, {k: s.exponent for k, s in scaled.items()})


def run_linear(program: Program, weights: Weights, words: Tensor) -> Chart:
    """Every item and message, bottom up."""
    like, factors = weights.like, weights.mantissa
    chart = Chart(
        {ends: _empty(program.item_shape(ends), like) for ends in program.num_rows},
        {},
        torch.zeros(len(program.roots), dtype=torch.bool, device=like.device),
    )
    for level in program.levels:
        parts: dict[Ends, list[tuple[Tensor, Scaled]]] = {}
        for group in level.groups:
            result, low = _evaluate(group, chart, weights, words)
            parts.setdefault(group.ends, []).append((group.rows, result))
            _mark(chart, program.sentence_of[group.ends][group.rows], low)
        for ends, found in parts.items():
            _combine(chart.items[ends], found)
        for message, rows in level.passing:
            source = chart.items[message.ends]
            sent, low = normalise(send(REAL, message, source.mantissa[rows], factors), 1)
            if message not in chart.messages:
                shape = (program.num_rows[message.ends], *sent.mantissa.shape[1:])
                chart.messages[message] = _empty(shape, like)
            chart.messages[message].mantissa[rows] = sent.mantissa
            taken = _plus(source.exponent[rows], weights.total(label for label, _ in message.factors))
            chart.messages[message].exponent[rows] = _plus(sent.exponent, taken)
            _mark(chart, program.sentence_of[message.ends][rows], low)
    return chart


def _empty(shape: Sequence[int], like: Tensor) -> Scaled:
    exponent = torch.full((shape[0],), ZERO, dtype=torch.int64, device=like.device)
    return Scaled(torch.zeros(tuple(shape), dtype=like.dtype, device=like.device), exponent)


def _evaluate(group: Group, chart: Chart, weights: Weights, words: Tensor) -> tuple[Scaled, Tensor]:
    """One group: [item, *endpoints] with an exponent per item, and which items are too low."""
    exponent = _exponents(group, chart, weights)
    top = exponent.amax(1)
    messages = _weighted(_rows(group, chart), exponent - top[:, None])
    met, low = normalise(meet(REAL, group, messages, [words[p] for p in group.words], weights.mantissa, weights.like), 1)
    total = _plus(met.exponent, top)
    if not group.plan.after and group.plan.met == group.plan.output:
        return Scaled(met.mantissa, total), low
    result, low_after = normalise(conclude(REAL, group.plan, met.mantissa, weights.mantissa), 1)
    return Scaled(result.mantissa, _plus(result.exponent, total)), low | low_after


def _rows(group: Group, chart: Chart) -> list[Tensor]:
    return [chart.table(m).mantissa[rows] for m, rows in zip(group.plan.messages, group.children, strict=True)]


def _exponents(group: Group, chart: Chart, weights: Weights) -> Tensor:
    """Sum of the exponents of children and factors: [item, application]."""
    total = weights.total(_labels(group)).expand(len(group.rows), group.repeats)
    for message, rows in zip(group.plan.messages, group.children, strict=True):
        total = _plus(total, chart.table(message).exponent[rows])
    return total


def _labels(group: Group) -> list[str]:
    """Factors of a group, a factor that stands twice named twice."""
    plan = group.plan
    return [*(part.label for part in plan.gathered), *(label for label, _ in (*plan.meeting, *plan.after))]


def _weighted(messages: Sequence[Tensor], exponent: Tensor) -> list[Tensor]:
    """The messages with a power of two for each application multiplied into the smallest of them."""
    result = list(messages)
    if result:
        smallest = min(range(len(result)), key=lambda i: result[i].numel())
        shape = (*exponent.shape, *[1] * (result[smallest].dim() - 2))
        result[smallest] = times_power(result[smallest], exponent.reshape(shape))
    return result


def _plus(left: Tensor, right: Tensor) -> Tensor:
    """Sum of exponents in which ZERO wins."""
    return torch.where((left == ZERO) | (right == ZERO), ZERO, left + right)


def _combine(table: Scaled, parts: Sequence[tuple[Tensor, Scaled]]) -> None:
    """Adds what the groups of a level found into a table; an item occurs once in each group."""
    for rows, part in parts:
        old = table.exponent[rows]
        top = torch.maximum(old, part.exponent)
        lead = (len(rows), *[1] * (part.mantissa.dim() - 1))
        kept = times_power(table.mantissa[rows], (old - top).reshape(lead))
        added = times_power(part.mantissa, (part.exponent - top).reshape(lead))
        table.mantissa[rows] = kept + added
        table.exponent[rows] = top


def _mark(chart: Chart, sentences: Tensor, low: Tensor) -> None:
    chart.low[sentences[low]] = True


class Adjoint(NamedTuple):
    """Derivatives of the objective with respect to mantissas."""

    items: dict[Ends, Tensor]
    messages: dict[Message, Tensor]
    factors: dict[str, Tensor]

    def table(self, message: Message) -> Tensor:
        return self.items[message.ends] if message.is_identity else self.messages[message]


def differentiate(
    program: Program, chart: Chart, weights: Weights, words: Tensor, roots: Mapping[Ends, Tensor]
) -> dict[str, Tensor]:
    """Derivatives with respect to the mantissas of the factors, given those with respect to the items' mantissas.

    The exponents count as constants. Deterministic: rows are accumulated in a fixed order on every device.
    """
    adjoint = Adjoint(
        dict(roots),
        {message: torch.zeros_like(table.mantissa) for message, table in chart.messages.items()},
        {label: torch.zeros_like(factor) for label, factor in weights.mantissa.items()},
    )
    for level in reversed(program.levels):
        for passing in level.passing:
            _differentiate_message(passing, chart, weights, adjoint)
        for group in level.groups:
            _differentiate_group(group, chart, weights, words, adjoint)
    return adjoint.factors


def _differentiate_message(passing: Passing, chart: Chart, weights: Weights, adjoint: Adjoint) -> None:
    message, rows = passing
    source, target = chart.items[message.ends], chart.messages[message]
    used = _leaves(weights, [label for label, _ in message.factors])
    values = source.mantissa[rows].requires_grad_()
    shift = _plus(source.exponent[rows], weights.total(label for label, _ in message.factors)) - target.exponent[rows]
    with torch.enable_grad():
        sent = send(REAL, message, values, used)
        scaled = times_power(sent, _if_present(shift).reshape(-1, *[1] * (sent.dim() - 1)))
    gradients = torch.autograd.grad(scaled, [values, *used.values()], adjoint.messages[message][rows])
    adjoint.items[message.ends][rows] += gradients[0]
    _add_factors(adjoint, used, gradients[1:])


def _differentiate_group(group: Group, chart: Chart, weights: Weights, words: Tensor, adjoint: Adjoint) -> None:
    used = _leaves(weights, _labels(group))
    messages = [rows.requires_grad_() for rows in _rows(group, chart)]
    shift = _exponents(group, chart, weights) - chart.items[group.ends].exponent[group.rows][:, None]
    with torch.enable_grad():
        weighted = _weighted(messages, _if_present(shift))
        met = meet(REAL, group, weighted, [words[places] for places in group.words], used, weights.like)
        result = conclude(REAL, group.plan, met, used)
        if not messages:
            result = times_power(result, _if_present(shift[:, 0]).reshape(-1, *[1] * (result.dim() - 1)))
    leaves = [*messages, *used.values()]
    if not leaves:
        return
    gradients = torch.autograd.grad(result, leaves, adjoint.items[group.ends][group.rows])
    for message, rows, gradient in zip(group.plan.messages, group.children, gradients, strict=False):
        _accumulate(adjoint.table(message), rows, gradient)
    _add_factors(adjoint, used, gradients[len(messages) :])


def _leaves(weights: Weights, labels: Iterable[str]) -> dict[str, Tensor]:
    return {label: weights.mantissa[label].detach().requires_grad_() for label in labels}


def _if_present(exponent: Tensor) -> Tensor:
    """An exponent difference, or the power that gives zero where one of the two belongs to nothing."""
    return torch.where(exponent.abs() > -ZERO // 2, ZERO, exponent)


def _add_factors(adjoint: Adjoint, used: Mapping[str, Tensor], gradients: Sequence[Tensor]) -> None:
    for label, gradient in zip(used, gradients, strict=True):
        adjoint.factors[label] += gradient


def _accumulate(table: Tensor, rows: Tensor, values: Tensor) -> None:
    """table[rows] += values, where rows repeat; in a fixed order also on a GPU."""
    flat, parts = rows.reshape(-1), values.reshape(-1, *values.shape[rows.dim() :])
    if table.is_cuda:
        table.index_put_((flat,), parts, accumulate=True)  # sorts the rows: no atomics
    else:
        table.index_add_(0, flat, parts)
