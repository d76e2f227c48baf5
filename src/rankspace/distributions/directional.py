"""Derivatives of functions of the parameters along a direction."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from rankspace.distributions.contract import Parameters


def derivative_along(function: Callable[[Parameters], Any], parameters: Parameters, direction: Parameters) -> Any:
    """How a tensor, or each of a tuple of them, changes when the parameters move along a direction.

    The transposed derivative is linear in what it is applied to, and its own derivative there is the one asked for: two
    backward passes, through plain operations only. (Forward mode would do it in one, but loads torch.jit, for seconds.)
    The direction is taken in the parameters' dtype; the result has no derivatives.
    """
    own = {name: value.detach().requires_grad_() for name, value in parameters.items()}
    with torch.enable_grad():
        result = function(own)
        outputs: tuple[Tensor, ...] = result if isinstance(result, tuple) else (result,)
        probes = [torch.zeros_like(output, requires_grad=True) for output in outputs]
        weighed: Any = sum((output * probe).sum() for output, probe in zip(outputs, probes, strict=True))
        pulled = torch.autograd.grad(weighed, list(own.values()), create_graph=True, materialize_grads=True)
        total: Any = sum((pull * direction[name].to(pull.dtype)).sum() for name, pull in zip(own, pulled, strict=True))
        found = torch.autograd.grad(total, probes, allow_unused=True, materialize_grads=True)
    return tuple(found) if isinstance(result, tuple) else found[0]
