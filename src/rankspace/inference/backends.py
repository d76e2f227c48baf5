"""Which programs run an engine: plain torch, or Triton kernels."""

import os
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache
from importlib.util import find_spec
from typing import Any

import torch

from rankspace.devices import is_gpu
from rankspace.errors import RankspaceError, is_lack_of_memory

INTERPRETER = "TRITON_INTERPRET"  # Triton's own switch: kernels run as Python on a CPU


def runs_triton(name: str, backend: str, dtype: torch.dtype, device: torch.device) -> bool:
    """Whether an engine that has kernels for float32 runs them: "auto" on a GPU that can; with "triton", an error where
    it cannot.

    float64 always runs in torch: it is what lost sentences of float32 are done again in.
    """
    if backend not in ("auto", "triton") or dtype != torch.float32:
        return False
    reason = missing(device)
    if backend == "auto":
        return is_gpu(device) and not reason
    if reason:
        raise RankspaceError(f"{name}: backend is 'triton', but {reason}; give backend='auto'.")
    return True


def runs_kernels(name: str, options: Mapping[str, Any], weights: Iterable[torch.Tensor], device: torch.device) -> bool:
    """As `runs_triton`, for the weights of a model: with "triton" those of another dtype are an error too."""
    backend = options.get("backend", "auto")
    other = next((weight.dtype for weight in weights if weight.dtype != torch.float32), None)
    if other is not None and backend == "triton":
        raise RankspaceError(
            f"{name}: backend is 'triton', but the weights are {other} and it needs float32; give backend='auto'."
        )
    return other is None and runs_triton(name, backend, torch.float32, device)


def can_run_kernels(options: Mapping[str, Any], weights: Iterable[torch.Tensor], device: torch.device) -> bool:
    """Whether the kernels of a model with some options run on a device; on a CPU, under Triton's interpreter."""
    plain = options.get("backend", "auto") in ("auto", "triton")
    return plain and not missing(device) and all(each.dtype == torch.float32 for each in weights)


def missing(device: torch.device) -> str:
    """What Triton kernels lack on a device; nothing if they can run."""
    if find_spec("triton") is None:
        return "triton is not installed"
    if is_gpu(device):
        return _unusable(device)
    if device.type == "cpu" and os.environ.get(INTERPRETER) == "1":
        return ""
    return f"the parameters are on {device.type} and it needs a GPU"


@lru_cache(maxsize=16)
def _unusable(device: torch.device) -> str:
    """Asked once for each device: a GPU that is too old, or a system without what Triton compiles with. A lack of
    memory, which says nothing of either, is raised, and asked again."""
    major, minor = torch.cuda.get_device_capability(device)
    if major < 8 and not torch.version.hip:
        return f"the GPU has compute capability {major}.{minor} and it needs 8.0"
    try:
        from rankspace.kernels.probe import probe

        with launching_on(device):
            works = probe(device)
    except Exception as error:  # no compiler, no headers, a driver that is too old: each its own class
        if is_lack_of_memory(error):
            raise
        return f"triton cannot compile a kernel here ({type(error).__name__})"
    return "" if works else "a kernel that triton compiled did not run"


def launching_on(device: torch.device) -> AbstractContextManager[Any]:
    """Within, kernels are launched on a device: Triton asks which is the current one, not where tensors are."""
    return torch.cuda.device(device) if is_gpu(device) else nullcontext()
