"""Training: configuration, loop, checkpoints, and the run directory that a trained model is loaded from."""

from rankspace.training.config import Config, load_config, load_preset, preset_names
from rankspace.training.data_source import load_data, synthetic_data
from rankspace.training.interruption import InterruptionError
from rankspace.training.restarts import train_restarts
from rankspace.training.run_directory import RunDirectory
from rankspace.training.runs import Outcome, train, train_seeds
from rankspace.training.trained import Sample, Trained, load

__all__ = [
    "Config",
    "InterruptionError",
    "Outcome",
    "RunDirectory",
    "Sample",
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
