"""How commands print: tables for people, one JSON object for programs.

JSON has no infinities: a number that is not finite is written as the string "inf", "-inf" or "nan", which Python's
`float` reads back. Tables are rich's, imported with the first of them, so that help comes without.
"""

import json
import math
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console
    from rich.status import Status
    from rich.table import Table

STANDARD_OUTPUT = "standard output"
UNFOLDED = 10_000  # columns, more than any line has


class StandardOutput:
    """stdout, whose errors of the system name it."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> Any:
        with _naming_stdout():
            return self._stream.write(text)

    def flush(self) -> None:
        with _naming_stdout():
            self._stream.flush()


@contextmanager
def _naming_stdout() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, STANDARD_OUTPUT) from None


@contextmanager
def printing() -> Iterator[StandardOutput]:
    """Within, sys.stdout is a `StandardOutput`. After an error of it, what is still buffered is given up, or the
    interpreter would fail on it once more."""
    stdout: Any = StandardOutput(sys.stdout)
    try:
        with redirect_stdout(stdout):
            yield stdout
    except OSError as error:
        if error.filename == STANDARD_OUTPUT:
            with suppress(OSError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), stdout.fileno())
        raise


def working(step: str) -> "Status":
    """Says on stderr, to people at a terminal, what is being done; `update` on it tells the next step."""
    from rich.console import Console

    return Console(stderr=True).status(step)


def print_json(data: Mapping[str, Any]) -> None:
    """One object on one line of stdout."""
    print(json.dumps(_plain(data), allow_nan=False))


def print_line(text: str) -> None:
    """A line that is not wrapped and in which no character means formatting."""
    _console().print(text, soft_wrap=True)


def print_pairs(pairs: Iterable[tuple[str, str]]) -> None:
    """Names and what they are, in two columns."""
    from rich.table import Table

    table = Table.grid("", "", padding=(0, 2))
    for column in table.columns:
        column.overflow = "fold"
    for name, text in pairs:
        table.add_row(name, text)
    _print(table)


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """A table whose cells are folded, never cut, where the terminal is too narrow."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE, pad_edge=False, show_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*row)
    print()
    _print(table)


def shown(value: object) -> str:
    """A label or domain value as people read it; quoted where blanks or control characters would hide in it."""
    text = str(value)
    plain = text.isprintable() and text and (not isinstance(value, str) or " " not in text)
    return text if plain else repr(value)


def shown_all(values: Iterable[object]) -> str:
    """Labels with commas between them."""
    return ", ".join(map(shown, values))


def number(value: float) -> str:
    """Ten digits, which is less than rounding touches and more than anyone compares by eye."""
    return f"{value:.10g}"


def exponential(log_value: float) -> str:
    """exp(log_value), also where a float cannot hold it."""
    if log_value == -math.inf or abs(log_value) < 700:
        return number(math.exp(log_value))
    exponent = math.floor(log_value / math.log(10))
    return f"{math.exp(log_value - exponent * math.log(10)):.6g}e{exponent:+d}"


def _print(table: "Table") -> None:
    """Blanks that fill a row up are for the eye alone."""
    console = _console()
    with console.capture() as captured:
        console.print(table)
    for line in captured.get().splitlines():
        print(line if console.is_terminal else line.rstrip())


def _console() -> "Console":
    """Of stdout. What does not go to a terminal is not folded, unless COLUMNS says how wide it may be: a line is a line
    to the program that reads it."""
    from rich.console import Console

    is_seen = sys.stdout.isatty() or "COLUMNS" in os.environ
    return Console(markup=False, highlight=False, emoji=False, width=None if is_seen else UNFOLDED)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value
