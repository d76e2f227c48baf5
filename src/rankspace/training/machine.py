"""The machine: where a run is made, how much memory it takes, and how exactly matrices are multiplied."""

import math
import platform
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import torch

from rankspace import __version__
from rankspace.distributions.memory import Work, origin
from rankspace.errors import NotEnoughMemoryError, is_lack_of_memory
from rankspace.inference.links import Precision
from rankspace.models import Model
from rankspace.models.memory import setting_of_width, shortage

TRAINING_LIMITS = "batches.max_sentences, batches.max_tokens, batches.max_length"
EVALUATION_LIMITS = "evaluation.max_tokens, evaluation.max_length"


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
        "commit": commit(),
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


def decided_precision(asked: Precision | Literal["auto"], model: Model, device: torch.device) -> Precision:
    """What a run trains in. "auto" is the model's own where it trains by kernels on a GPU, and "highest" elsewhere."""
    if asked != "auto":
        return asked
    return model.PRECISION if device.type == "cuda" and model.can_be_captured(device) else "highest"


@contextmanager
def computing_in(precision: Precision, model: Model) -> Iterator[None]:
    """Within, a model and torch multiply matrices in a precision."""
    with with_options(model, precision=precision), matmul_precision(precision):
        yield


@contextmanager
def with_options(model: Model, **changes: Any) -> Iterator[None]:
    """Within, some options of a model are others."""
    before, model.options = model.options, {**model.options, **changes}
    try:
        yield
    finally:
        model.options = before


@contextmanager
def matmul_precision(precision: str) -> Iterator[None]:
    """Within, torch multiplies matrices in a precision."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(precision)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def commit() -> str | None:
    """The commit of the source tree, with a + if it has changes; None outside of one."""
    here = Path(__file__).parent
    try:
        head = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=here, capture_output=True, text=True)
        changes = subprocess.run(["git", "status", "--porcelain"], cwd=here, capture_output=True, text=True)
    except OSError:
        return None
    return head.stdout.strip() + ("+" if changes.stdout.strip() else "") if head.returncode == 0 else None


@contextmanager
def enough_memory(
    what: str, model: Model, shapes: Sequence[tuple[int, ...]], limits: str = TRAINING_LIMITS, learns: bool = True
) -> Iterator[None]:
    """Within, a lack of memory is told with the largest batch, about how much it takes, and which settings to lower."""
    try:
        yield
    except (MemoryError, RuntimeError, NotEnoughMemoryError) as error:
        if not is_lack_of_memory(error):
            raise
        num, length = max(shapes, key=math.prod)
        device = next(model.parameters()).device
        found = shortage(model, Work((length,) * num, learns, learns and model.can_be_captured(device)))
        raise found.told(f"train: {what}", error, f"lower {limits} or {setting_of_width(model)}") from origin(error)
