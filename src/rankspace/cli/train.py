"""`rankspace train`: a model from prepared data, by a preset or a configuration."""

import os
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from rankspace.cli.output import print_json, print_line, print_pairs, print_table
from rankspace.cli.run_info import evaluations_shown
from rankspace.cli.run_options import notify, seeds_of
from rankspace.errors import RankspaceError, WritingError
from rankspace.seeds import LARGEST_SEED

if TYPE_CHECKING:
    from rankspace.training.beforehand import Plan


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
        str | None,
        typer.Option(help="demo, demo-hmm, paper-pcfg, paper-hmm, best-pcfg, best-hmm, or the name of a model."),
    ] = None,
    config: Annotated[Path | None, typer.Option(metavar="FILE", help="A configuration in TOML.")] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Change a setting: section.key=value; may be repeated."),
    ] = None,
    seed: Annotated[int | None, typer.Option(min=0, max=LARGEST_SEED, help="The same as --set run.seed=N.")] = None,
    seeds: Annotated[
        str | None,
        typer.Option(metavar="1,2,3", help="Train one run for each seed, and print statistics over the runs."),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the run in DIR, if there is one.")] = False,
    device: Annotated[
        Device, typer.Option(help="Where to train: auto (a GPU if there is one), cpu or cuda.")
    ] = Device.auto,
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
    _check_options(data, set_ or [], seed, seeds)
    wanted = _Wanted(data, output, preset, config, [*(set_ or []), *_seed(seed)], resume)
    several = _begun(wanted) if seeds is None else _of_seeds(wanted, seeds_of("train", seeds))
    plan = several or [(_config(wanted), output)]
    _check(plan, wanted)  # before torch is imported, which takes seconds
    if several is not None and seeds is None:
        names = ", ".join(folder.name for _, folder in several)
        notify(f"{output}: going on with what was begun: {names}", quiet or not _is_first())
    from rankspace.training import InterruptionError, Outcome, train
    from rankspace.training.processes import leave_processes
    from rankspace.training.progress import make_display
    from rankspace.training.runs import train_each

    is_first = _is_first()

    def run(one: Any, folder: Path) -> Outcome:
        return train(one, folder, resume=resume, device=device.value, display=make_display(quiet or not is_first))

    try:
        if several is None:
            found = run(*plan[0])
            _report(found, as_json) if is_first else None
        else:
            many = train_each(several, output, run)
            _report_seeds(*many, as_json) if is_first else None
    except InterruptionError as stopped:
        if is_first:
            typer.echo(_how_to_go_on(stopped, several is not None), err=True)
        raise typer.Exit(stopped.exit_code) from None
    except WritingError as error:
        raise WritingError(_how_to_go_on(error, several is not None)) from None
    finally:
        leave_processes()


def _check_options(data: str | None, settings: list[str], seed: int | None, seeds: str | None) -> None:
    """Raises RankspaceError for what is given in two ways."""
    keys = {each.partition("=")[0].strip() for each in settings}
    ways = {
        "DATA": (data, "data.source"),
        "--seed": (seed, "run.seed"),
        "--seeds": (seeds, "run.seed"),
    }
    for option, (value, key) in ways.items():
        if value is not None and key in keys:
            raise RankspaceError(f"train: both {option} and --set {key} are given; give one of them.")
    if seed is not None and seeds is not None:
        raise RankspaceError("train: both --seed and --seeds are given; give one of them.")


class _Wanted(NamedTuple):
    """What the command says of a run, or of several."""

    data: str | None
    output: Path
    preset: str | None
    file: Path | None
    settings: list[str]
    resume: bool


def _begun(wanted: _Wanted) -> "Plan | None":
    """The runs of a folder of seeds that is resumed, each as its own configuration says; None where it is no such."""
    from rankspace.training.run_directory import begun_seeds, seed_folder

    seeds = begun_seeds(wanted.output) if wanted.resume and wanted.preset is None and wanted.file is None else []
    if not seeds:
        return None
    folders = [seed_folder(wanted.output, seed) for seed in seeds]
    return [(_config(wanted._replace(output=folder)), folder) for folder in folders]


def _of_seeds(wanted: _Wanted, seeds: list[int]) -> "Plan":
    from rankspace.training.beforehand import plan_of_seeds

    return plan_of_seeds(_config(wanted, goes_on=False), wanted.output, seeds)


def _config(wanted: _Wanted, goes_on: bool = True) -> Any:
    """The configuration: a preset, a file, or that of the run that goes on; then what was set; then the data."""
    from rankspace.training.config import config_from_text, load_config, load_preset, parsed_settings
    from rankspace.training.run_directory import CONFIG, RunDirectory

    output = wanted.output
    if wanted.preset is not None and wanted.file is not None:
        raise RankspaceError("train: both --preset and --config are given; give one of them.")
    if wanted.preset is not None:
        chosen = load_preset(wanted.preset)
    elif wanted.file is not None:
        chosen = load_config(wanted.file)
    elif wanted.resume and goes_on and output.exists():
        chosen = config_from_text(RunDirectory.open(output).config, str(output / CONFIG))
    else:
        if wanted.resume and goes_on:
            raise RankspaceError(
                f"train: {output}: there is no run to resume; give --preset NAME or --config FILE too."
            )
        raise RankspaceError("train: there is no configuration; give --preset NAME, --config FILE, or --resume a run.")
    given = {} if wanted.data is None else {"data.source": wanted.data}
    return chosen.changed({**parsed_settings(wanted.settings), **given})


def _check(plan: "Plan", wanted: _Wanted) -> None:
    """Looks at data and folders. One process of several leaves it to them all, for another may be writing already."""
    from rankspace.training.beforehand import check_run

    if os.environ.get("WORLD_SIZE", "1") == "1":
        for config, folder in plan:
            check_run(config, folder, wanted.resume, wanted.output)


def _is_first() -> bool:
    """Of several processes, the one that speaks."""
    return os.environ.get("RANK", "0") == "0"


def _how_to_go_on(stopped: Exception, is_one_of_several: bool) -> str:
    """Of several seeds those that are done are passed over."""
    from rankspace.training.runs import GO_ON

    text, go_on, how = str(stopped).partition(GO_ON)
    if is_one_of_several and go_on:
        return f"{text}go on with the same command and --resume"
    return f"{text}{go_on}{how}"


def _seed(seed: int | None) -> list[str]:
    return [] if seed is None else [f"run.seed={seed}"]


def _report(outcome: Any, as_json: bool) -> None:
    results = outcome.results
    if as_json:
        print_json({"directory": str(outcome.directory), **results})
        return
    if rows := [_row(name, results[name]) for name in evaluations_shown(results)]:
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
    rows = [[name.replace("f1", "S-F1"), *map(_figure, one[:4]), _runs(one)] for name, one in statistics.items()]
    if rows:
        print_table(["", "mean", "standard deviation", "best", "worst", "runs"], rows)
    else:
        print_line(f"{len(outcomes)} runs; there is no figure that all of them have")


def _runs(statistic: Any) -> str:
    return f"{statistic.num}" + (f", and {statistic.num_infinite} infinite" if statistic.num_infinite else "")


def _figure(value: float | str | None) -> str:
    return "-" if value is None else value if isinstance(value, str) else f"{value:.2f}"
