"""What finished runs find when they parse together: the seeds of a row, kept in a file beside their folders, and all
runs on a data set, beside the folders of the rows."""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rankspace.data.corpus import Corpus
from rankspace.data.prepared import PreparedData
from rankspace.evaluation import score
from rankspace.experiments.jobs import ByRow, Job
from rankspace.experiments.scores import figures_of
from rankspace.files import whole_file
from rankspace.training import RunDirectory, load
from rankspace.training.machine import matmul_precision
from rankspace.training.run_directory import BEST, HELD_OUT
from rankspace.training.together import best_of, mean_marginals

FILE = "together.json"


def parsing(jobs: Sequence[Job]) -> list[Job]:
    """Those of some runs that are finished and were scored on trees."""
    return [job for job in jobs if any("s_f1" in each for each in (job.entry or {}).get("scores", {}).values())]


def of_data_sets(rows: ByRow) -> dict[str, list[Job]]:
    """All runs that parse on each data set, where those of several rows do."""
    found = {}
    for data in dict.fromkeys(name for (name, _), _ in rows):
        runs = [job for (name, _), jobs in rows if name == data for job in parsing(jobs)]
        if len({job.row.name for job in runs}) > 1:
            found[data] = runs
    return found


def known(jobs: Sequence[Job]) -> dict[str, Any] | None:
    """What was found of all of some runs that parse; None where it is of other runs, or was not asked for yet."""
    try:
        found = json.loads(_file(jobs).read_text(encoding="utf-8"))
        own = parsing(jobs)
        return found if found["runs"] == _runs(own) and found["digest"] == _digest(own) else None
    except (OSError, ValueError, KeyError, TypeError, IndexError):
        return None  # it is made again


def find(jobs: Sequence[Job], data: PreparedData, splits: Sequence[str], device: str) -> None:
    """Scores the trees that some runs, several of them, find together.

    Without trees where that can be: the checkpoint of each run is the one that held-out text chose, if all have one,
    else the best. In the highest precision, as the scores of single runs.
    """
    own = parsing(jobs)
    by_text = all(HELD_OUT in RunDirectory.open(job.folder).card["results"] for job in own)
    checkpoint = HELD_OUT if by_text else BEST
    with matmul_precision("highest"):
        scores = {split: _scores(own, checkpoint, device, data[split]) for split in splits if _has_trees(data, split)}
    found = {"runs": _runs(own), "digest": _digest(own), "checkpoint": checkpoint, "scores": scores}
    with whole_file(_file(jobs)) as file:
        file.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def _runs(jobs: Sequence[Job]) -> dict[str, list[int]]:
    """Seeds by row."""
    found: dict[str, list[int]] = {}
    for job in jobs:
        found.setdefault(job.row.name, []).append(job.seed)
    return found


def _digest(jobs: Sequence[Job]) -> str:
    """Of what is known of the runs: one that is made again has others."""
    return hashlib.sha256(json.dumps([job.entry for job in jobs], sort_keys=True).encode()).hexdigest()


def _has_trees(data: PreparedData, split: str) -> bool:
    return split in data.splits and data[split].gold is not None


def _scores(jobs: Sequence[Job], checkpoint: str, device: str, corpus: Corpus) -> dict[str, Any]:
    """One grammar is loaded at a time."""
    sentences = [corpus.words(number) for number in range(len(corpus))]
    marginals = mean_marginals(load(job.folder, checkpoint, device).span_marginals(sentences) for job in jobs)
    trees = best_of(sentences, marginals)
    gold = [corpus.spans(number) or [] for number in range(len(corpus))]
    return figures_of(score(gold, trees, corpus.lengths.tolist()))


def _file(jobs: Sequence[Job]) -> Path:
    """In the folder of the row or, of several rows, in that of the data set."""
    row = jobs[0].folder.parent
    return (row if len({job.row.name for job in jobs}) == 1 else row.parent) / FILE
