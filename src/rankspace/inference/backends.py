"""Which programs run an engine: plain torch, or Triton kernels."""

import os
from functools import lru_cache
from importlib.util import find_spec

import torch

from rankspace.errors import RankspaceError

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
        return device.type == "cuda" and not reason
    if reason:
        raise RankspaceError(f"{name}: backend is 'triton', but {reason}; give backend='auto'.")
    return True


def missing(device: torch.device) -> str:
    """What Triton kernels lack on a device; nothing if they can run."""
    if find_spec("triton") is None:
        return "triton is not installed"
    if device.type == "cuda":
        return _too_old(device)
    if device.type == "cpu" and os.environ.get(INTERPRETER) == "1":
        return ""
    return f"the parameters are on {device.type} and it needs a GPU"


@lru_cache(maxsize=16)
def _too_old(device: torch.device) -> str:
    major, minor = torch.cuda.get_device_capability(device)
    return "" if major >= 8 or torch.version.hip else f"the GPU has compute capability {major}.{minor} and it needs 8.0"
