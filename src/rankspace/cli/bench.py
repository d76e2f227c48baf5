"""`rankspace bench`: measurements that check their own results, as tables or JSON."""

from collections.abc import Callable
from enum import StrEnum
from json import dumps
from pathlib import Path
from typing import Annotated, Any

import typer

from rankspace.cli.bench_gpu_table import show_gpu
from rankspace.cli.bench_tables import show_fgg, show_suite
from rankspace.cli.help_text import Command, Group
from rankspace.cli.output import print_json
from rankspace.errors import RankspaceError
from rankspace.files import whole_file

app = typer.Typer(
    cls=Group,
    no_args_is_help=True,
    help="""Measure speed; each result is checked in the run that times it.

    Examples:

    rankspace bench tree --quick

    rankspace bench chain --device cuda --output chain.json
    """,
)

Device = Annotated[str, typer.Option(help="cpu or cuda.")]
Quick = Annotated[bool, typer.Option("--quick", help="Small sizes, to check that it runs; says nothing about speed.")]
Alone = Annotated[
    bool,
    typer.Option("--alone", help="Measure these sizes only: none around them, no other packages, no growth of costs."),
]
Output = Annotated[Path | None, typer.Option("--output", "-o", help="Also write the JSON object to this file.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of tables.")]
Rank = Annotated[int, typer.Option(min=1, help="Rank of the decomposition.")]
Batch = Annotated[int, typer.Option(min=1, help="Sentences in a batch.")]
Length = Annotated[int, typer.Option(min=2, help="Words in a sentence.")]
Vocabulary = Annotated[int, typer.Option(min=1, help="Words in the vocabulary.")]


class Precision(StrEnum):
    """How exactly matrices are multiplied."""

    highest = "highest"
    high = "high"
    medium = "medium"


@app.command("fgg", cls=Command)
def bench_fgg(
    device: Device = "cpu",
    states: Annotated[int, typer.Option(min=1, help="States of the decomposed PCFG.")] = 2000,
    rank: Rank = 50,
    quick: Quick = False,
    output: Output = None,
    json: Json = False,
) -> None:
    """Time the generic engine: what its generality costs, and what rank space gains.

    Examples:

    rankspace bench fgg --quick

    rankspace bench fgg --states 500 --rank 20 --json
    """
    place = _place("fgg", device, output)
    from rankspace.bench import fgg

    sizes = fgg.QUICK if quick else fgg.Sizes(states=states, rank=rank)
    result = _with_progress("fgg", fgg.num_runs(sizes), lambda tick: fgg.run(sizes, place, tick))
    _report(result, output, None if json else show_fgg)


@app.command("chain", cls=Command)
def bench_chain(
    device: Device = "cpu",
    states: Annotated[int, typer.Option(min=1, help="States of the rank-space HMM.")] = 4096,
    rank: Rank = 256,
    batch: Batch = 16,
    length: Length = 64,
    vocabulary: Vocabulary = 1000,
    alone: Alone = False,
    quick: Quick = False,
    output: Output = None,
    json: Json = False,
) -> None:
    """Time rank-space HMMs, forward and backward, against autograd, other packages and the claimed costs.

    Examples:

    rankspace bench chain --quick

    rankspace bench chain --states 32768 --rank 4096 --device cuda --alone
    """
    place = _place("chain", device, output)
    from rankspace.bench import chain

    size = chain.Size(states, rank, batch, length, vocabulary)
    suite = chain.quick_suite(place) if quick else chain.suite(size, place, alone)
    _report(_with_progress("chain", suite.num_runs, suite.run), output, None if json else show_suite)


@app.command("tree", cls=Command)
def bench_tree(
    device: Device = "cpu",
    nonterminals: Annotated[int, typer.Option(min=1, help="Nonterminals of the rank-space PCFG.")] = 450,
    preterminals: Annotated[int, typer.Option(min=1, help="Preterminals of the rank-space PCFG.")] = 900,
    rank: Rank = 100,
    batch: Batch = 16,
    length: Length = 40,
    vocabulary: Vocabulary = 1000,
    alone: Alone = False,
    quick: Quick = False,
    output: Output = None,
    json: Json = False,
) -> None:
    """Time rank-space PCFGs, forward and backward, against autograd, torch-struct and the claimed costs.

    Examples:

    rankspace bench tree --quick

    rankspace bench tree --nonterminals 4500 --preterminals 9000 --rank 1000 --device cuda --alone
    """
    place = _place("tree", device, output)
    from rankspace.bench import tree

    size = tree.Size(nonterminals, preterminals, rank, batch, length, vocabulary)
    suite = tree.quick_suite(place) if quick else tree.suite(size, place, alone)
    _report(_with_progress("tree", suite.num_runs, suite.run), output, None if json else show_suite)


@app.command("gpu", cls=Command)
def bench_gpu(
    rows: Annotated[
        list[str] | None,
        typer.Option("--rows", metavar="NAME", help="Run only this row; may be repeated, or several with commas."),
    ] = None,
    precision: Annotated[
        Precision | None, typer.Option(help="Precision of all rows; if left out, each row has its own.")
    ] = None,
    sweep: Annotated[
        bool, typer.Option("--sweep", help="Also measure steps of rank-pcfg at several lengths, ranks and batch sizes.")
    ] = False,
    quick: Quick = False,
    output: Output = None,
    json: Json = False,
) -> None:
    """Time training steps, parses and training runs on one GPU, after a comparison with float64.

    The output file is written after each of them, so that what was measured is kept if the command is cut off. The exit
    code is 1 if something was found wrong.

    Examples:

    rankspace bench gpu --sweep --output gpu-h200.json

    rankspace bench gpu --rows rank-pcfg,rank-hmm --precision highest
    """
    from rankspace.bench import gpu_rows

    names = gpu_rows.chosen([name for given in rows or [] for name in given.split(",") if name])
    place = _gpu(output)
    from rankspace.bench import gpu

    job = gpu.Job(names, None if precision is None else precision.value, sweep, quick)

    def run(tick: Callable[[], None]) -> dict[str, Any]:
        def keep(record: dict[str, Any]) -> None:
            tick()
            _write(record, output)

        return gpu.run(job, place, keep)

    record = _with_progress("gpu", job.num_runs, run)
    _report(record, output, None if json else show_gpu)
    if not gpu.is_right(record):
        raise typer.Exit(1)


def _place(command: str, device: str, output: Path | None) -> Any:
    """The device, after what can be known to fail beforehand."""
    import torch

    if device not in ("cpu", "cuda") or (device == "cuda" and not torch.cuda.is_available()):
        other = " or cuda" if torch.cuda.is_available() else ""
        raise RankspaceError(f"bench {command}: device {device!r} is not to be had here; use cpu{other}.")
    _check_folder(command, output)
    return torch.device(device)


def _gpu(output: Path | None) -> Any:
    import torch

    if not torch.cuda.is_available():
        raise RankspaceError("bench gpu: torch sees no CUDA device; run it on a machine with a GPU.")
    _check_folder("gpu", output)
    return torch.device("cuda", torch.cuda.current_device())


def _check_folder(command: str, output: Path | None) -> None:
    if output is not None and not output.absolute().parent.is_dir():
        raise RankspaceError(
            f"bench {command}: there is no folder {output.absolute().parent} to write {output.name} into."
        )


def _with_progress(command: str, total: int, run: Callable[[Callable[[], None]], dict[str, Any]]) -> dict[str, Any]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    title = TextColumn(f"bench {command}")
    columns = title, BarColumn(), MofNCompleteColumn(), TextColumn("runs"), TimeRemainingColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=total)
        return run(lambda: progress.advance(task))


def _report(result: dict[str, Any], output: Path | None, show: Callable[[dict[str, Any]], None] | None) -> None:
    _write(result, output)
    if show is None:
        print_json(result)
    else:
        show(result)


def _write(result: dict[str, Any], output: Path | None) -> None:
    if output is not None:
        with whole_file(output) as file:
            file.write_text(dumps(result, indent=1) + "\n", encoding="utf-8")
