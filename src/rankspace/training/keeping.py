"""What a run writes as it goes: checkpoints, metrics, results on the card, curves. Only the first process writes."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from threading import Event
from typing import Any

from rankspace.errors import RankspaceError
from rankspace.training.background import Background, Task
from rankspace.training.checkpoints import Checkpoint
from rankspace.training.run_directory import CHECKPOINTS, CURVES, RunDirectory
from rankspace.training.trackers import Tracker


class Keeper:
    """Writes to a run directory, and to a tracker if there is one; without a directory it does nothing.

    Files are written beside training, in the order in which they are given, so that of two a later one is never there
    without the earlier. If one cannot be written, nothing after it is, and all later calls raise WritingError.
    """

    def __init__(self, run: RunDirectory | None, tracker: Tracker | None = None, last_step: int = 0) -> None:
        self.run, self.tracker, self._last_step = run, tracker, last_step
        self._beside = Background("keeper")
        self._saved: Event | None = None

    def good(self) -> str:
        """Where the last good checkpoint is, in words, once those that are being written are."""
        if self.run is None:
            return "the first process has the last good checkpoint."
        self._beside.wait()
        return f"the checkpoint of step {self._last_step} is in {self.run.path / CHECKPOINTS / 'last'}."

    def save(self, make: Callable[[], Checkpoint]) -> None:
        """Has a checkpoint written, which is made at once and must not change any more."""
        if self.run is not None:
            self._make_room()
            self._saved = self._beside(self._save, self.run, make())

    def _save(self, run: RunDirectory, checkpoint: Checkpoint) -> None:
        run.save(checkpoint)
        self._last_step = checkpoint.step

    def save_chosen(self, name: str, make: Callable[[], Checkpoint]) -> None:
        """The same for one that is chosen."""
        if self.run is not None:
            self._make_room()
            self._beside(self.run.save_chosen, name, make())

    def _make_room(self) -> None:
        """Waits for the last checkpoint that was saved: only those of one place in training are in memory at once."""
        if self._saved is not None:
            self._saved.wait()
        self._beside.check()

    def record(self, record: Mapping[str, Any]) -> None:
        """A line of metrics.jsonl."""
        if self.run is not None:
            self._beside(self.run.add_metrics, record)
        if self.tracker is not None:
            self.tracker.add(record)

    def end(self, record: Mapping[str, Any]) -> None:
        """The line of metrics.jsonl that a run ends with, of its best checkpoint on the test split."""
        if self.run is not None:
            self._beside(self.run.end_metrics, record)
        if self.tracker is not None:
            self.tracker.add({**record, "step": self._last_step})  # to trackers steps do not go back

    def result(self, **entries: Any) -> None:
        """Entries of the results on the card."""
        if self.run is not None:
            self._beside(self.run.add_results, entries)

    def check(self) -> None:
        """Raises WritingError for what could not be written, without waiting for the rest."""
        self._beside.check()

    def settle(self) -> None:
        """Waits until everything is written. Raises WritingError for what could not be."""
        self._beside.settle()

    def give_up(self) -> None:
        """Leaves it at the files that are written, or being written."""
        self._beside.give_up()

    def close(self, let_go: Task) -> None:
        """Ends the tracker, waits for what is being written, draws the curves, and lets go of the folder. Nobody else
        has it while anything is written there, whatever interrupts this."""
        try:
            if self.tracker is not None:
                self.tracker.close()
            if self.run is not None:
                self._beside.wait()
                draw_curves(self.run)
        finally:
            self._beside.close(let_go)


def draw_curves(run: RunDirectory) -> None:
    """Draws curves.png; not where matplotlib is not installed, nor where there is nothing that can be drawn."""
    from rankspace.viz.curves import training_curves

    with suppress(RankspaceError, ArithmeticError):
        training_curves({run.path.name: run.metrics()}).save(run.path / CURVES)
