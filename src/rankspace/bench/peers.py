"""Finding what `rankspace` is compared with: files of a source checkout, and packages where they are installed."""

from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path
from runpy import run_path
from typing import Any, NamedTuple

import rankspace.errors

FOLDER = Path(rankspace.errors.__file__).parents[2] / "benchmarks" / "peers"  # beside src in a checkout


class Package(NamedTuple):
    """A package under its name on the index, and what of it is compared."""

    name: str
    module: str
    function: str  # of peers/packages.py


def implementations(file: str, names: Iterable[str]) -> dict[str, Any]:
    """Functions of a file in benchmarks/peers by name; none of them where the folder is not there."""
    path = FOLDER / f"{file}.py"
    if not path.is_file():
        return {}
    found = run_path(str(path))
    return {name: found[name] for name in names}


def installed(package: Package) -> bool:
    return FOLDER.is_dir() and find_spec(package.module) is not None


def missing(packages: Iterable[Package]) -> list[str]:
    """One line for each comparison that cannot be made here, with the remedy."""
    if not FOLDER.is_dir():
        return [f"There is no {FOLDER}: rankspace is measured alone. The peers come with a source checkout."]
    return [
        f"{package.name} is not installed and not compared with; pip install {package.name}."
        for package in packages
        if not installed(package)
    ]
