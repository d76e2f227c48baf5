"""A program evaluated in scaled linear space: mantissas in the tables, integer exponents beside them.

Each group is one meeting and one conclusion on mantissas; its applications are weighed by powers of two.
"""

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import NamedTuple

import torch
from torch import Tensor

from rankspace.fgg.semirings import Real
from rankspace.inference.generic.contraction_plan import Message
from rankspace.inference.generic.layout import Lookup, Sizes
from rankspace.inference.generic.program import Group, Passing, Program
from rankspace.inference.generic.stages import conclude, gather, look_up, meet, send
from rankspace.inference.scaled import (
    ZERO,
    Scaled,
    half_to_the,
    lowest,
    normalise,
    plus,
    power_of_two,
    shifted,
)

REAL = Real()


class Weights:
    """Factors in scaled form, each with one exponent: its largest entry in [1/2, 1), and no entry lost.

    Or, if they are not `scaled`, as they are.
    """

    def __init__(self, factors: Mapping[str, Tensor], scaled: bool) -> None:
        self.given = {label: factor.detach() for label, factor in factors.items()}
        self.shift, self.exponent = dict.fromkeys(factors, 0), dict.fromkeys(factors, 0)
        self.mantissa = self.given
        if scaled:
            tops = [factor.max() if factor.numel() else factor.new_zeros(()) for factor in self.given.values()]
            fractions, exponents = (numbers.tolist() for numbers in torch.frexp(torch.stack(tops)))
            self.shift = dict(zip(factors, exponents, strict=True))
            self.exponent = {
                label: shift if fraction else ZERO
                for (label, shift), fraction in zip(self.shift.items(), fractions, strict=True)
            }
            self.mantissa = {label: shifted(factor, -self.shift[label]) for label, factor in self.given.items()}
        self.like = next(iter(self.mantissa.values()))
        self._bundles: dict[int, Scaled] = {}

    def total(self, labels: Sequence[str]) -> int:
        """Sum of the exponents of some factors."""
        return max(ZERO, sum(self.exponent[label] for label in labels))

    def bundle(self, passing: Passing) -> Scaled:
        """The matrix [entry of an item, entries of all messages] of a bundle, and an exponent for each message."""
        if passing.number not in self._bundles:
            messages = passing.messages
            matrices = [message for message in messages if message.order is not None]
            parts = [items_first(message, self.mantissa[message.labels[0]]) for message in matrices]
            rows = [part.reshape(part.shape[: len(messages[0].own)].numel(), -1) for part in parts]
            totals = [self.total(message.labels) for message in messages]
            exponent = torch.tensor(totals, dtype=torch.int32, device=self.like.device)
            self._bundles[passing.number] = Scaled(torch.cat(rows, 1) if rows else self.like[:0], exponent)
        return self._bundles[passing.number]


def items_first(message: Message, factor: Tensor) -> Tensor:
    """A view of the factor of a message whose first axes are those of the items."""
    return factor.permute(message.order or ())


class Kept(NamedTuple):
    """How a group came by its items: what is needed to differentiate it. All None in plain arithmetic."""

    power: Tensor | None = None  # what its applications are weighed by, [item, application]; None where all count alike
    base: Tensor | None = None  # the exponents that these are relative to, [item]
    scale: Tensor | None = None  # the power of two that the sums were multiplied with, [item]


class Chart(NamedTuple):
    """The tables of a batch in scaled form, [row, entry], and what else was found on the way.

    A message has the exponents of its items and of its factors: its numbers are only moderately smaller than one.
    """

    tables: dict[Sizes, Scaled]
    kept: list[Kept]  # of each group
    tops: list[Tensor]  # the largest entry of each item of each group, before scaling
    hidden: list[Tensor]  # the least entries of groups to whose items others add, which may cover them
    word_scales: list[Tensor]  # the powers of two that the rows of each lookup were multiplied with, if any

    @classmethod
    def empty(cls, program: Program, like: Tensor) -> "Chart":
        return cls({table: _table(program.shape(table), like) for table in program.owners}, [], [], [], [])

    def least(self) -> float:
        """The least entry of all rows, and of all groups whose items have others."""
        least = [table.mantissa.amin() for table in self.tables.values() if table.mantissa.numel()]
        return torch.stack([*least, *self.hidden]).amin().item() if least else 1.0


@torch.inference_mode()  # it saves a seventh of the time of many small operations
def run_linear(program: Program, weights: Weights, words: Tensor) -> Chart:
    """Every row, bottom up."""
    chart = Chart.empty(program, weights.like)
    for lookup in program.lookups:
        _look_up(lookup, chart, weights, words)
    for level in program.levels:
        for group in level.groups:
            part, kept, top = evaluate_group(group, chart, weights)
            chart.kept.append(kept)
            chart.tops.append(top)
            if group.shared:
                chart.hidden.append(part.mantissa.amin())
            _store(chart.tables[group.table], group, part)
        for passing in level.passing:
            send_on(passing, chart, weights)
            _send_exponents(passing, chart, weights)
    return chart


def _table(shape: Sequence[int], like: Tensor) -> Scaled:
    """A table of nothing, to be filled."""
    exponent = torch.full((shape[0],), ZERO, dtype=torch.int32, device=like.device)
    return Scaled(like.new_zeros(tuple(shape)), exponent)


def _look_up(lookup: Lookup, chart: Chart, weights: Weights, words: Tensor) -> None:
    table = chart.tables[lookup.table]
    lookup.rows.put(table.mantissa, look_up(REAL, lookup, words, weights.mantissa, weights.like))
    lookup.rows.take(table.exponent).fill_(0 if lookup.label is None else weights.exponent[lookup.label])


def evaluate_group(group: Group, chart: Chart, weights: Weights) -> tuple[Scaled, Kept, Tensor]:
    """One group, [item, entry] with an exponent per item; how it came about; the largest entries before scaling."""
    power, base = _relative(_exponents(group, chart, weights), weights.like.dtype)
    met = weighted_meeting(group, operands(group, chart), power, weights.mantissa, weights.like)
    raw = met if group.last is None else conclude(REAL, group, met, weights.mantissa)
    mantissa, exponent, scale, top = normalise(raw.reshape(group.rows.length, -1))
    return Scaled(mantissa, plus(exponent, base)), Kept(power, base, scale), top


def operands(group: Group, chart: Chart) -> list[Tensor]:
    """The operands of a group: [item, application, entry]."""
    blocks = [gather(chart.tables[block.table].mantissa, block) for block in group.operands]
    return [operand for block in blocks for operand in block.unbind()]


def _exponents(group: Group, chart: Chart, weights: Weights) -> Tensor:
    """Exponents of the applications of a group: [item, application]."""
    total = weights.total(group.plan.labels)
    if not group.operands:
        return torch.full((group.rows.length, group.repeats), total, device=weights.like.device)
    parts = [gather(chart.tables[block.table].exponent, block).sum(0) for block in group.operands]
    found = reduce(torch.add, parts)
    return found + total if total else found


def _relative(exponents: Tensor, dtype: torch.dtype) -> tuple[Tensor | None, Tensor]:
    """Powers of two relative to the largest exponent of each item, and that exponent; None for one application."""
    if exponents.shape[1] == 1:
        return None, exponents[:, 0]
    base = exponents.amax(1)
    return half_to_the(base[:, None] - exponents, dtype), base


def weighted_meeting(
    group: Group, operands: Sequence[Tensor], power: Tensor | None, factors: Mapping[str, Tensor], like: Tensor
) -> Tensor:
    """The meeting of operands [item, application, entry] with each application weighed by its power."""
    if group.plan.elementwise:
        product = reduce(torch.mul, operands)
        if group.repeats > 1:
            product = product.sum(1) if power is None else torch.bmm(power[:, None], product)
        return product if group.last is None else product.reshape(group.rows.length, *group.operands[0].table)
    arrays = list(operands)
    if power is not None and arrays:
        least = min(range(len(arrays)), key=lambda i: arrays[i].numel())
        arrays[least] = arrays[least] * power[:, :, None]
    return meet(REAL, group, arrays, factors, like)


def _store(table: Scaled, group: Group, part: Scaled) -> None:
    """Adds what a group found into a table; an item occurs once in each group."""
    mantissa, exponent = part
    if not group.first:
        old = group.rows.take(table.exponent)
        top = torch.maximum(old, exponent)
        kept = group.rows.take(table.mantissa) * power_of_two(old - top, mantissa.dtype)[:, None]
        added = mantissa * power_of_two(exponent - top, mantissa.dtype)[:, None]
        mantissa, exponent = torch.threshold(kept + added, lowest(kept.dtype), 0), top
    group.rows.put(table.mantissa, mantissa)
    group.rows.put(table.exponent, exponent)


def send_on(passing: Passing, chart: Chart, weights: Weights) -> None:
    """The messages of some items, into their rows."""
    values = passing.senders.take(chart.tables[passing.items].mantissa)
    into = passing.rows.take(chart.tables[passing.table].mantissa).view(passing.senders.length, -1)
    if passing.messages[0].order is None:
        into.copy_(send(REAL, passing, values, weights.mantissa))
    else:
        torch.mm(values, weights.bundle(passing).mantissa, out=into)


def _send_exponents(passing: Passing, chart: Chart, weights: Weights) -> None:
    exponent = passing.senders.take(chart.tables[passing.items].exponent)[:, None]
    into = passing.rows.take(chart.tables[passing.table].exponent).view(passing.senders.length, -1)
    torch.add(exponent, weights.bundle(passing).exponent, out=into)
