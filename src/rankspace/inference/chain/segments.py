"""Segments of a semi-Markov chain given its sentence: the best, or exact samples.

Both walk backwards through the tables of the recursion and choose, at the end of a segment, its duration, and at its
beginning, the state before; the one takes the largest weight, the other draws in proportion to weights.
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from rankspace.inference.chain.log_space import through
from rankspace.inference.chain.paths import Choose
from rankspace.inference.chain.semi_markov_log import LogChart, LogSemiMarkov
from rankspace.inference.logarithms import LogProduct


class Segmentation(NamedTuple):
    """Segments as words see them; beyond a sentence's end nothing is said."""

    states: Int[Tensor, "walk length"]  # the state that emits each word
    ends: Bool[Tensor, "walk length"]  # whether a segment ends with it
    log_joint: Float[Tensor, "walk"]  # log p(words, segments)


def trace(
    chains: LogSemiMarkov, chart: LogChart, places: Int[Tensor, "walk"], choose: Choose, product: LogProduct
) -> Segmentation:
    """One walk for each of some (possible, not empty) sentences, given by place; as many rounds as there are segments.

    A round costs O(D + state) for each walk. `product` sums or maximises over what a factored link passes through.
    """
    layout = chains.layout
    last_states = torch.zeros(len(places), layout.longest, dtype=torch.int64, device=layout.device)
    ends = torch.zeros_like(last_states, dtype=torch.bool)
    log_joint = chains.log_start.new_zeros(len(places))
    walks = torch.arange(len(places), device=layout.device)
    last = layout.length_at[places] - 1
    states = choose(chart.finished[layout.row(places, last, 1)])
    while len(walks):
        last_states[walks, last], ends[walks, last] = states, True
        entered, own = _by_age(chains, chart, places, last, states)
        age = choose(entered + own)
        log_joint[walks] += own.gather(1, age[:, None])[:, 0]
        begins = last == age
        log_joint[walks[begins]] += chains.log_start[states[begins]]
        walks, places, last, states = (x[~begins] for x in (walks, places, last - age - 1, states))
        if len(walks):
            moved = _into(chains, states, product)
            states = choose(chart.finished[layout.row(places, last, 1)] + moved)
            log_joint[walks] += moved.gather(1, states[:, None])[:, 0]
    return Segmentation(last_states.gather(1, _next(ends)), ends, log_joint)


def _next(ends: Bool[Tensor, "walk length"]) -> Int[Tensor, "walk length"]:
    """Where the segment of each word ends; somewhere, for what lies beyond the last."""
    beyond = ends.shape[1] - 1
    times = torch.arange(beyond + 1, device=ends.device).expand(ends.shape)
    return torch.where(ends, times, beyond).flip(1).cummin(1).values.flip(1)


def _by_age(
    chains: LogSemiMarkov, chart: LogChart, places: Tensor, last: Tensor, states: Tensor
) -> tuple[Float[Tensor, "walk age"], Float[Tensor, "walk age"]]:
    """Segments of one state that end at a word, by how many words they have before it: log-weights of entering them
    (-inf if there are not so many words), and their own."""
    ages = torch.arange(chains.log_duration.shape[1], device=last.device)
    times = last[:, None] - ages
    rows = chains.layout.row(places[:, None], times.clamp(min=0), 1)
    own = chains.log_words[chains.index[rows], states[:, None]].cumsum(1) + chains.log_duration[states]
    return chart.entry[rows, states[:, None]].masked_fill(times < 0, -torch.inf), own


def _into(chains: LogSemiMarkov, states: Int[Tensor, "walk"], product: LogProduct) -> Float[Tensor, "walk state"]:
    """Rows of the link's matrix: what each state takes of each state before."""
    last, *others = reversed(chains.log_links)
    return through([product(link.T) for link in others], last[states])
