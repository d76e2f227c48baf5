"""Two processes give what one gives on the same batches."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
import torch

from rankspace.training import RunDirectory, train
from rankspace.training.config import config_text
from training.two_processes import command_config, resumed_config, run, seeds_config

SOURCE = Path(__file__).parents[2] / "src"
TESTS = Path(__file__).parents[1]
ENVIRONMENT = {**os.environ, "PYTHONPATH": f"{SOURCE}{os.pathsep}{TESTS}", "OMP_NUM_THREADS": "1"}
TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]


class Together(NamedTuple):
    """The folder in which two processes have run `two_processes.py`, and what they said."""

    path: Path
    said: str


@pytest.fixture(scope="module")
def together(tmp_path_factory: pytest.TempPathFactory) -> Together:
    path = tmp_path_factory.mktemp("together")
    (path / "config.toml").write_text(config_text(command_config()))
    arguments = [sys.executable, *TORCHRUN, str(Path(__file__).parent / "two_processes.py"), str(path)]
    done = subprocess.run(arguments, env=ENVIRONMENT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return Together(path, done.stderr)


def test_all_processes_return_what_the_first_wrote(together: Together) -> None:
    """Even if the first is slow to write the best checkpoint, which all then test."""
    one, two = (json.loads((together.path / f"rank-{rank}.json").read_text()) for rank in range(2))
    assert one == two
    for seed, results in zip((1, 2), one["results"], strict=True):
        card = RunDirectory.open(together.path / "seeds" / f"seed-{seed}").card
        assert card["results"] == results
        assert results["test"]["step"] == results["best"]["step"] < results["last"]["step"]
    summary = json.loads((together.path / "seeds" / "summary.json").read_text())
    assert {name: list(figures.values()) for name, figures in summary.items()} == one["summary"]
    assert set(summary) == {"valid perplexity", "valid f1", "test perplexity", "test f1"}
    assert sorted(path.name for path in (together.path / "seeds").iterdir()) == ["seed-1", "seed-2", "summary.json"]


def test_two_processes_parse_as_one_does(together: Together, tmp_path: Path) -> None:
    alone = run(seeds_config().changed({"run.seed": 1}), tmp_path / "alone").results
    results = RunDirectory.open(together.path / "seeds" / "seed-1").card["results"]
    for name in ("best", "last", "test"):
        assert results[name]["perplexity"] == pytest.approx(alone[name]["perplexity"], rel=1e-4)
        assert (results[name]["f1"], results[name]["step"]) == (alone[name]["f1"], alone[name]["step"])


def test_two_processes_go_on_with_the_sums_of_both(together: Together, tmp_path: Path) -> None:
    """The first step of the record of step 6, the end of an epoch, is one of before."""
    run(resumed_config(8), tmp_path / "alone")
    alone, resumed = (
        {r["step"]: r["loss"] for r in RunDirectory.open(path).metrics() if r["split"] == "train"}
        for path in (tmp_path / "alone", together.path / "resumed")
    )
    assert set(alone) == {4, 6, 8}
    assert resumed == pytest.approx(alone, rel=1e-4)


def test_two_processes_give_what_one_gives(together: Together, tmp_path: Path) -> None:
    train(command_config(), tmp_path / "one", device="cpu")
    one, two = (RunDirectory.open(path) for path in (tmp_path / "one", together.path / "command"))
    assert two.card["environment"]["processes"] == 2
    # Of the weights those with tiny gradients differ, as Adam divides each gradient by its size; their means do not.
    mine, others = (
        {name: tensor for name, tensor in run.read("last", resuming=True).resuming.items() if name.endswith("exp_avg")}
        for run in (one, two)
    )
    largest = max(tensor.abs().max().item() for tensor in mine.values())
    for name, tensor in mine.items():
        torch.testing.assert_close(others[name], tensor, rtol=1e-3, atol=1e-4 * largest, msg=name)
    pairs = list(zip(one.metrics(), two.metrics(), strict=True))
    assert len(pairs) == 7  # four steps, two evaluations, the test
    for first, second in pairs:
        assert abs(second["perplexity"] / first["perplexity"] - 1) < 1e-4
        assert second["num_impossible"] == first["num_impossible"]
    assert len([line for line in together.said.splitlines() if line.startswith("step 1 ")]) == 1
    assert "FutureWarning" not in together.said
