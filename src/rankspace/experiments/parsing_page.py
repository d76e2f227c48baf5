"""What docs/results.md says of grammars: tables of rows and bounds, recall by label, what parses together, and what
choosing without trees gives. Rows are those of a record as `planned_record` gives them."""

import statistics
from collections.abc import Iterable
from typing import Any

from rankspace.bench import pages
from rankspace.experiments import cells
from rankspace.experiments.statistics import figure, pairs_in_order, without_trees
from rankspace.training.run_directory import HELD_OUT

BOUNDS = {
    "left_branching": "left-branching",
    "random": "random trees",
    "right_branching": "right-branching",
    "oracle": "binarised gold",
}
TREE_COLUMNS = (
    *("model", "S-F1, reported", "by", "reproduced", "valid", "change", "test", "best test", "seeds together", "all"),
    *("test, > 2 words", "corpus F1, test", "perplexity, test", "of unseen text", "collapsed", "seeds", "minutes"),
    "at once",
)
CHOICE_COLUMNS = (
    *("model", "data", "S-F1, valid: checkpoint by S-F1", "by perplexity", "same checkpoint"),
    *("S-F1, test: mean of seeds", "seed by S-F1, valid", "seed by held-out text"),
    *("seeds with both checkpoints: by S-F1", "by held-out text", "seed and checkpoint by held-out text"),
)

CHOICE = """\
The same runs, with choices by perplexity instead. First the checkpoint is chosen by the perplexity of the validation
split's words, which for ptb are part of the training text. Then the seed is chosen by the perplexity of held-out text,
at the checkpoint that S-F1 chose."""

BY_TEXT = """ The last three columns are of runs that have a checkpoint which held-out text chose (for craft and wsj the
validation split's words). The first of them is S-F1 of these runs at the checkpoint that S-F1 chose, to compare with;
the others use no trees: held-out text chooses the checkpoint of each seed, and then the seed as well."""

PAIRS = """ Of the {num} pairs of seeds of one row, {num_in_order} have the higher S-F1 of the test split where held-out
text has the lower perplexity."""

ALL_TOGETHER = """\
Runs of several rows that parse together: {num} grammars, each with the checkpoint that {how}: {names}. S-F1 on the
test split is {together:.1f} for all of them together, {mean:.1f} for single ones on average, and {best:.1f} for the
best single one."""

RECALL = """\
How many of the gold spans of each label were found, in per cent, for the labels that have most of them (in brackets,
without whole sentences). Single seeds, like those that parse together, have the checkpoint that held-out text chose, or
S-F1 where there is none."""
BY_HELD_OUT, BY_TREES = "held-out text chose", "S-F1 on the validation split chose"


def tree_cells(row: dict[str, Any], whole: dict[str, Any] | None) -> list[str]:
    test = figure(row, "test", "s_f1")
    return [
        cells.title(row),
        cells.reported(row["paper"]),
        cells.source(row),
        cells.reported(row["reproduction"]),
        cells.over_seeds(row, "valid", "s_f1"),
        cells.change(row, whole, "s_f1"),
        cells.main_figure(row, "test", "s_f1"),
        cells.number(test["best"] if test else None),
        cells.together(row, "test", "s_f1"),
        cells.over_seeds(row, "all", "s_f1"),
        cells.over_seeds(row, "test", "s_f1_longer"),
        cells.over_seeds(row, "test", "corpus_f1"),
        cells.over_seeds(row, "test", "perplexity"),
        cells.over_seeds(row, "text-test", "perplexity"),
        str(row["statistics"]["splits"].get("test", {}).get("num_collapsed", "")),
        cells.seeds(row),
        *cells.minutes(row),
    ]


def bound_cells(rows: Iterable[dict[str, Any]]) -> list[list[str]]:
    """A line for each bound, from the first run: all runs on the same data have the same. None where none has trees."""
    scores: dict[str, Any] = next((run["scores"] for row in rows for run in row["runs"] if run["scores"]), {})
    if not any("bounds" in each for each in scores.values()):
        return []

    def bound(split: str, name: str, measure: str = "s_f1") -> str:
        return cells.number(scores.get(split, {}).get("bounds", {}).get(name, {}).get(measure))

    def line(name: str) -> list[str]:
        of_f1 = [bound("valid", name), "", bound("test", name), "", "", bound("all", name)]
        return [*of_f1, bound("test", name, "s_f1_longer"), bound("test", name, "corpus_f1")]

    return [[f"*{shown}*", *[""] * 3, *line(name), *[""] * 6] for name, shown in BOUNDS.items()]


def all_together(found: dict[str, Any], data: str) -> str:
    """What runs of several rows parse together, beside what each parses with the same checkpoint."""
    together = found.get("together", {}).get(data)
    if together is None:
        return ""
    runs = {(row["name"], run["seed"]): run for row in found["rows"] if row["data"] == data for run in row["runs"]}
    chosen = [runs[name, seed] for name, seeds in together["runs"].items() for seed in seeds]
    alone = cells.alone(chosen, together, "test", "s_f1")
    how = BY_HELD_OUT if together["checkpoint"] == HELD_OUT else BY_TREES
    figures = {"together": together["scores"]["test"]["s_f1"], "mean": statistics.fmean(alone), "best": max(alone)}
    names = ", ".join(f"`{name}` ({len(seeds)})" for name, seeds in together["runs"].items())
    return pages.filled(ALL_TOGETHER.format(num=len(chosen), names=names, how=how, **figures)) + "\n\n"


def recalls(rows: Iterable[dict[str, Any]]) -> str:
    """How many gold brackets of each label single seeds find, and the seeds of a row together; none of runs that were
    scored before that was counted."""
    found = [each for row in rows for each in scored_by_label(row)]
    if not found:
        return ""
    labels = {label: each["num_gold"] for label, each in found[0][1]["by_label"].items()}
    columns = ("test", "S-F1", *(f"{label} ({num:,})" for label, num in labels.items()))
    lines = []
    for name, scores in found:
        recall = [scores["by_label"].get(label, {}).get("recall") for label in labels]
        lines.append([name, *map(cells.number, (scores["s_f1"], *recall))])
    return f"{pages.filled(RECALL)}\n\n{pages.markdown_table(columns, lines)}\n"


def scored_by_label(row: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """Scores of the test split, with how they are called."""
    chosen = [(run["seed"], run.get("by_text", run)["scores"]) for run in row["runs"]]
    found = [(f"seed {seed}", scores.get("test", {})) for seed, scores in chosen]
    if together := row["together"]:
        seeds = ", ".join(map(str, together["runs"][row["name"]]))
        found.append((f"seeds {seeds} together", together["scores"].get("test", {})))
    return [(f"`{row['name']}`, {name}", scores) for name, scores in found if scores.get("by_label")]


def choice(found: dict[str, Any]) -> str:
    """What choosing without trees gives, for each row whose runs were evaluated on trees."""
    rows = [(row, chosen) for row in found["rows"] if (chosen := without_trees(row["runs"]))]
    lines = [
        [
            f"`{row['name']}`",
            row["data"],
            *(cells.number(chosen["valid"][measure]) for measure in ("s_f1", "perplexity")),
            f"{chosen['num_same']} of {chosen['num']}",
            cells.over_seeds(row, "test", "s_f1"),
            *map(of_seed, chosen["test"].values()),
            *(by_text_cells(chosen["by_text"]) if chosen["by_text"] else [""] * 3),
        ]
        for row, chosen in rows
    ]
    by_text = BY_TEXT if any(chosen["by_text"] for _, chosen in rows) else ""
    num_in_order, num = pairs_in_order([row for row, _ in rows])
    text = CHOICE + by_text + (PAIRS.format(num=num, num_in_order=num_in_order) if num else "")
    return f"\n{pages.filled(text)}\n\n{pages.markdown_table(CHOICE_COLUMNS, lines)}" if lines else ""


def of_seed(chosen: dict[str, Any]) -> str:
    return f"{chosen['s_f1']:.1f} (seed {chosen['seed']})"


def by_text_cells(chosen: dict[str, Any]) -> list[str]:
    """S-F1 over the seeds that have a checkpoint which held-out text chose, by either choice, and of the seed that it
    chooses."""
    num = chosen["test"]["num"]
    by_trees = f"{cells.spread(chosen['by_trees'])} ({num} seed{'s' if num > 1 else ''})"
    return [by_trees, cells.spread(chosen["test"]), of_seed(chosen["seed"])]
