"""The scores of a run that is done: its best checkpoint on every split of a table."""

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

from rankspace.data.corpus import Corpus
from rankspace.data.prepared import PreparedData
from rankspace.evaluation import bounds
from rankspace.training import load
from rankspace.training.evaluator import Evaluated, Evaluator
from rankspace.training.machine import matmul_precision
from rankspace.training.processes import Processes


def measured(folder: Path, data: PreparedData, splits: Sequence[str], device: str) -> dict[str, dict[str, Any]]:
    """Perplexity, S-F1 of all and of longer sentences, corpus F1 and bounds, by split; those that the data have.

    Parses are those with the largest expected number of right spans. In the highest precision, whatever the run had.
    """
    trained = load(folder, "best", device)
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
    figures = ("s_f1", "s_f1_longer", "corpus_f1", "num_unparsed")
    return {**scores, **{name: getattr(found.scores, name) for name in figures}, "bounds": _bounds(corpus)}


@lru_cache(maxsize=16)
def _bounds(corpus: Corpus) -> dict[str, Any]:
    """Once for each corpus, for all runs have the same."""
    gold = [corpus.spans(number) or [] for number in range(len(corpus))]
    return bounds(gold, corpus.lengths.tolist()).to_json()
