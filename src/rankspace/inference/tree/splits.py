"""Sums over the splits of spans, forward and backward: the cubic part of the tree engine.

A table of children has one row of 2R numbers for each span: its vector as a left child, then as a right child. Spans of
one width are one block of rows. All sums here have one form: a row of the result is the sum over *pairs* of the product
of two rows, times a weight, an exact power of two that makes up for their exponents:

    inside             sum over k:  left(i, k) * right(k, j)      a pair for each split
    outside, left      sum over j:  above(i, j) * right(k, j)     a pair for each wider span that begins at i
    outside, right     sum over i:  above(i, j) * left(i, k)      a pair for each wider span that ends at j

Temporaries are a few times one width's rows: pairs are taken a few at a time. Indices of all pairs of a width are made
at once, and number at most length^2 / 4 for each sentence.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from rankspace.inference.generic.scaled import ZERO, power_of_two
from rankspace.inference.ragged import Ragged

NUMBERS_TOGETHER = 2**17  # gathered at a time on a CPU: what stays in its cache
PAIRS_TOGETHER = 8  # on a GPU: enough to fill it, few enough for its memory


class Pairs(NamedTuple):
    """Rows of both operands, for each row of the result. Pairs with fewer of them come later."""

    first: Int[Tensor, "pair row"]
    second: Int[Tensor, "pair row"]
    exists: Bool[Tensor, "pair row"] | None  # None: all do. Where not, the rows are any two
    extent: list[slice]  # of each pair: all rows it exists for lie there


@dataclass(frozen=True)
class Splits:
    """The children of a batch (rows that are not yet known are not read) and their exponents."""

    layout: Ragged
    children: Float[Tensor, "span both"]
    exponent: Int[Tensor, "span"]

    @property
    def rank(self) -> int:
        return self.children.shape[1] // 2

    def inside(self, width: int) -> tuple[Float[Tensor, "row rank"], Int[Tensor, "row"]]:
        """The sums of all spans of a width, and the exponents they are to be multiplied with: the largest of a pair."""
        pairs = inside_pairs(self.layout, width)
        exponent = self.exponent[pairs.first] + self.exponent[pairs.second]
        base = exponent.amax(0)
        total = self.children.new_zeros(len(base), self.rank)
        weight = power_of_two(exponent - base, self.children.dtype)
        self._add(total, (self.children, 0), (self.children, 1), pairs, weight)
        return total, base.clamp(min=ZERO)

    def outside(
        self, width: int, above: Float[Tensor, "wide rank"], above_exponent: Int[Tensor, "span"]
    ) -> Float[Tensor, "row both"]:
        """Derivatives with respect to the children rows of a width, from those with respect to the sums of wider spans.

        `above`: these, a row for each span of two words or more (as wide as `width` or narrower: not read);
        `above_exponent`: exponents of the sums, by rows of the children.
        """
        rows = self.layout.spans(width)
        found = self.children.new_zeros(rows.stop - rows.start, 2 * self.rank)
        if width == self.layout.longest:
            return found
        for side, make in enumerate((left_pairs, right_pairs)):
            pairs = make(self.layout, width)
            exponent = self.exponent[rows] + self.exponent[pairs.second] - above_exponent[pairs.first]
            weight = power_of_two(exponent, self.children.dtype)
            weight = weight if pairs.exists is None else weight.where(pairs.exists, 0)
            shifted = pairs._replace(first=pairs.first - self.layout.num_tokens)
            half = found[:, side * self.rank : (side + 1) * self.rank]
            self._add(half, (above, None), (self.children, 1 - side), shifted, weight)
        return found

    def _add(
        self,
        total: Float[Tensor, "row rank"],
        first: tuple[Tensor, int | None],
        second: tuple[Tensor, int | None],
        pairs: Pairs,
        weight: Float[Tensor, "pair row"],
    ) -> None:
        """total[row] += sum over pairs of weight * first * second; operands are tables and which half of their rows."""
        lengths = self.layout.alive
        if total.device.type == "cpu" and lengths[self.layout.longest] == lengths[0]:
            _add_blocks(total, _half(*first), _half(*second), pairs, weight)
        else:
            _add_gathered(total, *_whole_rows(*first, pairs.first), *_whole_rows(*second, pairs.second), pairs, weight)


def inside_pairs(layout: Ragged, width: int) -> Pairs:
    """[i, k) and [k, j), for each k, of all spans [i, j) of a width."""
    place, begin = layout.span_place(width), layout.span_begin(width)
    first = torch.arange(1, width, device=place.device)[:, None]
    left, right = layout.row(place, begin, first), layout.row(place, begin + first, width - first)
    return Pairs(left, right, None, [slice(0, len(place))] * (width - 1))


def left_pairs(layout: Ragged, width: int) -> Pairs:
    """[i, j) and [k, j), for each j > k, of all spans [i, k) of a width. Begins grow with the rows: prefixes."""
    place, end = layout.span_place(width), layout.span_begin(width) + width
    wider = torch.arange(width + 1, layout.longest + 1, device=place.device)[:, None]
    top = (end + wider - width).clamp(max=layout.longest + 1)
    exists = end + wider - width <= layout.length_at[place]
    parent = layout.row(place, top - wider, wider).where(exists, layout.num_tokens)
    sibling = layout.row(place, top - wider + width, wider - width).where(exists, layout.num_tokens)
    last = layout.longest + 1
    counts = [layout.before[last - W + width] - layout.before[width] for W in range(width + 1, last)]
    return Pairs(parent, sibling, exists, [slice(0, count) for count in counts])


def right_pairs(layout: Ragged, width: int) -> Pairs:
    """[i, j) and [i, k), for each i < k, of all spans [k, j) of a width: suffixes."""
    place, begin = layout.span_place(width), layout.span_begin(width)
    wider = torch.arange(width + 1, layout.longest + 1, device=place.device)[:, None]
    start = begin + width - wider
    exists = start >= 0
    start = start.clamp(min=0)
    parent = layout.row(place, start, (begin + width - start).clamp(min=2))
    sibling = layout.row(place, start, (begin - start).clamp(min=1))
    skipped = [layout.before[W] - layout.before[width] for W in range(width + 1, layout.longest + 1)]
    return Pairs(parent, sibling, exists, [slice(count, len(place)) for count in skipped])


def _half(table: Tensor, half: int | None) -> Tensor:
    if half is None:
        return table
    rank = table.shape[1] // 2
    return table[:, half * rank : (half + 1) * rank]


def _whole_rows(table: Tensor, half: int | None, rows: Tensor) -> tuple[Tensor, Tensor]:
    """A table whose rows are the operand, and their numbers: row 2s + half of a table cut into halves."""
    if half is None:
        return table, rows
    return table.view(-1, table.shape[1] // 2), 2 * rows + half


def _add_blocks(total: Tensor, first: Tensor, second: Tensor, pairs: Pairs, weight: Tensor) -> None:
    """Where all sentences are equally long: the rows of a pair are one block of each table, in the same order."""
    starts = [extent.start for extent in pairs.extent]
    every = torch.arange(len(starts))
    first_starts = pairs.first[every, starts].tolist()
    second_starts = pairs.second[every, starts].tolist()
    room = torch.empty_like(total, memory_format=torch.contiguous_format)
    for k, extent in enumerate(pairs.extent):
        count = extent.stop - extent.start
        scaled = room.narrow(0, 0, count)
        torch.mul(second.narrow(0, second_starts[k], count), weight[k, extent].unsqueeze(1), out=scaled)
        total[extent].addcmul_(first.narrow(0, first_starts[k], count), scaled)


def _add_gathered(
    total: Tensor, first: Tensor, first_rows: Tensor, second: Tensor, second_rows: Tensor, pairs: Pairs, weight: Tensor
) -> None:
    start = 0
    while start < len(pairs.extent):
        extent = pairs.extent[start]
        stop = start + _num_together(extent.stop - extent.start, total)
        shape = (-1, extent.stop - extent.start, total.shape[1])
        product = second.index_select(0, second_rows[start:stop, extent].flatten()).view(shape)
        product *= weight[start:stop, extent, None]
        product *= first.index_select(0, first_rows[start:stop, extent].flatten()).view(shape)
        total[extent] += product.sum(0)
        start = stop


def _num_together(num_rows: int, total: Tensor) -> int:
    if total.device.type != "cpu":
        return PAIRS_TOGETHER
    return max(1, NUMBERS_TOGETHER // max(1, num_rows * total.shape[1]))
