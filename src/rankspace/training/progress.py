"""What people see of a run: a display at a terminal, lines elsewhere, or nothing. All of it on stderr."""

import sys
import time
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Protocol, runtime_checkable

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text


@runtime_checkable
class Display(Protocol):
    """What the loop tells about itself."""

    def begin(self, title: str, num_epochs: int, done: float) -> None:
        """A run begins, or goes on after a share of its epochs."""

    def advance(self, epochs: float, record: Mapping[str, Any]) -> None:
        """So many epochs are done, a fraction included; `record` was logged last."""

    def evaluated(self, record: Mapping[str, Any]) -> None:
        """An evaluation has a result."""

    def say(self, text: str) -> None:
        """One line."""

    def end(self) -> None:
        """The run is over, or stopped."""


class Quiet:
    """Says nothing."""

    def begin(self, title: str, num_epochs: int, done: float) -> None: ...

    def advance(self, epochs: float, record: Mapping[str, Any]) -> None: ...

    def evaluated(self, record: Mapping[str, Any]) -> None: ...

    def say(self, text: str) -> None: ...

    def end(self) -> None: ...


class Lines(Quiet):
    """A line for each record, for logs."""

    def __init__(self, stream: Any = None) -> None:
        self._stream = stream or sys.stderr
        self._last: Mapping[str, Any] | None = None
        self._num_epochs, self._done, self._began = 0, 0.0, time.monotonic()

    def begin(self, title: str, num_epochs: int, done: float) -> None:
        self._num_epochs, self._done, self._began = num_epochs, done, time.monotonic()
        self.say(title)

    def advance(self, epochs: float, record: Mapping[str, Any]) -> None:
        if record and record is not self._last:
            self._last = record
            self.say(line(record) + self._left(epochs))

    def _left(self, epochs: float) -> str:
        """The time that the rest will take at the speed so far."""
        if epochs <= self._done:
            return ""
        seconds = (time.monotonic() - self._began) * (self._num_epochs - epochs) / (epochs - self._done)
        return f"  left {timedelta(seconds=round(max(seconds, 0.0)))}"

    def evaluated(self, record: Mapping[str, Any]) -> None:
        self.say(line(record))

    def say(self, text: str) -> None:
        print(text, file=self._stream, flush=True)


class Epochs(ProgressColumn):
    """3.4/10: epochs done, with the begun one as a fraction."""

    def render(self, task: Any) -> Text:
        return Text(f"{task.completed:.2f}/{task.total:g}")


class Live(Quiet):
    """A bar with the last figures, and a line for each evaluation above it."""

    def __init__(self, console: Console | None = None) -> None:
        self._progress = Progress(
            TextColumn("epoch"),
            Epochs(),
            BarColumn(),
            TextColumn("{task.fields[figures]}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=console or Console(stderr=True),
            refresh_per_second=4,
            speed_estimate_period=600,
        )
        self._task: TaskID | None = None
        self._done = 0.0
        self._record: Mapping[str, Any] = {}
        self._valid: Mapping[str, Any] = {}

    def begin(self, title: str, num_epochs: int, done: float) -> None:
        self._progress.start()
        self.say(title)
        self._task = self._progress.add_task("", total=num_epochs, figures="")
        self.advance(done, {})

    def advance(self, epochs: float, record: Mapping[str, Any]) -> None:
        self._done, self._record = epochs, record
        if self._task is not None:
            self._progress.update(self._task, completed=epochs, figures=figures({**record, **self._valid}))

    def evaluated(self, record: Mapping[str, Any]) -> None:
        self._valid = {f"valid {name}": record.get(name) for name in ("perplexity", "f1")}
        self.say(line(record))
        self.advance(self._done, self._record)

    def say(self, text: str) -> None:
        self._progress.console.print(text, markup=False, highlight=False)

    def end(self) -> None:
        self._progress.stop()


def make_display(quiet: bool) -> Display:
    """A display at a terminal, lines elsewhere, nothing if that is wanted."""
    if quiet:
        return Quiet()
    return Live() if sys.stderr.isatty() else Lines()


SHOWN = (
    ("loss", "loss", ".3f"),
    ("perplexity", "perplexity", ".2f"),
    ("f1", "S-F1", ".2f"),
    ("valid perplexity", "valid", ".2f"),
    ("valid f1", "S-F1", ".2f"),
    ("learning_rate", "rate", ".3g"),
    ("words_per_second", "words/s", ",.0f"),
    ("memory_mb", "MB", ",.0f"),
)


def figures(record: Mapping[str, Any]) -> str:
    """The figures of a record that people look at."""
    parts = []
    for name, title, form in SHOWN:
        value = record.get(name)
        if isinstance(value, int | float):
            parts.append(f"{title} {value:{form}}")
        elif isinstance(value, str):
            parts.append(f"{title} {value}")
    return "  ".join(parts)


def line(record: Mapping[str, Any]) -> str:
    """A record as one line."""
    left_out = record.get("num_skipped", 0) + record.get("num_left_out", 0)
    notes = [f"{record['num_impossible']} impossible"] if record.get("num_impossible") else []
    notes += [f"{left_out} left out"] if left_out else []
    notes += [f"{record['num_again']} done again"] if record.get("num_again") else []
    text = f"step {record['step']}  epoch {record['epoch']}  {record['split']}  {figures(record)}"
    return f"{text}  ({', '.join(notes)})" if notes else text
