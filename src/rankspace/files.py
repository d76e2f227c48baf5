"""Writing files whole or not at all."""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from rankspace.errors import FormatError


@contextmanager
def whole_file(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A file beside `path` to write to, which takes its place when the block ends well and else disappears.

    Links are followed. Raises FormatError, with the name of the file, when it cannot be written, also for what is not
    a file (a folder, or a device that replacing would destroy).
    """
    target = Path(os.path.realpath(path))
    unfinished = target.with_name(f".{secrets.token_hex(8)}.tmp")
    try:
        if target.exists() and not target.is_file():
            raise FormatError(f"{os.fspath(path)}: is not a file; give the name of one.")
        yield unfinished
        os.replace(unfinished, target)
    except OSError as error:
        raise FormatError(f"{os.fspath(path)}: cannot be written ({error.strerror or error}).") from None
    finally:
        with suppress(OSError):
            unfinished.unlink()
