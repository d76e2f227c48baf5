"""Which runs a request asks for, and how far each of them is, by what its folder says."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from rankspace.errors import RankspaceError
from rankspace.experiments.damage import made_again
from rankspace.experiments.datasets import NAMES, check_sources, name_of
from rankspace.experiments.tables import Row, Table, load_table
from rankspace.experiments.toy import toy_row
from rankspace.training import RunDirectory
from rankspace.training.data_source import SYNTHETIC
from rankspace.training.run_directory import is_run, seed_folder, seed_of

ENTRY = "experiment"  # of the card of a run that is done: its scores, or why it failed
SHARING = "sharing"  # of the card: how many runs had the device at the same time
QUICK, PREPARED = "quick", "data"  # folders of the output


@dataclass(frozen=True)
class Request:
    """What is asked for: a table, where everything goes, and what to leave out."""

    name: str
    output: Path
    folder: Path | None = None  # of raw data
    rows: tuple[str, ...] = ()  # none: all
    on: tuple[str, ...] = ()  # data sets, as rows name them or as they are there; none: all
    seeds: tuple[int, ...] = ()  # none: those of the rows
    quick: bool = False

    @property
    def place(self) -> Path:
        return self.output / QUICK if self.quick else self.output

    @property
    def prepared(self) -> Path:
        return self.place / PREPARED

    @property
    def file(self) -> Path:
        """Of the record."""
        return self.place / f"experiment-{self.name}.json"

    def table(self) -> Table:
        """With toy rows if they are asked for."""
        found = load_table(self.name)
        return replace(found, rows=tuple(map(toy_row, found.rows))) if self.quick else found


class Job(NamedTuple):
    """One run."""

    row: Row
    data: str  # the name of a `Dataset`
    seed: int
    folder: Path

    @property
    def title(self) -> str:
        return f"{self.row.name} on {self.data}, seed {self.seed}"

    @property
    def entry(self) -> dict[str, Any] | None:
        """What the card says of the experiment; None before the run is done."""
        found: dict[str, Any] | None = RunDirectory.open(self.folder).card.get(ENTRY) if is_run(self.folder) else None
        return found


ByRow = list[tuple[tuple[str, str], list[Job]]]  # names of a data set and a row, and the runs


class Plan(NamedTuple):
    """Jobs in the order in which they are run, and a line for each data set that is left out."""

    jobs: list[Job]
    left_out: list[str]


def plan(request: Request) -> Plan:
    """The jobs of a request: data sets one after the other, their rows in the order of the table, then seeds.

    A data set that is not there is left out if there is another and none is asked for by name. Raises RankspaceError
    otherwise, for rows and data sets that do not exist, and for data that were prepared from other raw files.
    """
    rows = request.table().chosen(list(request.rows))
    names, left_out = _names(request, list(dict.fromkeys(data for row in rows for data in row.data)))
    if request.folder is not None and not request.quick:
        with made_again(*(request.prepared / each for each in NAMES)):
            for name in names.values():
                check_sources(name, request.folder, request.prepared)
    jobs: dict[Path, Job] = {}
    for each, name in names.items():
        for row in rows:
            if each in row.data:
                jobs |= {job.folder: job for job in _of_row(request, row, name)}
    return Plan(list(jobs.values()), left_out)


def _names(request: Request, known: list[str]) -> tuple[dict[str, str], list[str]]:
    """What there is for each data set that is asked for, and a line for each that is left out."""
    names, missing = _found(request, known)
    for each in request.on or ([] if names else known):
        if each in missing:
            raise missing[each]
        if each not in {*names, *names.values()}:
            raise RankspaceError(
                f"experiment: no row asked for of {request.name} is on {each!r}; they are on {', '.join(known)}."
            )
    if request.on:
        return {each: name for each, name in names.items() if {each, name} & {*request.on}}, []
    return names, [str(error) for error in missing.values()]


def _found(request: Request, known: Iterable[str]) -> tuple[dict[str, str], dict[str, RankspaceError]]:
    """What there is for each data set, and what is missing of the others.

    Sentences are synthetic only where there is nothing else.
    """
    names: dict[str, str] = {}
    missing: dict[str, RankspaceError] = {}
    for each in known:
        try:
            names[each] = SYNTHETIC if request.quick else name_of(each, request.folder, request.prepared)
        except RankspaceError as error:
            missing[each] = error
    if set(names.values()) > {SYNTHETIC}:
        for each in [each for each, name in names.items() if name == SYNTHETIC]:
            missing[each] = RankspaceError(f"experiment: {each} is not prepared; give --data.")
            del names[each]
    return names, missing


def _of_row(request: Request, row: Row, data: str) -> list[Job]:
    place = row_folder(request, row, data)
    return [Job(row, data, seed, seed_folder(place, seed)) for seed in request.seeds or row.seeds]


def row_folder(request: Request, row: Row, data: str) -> Path:
    return request.place / request.name / data / row.name


def begun(request: Request) -> list[Job]:
    """All runs of a table that are in the output, whatever was asked for, by row and data."""
    jobs = []
    for data in NAMES:
        for row in request.table().rows:
            place = row_folder(request, row, data)
            jobs += [Job(row, data, seed, seed_folder(place, seed)) for seed in _seeds(place)]
    return jobs


def by_row(request: Request) -> ByRow:
    """The same, those of each row on each of its data sets: their names, then the runs."""
    groups = groupby(begun(request), key=lambda job: (job.data, job.row.name))
    return [(key, list(jobs)) for key, jobs in groups]


def _seeds(place: Path) -> list[int]:
    """Of the runs in the folder of a row; a copy such as seed-1.bak is none."""
    return sorted(seed for path in place.glob("seed-*") if (seed := seed_of(path)) is not None and is_run(path))
