"""Sums over the splits of spans, forward and backward: the cubic part of the tree engine.

A table of children [side, span, R] has each span's vector as a left child (side 0) and as a right child (side 1). Spans
of one width are one block of rows. All sums here have one form: a row of the result is the sum over *pairs* of the
product of two rows, times a weight, an exact power of two that makes up for their exponents:

    inside             sum over k:  left(i, k) * right(k, j)      a pair for each split
    outside, left      sum over j:  above(i, j) * right(k, j)     a pair for each wider span that begins at i
    outside, right     sum over i:  above(i, j) * left(i, k)      a pair for each wider span that ends at j

Pairs are taken one at a time where sentences are equally long, which makes their rows blocks of the tables
(`BlockSplits`), else a few at a time by gathering rows (`GatheredSplits`). So temporaries are a few times one width's
rows; exponents of all pairs of a width are looked at together, at most length^2 / 4 for each sentence.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from rankspace.inference.ragged import Ragged
from rankspace.inference.scaled import ZERO, lowest, power_of_two
from rankspace.inference.tree.pairs import Pairs, inside_pairs, left_pairs, right_pairs

NUMBERS_TOGETHER = 2**17  # gathered at a time on a CPU: what stays in its cache
PAIRS_TOGETHER = 8  # on a GPU: enough to fill it, few enough for its memory


@dataclass(frozen=True)
class Splits(ABC):
    """The children of a batch (rows that are not yet known are not read) and their exponents."""

    layout: Ragged
    children: Float[Tensor, "2 span rank"]
    exponent: Int[Tensor, "span"]

    @abstractmethod
    def inside(self, width: int, weighted: bool, total: Float[Tensor, "row rank"]) -> Int[Tensor, "row"]:
        """Writes the sums of all spans of a width to `total`; returns the exponents they are to be multiplied with.

        These are the largest of a pair. If not `weighted`, all exponents are zero, and so are these.
        """

    @abstractmethod
    def outside(
        self, width: int, above: Float[Tensor, "wide rank"], above_exponent: Int[Tensor, "span"], weighted: bool
    ) -> Float[Tensor, "2 row rank"]:
        """Derivatives with respect to the children of a width, from those with respect to the sums of wider spans.

        `above`: these, a row for each span of two words or more (as wide as `width` or narrower: not read);
        `above_exponent`: exponents of the sums, by rows of the children. If not `weighted`, all exponents are zero.
        """

    def _zeros(self, *shape: int) -> Tensor:
        return self.children.new_zeros(*shape, self.children.shape[2])


def splits_of(layout: Ragged, children: Float[Tensor, "2 span rank"], exponent: Int[Tensor, "span"]) -> Splits:
    equally_long = layout.alive[layout.longest] == len(layout.lengths)
    kind = BlockSplits if equally_long and children.device.type == "cpu" else GatheredSplits
    return kind(layout, children, exponent)


class BlockSplits(Splits):
    """For sentences of one length, on a CPU: the row of a span is that of its width, plus begin * sentences + place.

    The rows of a pair are then a block of each table, in the same order. Blocks are views; making one takes as long as
    adding up a small one, so none is made twice.
    """

    def inside(self, width: int, weighted: bool, total: Float[Tensor, "row rank"]) -> Int[Tensor, "row"]:
        offsets, count, sentences = self.layout.offsets, len(total), len(self.layout.lengths)
        lefts = [slice(offsets[k], offsets[k] + count) for k in range(1, width)]
        starts = [offsets[width - k] + k * sentences for k in range(1, width)]
        rights = [slice(start, start + count) for start in starts]
        targets = [total] * len(lefts)
        if not weighted:
            _sum_blocks(total, targets, _blocks(self.children[0], lefts), _blocks(self.children[1], rights))
            return self.exponent.new_zeros(count)
        exponent = torch.cat(_blocks(self.exponent, lefts)) + torch.cat(_blocks(self.exponent, rights))
        exponent = exponent.view(-1, count)
        base = exponent.amax(0)
        weights = power_of_two(exponent - base, total.dtype).unsqueeze(2).unbind()
        blocks = _blocks(self.children[0], lefts), _blocks(self.children[1], rights)
        _sum_weighted_blocks(total, targets, *blocks, weights)
        return base.clamp(min=ZERO)

    def outside(
        self, width: int, above: Float[Tensor, "wide rank"], above_exponent: Int[Tensor, "span"], weighted: bool
    ) -> Float[Tensor, "2 row rank"]:
        layout = self.layout
        if width == layout.longest:
            return self._zeros(2, layout.num_spans(width))
        found = torch.empty_like(self.children[:, layout.spans(width)])
        wider = range(width + 1, layout.longest + 1)
        counts = [layout.num_spans(W) for W in wider]
        parents = above[layout.wide(width).stop :].split(counts)
        for side in (0, 1):
            own, siblings = self._rows_in_wider(width, side)
            targets, partners = _blocks(found[side], own), _blocks(self.children[1 - side], siblings)
            if not weighted:
                _sum_blocks(found[side], targets, parents, partners)
                continue
            exponent = torch.cat(_blocks(self.exponent[layout.spans(width)], own))
            exponent += torch.cat(_blocks(self.exponent, siblings))
            exponent -= above_exponent[layout.spans(width).stop :]
            weights = _limited_power(exponent, found.dtype).unsqueeze(1).split(counts)
            _sum_weighted_blocks(found[side], targets, parents, partners, weights)
        return found

    def _rows_in_wider(self, width: int, side: int) -> tuple[list[slice], list[slice]]:
        """For each wider width W: which spans of a width are a left (side 0) or right part of W's, and their siblings.

        Every span of W has one of each. Left parts begin with it: they are the first of their width. Right parts end
        with it: they are the last.
        """
        layout, sentences = self.layout, len(self.layout.lengths)
        own, siblings = [], []
        for wider in range(width + 1, layout.longest + 1):
            count, start, sibling = layout.num_spans(wider), 0, layout.offsets[wider - width]
            if side == 0:
                sibling += width * sentences
            else:
                start = (wider - width) * sentences
            own.append(slice(start, start + count))
            siblings.append(slice(sibling, sibling + count))
        return own, siblings


def _limited_power(exponent: Int[Tensor, "*pairs"], dtype: torch.dtype) -> Float[Tensor, "*pairs"]:
    """2^exponent for derivatives. What is possible and not lost has exponents below the limit; what is not has zeros as
    derivatives above, which infinities would make NaN."""
    return power_of_two(exponent.clamp(max=-math.frexp(lowest(dtype))[1]), dtype)


def _blocks(table: Tensor, rows: Sequence[slice]) -> list[Tensor]:
    return [table[some] for some in rows]


def _sum_blocks(total: Tensor, targets: Sequence[Tensor], firsts: Sequence[Tensor], seconds: Sequence[Tensor]) -> None:
    """Adds all products to their targets, which are parts of `total`; the first of them is the largest."""
    if len(targets[0]) < len(total):
        total.zero_()
    torch.mul(firsts[0], seconds[0], out=targets[0])
    for target, first, second in zip(targets[1:], firsts[1:], seconds[1:], strict=True):
        target.addcmul_(first, second)


def _sum_weighted_blocks(
    total: Tensor,
    targets: Sequence[Tensor],
    firsts: Sequence[Tensor],
    seconds: Sequence[Tensor],
    weights: Sequence[Tensor],
) -> None:
    """The same with a weight for each row of a product."""
    total.zero_()
    room = torch.empty_like(total)
    for target, first, second, weight in zip(targets, firsts, seconds, weights, strict=True):
        scaled = torch.mul(second, weight, out=room[: len(second)])
        target.addcmul_(first, scaled)


class GatheredSplits(Splits):
    """For any lengths, on any device. Gather form: nothing is added from two places at once."""

    def inside(self, width: int, weighted: bool, total: Float[Tensor, "row rank"]) -> Int[Tensor, "row"]:
        pairs, weight, base = inside_pairs(self.layout, width), None, self.exponent.new_zeros(len(total))
        if weighted:
            exponent = self.exponent[pairs.first] + self.exponent[pairs.second]
            base = exponent.amax(0)
            weight = power_of_two(exponent - base, total.dtype)
        total.zero_()
        _add_gathered(total, self.children[0], self.children[1], pairs, weight)
        return base.clamp(min=ZERO)

    def outside(
        self, width: int, above: Float[Tensor, "wide rank"], above_exponent: Int[Tensor, "span"], weighted: bool
    ) -> Float[Tensor, "2 row rank"]:
        rows = self.layout.spans(width)
        found = self._zeros(2, rows.stop - rows.start)
        for side, make in enumerate((left_pairs, right_pairs) if width < self.layout.longest else ()):
            pairs = make(self.layout, width)
            weight = None if pairs.exists is None else pairs.exists.to(found.dtype)
            if weighted:
                exponent = self.exponent[rows] + self.exponent[pairs.second] - above_exponent[pairs.first]
                power = _limited_power(exponent, found.dtype)
                weight = power if pairs.exists is None else power.where(pairs.exists, 0)
            pairs = pairs._replace(first=pairs.first - self.layout.num_tokens)
            _add_gathered(found[side], above, self.children[1 - side], pairs, weight)
        return found


def _add_gathered(
    total: Tensor, first: Tensor, second: Tensor, pairs: Pairs, weight: Float[Tensor, "pair row"] | None
) -> None:
    """total[row] += sum over pairs of weight * first * second."""
    start = 0
    while start < len(pairs.extent):
        extent = pairs.extent[start]
        num_rows = extent.stop - extent.start
        stop = start + _num_together(num_rows, total)
        shape = (-1, num_rows, total.shape[1])
        product = second.index_select(0, pairs.second[start:stop, extent].flatten()).view(shape)
        if weight is not None:
            product *= weight[start:stop, extent, None]
        product *= first.index_select(0, pairs.first[start:stop, extent].flatten()).view(shape)
        total[extent] += product.sum(0)
        start = stop


def _num_together(num_rows: int, total: Tensor) -> int:
    if total.device.type != "cpu":
        return PAIRS_TOGETHER
    return max(1, NUMBERS_TOGETHER // max(1, num_rows * total.shape[1]))
