"""Sums, maxima and products of numbers given by their logarithms."""

import math
from collections.abc import Callable

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from rankspace.inference.differentiation import without_autocast
from rankspace.inference.scaled import lowest

CHUNK = 2**22  # numbers in a temporary table

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
    with without_autocast(left.device):
        products = left.exp() @ right.exp()
    low = products < lowest(products.dtype)
    result = torch.where(low, -torch.inf, torch.where(low, 1, products).log())
    if not bool(low.any()):
        return result
    with without_autocast(left.device):
        positive = (left > -torch.inf).float() @ (right > -torch.inf).float() > 0
    row, out = (low & positive).nonzero().unbind(1)
    return result.index_put((row, out), log_sum_exp(left[row] + right.T[out]))


def exact_log_product(log_matrix: Float[Tensor, "out in"]) -> LogMap:
    """rows -> log(exp(rows) exp(matrix)^T), without derivatives; for float64.

    Rows are scaled by their largest entry and multiplied in linear space. Entries that come out so low that what was
    dropped could matter are computed again from logarithms, unless they are zero because of zeros alone.
    """
    matrix, support = log_matrix.exp(), _later(lambda: (log_matrix > -torch.inf).float())

    def apply(log_rows: Float[Tensor, "row in"]) -> Float[Tensor, "row out"]:
        top = log_rows.amax(1, keepdim=True)
        top = torch.where(top == -torch.inf, 0, top)
        products = (log_rows - top).exp() @ matrix.T
        low = products < lowest(products.dtype)
        result = products.log() + top
        if bool(low.any()):
            positive = (log_rows > -torch.inf).float() @ support().T > 0
            result = _repaired(result.masked_fill(low, -torch.inf), low & positive, log_rows, log_matrix)
        return result

    return apply


def _repaired(result: Tensor, again: Bool[Tensor, "row out"], log_rows: Tensor, log_matrix: Tensor) -> Tensor:
    for places in again.nonzero().split(max(1, CHUNK // log_matrix.shape[1])):
        row, out = places.unbind(1)
        result[row, out] = log_sum_exp(log_rows[row] + log_matrix[out])
    return result


def _later(make: Callable[[], Tensor]) -> Callable[[], Tensor]:
    """Calls a function when its result is first asked for, and keeps it."""
    kept: list[Tensor] = []

    def get() -> Tensor:
        if not kept:
            kept.append(make())
        return kept[0]

    return get
