"""Whole sentences: Z = root . alpha, its logarithm, and the derivatives that the outside pass begins with."""

import math
from typing import NamedTuple, no_type_check

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Int
from torch import Tensor

from rankspace.kernels.interpreted import only_if
from rankspace.kernels.scales import DOUBTFUL, FLOOR, TOLERANCE, ZERO, power_of_two
from rankspace.kernels.tree_chart import Chart, Results
from rankspace.kernels.tree_splits import LOST

BLOCK = 1024
TIMES = 64
PLACES = 16


def tops(
    chart: Chart,
    root: Float[Tensor, "padded"],
    token_word: Int[Tensor, "token"],
    log_scale: Float[Tensor, "word"],
) -> Results:
    """Z and log Z of each sentence; below two words Z is zero. Lost are sentences whose Z is positive and below
    DOUBTFUL, those whose log Z low entries could make wrong by more than TOLERANCE, and those that the chart marked as
    LOST.

    `log_scale`, float64: what was taken out of the row of each word.
    """
    batch, device = chart.rows.num_sentences, root.device
    top = torch.empty(batch, device=device)
    log_z = torch.empty(batch, dtype=torch.float64, device=device)
    lost = torch.empty(batch, dtype=torch.bool, device=device)
    _tops[(batch,)](
        chart.alpha,
        root,
        chart.exponent,
        chart.power,
        chart.lost,
        token_word,
        log_scale,
        chart.rows.before,
        chart.rows.shift,
        chart.rows.length,
        chart.rows.sentence,
        top,
        log_z,
        lost.view(torch.uint8),
        chart.rows.num_tokens,
        chart.padded,
        LOG_TWO=math.log(2),
        LOST=LOST,
        BLOCK=min(BLOCK, triton.next_power_of_2(chart.padded)),
        TIMES=TIMES,
    )
    return Results(top, log_z, lost)


@triton.jit(do_not_specialize=["num_tokens"])
@no_type_check
def _tops(
    alpha,
    root,
    exponent,
    power,
    chart_lost,
    token_word,
    log_scale,
    before,
    shift,
    length,
    sentence,
    top,
    log_z,
    lost,
    num_tokens,
    padded,
    LOG_TWO: tl.constexpr,
    LOST: tl.constexpr,
    BLOCK: tl.constexpr,
    TIMES: tl.constexpr,
):
    place = tl.program_id(0)
    words = tl.load(length + place)
    wide = words > 1
    row = tl.load(shift + words, mask=wide, other=0) + tl.load(before + words, mask=wide, other=0) + place
    at = (row - num_tokens).to(tl.int64) * padded
    total = tl.zeros([BLOCK], tl.float32)
    of_low = tl.zeros([BLOCK], tl.float32)
    lowest = DOUBTFUL * power_of_two(-tl.load(power + row, mask=wide, other=0))
    for first in range(0, padded, BLOCK):
        ranks = first + tl.arange(0, BLOCK)
        mask = only_if(ranks < padded, wide)
        entries = tl.load(alpha + at + ranks, mask=mask, other=0.0).to(tl.float32)
        factors = tl.load(root + ranks, mask=mask, other=0.0)
        total += entries * factors
        of_low += tl.where(entries < lowest, factors, 0.0)
    z = tl.sum(total, 0)
    scale = tl.load(exponent + row, mask=wide, other=ZERO)

    scales = tl.zeros([TIMES], tl.float64)
    for first in range(0, words, TIMES):
        time = first + tl.arange(0, TIMES)
        token = tl.load(before + time + 1, mask=time < words, other=0) + place
        word = tl.load(token_word + token, mask=time < words, other=0)
        scales += tl.load(log_scale + word, mask=time < words, other=0.0)
    possible = wide & (scale != ZERO) & (z != 0)
    logarithm = tl.log(tl.where(possible, z, 1.0).to(tl.float64)) + scale.to(tl.float64) * LOG_TWO + tl.sum(scales, 0)
    doubtful = ((z >= DOUBTFUL) == 0) | (FLOOR / DOUBTFUL * lowest * tl.sum(of_low, 0) > TOLERANCE * z)
    low = wide & (scale != ZERO) & doubtful
    to = tl.load(sentence + place)
    tl.store(top + place, z)
    tl.store(log_z + to, tl.where(possible, logarithm, float("-inf")))
    tl.store(lost + to, (low | (tl.load(chart_lost + place) >= LOST)).to(tl.uint8))


def tops_by_torch(
    chart: Chart,
    root: Float[Tensor, "padded"],
    token_word: Int[Tensor, "token"],
    log_scale: Float[Tensor, "word"],
) -> Results:
    """What `tops` must equal, a sentence at a time."""
    rows = chart.rows
    top = torch.zeros(rows.num_sentences, device=root.device)
    log_z = torch.full_like(top, -math.inf, dtype=torch.float64)
    lost = torch.zeros_like(top, dtype=torch.bool)
    for place, (words, sentence) in enumerate(zip(rows.length.tolist(), rows.sentence.tolist(), strict=True)):
        lost[sentence] = int(chart.lost[place]) >= LOST
        if words < 2:
            continue
        row = int(rows.shift[words] + rows.before[words]) + place
        top[place] = chart.alpha[row - rows.num_tokens].float() @ root
        exponent = int(chart.exponent[row])
        if exponent == ZERO.value:
            continue
        tokens = rows.before[1 : words + 1].long() + place
        scales = log_scale[token_word[tokens]].sum() + exponent * math.log(2)
        log_z[sentence] = top[place].double().log() + scales
        lost[sentence] |= not bool(top[place] >= DOUBTFUL.value)
        entries = chart.alpha[row - rows.num_tokens].float()
        is_low = entries < DOUBTFUL.value * 2.0 ** -int(chart.power[row])
        floor = FLOOR.value * 2.0 ** -int(chart.power[row])
        lost[sentence] |= floor * root.where(is_low, 0).sum() > TOLERANCE.value * top[place]
    return Results(top, log_z, lost)


class TopSlopes(NamedTuple):
    """slope = unit * relative; derivatives are computed of the relative ones, which do not leave the range. The unit
    is a power of two: nothing is rounded when derivatives are multiplied with it."""

    unit: Float[Tensor, ""]
    relative: Float[Tensor, "batch"]  # [place]
    of_top: Float[Tensor, "batch"]  # [place]: relative / Z


def top_slopes(chart: Chart, results: Results, slopes: Float[Tensor, "batch"]) -> TopSlopes:
    """Derivatives of sum over sentences of slope * log Z; zero for lost and impossible sentences. One program."""
    batch = chart.rows.num_sentences
    relative, of_top = torch.empty_like(results.top), torch.empty_like(results.top)
    unit = torch.empty((), dtype=torch.float64, device=slopes.device)
    _top_slopes[(1,)](
        slopes.contiguous(),
        results.log_z,
        results.lost.view(torch.uint8),
        results.top,
        chart.rows.sentence,
        unit,
        relative,
        of_top,
        batch,
        BATCH=triton.next_power_of_2(batch),
    )
    return TopSlopes(unit, relative, of_top)


@triton.jit(do_not_specialize=["batch"])
@no_type_check
def _top_slopes(slopes, log_z, lost, top, sentence, unit, relative, of_top, batch, BATCH: tl.constexpr):
    place = tl.arange(0, BATCH)
    exists = place < batch
    at = tl.load(sentence + place, mask=exists, other=0)
    possible = exists & (tl.load(log_z + at, mask=exists, other=0.0) > float("-inf"))
    possible &= tl.load(lost + at, mask=exists, other=0) == 0
    slope = tl.where(possible, tl.load(slopes + at, mask=exists, other=0.0), 0.0)
    exponent = tl.max(tl.abs(slope), 0).to(tl.int64, bitcast=True) >> 52
    exponent = tl.where(exponent == 0, 1023, tl.minimum(exponent + 1, 2046))
    above = (exponent << 52).to(tl.float64, bitcast=True)  # the next power of two; one if there are no slopes
    share = (slope / above).to(tl.float32)
    z = tl.load(top + place, mask=exists, other=1.0)
    tl.store(unit, above)
    tl.store(relative + place, share, mask=exists)
    tl.store(of_top + place, tl.where(share != 0, share / tl.where(share != 0, z, 1.0), 0.0), mask=exists)


def top_slopes_by_torch(chart: Chart, results: Results, slopes: Float[Tensor, "batch"]) -> TopSlopes:
    """What `top_slopes` must equal."""
    slopes = slopes.where(~results.lost & (results.log_z > -math.inf), 0)
    largest = slopes.abs().amax()
    unit = torch.exp2(torch.frexp(largest).exponent.double()).where(largest > 0, 1)
    relative = (slopes / unit).float()[chart.rows.sentence.long()]
    return TopSlopes(unit, relative, (relative / results.top).where(relative != 0, 0))


def root_gradient(chart: Chart, slopes: TopSlopes) -> Float[Tensor, "rank"]:
    """sum over sentences of of_top * alpha of the whole, times the unit."""
    found = torch.empty_like(slopes.of_top[:1]).expand(chart.rank).contiguous()
    block = 64
    _root_gradient[(triton.cdiv(chart.rank, block),)](
        chart.alpha,
        slopes.of_top,
        slopes.unit,
        chart.rows.before,
        chart.rows.shift,
        chart.rows.length,
        found,
        chart.rows.num_sentences,
        chart.rows.num_tokens,
        chart.rank,
        chart.padded,
        PLACES=PLACES,
        BLOCK=block,
    )
    return found


@triton.jit(do_not_specialize=["batch", "num_tokens", "rank"])
@no_type_check
def _root_gradient(
    alpha,
    of_top,
    unit,
    before,
    shift,
    length,
    found,
    batch,
    num_tokens,
    rank,
    padded,
    PLACES: tl.constexpr,
    BLOCK: tl.constexpr,
):
    ranks = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros([PLACES, BLOCK], tl.float32)
    for first in range(0, batch, PLACES):
        place = first + tl.arange(0, PLACES)
        words = tl.load(length + place, mask=place < batch, other=0)
        wide = words > 1
        row = tl.load(shift + words, mask=wide, other=0) + tl.load(before + words, mask=wide, other=0) + place
        at = (row - num_tokens).to(tl.int64) * padded
        slope = tl.load(of_top + place, mask=wide, other=0.0)
        mask = wide[:, None] & (ranks < padded)[None, :]
        total += tl.load(alpha + at[:, None] + ranks[None, :], mask=mask, other=0.0) * slope[:, None]
    sums = tl.sum(total, 0) * tl.load(unit).to(tl.float32)
    tl.store(found + ranks, sums, mask=ranks < rank)


def root_gradient_by_torch(chart: Chart, slopes: TopSlopes) -> Float[Tensor, "rank"]:
    """What `root_gradient` must equal."""
    rows, total = chart.rows, torch.zeros(chart.padded, device=chart.alpha.device)
    for place, words in enumerate(rows.length.tolist()):
        if words > 1:
            row = int(rows.shift[words] + rows.before[words]) + place
            total += slopes.of_top[place] * chart.alpha[row - rows.num_tokens].float()
    return total[: chart.rank] * slopes.unit.float()
