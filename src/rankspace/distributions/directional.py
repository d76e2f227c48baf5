"""Derivatives of functions of the parameters along a direction."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from rankspace.distributions.contract import Parameters
from rankspace.inference.differentiation import differentiable, differentiating


def derivative_along(function: Callable[[Parameters], Any], parameters: Parameters, direction: Parameters) -> Any:
    """How a tensor, or each of a tuple of them, changes when the parameters move along a direction.

    The transposed derivative is linear in what it is applied to, and its own derivative there is the one asked for: two
    backward passes, through plain operations only. (Forward mode would do it in one, but loads torch.jit, for seconds.)
    The direction is taken in the parameters' dtype; the result has no derivatives.
    """
    with differentiating():
        own = {name: differentiable(value).detach().requires_grad_() for name, value in parameters.items()}
        result = function(own)
        outputs: tuple[Tensor, ...] = result if isinstance(result, tuple) else (result,)
        probes = [torch.zeros_like(output, requires_grad=True) for output in outputs]
        weighed: Any = sum((output * probe).sum() for output, probe in zip(outputs, probes, strict=True))
        pulled = torch.autograd.grad(weighed, list(own.values()), create_graph=True, materialize_grads=True)
        moved = [differentiable(direction[name]).to(pull.dtype) for name, pull in zip(own, pulled, strict=True)]
        total: Any = sum((pull * move).sum() for pull, move in zip(pulled, moved, strict=True))
        found = torch.autograd.grad(total, probes, allow_unused=True, materialize_grads=True)
    return tuple(found) if isinstance(result, tuple) else found[0]
