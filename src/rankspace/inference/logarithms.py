"""Sums, maxima and products of numbers given by their logarithms."""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from rankspace.inference.differentiation import without_autocast
from rankspace.inference.scaled import lowest


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
