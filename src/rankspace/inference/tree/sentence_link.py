"""A link with a matrix for each sentence, applied to the rows of spans by products over sentences."""

from bisect import bisect_right
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from rankspace.inference.links import DenseLink, FactoredLink, Link
from rankspace.inference.ragged import Ragged


class Grid(NamedTuple):
    """Rows as a table [place, column], padded where sentences have fewer than others."""

    num_places: int  # the first ones; others have no rows
    num_columns: int
    cell: Int[Tensor, "row"] | None  # place * num_columns + column; None: rows are ordered by column, then place

    def padded(self, rows: Float[Tensor, "row size"]) -> Float[Tensor, "place column size"]:
        """With zeros where there is no row; a view where every place has all columns."""
        if self.cell is None:
            return rows.reshape(self.num_columns, self.num_places, rows.shape[1]).transpose(0, 1)
        table = rows.new_zeros(self.num_places * self.num_columns, rows.shape[1]).index_copy(0, self.cell, rows)
        return table.view(self.num_places, self.num_columns, rows.shape[1])

    def rows(self, table: Float[Tensor, "place column size"]) -> Float[Tensor, "row size"]:
        if self.cell is None:
            return table.transpose(0, 1).reshape(self.num_places * self.num_columns, table.shape[2])
        return table.flatten(0, 1).index_select(0, self.cell)


@dataclass(frozen=True)
class SentenceLink:
    """y = M x with the matrix of the sentence that a row belongs to; `stack` holds them all, by places.

    `at` is told rows of the table of spans, in the order of `Ragged`, and must be asked before the link is applied.
    Rows are padded to as many as the longest sentence has: costs as many products of the stack's link. Gradients are
    those of the first few places, which have rows.
    """

    stack: DenseLink | FactoredLink  # of tensors [place, ...]
    layout: Ragged
    grid: Grid | None = None

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return self.stack.tensors

    @property
    def size_in(self) -> int:
        return self.stack.size_in

    @property
    def size_out(self) -> int:
        return self.stack.size_out

    def like(self, tensors: tuple[Tensor, ...]) -> "SentenceLink":
        return replace(self, stack=self.stack.like(tensors))

    def at(self, rows: slice | Tensor) -> "SentenceLink":
        """The link for all spans of a width (a slice), or for any rows of the table of spans."""
        return replace(self, grid=_grid(self.layout, rows) if isinstance(rows, slice) else _grid_of(self.layout, rows))

    def apply(self, x: Float[Tensor, "row in"]) -> Float[Tensor, "row out"]:
        grid, stack = self._told()
        return grid.rows(stack.apply(grid.padded(x)))

    def transposed(self, y: Float[Tensor, "row out"]) -> Float[Tensor, "row in"]:
        grid, stack = self._told()
        return grid.rows(stack.transposed(grid.padded(y)))

    def gradients(self, x: Float[Tensor, "row in"], y: Float[Tensor, "row out"]) -> tuple[Tensor, ...]:
        grid, stack = self._told()
        return stack.gradients(grid.padded(x), grid.padded(y))

    def tangent(self, direction: "SentenceLink", x: Float[Tensor, "row in"]) -> Float[Tensor, "row out"]:
        grid, stack = self._told()
        moved = direction.stack.like(tuple(tensor[: grid.num_places] for tensor in direction.tensors))
        if isinstance(stack, DenseLink):
            return grid.rows(moved.apply(grid.padded(x)))
        assert isinstance(moved, FactoredLink)
        return grid.rows(stack.tangent(moved, grid.padded(x)))

    def entries(self, outputs: Int[Tensor, "row"]) -> Float[Tensor, "row in"]:
        one = torch.nn.functional.one_hot(outputs, self.size_out)
        return self.transposed(one.to(self.tensors[0].dtype))

    def _told(self) -> tuple[Grid, DenseLink | FactoredLink]:
        assert self.grid is not None, "SentenceLink: ask for `at(rows)` first"
        alive = self.grid.num_places
        return self.grid, self.stack.like(tuple(tensor[:alive] for tensor in self.tensors))


def over_sentences(link: DenseLink | FactoredLink, layout: Ragged) -> Link:
    """The link as it is, or, where its tensors are stacks, one that knows the sentences of rows."""
    return link if link.tensors[0].dim() == 2 else SentenceLink(link, layout)


def _grid(layout: Ragged, rows: slice) -> Grid:
    """Of all spans of the width whose rows these are: columns are their begins."""
    width = bisect_right(layout.offsets, rows.start) - 1
    num_places, num_columns = layout.alive[width], layout.longest - width + 1
    if layout.num_spans(width) == num_places * num_columns:
        return Grid(num_places, num_columns, None)
    return Grid(num_places, num_columns, layout.span_place(width) * num_columns + layout.span_begin(width))


def _grid_of(layout: Ragged, rows: Int[Tensor, "row"]) -> Grid:
    """Of any rows: the columns of a place are its rows in their order."""
    place = layout.places[rows]
    counts = torch.bincount(place, minlength=len(layout.lengths))
    order = torch.argsort(place, stable=True)
    column = torch.empty_like(place)
    column[order] = torch.arange(len(place), device=place.device) - (counts.cumsum(0) - counts)[place[order]]
    num_columns = int(counts.max())
    return Grid(len(counts), num_columns, place * num_columns + column)
