"""The forward algorithm of a chain in scaled linear space: step by step over all sentences of a ragged batch.

    v_1 = start * e_1        v_t = (link v_{t-1}) * e_t        Z = sum of the entries of v_n

The vector of each step is a mantissa with a largest entry in [1/2, 1) and a power of two; what can be done for all
words at once is done outside the loop over steps.
"""

import math
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from rankspace.inference.links import Link
from rankspace.inference.ragged import Ragged, ragged
from rankspace.inference.scaled import lowest


@dataclass(frozen=True)
class Recursion:
    """One chain for each sentence. Its numbers are linear, but for the words, whose scales differ too much."""

    start: Float[Tensor, "size"]
    log_words: Float[Tensor, "word size"]  # log e, for each distinct word
    link: Link  # size -> size
    index: Int[Tensor, "token"]  # the word of each token, in the order of the layout's steps
    layout: Ragged

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """What the result depends on, differentiably."""
        return (self.start, self.log_words, *self.link.tensors)

    def like(self, tensors: tuple[Tensor, ...]) -> "Recursion":
        """The same chains with other numbers."""
        start, log_words, *others = tensors
        return replace(self, start=start, log_words=log_words, link=self.link.like(tuple(others)))

    def restricted(self, chosen: Bool[Tensor, "batch"]) -> "Recursion":
        """The chains of some sentences, given by place. Their tokens keep their order."""
        lengths = tuple(self.layout.length_at[chosen].tolist())
        tokens = chosen[self.layout.token_place]
        link, layout = self.link.at(tokens[self.layout.alive[1] :]), ragged(lengths, self.layout.device)
        return replace(self, index=self.index[tokens], link=link, layout=layout)

    def link_into(self, time: int) -> Link:
        """The link into the words of a time, which is not the first."""
        rows, first = self.layout.step(time), self.layout.alive[1]
        return self.link.at(slice(rows.start - first, rows.stop - first))


@dataclass(frozen=True)
class Chart:
    """What the forward pass keeps. v = outputs * words[index] * powers."""

    outputs: Float[Tensor, "token size"]  # start, then link v_{t-1}: before the word
    powers: Float[Tensor, "token 1"]  # 2^-k that brings the largest entry of v into [1/2, 1)
    words: Float[Tensor, "word size"]  # e over its largest entry
    log_scale: Float[Tensor, "word"]  # log of that entry, float64
    totals: Float[Tensor, "batch"]  # sum of v_n by place, float64; 1 for an empty sentence

    def vectors(self, recursion: Recursion) -> Float[Tensor, "token size"]:
        return (self.outputs * self.words.index_select(0, recursion.index)).mul_(self.powers)


def run_forward(recursion: Recursion) -> Chart:
    """|tokens| times the cost of the link; keeps |tokens| * size numbers."""
    words, log_scale = scaled_words(recursion.log_words)
    emitted = words.index_select(0, recursion.index)
    outputs, powers = torch.empty_like(emitted), emitted.new_empty(len(emitted), 1)
    least = lowest(emitted.dtype)
    vectors = recursion.start
    for time, (output, word, power) in enumerate(steps(recursion.layout, outputs, emitted, powers)):
        output.copy_(recursion.link_into(time).apply(vectors[: len(output)]) if time else vectors)
        vectors = output * word
        top = vectors.amax(1, keepdim=True).clamp_(min=least)  # nothing at all stays nothing
        torch.div(torch.frexp(top)[0], top, out=power)  # exact: both have the same digits
        vectors.mul_(power)
    totals = _totals(recursion, outputs, emitted, powers)
    return Chart(outputs, powers, words, log_scale, totals)


def scaled_words(log_words: Float[Tensor, "word size"]) -> tuple[Float[Tensor, "word size"], Float[Tensor, "word"]]:
    """Word vectors with largest entry one, and the logarithms of what was divided out; zeros have scale one."""
    if log_words.numel() == 0:
        return log_words, log_words.new_zeros(len(log_words), dtype=torch.float64)
    top = log_words.amax(1)
    top = torch.where(top == -math.inf, 0, top)
    return (log_words - top[:, None]).exp_(), top.double()


def steps(layout: Ragged, *tables: Tensor) -> list[tuple[Tensor, ...]]:
    """The rows of each step, of several tables side by side."""
    counts = list(layout.alive[1 : layout.longest + 1])
    return list(zip(*(table.split(counts) for table in tables), strict=True)) if counts else []


def _totals(recursion: Recursion, outputs: Tensor, emitted: Tensor, powers: Tensor) -> Float[Tensor, "batch"]:
    layout = recursion.layout
    if not layout.num_tokens:
        return torch.ones(len(layout.lengths), dtype=torch.float64, device=layout.device)
    last = layout.last_token
    ends = outputs[last] * emitted[last] * powers[last]
    return torch.where(layout.length_at > 0, ends.sum(1, dtype=torch.float64), 1.0)


def log_scales(recursion: Recursion, chart: Chart) -> Float[Tensor, "token"]:
    """What each step took out of its vector, as a logarithm in float64."""
    exponent = 1 - torch.frexp(chart.powers[:, 0])[1]
    return exponent.double() * math.log(2) + chart.log_scale.index_select(0, recursion.index)


def log_totals(recursion: Recursion, chart: Chart) -> Float[Tensor, "batch"]:
    """log Z in float64, in the order of the caller; -inf for the impossible."""
    scales = recursion.layout.unpack(log_scales(recursion, chart)).sum(1)
    return recursion.layout.in_callers_order(chart.totals.log()) + scales
