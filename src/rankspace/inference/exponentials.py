"""Products of matrices that are given by their logarithms, in linear space."""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from rankspace.inference.differentiation import tell_of_lacks, without_autocast
from rankspace.inference.links import Precision, product


def product_of_exponentials(
    log_lefts: Sequence[Float[Tensor, "_ middle"]], log_right: Float[Tensor, "middle column"], precision: Precision
) -> Float[Tensor, "row column"]:
    """exp(log_left) exp(log_right), the rows of all the left matrices below each other; differentiable twice.

    One product, and two for its derivatives, which then meet the exponentials in place: matrices of many states are so
    large that every further pass through their memory counts.
    """
    result: Tensor = _Product.apply(precision, log_right, *log_lefts)  # type: ignore[no-untyped-call]
    return result


@tell_of_lacks
class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, precision: Precision, log_right: Tensor, *log_lefts: Tensor) -> Tensor:
        sizes = [len(log_left) for log_left in log_lefts]
        left, right = log_right.new_empty(sum(sizes), len(log_right)), log_right.exp()
        for log_left, rows in zip(log_lefts, left.split(sizes), strict=True):
            torch.exp(log_left, out=rows)
        ctx.precision, ctx.sizes = precision, sizes
        ctx.save_for_backward(left, right, log_right, *log_lefts)
        return product(left, right, precision)

    @staticmethod
    def backward(ctx: Any, slopes: Tensor) -> tuple[Tensor | None, ...]:
        left, right, log_right, *log_lefts = ctx.saved_tensors
        if torch.is_grad_enabled():  # derivatives of these derivatives are wanted: as functions of the logarithms
            left, right = torch.cat(log_lefts).exp(), log_right.exp()
            of_left, of_right = slopes @ right.T * left, left.T @ slopes * right
        else:
            with without_autocast(slopes.device):
                of_left = product(slopes, right.T, ctx.precision).mul_(left)
                of_right = product(left.T, slopes, ctx.precision).mul_(right)
        return (None, of_right, *of_left.split(ctx.sizes))
