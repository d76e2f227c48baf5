"""What the engines and torch's automatic differentiation need to agree on."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cached_property, wraps
from typing import Any, TypeVar

import torch
from torch import Tensor

from rankspace.errors import NotEnoughMemoryError, RankspaceError, lack_told

Made = TypeVar("Made")
Differentiable = TypeVar("Differentiable", bound=type[torch.autograd.Function])
Tell = Callable[[BaseException], NotEnoughMemoryError]

_TELL: ContextVar[Tell | None] = ContextVar("tell", default=None)


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
def lack_told_in_both_passes(tell: Tell) -> Iterator[None]:
    """Within, a lack of memory is told by a function of the error; and so is one in the backward pass, whenever it
    comes, of what is computed within by functions that `tell_of_lacks`. The outermost such function tells."""
    token = _TELL.set(_TELL.get() or tell)
    try:
        with lack_told(tell):
            yield
    finally:
        _TELL.reset(token)


def tell_of_lacks(function: Differentiable) -> Differentiable:
    """For an autograd function: a lack of memory in its backward pass, which takes most, is told as one in the call
    that its forward pass was part of."""
    forward, backward = function.forward, function.backward

    @wraps(forward)
    def remembering(ctx: Any, *inputs: Any) -> Any:
        ctx.tell = _TELL.get()
        return forward(ctx, *inputs)

    @wraps(backward)
    def telling(ctx: Any, *slopes: Any) -> Any:
        if ctx.tell is None:
            return backward(ctx, *slopes)
        with lack_told(ctx.tell):
            return backward(ctx, *slopes)

    function.forward = staticmethod(remembering)  # type: ignore[method-assign]
    function.backward = staticmethod(telling)  # type: ignore[method-assign]
    return function


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
