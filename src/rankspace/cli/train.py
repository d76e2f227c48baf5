"""`rankspace train`: a model from prepared data, by a preset or a configuration."""

import os
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from rankspace.cli.output import print_json, print_line, print_pairs, print_table
from rankspace.cli.run_info import evaluations_shown
from rankspace.cli.run_options import seeds_of
from rankspace.errors import RankspaceError, WritingError
from rankspace.seeds import LARGEST_SEED


class Device(StrEnum):
    """`auto` is a GPU where there is one."""

    auto = "auto"
    cpu = "cpu"
    cuda = "cuda"


def train(
    data: Annotated[
        str | None, typer.Argument(metavar="DATA", help="Prepared data, synthetic, or synthetic:SENTENCES.")
    ] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", metavar="DIR", help="The folder of the run.")] = None,
    preset: Annotated[
        str | None, typer.Option(help="demo, demo-hmm, paper-pcfg, paper-hmm, best-hmm, or the name of a model.")
    ] = None,
    config: Annotated[Path | None, typer.Option(metavar="FILE", help="A configuration in TOML.")] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="section.key=value; may be repeated.")
    ] = None,
    seed: Annotated[int | None, typer.Option(min=0, max=LARGEST_SEED, help="The same as --set run.seed=N.")] = None,
    seeds: Annotated[str | None, typer.Option(metavar="1,2,3", help="One run for each, and a table of them.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in DIR, if there is one.")] = False,
    device: Annotated[Device, typer.Option(help="Where to train.")] = Device.auto,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of tables.")] = False,
) -> None:
    """Train a model and write a run: configuration, checkpoints, metrics, curves.

    Examples:

    rankspace train synthetic --preset demo -o run

    rankspace train my-data --preset paper-pcfg --set run.epochs=5 --set model.rank=500 -o run

    rankspace train --resume -o run

    torchrun --nproc-per-node 2 -m rankspace train my-data --preset paper-hmm -o run
    """
    if output is None:
        raise RankspaceError("train: there is no place for the run; give --output DIR.")
    numbers = None if seeds is None else seeds_of("train", seeds)
    chosen = _config(data, output, preset, config, [*(set_ or []), *_seed(seed)], resume, seeds)
    _check(chosen, output, numbers, resume)  # before torch is imported, which takes seconds
    from rankspace.training import InterruptionError, Outcome, train, train_seeds
    from rankspace.training.processes import leave_processes
    from rankspace.training.progress import make_display

    is_first = os.environ.get("RANK", "0") == "0"

    def run(one: Any, folder: Path) -> Outcome:
        return train(one, folder, resume=resume, device=device.value, display=make_display(quiet or not is_first))

    try:
        if numbers is None:
            found = run(chosen, output)
            _report(found, as_json) if is_first else None
        else:
            many = train_seeds(chosen, output, numbers, run)
            _report_seeds(*many, as_json) if is_first else None
    except InterruptionError as stopped:
        if is_first:
            typer.echo(_how_to_go_on(stopped, seeds), err=True)
        raise typer.Exit(stopped.exit_code) from None
    except WritingError as error:
        raise WritingError(_how_to_go_on(error, seeds)) from None
    finally:
        leave_processes()


def _config(
    data: str | None,
    output: Path,
    preset: str | None,
    file: Path | None,
    settings: list[str],
    resume: bool,
    seeds: str | None,
) -> Any:
    """The configuration: a preset, a file, or that of the run that goes on; then what was set; then the data."""
    from rankspace.training.config import config_from_text, load_config, load_preset, parsed_settings
    from rankspace.training.run_directory import CONFIG, RunDirectory

    if preset is not None and file is not None:
        raise RankspaceError("train: both --preset and --config are given; give one of them.")
    if preset is not None:
        chosen = load_preset(preset)
    elif file is not None:
        chosen = load_config(file)
    elif resume and seeds is None and output.exists():
        chosen = config_from_text(RunDirectory.open(output).config, str(output / CONFIG))
    else:
        if resume and seeds is None:
            raise RankspaceError(
                f"train: {output}: there is no run to resume; give --preset NAME or --config FILE too."
            )
        raise RankspaceError("train: there is no configuration; give --preset NAME, --config FILE, or --resume a run.")
    given = {} if data is None else {"data.source": data}
    return chosen.changed({**parsed_settings(settings), **given})


def _check(chosen: Any, output: Path, seeds: list[int] | None, resume: bool) -> None:
    """Looks at data and folders. One process of several leaves it to them all, for another may be writing already."""
    from rankspace.training.beforehand import check_run, check_seeds

    if os.environ.get("WORLD_SIZE", "1") != "1":
        return
    if seeds is None:
        check_run(chosen, output, resume)
    else:
        check_seeds(chosen, output, seeds, resume)


def _how_to_go_on(stopped: Exception, seeds: str | None) -> str:
    """Of several seeds those that are done are passed over."""
    from rankspace.training.runs import GO_ON

    text, go_on, how = str(stopped).partition(GO_ON)
    return f"{text}{go_on}{how}" if seeds is None or not go_on else f"{text}go on with the same command and --resume"


def _seed(seed: int | None) -> list[str]:
    return [] if seed is None else [f"run.seed={seed}"]


def _report(outcome: Any, as_json: bool) -> None:
    results = outcome.results
    if as_json:
        print_json({"directory": str(outcome.directory), **results})
        return
    rows = [_row(name, results[name]) for name in evaluations_shown(results)]
    print_table(["", "step", "perplexity", "S-F1", "corpus F1", "sentences", ""], rows)
    print_line("")
    pairs = [("steps", f"{results['steps']:,} in {results['seconds']:,.1f} s"), ("run", str(outcome.directory))]
    print_pairs([*pairs, ("stopped", results["stopped"])] if results["stopped"] else pairs)


def _row(name: str, record: dict[str, Any]) -> list[str]:
    title = name if name == record["split"] else f"{record['split']}, {name}"
    left_out = record["num_skipped"] + record["num_left_out"]
    figures = [_figure(record.get(key)) for key in ("perplexity", "f1", "corpus_f1")]
    notes = {"impossible": record["num_impossible"], "left out": left_out}
    note = ", ".join(f"{count:,} {what}" for what, count in notes.items() if count)
    return [title, f"{record['step']:,}", *figures, f"{record['num_sentences']:,}", note]


def _report_seeds(outcomes: list[Any], statistics: dict[str, Any], as_json: bool) -> None:
    if as_json:
        runs = [{"directory": str(outcome.directory), **outcome.results} for outcome in outcomes]
        print_json({"runs": runs, "summary": {name: one._asdict() for name, one in statistics.items()}})
        return
    rows = [[name.replace("f1", "S-F1"), *map(_figure, one[:4]), str(one.num)] for name, one in statistics.items()]
    print_table(["", "mean", "standard deviation", "best", "worst", "runs"], rows)


def _figure(value: float | str | None) -> str:
    return "-" if value is None else value if isinstance(value, str) else f"{value:.2f}"
