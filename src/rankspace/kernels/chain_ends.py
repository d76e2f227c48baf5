"""The first and the last of a batch of chains: the vectors of its words, and Z and log Z of its sentences."""

import math
from typing import NamedTuple, no_type_check

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

from rankspace.kernels.chain_table import DOUBTFUL, FLOOR, Chain, Ends
from rankspace.kernels.interpreted import only_if
from rankspace.kernels.scales import LEAST_POWER, TOLERANCE, power_of_two

BLOCK = 2048
TIMES = 64


def lay_words(chain: Chain, log_words: Float[Tensor, "token rank"]) -> None:
    """Fills `words` and `log_scale`. Reads and writes 4r bytes a token."""
    rank = log_words.shape[1]
    _lay_words[(len(log_words),)](
        log_words.contiguous(),
        chain.words,
        chain.log_scale,
        rank,
        BLOCK=min(BLOCK, triton.next_power_of_2(rank)),
    )


@triton.jit
@no_type_check
def _lay_words(log_words, words, log_scale, rank, BLOCK: tl.constexpr):
    token = tl.program_id(0)
    at = token.to(tl.int64) * rank
    largest = tl.full([BLOCK], float("-inf"), tl.float32)
    broken = tl.zeros([BLOCK], tl.int32)
    for first in range(0, rank, BLOCK):
        ranks = first + tl.arange(0, BLOCK)
        entries = tl.load(log_words + at + ranks, mask=ranks < rank, other=float("-inf"))
        largest = tl.maximum(largest, entries)
        broken |= (entries != entries).to(tl.int32)
    top = tl.where(tl.max(broken, 0) > 0, float("nan"), tl.max(largest, 0))  # a maximum may leave NaN out
    tl.store(log_scale + token, top.to(tl.float64))
    top = tl.where(top == float("-inf"), 0.0, top)
    for first in range(0, rank, BLOCK):
        ranks = first + tl.arange(0, BLOCK)
        entries = tl.load(log_words + at + ranks, mask=ranks < rank, other=float("-inf"))
        tl.store(words + at + ranks, tl.exp(entries - top), mask=ranks < rank)


def lay_words_by_torch(chain: Chain, log_words: Float[Tensor, "token rank"]) -> None:
    """What `lay_words` must equal."""
    top = log_words.amax(1)
    chain.log_scale.copy_(top)
    chain.words.copy_((log_words - top.where(top != -math.inf, 0)[:, None]).exp())


class Predictions(NamedTuple):
    """What outputs say of each token."""

    smallest: Float[Tensor, "token"]  # of those above zero: a start may leave ranks out; or infinity
    total: Float[Tensor, "token"]  # sum(output)
    log_share: Float[Tensor, "token"]  # log of sum(output * word) / sum(output), float64; -inf for nothing


def predictions(chain: Chain) -> Predictions:
    """One pass over outputs and words: 8r bytes a token."""
    count, rank = chain.rows.num_tokens, len(chain.start)
    found = Predictions(chain.words.new_empty(count), chain.words.new_empty(count), chain.log_scale.new_empty(count))
    if count:
        _predictions[(count,)](
            chain.outputs,
            chain.words,
            *found,
            rank,
            BLOCK=min(BLOCK, triton.next_power_of_2(rank)),
        )
    return found


@triton.jit
@no_type_check
def _predictions(outputs, words, smallest, whole, log_share, rank, BLOCK: tl.constexpr):
    token = tl.program_id(0)
    at = token.to(tl.int64) * rank
    least = tl.full([BLOCK], float("inf"), tl.float32)
    total = tl.zeros([BLOCK], tl.float64)
    share = tl.zeros([BLOCK], tl.float64)
    for first in range(0, rank, BLOCK):
        ranks = first + tl.arange(0, BLOCK)
        exists = ranks < rank
        output = tl.load(outputs + at + ranks, mask=exists, other=0.0)
        least = tl.minimum(least, tl.where(output == 0, float("inf"), output))
        total += output.to(tl.float64)
        share += (output * tl.load(words + at + ranks, mask=exists, other=0.0)).to(tl.float64)
    sums, part = tl.sum(total, 0), tl.sum(share, 0)
    possible = part > 0
    logarithm = tl.log(tl.where(possible, part, 1.0)) - tl.log(tl.where(possible, sums, 1.0))
    tl.store(smallest + token, tl.min(least, 0))
    tl.store(whole + token, sums.to(tl.float32))
    tl.store(log_share + token, tl.where(possible, logarithm, float("-inf")))


def predictions_by_torch(chain: Chain) -> Predictions:
    """What `predictions` must equal."""
    smallest = chain.outputs.where(chain.outputs != 0, math.inf).amin(1)
    share = (chain.outputs * chain.words).double().sum(1)
    total = chain.outputs.double().sum(1)
    return Predictions(smallest, total.float(), (share / total).log().where(share > 0, -math.inf))


def ends(chain: Chain) -> Ends:
    """Z, log Z, and which sentences have outputs so low that they must not matter (`chain_doubt` tells if they do), or
    are lost as they are: with so low a Z, with a word that nothing was left for, or with one whose outputs sum to so
    little that what was raised is more than rounding of it. One program a sentence.

    log Z is the sum over words of the logarithm of what their outputs predict of them, sum(output * word) over
    sum(output). That of all words of the vocabulary is one as computed, however vectors and links were rounded; where
    nothing is rounded the sums telescope to Z.

    A sentence with a word that no rank can have is impossible and neither low nor lost, one with a NaN is lost, and an
    empty one has log Z = 0.
    """
    batch, start = chain.rows.num_sentences, chain.start
    found = Ends(
        start.new_empty(batch, dtype=torch.float64),
        start.new_empty(batch, dtype=torch.bool),
        start.new_empty(batch, dtype=torch.float64),
        start.new_empty(batch, dtype=torch.bool),
    )
    _ends[(batch,)](
        chain.outputs,
        chain.words,
        chain.log_scale,
        chain.top,
        *predictions(chain),
        chain.rows.before,
        chain.rows.length,
        chain.rows.sentence,
        found.total,
        found.low.view(torch.uint8),
        found.log_z,
        found.lost.view(torch.uint8),
        len(start),
        BLOCK=min(BLOCK, triton.next_power_of_2(len(start))),
        TIMES=TIMES,
    )
    return found


@triton.jit
@no_type_check
def _ends(
    outputs,
    words,
    log_scale,
    top,
    smallest,
    whole,
    log_share,
    before,
    length,
    sentence,
    total,
    low,
    log_z,
    lost,
    rank,
    BLOCK: tl.constexpr,
    TIMES: tl.constexpr,
):
    place = tl.program_id(0)
    num_words = tl.load(length + place)
    at = (tl.load(before + num_words) + place).to(tl.int64) * rank
    sums = tl.zeros([BLOCK], tl.float64)
    for first in range(0, rank, BLOCK):
        ranks = first + tl.arange(0, BLOCK)
        mask = only_if(ranks < rank, num_words > 0)
        vector = tl.load(outputs + at + ranks, mask=mask, other=0.0) * tl.load(words + at + ranks, mask=mask, other=0.0)
        sums += vector.to(tl.float64)
    z = tl.sum(sums, 0)

    logs = tl.zeros([TIMES], tl.float64)
    shares = tl.zeros([TIMES], tl.float64)
    doubtful = tl.zeros([TIMES], tl.int32)
    wrong = tl.zeros([TIMES], tl.int32)
    for first in range(0, num_words, TIMES):
        time = first + tl.arange(0, TIMES)
        lives = time < num_words
        row = tl.load(before + time + 1, mask=lives, other=0) + place
        logs += tl.load(log_scale + row, mask=lives, other=0.0)
        shares += tl.load(log_share + row, mask=lives, other=0.0)
        later = lives & (time > 0)
        row_before = tl.load(before + time, mask=later, other=0) + place
        power = tl.maximum((tl.load(top + row_before, mask=later, other=126 << 23) >> 23) - 126, LEAST_POWER)
        scale = power_of_two(tl.maximum(-power, 0))
        is_low = lives & (tl.load(smallest + row, mask=lives, other=0.0) < scale * DOUBTFUL)
        little = (tl.load(whole + row, mask=lives, other=0.0) * TOLERANCE >= scale * (rank * FLOOR)) == 0
        doubtful |= is_low.to(tl.int32)
        wrong |= (is_low & little).to(tl.int32)
    taken_out, share = tl.sum(logs, 0), tl.sum(shares, 0)
    possible = (z > 0) & (taken_out > float("-inf"))
    logarithm = tl.where(possible, share + taken_out, float("-inf"))
    counts = (num_words > 0) & ((taken_out == float("-inf")) == 0)
    is_lost = ((z >= DOUBTFUL) == 0) | ((share > float("-inf")) == 0) | (tl.max(wrong, 0) > 0)
    to = tl.load(sentence + place)
    tl.store(total + place, z)
    tl.store(low + place, (counts & (tl.max(doubtful, 0) > 0)).to(tl.uint8))
    tl.store(log_z + to, tl.where(num_words > 0, logarithm, 0.0))
    tl.store(lost + to, (counts & is_lost).to(tl.uint8))


def ends_by_torch(chain: Chain) -> Ends:
    """What `ends` must equal."""
    rows, (smallest, whole, log_share) = chain.rows, predictions_by_torch(chain)
    totals, low, log_z, lost = [], [], [], []
    for place, num_words in enumerate(rows.length.tolist()):
        tokens = [rows.first(time) + place for time in range(num_words)]
        z = float((chain.outputs[tokens[-1]] * chain.words[tokens[-1]]).double().sum()) if tokens else 0.0
        powers = ((chain.top[tokens] >> 23) - 126).clamp(min=int(LEAST_POWER))[:-1] if tokens else chain.top[:0]
        scale = float(chain.log_scale[tokens].sum())
        least = torch.ones(len(tokens))
        least[1:] = torch.ldexp(least[1:], -powers.cpu()).clamp(min=1)
        is_low = smallest[tokens].cpu() < DOUBTFUL.value * least
        little = ~(whole[tokens].cpu() * TOLERANCE.value >= len(chain.start) * FLOOR.value * least)
        share = float(log_share[tokens].sum())
        is_lost = not z >= DOUBTFUL.value or not share > -math.inf or bool((is_low & little).any())
        possible = z > 0 and scale > -math.inf
        totals.append(z)
        low.append(bool(tokens) and scale != -math.inf and bool(is_low.any()))
        log_z.append(share + scale if possible or not tokens else -math.inf)
        lost.append(bool(tokens) and scale != -math.inf and is_lost)
    in_order = torch.argsort(rows.sentence)
    numbers = [chain.start.new_tensor(each, dtype=torch.float64) for each in (totals, log_z)]
    marks = [torch.tensor(each, device=chain.start.device) for each in (low, lost)]
    return Ends(numbers[0], marks[0], numbers[1][in_order], marks[1][in_order])
