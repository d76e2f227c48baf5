"""`rankspace experiment`: a table of the paper, row by row, as far as the time goes."""

import math
from pathlib import Path
from typing import Annotated, Any

import typer

from rankspace.cli.output import print_json, print_line, print_pairs, print_table
from rankspace.cli.run_options import AsJson, Device, DeviceName, Quiet, device_name, notify, seeds_of
from rankspace.errors import RankspaceError


def experiment(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="A table; --list shows them.")] = None,
    minutes: Annotated[
        float | None, typer.Option(metavar="M", help="Stop after so many; the same command goes on.")
    ] = None,
    rows: Annotated[str | None, typer.Option(metavar="A,B", help="These rows alone; --list shows them.")] = None,
    seeds: Annotated[str | None, typer.Option(metavar="1,2", help="In place of the seeds of the rows.")] = None,
    data: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Raw files, or WSJ sections; none: synthetic sentences.")
    ] = None,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="DIR", help="Data, runs and records.")] = Path(
        "experiment-output"
    ),
    jobs: Annotated[int, typer.Option(metavar="N", help="So many runs at a time, which share the device.")] = 1,
    quick: Annotated[bool, typer.Option("--quick", help="Toy models on synthetic sentences, in seconds.")] = False,
    device: Device = DeviceName.auto,
    show: Annotated[
        bool, typer.Option("--list", help="List the tables, or the rows of NAME, and run nothing.")
    ] = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Run an experiment of the paper and write its record: all seeds, all epochs, all scores.

    Each seed of each row is a run in the output folder. Finished runs are skipped, and stopped ones go on.

    Examples:

    rankspace experiment --list

    rankspace experiment hmm-table2 --quick -o trial

    rankspace experiment hmm-table2 --data data --minutes 10 --rows rank-hmm-14,recipe-14 --seeds 1

    rankspace experiment pcfg-table1 --data data --rows rank-pcfg --jobs 3
    """
    if show:
        _list(name, as_json)
        return
    if name is None:
        raise RankspaceError("experiment: there is no table; give the NAME of one, as --list shows them.")
    if quick and data is not None:
        raise RankspaceError("experiment: --quick is on synthetic sentences; leave out --data.")
    if minutes is not None and not minutes > 0:
        raise RankspaceError(f"experiment: --minutes is {minutes:g}; give a number above 0.")
    if jobs < 1:
        raise RankspaceError(f"experiment: --jobs is {jobs}; give 1 or more.")
    from rankspace.experiments.jobs import Request, plan

    chosen = tuple(part.strip() for part in rows.split(",")) if rows is not None else ()
    numbers = tuple(seeds_of("experiment", seeds)) if seeds is not None else ()
    request = Request(name, output, data, chosen, numbers, quick)
    plan(request)  # tells mistakes before torch is imported, which takes seconds
    _report(_run(request, device_name("experiment", device), minutes, jobs, quiet), request, as_json, quiet)


def _run(request: Any, device: str, minutes: float | None, jobs: int, quiet: bool) -> Any:
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


def _report(found: Any, request: Any, as_json: bool, quiet: bool) -> None:
    if not found.is_complete:
        notify(f"{found.num_done} of {found.num_jobs} runs are done; go on with the same command", quiet)
    if as_json:
        print_json(found.record)
        return
    columns = ["row", "data", "seeds", "valid", "test", "S-F1 valid", "S-F1 test", "minutes"]
    print_table(columns, [_cells(row) for row in found.record["rows"]])
    print_line("")
    print_pairs([("record", str(request.file))])


def _cells(row: dict[str, Any]) -> list[str]:
    found = row["statistics"]
    splits = found["splits"]
    figures = [
        _spread(splits.get(split, {}).get(figure)) for figure in ("perplexity", "s_f1") for split in ("valid", "test")
    ]
    seeds = f"{found['num']} of {len(row['planned_seeds'])}"
    seeds += f", {found['num_failed']} failed" if found["num_failed"] else ""
    return [row["name"], row["data"], seeds, *figures, _spread(found["minutes"])]


def _spread(found: dict[str, Any] | None) -> str:
    if found is None:
        return "-"
    return f"{found['mean']:.2f}" + (f" +- {found['deviation']:.2f}" if found["num"] > 1 else "")


def _list(name: str | None, as_json: bool) -> None:
    from rankspace.experiments import load_table, table_names

    tables = [load_table(each) for each in ([name] if name is not None else table_names())]
    if as_json:
        print_json({table.name: [_about(row) for row in table.rows] for table in tables})
    elif name is None:
        print_table(["table", "rows", ""], [[table.name, str(len(table.rows)), table.title] for table in tables])
    else:
        rows = [_about(row) for table in tables for row in table.rows]
        cells = [[row["name"], row["title"], ", ".join(row["data"]), _listed(row["seeds"])] for row in rows]
        print_table(["row", "", "data", "seeds"], cells)


def _about(row: Any) -> dict[str, Any]:
    names = ("name", "title", "about", "extends", "ablation_of", "changes", "data", "seeds", "paper", "reproduction")
    return {name: getattr(row, name) for name in names}


def _listed(seeds: tuple[int, ...]) -> str:
    return ",".join(map(str, seeds))
