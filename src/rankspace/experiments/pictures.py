"""Pictures of records, as `planned_record` gives them: learning curves, and figures against sizes. Needs matplotlib."""

import textwrap
from collections.abc import Mapping, Sequence
from itertools import cycle, groupby
from pathlib import Path
from typing import Any

from rankspace.experiments.statistics import figure

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
    runs, found = [run for run in row["runs"] if run["state"] == "finished"], []
    for number, run in enumerate(runs):
        minutes = [each["elapsed"] / 60 for each in run["evaluations"]]
        values = [float(each["perplexity"]) for each in run["evaluations"]]
        label = "" if number else f"{row['title']} ({len(runs)} seed{'s' * (len(runs) > 1)})"
        place.plot(minutes, values, color=colour, linewidth=1.4, label=label)
        found += values
    return found


def _line(place: Any, row: Record) -> None:
    """What others report for a row, named beside the axes."""
    valid = row["paper"]["valid"]
    place.axhline(valid, color="black", linestyle="--", linewidth=0.8)
    text = textwrap.fill(f"{valid:.1f}: {row['title']} ({row['paper'].get('source', 'the paper')})", LABEL)
    place.text(1.01, valid, text, fontsize=9, verticalalignment="center", transform=place.get_yaxis_transform())


def draw_sizes(found: Record, file: Path) -> None:
    """S-F1 of the test split and perplexity of unseen text against the number of preterminals, for each data set: mean,
    and standard deviation."""
    plot = _pyplot()
    rows = sorted(with_runs(found), key=lambda row: (row["data"], row["config"]["model.preterminals"]))
    groups = [(data, list(own)) for data, own in groupby(rows, key=lambda row: row["data"])]
    drawing, places = plot.subplots(len(groups), 2, figsize=(9, 3.4 * len(groups)), squeeze=False)
    for (data, own), (left, right) in zip(groups, places, strict=True):
        _against_size(left, own, [figure(row, "test", "s_f1") for row in own])
        _against_size(right, own, [_of_unseen_text(row) for row in own])
        left.set(title=data, ylabel="S-F1, test")
        right.set(title=data, ylabel="perplexity of unseen text")
    _save(plot, drawing, file)


def _of_unseen_text(row: Record) -> dict[str, Any] | None:
    """Of text-test where there is one, for the test split of such data lies in the training text."""
    return figure(row, "text-test", "perplexity") or figure(row, "test", "perplexity")


def _against_size(place: Any, rows: Sequence[Record], spreads: Sequence[dict[str, Any] | None]) -> None:
    points = [(row["config"]["model.preterminals"], each) for row, each in zip(rows, spreads, strict=True) if each]
    sizes, means = [size for size, _ in points], [each["mean"] for _, each in points]
    low, high = ([each["mean"] + sign * each["deviation"] for _, each in points] for sign in (-1, 1))
    place.plot(sizes, means, marker="o", color=COLOURS[0])
    place.fill_between(sizes, low, high, alpha=0.2, color=COLOURS[0])
    place.set(xlabel="preterminals")
    place.grid(alpha=0.3)


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
