"""Signals, and a time, that ask a run to stop: it finishes its step, saves, and says how to go on."""

import math
import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from types import FrameType, TracebackType
from typing import Any


class InterruptionError(Exception):
    """A run that stopped because a signal asked for it; everything is saved."""

    def __init__(self, message: str, signal_number: int) -> None:
        super().__init__(message)
        self.exit_code = 128 + signal_number  # as shells have it: 130 after Ctrl-C


class TimeUpError(InterruptionError):
    """A run that stopped because its time was up; everything is saved."""

    def __init__(self, message: str) -> None:
        super().__init__(message, 0)
        self.exit_code = 0


class Interruption:
    """Within, the first SIGINT or SIGTERM is only taken note of, and a line on stderr says so; the second acts as it
    would without.

    Where signals cannot be caught, as in threads, nothing changes. deadline: on the clock `time.monotonic`.
    """

    SIGNALS = (signal.SIGINT, signal.SIGTERM)

    def __init__(self, deadline: float = math.inf) -> None:
        self.number, self.deadline = 0, deadline
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

    @property
    def is_asked_for(self) -> bool:
        """By a signal, or by the clock."""
        return bool(self.number) or time.monotonic() >= self.deadline

    def error(self, message: str) -> InterruptionError:
        """What a run that stops raises. One process of several may have been told to stop by another's signal."""
        if not self.number and time.monotonic() >= self.deadline:
            return TimeUpError(message)
        return InterruptionError(message, self.number or signal.SIGTERM)

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
