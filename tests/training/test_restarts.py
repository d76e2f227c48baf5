"""Several seeds, of which the most likely run is kept."""

from pathlib import Path

import pytest
import torch

import rankspace
from rankspace.data import save_prepared
from rankspace.errors import RankspaceError
from rankspace.training import train
from rankspace.training.restarts import train_restarts
from training.tiny import CHAIN, config, data


def test_the_run_with_the_lowest_perplexity_is_kept(tmp_path: Path) -> None:
    save_prepared(tmp_path / "data", data())
    chosen = config(CHAIN, run__max_steps=3, data__source=str(tmp_path / "data"))
    told: list[str] = []
    outcome = train_restarts(chosen, tmp_path / "kept", [3, 5], workers=1, tick=told.append)
    alone = {
        seed: train(chosen.changed({"run.seed": seed}), tmp_path / f"alone-{seed}", device="cpu") for seed in (3, 5)
    }
    best = min((3, 5), key=lambda seed: alone[seed].results["best"]["perplexity"])
    assert outcome.results["best"]["perplexity"] == alone[best].results["best"]["perplexity"]
    weights = [rankspace.load(path).model.state_dict() for path in (outcome.directory, alone[best].directory)]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[1])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["alone-3", "alone-5", "data", "kept"]
    assert [line.split(":")[0] for line in told] == ["seed 3", "seed 5"]


def test_only_those_that_begin_best_go_on(tmp_path: Path) -> None:
    """And they end as if they had never been compared."""
    save_prepared(tmp_path / "data", data())
    chosen = config(CHAIN, run__epochs=3, data__source=str(tmp_path / "data"))
    told: list[str] = []
    outcome = train_restarts(
        chosen, tmp_path / "kept", [3, 5, 7], workers=1, tick=told.append, first_epochs=1, finalists=2
    )
    early = {line.split(":")[0]: float(line.split()[4]) for line in told[:3]}
    assert [line.split(":")[0] for line in told[3:]] == sorted(early, key=lambda seed: early[seed])[:2]
    assert all(line.endswith("after 1 epochs") for line in told[:3])
    assert all(line.endswith("after 3 epochs") for line in told[3:])
    seed = min(told[3:], key=lambda line: float(line.split()[4])).split(":")[0].removeprefix("seed ")
    alone = train(chosen.changed({"run.seed": int(seed)}), tmp_path / "alone", device="cpu")
    weights = [rankspace.load(path).model.state_dict() for path in (outcome.directory, alone.directory)]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[1])


def test_what_is_there_is_kept(tmp_path: Path) -> None:
    with pytest.raises(RankspaceError) as caught:
        train_restarts(config(CHAIN), tmp_path, [1])
    assert str(caught.value) == f"{tmp_path}: exists already; choose another name."


def test_no_seeds(tmp_path: Path) -> None:
    with pytest.raises(RankspaceError) as caught:
        train_restarts(config(CHAIN), tmp_path / "run", [])
    assert str(caught.value) == "train_restarts: there are no seeds; give at least one."
