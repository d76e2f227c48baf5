"""Two processes give what one gives on the same batches."""

import os
import subprocess
import sys
from pathlib import Path

import torch

from rankspace.training import Config, RunDirectory
from rankspace.training.config import config_text
from training.tiny import CHAIN, config

SOURCE = Path(__file__).parents[2] / "src"
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1"}


def command(chosen: Config, output: Path) -> list[str]:
    file = output.with_suffix(".toml")
    file.write_text(config_text(chosen))
    return ["-m", "rankspace", "train", "--config", str(file), "--device", "cpu", "-o", str(output)]


def finished(arguments: list[str]) -> subprocess.CompletedProcess[str]:
    done = subprocess.run([sys.executable, *arguments], env=ENVIRONMENT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done


def test_two_processes_give_what_one_gives(tmp_path: Path) -> None:
    chosen = config(
        CHAIN,
        model__dropout=0.0,  # what is drawn differs from process to process
        data__source="synthetic:41",
        objective__normalise="token",
        batches__max_sentences=7,
        batches__accumulate=2,
        optimiser__clip=1.0,
        run__log_every=1,
        run__max_steps=4,
    )
    finished(command(chosen, tmp_path / "one"))
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = finished([*torchrun, *command(chosen, tmp_path / "two")])
    one, two = (RunDirectory.open(tmp_path / name) for name in ("one", "two"))
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
    assert len(pairs) == 6  # four steps, two evaluations
    for first, second in pairs:
        assert abs(second["perplexity"] / first["perplexity"] - 1) < 1e-4
        assert second["num_impossible"] == first["num_impossible"]
    assert len([line for line in done.stderr.splitlines() if line.startswith("step 1 ")]) == 1
