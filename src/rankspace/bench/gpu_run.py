"""Where the time of a whole call of `train` goes.

A display is told of every step. Of evaluations and checkpoints it is not: `Stopwatch.watching` times the functions that
make them, and waits for the device before and after each, where the run waits anyway. What is none of these is the
rest: making the model and the folder of the run before the first step; after the last its card and curves, and waiting
for what is still being written.
"""

import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Literal, NamedTuple
from unittest.mock import patch

import torch

from rankspace.bench.device_clock import Marks, wait_for
from rankspace.training.evaluator import Evaluator
from rankspace.training.keeping import Keeper
from rankspace.training.loop import Trainer
from rankspace.training.progress import Quiet

Kind = Literal["evaluation", "checkpoints"]
MADE_BY: tuple[tuple[Kind, type, str], ...] = (
    ("evaluation", Evaluator, "__call__"),
    ("checkpoints", Trainer, "save"),
    ("checkpoints", Keeper, "save_chosen"),
)


class Pause(NamedTuple):
    """What was done between two steps."""

    kind: Kind
    num_steps: int  # before it
    seconds: float


class Stopwatch(Quiet):
    """When the device was done with the beginning of a run and with each of its steps, and what was between them."""

    def __init__(self, device: torch.device) -> None:
        self._device, self.ends = device, Marks(device)
        self.pauses: list[Pause] = []
        self.seconds = 0.0  # of what was watched

    def begin(self, title: str, num_epochs: int, done: float) -> None:
        self.ends.set()

    def advance(self, epochs: float, record: Mapping[str, Any]) -> None:
        self.ends.set()

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Within, one run is timed, from here to the end of it."""
        with ExitStack() as stack:
            for kind, owner, name in MADE_BY:
                stack.enter_context(patch.object(owner, name, self._timed(kind, getattr(owner, name))))
            begin = self._now()
            yield
            self.seconds = self._now() - begin

    def _timed(self, kind: Kind, function: Callable[..., Any]) -> Callable[..., Any]:
        def run(*given: Any, **named: Any) -> Any:
            begin = self._now()
            result = function(*given, **named)
            self.pauses.append(Pause(kind, len(self.ends) - 1, self._now() - begin))
            return result

        return run

    def _now(self) -> float:
        wait_for(self._device)
        return time.perf_counter()


class Later(NamedTuple):
    """The last epoch of a run: its steps, but for those whose shape has no graph yet, and the evaluation and the
    checkpoints that follow on steps of it. Checkpoints of the epoch before are written beside these steps."""

    num_words: int
    split: dict[str, float]  # seconds of steps, evaluation and checkpoints

    @property
    def seconds(self) -> float:
        return sum(self.split.values())


def later_epoch(
    first: int, num_words: Sequence[int], ends: Sequence[float], has_graph: Sequence[bool], pauses: Sequence[Pause]
) -> Later:
    """Of the epoch that begins with a step: the words of each step of the run, and the rest as `split` has it."""
    found = dict.fromkeys(("steps", "evaluation", "checkpoints"), 0.0)
    for pause in pauses:
        if pause.num_steps > first:
            found[pause.kind] += pause.seconds
    seconds = seconds_of_steps(ends, pauses)
    places = [place for place in range(first, len(num_words)) if has_graph[place]]
    found["steps"] = sum(seconds[place] for place in places)
    return Later(sum(num_words[place] for place in places), found)


def seconds_of_steps(ends: Sequence[float], pauses: Sequence[Pause]) -> list[float]:
    """Of each step, from the end of the one before, without the pauses between them."""
    found = [end - before for before, end in itertools.pairwise(ends)]
    for pause in pauses:
        if pause.num_steps < len(found):  # what follows on the last step is in none
            found[pause.num_steps] -= pause.seconds
    return found


def split(
    seconds: float, ends: Sequence[float], has_graph: Sequence[bool], pauses: Sequence[Pause]
) -> dict[str, float]:
    """The seconds of a run by what they went to; together they are all of them. `ends` are when it began and when each
    step was done; steps whose shape has no graph yet are compiled and recorded."""
    found = dict.fromkeys(("steps", "recording", "evaluation", "checkpoints"), 0.0)
    for pause in pauses:
        found[pause.kind] += pause.seconds
    for place, taken in enumerate(seconds_of_steps(ends, pauses)):
        found["steps" if has_graph[place] else "recording"] += taken
    return found | {"rest": seconds - sum(found.values())}
