"""Timing, and the record of where and with what a measurement was made."""

import platform
import statistics
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from rankspace import __version__
from rankspace.devices import is_gpu
from rankspace.training.machine import commit


def interleaved(
    programs: Mapping[str, Callable[[], Any]],
    repeats: int,
    device: torch.device,
    tick: Callable[[], None],
    warm_up: bool = True,
) -> dict[str, float]:
    """Median milliseconds of each program, run in turns so that a busy machine slows all of them alike.

    Each runs once beforehand, unless `warm_up` is false. `tick` is called after each timed run.
    """
    times: dict[str, list[float]] = {name: [] for name in programs}
    for program in programs.values() if warm_up else ():
        program()
    for _ in range(repeats):
        for name, program in programs.items():
            _wait(device)
            begin = time.perf_counter()
            program()
            _wait(device)
            times[name].append(1000 * (time.perf_counter() - begin))
            tick()
    return {name: statistics.median(values) for name, values in times.items()}


def circumstances(device: torch.device) -> dict[str, Any]:
    """Commit, date, device and versions of a measurement."""
    name = torch.cuda.get_device_name(device) if is_gpu(device) else _processor()
    return {
        "commit": commit(),
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "device": name,
        "threads": torch.get_num_threads() if device.type == "cpu" else None,
        "rankspace": __version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "triton": _triton(),
    }


def _triton() -> str | None:
    """Its version, where it is installed."""
    try:
        return version("triton")
    except PackageNotFoundError:
        return None


def _processor() -> str:
    """The model of the processor where the system tells it, else its architecture."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.machine()


def _wait(device: torch.device) -> None:
    if is_gpu(device):
        torch.cuda.synchronize(device)
