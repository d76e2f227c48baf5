"""Sums over the splits of spans, forward and backward: the cubic part of the tree engine.

A table of children [side, span, R] has each span's vector as a left child (side 0) and as a right child (side 1). Spans
of one width are one block of rows. All sums here have one form: a row of the result is the sum over *pairs* of the
product of two rows, times a weight, an exact power of two that makes up for their exponents:

    inside             sum over k:  left(i, k) * right(k, j)      a pair for each split
    outside, left      sum over j:  above(i, j) * right(k, j)     a pair for each wider span that begins at i
    outside, right     sum over i:  above(i, j) * left(i, k)      a pair for each wider span that ends at j

Within a width, rows are ordered by the ends of spans. So the right parts of all spans of a width, for one k, are the
last rows of theirs, in the same order: a block of the table. The left parts are one, too, where sentences are equally
long (`BlockSplits`), else they are gathered (`RaggedSplits`). On a GPU, where a call is dear, so are all rows, for
several pairs at a time (`GatheredSplits`). Temporaries are a few times one width's rows; exponents and numbers of rows
of all pairs of a width are looked at together, at most length^2 / 2 for each sentence.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from rankspace.inference.ragged import Ragged
from rankspace.inference.scaled import ZERO, lowest, power_of_two
from rankspace.inference.tree.pairs import Pairs, WiderSpans, first_parts, inside_pairs, left_pairs, right_pairs

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
    ) -> Float[Tensor, "row both"]:
        """Derivatives with respect to the children of a width, from those with respect to the sums of wider spans.

        `above`: these, a row for each span of two words or more (as wide as `width` or narrower: not read);
        `above_exponent`: exponents of the sums, by rows of the children. If not `weighted`, all exponents are zero.
        """

    def _last_rows(self, table: Tensor, width: int) -> tuple[Tensor, ...]:
        """Of each narrower width, from one word on: the last rows, as many as the width has."""
        count, offsets = self.layout.num_spans(width), self.layout.offsets
        sizes = [count] * (2 * width - 2)
        sizes[::2] = [stop - start - count for start, stop in pairwise(offsets[1 : width + 1])]
        blocks: tuple[Tensor, ...] = table[: offsets[width]].split(sizes)
        return blocks[1::2]


def splits_of(layout: Ragged, children: Float[Tensor, "2 span rank"], exponent: Int[Tensor, "span"]) -> Splits:
    if children.device.type != "cpu":
        return GatheredSplits(layout, children, exponent)
    equally_long = layout.alive[layout.longest] == len(layout.lengths)
    return (BlockSplits if equally_long else RaggedSplits)(layout, children, exponent)


def _limited_power(exponent: Int[Tensor, "*pairs"], dtype: torch.dtype) -> Float[Tensor, "*pairs"]:
    """2^exponent for derivatives. What is possible and not lost has exponents below the limit; what is not has zeros as
    derivatives above, which infinities would make NaN."""
    return power_of_two(exponent.clamp(max=-math.frexp(lowest(dtype))[1]), dtype)


class BlockSplits(Splits):
    """For sentences of one length, on a CPU: the rows of a pair are a block of each table, in the same order.

    The left parts of the spans of a width are the first rows of theirs, right parts the last ones. Blocks are views;
    making one takes as long as adding up a small one, so they are made many at a time, or two as one, or kept.
    """

    def inside(self, width: int, weighted: bool, total: Float[Tensor, "row rank"]) -> Int[Tensor, "row"]:
        base, targets = self.exponent.new_zeros(len(total)), [total.zero_()] * (width - 1)
        lefts, rights = self._first_rows(self.children[0], width), self._last_rows(self.children[1], width)[::-1]
        if not weighted:
            _add_products(targets, lefts, rights)
            return base
        exponent = torch.cat(self._first_rows(self.exponent, width))
        exponent = (exponent + torch.cat(self._last_rows(self.exponent, width)[::-1])).view(-1, len(total))
        base = exponent.amax(0)
        weights = power_of_two(exponent - base, total.dtype).unsqueeze(2)
        _add_products(targets, lefts, _scaled(rights, weights.unbind(), torch.empty_like(total)))
        return base.clamp(min=ZERO)

    def _first_rows(self, table: Tensor, width: int) -> tuple[Tensor, ...]:
        """Of each narrower width, from one word on: the first rows, as many as the width has."""
        count, offsets = self.layout.num_spans(width), self.layout.offsets
        sizes = [count] * (2 * width - 2)
        sizes[1::2] = [stop - start - count for start, stop in pairwise(offsets[1 : width + 1])]
        blocks: tuple[Tensor, ...] = table[: offsets[width]].split(sizes)
        return blocks[::2]

    def outside(
        self, width: int, above: Float[Tensor, "wide rank"], above_exponent: Int[Tensor, "span"], weighted: bool
    ) -> Float[Tensor, "row both"]:
        """Both sides at once, those of right parts before those of left parts.

        Spans that are right parts of a wider width are the last of theirs, left parts are the first ones. So the rows
        that a wider width adds to are a block around the middle of both.
        """
        layout, counts = self.layout, self._counts[width:]
        found, *targets = self._targets[width - 1 :]
        found.zero_()
        parents, siblings = above[layout.wide(width).stop :].split(counts), self._siblings(self.children, width)
        if weighted and counts:
            exponent = torch.cat(self._siblings(self.exponent.expand(2, -1), width), 1)
            exponent += self._ends(width, counts) - above_exponent[layout.spans(width).stop :]
            weights = _limited_power(exponent, found.dtype).unsqueeze(2).split(counts, 1)
            _add_products(targets, parents, _scaled(siblings, weights, torch.empty_like(found)))
        else:
            _add_products(targets, parents, siblings)
        return torch.cat([found[1], found[0]], 1)

    @cached_property
    def _counts(self) -> list[int]:
        """Spans of each width, from one word on."""
        return [self.layout.num_spans(width) for width in range(1, self.layout.longest + 1)]

    @cached_property
    def _targets(self) -> list[Float[Tensor, "2 row rank"]]:
        """For each width: as many rows as it has, before and after the middle."""
        middle, rank = self.layout.num_tokens, self.children.shape[2]
        room = self.children.new_empty(2 * middle, rank)
        return [room[middle - count : middle + count].view(2, count, rank) for count in self._counts]

    def _siblings(self, tables: Shaped[Tensor, "2 span *rank"], width: int) -> list[Tensor]:
        """What is beside parts of `width` in each wider one: the first rows of one table, the last ones of the other.

        Both as one view. In all widths it is equally far from those to these.
        """
        strides, start = tables.stride(), tables.storage_offset()
        inner, apart = tables.shape[2:], (strides[0] + width * len(self.layout.lengths) * strides[1], *strides[1:])
        return [
            tables.as_strided((2, count, *inner), apart, start + offset * strides[1])
            for count, offset in zip(self._counts[width:], self.layout.offsets[1:], strict=False)
        ]

    def _ends(self, width: int, counts: Sequence[int]) -> Int[Tensor, "2 wider"]:
        """Exponents of the last rows and of the first rows of a width, for each of some numbers of rows."""
        own = self.exponent[self.layout.spans(width)]
        last, first = [own[len(own) - count :] for count in counts], [own[:count] for count in counts]
        return torch.stack([torch.cat(last), torch.cat(first)])


def _add_products(targets: Iterable[Tensor], firsts: Iterable[Tensor], seconds: Iterable[Tensor]) -> None:
    for target, first, second in zip(targets, firsts, seconds, strict=True):
        target.addcmul_(first, second)


def _scaled(blocks: Iterable[Tensor], weights: Iterable[Tensor], room: Tensor) -> Iterator[Tensor]:
    """Each block times its weights, valid until the next one is asked for."""
    flat = room.view(-1)
    for block, weight in zip(blocks, weights, strict=True):
        yield torch.mul(block, weight, out=flat[: block.numel()].view(block.shape))


class RaggedSplits(Splits):
    """For any lengths, on a CPU: rows that are no blocks of their tables are gathered, as many as its cache holds."""

    def inside(self, width: int, weighted: bool, total: Float[Tensor, "row rank"]) -> Int[Tensor, "row"]:
        lefts, rights = first_parts(self.layout, width), self._last_rows(self.children[1], width)[::-1]
        weight, base = None, self.exponent.new_zeros(len(total))
        if weighted:
            exponent = torch.cat(self._last_rows(self.exponent, width)[::-1]).view(lefts.shape) + self.exponent[lefts]
            base = exponent.amax(0)
            weight = power_of_two(exponent - base, total.dtype).view(-1, 1)
        total.zero_()
        for pairs in _portions(len(lefts), total.numel()):
            rows = slice(pairs.start * len(total), pairs.stop * len(total))
            found = self._gathered(0, lefts.view(-1)[rows], None if weight is None else weight[rows])
            _add_products([total] * (pairs.stop - pairs.start), found.split(len(total)), rights[pairs])
        return base.clamp(min=ZERO)

    def outside(
        self, width: int, above: Float[Tensor, "wide rank"], above_exponent: Int[Tensor, "span"], weighted: bool
    ) -> Float[Tensor, "row both"]:
        """Each wider span adds to the one that is its left part, and to the one that is its right part.

        In a fixed order, for on a CPU rows are added one after the other.
        """
        layout, rank = self.layout, self.children.shape[2]
        found = self.children.new_zeros(2, layout.num_spans(width), rank)
        spans, parents = layout.spans(width), above[layout.wide(width).stop :]
        for side in (0, 1):
            own, siblings = self._wider.parts(width, side)
            weight = None
            if weighted:
                exponent = self.exponent[spans][own] + self.exponent[siblings] - above_exponent[spans.stop :]
                weight = _limited_power(exponent, found.dtype)[:, None]
            for rows in _portions(len(own), rank):
                product = self._gathered(1 - side, siblings[rows], None if weight is None else weight[rows])
                found[side].index_add_(0, own[rows], product.mul_(parents[rows]))
        return torch.cat([found[0], found[1]], 1)

    @cached_property
    def _wider(self) -> WiderSpans:
        return WiderSpans.of(self.layout)

    def _gathered(self, side: int, rows: Int[Tensor, "some"], weight: Tensor | None) -> Float[Tensor, "some rank"]:
        """Some children, times their weights; valid until the next are asked for."""
        found = torch.index_select(self.children[side], 0, rows, out=self._room[: len(rows)])
        return found if weight is None else found.mul_(weight)

    @cached_property
    def _room(self) -> Float[Tensor, "some rank"]:
        layout, rank = self.layout, self.children.shape[2]
        num_rows = max(NUMBERS_TOGETHER // max(1, rank), layout.num_tokens)
        return self.children.new_empty(min(num_rows, layout.total_spans), rank)


def _portions(count: int, size: int) -> Iterator[slice]:
    """Some of `count` things at a time, each of which is as many numbers."""
    together = max(1, NUMBERS_TOGETHER // max(1, size))
    return (slice(start, min(start + together, count)) for start in range(0, count, together))


class GatheredSplits(Splits):
    """For any lengths, on a GPU. Gather form: nothing is added from two places at once."""

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
    ) -> Float[Tensor, "row both"]:
        rows = self.layout.spans(width)
        found = self.children.new_zeros(2, rows.stop - rows.start, self.children.shape[2])
        for side, make in enumerate((left_pairs, right_pairs) if width < self.layout.longest else ()):
            pairs = make(self.layout, width)
            weight = None if pairs.exists is None else pairs.exists.to(found.dtype)
            if weighted:
                exponent = self.exponent[rows] + self.exponent[pairs.second] - above_exponent[pairs.first]
                power = _limited_power(exponent, found.dtype)
                weight = power if pairs.exists is None else power.where(pairs.exists, 0)
            pairs = pairs._replace(first=pairs.first - self.layout.num_tokens)
            _add_gathered(found[side], above, self.children[1 - side], pairs, weight)
        return torch.cat([found[0], found[1]], 1)


def _add_gathered(
    total: Tensor, first: Tensor, second: Tensor, pairs: Pairs, weight: Float[Tensor, "pair row"] | None
) -> None:
    """total[row] += sum over pairs of weight * first * second."""
    start = 0
    while start < len(pairs.extent):
        extent = pairs.extent[start]
        num_rows = extent.stop - extent.start
        stop = start + PAIRS_TOGETHER
        shape = (-1, num_rows, total.shape[1])
        product = second.index_select(0, pairs.second[start:stop, extent].flatten()).view(shape)
        if weight is not None:
            product *= weight[start:stop, extent, None]
        product *= first.index_select(0, pairs.first[start:stop, extent].flatten()).view(shape)
        total[extent] += product.sum(0)
        start = stop
