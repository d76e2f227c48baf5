"""What the engines and torch's automatic differentiation need to agree on."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property, wraps
from typing import Any, TypeVar

import torch
from torch import Tensor

from rankspace.errors import RankspaceError

Made = TypeVar("Made")


def first_derivatives_only(backward: Callable[..., Any]) -> Callable[..., Any]:
    """For the backward pass of an autograd function that is an algorithm of its own: refuses create_graph=True, under
    which its result would count as a constant and second derivatives would be wrong without a word."""

    @wraps(backward)
    def checked(ctx: Any, *slopes: Any) -> Any:
        if torch.is_grad_enabled():
            raise RankspaceError("log_prob: second derivatives need plain operations; give backend='autograd'.")
        return backward(ctx, *slopes)

    return checked


@contextmanager
def differentiating() -> Iterator[None]:
    """Gradients are computed here, whatever mode the caller is in: no_grad or inference_mode."""
    with torch.inference_mode(False), torch.enable_grad():
        yield


def differentiable(tensor: Tensor) -> Tensor:
    """The tensor, or a copy of one that was made under inference_mode, which no backward pass could keep."""
    if not tensor.is_inference():
        return tensor
    with torch.inference_mode(False):
        return tensor.clone()


def lasting(make: Callable[[Any], Made]) -> "cached_property[Made]":
    """A cached property that may serve a backward pass later, even if it is first asked for under inference_mode."""

    @wraps(make)
    def made(self: Any) -> Made:
        with torch.inference_mode(False):
            return make(self)

    return cached_property(made)
