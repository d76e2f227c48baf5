"""Backward passes that are explicit algorithms, and therefore can be differentiated no further."""

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch

from rankspace.errors import RankspaceError


def first_derivatives_only(backward: Callable[..., Any]) -> Callable[..., Any]:
    """For the backward pass of an autograd function: refuses create_graph=True, under which its result would count as
    a constant and second derivatives would be wrong without a word."""

    @wraps(backward)
    def checked(ctx: Any, *slopes: Any) -> Any:
        if torch.is_grad_enabled():
            raise RankspaceError("log_prob: second derivatives need plain operations; give backend='autograd'.")
        return backward(ctx, *slopes)

    return checked
