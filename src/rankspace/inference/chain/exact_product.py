"""Products of matrices of logarithms at the speed of a plain product, and exact in every entry."""

from collections.abc import Callable

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from rankspace.inference.chain.log_space import LogMap
from rankspace.inference.logarithms import log_sum_exp
from rankspace.inference.scaled import lowest

CHUNK = 2**22  # numbers in a temporary table


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
