"""A record beside what its table plans."""

import json
from pathlib import Path
from typing import Any

import pytest

from rankspace.experiments import load_table
from rankspace.experiments.jobs import Request
from rankspace.experiments.record import complete, options_of_row, planned_record
from rankspace.experiments.runner import run_table

TABLE = load_table("hmm-table3")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The record of one run, as if its synthetic sentences were those of the table."""
    asked = Request("hmm-table3", tmp_path_factory.mktemp("out"), rows=("states-13",), seeds=(1,), quick=True)
    text = json.dumps(run_table(asked).record)
    found: dict[str, Any] = json.loads(text.replace('"synthetic"', '"ptb-text"'))
    return found


def test_every_row_is_there_with_what_is_known_of_it(made: dict[str, Any]) -> None:
    found = planned_record(TABLE, made)
    assert [(row["name"], row["data"]) for row in found["rows"]] == [(row.name, "ptb-text") for row in TABLE.rows]
    own = {row["name"]: row for row in found["rows"]}
    assert own["states-13"]["runs"] == made["rows"][0]["runs"]
    assert own["states-13"]["weights"] == own["states-13"]["weights_now"] == made["rows"][0]["weights"]
    assert (own["states-12"]["runs"], own["states-12"]["statistics"]["num"]) == ([], 0)
    assert (own["states-12"]["weights"], own["states-12"]["weights_now"]) == (None, None)
    assert own["states-12"]["paper"] == {"valid": 149.8, "test": 139.1, "source": "the paper, same states and rank"}
    assert own["states-12"]["planned_seeds"] == [1]
    assert (found["date"], found["environment"]) == (made["date"], made["environment"])


def test_every_epoch_of_a_run_is_there(made: dict[str, Any]) -> None:
    """Of training, of the validation split and, where a checkpoint was chosen by it, of held-out text."""
    (run,) = made["rows"][0]["runs"]
    assert [each["epoch"] for each in run["training"]] == [each["epoch"] for each in run["evaluations"]]
    assert all(1 < each["perplexity"] < 1000 for each in run["training"])
    assert run["held_out"] == []


def test_held_out_text_is_there_where_trees_choose(tmp_path: Path) -> None:
    asked = Request("pcfg-figure6", tmp_path, rows=("preterminals-1000",), seeds=(1,), quick=True)
    (run,) = run_table(asked).record["rows"][0]["runs"]
    assert [each["epoch"] for each in run["held_out"]] == [each["epoch"] for each in run["evaluations"]]
    assert min(each["perplexity"] for each in run["held_out"]) == pytest.approx(
        run["by_text"]["scores"]["valid"]["perplexity"]
    )


def test_nothing_is_made_yet() -> None:
    found = planned_record(TABLE, None)
    assert (found["table"], found["title"], found["note"]) == (TABLE.name, TABLE.title, "")
    assert [row["runs"] for row in found["rows"]] == [[]] * len(TABLE.rows)


def test_synthetic_sentences_are_no_data_of_a_table(made: dict[str, Any]) -> None:
    synthetic = json.loads(json.dumps(made).replace('"ptb-text"', '"synthetic"'))
    assert planned_record(TABLE, synthetic)["rows"] == planned_record(TABLE, None)["rows"]


def test_sections_of_the_treebank_come_beside_what_is_planned() -> None:
    table = load_table("pcfg-figure6")
    row = {"name": "preterminals-9000", "data": "wsj", "config": options_of_row(table.rows[-1].config)}
    record = {"rows": [{**row, "weights": 0, "runs": []}], "data": {}, "note": ""}
    found = planned_record(table, record)["rows"]
    assert [row["data"] for row in found if row["name"] == "preterminals-9000"] == ["ptb", "wsj"]


def test_figures_of_others_are_of_the_penn_treebank() -> None:
    rows = {row["data"]: row for row in planned_record(load_table("pcfg-table1"), None)["rows"][:2]}
    assert {data: (row["paper"], row["reproduction"]) for data, row in rows.items()} == {
        "ptb": ({"s_f1": 64.1}, {"s_f1": 57.4, "deviation": 6.0, "num": 32}),
        "craft": ({}, {}),
    }


def test_peers_have_minutes() -> None:
    [first, *_] = planned_record(load_table("hmm-table2"), None)["peers"]
    assert first["minutes"] == pytest.approx(108_936 * 97 / 60_000)


def test_options_that_a_record_does_not_know_have_their_defaults() -> None:
    config = options_of_row(TABLE.rows[0].config)
    known = {key: value for key, value in config.items() if key not in ("model.start", "optimiser.epsilon")}
    assert complete({**known, "model.start": config["model.start"]}) == config
    assert complete(known)["model.start"] == "states"


def test_records_on_file_are_of_rows_that_exist() -> None:
    for file in (Path(__file__).parents[2] / "benchmarks" / "results").glob("experiment-*.json"):
        record = json.loads(file.read_text(encoding="utf-8"))
        names = [row.name for row in load_table(record["table"]).rows]
        assert {row["name"] for row in record["rows"]} <= set(names)
