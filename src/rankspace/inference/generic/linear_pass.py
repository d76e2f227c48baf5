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
from rankspace.inference.generic.scaled import ZERO, Scaled, normalise, plus, power_of_two, times_power
from rankspace.inference.generic.stages import conclude, meet, send

REAL = Real()


class Weights:
    """Factors in scaled form, each with one exponent."""

    def __init__(self, factors: Mapping[str, Tensor]) -> None:
        scaled = {label: normalise(factor.detach(), 0)[0] for label, factor in factors.items()}
        self.mantissa = {label: factor.mantissa for label, factor in scaled.items()}
        self.exponent = {label: factor.exponent for label, factor in scaled.items()}
        self.like = next(iter(self.mantissa.values()))
        self._totals: dict[tuple[str, ...], Tensor] = {}

    def total(self, labels: tuple[str, ...]) -> Tensor:
        """Sum of the exponents of some factors."""
        if labels not in self._totals:
            total = torch.zeros((), dtype=torch.int32, device=self.like.device)
            for label in labels:
                total = plus(total, self.exponent[label])
            self._totals[labels] = total
        return self._totals[labels]


class Chart(NamedTuple):
    """Items and messages of a batch in scaled form, and the largest entries met on the way, before scaling."""

    items: dict[Ends, Scaled]
    messages: dict[Message, Scaled]
    tops: list[tuple[Ends, Tensor, Tensor]]  # type and rows of some items, and the largest raw entry of each

    def table(self, message: Message) -> Scaled:
        return self.items[message.ends] if message.is_identity else self.messages[message]


def run_linear(program: Program, weights: Weights, words: Tensor) -> Chart:
    """Every item and message, bottom up."""
    chart = Chart({ends: _table(program.item_shape(ends), weights.like, 0.0, ZERO) for ends in program.num_rows}, {}, [])
    for level in program.levels:
        for group in level.groups:
            _store(chart.items[group.ends], group.rows, _evaluate(group, chart, weights, words), first=group.first)
        for passing in level.passing:
            _pass_on(program, passing, chart, weights)
    return chart


def _table(shape: Sequence[int], like: Tensor, mantissa: float, exponent: int) -> Scaled:
    """A table to be filled."""
    return Scaled(
        torch.full(tuple(shape), mantissa, dtype=like.dtype, device=like.device),
        torch.full((shape[0],), exponent, dtype=torch.int32, device=like.device),
    )


def _evaluate(group: Group, chart: Chart, weights: Weights, words: Tensor) -> Scaled:
    """One group: [item, *endpoints] with an exponent per item."""
    exponent = _exponents(group, chart, weights)
    messages = _rows(group, chart)
    if group.repeats == 1:
        top = exponent[:, 0]
    else:
        top = exponent.amax(1)
        if messages:
            least = _smallest(messages)
            power = power_of_two(exponent - top[:, None], weights.like.dtype)
            messages[least] = messages[least] * _trailing(power, messages[least])
    met, largest = normalise(meet(REAL, group, messages, words, weights.mantissa, weights.like), 1)
    chart.tops.append((group.ends, group.rows, largest))
    total = plus(met.exponent, top)
    if group.last is None:
        return Scaled(met.mantissa, total)
    result, largest = normalise(conclude(REAL, group, met.mantissa, weights.mantissa), 1)
    chart.tops.append((group.ends, group.rows, largest))
    return Scaled(result.mantissa, plus(result.exponent, total))


def _store(table: Scaled, rows: Tensor, part: Scaled, first: bool) -> None:
    """Adds what a group found into a table; an item occurs once in each group."""
    if first:
        table.mantissa[rows], table.exponent[rows] = part
        return
    old = table.exponent[rows]
    top = torch.maximum(old, part.exponent)
    kept = table.mantissa[rows] * _trailing(power_of_two(old - top, part.mantissa.dtype), part.mantissa)
    added = part.mantissa * _trailing(power_of_two(part.exponent - top, part.mantissa.dtype), part.mantissa)
    table.mantissa[rows] = kept + added
    table.exponent[rows] = top


def _pass_on(program: Program, passing: Passing, chart: Chart, weights: Weights) -> None:
    message, rows, _ = passing
    source = chart.items[message.ends]
    sent, largest = normalise(send(REAL, passing, source.mantissa[rows], weights.mantissa), 1)
    if message not in chart.messages:
        shape = (program.num_rows[message.ends], *sent.mantissa.shape[1:])
        chart.messages[message] = _table(shape, weights.like, 1.0, 0)  # no zero to wonder about in rows never sent
    taken = source.exponent[rows] + weights.total(message.labels)
    _store(chart.messages[message], rows, Scaled(sent.mantissa, plus(sent.exponent, taken)), first=True)
    chart.tops.append((message.ends, rows, largest))


def _rows(group: Group, chart: Chart) -> list[Tensor]:
    return [chart.table(m).mantissa[rows] for m, rows in zip(group.plan.messages, group.children, strict=True)]


def _exponents(group: Group, chart: Chart, weights: Weights) -> Tensor:
    """Sum of the exponents of children and factors: [item, application]."""
    total = weights.total(group.plan.labels)
    for message, rows in zip(group.plan.messages, group.children, strict=True):
        total = total + chart.table(message).exponent[rows]
    return total.expand(len(group.rows), group.repeats)


def _smallest(messages: Sequence[Tensor]) -> int:
    return min(range(len(messages)), key=lambda i: messages[i].numel())


def _trailing(scale: Tensor, like: Tensor) -> Tensor:
    return scale.reshape((*scale.shape, *[1] * (like.dim() - scale.dim())))


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
    message, rows, _ = passing
    source, target = chart.items[message.ends], chart.messages[message]
    used = _leaves(weights, message.labels)
    values = source.mantissa[rows].requires_grad_()
    shift = source.exponent[rows] + weights.total(message.labels) - target.exponent[rows]
    with torch.enable_grad():
        result = times_power(send(REAL, passing, values, used), _if_present(shift))
    gradients = torch.autograd.grad(result, [values, *used.values()], adjoint.messages[message][rows])
    adjoint.items[message.ends][rows] += gradients[0]
    _add_factors(adjoint, used, gradients[1:])


def _differentiate_group(group: Group, chart: Chart, weights: Weights, words: Tensor, adjoint: Adjoint) -> None:
    used = _leaves(weights, group.plan.labels)
    messages = [rows.requires_grad_() for rows in _rows(group, chart)]
    shift = _if_present(_exponents(group, chart, weights) - chart.items[group.ends].exponent[group.rows][:, None])
    with torch.enable_grad():
        weighted = list(messages)
        if weighted:
            least = _smallest(weighted)
            weighted[least] = times_power(weighted[least], shift)
        result = conclude(REAL, group, meet(REAL, group, weighted, words, used, weights.like), used)
        if not weighted:
            result = times_power(result, shift[:, 0])
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
    flat, parts = rows.reshape(-1), values.reshape((-1, *values.shape[rows.dim() :]))
    if table.is_cuda:
        table.index_put_((flat,), parts, accumulate=True)  # sorts the rows: no atomics
    else:
        table.index_add_(0, flat, parts)
