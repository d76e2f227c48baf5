"""Which entries of a table are left out, at random: counted numbers (Philox), the same whatever the tiles.

The lots of an entry depend on the seed, the number of its table, its row and its column alone. The seed is read on the
device, so a captured CUDA graph leaves out other entries whenever the seed was changed before it is replayed.
"""

from typing import no_type_check

import torch
import triton
import triton.language as tl
from jaxtyping import Bool, Int
from torch import Tensor

LOTS = 2**16  # equally probable; eight come from one call of Philox
ROUNDS = tl.constexpr(7)  # the fewest that pass every test of randomness in the paper of Philox (Salmon et al. 2011)
MASK = 2**32 - 1
KEYS = (0x9E3779B9, 0xBB67AE85)
MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)


def threshold_of(dropout: float) -> int:
    """Lots below this are left out."""
    return round(dropout * LOTS)


@triton.jit
@no_type_check
def lots(seed, table, row, first, BLOCK: tl.constexpr):
    """Lots of the columns first .. first + BLOCK of a row; both are multiples of eight."""
    group = first // 8 + tl.arange(0, BLOCK // 8)
    zero = group * 0
    one, two, three, four = tl.philox(seed, group, zero + row, zero + table, zero, ROUNDS)
    words = tl.join(tl.join(one, three), tl.join(two, four)).reshape([BLOCK // 2])
    return tl.join(words & 0xFFFF, words >> 16).reshape([BLOCK]).to(tl.int32)


def lots_by_torch(
    seed: Int[Tensor, ""], table: int, num_rows: int, num_columns: int, first_row: int = 0
) -> Int[Tensor, "row column"]:
    """What `lots` must equal, for rows from `first_row` on."""
    groups = -(-num_columns // 8)
    row = torch.arange(first_row, first_row + num_rows, device=seed.device)[:, None].expand(-1, groups)
    counter = [torch.arange(groups, device=seed.device).expand(num_rows, -1), row, torch.full_like(row, table), 0 * row]
    keys = [seed & MASK, (seed >> 32) & MASK]
    for _ in range(int(ROUNDS)):
        low, high = zip(*(_multiplied(counter[2 * i], MULTIPLIERS[i]) for i in range(2)), strict=True)
        counter = [high[1] ^ counter[1] ^ keys[0], low[1], high[0] ^ counter[3] ^ keys[1], low[0]]
        keys = [(key + step) & MASK for key, step in zip(keys, KEYS, strict=True)]
    halves = [half for word in counter for half in (word & 0xFFFF, word >> 16)]
    return torch.stack(halves, 2).flatten(1)[:, :num_columns]


def _multiplied(number: Int[Tensor, "*shape"], factor: int) -> tuple[Int[Tensor, "*shape"], Int[Tensor, "*shape"]]:
    """The lower and the upper 32 bits of a product of numbers of 32 bits, which int64 alone could not hold."""
    lower, upper = (number & 0xFFFF) * factor, (number >> 16) * factor
    return (lower + ((upper & 0xFFFF) << 16)) & MASK, ((lower >> 16) + upper) >> 16


def kept_by_torch(
    seed: Int[Tensor, ""], table: int, num_rows: int, num_columns: int, dropout: float, first_row: int = 0
) -> Bool[Tensor, "row column"]:
    """Which entries stay: all of a row that would lose every one."""
    kept = lots_by_torch(seed, table, num_rows, num_columns, first_row) >= threshold_of(dropout)
    return kept | ~kept.any(1, keepdim=True)
