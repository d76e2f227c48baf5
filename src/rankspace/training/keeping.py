"""What a run writes as it goes: checkpoints, metrics, results on the card, curves. Only the first process writes."""

from collections.abc import Mapping
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

from rankspace.errors import RankspaceError
from rankspace.training.background import Background
from rankspace.training.checkpoints import Checkpoint
from rankspace.training.run_directory import CHECKPOINTS, CURVES, RunDirectory
from rankspace.training.trackers import Tracker


class Keeper:
    """Writes to a run directory, and to a tracker if there is one; without a directory it does nothing.

    Files are written beside training, in the order in which they are given, so that of two a later one is never there
    without the earlier. What a checkpoint has must not change any more. A file that cannot be written is told by the
    next call, or by `settle`, and nothing after it is written.
    """

    def __init__(self, run: RunDirectory | None, tracker: Tracker | None = None, last_step: int = 0) -> None:
        self.run, self.tracker, self._last_step = run, tracker, last_step
        self._beside = Background("keeper")
        self._saved: Future[None] | None = None

    @property
    def writes(self) -> bool:
        return self.run is not None

    @property
    def good(self) -> str:
        """Where the last good checkpoint is, in words; waits for those that are being written."""
        if self.run is None:
            return "the first process has the last good checkpoint."
        self._beside.wait()
        return f"the checkpoint of step {self._last_step} is in {self.run.path / CHECKPOINTS / 'last'}."

    def save(self, checkpoint: Checkpoint) -> None:
        if self.run is not None:
            self._make_room()
            self._saved = self._beside(self._save, self.run, checkpoint)

    def _save(self, run: RunDirectory, checkpoint: Checkpoint) -> None:
        run.save(checkpoint)
        self._last_step = checkpoint.step

    def save_chosen(self, name: str, checkpoint: Checkpoint) -> None:
        if self.run is not None:
            self._make_room()
            self._beside(self.run.save_chosen, name, checkpoint)

    def _make_room(self) -> None:
        """Waits for the last checkpoint that was saved: only those of one place in training are in memory at once."""
        if self._saved is not None:
            self._saved.result()

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

    def settle(self) -> None:
        """Waits until everything is written. Raises WritingError for what could not be."""
        self._beside.settle()

    def close(self) -> None:
        """Ends the tracker, waits for what is being written, and draws the curves."""
        if self.tracker is not None:
            self.tracker.close()
        self._beside.close()
        if self.run is not None:
            draw_curves(self.run)


def draw_curves(run: RunDirectory) -> None:
    """Draws curves.png; not where matplotlib is not installed, nor where there is nothing that can be drawn."""
    from rankspace.viz.curves import training_curves

    with suppress(RankspaceError, ArithmeticError):
        training_curves({run.path.name: run.metrics()}).save(run.path / CURVES)
