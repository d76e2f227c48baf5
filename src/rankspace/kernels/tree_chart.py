"""The charts of a batch of trees as kernels see them: where the rows of spans lie, and their numbers.

Ranks are padded with zeros to a multiple of 16, so that every row begins at 64 bytes and loads are 16 bytes wide
whatever the rank; matrix products of any rank then find their operands aligned.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

ALIGNMENT = 16


@dataclass(frozen=True)
class SpanRows:
    """Rows of spans by arithmetic: the span [begin, end) of the sentence at a place is row shift[end - begin] +
    before[end] + place. Width by width, then by end, then by place; single words are the first rows.

    All tensors are int32 and small: none is larger than the number of words.
    """

    before: Int[Tensor, "_"]
    shift: Int[Tensor, "_"]
    token_place: Int[Tensor, "token"]  # [row of a word]
    token_time: Int[Tensor, "token"]
    length: Int[Tensor, "batch"]  # [place]
    sentence: Int[Tensor, "batch"]  # [place], in the order of the caller
    offsets: tuple[int, ...]  # on the host; [width] -> its first row
    num_before: tuple[int, ...]  # on the host: `before`

    @property
    def num_tokens(self) -> int:
        return len(self.token_place)

    @property
    def longest(self) -> int:
        return len(self.offsets) - 2

    @property
    def num_sentences(self) -> int:
        return len(self.length)

    def num_spans(self, width: int) -> int:
        return self.offsets[width + 1] - self.offsets[width]

    def spans(self, width: int) -> slice:
        return slice(self.offsets[width], self.offsets[width + 1])

    def wide(self, width: int) -> slice:
        """Rows of a width in a table that has none for single words."""
        return slice(self.offsets[width] - self.num_tokens, self.offsets[width + 1] - self.num_tokens)

    @property
    def num_parts(self) -> int:
        """Spans that can be a part of a wider one: all but those of the largest width, which come last."""
        return self.offsets[self.longest]


class Weights(NamedTuple):
    """Each span's numbers are multiplied by factor * 2^power."""

    factor: Float[Tensor, "span"]
    power: Int[Tensor, "span"]


@dataclass(frozen=True)
class Chart:
    """What the inside pass fills. The value of a span is its numbers times 2^exponent. Numbers are kept in the dtype of
    the operands of products; kernels sum in float32 whatever it is."""

    rows: SpanRows
    rank: int
    children: Float[Tensor, "span 2 padded"]  # as a left and as a right child
    alpha: Float[Tensor, "wide padded"]  # sums over splits, of spans of two words or more; the largest is near one
    exponent: Int[Tensor, "span"]
    power: Int[Tensor, "span"]  # numbers were divided by 2^power after they were summed
    partial_base: Int[Tensor, "span"]  # the scale of sums that are not yet complete
    lost: Int[Tensor, "batch"]  # [place]: whether something was lost
    weights: Weights | None
    inverse_mass: Float[Tensor, "padded"] | None = None  # what sums over splits are multiplied by, rank by rank

    @property
    def padded(self) -> int:
        return self.alpha.shape[1]

    def both(self, rows: slice) -> Float[Tensor, "row both"]:
        """Some spans as children, left and right ranks in one row; a view."""
        return self.children[rows].flatten(1)


def new_chart(
    rows: SpanRows,
    rank: int,
    weights: Weights | None,
    dtype: torch.dtype = torch.float32,
    inverse_mass: Float[Tensor, "padded"] | None = None,
) -> Chart:
    """Charts that nothing was written to, in some dtype; no sentence is lost yet. All begin at multiples of 16 bytes
    whatever the sentences: a kernel is compiled once more for a table that does not."""
    device, num_spans, size = rows.before.device, rows.offsets[-1], padded(rank)
    exponent, power, partial_base = torch.empty(3, padded(num_spans), dtype=torch.int32, device=device)[:, :num_spans]
    return Chart(
        rows,
        rank,
        torch.empty(num_spans, 2, size, dtype=dtype, device=device),
        torch.empty(num_spans - rows.num_tokens, size, dtype=dtype, device=device),
        exponent,
        power,
        partial_base,
        torch.zeros(rows.num_sentences, dtype=torch.int32, device=device),
        weights,
        inverse_mass,
    )


def padded(number: int) -> int:
    return -(-number // ALIGNMENT) * ALIGNMENT


class Results(NamedTuple):
    """Of sentences: Z at the scale of the chart by place, log Z and whether it is lost in the order of the caller."""

    top: Float[Tensor, "batch"]
    log_z: Float[Tensor, "batch"]
    lost: Bool[Tensor, "batch"]
