"""What a run writes as it goes: checkpoints, metrics, results on the card, curves. Only the first process writes."""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from rankspace.errors import RankspaceError
from rankspace.training.checkpoints import Checkpoint
from rankspace.training.run_directory import CHECKPOINTS, CURVES, RunDirectory
from rankspace.training.trackers import Tracker


class Keeper:
    """Writes to a run directory, and to a tracker if there is one; without a directory it does nothing."""

    def __init__(self, run: RunDirectory | None, tracker: Tracker | None = None, last_step: int = 0) -> None:
        self.run, self.tracker, self._last_step = run, tracker, last_step

    @property
    def writes(self) -> bool:
        return self.run is not None

    @property
    def good(self) -> str:
        """Where the last good checkpoint is, in words."""
        if self.run is None:
            return "the first process has the last good checkpoint."
        return f"the checkpoint of step {self._last_step} is in {self.run.path / CHECKPOINTS / 'last'}."

    def save(self, checkpoint: Checkpoint) -> None:
        if self.run is not None:
            self.run.save(checkpoint)
            self._last_step = checkpoint.step

    def save_chosen(self, name: str, checkpoint: Checkpoint) -> None:
        if self.run is not None:
            self.run.save_chosen(name, checkpoint)

    def record(self, record: Mapping[str, Any]) -> None:
        """A line of metrics.jsonl."""
        if self.run is not None:
            self.run.add_metrics(record)
        if self.tracker is not None:
            self.tracker.add(record)

    def end(self, record: Mapping[str, Any]) -> None:
        """The line of metrics.jsonl that a run ends with, of its best checkpoint on the test split."""
        if self.run is not None:
            self.run.end_metrics(record)
        if self.tracker is not None:
            self.tracker.add({**record, "step": self._last_step})  # to trackers steps do not go back

    def result(self, **entries: Any) -> None:
        """Entries of the results on the card."""
        if self.run is not None:
            self.run.update_card(results={**self.run.card.get("results", {}), **entries})

    def close(self) -> None:
        """Draws the curves and ends the tracker."""
        if self.tracker is not None:
            self.tracker.close()
        if self.run is not None:
            draw_curves(self.run)


def draw_curves(run: RunDirectory) -> None:
    """Draws curves.png; not where matplotlib is not installed, nor where there is nothing that can be drawn."""
    from rankspace.viz.curves import training_curves

    with suppress(RankspaceError, ArithmeticError):
        training_curves({run.path.name: run.metrics()}).save(run.path / CURVES)
