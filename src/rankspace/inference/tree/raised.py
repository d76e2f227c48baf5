"""log Z of sentences that lose more than rounding in float64, without log space: weights that are too low are raised.

Z is a polynomial in its weights with nonnegative coefficients. So are its derivatives: with weights x >= y,

    Z(x) - Z(y) <= sum over e of (x_e - y_e) dZ/dx_e   <=   Z(x) RAISED * sum over raised e of d log Z / dx_e

and the outside pass has the derivatives. Where they show that what was raised adds nothing, log Z of x is that of y. No
entry of a child then lies so low that the range check would doubt it.
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from rankspace.inference.differentiation import differentiating
from rankspace.inference.tree.engine import log_z
from rankspace.inference.tree.inputs import Sentences, TreeInputs

RAISED = 2.0**-900  # far above what float64 loses of a sum, 2^-1022 for each term; rows have entries of 2^-17 or more
ADDED = 2.0**-40  # how much of Z may come of what was raised


def raised_log_z(
    inputs: TreeInputs, sentences: Sentences, log_weights: Float[Tensor, "span"] | None
) -> tuple[Float[Tensor, "batch"], Bool[Tensor, "batch"]]:
    """log Z of each sentence, differentiable once in inputs of float64; and which of them are right. Where weights that
    were raised could matter to one, all count as wrong: derivatives are those of the whole batch."""
    weights = None if log_weights is None else log_weights.detach()
    with differentiating():
        leaves = tuple(_raised(tensor.detach()).requires_grad_() for tensor in inputs.tensors)
        found, lost = log_z(inputs.like(leaves), sentences, _all_positive, weights)
        right = ~lost & found.isfinite()
        slopes = torch.autograd.grad(found.where(right, 0).sum(), leaves)
    low = [slope[tensor < RAISED].sum() for slope, tensor in zip(slopes, inputs.tensors, strict=True)]
    if not RAISED * float(torch.stack(low).sum()) <= ADDED:
        return found.detach(), torch.zeros_like(right)
    found, _ = log_z(inputs.like(tuple(map(_raised, inputs.tensors))), sentences, _all_positive, log_weights)
    return found, right


def _raised(tensor: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    return tensor.clamp(min=RAISED)


def _all_positive() -> None:
    """The support of inputs without zeros."""
