"""Makes the trained models of the package, in src/rankspace/shipped, from the runs of an experiment.

    rankspace experiment craft-small --data DIR -o OUT
    python benchmarks/ship.py OUT

Of the runs of a row the one is taken that is best on the validation split, by the measure that chose its checkpoint.
Stopped runs count as far as they came; a row without runs leaves its model as it is. Weights are stored as float16
where that leaves the perplexity of the validation split within 0.1 %, else as float32; the scores on the card are those
of the stored weights. What README.md says of the models, between its marks, is written anew.
"""

import argparse
import datetime
import shutil
from pathlib import Path
from typing import Any

import torch

from rankspace import load
from rankspace.bench import pages
from rankspace.experiments.datasets import dataset
from rankspace.experiments.jobs import ENTRY as SCORED
from rankspace.experiments.jobs import Job, Request, begun
from rankspace.experiments.scores import measured
from rankspace.experiments.toy import NUM_SENTENCES
from rankspace.files import whole_directory
from rankspace.training import RunDirectory
from rankspace.training.checkpoints import Checkpoint
from rankspace.training.config import config_from_text, config_text
from rankspace.training.run_directory import BEST, CONFIG, METRICS, VOCABULARY
from rankspace.training.shipped import ENTRY, FOLDER

README = Path(__file__).parents[1] / "README.md"
TABLE = "craft-small"
NAMES = {"pcfg": "craft-small", "hmm": "craft-small-hmm"}  # by row
DTYPES = (torch.float16, torch.float32)
MOST_LOSS = 1e-3  # of perplexity, by storing
KEPT = ("steps", "epochs", "seconds", "finished")  # of the results of training; scores are measured anew
LICENCE = "CC BY 3.0, https://creativecommons.org/licenses/by/3.0/"
ATTRIBUTION = (
    "made from the words of the CRAFT corpus (Colorado Richly Annotated Full Text), "
    "https://github.com/UCDenver-ccp/CRAFT; Verspoor et al. and Bada et al., BMC Bioinformatics 13, 2012"
)

SENTENCE = "mice lacking the receptor show severe defects in the development of the retina"
PASSAGE = """\
```sh
echo "{sentence}" | rankspace parse --model {name}
```

```text
{tree}
```

| model | is a | perplexity, test | S-F1, test | right-branching |
| --- | --- | --- | --- | --- |
{rows}"""


def ship(request: Request, place: Path, device: str) -> list[Path]:
    """The model of each row that has runs, written into a folder of its name; what is there is replaced."""
    made = []
    for row, name in NAMES.items():
        if jobs := [job for job in begun(request) if job.row.name == row and is_ready(job, request)]:
            pack(min(jobs, key=loss), [job.seed for job in jobs], request, place / name, device)
            made.append(place / name)
    return made


def is_ready(job: Job, request: Request) -> bool:
    """Whether a run is on the data it is meant for and has been evaluated."""
    return (request.quick or job.data in job.row.data) and BEST in results(job.folder)


def results(folder: Path) -> dict[str, Any]:
    """What a run wrote on its card so far."""
    found: dict[str, Any] = RunDirectory.open(folder).card["results"]
    return found


def loss(job: Job) -> float:
    """What is lowest for the best run of a row."""
    best = results(job.folder)[BEST]
    return -float(best["f1"]) if job.row.config.evaluation.measure == "s_f1" else float(best["perplexity"])


def pack(job: Job, seeds: list[int], request: Request, target: Path, device: str) -> None:
    """Stores a run in the first precision that is good enough, with its scores and its origin."""
    data = dataset(job.data, None, request.prepared, NUM_SENTENCES).data
    whole = measured(job.folder, BEST, data, ["valid"], device)["valid"]["perplexity"]
    for dtype in DTYPES:
        store(job.folder, target, dtype)
        scores = measured(target, BEST, data, request.table().splits, device)
        if scores["valid"]["perplexity"] <= whole * (1 + MOST_LOSS):
            break
    run = RunDirectory.open(target)
    run.update_card(**{SCORED: {"scores": scores}, ENTRY: origin(job, seeds, dtype, run.card)})


def store(folder: Path, target: Path, dtype: torch.dtype) -> None:
    """A run without what resuming needs and without the path of its data."""
    run = RunDirectory.open(folder)
    best = run.read(BEST)
    config = config_from_text(run.config, str(folder / CONFIG)).changed({"data.source": ""})
    card = {**run.card, "results": effort(results(folder))}
    with whole_directory(target, replace=True) as unfinished:
        (unfinished / CONFIG).write_text(config_text(config), encoding="utf-8")
        for name in (VOCABULARY, METRICS):
            shutil.copyfile(folder / name, unfinished / name)
        made = RunDirectory(unfinished)
        made.update_card(**card)
        weights = {name: tensor.to(dtype) for name, tensor in best.weights.items()}
        made.save_chosen(BEST, Checkpoint(weights, {"step": best.step}))


def effort(found: dict[str, Any]) -> dict[str, Any]:
    """What training took; of a stopped run, to its best checkpoint."""
    if found.get("finished"):
        return {key: found[key] for key in KEPT}
    best = found[BEST]
    return {"steps": best["step"], "epochs": best["epoch"], "seconds": best["elapsed"], "finished": False}


def origin(job: Job, seeds: list[int], dtype: torch.dtype, card: dict[str, Any]) -> dict[str, Any]:
    return {
        "date": datetime.date.today().isoformat(),
        "commit": card["environment"]["commit"],
        "command": f"rankspace experiment {TABLE} --data DIR --rows {job.row.name} --seeds {','.join(map(str, seeds))}",
        "seed": job.seed,
        "chosen by": f"{job.row.config.evaluation.measure} on valid",
        "stored as": str(dtype).removeprefix("torch."),
        "licence": LICENCE,
        "attribution": ATTRIBUTION,
    }


def passage(card: dict[str, Any]) -> str:
    """Of the README: a parse by the grammar, and the scores of all models."""
    [tree] = load(FOLDER / TABLE).parse([SENTENCE.split()])
    rows = [scores_row(name, RunDirectory.open(FOLDER / name).card) for name in NAMES.values()]
    return PASSAGE.format(sentence=SENTENCE, name=TABLE, tree=tree.bracketed(False), rows="".join(rows))


def scores_row(name: str, card: dict[str, Any]) -> str:
    test = card[SCORED]["scores"]["test"]
    figures = [test["perplexity"], test.get("s_f1"), test.get("bounds", {}).get("right_branching", {}).get("s_f1")]
    cells = [f"`{name}`", card["model"]["name"], *("" if each is None else f"{each:.1f}" for each in figures)]
    return f"| {' | '.join(cells)} |\n"


def with_passage(text: str) -> str:
    """A README with the section between its marks written anew."""
    return pages.with_blocks(text, {"shipped": (f"{TABLE}/card", passage)}, FOLDER)


def nothing_in(output: Path) -> str:
    """Why no model was made of a folder, and the remedy."""
    make = f"make one with rankspace experiment {TABLE} --data DIR -o {output}"
    if not output.is_dir():
        return f"{output}: there is no such folder; {make}."
    return f"{output}: has no run of {TABLE} that was evaluated; {make}."


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path, help="the folder that `rankspace experiment` wrote")
    parser.add_argument("--to", type=Path, default=FOLDER, help="where the models go (default: into the package)")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu", help="where to measure")
    given = parser.parse_args()
    folders = ship(Request(TABLE, given.output), given.to, given.device)
    if not folders:
        raise SystemExit(nothing_in(given.output))
    for made in folders:
        size = sum(file.stat().st_size for file in made.rglob("*") if file.is_file())
        print(f"{made}: {size / 1e6:.2f} MB")
    README.write_text(with_passage(README.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
