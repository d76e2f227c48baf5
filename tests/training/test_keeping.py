"""What is written beside training: in order, of the moment it was asked for, and told where it cannot be."""

import errno
import os
import resource
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from rankspace.errors import WritingError
from rankspace.training import RunDirectory, train
from rankspace.training.background import Background
from rankspace.training.checkpoints import Checkpoint, read_checkpoint, write_checkpoint
from rankspace.training.keeping import Keeper
from rankspace.training.progress import Quiet
from training.test_resuming import assert_same
from training.test_run_directory import made, weight
from training.tiny import CHAIN, config, data

LONG = 60.0  # seconds, that nothing here waits for unless it fails


class Steps(Quiet):
    """Tells when so many steps are done."""

    def __init__(self, number: int) -> None:
        self.left, self.are_done = number, threading.Event()

    def advance(self, epochs: float, record: Mapping[str, Any]) -> None:
        self.left -= 1
        if not self.left:
            self.are_done.set()


def test_training_goes_on_while_a_checkpoint_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The weights are those of the step that the checkpoint is of, not of the steps that were made meanwhile."""
    chosen = config(CHAIN, run__epochs=3, run__checkpoint_steps=2)
    train(chosen, tmp_path / "plain", device="cpu", data=data())
    steps, found = Steps(3), []
    write = write_checkpoint

    def late(folder: Path, checkpoint: Checkpoint) -> None:
        if checkpoint.step == 2:
            found.append(steps.are_done.wait(LONG))
        write(folder, checkpoint)

    monkeypatch.setattr("rankspace.training.checkpoints.write_checkpoint", late)
    train(chosen, tmp_path / "late", device="cpu", data=data(), display=steps)
    assert found == [True]
    assert_same(tmp_path / "plain", tmp_path / "late")


class Slow:
    """A run whose checkpoints are written when they are let, and that notes what was written."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.run, self.may_write, self.written = made(path), threading.Event(), list[str]()
        for name in ("save", "save_chosen", "add_metrics", "add_results"):
            monkeypatch.setattr(RunDirectory, name, self._noting(name, getattr(RunDirectory, name)))

    def _noting(self, name: str, whole: Any) -> Any:
        def noting(run: RunDirectory, *given: Any) -> None:
            assert self.may_write.wait(LONG)
            whole(run, *given)
            self.written.append(name)

        return noting


@pytest.fixture
def slow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Slow]:
    found = Slow(tmp_path / "run", monkeypatch)
    yield found
    found.may_write.set()


def test_files_are_written_in_order(slow: Slow) -> None:
    keeper = Keeper(slow.run)
    keeper.save_chosen("best", weight(2))
    keeper.record({"step": 2, "split": "valid"})
    keeper.result(best={"step": 2})
    keeper.save(weight(2))
    assert slow.written == []
    slow.may_write.set()
    keeper.settle()
    assert slow.written == ["save_chosen", "add_metrics", "add_results", "save"]
    assert RunDirectory.open(slow.run.path).card["results"] == {"best": {"step": 2}}
    assert keeper.good == f"the checkpoint of step 2 is in {slow.run.path}/checkpoints/last."
    keeper.close()


@pytest.mark.parametrize("chosen", [False, True])
def test_checkpoints_of_one_place_are_in_memory_at_once(slow: Slow, chosen: bool) -> None:
    keeper, are_asked = Keeper(slow.run), threading.Event()
    keeper.save_chosen("best", weight(1))
    keeper.save(weight(1))

    def ask() -> None:
        keeper.save_chosen("best", weight(2)) if chosen else keeper.save(weight(2))
        are_asked.set()

    asking = threading.Thread(target=ask)
    asking.start()
    assert not are_asked.wait(0.2)
    slow.may_write.set()
    assert are_asked.wait(LONG)
    asking.join()
    keeper.close()
    assert slow.written == ["save_chosen", "save", "save_chosen" if chosen else "save"]


def test_the_last_good_checkpoint_is_waited_for(slow: Slow) -> None:
    keeper = Keeper(slow.run)
    keeper.save(weight(3))
    threading.Timer(0.1, slow.may_write.set).start()
    assert keeper.good == f"the checkpoint of step 3 is in {slow.run.path}/checkpoints/last."
    keeper.close()


def test_nothing_is_written_after_what_could_not_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keeper, has_tried = Keeper(made(tmp_path / "run")), threading.Event()

    def full(*_: Any) -> None:
        assert has_tried.wait(LONG)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("rankspace.training.checkpoints.save_file", full)
    keeper.save_chosen("best", weight(2))
    keeper.result(best={"step": 2})
    keeper.record({"step": 2, "split": "valid"})
    has_tried.set()
    keeper._beside.wait()
    message = f"{tmp_path}/run/checkpoints/best: cannot be written (No space left on device)."
    with pytest.raises(WritingError) as raised:
        keeper.record({"step": 3, "split": "train"})
    assert str(raised.value) == message
    keeper.settle()  # it was told
    keeper.close()
    run = RunDirectory.open(tmp_path / "run")
    assert (run.metrics(), run.card.get("results")) == ([], None)


def test_what_fails_last_is_told_in_the_end() -> None:
    done: list[int] = []
    beside = Background("test")
    beside(done.append, 1)
    beside([].pop)
    beside(done.append, 2)
    with pytest.raises(IndexError):
        beside.settle()
    beside.close()
    assert done == [1]


def test_permissions_are_those_of_any_new_file(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, weight(1))
    (tmp_path / "any").touch()
    modes = {file.stat().st_mode for file in tmp_path.iterdir()}
    assert len(modes) == 1


def test_a_limit_of_the_system_is_told_in_its_words(tmp_path: Path) -> None:
    """The library that writes weights has errors of its own."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
    try:
        with pytest.raises(OSError, match=r"^\[Errno 27\] File too large$"):
            write_checkpoint(tmp_path, Checkpoint({"w": torch.zeros(10_000)}))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    write_checkpoint(tmp_path, Checkpoint({"w": torch.zeros(10_000)}))
    assert read_checkpoint(tmp_path).weights["w"].tolist() == [0.0] * 10_000
