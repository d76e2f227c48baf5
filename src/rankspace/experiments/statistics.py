"""Figures of a row over its seeds, and of what choosing without trees would have given."""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from typing import Any

from rankspace.training.run_directory import TRAINING

LOWER = ("perplexity",)  # better the lower they are
FIGURES = ("perplexity", "s_f1", "s_f1_longer", "corpus_f1")

Run = Mapping[str, Any]


def of_runs(runs: Sequence[Run], target: float | None) -> dict[str, Any]:
    """Statistics of the finished runs: of each figure on each split, of minutes, and how many collapsed or failed.

    A run has collapsed on a split if its S-F1 is below that of right-branching trees. minutes_to: until an evaluation
    with a perplexity of at most `target` was done; `num` of the runs got there. fastest: the run that took least time,
    and how many its command had on the device at once, None where that was not recorded.
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
        "fastest": _fastest(done),
    }


def spread(values: Sequence[float], *, lower: bool) -> dict[str, Any] | None:
    """Mean, sample standard deviation (of one value 0), best, worst and how many; None of none."""
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
    """Minutes until the first evaluation with at most a perplexity was done, with what evaluating and saving took."""
    reached = (each["elapsed"] for each in run["evaluations"] if float(each["perplexity"]) <= target)
    seconds = next(reached, None)
    return None if seconds is None else seconds / 60


def by_epoch(metrics: Iterable[Run]) -> list[dict[str, Any]]:
    """What training saw in each epoch: the geometric mean of the perplexities that were logged, each as often as it has
    steps, and how many sentences were computed again. Dropout included, and weights as they were before each step."""
    found: dict[int, list[tuple[int, float, int]]] = {}
    before = 0
    for each in metrics:
        if each.get("split") == TRAINING:
            logged = each["step"] - before, math.log(float(each["perplexity"])), each.get("num_again", 0)
            found.setdefault(each["epoch"], []).append(logged)
            before = each["step"]
    return [
        {
            "epoch": epoch,
            "perplexity": math.exp(sum(steps * log for steps, log, _ in parts) / sum(steps for steps, _, _ in parts)),
            "num_again": sum(again for _, _, again in parts),
        }
        for epoch, parts in found.items()
    ]


def figure(row: Mapping[str, Any], split: str, name: str) -> dict[str, Any] | None:
    """The spread of a figure of a row of a record; None where no run has it."""
    found: dict[str, Any] | None = row["statistics"]["splits"].get(split, {}).get(name)
    return found


def num_infinite(row: Mapping[str, Any], split: str, name: str) -> int:
    """In how many of the finished runs of a row a figure is infinite: they have no part in its spread."""
    done = [run["scores"].get(split, {}).get(name) for run in row["runs"] if run["state"] == "finished"]
    return sum(each is not None and not math.isfinite(float(each)) for each in done)


def without_trees(runs: Sequence[Run]) -> dict[str, Any] | None:
    """What choosing by perplexity gives beside choosing by S-F1; None where no run was evaluated on trees.

    valid: S-F1 of the validation split, mean over runs, of the checkpoint that is best there by either measure; for
    num_same of the runs it is one and the same. test: S-F1 of the test split of one seed, that with the best S-F1 of
    the validation split or that with the lowest perplexity of held-out text (the validation split itself, where there
    is no other), both at the checkpoint that S-F1 chose. by_text: S-F1 of the test split where held-out text chose the
    checkpoint, without trees: its spread over the runs that have one, that of the very same runs at the checkpoints
    that S-F1 chose, and that of the seed which such text chooses as well; None where no run has.
    """
    done = [run for run in runs if run["state"] == "finished" and all("f1" in each for each in run["evaluations"])]
    if not done:
        return None
    pairs = [(max(run["evaluations"], key=_f1), min(run["evaluations"], key=_perplexity)) for run in done]
    by_trees = max(done, key=lambda run: float(run["scores"]["valid"]["s_f1"]))
    by_text = min(done, key=_of_held_out)
    return {
        "num": len(done),
        "num_same": sum(one is other for one, other in pairs),
        "valid": {
            "s_f1": statistics.fmean(_f1(one) for one, _ in pairs),
            "perplexity": statistics.fmean(_f1(other) for _, other in pairs),
        },
        "test": {"s_f1": _of_test(by_trees), "perplexity": _of_test(by_text)},
        "by_text": _by_text([run for run in done if "by_text" in run]),
    }


def pairs_in_order(rows: Sequence[Mapping[str, Any]]) -> tuple[int, int]:
    """Pairs of finished runs of one row, and how many of them have the higher S-F1 of the test split where held-out
    text has the lower perplexity, at the checkpoints that S-F1 chose: that number first."""
    groups = ([run for run in row["runs"] if run["state"] == "finished"] for row in rows)
    pairs = [pair for group in groups for pair in combinations(group, 2)]
    of_pairs = [(_of_held_out(one) - _of_held_out(other), _test_f1(one) - _test_f1(other)) for one, other in pairs]
    return sum(perplexity * f1 < 0 for perplexity, f1 in of_pairs), len(pairs)


def _by_text(runs: Sequence[Run]) -> dict[str, Any] | None:
    """Of checkpoints that held-out text chose, in runs that have one."""
    if not runs:
        return None
    chosen = [{**run["by_text"], "seed": run["seed"]} for run in runs]
    test, by_trees = (spread([_test_f1(each) for each in some], lower=False) for some in (chosen, runs))
    return {"test": test, "by_trees": by_trees, "seed": _of_test(min(chosen, key=_of_held_out))}


def _of_held_out(run: Run) -> float:
    """The perplexity of held-out text, or of the validation split where there is no other."""
    scores = run["scores"]
    return _perplexity(scores["held-out"] if "held-out" in scores else scores["valid"])


def _of_test(run: Run) -> dict[str, Any]:
    return {"seed": run["seed"], "s_f1": run["scores"]["test"]["s_f1"]}


def _test_f1(run: Run) -> float:
    return float(run["scores"]["test"]["s_f1"])


def _f1(evaluation: Run) -> float:
    return float(evaluation["f1"])


def _perplexity(evaluation: Run) -> float:
    return float(evaluation["perplexity"])


def _fastest(runs: Sequence[Run]) -> dict[str, Any] | None:
    if not runs:
        return None
    run = min(runs, key=lambda each: float(each["seconds"]))
    return {"minutes": run["seconds"] / 60, "sharing": run.get("sharing")}


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
