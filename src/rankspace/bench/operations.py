"""Counting what a program does, operation by operation, in its forward and its backward pass."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from rankspace.bench.profiling import SUMS, Phase


def operations(program: Callable[[], Any]) -> dict[Phase, int]:
    """Flops of matrix products; for every other operation that moves numbers, the size of its largest tensor.

    Exact and the same in every run. Operations are seen as Python or autograd calls them; what one does inside is not.
    """
    counter = _Counter()
    with counter:
        program()
    return counter.counts


class _Counter(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.counts: dict[Phase, int] = {"products": 0, "elementwise": 0, "sums": 0}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        options = kwargs or {}
        result = func(*args, **options)
        flops = flop_registry.get(func.overloadpacket)
        if flops is not None:
            self.counts["products"] += flops(*args, **options, out_val=result)
        elif not _is_view(func):
            tensors = [leaf for leaf in tree_leaves((args, result)) if isinstance(leaf, Tensor)]
            moved = max((tensor.numel() for tensor in tensors), default=0)
            self.counts["elementwise"] += moved
            self.counts["sums"] += moved if f"aten::{func.overloadpacket.__name__}" in SUMS else 0
        return result


def _is_view(func: Any) -> bool:
    """Whether the result is an argument looked at in another way: nothing is moved."""
    returns = func._schema.returns
    return func.overloadpacket is torch.ops.aten._unsafe_view or any(
        part.alias_info is not None and not part.alias_info.is_write for part in returns
    )
