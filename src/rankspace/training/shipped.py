"""The trained models that come with the package, each a run directory in `rankspace/shipped`.

They are as `benchmarks/ship.py` makes them: without what resuming needs, and with an entry on the card that says where
they come from. Torch is not imported.
"""

from importlib import resources
from pathlib import Path

from rankspace.errors import FormatError
from rankspace.training.run_directory import is_run

ENTRY = "shipped"  # of the card: date, command, seed, licence, attribution
FOLDER = Path(str(resources.files("rankspace") / "shipped"))


def shipped_names(folder: Path = FOLDER) -> list[str]:
    """The names of the models, in alphabetical order."""
    return sorted(path.name for path in folder.iterdir() if is_run(path))


def find_run(path: Path) -> Path:
    """Where a run is: at a path that exists, else with the package, if that has a model of this name.

    Raises FormatError for what is neither.
    """
    if path.exists():
        return path
    names = shipped_names()
    if str(path) in names:
        return FOLDER / path
    raise FormatError(
        f"{path}: there is no such folder; make one with rankspace train, or name a model of the package: "
        f"{', '.join(names)}."
    )
