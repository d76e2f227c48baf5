"""The machine: where a run is made, how much memory it takes, and how exactly matrices are multiplied."""

import platform
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from rankspace import __version__


def environment(device: torch.device, world: int = 1) -> dict[str, Any]:
    """Versions, device and, in a source tree, the commit."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.machine()
    return {
        "rankspace": __version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "device": f"{device.type} ({name})",
        "threads": torch.get_num_threads(),
        "processes": world,
        "commit": _commit(),
    }


def memory_mb(device: torch.device) -> int:
    """The most memory that was ever used: of the device, or of this process."""
    if device.type == "cuda":
        return round(torch.cuda.max_memory_allocated(device) / 2**20)
    try:
        import resource
    except ImportError:  # not on this system
        return 0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return round(peak / (2**20 if sys.platform == "darwin" else 2**10))


@contextmanager
def matmul_precision(precision: str) -> Iterator[None]:
    """Within, torch multiplies matrices in a precision."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(precision)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def _commit() -> str | None:
    here = Path(__file__).parent
    try:
        head = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=here, capture_output=True, text=True)
    except OSError:
        return None
    return head.stdout.strip() or None if head.returncode == 0 else None
