"""Engines: exact inference at speed. Each is checked against the level below it."""

from rankspace.inference.generic import GenericEngine, Statistics, log_z, statistics

__all__ = ["GenericEngine", "Statistics", "log_z", "statistics"]
