"""The generic level-parallel engine for any acyclic FGG."""

from rankspace.inference.generic.engine import GenericEngine, Statistics, log_z, statistics

__all__ = ["GenericEngine", "Statistics", "log_z", "statistics"]
