"""Matrix products of float32 tables in three precisions, each as fast as the device does it.

"highest": float32 accuracy; on a GPU three tf32 products of what the operands round to and of what that leaves.
"high": one tf32 product. "medium": operands in bfloat16, sums in float32.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from rankspace.inference import links
from rankspace.inference.differentiation import first_derivatives_only
from rankspace.inference.links import Precision

WORTH = 512  # rows and columns of a result from which three tf32 products are much sooner than one in float32
MIDDLE = 1360  # of three terms each: the matrix units cut off what they cannot hold of longer sums
TRUNCATED = -(2**13)  # keeps the bits of a float32 that tf32 has


def operand(tensor: Float[Tensor, "*shape"], precision: Precision) -> Float[Tensor, "*shape"]:
    """What products of a precision read."""
    return tensor.bfloat16() if precision == "medium" else tensor


def product(
    a: Float[Tensor, "row middle"], b: Float[Tensor, "middle column"], precision: Precision
) -> Float[Tensor, "row column"]:
    """a @ b in float32, for operands of the precision."""
    if a.device.type != "cuda":
        return a.float() @ b.float()
    if precision == "medium":
        return links.product(a, b, precision)
    if precision == "highest":
        return _three_products(a, b) if _is_worth(a, b) else _plain(a, b, False)
    return _plain(a, b, True)


def meeting(
    rows: Float[Tensor, "row middle"], others: Float[Tensor, "other middle"], precision: Precision
) -> Float[Tensor, "row other"]:
    """rows @ others^T in float32, for tables in float32; differentiable, by products of the same precision."""
    apply: Callable[..., Tensor] = _Meeting.apply
    return apply(rows, others, precision)


class _Meeting(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, others: Tensor, precision: Precision) -> Tensor:
        kept = operand(rows, precision), operand(others, precision)
        ctx.save_for_backward(*kept)
        ctx.precision = precision
        with torch.autocast(rows.device.type, enabled=False):
            return product(kept[0], kept[1].T, precision)

    @staticmethod
    @first_derivatives_only
    def backward(ctx: Any, slopes: Tensor) -> tuple[Tensor | None, ...]:
        rows, others = ctx.saved_tensors
        with torch.autocast(slopes.device.type, enabled=False):
            given = operand(slopes, ctx.precision)
            of_rows = product(given, others, ctx.precision) if ctx.needs_input_grad[0] else None
            of_others = product(given.T, rows, ctx.precision) if ctx.needs_input_grad[1] else None
        return of_rows, of_others, None


def rounded_product(a: Float[Tensor, "row middle"], b: Float[Tensor, "middle column"], precision: Precision) -> Tensor:
    """a @ b, rounded to the dtype of operands."""
    if precision == "medium" and a.device.type == "cuda":
        return torch.mm(a, b)
    return operand(product(a, b, precision), precision)


def product_into(out: Float[Tensor, "row column"], a: Tensor, b: Tensor, precision: Precision) -> None:
    """a @ b, rounded to the dtype of operands, written to rows that may have gaps between them."""
    if precision == "medium" and a.device.type == "cuda":
        torch.mm(a, b, out=out)
    else:
        out.copy_(product(a, b, precision))


def aligned(num_rows: int, num_columns: int, like: Tensor) -> Float[Tensor, "row column"]:
    """A table that nothing was written to, whose rows begin at 32 bytes: products of any size find them aligned."""
    return like.new_empty(num_rows, -(-num_columns // 16) * 16)[:, :num_columns]


def _three_products(a: Float[Tensor, "row middle"], b: Float[Tensor, "middle column"]) -> Float[Tensor, "row column"]:
    """low * high + high * low + high * high as one tf32 product of operands that lie one after the other; what both
    leave together is below float32. A sum over portions of the middle."""
    parts = [slice(first, first + MIDDLE) for first in range(0, a.shape[1], MIDDLE)]
    found = None
    with tf32(True):
        for part in parts:
            left, right = _thirds(a[:, part], 1, low_first=True), _thirds(b[part], 0, low_first=False)
            found = left @ right if found is None else found.addmm_(left, right)
    assert found is not None
    return found


def _is_worth(a: Tensor, b: Tensor) -> bool:
    return min(a.shape[0], b.shape[1]) >= WORTH and min(a.shape[1], a.shape[0]) > 0


def _thirds(table: Float[Tensor, "row column"], axis: int, low_first: bool) -> Tensor:
    """The leading bits of each number and the rest, exactly: low, high, high along an axis, or high, low, high."""
    high = (table.contiguous().view(torch.int32) & TRUNCATED).view(torch.float32)
    low = table - high
    return torch.cat([low, high, high] if low_first else [high, low, high], axis)


def _plain(a: Tensor, b: Tensor, rounded: bool) -> Tensor:
    with tf32(rounded):
        return a @ b


@contextmanager
def tf32(allowed: bool) -> Iterator[None]:
    """Whether products on a GPU may round their operands, whatever is set for the process."""
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = allowed
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before
