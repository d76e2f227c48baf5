"""docs/results.md is written from records."""

import runpy
from pathlib import Path
from typing import Any

import pytest

from rankspace.experiments import table_names
from rankspace.experiments.statistics import of_runs

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def page() -> dict[str, Any]:
    return runpy.run_path(str(ROOT / "benchmarks" / "experiments.py"))


def made_up_row(name: str, data: str, scores: dict[str, Any], **changes: Any) -> dict[str, Any]:
    evaluations = [{"elapsed": 60.0 * number, "perplexity": 300.0 / number} for number in (1, 2, 3)]
    machine = {"device": "cuda (GPU)", "torch": "2", "commit": "c"}
    runs = [
        {"seed": seed, "state": "finished", "seconds": 120.0, "evaluations": evaluations, "environment": machine}
        | {"scores": {split: {**each, "perplexity": 99.0 + seed} for split, each in scores.items()}}
        for seed in (1, 2)
    ]
    runs.append({**runs[0], "seed": 3, "state": "failed", "failed": "not enough memory", "scores": {}})
    row = {"name": name, "title": f"Row {name}", "about": "", "data": data, "ablation_of": None}
    figures = {"paper": {}, "reproduction": {}, "config": {"model.preterminals": 9000}}
    return {**row, **figures, "runs": runs, "statistics": of_runs(runs, 150.0), **changes}


def made_up(table: str, rows: list[dict[str, Any]]) -> dict[str, Any]:
    peers = [{"name": "a peer", "row": "a", "milliseconds": 60.0, "steps": 3000, "minutes": 3.0}]
    return {"table": table, "title": "Title", "date": "today", "peers": peers, "rows": rows}


def grammar(**changes: Any) -> dict[str, Any]:
    bound = {"s_f1": 39.5, "s_f1_longer": 39.0, "corpus_f1": 35.0}
    bounds = dict.fromkeys(("left_branching", "right_branching", "random", "oracle"), bound)
    scores = {"s_f1": 60.0, "s_f1_longer": 59.0, "corpus_f1": 55.0, "bounds": bounds}
    return made_up_row("g", "ptb", dict.fromkeys(("valid", "test", "all"), scores), **changes)


def test_figures_are_those_of_the_records(page: dict[str, Any]) -> None:
    """`python benchmarks/experiments.py` would change nothing."""
    text = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    assert page["with_blocks"](text) == text
    assert [name for name in page["BLOCKS"] if f"<!-- {name} -->\n" not in text] == []
    assert sorted(page["NAMES"]) == table_names()


def test_chains(page: dict[str, Any]) -> None:
    rows = [
        made_up_row("a", "ptb-text", {"valid": {}, "test": {}}, paper={"valid": 135.6, "test": 127.0}),
        made_up_row("b", "ptb-text", {"valid": {}, "test": {}}, ablation_of="a", about="with less"),
        made_up_row("c", "synthetic", {"valid": {}, "test": {}}),
    ]
    text = page["chain_block"](made_up("hmm-table2", rows))
    assert "| Row a (`a`) | 135.6 | 127.0 | 100.5 ± 0.7 | **100.5 ± 0.7** | 100.0 | 2 | 2.0 ± 0.0 | 150: 2.0 |" in text
    assert "| Row b (`b`, of `a`) |" in text
    assert "Row c" not in text
    assert "- `b`: with less.\n" in text
    assert "- a peer: 3 minutes for `a` (3,000 steps of 60 ms).\n" in text
    assert "- `a` on ptb-text, seed 3, failed: not enough memory.\n" in text
    assert "![Title](results-hmm-table2.png)" in text
    assert page["chain_block"](made_up("hmm-table2", rows[2:])) == ""


def test_trees(page: dict[str, Any]) -> None:
    row = grammar(paper={"s_f1": 64.1}, reproduction={"s_f1": 57.4, "deviation": 6.0})
    text = page["tree_block"](made_up("pcfg-table1", [row, {**row, "data": "craft"}]))
    assert "**ptb**" in text
    assert "**craft**" in text
    assert "| Row g (`g`) | 64.1 | 57.4 ± 6.0 | 60.0 ± 0.0 | **60.0 ± 0.0** | 60.0 | 60.0 ± 0.0 | 59.0 ± 0.0 |" in text
    assert "| *right-branching* |  |  | 39.5 | 39.5 |  | 39.5 | 39.0 | 35.0 |" in text
    assert {line.count("|") for line in text.splitlines() if line.startswith("|")} == {15}


def test_pictures(page: dict[str, Any], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="needs matplotlib")
    records = {
        "hmm-table2": made_up("hmm-table2", [made_up_row("a", "ptb-text", {"valid": {}, "test": {}})]),
        "pcfg-figure6": made_up(
            "pcfg-figure6", [grammar(config={"model.preterminals": size}) for size in (1000, 2000, 9000)]
        ),
    }
    for table, draw in page["DRAWN"].items():
        draw(records[table], tmp_path / f"{table}.png")
        assert 5_000 < (tmp_path / f"{table}.png").stat().st_size < 200_000
