"""Both sides of a batch of chains at once, forward from the first words and backward from the last: a table that no
cache holds is read once for a product of each.

With b_t what follows a state at time t is worth, at a scale of its own, and beside_t = b_t * e_t as stored (raw):

    b_last = 1        b_t = (beside_{t+1} link^T) 2^-k_{t+1}        dL/d log e_t = slope x_t * b_t / <x_t, b_t>

Every time of a sentence has the same sum over x_t * b_t but for its scale, so dividing by it brings all derivatives to
theirs, whatever the powers of two.
"""

from dataclasses import replace
from typing import no_type_check

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

from rankspace.devices import is_gpu
from rankspace.kernels.chain_steps import BLOCK as STEP
from rankspace.kernels.chain_steps import LARGE, bits_of, scale_of, shared_memory
from rankspace.kernels.chain_table import Chain
from rankspace.kernels.interpreted import factor, only_if
from rankspace.kernels.scales import LEAST_POWER

ROWS = 32  # of either product at most
STRIP = 256  # states of a program: 128 programs for 32768
MIDDLE = 64  # ranks at a time
WARPS = 8
STAGES = 4  # for numbers of two bytes; half as many for others
BLOCK = 2048


def fits(num_rows: int, device: torch.device) -> bool:
    """Whether a program of `both_products` has room for its part of a table."""
    return num_rows <= ROWS and (not is_gpu(device) or shared_memory(device) >= LARGE)


def both_products(
    table: Float[Tensor, "state rank"], over_states: Float[Tensor, "one state"], over_ranks: Float[Tensor, "other rank"]
) -> tuple[Float[Tensor, "other state"], Float[Tensor, "strip one rank"]]:
    """over_ranks @ table^T, and parts of over_states @ table, in float32; see `fits`. All have one
    dtype, and the table may be contiguous along either axis. Reads it once."""
    num_states, num_ranks = table.shape
    turned = table.stride(1) != 1
    to_states = over_ranks.new_empty(len(over_ranks), num_states, dtype=torch.float32)
    parts = over_ranks.new_empty(triton.cdiv(num_states, STRIP), len(over_states), num_ranks, dtype=torch.float32)
    _both_products[(len(parts),)](
        table,
        over_states,
        over_ranks,
        to_states,
        parts,
        len(over_states),
        len(over_ranks),
        num_states,
        num_ranks,
        table.stride(1 if turned else 0),
        over_states.stride(0),
        over_ranks.stride(0),
        TURNED=turned,
        ROWS=max(16, triton.next_power_of_2(max(len(over_states), len(over_ranks)))),
        STRIP=STRIP,
        MIDDLE=MIDDLE,
        num_warps=WARPS,
        num_stages=STAGES * 2 // table.element_size(),
    )
    return to_states, parts


@triton.jit(do_not_specialize=["num_one", "num_other"])
@no_type_check
def _both_products(
    table,
    over_states,
    over_ranks,
    to_states,
    parts,
    num_one,
    num_other,
    num_states,
    num_ranks,
    stride,
    state_stride,
    rank_stride,
    TURNED: tl.constexpr,
    ROWS: tl.constexpr,
    STRIP: tl.constexpr,
    MIDDLE: tl.constexpr,
):
    strip = tl.program_id(0)
    states = strip * STRIP + tl.arange(0, STRIP)
    wanted = states < num_states
    own = tl.arange(0, ROWS)
    mask = (own < num_one)[:, None] & wanted[None, :]
    one = tl.load(over_states + own.to(tl.int64)[:, None] * state_stride + states[None, :], mask=mask, other=0.0)
    total = tl.zeros([ROWS, STRIP], tl.float32)
    for first in range(0, num_ranks, MIDDLE):
        ranks = first + tl.arange(0, MIDDLE)
        inside = ranks < num_ranks
        at = over_ranks + own.to(tl.int64)[:, None] * rank_stride + ranks[None, :]
        other = tl.load(at, mask=(own < num_other)[:, None] & inside[None, :], other=0.0)  # [ROWS, MIDDLE]
        if TURNED:
            there = table + ranks.to(tl.int64)[:, None] * stride + states[None, :]
            tile = tl.load(there, mask=inside[:, None] & wanted[None, :], other=0.0)  # [MIDDLE, STRIP]
            total = tl.dot(factor(other), factor(tile), total, input_precision="ieee")
            part = tl.dot(factor(one), factor(tl.trans(tile)), input_precision="ieee")
        else:
            there = table + states.to(tl.int64)[:, None] * stride + ranks[None, :]
            tile = tl.load(there, mask=wanted[:, None] & inside[None, :], other=0.0)  # [STRIP, MIDDLE]
            total = tl.dot(factor(other), factor(tl.trans(tile)), total, input_precision="ieee")
            part = tl.dot(factor(one), factor(tile), input_precision="ieee")
        to = parts + (strip * num_one + own).to(tl.int64)[:, None] * num_ranks + ranks[None, :]
        tl.store(to, part, mask=(own < num_one)[:, None] & inside[None, :])
    to = to_states + own.to(tl.int64)[:, None] * num_states + states[None, :]
    tl.store(to, total, mask=(own < num_other)[:, None] & wanted[None, :])


def both_products_by_torch(
    table: Float[Tensor, "state rank"], over_states: Float[Tensor, "one state"], over_ranks: Float[Tensor, "other rank"]
) -> tuple[Float[Tensor, "other state"], Float[Tensor, "strip one rank"]]:
    """What `both_products` must equal."""
    strips = [slice(first, first + STRIP) for first in range(0, len(table), STRIP)]
    parts = [over_states[:, strip].float() @ table[strip].float() for strip in strips]
    return over_ranks.float() @ table.T.float(), torch.stack(parts)


def beside(chain: Chain) -> Chain:
    """A chain for the other side: b for outputs, on the same words."""
    return replace(
        chain,
        outputs=torch.empty_like(chain.outputs),
        vectors=torch.empty_like(chain.vectors),
        top=torch.zeros_like(chain.top),
    )


def step_beside(side: Chain, time: int, sums: Float[Tensor, "later state"] | None) -> None:
    """The rows of a time, from `sums`: raw vectors of the time after times the transposed link, for the sentences that
    have one; None at the last time of all. What lies behind the end of its sentence gets zeros."""
    size, block = len(side.start), min(STEP, triton.next_power_of_2(len(side.start)))
    _step_beside[(side.rows.alive(time), triton.cdiv(size, block))](
        side.words if sums is None else sums,
        side.words,
        side.outputs,
        side.vectors,
        side.top,
        side.rows.length,
        time,
        side.rows.first(time),
        side.rows.first(time + 1),
        0 if sums is None else side.rows.alive(time + 1),
        size,
        BLOCK=block,
    )


@triton.jit(do_not_specialize=["time", "first_row", "first_after", "later"])
@no_type_check
def _step_beside(
    sums, words, outputs, vectors, top, length, time, first_row, first_after, later, size, BLOCK: tl.constexpr
):
    place = tl.program_id(0)
    states = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    exists = states < size
    row = first_row + place
    at = row.to(tl.int64) * size + states
    num_left = tl.load(length + place) - time - 1
    follows = (num_left > 0) & (place < later)
    scale = scale_of(tl.load(top + first_after + place, mask=follows, other=0))
    output = tl.load(sums + place.to(tl.int64) * size + states, mask=only_if(exists, follows), other=0.0) * scale
    output = tl.where(num_left == 0, 1.0, output)
    vector = output * tl.load(words + at, mask=exists, other=0.0)
    tl.store(outputs + at, output, mask=exists)
    tl.store(vectors + at, vector.to(vectors.dtype.element_ty), mask=exists)
    tl.atomic_max(top + row, tl.max(tl.where(exists, bits_of(vector), 0), 0), sem="relaxed")


def step_beside_by_torch(side: Chain, time: int, sums: Float[Tensor, "later state"] | None) -> None:
    """What `step_beside` must equal."""
    first, alive, later = side.rows.first(time), side.rows.alive(time), side.rows.alive(time + 1)
    output = side.words.new_zeros(alive, len(side.start))
    if sums is not None:
        after = side.rows.first(time + 1)
        power = ((side.top[after : after + later] >> 23) - 126).clamp(min=int(LEAST_POWER))
        output[:later] = sums * torch.ldexp(torch.ones_like(sums[:, :1]), -power[:, None])
    num_left = (side.rows.length[:alive] - time - 1)[:, None]
    output = output.where(num_left > 0, 0).masked_fill(num_left == 0, 1)
    vector = output * side.words[first : first + alive]
    side.outputs[first : first + alive] = output
    side.vectors[first : first + alive] = vector.to(side.vectors.dtype)
    side.top[first : first + alive] = vector.amax(1).view(torch.int32)


def masses(chain: Chain, side: Chain) -> Float[Tensor, "token"]:
    """<x_t, b_t> of each word in float64; zero behind the end of its sentence. Reads 12 bytes a word and state."""
    found = chain.log_scale.new_empty(chain.rows.num_tokens)
    size = len(chain.start)
    if len(found):
        _masses[(len(found),)](
            chain.outputs, chain.words, side.outputs, found, size, BLOCK=min(BLOCK, triton.next_power_of_2(size))
        )
    return found


@triton.jit
@no_type_check
def _masses(outputs, words, worth, found, size, BLOCK: tl.constexpr):
    token = tl.program_id(0).to(tl.int64)
    total = tl.zeros([BLOCK], tl.float64)
    for first in range(0, size, BLOCK):
        states = first + tl.arange(0, BLOCK)
        at = token * size + states
        vector = tl.load(outputs + at, mask=states < size, other=0.0)
        vector *= tl.load(words + at, mask=states < size, other=0.0)
        total += vector.to(tl.float64) * tl.load(worth + at, mask=states < size, other=0.0).to(tl.float64)
    tl.store(found + token, tl.sum(total, 0))


def masses_by_torch(chain: Chain, side: Chain) -> Float[Tensor, "token"]:
    """What `masses` must equal."""
    return ((chain.outputs * chain.words).double() * side.outputs.double()).sum(1)


def finish(
    chain: Chain, side: Chain, of_words: Float[Tensor, "token"], of_sums: Float[Tensor, "token"]
) -> tuple[Float[Tensor, "token state"], Float[Tensor, "token state"]]:
    """Derivatives with respect to log e, and with respect to what the link gives, in its dtype: x * b and raw vectors
    beside, each times a number of its word in float64, zero where nothing is to come of it."""
    found = torch.empty_like(side.outputs), torch.empty_like(side.vectors)
    num_tokens, size = side.outputs.shape
    block = min(BLOCK, triton.next_power_of_2(size))
    if num_tokens:
        _finish[(num_tokens, triton.cdiv(size, block))](
            chain.outputs, chain.words, side.outputs, of_words, of_sums, *found, size, BLOCK=block
        )
    return found


@triton.jit
@no_type_check
def _finish(outputs, words, worth, of_words, of_sums, to_words, to_sums, size, BLOCK: tl.constexpr):
    token = tl.program_id(0)
    states = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    exists = states < size
    at = token.to(tl.int64) * size + states
    output = tl.load(outputs + at, mask=exists, other=0.0)
    word = tl.load(words + at, mask=exists, other=0.0)
    value = tl.load(worth + at, mask=exists, other=0.0).to(tl.float64)
    found = (output * word).to(tl.float64) * value * tl.load(of_words + token)
    tl.store(to_words + at, found.to(tl.float32), mask=exists)
    found = tl.where(output == 0, 0.0, value * word.to(tl.float64) * tl.load(of_sums + token))
    tl.store(to_sums + at, found.to(tl.float32).to(to_sums.dtype.element_ty), mask=exists)


def finish_by_torch(
    chain: Chain, side: Chain, of_words: Float[Tensor, "token"], of_sums: Float[Tensor, "token"]
) -> tuple[Float[Tensor, "token state"], Float[Tensor, "token state"]]:
    """What `finish` must equal."""
    value, word = side.outputs.double(), chain.words.double()
    to_words = (chain.outputs * chain.words).double() * value * of_words[:, None]
    to_sums = (value * word * of_sums[:, None]).where(chain.outputs != 0, 0)
    return to_words.float(), to_sums.float().to(side.vectors.dtype)
