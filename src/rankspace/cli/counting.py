"""What people at a terminal see of long work on sentences: how many are done, how fast, and the time that is left."""

from collections.abc import Sequence
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import Progress, ProgressColumn, SpinnerColumn, TaskID, TextColumn
from rich.text import Text

if TYPE_CHECKING:
    from rankspace.training import Trained


class Counter:
    """A line on stderr that is gone when the work is done. What is printed meanwhile goes where it always does."""

    def __init__(self, step: str, console: Console) -> None:
        self._progress = Progress(
            SpinnerColumn(finished_text=" "),
            TextColumn("{task.description}"),
            _Figures(),
            console=console,
            transient=True,
            refresh_per_second=4,
            redirect_stdout=False,  # rich would print to stderr what is meant for a file
        )
        self._task = TaskID(0)
        self.begin(step)

    def begin(self, step: str, total: int | None = None) -> None:
        """The next step, of so many sentences, if that is known."""
        for task in self._progress.task_ids:
            self._progress.remove_task(task)
        self._task = self._progress.add_task(step, total=total)

    def follow(self, models: Sequence["Trained"]) -> None:
        """Sentences are done when all of the models have read them."""
        for model in models:
            model.watch = lambda num: self.advance(num / len(models))

    def advance(self, num: int | float) -> None:
        """So many more sentences are done; a part of one where several models have to read it."""
        self._progress.advance(self._task, num)

    def reach(self, num: int) -> None:
        """So many are done in all, those that no model has to read included."""
        self._progress.update(self._task, completed=num)

    def __enter__(self) -> "Counter":
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()


class _Figures(ProgressColumn):
    def render(self, task: Any) -> Text:
        return Text(figures(task.completed, task.total, task.elapsed or 0.0))


def figures(done: int | float, total: int | None, seconds: float) -> str:
    """1,902 of 5,000 sentences, 210 a second, 0:00:15 left; without a total what is known without it."""
    if not done:
        return "" if total is None else f"{total:,} sentences"
    count = f"{int(done):,} sentences" if total is None else f"{int(done):,} of {total:,} sentences"
    if not seconds:
        return count
    rate = done / seconds
    text = f"{count}, {rate:,.0f} a second" if rate >= 10 else f"{count}, {rate:.2g} a second"
    return text if total is None else f"{text}, {timedelta(seconds=round(max(total - done, 0) / rate))} left"
