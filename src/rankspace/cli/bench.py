"""`rankspace bench`: measurements that check their own results, as tables or JSON."""

from json import dumps
from pathlib import Path
from typing import Annotated, Any

import typer

from rankspace.cli.output import print_json, print_line, print_pairs, print_table
from rankspace.errors import RankspaceError
from rankspace.files import whole_file

app = typer.Typer(help="Measure speed; each result is checked in the run that times it.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Keeps `fgg` a sub-command while it is the only one."""


@app.command("fgg")
def bench_fgg(
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    states: Annotated[int, typer.Option(min=1, help="States of the decomposed PCFG.")] = 2000,
    rank: Annotated[int, typer.Option(min=1, help="Its rank.")] = 50,
    quick: Annotated[
        bool, typer.Option("--quick", help="Small sizes: checks that it runs, says nothing of speed.")
    ] = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Also write the JSON object to this file.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of tables.")] = False,
) -> None:
    """The generic engine: what generality costs, and what rank space gains."""
    import torch

    from rankspace.bench import fgg

    if device not in ("cpu", "cuda") or (device == "cuda" and not torch.cuda.is_available()):
        raise RankspaceError(f"bench fgg: device {device!r} is not to be had here; use cpu" + _or_cuda(torch) + ".")
    if output is not None and not output.absolute().parent.is_dir():
        raise RankspaceError(f"bench fgg: there is no folder {output.absolute().parent} to write {output.name} into.")
    sizes = fgg.QUICK if quick else fgg.Sizes(states=states, rank=rank)
    result = _with_progress(fgg, sizes, torch.device(device))
    if output is not None:
        _write(output, result)
    print_json(result) if json else _show(result)


def _or_cuda(torch: Any) -> str:
    return " or cuda" if torch.cuda.is_available() else ""


def _with_progress(fgg: Any, sizes: Any, device: Any) -> dict[str, Any]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = TextColumn("bench fgg"), BarColumn(), MofNCompleteColumn(), TextColumn("runs"), TimeRemainingColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=fgg.num_runs(sizes))
        result: dict[str, Any] = fgg.run(sizes, device, lambda: progress.advance(task))
    return result


def _write(path: Path, result: dict[str, Any]) -> None:
    with whole_file(path) as file:
        file.write_text(dumps(result, indent=1) + "\n", encoding="utf-8")


def _show(result: dict[str, Any]) -> None:
    print_pairs([(key, str(result[key])) for key in ("date", "commit", "device", "threads", "torch", "python")])
    dense = "Dense PCFG: generic engine against an inside algorithm by hand"
    decomposed = "Decomposed PCFG: rank space against state space, both on the generic engine"
    _show_part(dense, result["generality"], ("slower_forward", "slower_both"))
    for part in result["rank_space"]:
        _show_part(decomposed, part, ("faster_forward", "faster_both"))
    print_line("")
    print_line("Contractions grow with levels, not with items")
    counts = result["generality"]["counts"]
    shown = ("batch", "length", "items", "applications", "levels", "shapes", "contractions")
    print_table(shown, [[f"{row[name]:,}" for name in shown] for row in counts])


def _show_part(title: str, part: dict[str, Any], ratios: tuple[str, ...]) -> None:
    print_line("")
    print_line(f"{title} ({', '.join(f'{name} {size}' for name, size in part['sizes'].items())})")
    print_table(["run", "ms"], [(name.replace("_", " "), f"{ms:.1f}") for name, ms in part["milliseconds"].items()])
    print_pairs([(name.replace("_", " "), f"{part[name]:.2f} x") for name in ratios])
