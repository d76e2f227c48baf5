"""Where the time of a whole training run goes."""

import time
from pathlib import Path

import pytest
import torch

from rankspace.bench import gpu_training
from rankspace.bench.gpu_rows import ROWS, small
from rankspace.bench.gpu_run import MADE_BY, Pause, Stopwatch, later_epoch, split
from rankspace.training import train

CPU = torch.device("cpu")
ROW = {row.name: row for row in ROWS}


@pytest.fixture(autouse=True)
def no_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Models run by torch, whatever tests of kernels have switched on in this process."""
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)


def test_the_seconds_of_a_run_are_split_without_remainder() -> None:
    """Two steps that record, an evaluation and a checkpoint before the third, a checkpoint after the last."""
    pauses = [Pause("evaluation", 2, 3.0), Pause("checkpoints", 2, 1.0), Pause("checkpoints", 4, 0.5)]
    found = split(20.0, [0.0, 4.0, 6.0, 11.0, 12.0], [False, False, True, True], pauses)
    assert found == {"steps": 2.0, "recording": 6.0, "evaluation": 3.0, "checkpoints": 1.5, "rest": 7.5}


def test_a_later_epoch_has_its_evaluation_and_checkpoints() -> None:
    """Of two epochs of three steps: the first evaluation, before the first step of the second epoch, also compiles, and
    belongs to the first epoch; a step whose shape has no graph does not count."""
    first, second = Pause("evaluation", 3, 3.0), Pause("evaluation", 6, 0.25)
    pauses = [first, Pause("checkpoints", 3, 1.0), Pause("checkpoints", 4, 0.5), second, Pause("checkpoints", 6, 0.125)]
    ends, has_graph = [0.0, 4.0, 6.0, 7.0, 13.0, 15.0, 18.0], [False, False, True, True, True, False]
    found = later_epoch(3, [1, 2, 4, 8, 16, 32], ends, has_graph, pauses)
    assert found.num_words == 8 + 16
    assert found.split == {"steps": (6.0 - 4.0) + (2.0 - 0.5), "evaluation": 0.25, "checkpoints": 0.5 + 0.125}
    assert found.seconds == 4.375


def test_the_first_two_batches_of_a_shape_have_no_graph() -> None:
    shapes = [(16, 10), (16, 12), (16, 10), (16, 10), (16, 12), (16, 12)]
    assert gpu_training.recorded_before(shapes) == [False, False, False, True, False, True]


def test_a_run_has_an_evaluation_and_checkpoints_in_every_epoch(tmp_path: Path) -> None:
    row, watch = small(ROW["rank-hmm"]), Stopwatch(CPU)
    data, config = gpu_training.language_data(60, 5, row.vocabulary), gpu_training.training_config(row, 2)
    before = [getattr(owner, name) for _, owner, name in MADE_BY]
    begin = time.perf_counter()
    with watch.watching():
        train(config, tmp_path / "run", device="cpu", display=watch, data=data)
    assert 0 < watch.seconds <= time.perf_counter() - begin
    assert [getattr(owner, name) for _, owner, name in MADE_BY] == before
    kinds = [pause.kind for pause in watch.pauses]
    assert kinds.count("evaluation") == 2
    assert kinds.count("checkpoints") >= 2 + 1  # and the best so far
    num_steps = len(watch.ends) - 1
    assert {pause.num_steps for pause in watch.pauses} == {num_steps // 2, num_steps}
    assert sum(pause.seconds for pause in watch.pauses) < watch.seconds


def test_evaluated_are_other_sentences_than_those_trained_on() -> None:
    data = gpu_training.language_data(60, 5, 13)
    train_split, valid = data["train"], data["valid"]
    assert 0 < len(valid.lengths) <= 5 < len(train_split.lengths)
    assert max(valid.lengths) <= 5


def test_steps_recording_and_the_rest_are_all_of_a_run() -> None:
    row = small(ROW["rank-hmm"])
    data, config = gpu_training.language_data(200, 5, row.vocabulary), gpu_training.training_config(row, 2)
    timed = gpu_training.timed_steps(config, data, CPU)
    assert all(seconds > 0 for seconds in timed.split.values())
    assert timed.num_words == 2 * sum(data["train"].lengths + 1)
    assert sum(step.seconds for step in timed.steps) <= timed.split["steps"]
    whole = gpu_training.whole_run(timed, 1000.0)
    assert whole["seconds"] == pytest.approx(sum(timed.split.values()))
    assert whole["ratio"] == pytest.approx(1000.0 / whole["words_per_second"])
