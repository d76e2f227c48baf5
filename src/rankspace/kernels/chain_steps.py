"""One step of a batch of chains: one launch with the product in it, or one after a product.

A program makes some ranks of the outputs of one time. Largest numbers are collected as the integers of their bits,
whose maximum does not depend on the order.
"""

from functools import lru_cache
from typing import no_type_check

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

from rankspace.devices import is_gpu
from rankspace.kernels.chain_table import FLOOR, Chain
from rankspace.kernels.interpreted import factor
from rankspace.kernels.scales import LEAST_POWER, power_of_two

RANKS = 32  # of a program with the product in it: 128 programs at rank 4096
PLACES = 64  # of such a program at most
WARPS = 4
STAGES = 5
LARGE = 160_000  # bytes of memory of a multiprocessor
BLOCK = 512  # ranks of a program after a product


def first_step(chain: Chain) -> None:
    """The rows of the first words: outputs are the start, the same for each sentence."""
    _step(chain, 0, chain.start, first=True)


def step(chain: Chain, time: int, sums: Float[Tensor, "alive rank"]) -> None:
    """The rows of a later time, from `sums`: raw vectors before times the link."""
    _step(chain, time, sums, first=False)


def _step(chain: Chain, time: int, sums: Tensor, first: bool) -> None:
    rank, alive = len(chain.start), chain.rows.alive(time)
    block = min(BLOCK, triton.next_power_of_2(rank))
    _after_product[(alive, triton.cdiv(rank, block))](
        sums,
        chain.words,
        chain.outputs,
        chain.vectors,
        chain.top,
        chain.rows.first(time),
        chain.rows.first(time - 1) if time else 0,
        rank,
        FIRST=first,
        BLOCK=block,
    )


@triton.jit(do_not_specialize=["first_row", "first_before"])
@no_type_check
def _after_product(
    sums,
    words,
    outputs,
    vectors,
    top,
    first_row,
    first_before,
    rank,
    FIRST: tl.constexpr,
    BLOCK: tl.constexpr,
):
    place = tl.program_id(0)
    ranks = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    exists = ranks < rank
    row = first_row + place
    at = row.to(tl.int64) * rank + ranks
    if FIRST:
        output = tl.load(sums + ranks, mask=exists, other=0.0)
        output = tl.where(output == 0, 0.0, raised(output, 1.0))  # a start may leave ranks out
    else:
        scale = scale_of(tl.load(top + first_before + place))
        output = raised(tl.load(sums + place.to(tl.int64) * rank + ranks, mask=exists, other=0.0) * scale, scale)
    vector = output * tl.load(words + at, mask=exists, other=0.0)
    tl.store(outputs + at, output, mask=exists)
    tl.store(vectors + at, vector.to(vectors.dtype.element_ty), mask=exists)
    tl.atomic_max(top + row, tl.max(bits_of(vector), 0), sem="relaxed")


@triton.jit
@no_type_check
def bits_of(number):
    """The bits of float32 numbers that are not negative: integers in the same order."""
    return number.to(tl.int32, bitcast=True)


@triton.jit
@no_type_check
def scale_of(top):
    """2^-k for the largest number of a raw vector, given by its bits."""
    return power_of_two(-tl.maximum((top >> 23) - 126, LEAST_POWER))


@triton.jit
@no_type_check
def raised(output, scale):
    """What is below all that underflow could have taken away, raised to that; what is no number stays none."""
    least = tl.maximum(scale, 1.0) * FLOOR
    return tl.where(output < least, least, output)


def linked_step(chain: Chain, time: int, link: Float[Tensor, "to from"]) -> None:
    """The rows of a later time, product and all. The link has the dtype of the vectors and lies so that what is summed
    over is contiguous. All programs together read it once for each 64 sentences: r^2 numbers, out of the cache when
    they fit into it."""
    rank, alive = len(chain.start), chain.rows.alive(time)
    tile = tile_of(alive)
    _linked_step[(triton.cdiv(rank, RANKS), triton.cdiv(alive, tile))](
        chain.vectors,
        link,
        chain.words,
        chain.outputs,
        chain.top,
        chain.rows.first(time),
        chain.rows.first(time - 1),
        alive,
        rank,
        link.stride(0),
        PLACES=tile,
        RANKS=RANKS,
        MIDDLE=middle_of(tile, link.device),
        num_warps=WARPS,
        num_stages=STAGES,
    )


@triton.jit(do_not_specialize=["first_row", "first_before", "alive"])
@no_type_check
def _linked_step(
    vectors,
    link,
    words,
    outputs,
    top,
    first_row,
    first_before,
    alive,
    rank,
    stride,
    PLACES: tl.constexpr,
    RANKS: tl.constexpr,
    MIDDLE: tl.constexpr,
):
    ranks = tl.program_id(0) * RANKS + tl.arange(0, RANKS)
    place = tl.program_id(1) * PLACES + tl.arange(0, PLACES)
    sums = meeting(vectors, first_before + place, place < alive, link, ranks, rank, stride, PLACES, RANKS, MIDDLE)
    _store_outputs(sums, vectors, words, outputs, top, place, ranks, first_row, first_before, alive, rank)


@triton.jit
@no_type_check
def meeting(
    table,
    rows,
    exists,
    matrix,
    ranks,
    rank,
    stride,
    PLACES: tl.constexpr,
    RANKS: tl.constexpr,
    MIDDLE: tl.constexpr,
):
    """Some rows of a table [_, rank] times some rows of a matrix [rank, rank], transposed: [PLACES, RANKS]."""
    left = table + rows.to(tl.int64)[:, None] * rank
    right = matrix + ranks.to(tl.int64)[:, None] * stride
    wanted = ranks < rank
    total = tl.zeros([PLACES, RANKS], tl.float32)
    for first in range(0, rank, MIDDLE):
        at = first + tl.arange(0, MIDDLE)
        inside = (at < rank)[None, :]
        one = tl.load(left + at[None, :], mask=exists[:, None] & inside, other=0.0)  # [PLACES, MIDDLE]
        other = tl.load(right + at[None, :], mask=wanted[:, None] & inside, other=0.0)  # [RANKS, MIDDLE]
        total = tl.dot(factor(one), factor(tl.trans(other)), total, input_precision="ieee")
    return total


@triton.jit
@no_type_check
def _store_outputs(sums, vectors, words, outputs, top, place, ranks, first_row, first_before, alive, rank):
    lives = place < alive
    exists = lives[:, None] & (ranks < rank)[None, :]
    scale = scale_of(tl.load(top + first_before + place, mask=lives, other=0))[:, None]
    output = raised(sums * scale, scale)
    row = first_row + place
    at = row.to(tl.int64)[:, None] * rank + ranks[None, :]
    vector = output * tl.load(words + at, mask=exists, other=0.0)
    tl.store(outputs + at, output, mask=exists)
    tl.store(vectors + at, vector.to(vectors.dtype.element_ty), mask=exists)
    tl.atomic_max(top + row, tl.max(tl.where(exists, bits_of(vector), 0), 1), mask=lives, sem="relaxed")


def step_by_torch(chain: Chain, time: int, sums: Float[Tensor, "alive rank"] | None = None) -> None:
    """What `first_step` (without sums) and `step` must equal."""
    first, alive = chain.rows.first(time), chain.rows.alive(time)
    rows = slice(first, first + alive)
    scales = scales_by_torch(chain, time)
    output = chain.start.expand(alive, -1) if sums is None else sums * scales
    least = FLOOR.value * scales.clamp(min=1)
    kept = ~(output < least) | (output == 0) if sums is None else ~(output < least)
    output = output.where(kept, least)
    chain.outputs[rows] = output
    vector = output * chain.words[rows]
    chain.vectors[rows] = vector.to(chain.vectors.dtype)
    chain.top[rows] = vector.amax(1).view(torch.int32)


def linked_step_by_torch(chain: Chain, time: int, link: Float[Tensor, "to from"]) -> None:
    """What `linked_step` must equal."""
    first, alive = chain.rows.first(time - 1), chain.rows.alive(time)
    step_by_torch(chain, time, chain.vectors[first : first + alive].float() @ link.float().T)


def scales_by_torch(chain: Chain, time: int) -> Float[Tensor, "alive 1"]:
    """2^-k of the vectors before a time; one at first."""
    first, alive = chain.rows.first(max(time - 1, 0)), chain.rows.alive(time)
    power = ((chain.top[first : first + alive] >> 23) - 126).clamp(min=int(LEAST_POWER))
    return torch.ldexp(torch.ones_like(power, dtype=torch.float32), -power if time else 0 * power)[:, None]


def tile_of(alive: int) -> int:
    """Sentences of a program with the product in it."""
    size: int = triton.next_power_of_2(alive)
    return min(PLACES, max(16, size))


def middle_of(tile: int, device: torch.device) -> int:
    """Ranks summed over at a time: as many as the memory of a multiprocessor holds in five stages."""
    if is_gpu(device) and shared_memory(device) < LARGE:
        return 64
    return 256 if tile == 16 else 128


@lru_cache(maxsize=16)
def shared_memory(device: torch.device) -> int:
    """Bytes that a program can have of the memory of a multiprocessor."""
    size: int = torch.cuda.get_device_properties(device).shared_memory_per_block_optin  # type: ignore[attr-defined]
    return size
