"""Derivatives of a program in linear space: its levels in reverse order.

Products of rows and matrices are differentiated by hand, everything else by autograd, each group and message on its own
from the tables: besides these, one number per application at most is kept between the passes.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from typing import NamedTuple

import torch
from torch import Tensor

from rankspace.devices import is_gpu
from rankspace.inference.generic.contraction_plan import Message
from rankspace.inference.generic.layout import Lookup, Rows, Sizes
from rankspace.inference.generic.linear_pass import (
    REAL,
    Chart,
    Kept,
    Weights,
    items_first,
    weighted_meeting,
)
from rankspace.inference.generic.program import Group, Passing, Program
from rankspace.inference.generic.stages import conclude, gather, send, words_first
from rankspace.inference.scaled import ZERO, times_power


class Adjoint(NamedTuple):
    """Derivatives of the objective with respect to mantissas."""

    tables: dict[Sizes, Tensor]
    factors: dict[str, Tensor]
    matrices: dict[int, tuple[tuple[Message, ...], Tensor]]  # of bundles; they are added to factors in the end
    full: bool  # whether no row has an entry that is zero

    def matrix(self, passing: Passing, like: Tensor) -> Tensor:
        """The derivative with respect to the matrix of a bundle, so far."""
        if passing.number not in self.matrices:
            self.matrices[passing.number] = passing.messages, torch.zeros_like(like)
        return self.matrices[passing.number][1]


@torch.inference_mode()
def differentiate(
    program: Program, chart: Chart, weights: Weights, words: Tensor, roots: Tensor, full: bool
) -> dict[str, Tensor]:
    """Derivatives with respect to the mantissas of the factors, given those with respect to the roots' mantissas.

    The exponents count as constants. Derivatives with respect to what is zero are left out: no derivative with respect
    to a positive weight goes through them, and they may be beyond all range. All others are a posterior probability
    over a mantissa, hence at most one over `lowest`. `full` says that there is no such zero. Deterministic: rows are
    accumulated in a fixed order on every device.
    """
    adjoint = Adjoint(
        {table: torch.zeros_like(scaled.mantissa) for table, scaled in chart.tables.items()},
        {label: torch.zeros_like(factor) for label, factor in weights.mantissa.items()},
        {},
        full,
    )
    adjoint.tables[()][program.roots, 0] = roots
    kept = reversed(chart.kept)
    for level in reversed(program.levels):
        for passing in level.passing:
            _differentiate_messages(passing, chart, weights, adjoint)
        for group in reversed(level.groups):
            if group.plan.elementwise and group.last is None and not group.shared:
                _differentiate_products(group, chart, next(kept), adjoint)
            else:
                _differentiate_group(group, chart, next(kept), weights, adjoint)
    _add_matrices(adjoint)
    for i, lookup in enumerate(program.lookups):
        if lookup.label is not None:
            _differentiate_lookup(lookup, adjoint, words, chart.word_scales[i] if chart.word_scales else None)
    return adjoint.factors


def _differentiate_products(group: Group, chart: Chart, kept: Kept, adjoint: Adjoint) -> None:
    """item = scale * sum over applications of power * product of operands, which are all in one table."""
    [block] = group.operands
    slope = _slope(group.table, group.rows, chart, adjoint)
    if kept.scale is not None:
        slope = slope * kept.scale[:, None]
    weighted = slope[:, None] if kept.power is None else slope[:, None] * kept.power[:, :, None]
    gradient = _times_others(gather(chart.tables[block.table].mantissa, block), weighted)
    _accumulate(adjoint.tables[block.table], block.rows, gradient.flatten(0, 2))


def _times_others(values: Tensor, slope: Tensor) -> Tensor:
    """For each of the values [operand, ...] the slope times the product of the others."""
    result = torch.empty_like(values)
    parts = values.unbind()
    for i, out in enumerate(result.unbind()):
        others = parts[:i] + parts[i + 1 :]
        torch.mul(slope, reduce(torch.mul, others), out=out) if others else out.copy_(slope)
    return result


def _differentiate_group(group: Group, chart: Chart, kept: Kept, weights: Weights, adjoint: Adjoint) -> None:
    """Any group, computed again and differentiated by autograd."""
    exponent = group.rows.take(chart.tables[group.table].exponent)
    slope = group.rows.take(adjoint.tables[group.table])
    with torch.inference_mode(False), torch.enable_grad():
        used = _leaves(weights, group.plan.labels)
        blocks = [gather(chart.tables[block.table].mantissa, block) for block in group.operands]
        operands = [operand.requires_grad_() for block in blocks for operand in block.unbind()]
        power = None if kept.power is None else kept.power.clone()  # autograd saves no tensors of inference mode
        met = weighted_meeting(group, operands, power, used, weights.like)
        result = conclude(REAL, group, met, used).reshape(group.rows.length, -1)
        if kept.base is not None:
            result = times_power(result, _if_present(kept.base - exponent))
        leaves = [*operands, *used.values()]
        gradients = iter(torch.autograd.grad(result, leaves, torch.where(result > 0, slope, 0)) if leaves else ())
    for block in group.operands:
        for rows in block.rows.view(block.shape[0], -1):
            _accumulate(adjoint.tables[block.table], rows, next(gradients).reshape(len(rows), -1))
    _add_factors(adjoint, used, list(gradients))


def _if_present(exponent: Tensor) -> Tensor:
    """An exponent difference, or the power that gives zero where one of the two belongs to nothing."""
    return torch.where(exponent.abs() > -ZERO // 2, ZERO, exponent)


def _differentiate_messages(passing: Passing, chart: Chart, weights: Weights, adjoint: Adjoint) -> None:
    slope = _slope(passing.table, passing.rows, chart, adjoint).view(passing.senders.length, -1)
    values = passing.senders.take(chart.tables[passing.items].mantissa)
    items = passing.senders.take(adjoint.tables[passing.items])
    if passing.messages[0].order is None:
        items += _by_autograd(passing, values, slope, weights, adjoint)
    else:  # messages [sender, entries of all] = values [sender, entry] @ matrix
        matrix = weights.bundle(passing).mantissa
        items.addmm_(slope, matrix.T)
        adjoint.matrix(passing, matrix).addmm_(values.T, slope)
    if passing.senders.begin is None:  # then they are a copy
        passing.senders.put(adjoint.tables[passing.items], items)


def _by_autograd(passing: Passing, values: Tensor, slope: Tensor, weights: Weights, adjoint: Adjoint) -> Tensor:
    """Derivatives of messages that are more than a matrix."""
    with torch.inference_mode(False), torch.enable_grad():
        used = _leaves(weights, passing.messages[0].labels)
        leaf = values.clone().requires_grad_()
        sent = send(REAL, passing, leaf, used)
        gradient, *others = torch.autograd.grad(sent, [leaf, *used.values()], slope)
    _add_factors(adjoint, used, others)
    return gradient


def _add_matrices(adjoint: Adjoint) -> None:
    """Derivatives with respect to the matrices of bundles, given to the factors that they are made of."""
    for messages, matrix in adjoint.matrices.values():
        for message, part in zip(messages, matrix.chunk(len(messages), 1), strict=True):
            factor = items_first(message, adjoint.factors[message.labels[0]])
            factor += part.reshape(factor.shape)


def _differentiate_lookup(lookup: Lookup, adjoint: Adjoint, words: Tensor, scale: Tensor | None) -> None:
    """Rows of words back into the factor they come from; words and pairs of them may come several times."""
    factor = words_first(adjoint.factors[lookup.label or ""], lookup)
    found = lookup.rows.take(adjoint.tables[lookup.table])
    found = found if scale is None else found * scale[:, None]
    factor.index_put_(tuple(words[lookup.places]), found.view(lookup.rows.length, *lookup.table), accumulate=True)


def _slope(table: Sizes, rows: Rows, chart: Chart, adjoint: Adjoint) -> Tensor:
    """The derivative with respect to some rows, left out where they are zero."""
    slope = rows.take(adjoint.tables[table])
    return slope if adjoint.full else torch.where(rows.take(chart.tables[table].mantissa) > 0, slope, 0)


def _leaves(weights: Weights, labels: Iterable[str]) -> dict[str, Tensor]:
    return {label: weights.mantissa[label].detach().requires_grad_() for label in labels}


def _add_factors(adjoint: Adjoint, used: Mapping[str, Tensor], gradients: Sequence[Tensor]) -> None:
    for label, gradient in zip(used, gradients, strict=True):
        adjoint.factors[label] += gradient


def _accumulate(table: Tensor, rows: Tensor, values: Tensor) -> None:
    """table[rows] += values, where rows repeat; in a fixed order also on a GPU."""
    if is_gpu(table.device):
        table.index_put_((rows,), values, accumulate=True)  # sorts the rows: no atomics
    else:
        table.index_add_(0, rows, values)
