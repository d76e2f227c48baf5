"""What the engines and torch's automatic differentiation need to agree on."""

import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from functools import cached_property, wraps
from typing import Any, TypeVar

import torch
from torch import Tensor

from rankspace.errors import NotEnoughMemoryError, RankspaceError, lack_told

Made = TypeVar("Made")
Differentiable = TypeVar("Differentiable", bound=type[torch.autograd.Function])
Tell = Callable[[BaseException], NotEnoughMemoryError]

LARGE = 2.0**16  # slopes up to which adjoints keep within the range of float32

_TELL: ContextVar[Tell | None] = ContextVar("tell", default=None)


def first_derivatives_only(backward: Callable[..., Any]) -> Callable[..., Any]:
    """For the backward pass of an autograd function that is an algorithm of its own: refuses create_graph=True, under
    which its result would count as a constant and second derivatives would be wrong without a word. Runs outside of
    autocast, as the forward pass did."""

    @wraps(backward)
    def checked(ctx: Any, *slopes: Any) -> Any:
        if torch.is_grad_enabled():
            raise RankspaceError("log_prob: second derivatives need plain operations; give backend='autograd'.")
        device = next((each.device for each in slopes if isinstance(each, Tensor)), None)
        with nullcontext() if device is None else without_autocast(device):
            return backward(ctx, *slopes)

    return checked


def with_large_slopes(backward: Callable[..., Any]) -> Callable[..., Any]:
    """For the backward pass of an engine, whose adjoints come near the end of the range of float32 themselves. Slopes
    of log Z above LARGE are divided by a power of two, and what comes of them, linear as it is, multiplied by it."""

    @wraps(backward)
    def scaled(ctx: Any, slopes: Tensor | None, *others: Any) -> Any:
        largest = 0.0 if slopes is None or not slopes.numel() else float(slopes.abs().amax())
        if slopes is None or not LARGE < largest < math.inf:
            return backward(ctx, slopes, *others)
        power = 2.0 ** (math.frexp(largest)[1] - 1)
        found = backward(ctx, slopes / power, *others)
        return tuple(each * power if isinstance(each, Tensor) else each for each in found)

    return scaled


def depending_on(value: Tensor, *others: Tensor) -> Tensor:
    """The value as a function of others, with derivatives of zero where it had none: what has no derivation is a
    constant, of which torch refuses to make a backward pass."""
    for other in others:
        value = value + other[:0].sum().to(value.dtype)
    return value


def without_autocast(device: torch.device) -> AbstractContextManager[Any]:
    """Within, products have the precision that they are asked for, not one that a program around them has set."""
    return torch.autocast(device.type, enabled=False)


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
