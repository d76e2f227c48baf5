"""Signals that ask a run to stop: it finishes its step, saves, and says how to go on."""

import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from types import FrameType, TracebackType
from typing import Any


class InterruptionError(Exception):
    """A run that stopped because a signal asked for it; everything is saved."""

    def __init__(self, message: str, signal_number: int) -> None:
        super().__init__(message)
        self.exit_code = 128 + signal_number  # as shells have it: 130 after Ctrl-C


class Interruption:
    """Within, the first SIGINT or SIGTERM is only taken note of, and a line on stderr says so; the second acts as it
    would without.

    Where signals cannot be caught, as in threads, nothing changes.
    """

    SIGNALS = (signal.SIGINT, signal.SIGTERM)

    def __init__(self) -> None:
        self.number = 0
        self._before: dict[int, Callable[[int, FrameType | None], Any] | int | None] = {}

    def __enter__(self) -> "Interruption":
        for number in self.SIGNALS:
            try:
                self._before[number] = signal.signal(number, self._note)
            except ValueError:
                break
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._restore()

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.number = number
        self._restore()
        if os.environ.get("RANK", "0") == "0":
            with suppress(RuntimeError):  # the signal came in the middle of another line
                print(self._announcement(), file=sys.stderr, flush=True)

    @staticmethod
    def _announcement() -> str:
        """Several processes look at signals where they log alone."""
        place = "this step" if os.environ.get("WORLD_SIZE", "1") == "1" else "the next step that is logged"
        return f"stopping after {place}; a second signal ends the run at once, without saving"

    def _restore(self) -> None:
        while self._before:
            number, handler = self._before.popitem()
            signal.signal(number, handler)
