"""How much of a sentence's probability passes through outputs that are too low to be trusted.

As for trees (`tree_doubt`): low outputs are raised to a floor that no output is wrong by more than, so that

    Z(computed) - Z(true) <= floor * sum over low outputs of dZ/d output

Derivatives are those of the backward pass, one for each output: one more look at both proves that nothing was lost, or
shows where. The floor of a step is FLOOR times 2^-k of the vector before it, but FLOOR at least; derivatives are with
respect to what 2^-k multiplies.
"""

from typing import no_type_check

import torch
import triton
import triton.language as tl
from jaxtyping import Bool, Float, Int
from torch import Tensor

from rankspace.kernels.chain_steps import scale_of
from rankspace.kernels.chain_table import DOUBTFUL, FLOOR, Chain
from rankspace.kernels.scales import LEAST_POWER

BLOCK = 1024


def doubts(
    chain: Chain,
    of_sums: Float[Tensor, "token rank"],
    low: Bool[Tensor, "batch"],
    places: Int[Tensor, "token"],
    previous: Int[Tensor, "later"],
) -> Float[Tensor, "batch"]:
    """[place]: the largest sum over the low outputs of a word of floor * derivative, in magnitude. Of sentences that
    are not `low` [place], which have none, nothing is read. `places` are those of all words, `previous` the rows of the
    words before all but the first."""
    found = chain.words.new_empty(chain.rows.num_tokens)
    if len(found):
        _doubts[(len(found),)](
            chain.outputs,
            of_sums,
            chain.top,
            low.view(torch.uint8),
            places,
            previous,
            found,
            chain.rows.alive(0),
            len(chain.start),
            BLOCK=min(BLOCK, triton.next_power_of_2(len(chain.start))),
        )
    return _largest(found, chain, places)


@triton.jit(do_not_specialize=["num_first"])
@no_type_check
def _doubts(outputs, of_sums, top, low, places, previous, found, num_first, rank, BLOCK: tl.constexpr):
    token = tl.program_id(0)
    if tl.load(low + tl.load(places + token)) == 0:
        tl.store(found + token, 0.0)
        return
    later = token >= num_first
    before = tl.load(previous + token - num_first, mask=later, other=0)
    scale = scale_of(tl.load(top + before, mask=later, other=126 << 23))
    largest = tl.maximum(scale, 1.0)
    lowest = largest * DOUBTFUL
    total = tl.zeros([BLOCK], tl.float32)
    at = token.to(tl.int64) * rank
    for first in range(0, rank, BLOCK):
        ranks = first + tl.arange(0, BLOCK)
        output = tl.load(outputs + at + ranks, mask=ranks < rank, other=0.0)
        slope = tl.load(of_sums + at + ranks, mask=ranks < rank, other=0.0).to(tl.float32)
        total += tl.where((output < lowest) & (output > 0), tl.abs(slope), 0.0)
    tl.store(found + token, tl.sum(total, 0) * (largest / scale * FLOOR))


def doubts_by_torch(
    chain: Chain,
    of_sums: Float[Tensor, "token rank"],
    low: Bool[Tensor, "batch"],
    places: Int[Tensor, "token"],
    previous: Int[Tensor, "later"],
) -> Float[Tensor, "batch"]:
    """What `doubts` must equal."""
    scale = torch.ones_like(chain.top, dtype=torch.float32)
    power = ((chain.top[previous] >> 23) - 126).clamp(min=int(LEAST_POWER))
    scale[chain.rows.alive(0) :] = torch.ldexp(torch.ones_like(power, dtype=torch.float32), -power)
    largest = scale.clamp(min=1)
    is_low = (chain.outputs < DOUBTFUL.value * largest[:, None]) & (chain.outputs > 0)
    found = of_sums.float().abs().where(is_low, 0).sum(1) * (largest / scale * FLOOR.value)
    return _largest(found.where(low[places], 0), chain, places)


def _largest(found: Float[Tensor, "token"], chain: Chain, places: Int[Tensor, "token"]) -> Float[Tensor, "batch"]:
    return found.new_zeros(chain.rows.num_sentences).scatter_reduce_(0, places, found, "amax")
