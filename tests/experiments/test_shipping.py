"""benchmarks/ship.py makes models of the package from runs."""

import json
import runpy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from rankspace.experiments.jobs import Request, begun
from rankspace.experiments.runner import run_table
from rankspace.training import RunDirectory, load

ROOT = Path(__file__).parents[2]
WEIGHTS = "checkpoints/best/model.safetensors"


@pytest.fixture(scope="module")
def script() -> dict[str, Any]:
    return runpy.run_path(str(ROOT / "benchmarks" / "ship.py"))


def request(output: Path, *rows: str) -> Request:
    return Request("craft-small", output, rows=rows, seeds=(1, 2), quick=True)


def test_what_the_readme_says_is_what_the_models_do(script: dict[str, Any]) -> None:
    """`python benchmarks/ship.py` would change nothing."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert script["with_passage"](text) == text
    assert "rankspace parse --model craft-small" in text


@pytest.mark.parametrize(
    ("folder", "problem"),
    [("no", "there is no such folder"), (".", "has no run of craft-small that was evaluated")],
)
def test_a_folder_without_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: dict[str, Any], folder: str, problem: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["ship.py", folder, "--to", "models"])
    with pytest.raises(SystemExit) as caught:
        script["main"]()
    assert caught.value.code == (
        f"{folder}: {problem}; make one with rankspace experiment craft-small --data DIR -o {folder}."
    )
    assert not list(tmp_path.iterdir())


def test_the_best_run_of_each_row_is_stored(script: dict[str, Any], tmp_path: Path) -> None:
    asked = request(tmp_path / "out")
    run_table(asked)
    made = script["ship"](asked, tmp_path, "cpu")
    assert [path.name for path in made] == ["craft-small", "craft-small-hmm"]
    for folder, row in zip(made, ("pcfg", "hmm"), strict=True):
        runs = {job.seed: RunDirectory.open(job.folder) for job in begun(asked) if job.row.name == row}
        best = {seed: run.card["results"]["best"] for seed, run in runs.items()}
        card = RunDirectory.open(folder).card
        entry = card["shipped"]
        name, sign = ("f1", -1) if row == "pcfg" else ("perplexity", 1)
        assert entry["seed"] == min(best, key=lambda seed: sign * best[seed][name])
        command = f"rankspace experiment craft-small --data DIR --rows {row} --seeds 1,2"
        assert (entry["command"], entry["stored as"]) == (command, "float16")
        assert entry["commit"] == card["environment"]["commit"]
        assert card["results"].keys() == {"steps", "epochs", "seconds", "finished"}
        # A tenth of a per cent is what storing may cost.
        found = card["experiment"]["scores"]["valid"]["perplexity"]
        assert found == pytest.approx(best[entry["seed"]]["perplexity"], rel=1e-3)
        assert {tensor.dtype for tensor in load_file(folder / WEIGHTS).values()} == {torch.float16}
        assert str(tmp_path) not in (folder / "config.toml").read_text()
        assert load(folder).step == best[entry["seed"]]["step"]


def test_full_precision_where_half_is_not_enough(
    script: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also: a row without runs makes nothing, and what was there is replaced."""
    asked = replace(request(tmp_path / "out", "hmm"), seeds=(1,))
    run_table(asked)
    monkeypatch.setitem(script["pack"].__globals__, "MOST_LOSS", -1.0)
    (tmp_path / "craft-small-hmm").mkdir()
    made = script["ship"](asked, tmp_path, "cpu")
    assert [path.name for path in made] == ["craft-small-hmm"]
    assert {tensor.dtype for tensor in load_file(made[0] / WEIGHTS).values()} == {torch.float32}
    assert json.loads((made[0] / "card.json").read_text())["shipped"]["stored as"] == "float32"


def test_a_stopped_run_counts_from_its_first_evaluation_on(script: dict[str, Any], tmp_path: Path) -> None:
    """Every call has time for one step, and an epoch has two."""
    asked = replace(request(tmp_path / "out", "hmm"), seeds=(1,))
    run_table(asked, minutes=1e-9)
    assert [job.row.name for job in begun(asked)] == ["hmm"]
    assert script["ship"](asked, tmp_path, "cpu") == []
    for _ in range(2):
        run_table(asked, minutes=1e-9)
    [made] = script["ship"](asked, tmp_path, "cpu")
    found = RunDirectory.open(made).card["results"]
    assert found.pop("seconds") > 0
    assert found == {"steps": 2, "epochs": 1, "finished": False}
    assert script["ship"](replace(asked, output=asked.place, quick=False), tmp_path, "cpu") == []  # of synthetic data
