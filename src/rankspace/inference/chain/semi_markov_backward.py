"""Backward pass of the semi-Markov recursion: gradients of log Z, and the posteriors they are.

Gradients with respect to logarithms of durations and emissions are expected counts, so nothing is divided by anything
that may be zero. The pass in reverse (`backward`) is as sequential as the forward pass and as cheap; what follows from
it for words and durations (`expected`) takes all steps at once.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from rankspace.inference.chain.backward import summed_by
from rankspace.inference.chain.forward import steps
from rankspace.inference.chain.semi_markov import (
    Chart,
    SemiMarkov,
    Support,
    Weights,
    earlier,
    forward,
    linear,
    log_totals,
    lost_sentences,
)
from rankspace.inference.differentiation import first_derivatives_only, tell_of_lacks, with_large_slopes
from rankspace.inference.ragged import Ragged
from rankspace.inference.scaled import power_of_two

COLUMNS = 64  # fewer states at a time make short rows, and slow ones


class Adjoints(NamedTuple):
    """Derivatives of sum(seeds * log Z) with respect to numbers of the recursion; rows as in `Chart`."""

    finished: Float[Tensor, "token state"]
    linked: Float[Tensor, "token state"]  # of what came out of the link, before it was scaled; first step: zero
    start: Float[Tensor, "nonempty state"]  # by place


def backward(chains: SemiMarkov, chart: Chart, seeds: Float[Tensor, "batch"]) -> Adjoints:
    """The recursion in reverse. Sentences (by place) with seed 0 give exact zeros. Costs as `forward`.

    Adjoints are at most D * state / lowest: what is not zero is at least `lowest` (sentences that are not lost).
    """
    layout, weights = chains.layout, linear(chains)
    emitted = weights.words.index_select(0, chains.index)
    finished, linked = torch.empty_like(emitted), torch.zeros_like(emitted)
    rates = _rates(chart, layout, seeds)
    relative, shift = _relative(chart, layout, len(weights.duration)), _shift(chart, layout)
    nowhere = chart.entry == 0  # has nothing to pass on, and its adjoint could grow without bound
    blocks = steps(layout, emitted, finished, linked, shift, nowhere, *relative)
    under_way = emitted.new_zeros(1, 0, emitted.shape[1])
    for time in reversed(range(layout.longest)):
        word, adjoint, _, _, _, *scales = blocks[time]
        going_on = under_way.shape[1]
        if going_on:
            _, _, incoming, power, skipped, *_ = blocks[time + 1]
            torch.mul(under_way[0], power, out=incoming).masked_fill_(skipped, 0)
            adjoint[:going_on] = chains.link.transposed(incoming)
        adjoint[going_on:] = rates[going_on : len(word), None]
        by_age = torch.stack(scales[: time + 1]) * adjoint
        by_age.mul_(weights.duration[: time + 1, None])
        by_age[: len(under_way) - 1, :going_on] += under_way[1:]
        under_way = by_age.mul_(word)
    scale = power_of_two(-chart.entry_exponent[: under_way.shape[1]], finished.dtype)
    return Adjoints(finished, linked, under_way[0] * scale[:, None])


def _relative(chart: Chart, layout: Ragged, ages: int) -> list[Float[Tensor, "token 1"]]:
    """By age: scale of a segment's entry over the scale of its end."""
    entered = (chart.entry_exponent[earlier(layout, age)] for age in range(min(ages, layout.longest)))
    return [power_of_two(scale - chart.finished_exponent, chart.entry.dtype)[:, None] for scale in entered]


def _shift(chart: Chart, layout: Ragged) -> Float[Tensor, "token 1"]:
    """What the link's output was multiplied by to become an entry."""
    before = chart.finished_exponent[earlier(layout, 1)]
    return power_of_two(before - chart.entry_exponent, chart.entry.dtype)[:, None]


def _rates(chart: Chart, layout: Ragged, seeds: Float[Tensor, "batch"]) -> Float[Tensor, "batch"]:
    """Seed over the mantissa of Z, by place."""
    total = chart.finished[layout.last_token].sum(-1)
    counted = (seeds != 0) & (total > 0)
    return torch.where(counted, seeds.to(total.dtype) / torch.where(counted, total, 1), 0)


class Expected(NamedTuple):
    """What the posterior says of words and durations, times the weight of each sentence."""

    occupancy: Float[Tensor, "token state"]  # the state that emits each word
    duration: Float[Tensor, "duration state"]  # segments by duration and state, all sentences together


Visitor = Callable[[int, slice, slice, Tensor], None]


def expected(chains: SemiMarkov, chart: Chart, adjoints: Adjoints, visit: Visitor | None = None) -> Expected:
    """Posterior of segments, all steps of one duration at once, for so many states at a time that memory stays
    O(token * max(state, COLUMNS * D)).

    `visit(age, columns, rows, posterior)` sees the posterior of the segments of age + 1 words that end at some rows,
    for some states.
    """
    weights = linear(chains)
    found = Expected(torch.zeros_like(chart.entry), torch.zeros_like(weights.duration))
    reach = _reach(chart, chains.layout, len(weights.duration))
    size = len(weights.start)
    width = max(COLUMNS, -(-size // len(reach)))
    for begin in range(0, size, width):
        columns = slice(begin, min(begin + width, size))
        segments = _segments(weights, chains.index, chart, adjoints, columns, reach)
        for age, posterior in enumerate(segments):
            found.duration[age, columns] = posterior.sum(0)
            if visit is not None:
                visit(age, columns, reach[age].rows, posterior)
        _occupy(found.occupancy[:, columns], segments, reach)
    return found


class _Reach(NamedTuple):
    """Segments of one age: the words they end at, and where they were entered."""

    rows: slice
    entered: Tensor  # [row] -> row of the first word
    relative: Tensor  # [row] -> scale of the entry over the scale of the end
    younger: Tensor  # [row] -> place of the word before among the rows of the age before


def _reach(chart: Chart, layout: Ragged, ages: int) -> list[_Reach]:
    before = earlier(layout, 1)
    found = []
    for age, relative in enumerate(_relative(chart, layout, ages)):
        rows = slice(layout.before[age + 1], layout.num_tokens)
        entered = earlier(layout, age)[rows]
        younger = before[rows] - layout.before[age] if age else entered
        found.append(_Reach(rows, entered, relative[rows], younger))
    return found


def _segments(
    weights: Weights, index: Tensor, chart: Chart, adjoints: Adjoints, columns: slice, reach: list[_Reach]
) -> list[Tensor]:
    """Posterior of each segment: entry * product of its emissions * duration * adjoint of its end."""
    emitted = weights.words[:, columns].index_select(0, index)
    entry, product, segments = chart.entry[:, columns], emitted, []
    for age, (rows, entered, relative, younger) in enumerate(reach):
        if age:
            product = emitted[rows] * product.index_select(0, younger)
        closing = adjoints.finished[rows, columns] * relative * weights.duration[age, columns]
        segments.append(product * entry.index_select(0, entered) * closing)
    return segments


def _occupy(occupancy: Tensor, segments: list[Tensor], reach: list[_Reach]) -> None:
    """A word is in a segment that ends at it, or in one that goes on: adds both up, by age at the word."""
    for age in reversed(range(len(segments))):
        if age + 1 < len(segments):
            segments[age][reach[age + 1].younger] += segments[age + 1]  # no two words have the same word before them
        occupancy[reach[age].rows] += segments[age]


def gradients(chains: SemiMarkov, chart: Chart, seeds: Float[Tensor, "batch"]) -> tuple[Tensor, ...]:
    """Derivatives of sum(seeds * log Z) with respect to `chains.tensors`, seeds by place."""
    layout = chains.layout
    if not layout.num_tokens:
        return tuple(torch.zeros_like(tensor) for tensor in chains.tensors)
    adjoints = backward(chains, chart, seeds)
    counts = expected(chains, chart, adjoints)
    words = summed_by(counts.occupancy, chains.index, len(chains.log_words))
    moved = chains.link.gradients(chart.finished[layout.previous], adjoints.linked[layout.alive[1] :])
    return (counts.duration.T, adjoints.start.sum(0), words, *moved)


def slopes(chains: SemiMarkov, chart: Chart, direction: SemiMarkov, possible: Tensor) -> Float[Tensor, "batch"]:
    """Derivative of each sentence's log Z when `chains.tensors` move along those of another; zero if not possible.

    `possible` is by place, the result, in float64, in the order of the caller.
    """
    layout = chains.layout
    if not layout.num_tokens:
        return torch.zeros(len(layout.lengths), dtype=torch.float64, device=layout.device)
    adjoints = backward(chains, chart, possible.double())
    total = torch.zeros(layout.num_tokens, dtype=torch.float64, device=layout.device)

    def visit(age: int, columns: slice, rows: slice, posterior: Tensor) -> None:
        total[rows] += _weighed(posterior, direction.log_duration[columns, age])

    counts = expected(chains, chart, adjoints, visit)
    first = layout.alive[1]
    total += _weighed(counts.occupancy, direction.log_words.index_select(0, chains.index))
    total[:first] += _weighed(adjoints.start, direction.start)
    moved = chains.link.tangent(direction.link, chart.finished[layout.previous])
    total[first:] += _weighed(adjoints.linked[first:], moved)
    return layout.unpack(total).sum(1)


def _weighed(counts: Float[Tensor, "row state"], values: Tensor) -> Float[Tensor, "row"]:
    """Sums of counts * values over states, what is not counted not being looked at."""
    return torch.where(counts != 0, counts * values, 0).sum(1, dtype=torch.float64)


def log_z(chains: SemiMarkov, support: Support) -> tuple[Float[Tensor, "batch"], Bool[Tensor, "batch"]]:
    """log Z in float64, -inf for the impossible, and which sentences lost more than rounding (see `lost_sentences`).

    Differentiable once in `chains.tensors`; lost and impossible sentences have gradient zero. An empty sentence has
    log Z = 0. Keeps two tables [token, state] for the backward pass, which needs about five more of that size.
    """
    found: tuple[Tensor, Tensor] = _LogZ.apply(chains, support, *chains.tensors)  # type: ignore[no-untyped-call]
    return found


def log_z_slopes(
    chains: SemiMarkov, direction: SemiMarkov, support: Support
) -> tuple[Float[Tensor, "batch"], Bool[Tensor, "batch"]]:
    """Derivative of each sentence's log Z along a direction, zero for the impossible, and which sentences are lost."""
    chart = forward(chains)
    lost = lost_sentences(chains, chart, support)
    good = (log_totals(chains, chart) > -torch.inf) & ~lost
    return slopes(chains, chart, direction, good), chains.layout.in_callers_order(lost)


@tell_of_lacks
class _LogZ(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, chains: SemiMarkov, support: Support, *tensors: Tensor) -> tuple[Tensor, Tensor]:
        chart = forward(chains)
        log_z, lost = log_totals(chains, chart), lost_sentences(chains, chart, support)
        ctx.save_for_backward(*tensors, *chart, (log_z > -torch.inf) & ~lost)
        ctx.chains = chains.like(tuple(tensor.detach() for tensor in tensors))
        in_order = chains.layout.in_callers_order(lost)
        ctx.mark_non_differentiable(in_order)
        return chains.layout.in_callers_order(log_z), in_order

    @staticmethod
    @first_derivatives_only
    @with_large_slopes
    def backward(ctx: Any, gradient: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        *tensors, entry, entry_exponent, finished, finished_exponent, good = ctx.saved_tensors
        chart = Chart(entry, entry_exponent, finished, finished_exponent)
        seeds = torch.where(good, gradient.index_select(0, ctx.chains.layout.sentence_at), 0)
        return (None, None, *gradients(ctx.chains.like(tuple(tensors)), chart, seeds))
