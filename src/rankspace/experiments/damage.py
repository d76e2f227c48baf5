"""What is damaged in the output of an experiment is told with the remedy that fits there."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rankspace.errors import FormatError, WritingError

NO_DAMAGE = (": has version ", ": there is no key ")  # but another rankspace's


@contextmanager
def made_again(*folders: Path, options: str = "") -> Iterator[None]:
    """Within, a FormatError that tells of damage to one of the folders, or to a file in it, says to remove that folder
    and to run the same command, which makes it again; `options`: those it then needs besides. What cannot be written,
    as on a full disk, is no damage: the same command goes on."""
    try:
        yield
    except WritingError as error:
        problem = str(error).partition("; ")[0].removesuffix(".")
        raise WritingError(f"{problem}; put that right, and run the same command again.", error.reason) from error
    except FormatError as error:
        problem = str(error).partition("; ")[0].removesuffix(".")
        folder = next((each for each in folders if problem.startswith((f"{each}:", f"{each}{os.sep}"))), None)
        if folder is None or any(words in problem for words in NO_DAMAGE):
            raise
        raise FormatError(f"{problem}; remove {folder} and run the same command again{options}.") from error
