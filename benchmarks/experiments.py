"""Writes the blocks of docs/results.md, between their marks, from benchmarks/results/experiment-*.json.

    python benchmarks/experiments.py

The records are those of `rankspace experiment`; rows that a table plans and that have no runs are shown as such. The
pictures beside the page need matplotlib. No figure is typed.
"""

from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

from rankspace.bench import pages
from rankspace.experiments import cells, load_table
from rankspace.experiments.parsing_page import (
    TREE_COLUMNS,
    all_together,
    bound_cells,
    choice,
    recalls,
    tree_cells,
)
from rankspace.experiments.pictures import draw_learning, draw_parsing, draw_seeds, draw_sizes, with_runs
from rankspace.experiments.record import planned_record
from rankspace.experiments.statistics import figure, of_runs, without_trees
from rankspace.training import RunDirectory
from rankspace.training.shipped import FOLDER, shipped_names

HERE = Path(__file__).parent
RESULTS, DOCS = HERE / "results", HERE.parent / "docs"
CHAIN_COLUMNS = (
    *("model", "weights", "valid, reported", "test, reported", "by", "valid", "test", "best test", "change"),
    *("seeds", "minutes", "at once", "minutes to"),
)
PRECISION_COLUMNS = ("model", "data", "perplexity, valid", "test", "S-F1, valid", "test", "seeds")
SHIPPED_COLUMNS = (
    *("model", "is a", "perplexity, valid", "test", "S-F1, valid", "test", "right-branching, test", "epochs"),
    *("minutes", "command"),
)

CHAINS_IN_SHORT = """\
**Language modelling**, perplexity of the Penn Treebank's text, valid / test: {wide} with our recipe at rank 8192
(`best-rank-8192`), {best} with the paper's states and rank and embeddings twice as wide (`best-14`), {narrow} with the
paper's embeddings as well (`normal-rate-5-decay`). The paper reports {paper}. VL-HMM, which needs Brown clusters of
words, has {other} ({source})."""
TREES_IN_SHORT = """\
**Unsupervised parsing**, S-F1: {ours} on the test split of NLTK's sample (`rank-pcfg`), where the trees of its
validation split chose the checkpoint of each seed. Where held-out text does, {by_text}. The paper reports {paper} on
section 23, and others who reproduced it report {reproduction}."""
FORMER = "runs of a former model of this name, with {weights:,} weights instead of {weights_now:,}; to be repeated"
CHOSEN = "`{}`: its first seed is the run of `{}` by which the recipe was chosen; without it, {} ({})."
COMMITS = "`{}` on {}, by commit: {}."


# Blocks.


def in_short() -> str:
    """What the best rows come to, beside what is reported."""
    planned = [row for table in ("hmm-table2", "hmm-recipe", "pcfg-table1") for row in of_table(table)["rows"]]
    rows = {row["name"]: row for row in reversed(planned)}  # on the first of their data sets
    wide, best, other, grammar = (rows[name] for name in ("best-rank-8192", "best-14", "vl-hmm-15", "rank-pcfg"))
    of_ours = {"wide": wide, "best": best, "narrow": rows["normal-rate-5-decay"]}
    ours = {name: f"{cells.both(row)} ({cells.seeds(row)} seeds)" for name, row in of_ours.items()}
    theirs = {name: "{valid} / {test}".format(**row["paper"]) for name, row in (("paper", best), ("other", other))}
    of_trees = {name: cells.reported(grammar[name]) for name in ("paper", "reproduction")}
    f1 = f"{cells.over_seeds(grammar, 'test', 's_f1')} ({cells.seeds(grammar)} seeds)"
    chosen = without_trees(grammar["runs"])
    assert chosen is not None
    by_text = "{test} instead of {by_trees} ({num} seeds)".format(
        **{name: cells.spread(chosen["by_text"][name]) for name in ("test", "by_trees")},
        num=chosen["by_text"]["test"]["num"],
    )
    chains = CHAINS_IN_SHORT.format(**ours, **theirs, source=cells.source(other))
    return pages.listed([chains, TREES_IN_SHORT.format(ours=f1, by_text=by_text, **of_trees)])


def chain_block(found: dict[str, Any]) -> str:
    lines = [chain_cells(row, whole) for row, whole in with_wholes(found["rows"])]
    return about(found, found["note"]) + pages.markdown_table(CHAIN_COLUMNS, lines) + remarks(found) + picture(found)


def with_wholes(rows: Iterable[dict[str, Any]]) -> list[tuple[dict[str, Any], dict[str, Any] | None]]:
    """Each row, and the one that it is an ablation of."""
    known = {(row["name"], row["data"]): row for row in rows}
    return [(row, known.get((row["ablation_of"], row["data"]))) for row in known.values()]


def chain_cells(row: dict[str, Any], whole: dict[str, Any] | None) -> list[str]:
    test = figure(row, "test", "perplexity")
    return [
        cells.title(row),
        cells.weights(row),
        cells.number(row["paper"].get("valid")),
        cells.number(row["paper"].get("test")),
        cells.source(row),
        cells.over_seeds(row, "valid", "perplexity"),
        cells.main_figure(row, "test", "perplexity"),
        cells.number(test and test["best"]),
        cells.change(row, whole, "perplexity"),
        cells.seeds(row),
        *cells.minutes(row),
        cells.time_to(row),
    ]


def precision_block(found: dict[str, Any]) -> str:
    """Perplexity and, of grammars, S-F1, side by side."""
    lines = [
        [
            cells.title(row),
            row["data"],
            cells.over_seeds(row, "valid", "perplexity"),
            cells.main_figure(row, "test", "perplexity"),
            *(cells.over_seeds(row, split, "s_f1") for split in ("valid", "test")),
            cells.seeds(row),
        ]
        for row in found["rows"]
    ]
    return about(found) + pages.markdown_table(PRECISION_COLUMNS, lines) + remarks(found)


def tree_block(found: dict[str, Any]) -> str:
    parts = [about(found, found["note"])]
    for data in dict.fromkeys(row["data"] for row in found["rows"]):
        own = [row for row in found["rows"] if row["data"] == data]
        lines = [tree_cells(row, whole) for row, whole in with_wholes(own)] + bound_cells(own)
        table = pages.markdown_table(TREE_COLUMNS, lines)
        parts.append(f"**{data}**\n\n{table}\n{all_together(found, data)}{recalls(own)}")
    return "".join(parts).removesuffix("\n") + remarks(found) + choice(found) + picture(found)


def shipped_block() -> str:
    """The models of the package, by their cards."""
    cards = {name: RunDirectory.open(FOLDER / name).card for name in shipped_names()}
    dates = ", ".join(dict.fromkeys(card["shipped"]["date"] for card in cards.values()))
    text = f"{dates}, {circumstances([card['environment'] for card in cards.values()])}.\n\n"
    return text + pages.markdown_table(SHIPPED_COLUMNS, [shipped_cells(*each) for each in cards.items()])


def shipped_cells(name: str, card: dict[str, Any]) -> list[str]:
    scores, results = card["experiment"]["scores"], card["results"]
    return [
        f"`{name}`",
        card["model"]["name"],
        *(cells.number(scores[split].get(each)) for each in ("perplexity", "s_f1") for split in ("valid", "test")),
        cells.number(scores["test"].get("bounds", {}).get("right_branching", {}).get("s_f1")),
        f"{results['epochs']}{'' if results['finished'] else ', stopped'}",
        f"{results['seconds'] / 60:.0f}",
        f"`{card['shipped']['command']}`",
    ]


# Around tables.


def about(found: dict[str, Any], note: str = "") -> str:
    """When and where; of the runs, for they may have been made by other commits than the record, and by several."""
    command = f"`rankspace experiment {found['table']} --data DIR`"
    machines = [run["environment"] for row in found["rows"] for run in row["runs"]]
    if not machines:
        return f"{command}: not run yet.\n\n"
    return pages.filled(f"{found['date']}, {command}, {circumstances(machines)}. {note}") + "\n\n"


def circumstances(machines: list[dict[str, Any]]) -> str:
    found = (", ".join(dict.fromkeys(each[name] for each in machines)) for name in ("commit", "torch", "device"))
    return "commit {}, torch {}, on {}".format(*found)


def remarks(found: dict[str, Any]) -> str:
    """Peers, ingredients of rows, rows whose model has changed, runs that failed."""
    rows = found["rows"]
    lines = [
        f"{peer['name']}: {peer['minutes']:.0f} minutes for `{peer['row']}`, {peer['steps']:,} steps of "
        f"{peer['milliseconds']:g} ms; {peer['about']}."
        for peer in found["peers"]
    ]
    lines += pages.gathered((row["name"], row["about"]) for row in rows if row["about"])
    lines += chosen_by(found) + by_commit(rows)
    lines += pages.gathered((row["name"], FORMER.format(**row)) for row in rows if cells.is_former(row))
    lines += [
        f"`{row['name']}` on {row['data']}, seed {run['seed']}, failed: {run['failed']}."
        for row in rows
        for run in row["runs"]
        if run["state"] == "failed"
    ]
    return "\n" + pages.listed(lines) if lines else ""


def chosen_by(found: dict[str, Any]) -> list[str]:
    """Rows of Table 2 whose configuration was chosen by a run that counts among their own, and figures without it."""
    if found["table"] != "hmm-table2":
        return []
    tried, lines = {row["name"]: row for row in of_table("hmm-recipe")["rows"]}, []
    for row in found["rows"]:
        same = [name for name, each in tried.items() if each["config"] == row["config"] and each["runs"]]
        if row["runs"] and same:
            seeds = {run["seed"] for run in tried[same[0]]["runs"]}
            others = [run for run in row["runs"] if run["state"] == "finished" and run["seed"] not in seeds]
            named = pages.numbered("seed", [run["seed"] for run in others])
            lines.append(CHOSEN.format(row["name"], same[0], cells.both({**row, **only(others)}), named))
    return lines


def by_commit(rows: Iterable[dict[str, Any]]) -> list[str]:
    """What rows come to on the test split by commit, where several made runs of one."""
    lines = []
    for row in rows:
        groups: dict[str, list[dict[str, Any]]] = {}
        for run in row["runs"]:
            if run["state"] == "finished":
                groups.setdefault(run["environment"]["commit"], []).append(run)
        if len(groups) > 1:
            measure = "s_f1" if figure(row, "test", "s_f1") else "perplexity"
            parts = [
                f"{cells.over_seeds({**row, **only(runs)}, 'test', measure)} ({commit}: "
                f"{pages.numbered('seed', [run['seed'] for run in runs])})"
                for commit, runs in groups.items()
            ]
            lines.append(COMMITS.format(row["name"], row["data"], "; ".join(parts)))
    return lines


def only(runs: list[dict[str, Any]]) -> dict[str, Any]:
    return {"runs": runs, "statistics": of_runs(runs, None)}


def picture(found: dict[str, Any]) -> str:
    if found["table"] not in DRAWN or not with_runs(found):
        return ""
    return f"\n![{found['title']}]({plot_file(found['table']).name})\n"


# The page.

DRAWN: dict[str, Callable[[dict[str, Any], Path], None]] = {
    "hmm-table2": draw_learning,
    "hmm-recipe": draw_seeds,
    "pcfg-table1": draw_parsing,
    "pcfg-recipe": draw_seeds,
    "pcfg-figure6": draw_sizes,
}
TABLES: dict[str, Callable[[dict[str, Any]], str]] = {
    "hmm-table2": chain_block,
    "hmm-recipe": chain_block,
    "hmm-table3": chain_block,
    "pcfg-table1": tree_block,
    "pcfg-recipe": tree_block,
    "pcfg-figure6": tree_block,
    "precision": precision_block,
}


def of_table(name: str) -> dict[str, Any]:
    return planned_record(load_table(name), pages.record(RESULTS, f"experiment-{name}"))


def table_block(name: str) -> str:
    return TABLES[name](of_table(name))


def plot_file(table: str) -> Path:
    return DOCS / f"results-{table}.png"


BLOCKS: dict[str, Callable[[], str]] = {
    "in-short": in_short,
    **{f"experiment-{name}": partial(table_block, name) for name in TABLES},
    "experiment-craft-small": shipped_block,
}


def with_blocks(text: str) -> str:
    """The page with its blocks written anew."""
    for name, write in BLOCKS.items():
        text = pages.with_block(text, name, write)
    return text


def main() -> None:
    page = DOCS / "results.md"
    page.write_text(with_blocks(page.read_text(encoding="utf-8")), encoding="utf-8")
    for table, draw in DRAWN.items():
        found = of_table(table)
        if with_runs(found):
            draw(found, plot_file(table))


if __name__ == "__main__":
    main()
