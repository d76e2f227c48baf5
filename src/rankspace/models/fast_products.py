"""Matrix products of float32 tables in three precisions, each as fast as the device does it.

"highest": float32 accuracy; on a GPU three tf32 products of what the operands round to and of what that leaves; for
derivatives see `inference/gradient_products.py`. "high": one tf32 product. "medium": operands in bfloat16, sums in
float32.
"""

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from rankspace.devices import is_gpu
from rankspace.inference import links
from rankspace.inference.differentiation import first_derivatives_only, tell_of_lacks, without_autocast
from rankspace.inference.gradient_products import Factor
from rankspace.inference.links import Precision, operand

WORTH = 1024  # rows and columns of a result from which three tf32 products are much sooner than one in float32
SHORT = 1024  # terms of sums for which operands may be laid one after the other: at most three of them at once
MULTIPLE = 16  # of rows and columns at which products are fast
MIDDLE = 4096  # terms that the matrix units sum before the sum is rounded properly: they cut off what they cannot hold
TRUNCATED = -(2**13)  # keeps the bits of a float32 that tf32 has


def product(
    a: Float[Tensor, "row middle"], b: Float[Tensor, "middle column"], precision: Precision
) -> Float[Tensor, "row column"]:
    """a @ b in float32, for operands of the precision."""
    if not is_gpu(a.device):
        return a.float() @ b.float()
    if precision == "medium":
        return links.product(a, b, precision)
    if precision == "high":
        return _plain(a, b, True)
    if min(a.shape[0], b.shape[1]) < WORTH:
        return _plain(a, b, False)
    return _three_at_once(a, b) if a.shape[1] <= SHORT else _three_products(a, b)


def meeting(
    rows: Float[Tensor, "row middle"], others: Float[Tensor, "other middle"], precision: Precision
) -> Float[Tensor, "row other"]:
    """rows @ others^T in float32, for tables in float32 or operands of the precision; differentiable, by products of
    the same precision."""
    apply: Callable[..., Tensor] = _Meeting.apply
    return apply(rows, others, precision)


@tell_of_lacks
class _Meeting(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, others: Tensor, precision: Precision) -> Tensor:
        kept = operand(rows, precision), operand(others, precision)
        ctx.save_for_backward(*kept)
        ctx.precision, ctx.dtypes = precision, (rows.dtype, others.dtype)
        with without_autocast(rows.device):
            return product(kept[0], kept[1].T, precision)

    @staticmethod
    @first_derivatives_only
    def backward(ctx: Any, slopes: Tensor) -> tuple[Tensor | None, ...]:
        rows, others = ctx.saved_tensors
        given = Factor.of(operand(slopes, ctx.precision), ctx.precision)
        of_rows = _derivatives(given, others, ctx.dtypes[0]) if ctx.needs_input_grad[0] else None
        of_others = _derivatives(given.T, rows, ctx.dtypes[1]) if ctx.needs_input_grad[1] else None
        return of_rows, of_others, None


def _derivatives(slopes: Factor, other: Tensor, dtype: torch.dtype) -> Tensor:
    """Of a table of some dtype: the product writes it, instead of one more pass over the result."""
    return slopes.rounded_times(other) if dtype == torch.bfloat16 else slopes.times(other)


def product_into(out: Float[Tensor, "row column"], a: Tensor, b: Tensor, precision: Precision) -> None:
    """a @ b, rounded to the dtype of operands, written to rows that may have gaps between them."""
    if precision == "medium" and is_gpu(a.device):
        torch.mm(a, b, out=out)
    else:
        out.copy_(product(a, b, precision))


def aligned(num_rows: int, num_columns: int, like: Tensor) -> Float[Tensor, "row column"]:
    """A table that nothing was written to, whose rows begin at 32 bytes: products of any size find them aligned."""
    return like.new_empty(num_rows, -(-num_columns // MULTIPLE) * MULTIPLE)[:, :num_columns]


def _three_products(a: Float[Tensor, "row middle"], b: Float[Tensor, "middle column"]) -> Float[Tensor, "row column"]:
    """A sum over portions of the middle, the smallest products first. What both leave together is below float32."""
    found = a.new_zeros(a.shape[0], b.shape[1])
    with links.tf32(a.device, allowed=True):
        for first in range(0, a.shape[1], MIDDLE):
            (a_high, a_low), (b_high, b_low) = (
                _leading(part) for part in (a[:, first : first + MIDDLE], b[first : first + MIDDLE])
            )
            found.addmm_(a_low, b_high).addmm_(a_high, b_low).addmm_(a_high, b_high)
    return found


def _three_at_once(a: Float[Tensor, "row middle"], b: Float[Tensor, "middle column"]) -> Float[Tensor, "row column"]:
    """The same three as one product of operands that lie one after the other: nothing is written but the result."""
    (a_high, a_low), (b_high, b_low) = (_leading(table) for table in (a, b.T))  # b is most often a table turned
    with links.tf32(a.device, allowed=True):
        return _in_a_row(a_low, a_high, a_high) @ _in_a_row(b_high, b_low, b_high).T


def _in_a_row(*tables: Float[Tensor, "row _"]) -> Float[Tensor, "row _"]:
    """With zeros behind them, so that rows begin where products are fast."""
    num_columns = sum(table.shape[1] for table in tables)
    return torch.cat([*tables, tables[0].new_zeros(len(tables[0]), -num_columns % MULTIPLE)], 1)


def _leading(table: Float[Tensor, "row column"]) -> tuple[Float[Tensor, "row column"], Float[Tensor, "row column"]]:
    """The leading bits of each number, and the rest, exactly."""
    high = (table.view(torch.int32) & TRUNCATED).view(torch.float32)
    return high, table - high


def _plain(a: Tensor, b: Tensor, rounded: bool) -> Tensor:
    with links.tf32(a.device, allowed=rounded):
        return a @ b
