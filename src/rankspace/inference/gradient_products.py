"""Products with derivatives, of which nothing is computed that would make an error of 1e-5 larger.

In "highest", on a GPU, large ones are three products of halves in bfloat16 (`kernels/halves.py`); others are as in
`links`.
"""

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from rankspace.devices import is_gpu
from rankspace.inference.links import Precision, add_product, operand, product

WORTH = 256  # rows and columns of a table from which three products of halves are sooner than one in float32


@dataclass(frozen=True)
class Factor:
    """A table that several products read, prepared for them once: derivatives, or what meets them."""

    precision: Precision
    table: Float[Tensor, "row column"] | None
    halves: Any = None  # `Halves` of a large table; where there is no other they are all there is of it

    @classmethod
    def of(cls, table: Float[Tensor, "row column"], precision: Precision) -> "Factor":
        if not is_halved(table, precision):
            return cls(precision, table)
        from rankspace.kernels.halves import halves

        return cls(precision, table, halves(table))

    @property
    def T(self) -> "Factor":  # noqa: N802, as tensors have it
        table = None if self.table is None else self.table.T
        return Factor(self.precision, table, None if self.halves is None else self.halves.T)

    def times(
        self, other: "Float[Tensor, 'column _'] | Factor", out: Tensor | None = None, portion: int | None = None
    ) -> Float[Tensor, "row _"]:
        """table @ other in float32, written to `out` if it is given. Halves are multiplied in portions of the columns,
        if that is asked for: sums of one portion lose less to the matrix units, which cut off."""
        factor = other if isinstance(other, Factor) else Factor.of(other, self.precision)
        if self.halves is not None and factor.halves is not None:
            return _three_products(self.halves, factor.halves, out, portion)
        assert self.table is not None
        assert factor.table is not None
        return product(self.table, factor.table, self.precision, out)

    def rounded_times(self, other: Float[Tensor, "column _"]) -> Float[Tensor, "row _"]:
        """table @ other, as an operand of products: in "medium" rounded once, not twice."""
        if self.precision == "medium" and self.table is not None and is_gpu(self.table.device):
            return torch.mm(self.table, other)
        return operand(self.times(other), self.precision)


def is_halved(table: Float[Tensor, "row column"], precision: Precision) -> bool:
    """Whether products with a table are sooner in halves."""
    return precision == "highest" and is_gpu(table.device) and min(table.shape) >= WORTH


def _three_products(a: Any, b: Any, out: Tensor | None, portion: int | None) -> Float[Tensor, "row column"]:
    """Of two tables in halves: all but that of what is left of both."""
    found: Tensor = product(a.low, b.high, "medium", out)
    add_product(found, a.high, b.low)
    count = a.high.shape[1]
    step = count if portion is None else portion
    for first in range(0, count, step):
        add_product(found, a.high[:, first : first + step], b.high[first : first + step])
    return found
