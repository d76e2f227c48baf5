"""Semi-Markov chains in log space: no number is out of range, any derivative exists, and every query starts here.

The recursion is that of `semi_markov`; sums may be maxima. Tables hold logarithms by row of `Ragged`.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from rankspace.inference.chain.log_space import LogRecursion, log_product, through
from rankspace.inference.logarithms import LogProduct, log_sum_exp

LogSum = Callable[[Tensor, int], Tensor]  # over one axis


@dataclass(frozen=True)
class LogSemiMarkov(LogRecursion):
    """A `SemiMarkov` whose numbers are logarithms, and whose link is a list of matrices."""

    log_duration: Float[Tensor, "size duration"]

    def map(self, function: Callable[[Tensor], Tensor]) -> "LogSemiMarkov":
        chains = super().map(function)
        return LogSemiMarkov(**{**vars(chains), "log_duration": function(self.log_duration)})


class Step(NamedTuple):
    """One word of all sentences that have it."""

    entry: Float[Tensor, "row state"]  # entered before the word, not including it
    under_way: Float[Tensor, "age row state"]  # entered age words before, including all words up to this one
    finished: Float[Tensor, "row state"]  # segments that end with the word


def steps(chains: LogSemiMarkov, product: LogProduct = log_product, add: LogSum = log_sum_exp) -> Iterator[Step]:
    """The recursion, step by step: O(D state) and one link each."""
    layout, maps = chains.layout, [product(link) for link in chains.log_links]
    durations = chains.log_duration.T[:, None]
    entry = chains.log_start.expand(layout.alive[0], -1)
    under_way = chains.log_start.new_zeros(0, *entry.shape)
    for time in range(layout.longest):
        count, going_on = layout.alive[time + 1], layout.alive[time + 2]
        entry = entry[:count]
        older = under_way[: len(durations) - 1, :count]
        under_way = torch.cat([entry[None], older]) + chains.words_at(time)
        finished = add(under_way + durations[: len(under_way)], 0)
        yield Step(entry, under_way, finished)
        entry = through(maps, finished[:going_on])


def log_z_in_log_space(chains: LogSemiMarkov) -> Float[Tensor, "batch"]:
    """log Z in the order of the caller, differentiable any number of times.

    Keeps |tokens| * (D * state + NUMBERS_KEPT of `log_space`) numbers at most.
    """
    layout = chains.layout
    if not layout.num_tokens:
        return chains.log_start.new_zeros(len(layout.lengths))
    finished = torch.cat([step.finished for step in steps(chains)])
    totals = log_sum_exp(finished.index_select(0, layout.last_token))
    return layout.in_callers_order(torch.where(layout.length_at > 0, totals, 0))


class LogChart(NamedTuple):
    """Rows as in `semi_markov.Chart`."""

    entry: Float[Tensor, "token state"]
    finished: Float[Tensor, "token state"]


def chart_of(chains: LogSemiMarkov, taken: Sequence[Step]) -> LogChart:
    """The tables that segments are traced through."""
    none = [chains.log_start.new_zeros(0, len(chains.log_start))]
    return LogChart(torch.cat([step.entry for step in taken] or none), torch.cat([s.finished for s in taken] or none))


def log_survival(log_duration: Float[Tensor, "state duration"]) -> Float[Tensor, "state duration"]:
    """log p(duration >= d), at [state, d - 1]."""
    return log_duration.flip(-1).logcumsumexp(-1).flip(-1)


class Prefixes(NamedTuple):
    """What is known after each word, whether or not a segment ends there."""

    current: Float[Tensor, "token state"]  # log p(words so far, the state that emitted the last of them)
    following: Float[Tensor, "token state"]  # log p(words so far, the state that emits the word after them)


def prefixes(chains: LogSemiMarkov, product: LogProduct) -> Prefixes:
    """Sums over the ages of the segment under way: it lasts at least as long as it has, and ends or goes on.

    The sums of both tables over states are p(words so far): the sentence need not end there.
    """
    reaches, maps = log_survival(chains.log_duration).T[:, None], [product(link) for link in chains.log_links]
    found: list[tuple[Tensor, Tensor]] = []
    for _, under_way, finished in steps(chains, product):
        current = log_sum_exp(under_way + reaches[: len(under_way)], 0)
        found.append((current, following(under_way, through(maps, finished), reaches)))
    tables = zip(*found, strict=True) if found else [[chains.log_start.new_zeros(0, len(chains.log_start))]] * 2
    current, after = (torch.cat(list(blocks)) for blocks in tables)
    return Prefixes(current, after)


def following(
    under_way: Float[Tensor, "age row state"], entered: Float[Tensor, "row state"], reaches: Tensor
) -> Float[Tensor, "row state"]:
    """log p(words so far, state of the next word): a segment that goes on, or one that is entered."""
    going_on = under_way[: len(reaches) - 1] + reaches[1 : len(under_way) + 1]
    return log_sum_exp(torch.cat([going_on, entered[None]]), 0)
