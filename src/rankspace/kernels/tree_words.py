"""The first and the last step of a chart: words as children, and derivatives of children back to distinct words."""

from typing import no_type_check

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Int
from torch import Tensor

from rankspace.kernels.scales import FLOOR, LEAST_POWER, ZERO, power_of, power_of_two
from rankspace.kernels.tree_chart import Chart

ROWS = 8  # added at a time
BLOCK = 512


def lay_words(chart: Chart, words: Float[Tensor, "word both"], token_word: Int[Tensor, "token"]) -> None:
    """Copies the row of each token's word to the chart, times the weight of its span, raises what is too low, and fills
    the padding with zeros."""
    weights = chart.weights
    factor, weight_power = (words, chart.power) if weights is None else weights
    _lay_words[(chart.rows.num_tokens,)](
        words,
        token_word,
        chart.children,
        chart.exponent,
        chart.power,
        factor,
        weight_power,
        chart.rank,
        chart.padded,
        WEIGHTED=weights is not None,
        BLOCK=min(BLOCK, triton.next_power_of_2(chart.padded)),
    )


@triton.jit(do_not_specialize=["rank"])
@no_type_check
def _lay_words(
    words,
    token_word,
    children,
    exponent,
    power,
    factor,
    weight_power,
    rank,
    padded,
    WEIGHTED: tl.constexpr,
    BLOCK: tl.constexpr,
):
    token = tl.program_id(0)
    word = tl.load(token_word + token).to(tl.int64)
    weight = 1.0
    scale = 0
    if WEIGHTED:
        weight = tl.load(factor + token)
        scale = tl.load(weight_power + token)
    highest = tl.zeros([BLOCK], tl.float32)
    for first in range(0, 2 * rank, BLOCK):
        both = first + tl.arange(0, BLOCK)
        highest = tl.maximum(highest, tl.load(words + 2 * word * rank + both, mask=both < 2 * rank, other=0.0) * weight)
    largest = tl.max(highest, 0)
    divided = power_of(largest)
    for side in range(2):
        for first in range(0, padded, BLOCK):
            ranks = first + tl.arange(0, BLOCK)
            entries = tl.load(words + (2 * word + side) * rank + ranks, mask=ranks < rank, other=0.0)
            at = (2 * token.to(tl.int64) + side) * padded
            entries *= weight
            raised = tl.where(ranks < rank, tl.where(entries < FLOOR, FLOOR, entries), 0.0)  # a NaN stays one
            if WEIGHTED:
                raised = tl.where(weight != 0, raised, 0.0)
            tl.store(children + at + ranks, raised * power_of_two(-divided), mask=ranks < padded)
    # A word that nothing emits is not nothing but low: it may have been lost on the way here.
    tl.store(exponent + token, tl.where(weight == 0, ZERO, scale + divided))
    tl.store(power + token, divided)


def lay_words_by_torch(chart: Chart, words: Float[Tensor, "word both"], token_word: Int[Tensor, "token"]) -> None:
    """What `lay_words` must equal."""
    count = chart.rows.num_tokens
    found = words[token_word].view(count, 2, chart.rank)
    scale = torch.zeros_like(chart.power[:count])
    if chart.weights is not None:
        factor, scale = (each[:count] for each in chart.weights)
        found = found * factor[:, None, None]
    largest = found.flatten(1).amax(1)
    divided = torch.frexp(largest).exponent.where(largest > 0, LEAST_POWER.value).clamp(min=LEAST_POWER.value)
    found = found.clamp(min=FLOOR.value) * torch.exp2(-divided.float())[:, None, None]
    if chart.weights is not None:
        found = found * (factor != 0)[:, None, None]
    chart.children[:count] = torch.nn.functional.pad(found, (0, chart.padded - chart.rank))
    chart.exponent[:count] = scale + divided
    if chart.weights is not None:
        chart.exponent[:count][chart.weights.factor[:count] == 0] = ZERO.value
    chart.power[:count] = divided


def sum_by_word(
    chart: Chart,
    of_children: Float[Tensor, "span 2 padded"],
    token_word: Int[Tensor, "token"] | None,
    num_words: int,
    unit: Float[Tensor, ""],
) -> Float[Tensor, "word both"]:
    """Derivatives of single words, times `unit`, summed for each distinct word in the order of the tokens: no atomics,
    the same bits every time. Without `token_word` every token is a word of its own, and there is nothing to sort."""
    found = unit.new_empty(num_words, 2 * chart.rank, dtype=torch.float32)
    tokens = starts = torch.arange(num_words + 1, device=unit.device)
    if token_word is not None:
        ordered, tokens = torch.sort(token_word, stable=True)
        starts = torch.searchsorted(ordered, starts)
    block = min(BLOCK, triton.next_power_of_2(chart.padded))
    weights = chart.weights
    _sum_by_word[(num_words, triton.cdiv(chart.rank, block), 2)](
        of_children,
        chart.power,
        tokens,
        starts,
        found if weights is None else weights.factor,
        unit,
        found,
        chart.rank,
        chart.padded,
        WEIGHTED=weights is not None,
        ROWS=1 if token_word is None else ROWS,
        BLOCK=block,
    )
    return found


@triton.jit(do_not_specialize=["rank"])
@no_type_check
def _sum_by_word(
    of_children,
    power,
    tokens,
    starts,
    factor,
    unit,
    found,
    rank,
    padded,
    WEIGHTED: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    word = tl.program_id(0)
    ranks = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    side = tl.program_id(2)
    start, stop = tl.load(starts + word), tl.load(starts + word + 1)
    total = tl.zeros([ROWS, BLOCK], tl.float32)
    for first in range(start, stop, ROWS):
        some = first + tl.arange(0, ROWS)
        token = tl.load(tokens + some, mask=some < stop, other=0)
        mask = (some < stop)[:, None] & (ranks < padded)[None, :]
        rows = tl.load(of_children + ((2 * token + side) * padded)[:, None] + ranks[None, :], mask=mask, other=0.0)
        scale = power_of_two(-tl.load(power + token, mask=some < stop, other=0))
        if WEIGHTED:
            scale *= tl.load(factor + token, mask=some < stop, other=0.0)
        total += rows * scale[:, None]
    sums = tl.sum(total, 0) * tl.load(unit).to(tl.float32)
    tl.store(found + (2 * word.to(tl.int64) + side) * rank + ranks, sums, mask=ranks < rank)


def sum_by_word_by_torch(
    chart: Chart,
    of_children: Float[Tensor, "span 2 padded"],
    token_word: Int[Tensor, "token"] | None,
    num_words: int,
    unit: Float[Tensor, ""],
) -> Float[Tensor, "word both"]:
    """What `sum_by_word` must equal."""
    count = chart.rows.num_tokens
    token_word = torch.arange(count, device=unit.device) if token_word is None else token_word
    rows = of_children[:count, :, : chart.rank].flatten(1).float() * torch.exp2(-chart.power[:count, None].float())
    if chart.weights is not None:
        rows = rows * chart.weights.factor[:count, None]
    return torch.zeros_like(rows[:1]).repeat(num_words, 1).index_add(0, token_word, rows) * unit.to(rows.dtype)
