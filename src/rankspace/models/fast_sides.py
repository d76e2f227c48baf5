"""Chains over states from both sides at once: each reading of a table serves a product forward and one backward."""

from dataclasses import replace
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from rankspace.inference.links import Precision
from rankspace.inference.ragged import Ragged
from rankspace.models.fast_products import aligned
from rankspace.models.fast_tall import is_tall, meet, meet_into
from rankspace.models.fast_vectors import counted_slopes


class Side(NamedTuple):
    """What the way back needs of the other side: at a scale of each word's own, and what brings it to the true one."""

    worth: Float[Tensor, "token state"]  # b
    of_between: Float[Tensor, "later rank"]  # derivatives of the vectors over ranks
    mass: Float[Tensor, "token"]  # <x, b>, float64
    top: Int[Tensor, "token"]  # bits of the largest entry of b * e


def is_worth_it(chain: Any, to_rank: Float[Tensor, "state rank"]) -> bool:
    """Whether reading tables is what the products take, and kernels have room to use what they read twice."""
    from rankspace.kernels.chain_sides import fits

    return is_tall(chain.rows.length, to_rank) and fits(chain.rows.num_sentences, to_rank.device)


def both_sides(
    chain: Any, to_rank: Float[Tensor, "state rank"], to_state: Float[Tensor, "rank state"], precision: Precision
) -> tuple[Float[Tensor, "later rank"], Side]:
    """Fills a chain that has begun, and gives its vectors over ranks and the other side. While the one is at a time,
    the other is as far from the end: A is read for both, then B for both."""
    from rankspace.kernels.chain_sides import beside, both_products, masses, step_beside
    from rankspace.kernels.chain_steps import step
    from rankspace.kernels.chain_tall import add_up

    rows, side = chain.rows, beside(chain)
    between, of_between = (aligned(rows.num_tokens - rows.alive(0), to_rank.shape[1], to_rank) for _ in range(2))
    last = rows.longest - 1
    if last >= 0:
        step_beside(side, last, None)
    if last > 0:
        meet_into(_later(of_between, rows, last), _at(side.vectors, rows, last), to_state.T, precision)
    for time in range(1, last + 1):
        own, other = _later(between, rows, time), last - time
        entering = _at(chain.vectors, rows, time - 1)[: len(own)]
        sums, parts = both_products(to_rank, entering, _later(of_between, rows, other + 1))
        add_up(parts, own)
        step_beside(side, other, sums)
        if other:
            sums, parts = both_products(to_state.T, _at(side.vectors, rows, other), own)
            add_up(parts, _later(of_between, rows, other))
        else:
            sums = meet(own, to_state, precision)
        step(chain, time, sums)
    return between, Side(side.outputs, of_between, masses(chain, side), side.top)


def _at(table: Tensor, rows: Any, time: int) -> Tensor:
    """Rows of a time."""
    return table[rows.first(time) : rows.first(time) + rows.alive(time)]


def _later(table: Tensor, rows: Any, time: int) -> Tensor:
    """Rows of a time in a table without those of the first words."""
    first = rows.first(time) - rows.alive(0)
    return table[first : first + rows.alive(time)]


def lost_beside(chain: Any, side: Side, ends: Any, layout: Ragged) -> Bool[Tensor, "batch"]:
    """Possible sentences with a word whose mass is too low: what is dropped on the way to b is at most tiny times the
    scale of the b after (as in `inference.chain.range_check`), and so is its share of x * b."""
    from rankspace.kernels.chain_table import LOWEST

    left = chain.rows.length.index_select(0, layout.token_place) - layout.token_time
    after = _scales(side.top).index_select(0, layout.following.clamp(min=0)).where(left > 1, 1).clamp(min=1)
    wrong = (left > 0) & ~(side.mass >= LOWEST * after / _scales(chain.top))
    count = torch.zeros_like(chain.rows.length).index_add_(0, layout.token_place, wrong.to(torch.int32))
    possible: Tensor = ends.log_z > -torch.inf
    return (layout.in_callers_order(count) > 0) & possible


def derivatives(
    chain: Any, side: Side, ends: Any, slopes: Float[Tensor, "batch"], layout: Ragged
) -> tuple[Any, Float[Tensor, "later rank"]]:
    """All of them, and those of the vectors over ranks, at their true scale."""
    from rankspace.kernels.chain_sides import finish
    from rankspace.kernels.chain_table import Slopes

    counted = counted_slopes(ends, slopes, layout).index_select(0, layout.token_place)
    of_words = (counted / side.mass).where((counted != 0) & (side.mass > 0), 0)
    of_sums = of_words.clone()
    first = chain.rows.alive(0)
    of_sums[first:] *= _scales(chain.top).index_select(0, layout.previous)
    found = finish(chain, replace(chain, outputs=side.worth), of_words, of_sums)
    of_between = (side.of_between * of_sums[first:, None]).to(side.of_between.dtype)
    return Slopes(counted, *found[::-1]), of_between


def _scales(top: Int[Tensor, "token"]) -> Float[Tensor, "token"]:
    """2^-k of raw vectors, in float64, for the bits of their largest entries."""
    from rankspace.kernels.scales import LEAST_POWER

    power = ((top >> 23) - 126).clamp(min=LEAST_POWER.value)
    return torch.exp2(-power.double())
