"""Runs the jobs of a table, one after the other or some at a time, until all are done or the time is up."""

import gc
import math
import shutil
import time
from collections.abc import Callable, Iterator, Sequence, Set
from typing import Any, NamedTuple

import torch

from rankspace.errors import NotEnoughMemoryError, RankspaceError, is_lack_of_memory
from rankspace.experiments import runs_together
from rankspace.experiments.damage import made_again
from rankspace.experiments.datasets import HELD_OUT, NAMES, SYNTHETIC_NOTE, Dataset, dataset
from rankspace.experiments.jobs import ENTRY, SHARING, ByRow, Job, Request, by_row, plan
from rankspace.experiments.record import write_record
from rankspace.experiments.scores import entry_of
from rankspace.experiments.side_by_side import Orders, run_side_by_side
from rankspace.experiments.toy import NUM_SENTENCES
from rankspace.training import Config, RunDirectory, train
from rankspace.training.config import config_from_text
from rankspace.training.data_source import DEFAULT_SIZE, SYNTHETIC
from rankspace.training.interruption import TimeUpError
from rankspace.training.progress import Display, Quiet
from rankspace.training.run_directory import CHECKPOINTS, CONFIG, is_run
from rankspace.training.watch import NumbersError


class Progress(NamedTuple):
    """The record of a table, and how many of the runs that were asked for are done."""

    record: dict[str, Any]
    num_done: int
    num_jobs: int

    @property
    def is_complete(self) -> bool:
        return self.num_done == self.num_jobs


def run_table(
    request: Request,
    device: str = "cpu",
    minutes: float = math.inf,
    display: Callable[[], Display] = Quiet,
    say: Callable[[str], None] = lambda _: None,
    workers: int = 1,
    quiet: bool = True,
) -> Progress:
    """Runs what is asked for and not done, and writes the record after each run.

    With `minutes` it stops after the step in which so many are over, but not before a first step; the next call goes on
    from there. A run whose numbers fail, or for which memory does not suffice, is marked as failed and passed over.
    Several `workers` are processes that share the device (`side_by_side`), with lines of their own for a display unless
    they are to be `quiet`; runs come out as alone, but for their time.
    Raises RankspaceError for data and rows that are not there; InterruptionError after a signal, when all is saved.
    """
    jobs, left_out = plan(request)
    for line in left_out:
        say(f"left out: {line.removeprefix('experiment: ')}")
    waiting = [job for job in jobs if job.entry is None]
    if not request.quick and any(job.data == SYNTHETIC for job in waiting):
        say(f"{SYNTHETIC_NOTE}; give --data for those of the table")
    if len(waiting) < len(jobs):
        say(f"{len(jobs) - len(waiting)} of {len(jobs)} runs are done already")
    deadline = time.monotonic() + 60 * minutes
    runner, together = Runner(request, device, display, say), min(workers, len(waiting))
    if together > 1:
        for name in dict.fromkeys(job.data for job in waiting):
            runner.read(name)  # prepared once, not by each
        orders = Orders(request, device, time.time() + 60 * minutes, quiet, together)
        run_side_by_side(waiting, orders, lambda: write_record(request, device))
    else:
        _run_in_turn(waiting, runner, deadline)
    num_done = sum(job.entry is not None for job in jobs)
    if num_done == len(jobs):
        _parse_together(runner, {(job.data, job.row.name) for job in jobs}, deadline)
    return Progress(write_record(request, device), num_done, len(jobs))


def _parse_together(runner: "Runner", wanted: Set[tuple[str, str]], deadline: float) -> None:
    """All seeds of rows, those of earlier calls included, then all rows on a data set; what the time does not suffice
    for is left to the next call."""
    for title, jobs in _groups(by_row(runner.request), wanted):
        if len(runs_together.parsing(jobs)) < 2 or runs_together.known(jobs) is not None:
            continue
        if time.monotonic() > deadline:
            runner.say("runs that are to parse together are left; go on with the same command")
            return
        runner.say(f"{title}, together")
        try:
            found = runner.read(jobs[0].data)
            runs_together.find(jobs, found.data, runner.request.table().splits, runner.device)
        except (RankspaceError, MemoryError, RuntimeError) as error:  # the runs are none the worse for it
            if not isinstance(error, RankspaceError) and not is_lack_of_memory(error):
                raise
            runner.say(f"{title}: runs do not parse together: {error}")
        _free()


def _groups(rows: ByRow, wanted: Set[tuple[str, str]]) -> Iterator[tuple[str, list[Job]]]:
    """What parses together, and how it is called."""
    for (data, row), jobs in rows:
        if (data, row) in wanted:
            yield f"{row} on {data}", jobs
    for data, jobs in runs_together.of_data_sets(rows).items():
        if data in {each for each, _ in wanted}:
            yield f"all rows on {data}", jobs


def _run_in_turn(jobs: Sequence[Job], runner: "Runner", deadline: float) -> None:
    """Writes the record after each run, whatever becomes of it."""
    for place, job in enumerate(jobs):
        left = (deadline - time.monotonic()) / 60
        if place and left <= 0:
            break
        try:
            runner.run(job, left)
        except TimeUpError:
            break
        finally:
            write_record(runner.request, runner.device)


class Runner:
    """Runs one job after the other; the data of the last stay in memory. `sharing`: runs that share the device."""

    def __init__(
        self,
        request: Request,
        device: str,
        display: Callable[[], Display],
        say: Callable[[str], None],
        sharing: int = 1,
    ) -> None:
        self.request, self.device, self.display, self.say, self.sharing = request, device, display, say, sharing
        self._dataset: Dataset | None = None

    def run(self, job: Job, minutes: float) -> None:
        """Trains and scores. Raises what `train` raises but for failures, which the card tells of."""
        found = self.read(job.data)
        self.say(job.title)
        with made_again(job.folder):
            _end(job, self._entry(job, found, minutes))
        _free()

    def _entry(self, job: Job, found: Dataset, minutes: float) -> dict[str, Any]:
        """Scores, or why the run failed."""
        try:
            train(
                self._config(job, found),
                job.folder,
                resume=True,
                device=self.device,
                display=self.display(),
                data=found.data,
                minutes=minutes,
            )
            return entry_of(job.folder, found.data, self.request.table().splits, self.device)
        except (NumbersError, NotEnoughMemoryError, MemoryError, RuntimeError) as error:
            if not job.folder.exists() or not (isinstance(error, NumbersError) or is_lack_of_memory(error)):
                raise
            if self.sharing > 1 and not isinstance(error, NumbersError):
                others = f"beside {self.sharing - 1} other runs"
                raise RankspaceError(
                    f"experiment: {job.title}: not enough memory {others}; give fewer --jobs."
                ) from error
            failed = str(error).partition("\n")[0].partition("; ")[0]
            self.say(f"{job.title}: failed: {failed}")
            return {"failed": failed}
        finally:
            _note_sharing(job, self.sharing)

    def read(self, name: str) -> Dataset:
        """The data of that name, prepared if they are not yet."""
        if self._dataset is None or self._dataset.name != name:
            self._dataset = None
            self.say(f"reading {name}")
            size = NUM_SENTENCES if self.request.quick else DEFAULT_SIZE
            folder, prepared = self.request.folder, self.request.prepared
            with made_again(*(prepared / each for each in NAMES), options="" if folder else ", with --data"):
                self._dataset = dataset(name, folder, prepared, size)
        return self._dataset

    def _config(self, job: Job, found: Dataset) -> Config:
        """Of a run that was begun elsewhere, the data are where they are here. A row that says nothing of precision
        goes on in the one it was begun in. Where trees choose a checkpoint, text without trees chooses another."""
        changes: dict[str, Any] = {"run.seed": job.seed, "data.source": found.source}
        if job.row.config.evaluation.measure == "s_f1":
            changes["data.held_out"] = HELD_OUT if HELD_OUT in found.data.splits else job.row.config.data.valid
        if job.folder.exists():
            stored = config_from_text(RunDirectory.open(job.folder).config, str(job.folder / CONFIG))
            changes |= {"data.source": stored.data.source, "data.held_out": stored.data.held_out}
            if "run.precision" not in job.row.changes:
                changes["run.precision"] = stored.run.precision
        return job.row.config.changed(changes)


def _note_sharing(job: Job, sharing: int) -> None:
    """The most runs that had the device at the same time, over all times that the run went on."""
    if is_run(job.folder):
        run = RunDirectory.open(job.folder)
        run.update_card(**{SHARING: max(sharing, run.card.get(SHARING, 1))})


def _end(job: Job, entry: dict[str, Any]) -> None:
    """Writes the result on the card. Checkpoints to go on from are of no more use, and large: the best one stays."""
    run = RunDirectory.open(job.folder)
    run.update_card(**{ENTRY: entry})
    if "scores" in entry and run.found("best").name == "best":
        for name in ("last", "previous"):
            shutil.rmtree(job.folder / CHECKPOINTS / name, ignore_errors=True)


def _free() -> None:
    """Gives back the memory of a run, graphs included, before the next."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
