"""Writes the tables of docs/results.md, between their marks, from benchmarks/results/experiment-*.json.

    python benchmarks/experiments.py

The records are those of `rankspace experiment`. The pictures beside the page need matplotlib. A block whose record does
not exist is left empty; no figure is typed.
"""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from rankspace.bench import pages

HERE = Path(__file__).parent
RESULTS, DOCS = HERE / "results", HERE.parent / "docs"
PAGE = DOCS / "results.md"
NAMES = ("hmm-table2", "hmm-recipe", "hmm-table3", "pcfg-table1", "pcfg-figure6", "precision", "craft-small")
SYNTHETIC = "synthetic"  # data that stand in for others, with figures that mean nothing
BOUNDS = {
    "left_branching": "left-branching",
    "random": "random trees",
    "right_branching": "right-branching",
    "oracle": "binarised gold",
}
CHAIN_COLUMNS = ["model", "valid, paper", "test, paper", "valid", "test", "best test", "seeds", "minutes", "minutes to"]
TREE_COLUMNS = [
    "model",
    "S-F1, paper",
    "reproduced",
    "valid",
    "test",
    "best",
    "all",
    "test, > 2 words",
    "corpus F1",
    "perplexity",
    "of unseen text",
    "collapsed",
    "seeds",
    "minutes",
]

ABOUT = """\
{date}, `rankspace experiment {table} --data DIR`: {device}, torch {torch}, commit {commit}. Means over seeds, with the
standard deviation where there are several; *minutes* are those of one run, evaluation included.{note}

"""


def real_rows(found: dict[str, Any]) -> list[dict[str, Any]]:
    """Rows on the data they are meant for, of which a run is finished."""
    return [row for row in found["rows"] if row["data"] != SYNTHETIC and row["statistics"]["num"]]


def chain_block(found: dict[str, Any]) -> str:
    rows = real_rows(found)
    if not rows:
        return ""
    table = pages.markdown_table(CHAIN_COLUMNS, [chain_cells(row) for row in rows])
    return about(found, rows) + table + remarks(found, rows) + picture(found)


def chain_cells(row: dict[str, Any]) -> list[str]:
    statistics, paper = row["statistics"], row["paper"]
    test = figure(row, "test", "perplexity")
    return [
        title(row),
        number(paper.get("valid")),
        number(paper.get("test")),
        spread(figure(row, "valid", "perplexity")),
        f"**{spread(test)}**",
        number(test and test["best"]),
        str(statistics["num"]),
        spread(statistics["minutes"]),
        time_to(statistics["minutes_to"]),
    ]


def precision_block(found: dict[str, Any]) -> str:
    """Perplexity and, of grammars, S-F1, side by side."""
    rows = real_rows(found)
    cells = [
        [
            title(row),
            row["data"],
            *(spread(figure(row, split, name)) for name in ("perplexity", "s_f1") for split in ("valid", "test")),
            str(row["statistics"]["num"]),
        ]
        for row in rows
    ]
    columns = ["model", "data", "perplexity, valid", "test", "S-F1, valid", "test", "seeds"]
    return about(found, rows) + pages.markdown_table(columns, cells) + remarks(found, rows) if rows else ""


def time_to(found: dict[str, Any] | None) -> str:
    """Minutes until a perplexity of the validation split."""
    if found is None:
        return ""
    reached = f"{found['mean']:.1f}" if found["num"] else "not reached"
    return f"{found['perplexity']:g}: {reached}"


def tree_block(found: dict[str, Any]) -> str:
    rows, parts = real_rows(found), []
    for data in dict.fromkeys(row["data"] for row in rows):
        own = [row for row in rows if row["data"] == data]
        cells = [tree_cells(row) for row in own] + bound_cells(own)
        parts.append(f"**{data}**\n\n{pages.markdown_table(TREE_COLUMNS, cells)}\n")
    return about(found, rows) + "".join(parts) + remarks(found, rows) + picture(found) if parts else ""


def tree_cells(row: dict[str, Any]) -> list[str]:
    statistics, test = row["statistics"], figure(row, "test", "s_f1")
    return [
        title(row),
        reported(row["paper"]),
        reported(row["reproduction"]),
        spread(figure(row, "valid", "s_f1")),
        f"**{spread(test)}**",
        number(test and test["best"]),
        spread(figure(row, "all", "s_f1")),
        spread(figure(row, "test", "s_f1_longer")),
        spread(figure(row, "test", "corpus_f1")),
        spread(figure(row, "test", "perplexity")),
        spread(figure(row, "text-test", "perplexity")),
        str(statistics["splits"].get("test", {}).get("num_collapsed", "")),
        str(statistics["num"]),
        spread(statistics["minutes"]),
    ]


def bound_cells(rows: Iterable[dict[str, Any]]) -> list[list[str]]:
    """A line for each bound, from the first run: all runs on the same data have the same. None where none has trees."""
    scores = next(run["scores"] for row in rows for run in row["runs"] if run["scores"])
    if not any("bounds" in each for each in scores.values()):
        return []

    def bound(split: str, name: str, figure: str = "s_f1") -> str:
        return number(scores.get(split, {}).get("bounds", {}).get(name, {}).get(figure))

    return [
        [
            f"*{shown}*",
            "",
            "",
            bound("valid", name),
            bound("test", name),
            "",
            bound("all", name),
            bound("test", name, "s_f1_longer"),
            bound("test", name, "corpus_f1"),
            *[""] * 5,
        ]
        for name, shown in BOUNDS.items()
    ]


def about(found: dict[str, Any], rows: list[dict[str, Any]]) -> str:
    """Of the runs, which may have been made by other commits than the record, and by several."""
    machines = [run["environment"] for row in rows for run in row["runs"]]
    named = {
        name: " and ".join(dict.fromkeys(each[name] for each in machines)) for name in ("device", "torch", "commit")
    }
    shared = max(run.get("sharing", 1) for row in rows for run in row["runs"])
    note = f" Up to {shared} runs shared the device, which makes minutes longer." if shared > 1 else ""
    note += f" {found['note']}" if found.get("note") else ""
    return ABOUT.format(date=found["date"], table=found["table"], note=note, **named)


def remarks(found: dict[str, Any], rows: list[dict[str, Any]]) -> str:
    """Peers, ingredients of rows, runs that failed."""
    lines = [
        f"{peer['name']}: {peer['minutes']:.0f} minutes for `{peer['row']}` ({peer['steps']:,} steps of "
        f"{peer['milliseconds']:g} ms)."
        for peer in found["peers"]
    ]
    lines += [f"`{row['name']}`: {row['about']}." for row in rows if row["about"]]
    lines += [
        f"`{row['name']}` on {row['data']}, seed {run['seed']}, failed: {run['failed']}."
        for row in found["rows"]
        for run in row["runs"]
        if run["state"] == "failed"
    ]
    return "\n" + "".join(f"- {line}\n" for line in dict.fromkeys(lines)) if lines else ""


def picture(found: dict[str, Any]) -> str:
    if found["table"] not in DRAWN:
        return ""
    return f"\n![{found['title']}]({plot_file(found['table']).name})\n"


def title(row: dict[str, Any]) -> str:
    whole = row["ablation_of"]
    return f"{row['title']} (`{row['name']}`{f', of `{whole}`' if whole else ''})"


def figure(row: dict[str, Any], split: str, name: str) -> dict[str, Any] | None:
    found: dict[str, Any] | None = row["statistics"]["splits"].get(split, {}).get(name)
    return found


def reported(given: dict[str, Any]) -> str:
    if "s_f1" not in given:
        return ""
    return number(given["s_f1"]) + (f" ± {given['deviation']:.1f}" if "deviation" in given else "")


def spread(found: dict[str, Any] | None) -> str:
    if found is None:
        return ""
    return f"{found['mean']:.1f}" + (f" ± {found['deviation']:.1f}" if found["num"] > 1 else "")


def number(value: float | None) -> str:
    return "" if value is None else f"{value:.1f}"


# Pictures.


def draw_learning(found: dict[str, Any], file: Path) -> None:
    """Perplexity of the validation split against minutes, the first seed of each row that is no ablation."""
    plot = _pyplot()
    drawing, place = plot.subplots(figsize=(7, 4))
    for row in real_rows(found):
        if row["ablation_of"] is None:
            points = row["runs"][0]["evaluations"]
            minutes = [each["elapsed"] / 60 for each in points]
            place.plot(minutes, [float(each["perplexity"]) for each in points], label=row["name"])
    target = next((row["statistics"]["minutes_to"]["perplexity"] for row in real_rows(found)), None)
    if target is not None:
        place.axhline(target, color="grey", linestyle=":", label="paper, valid")
    place.set(xlabel="minutes", ylabel="perplexity, valid", xscale="log", yscale="log")
    place.legend(fontsize=8)
    _save(plot, drawing, file)


def draw_sizes(found: dict[str, Any], file: Path) -> None:
    """S-F1 and perplexity of the test split against the number of preterminals: mean, and standard deviation."""
    plot = _pyplot()
    drawing, places = plot.subplots(1, 2, figsize=(9, 3.2))
    rows = sorted(real_rows(found), key=lambda row: int(row["config"]["model.preterminals"]))
    for place, name, label in zip(places, ("s_f1", "perplexity"), ("S-F1", "perplexity"), strict=True):
        points = [(row["config"]["model.preterminals"], each) for row in rows if (each := figure(row, "test", name))]
        sizes, means = [size for size, _ in points], [each["mean"] for _, each in points]
        low, high = ([each["mean"] + sign * each["deviation"] for _, each in points] for sign in (-1, 1))
        place.plot(sizes, means, marker="o", color="#2b6cb0")
        place.fill_between(sizes, low, high, alpha=0.2, color="#2b6cb0")
        place.set(xlabel="preterminals", ylabel=label)
        place.grid(alpha=0.3)
    _save(plot, drawing, file)


def _pyplot() -> Any:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot


def _save(plot: Any, drawing: Any, file: Path) -> None:
    drawing.tight_layout()
    drawing.savefig(file, dpi=110)
    plot.close(drawing)


DRAWN: dict[str, Callable[[dict[str, Any], Path], None]] = {"hmm-table2": draw_learning, "pcfg-figure6": draw_sizes}
BLOCKS: dict[str, pages.Block] = {
    f"experiment-{name}": (
        f"experiment-{name}",
        precision_block if name == "precision" else chain_block if name.startswith("hmm") else tree_block,
    )
    for name in NAMES
}


def plot_file(table: str) -> Path:
    return DOCS / f"results-{table}.png"


def with_blocks(text: str) -> str:
    """The page with its tables written anew."""
    return pages.with_blocks(text, BLOCKS, RESULTS)


def main() -> None:
    PAGE.write_text(with_blocks(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    for table, draw in DRAWN.items():
        found = pages.record(RESULTS, f"experiment-{table}")
        if found is not None and real_rows(found):
            draw(found, plot_file(table))


if __name__ == "__main__":
    main()
