"""Memory that runs out where a test wants it."""

import sys
from pathlib import Path
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode

import rankspace

PACKAGE = str(Path(rankspace.__file__).parent)  # and no folder around it, whatever that is called
OUT_OF_MEMORY = "CUDA out of memory. Tried to allocate 3.50 GiB. GPU 0 has"


def lacking(*_: Any, **__: Any) -> Any:
    """In the place of a function: there is no memory for it."""
    raise RuntimeError(OUT_OF_MEMORY)


class NoMemoryInBackward(TorchDispatchMode):
    """Within, the first operation in a backward pass that is the package's own finds no memory."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if _is_in_own_backward():
            lacking()
        return func(*args, **(kwargs or {}))


def _is_in_own_backward() -> bool:
    frame = sys._getframe()
    while frame := frame.f_back:  # type: ignore[assignment]
        if frame.f_code.co_name == "backward" and frame.f_code.co_filename.startswith(PACKAGE):
            return True
    return False
