"""What is written beside training: in order, of the moment it was asked for, and told where it cannot be."""

import errno
import os
import random
import resource
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from rankspace.errors import WritingError
from rankspace.files import held
from rankspace.training import RunDirectory, train
from rankspace.training.checkpoints import Checkpoint, read_checkpoint, write_checkpoint
from rankspace.training.config import config_text
from rankspace.training.keeping import Keeper
from rankspace.training.loop import Trainer
from rankspace.training.progress import Quiet
from rankspace.training.step import nothing
from rankspace.training.watch import NumbersError, Watch
from training.test_resuming import ENVIRONMENT, assert_same, command, stamp
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


@pytest.mark.parametrize("name", ["last", "best"])
def test_training_goes_on_while_a_checkpoint_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Its weights are those of the step that it is of, not of the steps that were made meanwhile."""
    chosen = config(CHAIN, run__epochs=3, evaluation__every_steps=2)
    train(chosen.changed({"run.max_steps": 2}), tmp_path / "short", device="cpu", data=data())
    train(chosen, tmp_path / "whole", device="cpu", data=data())
    steps, found = Steps(3), list[Checkpoint]()
    write, is_last = write_checkpoint, name == "last"

    def late(folder: Path, checkpoint: Checkpoint) -> None:
        is_delayed = checkpoint.step == 2 and bool(checkpoint.resuming) == is_last
        assert not is_delayed or steps.are_done.wait(LONG)
        write(folder, checkpoint)
        if is_delayed:
            found.append(read_checkpoint(folder, resuming=is_last))

    monkeypatch.setattr("rankspace.training.checkpoints.write_checkpoint", late)
    train(chosen, tmp_path / "late", device="cpu", data=data(), display=steps)
    (delayed,) = found
    expected = RunDirectory.open(tmp_path / "short").read(name, resuming=is_last)
    for one, other in ((delayed.weights, expected.weights), (delayed.resuming, expected.resuming)):
        assert one.keys() == other.keys()
        assert all(torch.equal(one[key], other[key]) for key in one)
    assert_same(tmp_path / "whole", tmp_path / "late")


class Slow:
    """A run whose checkpoints are written when they are let, and that notes what was written."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.run, self.may_write, self.written = made(path), threading.Event(), list[str]()
        self.is_writing = threading.Event()
        for name in ("save", "save_chosen", "add_metrics", "add_results"):
            monkeypatch.setattr(RunDirectory, name, self._noting(name, getattr(RunDirectory, name)))

    def _noting(self, name: str, whole: Any) -> Any:
        def noting(run: RunDirectory, *given: Any) -> None:
            self.is_writing.set()
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
    keeper.save_chosen("best", lambda: weight(2))
    keeper.record({"step": 2, "split": "valid"})
    keeper.result(best={"step": 2})
    keeper.save(lambda: weight(2))
    assert slow.written == []
    slow.may_write.set()
    keeper.settle()
    assert slow.written == ["save_chosen", "add_metrics", "add_results", "save"]
    assert RunDirectory.open(slow.run.path).card["results"] == {"best": {"step": 2}}
    assert keeper.good() == f"the checkpoint of step 2 is in {slow.run.path}/checkpoints/last."
    keeper.close(nothing)


@pytest.mark.parametrize("name", ["last", "best"])
def test_checkpoints_of_one_place_are_in_memory_at_once(slow: Slow, name: str) -> None:
    """The next is not made before the last one that was saved is written."""
    first, is_left = weight(1), list[bool]()
    of_first = weakref.ref(first)
    keeper, is_made = Keeper(slow.run), threading.Event()
    keeper.save_chosen("best", lambda: weight(1))
    keeper.save(lambda: first)
    del first

    def made() -> Checkpoint:
        is_left.append(of_first() is not None)
        is_made.set()
        return weight(2)

    ask = partial(keeper.save, made) if name == "last" else partial(keeper.save_chosen, name, made)
    asking = threading.Thread(target=ask)
    asking.start()
    assert not is_made.wait(0.2)
    slow.may_write.set()
    assert is_made.wait(LONG)
    asking.join()
    assert is_left == [False]
    keeper.close(nothing)
    assert slow.written == ["save_chosen", "save", "save" if name == "last" else "save_chosen"]


def test_the_last_good_checkpoint_is_waited_for(slow: Slow) -> None:
    keeper = Keeper(slow.run)
    keeper.save(lambda: weight(3))
    threading.Timer(0.1, slow.may_write.set).start()
    assert keeper.good() == f"the checkpoint of step 3 is in {slow.run.path}/checkpoints/last."
    keeper.close(nothing)


def test_nothing_is_written_after_what_could_not_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All later calls tell of it."""
    keeper, all_asked = Keeper(made(tmp_path / "run")), threading.Event()

    def full(*_: Any) -> None:
        assert all_asked.wait(LONG)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("rankspace.training.checkpoints.save_file", full)
    keeper.check()
    keeper.save_chosen("best", lambda: weight(2))
    keeper.result(best={"step": 2})
    keeper.record({"step": 2, "split": "valid"})
    keeper.save(lambda: weight(2))
    all_asked.set()
    for call in (
        keeper.settle,
        keeper.check,
        partial(keeper.record, {"step": 3, "split": "train"}),
        partial(keeper.save, lambda: weight(3)),
        partial(keeper.result, finished=True),
    ):
        with pytest.raises(WritingError) as raised:
            call()
        assert str(raised.value) == f"{tmp_path}/run/checkpoints/best: cannot be written (No space left on device)."
    assert keeper.good() == f"the checkpoint of step 0 is in {tmp_path}/run/checkpoints/last."
    keeper.close(nothing)
    run = RunDirectory.open(tmp_path / "run")
    assert (run.metrics(), run.card.get("results"), run.read("last").step) == ([], None, 0)


def test_what_is_given_up_is_not_begun(slow: Slow) -> None:
    """What is being written is written to its end."""
    keeper, told = Keeper(slow.run), list[str]()
    keeper.save(lambda: weight(1))
    keeper.record({"step": 1, "split": "train"})
    assert slow.is_writing.wait(LONG)
    keeper.give_up()
    threading.Timer(0.1, slow.may_write.set).start()
    keeper.close(lambda: told.append(" ".join(slow.written)))
    assert told == ["save"]


@pytest.mark.parametrize("begun", [False, True])
def test_the_folder_is_let_go_of_when_nothing_is_written_any_more(
    slow: Slow, monkeypatch: pytest.MonkeyPatch, begun: bool
) -> None:
    """Also where a tracker cannot be closed, and where the waiting is interrupted."""

    class Broken:
        def add(self, record: Mapping[str, Any]) -> None: ...

        def close(self) -> None:
            raise OSError("no room")

    tracker: Any = Broken()
    keeper, told, is_told = Keeper(slow.run, tracker), list[str](), threading.Event()
    if begun:
        keeper.save(lambda: weight(1))

    def let_go() -> None:
        told.extend(slow.written)
        is_told.set()

    def interrupted(_: threading.Thread) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "join", interrupted)
        with pytest.raises(KeyboardInterrupt if begun else OSError):
            keeper.close(let_go)
    assert is_told.is_set() != begun
    slow.may_write.set()
    assert is_told.wait(LONG)
    assert told == ["save"] * begun


def no_room(*_: Any) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_signal_when_the_disk_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run does not say that it has saved."""

    class Signalling(Quiet):
        def advance(self, epochs: float, record: Mapping[str, Any]) -> None:
            monkeypatch.setattr("rankspace.training.checkpoints.save_file", no_room)
            os.kill(os.getpid(), signal.SIGTERM)

    message = r"last: cannot be written \(No space left on device\); the checkpoint of step 0 is in"
    with pytest.raises(WritingError, match=message):
        train(config(CHAIN), tmp_path / "run", device="cpu", data=data(), display=Signalling())
    assert RunDirectory.open(tmp_path / "run").read("last").step == 0


def test_a_full_disk_is_told_after_the_next_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A step here takes as long as what is written beside it: how far the thread is would else be chance."""
    write = write_checkpoint

    class Waiting(Steps):
        def advance(self, epochs: float, record: Mapping[str, Any]) -> None:
            super().advance(epochs, record)
            assert trainers[0].keeper._beside.wait() is None

    def full(folder: Path, checkpoint: Checkpoint) -> None:
        no_room() if checkpoint.step else write(folder, checkpoint)

    trainers, begin = list[Trainer](), Trainer.train

    def noted(trainer: Trainer, *given: Any) -> None:
        trainers.append(trainer)
        begin(trainer, *given)

    steps, chosen = Waiting(0), config(CHAIN, run__checkpoint_steps=2, run__log_every=50)
    monkeypatch.setattr(Trainer, "train", noted)
    monkeypatch.setattr("rankspace.training.checkpoints.write_checkpoint", full)
    with pytest.raises(WritingError):
        train(chosen, tmp_path / "run", device="cpu", data=data(), display=steps)
    assert steps.left == -3


def test_what_is_pending_is_written_when_numbers_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def bad(watch: Watch) -> None:
        if watch.place.step == 4:
            raise NumbersError("train: step 4: what must not be")

    monkeypatch.setattr(Watch, "check", bad)
    path = tmp_path / "run"
    with pytest.raises(NumbersError) as raised:
        train(config(CHAIN, run__checkpoint_steps=3), path, device="cpu", data=data())
    good = f"the checkpoint of step 3 is in {path}/checkpoints/last."
    remedy = "Try a lower optimiser.learning_rate, or run.precision highest."
    assert str(raised.value) == f"train: step 4: what must not be; {good} {remedy}"
    run = RunDirectory.open(path)
    assert (run.read("last").step, [record["step"] for record in run.metrics()]) == (3, [3])


# Real processes.

COMMAND = """
import os, sys, time
from rankspace.cli import main
from rankspace.training import checkpoints
write, hold = checkpoints.write_checkpoint, os.environ["HOLD"]
def slow(folder, checkpoint):
    with open(os.environ["BEGUN"], "a") as file:
        print(checkpoint.step, file=file)
    time.sleep(float(os.environ["SECONDS_OF_WRITING"]))
    while os.path.exists(hold):
        open(hold + "-back", "w").close()
        time.sleep(0.005)
    write(folder, checkpoint)
checkpoints.write_checkpoint = slow
sys.argv[0] = "rankspace"
sys.exit(main())
"""


def slowly(output: Path, *more: str, seconds: float = 0.0) -> subprocess.Popen[str]:
    """The command of test_resuming, with a slow disk, or one that waits as long as there is a file `hold` beside the
    run (`hold-back` tells that it does); `begun` has a line for each checkpoint."""
    slow = {name.upper(): str(output.with_name(name)) for name in ("hold", "begun")}
    environment = {**ENVIRONMENT, **slow, "SECONDS_OF_WRITING": str(seconds)}
    arguments = [sys.executable, "-c", COMMAND, *command(output, *more)[3:]]
    return subprocess.Popen(arguments, env=environment, stderr=subprocess.PIPE, text=True)


def test_kills_while_checkpoints_are_pending(tmp_path: Path) -> None:
    """Steps, records and evaluations go on while one is written; all that was not yet is made again."""
    whole = subprocess.run(command(tmp_path / "whole", "--quiet"), env=ENVIRONMENT, capture_output=True, text=True)
    assert whole.returncode == 0, whole.stderr
    chance, kills, path = random.Random(2), 0, tmp_path / "killed"
    for _ in range(3):
        with slowly(path, "--quiet", "--resume", seconds=0.15) as process:
            mark = stamp(path)
            while process.poll() is None and stamp(path) == mark:
                time.sleep(0.002)
            time.sleep(chance.random() / 2)
            process.kill()
        kills += process.returncode == -signal.SIGKILL
    last = subprocess.run(command(path, "--quiet", "--resume"), env=ENVIRONMENT, capture_output=True, text=True)
    assert last.returncode == 0, last.stderr
    assert kills
    assert_same(tmp_path / "whole", path)


def test_a_second_signal_leaves_the_rest_unwritten(tmp_path: Path) -> None:
    """The checkpoint that is being written is finished, and nothing more begun."""
    path, hold, begun = tmp_path / "run", tmp_path / "hold", tmp_path / "begun"
    with slowly(path, "--set", "run.epochs=1000") as process:
        while not stamp(path):
            assert process.poll() is None
        hold.touch()
        while not hold.with_name("hold-back").exists():
            assert process.poll() is None
            time.sleep(0.005)
        assert process.stderr is not None
        process.send_signal(signal.SIGINT)
        while "a second signal" not in process.stderr.readline():
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        time.sleep(2)  # it is in the middle of nothing but this checkpoint
        lines = begun.read_text().splitlines()
        assert process.poll() is None
        hold.unlink()
        process.stderr.read()
    assert process.returncode == 130
    assert begun.read_text().splitlines() == lines
    assert int(lines[-1]) in {RunDirectory.open(path).read(name).step for name in ("best", "last")}
    with held(path):
        pass


def test_a_thread_trains_on_when_the_main_one_has_ended(tmp_path: Path) -> None:
    file, path = tmp_path / "config.toml", tmp_path / "run"
    file.write_text(config_text(config(CHAIN)))
    lines = [
        "import sys, threading, time",
        "from pathlib import Path",
        "from rankspace.training import load_config, train",
        "def work():",
        "    while threading.main_thread().is_alive():",
        "        time.sleep(0.01)",
        "    train(load_config(Path(sys.argv[1])), sys.argv[2], device='cpu')",
        "threading.Thread(target=work).start()",
    ]
    arguments = [sys.executable, "-c", "\n".join(lines), str(file), str(path)]
    ran = subprocess.run(arguments, env=ENVIRONMENT, capture_output=True, text=True)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert RunDirectory.open(path).card["results"]["finished"] is True


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
