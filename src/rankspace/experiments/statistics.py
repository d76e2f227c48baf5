"""Figures of a row over its seeds."""

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

LOWER = ("perplexity",)  # better the lower they are
FIGURES = ("perplexity", "s_f1", "s_f1_longer", "corpus_f1")

Run = Mapping[str, Any]


def of_runs(runs: Sequence[Run], target: float | None) -> dict[str, Any]:
    """Statistics of the finished runs: of each figure on each split, of minutes, and how many collapsed or failed.

    A run has collapsed on a split if its S-F1 is below that of right-branching trees. minutes_to: of training, until an
    evaluation had a perplexity of at most `target`; `num` of the runs got there.
    """
    done = [run for run in runs if run["state"] == "finished"]
    splits = dict.fromkeys(split for run in done for split in run["scores"])
    return {
        "num": len(done),
        "num_failed": sum(run["state"] == "failed" for run in runs),
        "splits": {
            split: _of_split([run["scores"][split] for run in done if split in run["scores"]]) for split in splits
        },
        "minutes": spread([run["seconds"] / 60 for run in done], lower=True),
        "minutes_to": _minutes_to(done, target),
    }


def spread(values: Sequence[float], *, lower: bool) -> dict[str, Any] | None:
    """Mean, standard deviation (of one value 0), best, worst and how many; None of none."""
    if not values:
        return None
    ends = sorted(values, reverse=not lower)
    deviation = statistics.stdev(values) if len(values) > 1 else 0.0
    return {
        "mean": statistics.fmean(values),
        "deviation": deviation,
        "best": ends[0],
        "worst": ends[-1],
        "num": len(values),
    }


def has_collapsed(scores: Run) -> bool:
    right = scores.get("bounds", {}).get("right_branching", {}).get("s_f1")
    return right is not None and scores["s_f1"] is not None and scores["s_f1"] < right


def minutes_to(run: Run, target: float) -> float | None:
    """Minutes of training before the first evaluation with at most a perplexity."""
    reached = (each["elapsed"] for each in run["evaluations"] if float(each["perplexity"]) <= target)
    seconds = next(reached, None)
    return None if seconds is None else seconds / 60


def _of_split(scores: Sequence[Run]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for figure in FIGURES:
        values = [float(each[figure]) for each in scores if each.get(figure) is not None]
        values = [value for value in values if math.isfinite(value)]  # one impossible sentence makes it infinite
        if values:
            found[figure] = spread(values, lower=figure in LOWER)
    if any("bounds" in each for each in scores):
        found["num_collapsed"] = sum(map(has_collapsed, scores))
    return found


def _minutes_to(runs: Sequence[Run], target: float | None) -> dict[str, Any] | None:
    if target is None:
        return None
    found = [minutes for run in runs if (minutes := minutes_to(run, target)) is not None]
    return {"perplexity": target, **(spread(found, lower=True) or {"num": 0})}
