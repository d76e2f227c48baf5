"""Links: the linear maps that a vector passes through between two meetings (ARCHITECTURE, section 7).

The models differ in the link alone. An engine sees `apply`, its transpose, and how both depend on the link's tensors;
whether a product of two matrices was multiplied out beforehand (rank order) or not (state order) is no concern of it.
Vectors are rows.
"""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from rankspace.devices import is_gpu
from rankspace.inference.torch_precision import multiplying_on_gpu

Precision = Literal["highest", "high", "medium"]
OUTPUTS_FLOAT32 = torch.__version__ >= "2.8"  # of products of bfloat16 on a GPU


@runtime_checkable
class Link(Protocol):
    """A linear map from vectors of `size_in` numbers to vectors of `size_out`."""

    @property
    def tensors(self) -> tuple[Tensor, ...]: ...

    @property
    def size_in(self) -> int: ...

    @property
    def size_out(self) -> int: ...

    def like(self, tensors: tuple[Tensor, ...]) -> "Link":
        """The same kind of link with other tensors."""

    def at(self, rows: slice | Tensor) -> "Link":
        """The link for some rows of those it is about; all are the same unless it is told the words (`BlockLink`)."""

    def apply(self, x: Float[Tensor, "row in"]) -> Float[Tensor, "row out"]: ...

    def transposed(self, y: Float[Tensor, "row out"]) -> Float[Tensor, "row in"]: ...

    def gradients(self, x: Float[Tensor, "row in"], y: Float[Tensor, "row out"]) -> tuple[Tensor, ...]:
        """Derivatives of sum(y * apply(x)) with respect to the tensors: one product over all rows for each."""

    def tangent(self, direction: Any, x: Float[Tensor, "row in"]) -> Float[Tensor, "row out"]:
        """Derivative of apply(x) when the tensors move along those of another link."""

    def entries(self, outputs: Tensor) -> Float[Tensor, "row in"]:
        """Rows of the matrix at some outputs: how much of each input each of them takes."""


@dataclass(frozen=True)
class DenseLink:
    """y = M x. Costs |rows| * in * out. Matrix and rows may be stacks: then each matrix meets its own rows."""

    matrix: Float[Tensor, "*place out in"]
    precision: Precision = "highest"

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return (self.matrix,)

    @property
    def size_in(self) -> int:
        return self.matrix.shape[-1]

    @property
    def size_out(self) -> int:
        return self.matrix.shape[-2]

    def like(self, tensors: tuple[Tensor, ...]) -> "DenseLink":
        (matrix,) = tensors
        return DenseLink(matrix, self.precision)

    def at(self, rows: slice | Tensor) -> "DenseLink":
        return self

    def apply(self, x: Float[Tensor, "*place row in"]) -> Float[Tensor, "*place row out"]:
        return product(x, self.matrix.mT, self.precision)

    def transposed(self, y: Float[Tensor, "*place row out"]) -> Float[Tensor, "*place row in"]:
        return product(y, self.matrix, self.precision)

    def gradients(self, x: Float[Tensor, "*place row in"], y: Float[Tensor, "*place row out"]) -> tuple[Tensor, ...]:
        return (product(y.mT, x, self.precision),)

    def tangent(self, direction: "DenseLink", x: Float[Tensor, "*place row in"]) -> Float[Tensor, "*place row out"]:
        return direction.apply(x)

    def entries(self, outputs: Tensor) -> Float[Tensor, "row in"]:
        return self.matrix.index_select(0, outputs)


@dataclass(frozen=True)
class FactoredLink:
    """y = B (A x) through a third space, never multiplied out. Costs |rows| * middle * (in + out).

    Matrices and rows may be stacks: then each pair of matrices meets its own rows.
    """

    second: Float[Tensor, "*place out middle"]  # B
    first: Float[Tensor, "*place middle in"]  # A
    precision: Precision = "highest"

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return (self.second, self.first)

    @property
    def size_in(self) -> int:
        return self.first.shape[-1]

    @property
    def size_out(self) -> int:
        return self.second.shape[-2]

    def like(self, tensors: tuple[Tensor, ...]) -> "FactoredLink":
        second, first = tensors
        return FactoredLink(second, first, self.precision)

    def at(self, rows: slice | Tensor) -> "FactoredLink":
        return self

    def apply(self, x: Float[Tensor, "*place row in"]) -> Float[Tensor, "*place row out"]:
        return product(self.middle(x), self.second.mT, self.precision)

    def middle(self, x: Float[Tensor, "*place row in"]) -> Float[Tensor, "*place row middle"]:
        """A x: what passes through the third space."""
        return product(x, self.first.mT, self.precision)

    def transposed(self, y: Float[Tensor, "*place row out"]) -> Float[Tensor, "*place row in"]:
        return product(self.middle_transposed(y), self.first, self.precision)

    def middle_transposed(self, y: Float[Tensor, "*place row out"]) -> Float[Tensor, "*place row middle"]:
        """B^T y."""
        return product(y, self.second, self.precision)

    def gradients(self, x: Float[Tensor, "*place row in"], y: Float[Tensor, "*place row out"]) -> tuple[Tensor, ...]:
        of_second = product(y.mT, self.middle(x), self.precision)
        return of_second, product(self.middle_transposed(y).mT, x, self.precision)

    def tangent(self, direction: "FactoredLink", x: Float[Tensor, "*place row in"]) -> Float[Tensor, "*place row out"]:
        moved = product(direction.middle(x), self.second.mT, self.precision)
        return moved + product(self.middle(x), direction.second.mT, self.precision)

    def entries(self, outputs: Tensor) -> Float[Tensor, "row in"]:
        return product(self.second.index_select(0, outputs), self.first, self.precision)

    def multiplied(self) -> DenseLink:
        """The same map as one matrix: out * middle * in once, then |rows| * in * out."""
        return DenseLink(product(self.second, self.first, self.precision), self.precision)


def operand(tensor: Float[Tensor, "*shape"], precision: Precision) -> Float[Tensor, "*shape"]:
    """What products of a precision read, where it is kept for several of them: bfloat16 in "medium"."""
    return tensor.bfloat16() if precision == "medium" else tensor


def product(
    a: Float[Tensor, "*batch row middle"],
    b: Float[Tensor, "*batch middle column"],
    precision: Precision,
    out: Tensor | None = None,
) -> Tensor:
    """a @ b, written to `out` if it is given. "highest": in the dtype of the operands. "high" and "medium": float32 in
    tf32 where the device has it.

    Matrices in bfloat16 already, which `operand` makes of what is kept in "medium", give their product in float32, or
    in the dtype of `out`. Others are not rounded to it: rows of a table would sum to one within thousandths only."""
    if a.dtype == torch.bfloat16:
        return _rounded_late(a, b, out)
    if a.dtype != torch.float32 or (a.device.type == "cpu" and precision == "highest"):
        return torch.matmul(a, b, out=out)
    with tf32(a.device, allowed=precision != "highest"):
        return torch.matmul(a, b, out=out)


def _rounded_late(a: Tensor, b: Tensor, out: Tensor | None) -> Tensor:
    """A product of two matrices in bfloat16 whose sums are rounded to the dtype of the result, not before."""
    if is_gpu(a.device) and out is not None and out.dtype == torch.bfloat16:
        return torch.mm(a, b, out=out)
    if is_gpu(a.device) and OUTPUTS_FLOAT32:
        return torch.mm(a, b, out_dtype=torch.float32, **({} if out is None else {"out": out}))
    with tf32(a.device, allowed=True):  # as exact, for what has 8 bits
        found = a.float() @ b.float()
    return found if out is None else out.copy_(found)


def add_product(total: Float[Tensor, "row column"], a: Tensor, b: Tensor) -> None:
    """Adds a product of two matrices in bfloat16 to one in float32."""
    if is_gpu(a.device) and OUTPUTS_FLOAT32:
        torch.addmm(total, a, b, out_dtype=torch.float32, out=total)
        return
    with tf32(a.device, allowed=True):  # as exact, for what has 8 bits
        total.addmm_(a.float(), b.float())


def tf32(device: torch.device, allowed: bool) -> AbstractContextManager[None]:
    """Whether products on a GPU may round their operands, whatever is set for the process."""
    return multiplying_on_gpu(allowed) if is_gpu(device) else nullcontext()
