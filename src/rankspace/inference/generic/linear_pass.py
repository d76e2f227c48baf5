"""A program evaluated in scaled linear space, with an explicit backward pass.

Forward: each group is one meeting and one conclusion on mantissas, with integer exponents beside them. Backward: the
same groups in reverse order; each is recomputed from the tables and differentiated on its own, so nothing but the
tables (one number per entry of each item and message) is kept between the passes.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from typing import NamedTuple

import torch
from torch import Tensor

from rankspace.fgg.semirings import Real
from rankspace.inference.generic.contraction_plan import Message
from rankspace.inference.generic.program import Ends, Group, Passing, Program, Rows
from rankspace.inference.generic.scaled import (
    ZERO,
    Scaled,
    lowest,
    normalise,
    plus,
    power_of_two,
    scale_factor,
    times_power,
)
from rankspace.inference.generic.stages import batched, conclude, meet, send

REAL = Real()


class Weights:
    """Factors in scaled form, each with one exponent."""

    def __init__(self, factors: Mapping[str, Tensor]) -> None:
        scaled = {label: scale_factor(factor.detach()) for label, factor in factors.items()}
        self.mantissa = {label: factor.mantissa for label, factor in scaled.items()}
        self.exponent = {label: factor.exponent for label, factor in scaled.items()}
        self.positive = {label: factor > 0 for label, factor in factors.items()}
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
    """Items of a batch in scaled form, their messages, and the largest entries met on the way, before scaling.

    A message has the exponents of its items and of its factors: its numbers are only moderately smaller than one.
    """

    items: dict[Ends, Scaled]
    messages: dict[Message, Tensor]
    tops: list[tuple[Ends, Rows, Tensor]]  # type and rows of some items, and the largest raw entry of each
    holes: list[Tensor]  # whether a group has zeros that other groups with the same items may have covered

    def mantissa(self, message: Message) -> Tensor:
        return self.items[message.ends].mantissa if message.is_identity else self.messages[message]


def run_linear(program: Program, weights: Weights, words: Tensor) -> Chart:
    """Every item and message, bottom up."""
    chart = Chart({ends: _table(program.item_shape(ends), weights.like) for ends in program.num_rows}, {}, [], [])
    for level in program.levels:
        for group in level.groups:
            part, largest = evaluate_group(group, chart, weights, words)
            chart.tops.append((group.ends, group.rows, largest))
            if group.shared:
                chart.holes.append((part.mantissa == 0).any())
            _store(chart.items[group.ends], group.rows, part, first=group.first)
        for passing in level.passing:
            _pass_on(program, passing, chart, weights)
    return chart


def _table(shape: Sequence[int], like: Tensor) -> Scaled:
    """A table of nothing, to be filled."""
    exponent = torch.full((shape[0],), ZERO, dtype=torch.int32, device=like.device)
    return Scaled(like.new_zeros(tuple(shape)), exponent)


def evaluate_group(group: Group, chart: Chart, weights: Weights, words: Tensor) -> tuple[Scaled, Tensor]:
    """One group: [item, *endpoints] with an exponent per item, and the largest entry of each before scaling."""
    relative, top = _exponents(group, chart, weights)
    met = _meet(group, _rows(group, chart), relative, words, weights.mantissa, weights.like)
    result, largest = normalise(conclude(REAL, group, met, weights.mantissa), 1)
    return Scaled(result.mantissa, plus(result.exponent, top)), largest


def _meet(
    group: Group,
    messages: Sequence[Tensor],
    relative: Tensor | None,
    words: Tensor,
    factors: Mapping[str, Tensor],
    like: Tensor,
) -> Tensor:
    """The meeting with each application weighed by 2^relative [item, application], where there are several."""
    if relative is None or not messages:
        return meet(REAL, group, messages, words, factors, like)
    power = power_of_two(relative, like.dtype)
    if group.plan.elementwise:
        product = reduce(torch.mul, batched(group, messages, words, factors))
        met = torch.bmm(power[:, None], product.reshape((*power.shape, -1)))
        return met.reshape((len(group.rows), *product.shape[2:]))
    arrays = list(messages)
    least = min(range(len(arrays)), key=lambda i: arrays[i].numel())
    arrays[least] = arrays[least] * _trailing(power, arrays[least])
    return meet(REAL, group, arrays, words, factors, like)


def _store(table: Scaled, rows: Rows, part: Scaled, first: bool) -> None:
    """Adds what a group found into a table; an item occurs once in each group."""
    if not first:
        old = rows.take(table.exponent)
        top = torch.maximum(old, part.exponent)
        kept = rows.take(table.mantissa) * _trailing(power_of_two(old - top, part.mantissa.dtype), part.mantissa)
        added = part.mantissa * _trailing(power_of_two(part.exponent - top, part.mantissa.dtype), part.mantissa)
        part = Scaled(torch.threshold(kept + added, lowest(kept.dtype), 0), top)
    rows.put(table.mantissa, part.mantissa)
    rows.put(table.exponent, part.exponent)


def _pass_on(program: Program, passing: Passing, chart: Chart, weights: Weights) -> None:
    message, rows, _ = passing
    sent = send(REAL, passing, rows.take(chart.items[message.ends].mantissa), weights.mantissa)
    if message not in chart.messages:  # rows that are never sent hold no zero to wonder about
        chart.messages[message] = sent.new_ones((program.num_rows[message.ends], *sent.shape[1:]))
    rows.put(chart.messages[message], sent)


def _rows(group: Group, chart: Chart) -> list[Tensor]:
    """Messages of the children: [item, application, ...]."""
    return [
        _gather(chart.mantissa(message), rows)
        for message, rows in zip(group.plan.messages, group.children, strict=True)
    ]


def _gather(table: Tensor, rows: Tensor) -> Tensor:
    return table.index_select(0, rows.reshape(-1)).reshape((*rows.shape, *table.shape[1:]))


def _exponents(group: Group, chart: Chart, weights: Weights) -> tuple[Tensor | None, Tensor]:
    """Exponents of the applications [item, application] relative to the largest of their item, and that [item].

    The first is None where every item has one application.
    """
    total = weights.total(group.plan.all_labels).expand(len(group.rows), group.repeats)
    for message, rows in zip(group.plan.messages, group.children, strict=True):
        total = plus(total, _gather(chart.items[message.ends].exponent, rows))
    if group.repeats == 1:
        return None, total[:, 0]
    top = total.amax(1)
    return total - top[:, None], top


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

    The exponents count as constants. Derivatives with respect to what is zero are left out: no derivative with respect
    to a positive weight goes through them, and they may be beyond all range. All others are a posterior probability
    over a mantissa, hence at most one over `lowest`. Deterministic: rows are accumulated in a fixed order on every
    device.
    """
    adjoint = Adjoint(
        dict(roots),
        {message: torch.zeros_like(table) for message, table in chart.messages.items()},
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
    used = _leaves(weights, message.labels)
    values = rows.take(chart.items[message.ends].mantissa).detach().requires_grad_()
    with torch.enable_grad():
        sent = send(REAL, passing, values, used)
    slope = torch.where(sent > 0, rows.take(adjoint.messages[message]), 0)
    gradients = torch.autograd.grad(sent, [values, *used.values()], slope)
    rows.put(adjoint.items[message.ends], rows.take(adjoint.items[message.ends]) + gradients[0])
    _add_factors(adjoint, used, gradients[1:])


def _differentiate_group(group: Group, chart: Chart, weights: Weights, words: Tensor, adjoint: Adjoint) -> None:
    used = _leaves(weights, group.plan.labels)
    messages = [rows.requires_grad_() for rows in _rows(group, chart)]
    leaves = [*messages, *used.values()]
    if not leaves:
        return
    relative, top = _exponents(group, chart, weights)
    shift = _if_present(top - group.rows.take(chart.items[group.ends].exponent))
    with torch.enable_grad():
        met = _meet(group, messages, relative, words, used, weights.like)
        result = times_power(conclude(REAL, group, met, used), shift)
    slope = torch.where(result > 0, group.rows.take(adjoint.items[group.ends]), 0)
    gradients = torch.autograd.grad(result, leaves, slope)
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
