"""Training: configuration, loop, checkpoints, and the run directory that a trained model is loaded from.

What needs torch is imported when it is asked for, so that a mistake in a configuration is told at once.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from rankspace.training.config import Config, load_config, load_preset, preset_names
from rankspace.training.data_source import load_data, synthetic_data
from rankspace.training.interruption import InterruptionError, TimeUpError
from rankspace.training.run_directory import RunDirectory

if TYPE_CHECKING:
    from rankspace.training.restarts import train_restarts
    from rankspace.training.runs import Outcome, train, train_seeds
    from rankspace.training.together import Together
    from rankspace.training.trained import Sample, Trained, load

__all__ = [
    "Config",
    "InterruptionError",
    "Outcome",
    "RunDirectory",
    "Sample",
    "TimeUpError",
    "Together",
    "Trained",
    "load",
    "load_config",
    "load_data",
    "load_preset",
    "preset_names",
    "synthetic_data",
    "train",
    "train_restarts",
    "train_seeds",
]

_WITH_TORCH = {
    "Outcome": "runs",
    "Sample": "trained",
    "Together": "together",
    "Trained": "trained",
    "load": "trained",
    "train": "runs",
    "train_restarts": "restarts",
    "train_seeds": "runs",
}


def __getattr__(name: str) -> Any:
    if name not in _WITH_TORCH:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_WITH_TORCH[name]}"), name)
