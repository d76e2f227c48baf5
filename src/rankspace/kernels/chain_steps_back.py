"""One step of a batch of chains on the way back: one launch with the product in it, or one after a product.

A program makes some ranks of the derivatives of one time; nothing is collected.
"""

from typing import no_type_check

import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

from rankspace.kernels.chain_steps import (
    BLOCK,
    RANKS,
    STAGES,
    WARPS,
    meeting,
    middle_of,
    scale_of,
    scales_by_torch,
    tile_of,
)
from rankspace.kernels.chain_table import Chain, Slopes
from rankspace.kernels.interpreted import only_if


def step_back(chain: Chain, slopes: Slopes, time: int, sums: Float[Tensor, "later rank"] | None) -> None:
    """The rows of a time, from `sums`: derivatives of the time after times the transposed link, for the sentences that
    have one; None at the last time of all. What lies behind the end of its sentence gets zeros."""
    rank, block = len(chain.start), min(BLOCK, triton.next_power_of_2(len(chain.start)))
    _after_product_back[(chain.rows.alive(time), triton.cdiv(rank, block))](
        chain.words if sums is None else sums,
        slopes.of_total,
        chain.words,
        chain.outputs,
        chain.top,
        chain.rows.length,
        slopes.of_sums,
        slopes.of_words,
        time,
        chain.rows.first(time),
        chain.rows.first(time - 1) if time else 0,
        0 if sums is None else chain.rows.alive(time + 1),
        rank,
        FIRST=time == 0,
        BLOCK=block,
    )


@triton.jit(do_not_specialize=["time", "first_row", "first_before", "later"])
@no_type_check
def _after_product_back(
    sums,
    of_total,
    words,
    outputs,
    top,
    length,
    of_sums,
    of_words,
    time,
    first_row,
    first_before,
    later,
    rank,
    FIRST: tl.constexpr,
    BLOCK: tl.constexpr,
):
    place = tl.program_id(0)
    ranks = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    exists = ranks < rank
    at = (first_row + place).to(tl.int64) * rank + ranks
    of_vector = tl.load(sums + place.to(tl.int64) * rank + ranks, mask=only_if(exists, place < later), other=0.0)
    of_vector = _until_the_end(of_vector, tl.load(of_total + place), tl.load(length + place) - time - 1)
    output = tl.load(outputs + at, mask=exists, other=0.0)
    word = tl.load(words + at, mask=exists, other=0.0)
    scale = 1.0
    if not FIRST:
        scale = scale_of(tl.load(top + first_before + place))
    found = tl.where(output == 0, 0.0, of_vector * word * scale)  # an output of zero has nothing to pass on
    tl.store(of_sums + at, found.to(of_sums.dtype.element_ty), mask=exists)
    tl.store(of_words + at, output * word * of_vector, mask=exists)


@triton.jit
@no_type_check
def _until_the_end(of_vector, of_total, num_left):
    """Derivatives with respect to vectors: of those that are not the last, of the last, and of none."""
    return tl.where(num_left > 0, of_vector, tl.where(num_left == 0, of_total, 0.0))


def linked_step_back(chain: Chain, slopes: Slopes, time: int, link: Float[Tensor, "from to"]) -> None:
    """The rows of a time that is not the last, product and all. Reads the link, which lies so that
    what is summed over is contiguous, as `linked_step` does."""
    rank, alive = len(chain.start), chain.rows.alive(time)
    tile = tile_of(alive)
    _linked_step_back[(triton.cdiv(rank, RANKS), triton.cdiv(alive, tile))](
        slopes.of_sums,
        link,
        slopes.of_total,
        chain.words,
        chain.outputs,
        chain.top,
        chain.rows.length,
        slopes.of_words,
        time,
        chain.rows.first(time),
        chain.rows.first(time - 1) if time else 0,
        chain.rows.first(time + 1),
        alive,
        chain.rows.alive(time + 1),
        rank,
        link.stride(0),
        FIRST=time == 0,
        PLACES=tile,
        RANKS=RANKS,
        MIDDLE=middle_of(tile, link.device),
        num_warps=WARPS,
        num_stages=STAGES,
    )


@triton.jit(do_not_specialize=["time", "first_row", "first_before", "first_after", "alive", "later"])
@no_type_check
def _linked_step_back(
    of_sums,
    link,
    of_total,
    words,
    outputs,
    top,
    length,
    of_words,
    time,
    first_row,
    first_before,
    first_after,
    alive,
    later,
    rank,
    stride,
    FIRST: tl.constexpr,
    PLACES: tl.constexpr,
    RANKS: tl.constexpr,
    MIDDLE: tl.constexpr,
):
    ranks = tl.program_id(0) * RANKS + tl.arange(0, RANKS)
    place = tl.program_id(1) * PLACES + tl.arange(0, PLACES)
    of_vector = meeting(of_sums, first_after + place, place < later, link, ranks, rank, stride, PLACES, RANKS, MIDDLE)
    lives = place < alive
    exists = lives[:, None] & (ranks < rank)[None, :]
    ending = tl.load(of_total + place, mask=lives, other=0.0)
    num_left = tl.load(length + place, mask=lives, other=0) - time - 1
    of_vector = _until_the_end(of_vector, ending[:, None], num_left[:, None])
    at = (first_row + place).to(tl.int64)[:, None] * rank + ranks[None, :]
    output = tl.load(outputs + at, mask=exists, other=0.0)
    word = tl.load(words + at, mask=exists, other=0.0)
    found = of_vector * word
    if not FIRST:
        found *= scale_of(tl.load(top + first_before + place, mask=lives, other=0))[:, None]
    found = tl.where(output == 0, 0.0, found)
    tl.store(of_sums + at, found.to(of_sums.dtype.element_ty), mask=exists)
    tl.store(of_words + at, output * word * of_vector, mask=exists)


def step_back_by_torch(chain: Chain, slopes: Slopes, time: int, sums: Float[Tensor, "later rank"] | None) -> None:
    """What `step_back` must equal."""
    first, alive = chain.rows.first(time), chain.rows.alive(time)
    rows = slice(first, first + alive)
    of_vectors = chain.words.new_zeros(alive, len(chain.start))
    if sums is not None:
        of_vectors[: len(sums)] = sums
    num_left = (chain.rows.length[:alive] - time - 1)[:, None]
    of_vectors = of_vectors.where(num_left > 0, slopes.of_total[:alive, None].where(num_left == 0, 0))
    output, word = chain.outputs[rows], chain.words[rows]
    found = (of_vectors * word * scales_by_torch(chain, time)).where(output != 0, 0)
    slopes.of_sums[rows] = found.to(slopes.of_sums.dtype)
    slopes.of_words[rows] = output * word * of_vectors


def linked_step_back_by_torch(chain: Chain, slopes: Slopes, time: int, link: Float[Tensor, "from to"]) -> None:
    """What `linked_step_back` must equal."""
    first, later = chain.rows.first(time + 1), chain.rows.alive(time + 1)
    step_back_by_torch(chain, slopes, time, slopes.of_sums[first : first + later].float() @ link.float().T)
