"""Messages of semi-Markov chains in logarithms, exact in every entry: what queries on them are answered from."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float, Int
from torch import Tensor

from rankspace.inference.chain.log_space import through
from rankspace.inference.chain.messages import Messages, at_the_end
from rankspace.inference.chain.semi_markov_log import LogChart, LogSemiMarkov, Prefixes, Step, chart_of, prefixes, steps
from rankspace.inference.logarithms import LogProduct, exact_log_product, log_sum_exp


@dataclass(frozen=True)
class SegmentMessages(Messages):
    """Of chains in float64, without derivatives. `forward` counts segments that a sentence may yet go on with."""

    recursion: LogSemiMarkov

    @cached_property
    def steps(self) -> list[Step]:
        return list(steps(self.recursion, exact_log_product))

    @cached_property
    def chart(self) -> LogChart:
        return chart_of(self.recursion, self.steps)

    @cached_property
    def reading(self) -> Prefixes:
        return prefixes(self.recursion, exact_log_product)

    @cached_property
    def forward(self) -> Float[Tensor, "token size"]:
        """log p(words up to t, the state that emits word t)."""
        return self.reading.current

    @cached_property
    def log_z(self) -> Float[Tensor, "batch"]:
        return at_the_end(self.recursion.layout, log_sum_exp(self.chart.finished))

    @cached_property
    def occupancy(self) -> Float[Tensor, "token size"]:
        """log p(sentence, the state that emits word t)."""
        return occupancy(self.recursion, self.steps, exact_log_product)

    def posterior(self, rows: Int[Tensor, "row"]) -> Float[Tensor, "row size"]:
        """p(the state that emits word t | sentence) at some words; zeros in impossible sentences."""
        return self.normalised(self.occupancy[rows], rows)


def occupancy(chains: LogSemiMarkov, taken: Sequence[Step], product: LogProduct) -> Float[Tensor, "token size"]:
    """The recursion in reverse, each age of each step meeting what comes after it. Keeps D numbers for each entry."""
    layout, maps = chains.layout, [product(link.T) for link in reversed(chains.log_links)]
    durations = chains.log_duration.T[:, None]
    after = chains.log_start.new_zeros(1, 0, len(chains.log_start))
    blocks: list[Tensor] = []  # from the last step to the first
    for time in range(layout.longest - 1, -1, -1):
        under_way, going_on = taken[time].under_way, after.shape[1]
        ending = after.new_zeros(under_way.shape[1] - going_on, after.shape[2])
        leaving = torch.cat([through(maps, after[0]), ending]) if going_on else ending
        by_age = leaving + durations[: len(under_way)]
        part = by_age[: len(after) - 1, :going_on]
        part.copy_(torch.logaddexp(part, after[1:]))
        blocks.append(log_sum_exp(under_way + by_age, 0))
        after = by_age + chains.words_at(time)
    return torch.cat(blocks[::-1]) if blocks else after.new_zeros(0, after.shape[2])
