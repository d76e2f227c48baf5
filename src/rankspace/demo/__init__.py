"""The demonstration: the main job of the package on data it makes itself."""

from rankspace.demo.grammars import Model, check_grammars
from rankspace.demo.job import Job, run
from rankspace.demo.scores import Scores

__all__ = ["Job", "Model", "Scores", "check_grammars", "run"]
