"""What the commands on a trained model share: their options, the run they are about, and where their output may go."""

import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rankspace.errors import FormatError, RankspaceError
from rankspace.files import check_place
from rankspace.seeds import LARGEST_SEED

if TYPE_CHECKING:
    from rich.console import Console
    from rich.status import Status

    from rankspace.cli.counting import Counter
    from rankspace.training import Trained


class DeviceName(StrEnum):
    """Where to compute; `auto` is a GPU if there is one."""

    auto = "auto"
    cpu = "cpu"
    cuda = "cuda"


class CheckpointName(StrEnum):
    """Which weights of a run."""

    best = "best"
    held_out = "held-out"
    last = "last"
    previous = "previous"


_RUN = "The folder of a run that `rankspace train` wrote, or a model of the package, such as craft-small."
RunPath = Annotated[Path, typer.Argument(metavar="RUN", help=_RUN)]
RunOrNone = Annotated[Path | None, typer.Argument(metavar="RUN", help=_RUN)]  # where it may be given otherwise
ModelOption = Annotated[
    Path | None, typer.Option("--model", metavar="RUN", help="The run, given as an option instead of as RUN.")
]
With = Annotated[
    list[Path] | None,
    typer.Option("--with", metavar="RUN", help="Another grammar, to parse together with RUN; may be repeated."),
]
Checkpoint = Annotated[CheckpointName, typer.Option(help="Which weights of the run: best, held-out, last or previous.")]
Fallback = Annotated[bool, typer.Option("--fallback", help="Take another checkpoint if this one cannot be read.")]
Device = Annotated[DeviceName, typer.Option(help="Where to compute: auto (a GPU if there is one), cpu or cuda.")]
MaxTokens = Annotated[int, typer.Option(min=1, help="Largest batch, in words with padding; smaller takes less memory.")]
Seed = Annotated[
    int, typer.Option(min=0, max=LARGEST_SEED, help="Everything drawn at random depends on this seed alone.")
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors on stderr.")]
Force = Annotated[bool, typer.Option("--force", help="Overwrite the output file.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of tables.")]
JsonLines = Annotated[bool, typer.Option("--json", help="Print one JSON object per line.")]

MAX_TOKENS = 2048
MOST_SIGNS = 8  # of those that a font lacks, how many are told


def chosen_run(command: str, run: Path | None, model: Path | None, files: list[Path] | None) -> tuple[Path, list[Path]]:
    """The run and the files of a command. With --model, what stands in the place of the run is the first file.

    Raises RankspaceError where there is no run.
    """
    others = files or []
    if model is not None:
        return model, others if run is None else [run, *others]
    if run is None:
        raise RankspaceError(f"{command}: there is no model; give RUN, or --model.")
    return run, others


def load_run(command: str, run: Path, checkpoint: str, device: str, fallback: bool, quiet: bool) -> "Trained":
    """The trained model of a run. Raises RankspaceError for a device that is not there, FormatError as `load` does."""
    import warnings

    from rankspace.training import load

    place = device_name(command, device)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what `fallback` warns of is the notice
        trained = load(run, checkpoint, place, fallback=fallback)
    if trained.notice is not None:
        notify(trained.notice, quiet)
    elif trained.checkpoint != checkpoint:
        notify(f"{run}: has no {checkpoint} checkpoint; took {trained.checkpoint}, of step {trained.step}", quiet)
    return trained


def load_others(
    command: str, others: list[Path] | None, checkpoint: str, device: str, fallback: bool, quiet: bool
) -> "list[Trained]":
    """The grammars of --with. Raises RankspaceError for a chain."""
    found = [load_run(command, run, checkpoint, device, fallback, quiet) for run in others or ()]
    for trained in found:
        require_grammar(command, trained)
    return found


def device_name(command: str, device: str) -> str:
    """cpu or cuda. Raises RankspaceError if it is not there."""
    import torch

    if device == DeviceName.auto:
        return "cuda" if torch.cuda.is_available() else "cpu"
    if device == DeviceName.cuda and not torch.cuda.is_available():
        raise RankspaceError(f"{command}: device 'cuda' is not to be had here; use cpu.")
    return str(device)


def require_grammar(command: str, trained: "Trained") -> None:
    """Raises RankspaceError for a chain, before anything is read."""
    if trained.kind != "tree":
        raise RankspaceError(f"{command}: {trained.model.NAME} is a chain; this is for grammars, which have trees.")


def check_file(output: Path, force: bool) -> None:
    """Raises FormatError where a file cannot or must not be written, before the work is done."""
    check_place(output)
    if output.is_dir():
        raise FormatError(f"{output}: is a folder; give the name of a file.")
    if output.exists() and not force:
        raise FormatError(f"{output}: exists already; choose another name, or overwrite it with --force.")


def check_folder(output: Path) -> None:
    """The same of a folder of many files, which is never overwritten."""
    check_place(output)
    if output.exists():
        raise FormatError(f"{output}: exists already; choose another name.")


def progress(step: str, quiet: bool) -> "Status":
    """Says on stderr, to people at a terminal, what is being done."""
    return _console(quiet).status(step)


def counting(step: str, quiet: bool, is_printing: bool = False) -> "Counter":
    """The same of work on sentences, which are counted, unless results go to the same terminal."""
    from rankspace.cli.counting import Counter

    return Counter(step, _console(quiet or not sys.stderr.isatty() or (is_printing and sys.stdout.isatty())))


def _console(quiet: bool) -> "Console":
    from rich.console import Console

    return Console(stderr=True, quiet=quiet)


def notify(message: str, quiet: bool) -> None:
    """A line on stderr."""
    if not quiet:
        print(message, file=sys.stderr)


def tell_lacking(command: str, output: Path, lacking: str, quiet: bool = False) -> None:
    """A line on stderr about characters that the font of a picture lacks, if there are any."""
    if lacking:
        more = f" and {len(lacking) - MOST_SIGNS} more" if len(lacking) > MOST_SIGNS else ""
        signs = " ".join(lacking[:MOST_SIGNS])
        notify(f"{command}: the font of {output.suffix.lower()} has no {signs}{more}; use .svg.", quiet)


def seeds_of(command: str, text: str) -> list[int]:
    """1,2,3. Raises RankspaceError for anything but different whole numbers that are seeds."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() for part in parts):
        raise _wrong_seeds(command, text)
    for part in parts:
        if len(part.lstrip("0")) > len(str(LARGEST_SEED)) or int(part) > LARGEST_SEED:
            raise RankspaceError(f"{command}: --seeds has {part}; give whole numbers from 0 to {LARGEST_SEED}.")
    numbers = [int(part) for part in parts]
    if len(set(numbers)) != len(numbers):
        raise _wrong_seeds(command, text)
    return numbers


def _wrong_seeds(command: str, text: str) -> RankspaceError:
    return RankspaceError(f"{command}: --seeds is {text!r}; give different whole numbers with commas, such as 1,2,3.")
