"""How much of a sum a program works on at a time, and which sums are taken together."""

from collections.abc import Iterator
from typing import NamedTuple

import triton

TERMS = 4  # rows of each operand at a time: enough to wait for, few enough for registers
RANKS_OF_A_WARP = 256  # of each row: eight for each thread, so that what is done once for a row weighs less
FEW_PROGRAMS = 512  # with fewer a GPU has room for twice as many warps
WIDTHS = 4  # whose sums are begun together
BEGINS = 1  # neighbouring spans of each width, likewise; more share rows, but leave too few programs
FEWEST = 4  # terms that make it worth while
LAG = 2  # widths between the beginning and the completion of sums


class Tile(NamedTuple):
    terms: int
    ranks: int
    warps: int


def row_tile(num_rows: int, num_terms: int, padded: int) -> Tile:
    """For programs that own a row: all of its ranks at once."""
    ranks = max(int(triton.next_power_of_2(padded)), 16)
    each = RANKS_OF_A_WARP if num_rows >= FEW_PROGRAMS else RANKS_OF_A_WARP // 2
    warps = min(max(ranks // each, 1), 16)
    most = max(TERMS * 32 * 8 * warps // ranks, 1)  # as many numbers for each thread, if ranks are many
    return Tile(min(int(triton.next_power_of_2(max(num_terms, 2))), most, 2 * TERMS), ranks, warps)


def block_tile(num_terms: int, padded: int) -> Tile:
    """For programs that own a block of ranks of a row."""
    ranks = min(2 * RANKS_OF_A_WARP, max(int(triton.next_power_of_2(padded)), 16))
    return Tile(min(int(triton.next_power_of_2(max(num_terms, 2))), TERMS), ranks, max(ranks // RANKS_OF_A_WARP, 1))


def early_ranks(padded: int) -> int:
    """Of programs, one warp each, that begin the sums of WIDTHS * BEGINS spans."""
    return min(RANKS_OF_A_WARP, max(int(triton.next_power_of_2(padded)), 16))


class Step(NamedTuple):
    """A width of a pass, in the order in which they are completed."""

    width: int
    known: int  # bound of the terms that were summed ahead, together with those of other widths; 0: none were
    is_first: bool  # of the widths that were begun together
    ahead: int  # the first of the widths that can be begun once this one is known; 0: none


def inside_steps(longest: int) -> Iterator[Step]:
    """Widths from two up. The sums of WIDTHS of them are begun over splits into parts of at most `known` words, as soon
    as these are there: LAG widths before the first is completed, so that there is something else to do meanwhile."""
    start = max(WIDTHS + 2 * LAG - 2, FEWEST + LAG)  # no split is near both ends
    for width in range(2, longest + 1):
        first = start + (width - start) // WIDTHS * WIDTHS
        known = first - LAG if start <= first < longest else 0
        later = width + LAG
        begins = start <= later < longest and (later - start) % WIDTHS == 0
        yield Step(width, known, known > 0 and first == width, later if begins else 0)


def outside_steps(longest: int) -> Iterator[Step]:
    """Widths of children from the widest down to one. Those of WIDTHS widths, the last of them one, are begun over
    parents of at least `known` words."""
    for width in range(longest - 1, 0, -1):
        first = -(-width // WIDTHS) * WIDTHS
        known = first + LAG if first + LAG + FEWEST <= longest else 0
        later = width - LAG
        begins = later > 0 and later % WIDTHS == 0 and width + FEWEST <= longest
        yield Step(width, known, known > 0 and first == width, later if begins else 0)
