"""Pictures of records, as `planned_record` gives them: learning curves, seeds of rows beside each other, and figures
against sizes. Needs matplotlib."""

import math
import textwrap
from collections.abc import Mapping, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

from rankspace.experiments.statistics import figure, spread

REPORTED = ("rank-hmm-14", "vl-hmm-15")  # rows whose figures by others are lines
HIGHEST = 200.0  # perplexity: what lies above says little
COLOURS = ("#2b6cb0", "#c05621", "#2f855a", "#6b46c1", "#b83280", "#4a5568")
DOTS_PER_INCH = 110
LABEL = 20  # letters in a line of a label

Record = Mapping[str, Any]


def draw_learning(found: Record, file: Path) -> None:
    """Perplexity of the validation split against minutes: every finished run of the rows with the most planned seeds,
    and what others report."""
    plot = _pyplot()
    drawing, place = plot.subplots(figsize=(8, 5))
    most = max(len(row["planned_seeds"]) for row in found["rows"])
    rows = [row for row in with_runs(found) if len(row["planned_seeds"]) == most]
    curves = [_curve(place, row, colour) for row, colour in zip(rows, cycle(COLOURS), strict=False)]
    reported = [row for row in found["rows"] if row["name"] in REPORTED]
    for row in reported:
        _line(place, row)
    lowest = min([value for values in curves for value in values] + [row["paper"]["valid"] for row in reported])
    place.set(
        xlabel="minutes of training and evaluation, beside other runs on the device",
        ylabel="perplexity of the validation text",
    )
    place.set(xlim=(0, None), ylim=(lowest - 3, HIGHEST))
    place.grid(alpha=0.3)
    place.legend(fontsize=9, loc="upper right")
    _save(plot, drawing, file)


def _curve(place: Any, row: Record, colour: str) -> list[float]:
    """A line for each finished run; returns all perplexities."""
    runs, found = _finished(row), []
    for number, run in enumerate(runs):
        minutes = [each["elapsed"] / 60 for each in run["evaluations"]]
        values = [float(each["perplexity"]) for each in run["evaluations"]]
        label = "" if number else _with_seeds(row["title"], runs)
        place.plot(minutes, values, color=colour, linewidth=1.4, label=label)
        found += values
    return found


def _line(place: Any, row: Record) -> None:
    """What others report for a row, with a recipe of theirs, named beside the axes."""
    valid = row["paper"]["valid"]
    title = row["title"].removesuffix(", our recipe")
    place.axhline(valid, color="black", linestyle="--", linewidth=0.8)
    text = textwrap.fill(f"{valid:.1f}: {title} ({row['paper'].get('source', 'the paper')})", LABEL)
    place.text(1.01, valid, text, fontsize=9, verticalalignment="center", transform=place.get_yaxis_transform())


def draw_parsing(found: Record, file: Path) -> None:
    """S-F1 of the validation split against epochs, for each data set: every finished run, beside what others report for
    the first row and what right-branching trees have."""
    plot = _pyplot()
    groups = _by_data(with_runs(found))
    names = dict.fromkeys(row["name"] for row in with_runs(found))
    colours = dict(zip(names, cycle(COLOURS), strict=False))
    drawing, places = plot.subplots(1, len(groups), figsize=(4 + 4 * len(groups), 4.5), squeeze=False)
    for (data, rows), place in zip(groups, places[0], strict=True):
        for row in rows:
            _parsing_curves(place, row, colours[row["name"]])
        first = next(row for row in found["rows"] if row["data"] == data)
        lines = {"right-branching": _right_branching(rows, "valid")}
        if "s_f1" in first["paper"]:
            lines[f"{first['name']}, reported of section 23"] = first["paper"]["s_f1"]
        for (name, value), dashes in zip(lines.items(), (":", "--"), strict=False):
            place.axhline(value, color="black", linestyle=dashes, linewidth=0.8, label=f"{value:.1f}: {name}")
        place.set(title=data, xlabel="epochs", ylabel="S-F1, valid")
        place.grid(alpha=0.3)
        place.legend(fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.14), ncols=2)
    _save(plot, drawing, file)


def _parsing_curves(place: Any, row: Record, colour: str) -> None:
    runs = _finished(row)
    for number, run in enumerate(runs):
        found = [(each["epoch"], each["f1"]) for each in run["evaluations"] if each.get("f1") is not None]
        label = "" if number else _with_seeds(row["name"], runs)
        place.plot(*zip(*found, strict=True), color=colour, linewidth=1.4, label=label)


def draw_seeds(found: Record, file: Path) -> None:
    """Every finished run of every row as a dot, and the mean of several as a bar: S-F1 of the test split where there
    are trees, beside that of right-branching trees, else perplexity of the validation split."""
    plot = _pyplot()
    rows = with_runs(found)
    split, measure = ("test", "s_f1") if figure(rows[0], "test", "s_f1") else ("valid", "perplexity")
    drawing, place = plot.subplots(figsize=(8, 1 + 0.26 * len(rows)))
    for height, row in enumerate(rows):
        values = [float(run["scores"][split][measure]) for run in _finished(row)]
        place.plot(values, [height] * len(values), "o", color=COLOURS[0], markersize=5, alpha=0.7)
        own = figure(row, split, measure)  # of those that are finite
        if own and own["num"] > 1:
            place.plot([own["mean"]] * 2, [height - 0.35, height + 0.35], color=COLOURS[1], linewidth=2)
    if measure == "s_f1":
        place.axvline(_right_branching(rows, split), color="black", linestyle=":", label="right-branching")
        place.legend(fontsize=8)
    else:
        place.set_xscale("log")
        place.xaxis.set_major_formatter("{x:.0f}")
        place.xaxis.set_minor_formatter("{x:.0f}")
    place.set_yticks(range(len(rows)), [row["name"] for row in rows], fontsize=9)
    place.set(xlabel="S-F1, test" if measure == "s_f1" else "perplexity, valid", ylim=(len(rows) - 0.4, -0.6))
    place.grid(alpha=0.3, which="both")
    _save(plot, drawing, file)


def _right_branching(rows: Sequence[Record], split: str) -> float:
    """The same in all runs on the same trees."""
    found: float = _finished(rows[0])[0]["scores"][split]["bounds"]["right_branching"]["s_f1"]
    return found


def draw_sizes(found: Record, file: Path) -> None:
    """S-F1 of the test split and perplexity of unseen text against the number of preterminals, for each data set: every
    finished run as a dot, their mean, and standard deviation where there are several."""
    plot = _pyplot()
    groups = _by_data(sorted(with_runs(found), key=lambda row: row["config"]["model.preterminals"]))
    drawing, places = plot.subplots(len(groups), 2, figsize=(9, 3.4 * len(groups)), squeeze=False)
    for (data, own), (left, right) in zip(groups, places, strict=True):
        _against_size(left, own, [[run["scores"]["test"]["s_f1"] for run in _finished(row)] for row in own])
        _against_size(right, own, [[_of_unseen_text(run) for run in _finished(row)] for row in own])
        left.set(title=data, ylabel="S-F1, test")
        right.set(title=data, ylabel="perplexity of unseen text")
    _save(plot, drawing, file)


def _of_unseen_text(run: Record) -> float:
    """Of text-test where there is one, for the test split of such data lies in the training text; at the checkpoint
    that held-out text chose, if it chose one: S-F1 may choose one whose perplexity has risen again."""
    scores = run.get("by_text", run)["scores"]
    return float(scores.get("text-test", scores["test"])["perplexity"])


def _against_size(place: Any, rows: Sequence[Record], values: Sequence[Sequence[float]]) -> None:
    spreads = {}
    for row, each in zip(rows, values, strict=True):
        own, size = [value for value in each if math.isfinite(value)], row["config"]["model.preterminals"]
        place.plot([size] * len(own), own, "o", color=COLOURS[0], markersize=5, alpha=0.7)
        if found := spread(own, lower=True):
            spreads[size] = found
    deviations = [each["deviation"] if each["num"] > 1 else math.nan for each in spreads.values()]
    place.errorbar(list(spreads), [each["mean"] for each in spreads.values()], deviations, capsize=4, color=COLOURS[0])
    place.set(xlabel="preterminals")
    place.grid(alpha=0.3)


def _by_data(rows: Sequence[Record]) -> list[tuple[str, list[Record]]]:
    """Rows of each data set, in the order in which they come."""
    names = dict.fromkeys(row["data"] for row in rows)
    return [(name, [row for row in rows if row["data"] == name]) for name in names]


def _finished(row: Record) -> list[Any]:
    return [run for run in row["runs"] if run["state"] == "finished"]


def _with_seeds(text: str, runs: Sequence[Any]) -> str:
    return f"{text} ({len(runs)} seed{'s' * (len(runs) > 1)})"


def with_runs(found: Record) -> list[dict[str, Any]]:
    """Rows of which a run is finished."""
    return [row for row in found["rows"] if row["statistics"]["num"]]


def _pyplot() -> Any:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot


def _save(plot: Any, drawing: Any, file: Path) -> None:
    drawing.tight_layout()
    drawing.savefig(file, dpi=DOTS_PER_INCH)
    plot.close(drawing)
