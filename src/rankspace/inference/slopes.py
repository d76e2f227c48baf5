"""Products with derivatives, of which nothing is computed that would make an error of 1e-5 larger.

In "highest", on a GPU, large ones are three products of halves in bfloat16 (`kernels/halves.py`); others are as in
`links`.
"""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from rankspace.inference.links import Precision, add_product, operand, product

WORTH = 256  # rows and columns of a table from which three products of halves are sooner than one in float32


class Factor:
    """A table that several products read, prepared for them once: derivatives, or what meets them."""

    def __init__(self, table: Float[Tensor, "row column"], precision: Precision) -> None:
        self._table, self._precision, self._halves = table, precision, _halves_if_worth_it(table, precision)

    @property
    def T(self) -> "Factor":  # noqa: N802, as tensors have it
        found = object.__new__(Factor)
        found._table, found._precision = self._table.T, self._precision
        found._halves = None if self._halves is None else self._halves.T
        return found

    def times(self, other: "Float[Tensor, 'column _'] | Factor", out: Tensor | None = None) -> Float[Tensor, "row _"]:
        """table @ other in float32, written to `out` if it is given."""
        factor = other if isinstance(other, Factor) else Factor(other, self._precision)
        if self._halves is not None and factor._halves is not None:
            return _three_products(self._halves, factor._halves, out)
        return product(self._table, factor._table, self._precision, out)

    def rounded_times(self, other: Float[Tensor, "column _"]) -> Float[Tensor, "row _"]:
        """table @ other, as an operand of products: in "medium" rounded once, not twice."""
        if self._precision == "medium" and self._table.device.type == "cuda":
            return torch.mm(self._table, other)
        return operand(self.times(other), self._precision)


def gradient_product(
    a: Float[Tensor, "row middle"], b: Float[Tensor, "middle column"], precision: Precision
) -> Float[Tensor, "row column"]:
    """a @ b in float32, for operands of the precision, one of which at least are derivatives."""
    return Factor(a, precision).times(b)


def _halves_if_worth_it(table: Float[Tensor, "row column"], precision: Precision) -> Any:
    """`Halves` of a table where products of them are sooner; nothing elsewhere."""
    if precision != "highest" or table.device.type != "cuda" or min(table.shape) < WORTH:
        return None
    from rankspace.kernels.halves import halves

    return halves(table)


def _three_products(a: Any, b: Any, out: Tensor | None) -> Float[Tensor, "row column"]:
    """Of two tables in halves: all but that of what is left of both."""
    found: Tensor = product(a.low, b.high, "medium", out)
    add_product(found, a.high, b.low)
    add_product(found, a.high, b.high)
    return found
