"""Exact inference with very large state spaces, in rank space.

The packages, each importing only from those left of it:

    trees -> fgg -> lowrank -> inference -> distributions -> models -> training -> cli    (data, evaluation, viz beside)

`rankspace.trees` holds constituency trees, `rankspace.fgg` factor graph grammars and their sum-product,
`rankspace.lowrank` the decompositions and the compiler to rank space, `rankspace.inference` the engines,
`rankspace.distributions` what users hold, `rankspace.models` its neural parameterisations, `rankspace.training` the
loop and its runs. Importing `rankspace` imports trees alone, and no torch.
"""

from os import PathLike
from typing import Any

from rankspace.trees import Tree

__version__ = "0.1.0"

__all__ = ["Tree", "__version__", "load"]


def load(
    directory: str | PathLike[str], checkpoint: str = "best", device: str = "cpu", *, fallback: bool = False
) -> Any:
    """The trained model of a run, or of the package: a `rankspace.training.Trained`; see `rankspace.training.load`."""
    from rankspace.training import load as load_run

    return load_run(directory, checkpoint, device, fallback=fallback)
