"""What test_distributed.py has torchrun start twice: runs with a first process that is slow to write."""

import json
import os
import sys
import time
from pathlib import Path

from rankspace.cli import main as command
from rankspace.training import Config, Outcome, train, train_seeds
from rankspace.training.checkpoints import Checkpoint
from rankspace.training.run_directory import RunDirectory
from training.tiny import CHAIN, config, data

SHARED = {"batches__max_sentences": 7, "run__log_every": 4, "evaluation__max_tokens": 16}  # so that both evaluate


def seeds_config() -> Config:
    """The best evaluation is not the last, so that the weights that are tested are not those of the end."""
    return config(**SHARED, run__epochs=1, evaluation__every_steps=2, evaluation__measure="s_f1")


def resumed_config(num_steps: int) -> Config:
    return config(CHAIN, **SHARED, model__dropout=0.0, run__epochs=9, run__max_steps=num_steps)


def command_config() -> Config:
    return config(
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


def run(chosen: Config, folder: Path) -> Outcome:
    return train(chosen, folder, device="cpu", data=data(), resume=True)


def main(output: Path) -> None:
    """Writes what each process found to a file of its own."""
    save_chosen = RunDirectory.save_chosen

    def slowly(directory: RunDirectory, name: str, checkpoint: Checkpoint) -> None:
        time.sleep(0.5)
        save_chosen(directory, name, checkpoint)

    RunDirectory.save_chosen = slowly  # type: ignore[method-assign]
    outcomes, summary = train_seeds(seeds_config(), output / "seeds", [1, 2], run)
    for num_steps in (5, 8):
        run(resumed_config(num_steps), output / "resumed")
    found = {"results": [outcome.results for outcome in outcomes], "summary": summary}
    (output / f"rank-{os.environ['RANK']}.json").write_text(json.dumps(found))
    file = output / "config.toml"
    command(("train", "--config", str(file), "--device", "cpu", "-o", str(output / "command")))  # leaves the group


if __name__ == "__main__":
    main(Path(sys.argv[1]))
