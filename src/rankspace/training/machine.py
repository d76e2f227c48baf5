"""The machine: where a run is made, how much memory it takes, and how exactly matrices are multiplied."""

import math
import platform
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Literal

import torch

from rankspace import __version__
from rankspace.devices import is_gpu
from rankspace.distributions.memory import Work, if_known
from rankspace.errors import NotEnoughMemoryError, is_beyond_counting, lack_told
from rankspace.inference.links import Precision
from rankspace.inference.torch_precision import multiplying_in
from rankspace.models import Model, create
from rankspace.models.memory import has_kernels_for, setting_of_width, shortage, shortage_of_weights

TRAINING_LIMITS = "batches.max_sentences, batches.max_tokens, batches.max_length"
EVALUATION_LIMITS = "evaluation.max_tokens, evaluation.max_length"


def environment(device: torch.device, world: int = 1) -> dict[str, Any]:
    """Versions, device and, in a source tree, the commit."""
    name = torch.cuda.get_device_name(device) if is_gpu(device) else platform.machine()
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
    if is_gpu(device):
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
    return model.PRECISION if is_gpu(device) and model.can_be_captured(device) else "highest"


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


def matmul_precision(precision: str) -> AbstractContextManager[None]:
    """Within, torch multiplies matrices in a precision."""
    return multiplying_in(precision)


def commit() -> str | None:
    """The commit of the source tree, with a + if it has changes; None outside of one."""
    here = Path(__file__).parent
    try:
        head = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=here, capture_output=True, text=True)
        changes = subprocess.run(["git", "status", "--porcelain"], cwd=here, capture_output=True, text=True)
    except OSError:
        return None
    return head.stdout.strip() + ("+" if changes.stdout.strip() else "") if head.returncode == 0 else None


def enough_memory(
    what: str,
    model: Model,
    shapes: Sequence[tuple[int, ...]],
    limits: str = TRAINING_LIMITS,
    learns: bool = True,
    parses: bool = False,
) -> AbstractContextManager[None]:
    """Within, a lack of memory is told with the largest batch, about how much it takes to be learned from, parsed or
    scored, and which settings to lower."""

    def tell(error: BaseException) -> NotEnoughMemoryError:
        num, length = max(shapes, key=math.prod)
        device = next(model.parameters()).device
        captured = learns and if_known(lambda: model.can_be_captured(device))
        kernels = captured or has_kernels_for(model, parses)
        found = shortage(model, Work((length,) * num, learns, kernels, parses))
        return found.told(f"train: {what}", error, f"lower {limits} or {setting_of_width(model)}")

    return lack_told(tell)


def enough_memory_for_weights(what: str, name: str, settings: Mapping[str, Any]) -> AbstractContextManager[None]:
    """Within, a lack of memory is told with about how much the weights of a model that trains take, and which setting
    to lower."""

    def tell(error: BaseException) -> NotEnoughMemoryError:
        try:
            found = without_weights(name, settings)
        except (RuntimeError, TypeError) as unbuilt:
            if not is_beyond_counting(unbuilt):
                raise
            return _beyond_counting(what, name, settings)
        return shortage_of_weights(found, learns=True).told(f"train: {what}", error, f"lower {setting_of_width(found)}")

    return lack_told(tell)


def _beyond_counting(what: str, name: str, settings: Mapping[str, Any]) -> NotEnoughMemoryError:
    sizes = {key: value for key, value in settings.items() if type(value) is int}
    largest = max(sizes, key=lambda key: sizes[key])
    return NotEnoughMemoryError(
        f"train: {what}: no memory holds {name} with model.{largest} = {sizes[largest]}; lower model.{largest}."
    )


def without_weights(name: str, settings: Mapping[str, Any]) -> Model:
    """A model whose weights have sizes, and take no memory."""
    with torch.device("meta"):
        return create(name, **settings)
