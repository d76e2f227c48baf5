"""Semi-Markov chains: a state, once entered, draws a duration of 1 .. D words, emits them, and moves on by a link.

Time lies between words: `entry` at time t holds the weight of entering each state there, `finished` at time t that of a
segment ending there,

    entry_0 = start,   entry_t = link(finished_t),   Z = sum of finished_n,
    finished_t[z] = sum_{d=1..D} duration[z, d] * entry_{t-d}[z] * (product of z's emissions of the last d words).

Segments under way are kept by age, so a step costs O(D state) and one link, and a sentence O(n D state) and n links.
Rows of words follow `Ragged`: row (t, place) holds the entry before word t and the finished segments after it.

**Scales.** A row of `entry` has its largest number in [1/2, 1) and a power of two; a segment under way keeps the scale
of its entry, and emissions are at most one; `finished_t` has the largest scale b_t among the entries it is a sum of.
What arithmetic drops on the way to `finished_t` and through the link is then at most about the smallest normal number
`tiny` at scale b_t. It is harmless if every number that comes out of the link, or Z at the end, is at least lowest =
tiny / eps at that same scale: then each is off by rounding alone, and as all terms are positive so is everything after.
Otherwise the sentence is *lost*, unless the low numbers are true zeros, which the same recursion over zeros and ones
decides. In float32 there is room for 1e-31 over D words.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from rankspace.inference.chain.forward import Recursion, scaled_words, steps
from rankspace.inference.ragged import Ragged
from rankspace.inference.scaled import lowest, power_of_two


@dataclass(frozen=True)
class SemiMarkov(Recursion):
    """One semi-Markov chain for each sentence: a `Recursion` over states with durations."""

    log_duration: Float[Tensor, "size duration"]

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return (self.log_duration, *super().tensors)

    def like(self, tensors: tuple[Tensor, ...]) -> "SemiMarkov":
        chains = super().like(tensors[1:])
        return SemiMarkov(**{**vars(chains), "log_duration": tensors[0]})


Support = Callable[[], Recursion | None]  # of semi-Markov chains


class Chart(NamedTuple):
    """What the forward pass leaves; row (t, place) stands before word t for entries and after it for segments."""

    entry: Float[Tensor, "token state"]
    entry_exponent: Int[Tensor, "token"]
    finished: Float[Tensor, "token state"]
    finished_exponent: Int[Tensor, "token"]  # b


class Weights(NamedTuple):
    """The same numbers, linear. Emissions have largest entry one, or are zero for a word that nobody emits."""

    start: Float[Tensor, "state"]
    duration: Float[Tensor, "duration state"]
    words: Float[Tensor, "word state"]
    log_scale: Float[Tensor, "word"]  # log of what emissions were divided by, float64


def linear(chains: SemiMarkov) -> Weights:
    words, log_scale = scaled_words(chains.log_words)
    return Weights(chains.start, chains.log_duration.T.exp().contiguous(), words, log_scale)


def forward(chains: SemiMarkov, support: bool = False) -> Chart:
    """The recursion, step by step; keeps two tables [token, state].

    `support`: over zeros and ones, where all that exceeds one is cut back to it.
    """
    layout, weights = chains.layout, linear(chains)
    settle = _cut if support else _rescaled
    emitted = weights.words.index_select(0, chains.index)
    chart = _empty_chart(emitted)
    entry, scale = settle(weights.start.expand(layout.alive[0], -1))
    under_way, scales = entry.new_zeros(0, *entry.shape), scale.new_zeros(0, layout.alive[0])
    younger = len(weights.duration) - 1
    for time, (word, *rows) in enumerate(steps(layout, emitted, *chart)):
        count, going_on = len(word), layout.alive[time + 2]
        under_way = torch.cat([entry[None, :count], under_way[:younger, :count]]).mul_(word)
        scales = torch.cat([scale[None, :count], scales[:younger, :count]])
        highest = scales.amax(0)
        finished = _finished(under_way, scales - highest, weights.duration)
        for table, values in zip(rows, (entry[:count], scale[:count], finished, highest), strict=True):
            table.copy_(values)
        entry, shift = settle(chains.link.apply(finished[:going_on]))
        scale = highest[:going_on] + shift
    return chart


def _empty_chart(emitted: Float[Tensor, "token state"]) -> Chart:
    exponent = torch.empty(len(emitted), dtype=torch.int32, device=emitted.device)
    return Chart(torch.empty_like(emitted), exponent, torch.empty_like(emitted), torch.empty_like(exponent))


def _finished(
    under_way: Float[Tensor, "age row state"], scales: Int[Tensor, "age row"], duration: Float[Tensor, "duration state"]
) -> Float[Tensor, "row state"]:
    """Segments that end here."""
    relative = power_of_two(scales, under_way.dtype)[:, :, None]
    return (under_way * relative).mul_(duration[: len(scales), None]).sum(0)


def _rescaled(raw: Float[Tensor, "row state"]) -> tuple[Float[Tensor, "row state"], Int[Tensor, "row"]]:
    """Rows with their largest entry in [1/2, 1), and their powers of two; nothing at all stays nothing."""
    top = raw.amax(1, keepdim=True).clamp_(min=lowest(raw.dtype))
    fraction, exponent = torch.frexp(top)
    return raw * (fraction / top), exponent[:, 0]  # a power of two: fraction and top have the same digits


def _cut(raw: Float[Tensor, "row state"]) -> tuple[Float[Tensor, "row state"], Int[Tensor, "row"]]:
    return (raw > 0).to(raw.dtype), torch.zeros(len(raw), dtype=torch.int32, device=raw.device)


def log_totals(chains: SemiMarkov, chart: Chart) -> Float[Tensor, "batch"]:
    """log Z in float64, by place; -inf for the impossible, zero for an empty sentence."""
    layout = chains.layout
    if not layout.num_tokens:
        return torch.zeros(len(layout.lengths), dtype=torch.float64, device=layout.device)
    last = layout.last_token
    log_z = chart.finished[last].sum(-1, dtype=torch.float64).log()
    log_z = log_z + chart.finished_exponent[last].double() * math.log(2)
    scales = layout.unpack(scaled_words(chains.log_words)[1][chains.index]).sum(1)[layout.sentence_at]
    return torch.where(layout.length_at > 0, log_z + scales, 0)


def lost_sentences(chains: SemiMarkov, chart: Chart, support: Support) -> Bool[Tensor, "batch"]:
    """Which sentences, by place, lost more than rounding; see the top of the file.

    `support` gives the chains with ones for all that is positive (zeros for its logarithms), or None if nothing is
    impossible; it is asked only if there are low numbers.
    """
    layout = chains.layout
    if not layout.num_tokens:
        return torch.zeros(len(layout.lengths), dtype=torch.bool, device=layout.device)
    low, low_total = _low_entries(chart, layout), _low_totals(chart, layout)
    concerned = low_total.clone()
    concerned[layout.token_place[low.any(-1)]] = True
    ones = support() if bool(concerned.any()) else None
    if ones is None:
        return concerned
    part = ones.restricted(concerned)
    assert isinstance(part, SemiMarkov)
    possible = forward(part, support=True)
    wrong = (low[concerned[layout.token_place]] & (possible.entry > 0)).any(-1)
    found = low_total[concerned] & (possible.finished[part.layout.last_token] > 0).any(-1)
    found[part.layout.token_place[wrong]] = True
    return concerned.masked_scatter(concerned, found)


def _low_entries(chart: Chart, layout: Ragged) -> Bool[Tensor, "token state"]:
    """What came out of the link so low that it may be off by more than rounding, or is zero."""
    scale = torch.zeros_like(chart.finished_exponent)  # that of the start
    scale[layout.alive[1] :] = chart.finished_exponent[layout.previous]
    relative = power_of_two(chart.entry_exponent - scale, chart.entry.dtype)
    return chart.entry * relative[:, None] < lowest(chart.entry.dtype)


def _low_totals(chart: Chart, layout: Ragged) -> Bool[Tensor, "batch"]:
    total = chart.finished[layout.last_token].sum(-1)
    return (total < lowest(total.dtype)) & (layout.length_at > 0)


def earlier(layout: Ragged, steps: int) -> Int[Tensor, "token"]:
    """[row] -> row of the same sentence's word some steps before; 0 where there is none."""
    time = layout.token_time - steps
    return layout.row(layout.token_place, time.clamp(min=0), 1).masked_fill(time < 0, 0)
