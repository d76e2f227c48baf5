"""The scores of a run that is done: the checkpoints that evaluations chose, on every split of a table."""

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

from rankspace.data.corpus import Corpus
from rankspace.data.prepared import PreparedData
from rankspace.evaluation import ParseScores, bounds
from rankspace.training import RunDirectory, load
from rankspace.training.evaluator import Evaluated, Evaluator
from rankspace.training.machine import matmul_precision
from rankspace.training.processes import Processes
from rankspace.training.run_directory import BEST, HELD_OUT

FIGURES = ("s_f1", "s_f1_longer", "corpus_f1", "num_unparsed")
NUM_LABELS = 8


def entry_of(folder: Path, data: PreparedData, splits: Sequence[str], device: str) -> dict[str, Any]:
    """`scores` of the best checkpoint and, of a run that held-out text was to choose from as well, `by_text`: place and
    scores of the checkpoint that it chose."""
    results = RunDirectory.open(folder).card["results"]
    scores = measured(folder, BEST, data, splits, device)
    if HELD_OUT not in results:
        return {"scores": scores}
    place = {name: results[HELD_OUT][name] for name in ("step", "epoch")}
    is_best = place["step"] == results.get("best", {}).get("step")
    by_text = scores if is_best else measured(folder, HELD_OUT, data, splits, device)
    return {"scores": scores, "by_text": {**place, "scores": by_text}}


def measured(
    folder: Path, checkpoint: str, data: PreparedData, splits: Sequence[str], device: str
) -> dict[str, dict[str, Any]]:
    """Perplexity, S-F1 of all and of longer sentences, corpus F1 and bounds, by split; those that the data have.

    Parses are those with the largest expected number of right spans. In the highest precision, whatever the run had.
    """
    trained = load(folder, checkpoint, device)
    found = {}
    with matmul_precision("highest"):
        for split in splits:
            if split in data.splits:
                evaluator = Evaluator(
                    data[split],
                    trained.kind,
                    Processes(device=torch.device(device)),
                    max_tokens=trained.config.evaluation.max_tokens,
                )
                found[split] = _scores(evaluator(trained.model), data[split])
    return found


def _scores(found: Evaluated, corpus: Corpus) -> dict[str, Any]:
    plain = found.perplexity.to_json()
    scores: dict[str, Any] = {
        name: plain[name] for name in ("perplexity", "num_sentences", "num_impossible", "num_skipped")
    }
    if found.scores is None:
        return scores
    return {**scores, **figures_of(found.scores), "bounds": _bounds(corpus)}


def figures_of(found: ParseScores) -> dict[str, Any]:
    """F1 and, of the commonest gold labels, how many of their brackets were found."""
    common = list(found.by_label.items())[:NUM_LABELS]
    by_label = {label: {"num_gold": each.num_gold, "recall": each.recall} for label, each in common}
    return {**{name: getattr(found, name) for name in FIGURES}, "by_label": by_label}


@lru_cache(maxsize=16)
def _bounds(corpus: Corpus) -> dict[str, Any]:
    """Once for each corpus, for all runs have the same."""
    gold = [corpus.spans(number) or [] for number in range(len(corpus))]
    return bounds(gold, corpus.lengths.tolist()).to_json()
