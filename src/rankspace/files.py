"""Writing files and folders whole or not at all, and reading the cards that say what a folder is."""

import json
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from rankspace.errors import FormatError, WritingError


@contextmanager
def writing(path: str | os.PathLike[str]) -> Iterator[None]:
    """Within, a file or folder is written. Raises WritingError, with its name, when that or a part of it cannot be."""
    try:
        yield
    except (OSError, WritingError) as error:
        reason = error.reason if isinstance(error, WritingError) else error.strerror or str(error)
        raise WritingError(f"{os.fspath(path)}: cannot be written ({reason}).", reason) from None


@contextmanager
def whole_file(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A file beside `path` to write to, which takes its place when the block ends well and else disappears.

    Links are followed. Raises WritingError, with the name of the file, when it cannot be written, and FormatError for
    what is not a file (a folder, or a device that replacing would destroy).
    """
    target = Path(os.path.realpath(path))
    unfinished = target.with_name(f".{secrets.token_hex(8)}.tmp")
    try:
        with writing(path):
            if target.exists() and not target.is_file():
                raise FormatError(f"{os.fspath(path)}: is not a file; give the name of one.")
            yield unfinished
            flush(unfinished)  # or a loss of power could leave an empty file in the place of a whole one
            os.replace(unfinished, target)
    finally:
        with suppress(OSError):
            unfinished.unlink()


@contextmanager
def whole_directory(path: str | os.PathLike[str], replace: bool = False) -> Iterator[Path]:
    """A folder beside `path` to write to, which takes its place when the block ends well and else disappears.

    What stands there is replaced only if asked, and is put back if that fails. Raises WritingError, with the name of
    the folder, when it cannot be written.
    """
    target = Path(os.path.realpath(path))
    unfinished, old = (target.with_name(f".{secrets.token_hex(8)}.tmp") for _ in range(2))
    try:
        with writing(path):
            unfinished.mkdir()
            yield unfinished
            if replace and target.exists():
                os.rename(target, old)
            os.rename(unfinished, target)
    finally:
        if old.exists() and not target.exists():
            os.rename(old, target)
        shutil.rmtree(unfinished, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Within, no other process has the folder held. That ends with the block, and with the process, however it ends.

    Raises FormatError where another has it. Nothing is held where the system or the file system knows no such locks.
    """
    try:
        import fcntl
    except ImportError:
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        raise FormatError(
            f"{folder}: another process is writing to it; wait for its end, or choose another name."
        ) from None
    except OSError:
        pass
    try:
        yield
    finally:
        os.close(handle)


def check_place(path: Path) -> None:
    """Raises FormatError where there is no folder to write a file or a folder into, before the work is done."""
    check_way(path)
    if not path.parent.is_dir():
        raise FormatError(f"{path}: there is no folder {str(path.parent)!r}; make it first.")


def check_way(path: Path) -> None:
    """Raises FormatError where a file is in the way of a folder that is made with those above it."""
    above = next((each for each in path.parents if each.exists()), None)
    if above is not None and not above.is_dir():
        raise FormatError(f"{path}: {str(above)!r} is a file, in which nothing can be; choose another place.")


def check_no_file(path: Path) -> None:
    """Raises FormatError for a file in place of a folder."""
    check_way(path)
    if path.exists() and not path.is_dir():
        raise FormatError(f"{path}: is a file; give the name of a folder.")


def flush(path: Path) -> None:
    """Waits until a file, or a folder with all files in it, is on the disk and would survive a loss of power."""
    for part in (*(path.iterdir() if path.is_dir() else ()), path):
        if part.is_dir() and os.name != "posix":  # other systems open no folders
            continue
        handle = os.open(part, os.O_RDONLY if part.is_dir() else os.O_RDWR)  # not all systems flush what is only read
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def read_card(
    file: Path, format: str, version: int, *, what: str, make: str, repair: str, upgrade: str
) -> dict[str, Any]:
    """The JSON object that says what its folder is: `what`, such as "a run". The last three are remedies: for a folder
    that is none, for a damaged file, for one of another version. Raises FormatError for each."""
    noun = what.removeprefix("a ")
    if not file.parent.exists():
        raise FormatError(f"{file.parent}: there is no such folder; {make}.")
    try:
        card = json.loads(file.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        raise FormatError(f"{file.parent}: is no {noun}: it has no {file.name}; {make}.") from None
    except ValueError:
        raise FormatError(f"{file}: is damaged (no JSON); {repair}.") from None
    if not isinstance(card, dict) or card.get("format") != format:
        raise FormatError(f"{file}: is no card of {what}; {make}.")
    if card.get("version") != version:
        found = card.get("version")
        raise FormatError(f"{file}: has version {found}, but this rankspace reads {version}; {upgrade}.")
    return card
