"""Sums, maxima and products of numbers given by their logarithms."""

import math
from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from rankspace.inference.differentiation import tell_of_lacks, without_autocast
from rankspace.inference.scaled import lowest

CHUNK = 2**22  # numbers in a temporary table
SPACING = torch.finfo(torch.float64).eps  # of numbers at one

LogMap = Callable[[Tensor], Tensor]  # [row, in] -> [row, out]
LogProduct = Callable[[Tensor], LogMap]  # from a matrix [out, in]


def log_sum_exp(values: Tensor, axis: int = -1) -> Tensor:
    """log of a sum of exponentials; where all are -inf, -inf with derivatives zero instead of NaN. NaN stays NaN."""
    top = values.detach().amax(axis, keepdim=True)
    top = top.where(top > -math.inf, 0)
    total = (values - top).exp().sum(axis)
    nothing = total == 0
    return torch.where(nothing, -math.inf, total.masked_fill(nothing, 1).log() + top.squeeze(axis))


def maximum(values: Tensor, axis: int = -1) -> Tensor:
    """The counterpart of `log_sum_exp` where the best derivation is wanted."""
    return values.amax(axis)


def log_matrix_product(left: Float[Tensor, "row middle"], right: Float[Tensor, "middle out"]) -> Tensor:
    """log(exp(left) exp(right)), differentiable any number of times; for matrices of log-probabilities.

    Multiplied in linear space, also within autocast; entries below the range of the dtype are taken from logarithms.
    """
    apply: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]] = _LogProduct.apply
    result, low = apply(left, right)
    if not bool(low.any()):
        return result
    with without_autocast(left.device):
        positive = (left > -torch.inf).float() @ (right > -torch.inf).float() > 0
    row, out = (low & positive).nonzero().unbind(1)
    return result.index_put((row, out), _entries(left, right.T, row, out))


@tell_of_lacks
class _LogProduct(torch.autograd.Function):
    """The logarithm of a product where that is in the range, else -inf; and where it is not.

    Derivatives go by the logarithm that was found: those of 1 / x leave the range long before x does.
    """

    @staticmethod
    def forward(ctx: Any, left: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
        with without_autocast(left.device):
            products = left.exp() @ right.exp()
        low = products < lowest(products.dtype)
        result = products.log_().masked_fill_(low, -torch.inf)
        ctx.save_for_backward(left, right, result)
        ctx.mark_non_differentiable(low)
        return result, low

    @staticmethod
    def backward(ctx: Any, slopes: Tensor, _: Tensor) -> tuple[Tensor, Tensor]:
        left, right, result = ctx.saved_tensors
        low = result == -torch.inf
        with without_autocast(left.device):
            shares = torch.where(low, 0, slopes * (-result.masked_fill(low, 0)).exp())
            return left.exp() * (shares @ right.exp().T), right.exp() * (left.exp().T @ shares)


def exact_log_product(log_matrix: Float[Tensor, "out in"]) -> LogMap:
    """rows -> log(exp(rows) exp(matrix)^T), without derivatives; for float64.

    Rows of both are scaled by their largest entries and multiplied in linear space. Entries that come out so low that
    what was dropped could matter are computed again from logarithms, unless they are zero because of zeros alone.
    """
    scale = _largest(log_matrix)
    matrix, support = (log_matrix - scale).exp(), _later(lambda: (log_matrix > -torch.inf).float())

    def apply(log_rows: Float[Tensor, "row in"]) -> Float[Tensor, "row out"]:
        top = _largest(log_rows)
        products = (log_rows - top).exp() @ matrix.T
        low = products < lowest(products.dtype)
        result = products.log() + top + scale.T
        if bool(low.any()):
            positive = (log_rows > -torch.inf).float() @ support().T > 0
            row, out = (low & positive).nonzero().unbind(1)
            result = result.masked_fill_(low, -torch.inf).index_put_(
                (row, out), _entries(log_rows, log_matrix, row, out)
            )
        return result

    return apply


def _largest(log_rows: Float[Tensor, "row in"]) -> Float[Tensor, "row 1"]:
    """The largest entry of each row; 0 of rows that are zero throughout."""
    if not log_rows.shape[1]:
        return log_rows.new_zeros(len(log_rows), 1)
    top = log_rows.amax(1, keepdim=True)
    return torch.where(top == -torch.inf, 0, top)


def _entries(left: Float[Tensor, "row in"], right: Float[Tensor, "out in"], row: Tensor, out: Tensor) -> Tensor:
    """log sum_i exp(left[row, i] + right[out, i]), some entries at a time."""
    size = max(1, CHUNK // max(1, right.shape[1]))
    keep_little = torch.is_grad_enabled() and (left.requires_grad or right.requires_grad)
    if not len(row):
        return left.new_zeros(0)
    found = []
    for some in zip(row.split(size), out.split(size), strict=True):
        given = (left, right, *some)
        found.append(checkpoint(_some_entries, *given, use_reentrant=False) if keep_little else _some_entries(*given))
    return torch.cat(found)


def _some_entries(left: Tensor, right: Tensor, row: Tensor, out: Tensor) -> Tensor:
    return log_sum_exp(left[row] + right[out])


def _later(make: Callable[[], Tensor]) -> Callable[[], Tensor]:
    """Calls a function when its result is first asked for, and keeps it."""
    kept: list[Tensor] = []

    def get() -> Tensor:
        if not kept:
            kept.append(make())
        return kept[0]

    return get
