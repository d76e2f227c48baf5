"""The link of a chain whose words say which states are alive: a block of the transition for each pair of words."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from rankspace.inference.links import Precision, product


@dataclass(frozen=True)
class BlockLink:
    """y = x B, with a block B for each row: the link is told the words.

    Only the distinct blocks that occur are held, so they are never more than the table they were cut from. Costs
    |rows| * in * out. `apply` and its transpose copy a block for each row, and are meant for the rows of one step
    (`at`); `gradients` and `tangent` take all steps, and multiply the rows of one block at once.
    """

    blocks: Float[Tensor, "pair in out"]
    pairs: Int[Tensor, "row"]  # the block of each row
    precision: Precision = "highest"

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return (self.blocks,)

    @property
    def size_in(self) -> int:
        return self.blocks.shape[1]

    @property
    def size_out(self) -> int:
        return self.blocks.shape[2]

    def like(self, tensors: tuple[Tensor, ...]) -> "BlockLink":
        (blocks,) = tensors
        return BlockLink(blocks, self.pairs, self.precision)

    def at(self, rows: slice | Tensor) -> "BlockLink":
        """The link for some of the rows."""
        return BlockLink(self.blocks, self.pairs[rows], self.precision)

    def apply(self, x: Float[Tensor, "row in"]) -> Float[Tensor, "row out"]:
        return product(x[:, None], self._chosen(), self.precision)[:, 0]

    def transposed(self, y: Float[Tensor, "row out"]) -> Float[Tensor, "row in"]:
        return product(self._chosen(), y[:, :, None], self.precision)[:, :, 0]

    def _chosen(self) -> Float[Tensor, "row in out"]:
        return self.blocks.index_select(0, self.pairs)

    def gradients(self, x: Float[Tensor, "row in"], y: Float[Tensor, "row out"]) -> tuple[Tensor, ...]:
        found = torch.zeros_like(self.blocks)
        for pairs, rows in self._groups():
            found[pairs] = product(x[rows].transpose(1, 2), y[rows], self.precision)
        return (found,)

    def tangent(self, direction: "BlockLink", x: Float[Tensor, "row in"]) -> Float[Tensor, "row out"]:
        found = x.new_empty(len(x), self.size_out)
        for pairs, rows in self._groups():
            found[rows] = product(x[rows], direction.blocks[pairs], self.precision)
        return found

    def entries(self, outputs: Int[Tensor, "row"]) -> Float[Tensor, "row in"]:
        """Of each row's block, how much of each input one output takes."""
        return self.blocks[self.pairs, :, outputs]

    def _groups(self) -> Iterator[tuple[Int[Tensor, "block"], Int[Tensor, "block row"]]]:
        """Blocks that have equally many rows, and those rows: at most sqrt(2 |rows|) batched products take them all."""
        counts = torch.bincount(self.pairs, minlength=len(self.blocks))
        begins = counts.cumsum(0) - counts
        order = torch.argsort(self.pairs, stable=True)
        for count in counts.unique().tolist():
            if count:
                pairs = (counts == count).nonzero()[:, 0]
                yield pairs, order[begins[pairs][:, None] + torch.arange(count, device=order.device)]
