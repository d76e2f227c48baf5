"""A program in plain arithmetic, without exponents: for batches whose numbers stay well within the range of the dtype.

Multiplying by powers of two does not round, so where no number comes near the ends of the range, scaling would gain
nothing. Words alone are scaled, as their probabilities are small: all that is looked up at a place is divided by one
power of two. Every derivation of a sentence reads each of its places once, so its Z is divided by all of these powers.
"""

import math

import torch
from torch import Tensor

from rankspace.inference.generic.linear_pass import (
    REAL,
    Chart,
    Kept,
    Weights,
    operands,
    send_on,
    weighted_meeting,
)
from rankspace.inference.generic.program import Group, Program
from rankspace.inference.generic.stages import conclude, look_up
from rankspace.inference.scaled import furthest_power, lowest, power_of_two


@torch.inference_mode()
def run_plain(program: Program, weights: Weights, words: Tensor) -> Chart | None:
    """Every row, bottom up, from factors as they are; None if some number is zero or near the ends of the range."""
    chart = Chart.empty(program, weights.like)
    _look_up(program, chart, weights, words)
    for level in program.levels:
        for group in level.groups:
            met = weighted_meeting(group, operands(group, chart), None, weights.mantissa, weights.like)
            raw = met if group.last is None else conclude(REAL, group, met, weights.mantissa)
            _store(group, chart, raw.reshape(group.rows.length, -1))
        for passing in level.passing:
            send_on(passing, chart, weights)
    return chart if _is_within_range(program, chart, weights) else None


def _store(group: Group, chart: Chart, values: Tensor) -> None:
    table = chart.tables[group.table].mantissa
    if group.shared:
        chart.hidden.append(values.amin())
    group.rows.put(table, values if group.first else group.rows.take(table) + values)
    chart.kept.append(Kept())


def _is_within_range(program: Program, chart: Chart, weights: Weights) -> bool:
    """Whether all that was lost, and will be in the derivatives, is rounding.

    A product below the smallest normal number is lost. Up to `largest` to the power of `later` it may be multiplied
    with afterwards, and the sum that it belongs to must be large against that: see `lowest`. Derivatives are
    probabilities over values; with values of at most 1 / sqrt(lowest) they are normal numbers down to probabilities far
    below rounding.
    """
    arrays = [*(table.mantissa for table in chart.tables.values()), *weights.mantissa.values()]
    tops = [array.amax() for array in arrays if array.numel()]
    largest = max(1.0, torch.stack(tops).amax().item()) if tops else 1.0
    later = max([1, *(plan.num_arrays - 2 for plan in program.plans)])
    least, end = chart.least(), math.log2(lowest(weights.like.dtype))
    return least > 0 and math.log2(largest) < -end / 2 and math.log2(least) > end + later * math.log2(largest)


def _look_up(program: Program, chart: Chart, weights: Weights, words: Tensor) -> None:
    """Factors at words, those of a place divided by the power of two next to the mean of one of them."""
    found = [look_up(REAL, lookup, words, weights.mantissa, weights.like) for lookup in program.lookups]
    exponents = _of_places(program, found, words)
    for lookup, rows in zip(program.lookups, found, strict=True):
        chart.word_scales.append(power_of_two(-exponents[lookup.places].sum(0), rows.dtype))
        lookup.rows.put(chart.tables[lookup.table].mantissa, rows * chart.word_scales[-1][:, None])
    for table in chart.tables.values():
        table.exponent.zero_()
    totals = exponents.new_zeros(program.num_sentences).index_add_(0, program.sentence_of_word, exponents)
    chart.tables[()].exponent[program.roots] = totals[program.possible].int()


def _of_places(program: Program, found: list[Tensor], words: Tensor) -> Tensor:
    """The exponent of each place; zero where nothing is looked up, or where derivations differ in what they read."""
    mean = torch.full((len(words),), 0.5, dtype=torch.float64, device=words.device)  # which has the exponent zero
    if program.tiled:
        for lookup, rows in zip(program.lookups, found, strict=True):
            mean[lookup.places[0]] = rows.mean(1).double()
    bound = furthest_power(found[0].dtype) if found else 0
    return torch.frexp(mean)[1].long().clamp_(-bound, bound)
