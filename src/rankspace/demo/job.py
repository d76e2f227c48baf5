"""The main job on synthetic data: a treebank, a grammar and a language model trained without trees, their scores."""

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rankspace.data import save_prepared
from rankspace.data.prepared import load_card
from rankspace.demo.grammars import Model, check_grammars
from rankspace.demo.report import write_report
from rankspace.demo.scores import Scores, measure
from rankspace.demo.treebank import make_treebank
from rankspace.errors import FormatError
from rankspace.files import check_no_file
from rankspace.seeds import LARGEST_SEED
from rankspace.training import Config, RunDirectory, Trained, load, load_preset, train
from rankspace.training.progress import Display
from rankspace.training.restarts import train_restarts

SENTENCES = 4000
RESTARTS = 8  # grammars that are begun: some seeds end near right-branching, and their likelihood tells
FIRST_EPOCHS, FINALISTS = 4, 2  # when that is looked at, and how many go on
QUICK_SENTENCES = 800
QUICK = {
    "demo": {"run.epochs": 4, "curriculum.growth": 6},
    "demo-hmm": {"run.epochs": 4},
}

Tick = Callable[[str], None]


@dataclass(frozen=True)
class Job:
    """What came of it, and where it is."""

    grammars: list[Model]
    grammar: Trained
    chain: Trained
    scores: Scores
    output: Path
    report: Path


def run(
    output: Path,
    seed: int = 1,
    quick: bool = False,
    tick: Tick = lambda _: None,
    display: Display | None = None,
    device: str = "cpu",
) -> Job:
    """Everything, in the folder `output`: data, grammar and hmm (runs that every command takes), pictures, report.html.

    `tick` is told what is done next. What an earlier demonstration left there is replaced; raises FormatError for
    anything else in its place.
    """
    check_no_file(output)
    output.mkdir(parents=True, exist_ok=True)
    _clear(output)
    grammars = check_grammars(output / "rules", tick)
    tick("writing sentences")
    treebank = make_treebank(QUICK_SENTENCES if quick else SENTENCES)
    save_prepared(output / "data", treebank.data)

    source = {"data.source": str(output / "data")}
    first = RESTARTS * (seed - 1) + 1
    seeds = [(first + number) % (LARGEST_SEED + 1) for number in range(1 if quick else RESTARTS)]
    tick(f"training the grammar from {len(seeds)} seeds, to keep the one that explains the validation text best")
    train_restarts(
        demo_config("demo", seed, quick).changed(source),
        output / "grammar",
        seeds,
        tick=tick,
        device=device,
        first_epochs=0 if quick else FIRST_EPOCHS,
        finalists=FINALISTS,
    )
    tick("training the HMM")
    train(demo_config("demo-hmm", seed, quick).changed(source), output / "hmm", device=device, display=display)
    grammar, chain = (load(output / name, device=device) for name in ("grammar", "hmm"))
    tick("parsing and scoring")
    scores, report = measure(grammar, chain, treebank), output / "report.html"
    write_report(report, grammars, grammar, chain, treebank, scores)
    return Job(grammars, grammar, chain, scores, output, report)


def demo_config(preset: str, seed: int, quick: bool) -> Config:
    """How a model of the demonstration is trained."""
    changes = {"run.seed": seed, **(QUICK[preset] if quick else {})}
    return load_preset(preset).changed(changes)


def _clear(output: Path) -> None:
    """Removes what a demonstration wrote before, once all of it is known to be that."""
    runs = [output / name for name in ("grammar", "hmm") if (output / name).exists()]
    for folder in runs:
        RunDirectory.open(folder)
    data = output / "data"
    if data.exists() and load_card(data).get("preset") != "synthetic":
        raise FormatError(f"{data}: is no data of a demonstration; choose another --output.")
    for folder in (*runs, data):
        shutil.rmtree(folder, ignore_errors=True)
