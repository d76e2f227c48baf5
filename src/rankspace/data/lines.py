"""Lines of files as bytes, their decoding with the place of what is no UTF-8, and what to do about bad input."""

import codecs
from collections.abc import Iterator
from pathlib import Path

from rankspace.errors import FormatError

MOST_EXAMPLES = 5


class BadInput:
    """What happens to input that cannot be used: the first is an error, or all are counted and left out."""

    def __init__(self, skip: bool = False) -> None:
        self.skip = skip
        self.num_skipped = 0
        self.examples: list[str] = []  # the first few messages

    def report(self, problem: str, remedy: str) -> None:
        """Raises FormatError with both, or counts the problem, which then needs no remedy."""
        if not self.skip:
            raise FormatError(f"{problem}; {remedy}." if remedy else f"{problem}.")
        self.num_skipped += 1
        if len(self.examples) < MOST_EXAMPLES:
            self.examples.append(f"{problem}.")


def raw_lines(file: Path) -> Iterator[tuple[int, bytes]]:
    """Numbers, from 1, and bytes of the lines of a file, one at a time; a byte order mark is left out."""
    with file.open("rb") as stream:
        for number, raw in enumerate(stream, 1):
            yield number, raw.removeprefix(codecs.BOM_UTF8) if number == 1 else raw


def decoded(raw: bytes, file: Path, line: int, bad: BadInput) -> str | None:
    """The text of bytes that begin on a line of a file; None, and a report with the line, where they are no UTF-8."""
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        found, place = f"byte 0x{raw[error.start]:02x}", error.start
    else:
        if "\0" not in text:
            return text
        found, place = "a NUL byte", raw.index(0)
    line += raw.count(b"\n", 0, place)
    column = place - raw.rfind(b"\n", 0, place)
    bad.report(
        f"{file}: line {line}: is not UTF-8 text ({found}, the {_ordinal(column)} of the line)",
        "convert the file to UTF-8, or leave the line out with --skip-bad",
    )
    return None


def _ordinal(number: int) -> str:
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"
