"""`rankspace experiment`: a table of the paper, row by row, as far as the time goes."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rankspace.cli.output import print_json, print_line, print_pairs, print_table
from rankspace.cli.run_options import AsJson, Device, DeviceName, Quiet, device_name, notify, seeds_of
from rankspace.errors import RankspaceError
from rankspace.files import check_no_file

if TYPE_CHECKING:
    from rankspace.experiments import Row
    from rankspace.experiments.jobs import Job, Request

FIGURES = ("perplexity valid", "perplexity test", "S-F1 valid", "S-F1 test")
TOGETHER = "seeds together"  # a column where there is something in it
COLUMNS = ("row", "data", "seeds", *FIGURES, TOGETHER, "right-branching test", "collapsed test", "minutes")


def experiment(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="Name of a table; --list shows them.")] = None,
    minutes: Annotated[
        float | None, typer.Option(metavar="M", help="Stop after M minutes; the same command then goes on.")
    ] = None,
    rows: Annotated[str | None, typer.Option(metavar="A,B", help="Only these rows; --list shows them.")] = None,
    on: Annotated[str | None, typer.Option(metavar="A,B", help="Only these data sets; --list shows them.")] = None,
    seeds: Annotated[
        str | None, typer.Option(metavar="1,2", help="Use these seeds instead of those of the rows.")
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Folder of raw files or WSJ sections; if left out, synthetic sentences."),
    ] = None,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="DIR", help="Folder for data, runs and records.")
    ] = Path("experiment-output"),
    jobs: Annotated[int, typer.Option(metavar="N", help="Train N runs at a time, which share the device.")] = 1,
    quick: Annotated[
        bool, typer.Option("--quick", help="Train toy models on synthetic sentences, in seconds.")
    ] = False,
    device: Device = DeviceName.auto,
    show: Annotated[
        bool, typer.Option("--list", help="List the tables, or the rows of NAME, and run nothing.")
    ] = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Run an experiment of the paper and write its record: all seeds, all epochs, all scores.

    Each seed of each row is a run in the output folder. Finished runs are skipped, and stopped runs go on; --list shows
    how many are done.

    Examples:

    rankspace experiment --list -o out

    rankspace experiment hmm-table2 --list

    rankspace experiment hmm-table2 --quick -o trial

    rankspace experiment hmm-table2 --data data --minutes 10 --rows rank-hmm-14,recipe-14 --seeds 1

    rankspace experiment pcfg-table1 --data data --rows rank-pcfg --on craft --jobs 3
    """
    of_runs = (minutes, rows, on, seeds, data)
    if show or (name is None and not quick and jobs == 1 and not any(given is not None for given in of_runs)):
        _list(name, _parts(rows), output, quick, as_json)
        return
    if name is None:
        raise RankspaceError("experiment: there is no table; give the NAME of one, as --list shows them.")
    if quick and data is not None:
        raise RankspaceError("experiment: --quick is on synthetic sentences; leave out --data.")
    if minutes is not None and not minutes > 0:
        raise RankspaceError(f"experiment: --minutes is {minutes:g}; give a number above 0.")
    if jobs < 1:
        raise RankspaceError(f"experiment: --jobs is {jobs}; give 1 or more.")
    check_no_file(output)
    from rankspace.experiments.jobs import Request, plan

    numbers = tuple(seeds_of("experiment", seeds)) if seeds is not None else ()
    request = Request(name, output, data, _parts(rows), _parts(on), numbers, quick)
    plan(request)  # tells mistakes before torch is imported, which takes seconds
    _report(_run(request, device_name("experiment", device), minutes, jobs, quiet), request, as_json, quiet)


def _parts(text: str | None) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",")) if text is not None else ()


def _run(request: "Request", device: str, minutes: float | None, jobs: int, quiet: bool) -> Any:
    from rankspace.experiments.runner import run_table
    from rankspace.training import InterruptionError
    from rankspace.training.progress import make_display

    try:
        return run_table(
            request,
            device,
            math.inf if minutes is None else minutes,
            lambda: make_display(quiet),
            lambda line: notify(line, quiet),
            jobs,
            quiet,
        )
    except InterruptionError as stopped:
        typer.echo(f"{str(stopped).partition('; ')[0]}; go on with the same command", err=True)
        raise typer.Exit(stopped.exit_code) from None


def _report(found: Any, request: "Request", as_json: bool, quiet: bool) -> None:
    if not found.is_complete:
        notify(f"{found.num_done} of {found.num_jobs} runs are done; go on with the same command", quiet)
    if as_json:
        print_json(found.record)
        return
    rows = found.record["rows"]
    columns = [name for name in COLUMNS if name != TOGETHER or any(row.get("together") for row in rows)]
    print_table(columns, [[cells[name] for name in columns] for cells in map(_cells, rows)])
    print_line("")
    print_pairs([("record", str(request.file))])


def _cells(row: dict[str, Any]) -> dict[str, str]:
    """By column."""
    found = row["statistics"]
    figures = [_figure(row, split, figure) for figure in ("perplexity", "s_f1") for split in ("valid", "test")]
    num_seeds = len({*row["planned_seeds"], *(run["seed"] for run in row["runs"])})
    seeds = _with_failed(f"{found['num']} of {num_seeds}", found["num_failed"])
    beside = [_together(row), *_beside_right_branching(row), _spread(found["minutes"])]
    return dict(zip(COLUMNS, [row["name"], row["data"], seeds, *figures, *beside], strict=True))


def _together(row: dict[str, Any]) -> str:
    """S-F1 of the test split where all seeds parse together."""
    found = (row.get("together") or {}).get("scores", {}).get("test", {}).get("s_f1")
    return "-" if found is None else f"{found:.2f}"


def _beside_right_branching(row: dict[str, Any]) -> list[str]:
    """S-F1 of right-branching trees of the test split, and how many seeds are below it."""
    bounds = (run["scores"].get("test", {}).get("bounds", {}) for run in row["runs"])
    right = next((each["right_branching"]["s_f1"] for each in bounds if each), None)
    num_collapsed = row["statistics"]["splits"].get("test", {}).get("num_collapsed")
    return ["-" if right is None else f"{right:.2f}", "-" if num_collapsed is None else str(num_collapsed)]


def _figure(row: dict[str, Any], split: str, name: str) -> str:
    """Over the seeds of a row; those with an infinite figure have no part in the mean, and are counted."""
    from rankspace.experiments.statistics import figure, num_infinite

    found, num = figure(row, split, name), num_infinite(row, split, name)
    if not num:
        return _spread(found)
    return (f"{_spread(found)}, " if found else "") + f"{num} infinite"


def _spread(found: dict[str, Any] | None) -> str:
    if found is None:
        return "-"
    return f"{found['mean']:.2f}" + (f" +- {found['deviation']:.2f}" if found["num"] > 1 else "")


def _with_failed(text: str, num_failed: int) -> str:
    return f"{text}, {num_failed} failed" if num_failed else text


def _list(name: str | None, rows: tuple[str, ...], output: Path, quick: bool, as_json: bool) -> None:
    """The tables, or the rows of one; with the runs that are done where there is an output folder."""
    from rankspace.experiments import table_names
    from rankspace.experiments.jobs import Request

    if name is None and rows:
        raise RankspaceError("experiment: --rows are of no table; give the NAME of one before --list.")
    names = [name] if name is not None else table_names()
    requests = [Request(each, output, rows=rows, quick=quick) for each in names]
    found = {request.name: _listed_rows(request) for request in requests}
    done = [f"done in {output}"] if output.is_dir() else []
    if as_json:
        print_json(found)
    elif name is None:
        cells = [_table_cells(request, found[request.name], bool(done)) for request in requests]
        print_table(["table", "rows", "runs", *done, ""], cells)
    else:
        print_table(["row", "", "data", "seeds", *done], [_row_cells(row, bool(done)) for row in found[name]])


def _listed_rows(request: "Request") -> list[dict[str, Any]]:
    """What each row that is asked for is, and how many of its runs are finished and failed."""
    from rankspace.experiments.jobs import begun

    runs, rows = begun(request), request.table().chosen(list(request.rows))
    return [_about(row, [job for job in runs if job.row.name == row.name]) for row in rows]


def _about(row: "Row", runs: "Sequence[Job]") -> dict[str, Any]:
    names = ("name", "title", "about", "extends", "ablation_of", "changes", "data", "seeds", "paper", "reproduction")
    ends = [entry for job in runs if (entry := job.entry) is not None]
    num_failed = sum("failed" in entry for entry in ends)
    return {name: getattr(row, name) for name in names} | {"done": len(ends) - num_failed, "failed": num_failed}


def _row_cells(row: dict[str, Any], has_done: bool) -> list[str]:
    seeds = ",".join(map(str, row["seeds"]))
    done = [_with_failed(str(row["done"]), row["failed"])] if has_done else []
    return [row["name"], row["title"], ", ".join(row["data"]), seeds, *done]


def _table_cells(request: "Request", rows: list[dict[str, Any]], has_done: bool) -> list[str]:
    num_runs = sum(len(row["seeds"]) * (1 if request.quick else len(row["data"])) for row in rows)
    done = _with_failed(str(sum(row["done"] for row in rows)), sum(row["failed"] for row in rows))
    return [request.name, str(len(rows)), str(num_runs), *([done] if has_done else []), request.table().title]
