"""The vectors of a batch of chains as kernels see them: where the rows of tokens lie, and their numbers.

Rows are ordered by time, then by place; sentences by falling length, so that those alive are a prefix. Vectors are
stored as they were multiplied (raw): whoever reads one divides by the power of two of its largest number. So nothing
waits for a maximum over ranks, and nothing is decided on the host.

    outputs_1 = start        outputs_t = (vectors_{t-1} link) 2^-k_{t-1}        vectors_t = outputs_t * words_t

with 2^k the power of two above the largest entry of a vector. What float32 cannot tell from zero is raised, so that
what is computed is an upper bound; whether it matters `chain_doubt` tells.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
import triton.language as tl
from jaxtyping import Bool, Float, Int
from torch import Tensor

LOWEST = torch.finfo(torch.float32).tiny / torch.finfo(torch.float32).eps  # what is lower has lost more than rounding
# Of outputs, and times 2^-k of the vector before where that is above one:
FLOOR = tl.constexpr(2.0**-95)  # lower ones are raised to it; 2^31 products that underflow lose no more
DOUBTFUL = tl.constexpr(2.0**-74)  # lower ones must not matter (see `chain_doubt`); others are right to rounding


@dataclass(frozen=True)
class TokenRows:
    """The token at a time of the sentence at a place is row before[time + 1] + place.

    A sentence may be shorter than the rows it has: how long it is, the device alone knows. What lies behind its end
    then holds finite numbers that nothing depends on.
    """

    before: Int[Tensor, "_"]
    length: Int[Tensor, "batch"]  # [place]
    sentence: Int[Tensor, "batch"]  # [place], in the order of the caller
    num_before: tuple[int, ...]  # on the host: `before`

    @property
    def longest(self) -> int:
        return len(self.num_before) - 3

    @property
    def num_tokens(self) -> int:
        return self.num_before[-1]

    @property
    def num_sentences(self) -> int:
        return len(self.length)

    def first(self, time: int) -> int:
        """First row of a time."""
        return self.num_before[time + 1]

    def alive(self, time: int) -> int:
        """Sentences that have a row at a time; none before the first and after the last."""
        return self.num_before[time + 2] - self.num_before[time + 1] if 0 <= time < self.longest else 0


@dataclass(frozen=True)
class Chain:
    """What the forward pass fills."""

    rows: TokenRows
    start: Float[Tensor, "rank"]
    words: Float[Tensor, "token rank"]  # e over its largest entry
    log_scale: Float[Tensor, "token"]  # log of that entry, float64; -inf for a word that no rank can have
    outputs: Float[Tensor, "token rank"]
    vectors: Float[Tensor, "token rank"]  # raw, in the dtype of the link
    top: Int[Tensor, "token"]  # bits of the largest entry of a raw vector


def new_chain(rows: TokenRows, start: Float[Tensor, "rank"], dtype: torch.dtype) -> Chain:
    """A chain that nothing was written to, but for what starts at zero."""
    shape = rows.num_tokens, len(start)
    return Chain(
        rows,
        start,
        start.new_empty(shape),
        start.new_empty(rows.num_tokens, dtype=torch.float64),
        start.new_empty(shape),
        start.new_empty(shape, dtype=dtype),
        start.new_zeros(rows.num_tokens, dtype=torch.int32),
    )


class Ends(NamedTuple):
    """Of sentences: Z at the scale of the raw vectors and whether outputs are doubtful, by place; log Z and whether it
    is lost whatever they are, in the caller's order."""

    total: Float[Tensor, "batch"]
    low: Bool[Tensor, "batch"]
    log_z: Float[Tensor, "batch"]
    lost: Bool[Tensor, "batch"]


class Slopes(NamedTuple):
    """Derivatives of the sum over sentences of slope * log Z."""

    of_total: Float[Tensor, "batch"]  # [place]: with respect to Z at the scale of the raw vectors
    of_sums: Float[Tensor, "token rank"]  # with respect to vectors_{t-1} link (the start at first), as the link's dtype
    of_words: Float[Tensor, "token rank"]  # with respect to log e


def new_slopes(chain: Chain, of_total: Float[Tensor, "batch"]) -> Slopes:
    return Slopes(of_total, torch.empty_like(chain.vectors), torch.empty_like(chain.words))
