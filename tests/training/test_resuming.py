"""A run that was stopped, however, ends with the same bits as one that was not."""

import errno
import fcntl
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from rankspace.errors import FormatError, RankspaceError
from rankspace.files import held
from rankspace.training import Config, InterruptionError, RunDirectory, train
from rankspace.training.config import config_text
from rankspace.training.em import EMStep
from rankspace.training.epochs import Share
from rankspace.training.evaluator import Evaluated
from rankspace.training.interruption import Interruption
from rankspace.training.loop import Trainer
from rankspace.training.step import GradientStep, Task
from training.tiny import CHAIN, DIRECT, TREE, config, data

SOURCE = Path(__file__).parents[2] / "src"
COMPOUND = {
    "model.name": "c-pcfg",
    "model.nonterminals": 2,
    "model.preterminals": 3,
    "model.size": 4,
    "model.latent": 2,
}


class KilledError(KeyboardInterrupt):
    """What stands for a kill within a process: what was to be written and is not begun is lost."""


def kill_at(monkeypatch: pytest.MonkeyPatch, steps: list[int]) -> None:
    """Has the given steps of all training die, each once."""
    for kind in (GradientStep, EMStep):
        whole: Any = kind.__call__

        def dying(
            step: Any, shares: Sequence[Share], learning_rate: float, meanwhile: Task, whole: Any = whole
        ) -> None:
            whole(step, shares, learning_rate, meanwhile)
            if step.watch._recent[-1].step in steps:
                steps.remove(step.watch._recent[-1].step)
                raise KilledError

        monkeypatch.setattr(kind, "__call__", dying)


def run(path: Path, chosen: Config) -> int:
    """Trains to the end, going on after each kill; the number of kills."""
    for kills in range(10):
        try:
            train(chosen, path, resume=True, device="cpu", data=data())
        except KilledError:
            continue
        return kills
    raise AssertionError("killed too often")


def assert_same(one: Path, other: Path) -> None:
    """All checkpoints and metrics, but for times."""
    for name in ("last", "best"):
        first, second = (RunDirectory.open(path).read(name, resuming=name == "last") for path in (one, other))
        assert first.step == second.step
        assert first.weights.keys() == second.weights.keys()
        assert all(torch.equal(first.weights[key], second.weights[key]) for key in first.weights)
        assert all(torch.equal(first.resuming[key], second.resuming[key]) for key in first.resuming)
    found, losses = zip(*(records_and_losses(path) for path in (one, other)), strict=True)
    assert found[0] == found[1]
    assert losses[0] == pytest.approx(losses[1], rel=1e-9)  # sums are read at other times, so added in another order


def records_and_losses(path: Path) -> tuple[list[dict[str, Any]], list[float]]:
    """Metrics without times and what is rounded otherwise, and the losses."""
    left_out = ("words_per_second", "memory_mb", "seconds", "elapsed", "loss", "perplexity", "gradient_norm")
    records = RunDirectory.open(path).metrics()
    plain = [{key: value for key, value in record.items() if key not in left_out} for record in records]
    return plain, [record["loss"] for record in records if "loss" in record]


@pytest.mark.parametrize(
    ("model", "changes"),
    [
        (CHAIN, {"optimiser__average": 0.9, "schedule__name": "cosine", "schedule__warm_up": 3}),
        (
            TREE,
            {"optimiser__name": "adamw", "optimiser__clip": 1.0, "schedule__name": "plateau", "curriculum__start": 4},
        ),
        (DIRECT, {}),
        (DIRECT, {"em__batch": "mini"}),
        (COMPOUND, {"objective__kl_warm_up": 5}),
    ],
)
def test_kills_leave_no_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: dict[str, Any], changes: dict[str, Any]
) -> None:
    length = {"run__epochs": 2} if model is DIRECT and not changes else {"run__max_steps": 8, "run__epochs": 9}
    chosen = config(model, **changes, **length, run__checkpoint_steps=2)
    assert run(tmp_path / "whole", chosen) == 0
    kill_at(monkeypatch, [1, 4, 5, 7])
    assert run(tmp_path / "killed", chosen) == 4
    assert_same(tmp_path / "whole", tmp_path / "killed")


def command(output: Path, *more: str) -> list[str]:
    chosen = config(
        CHAIN,
        data__source="synthetic:150",
        batches__max_sentences=10,
        optimiser__average=0.9,
        run__checkpoint_steps=2,
        run__epochs=3,
        run__log_every=5,
        evaluation__parse=False,
    )
    file = output.with_suffix(".toml")
    file.write_text(config_text(chosen))
    arguments = ["train", "--config", str(file), "--device", "cpu", "-o", str(output), *more]
    return [sys.executable, "-m", "rankspace", *arguments]


ENVIRONMENT = {**os.environ, "PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1"}


def test_sigkill_at_random_points(tmp_path: Path) -> None:
    """Real processes: the moments differ from run to run, the result must not."""
    whole = subprocess.run(command(tmp_path / "whole", "--quiet"), env=ENVIRONMENT, capture_output=True, text=True)
    assert whole.returncode == 0, whole.stderr
    chance, kills = random.Random(1), 0
    path = tmp_path / "killed"
    for _ in range(3):
        process = subprocess.Popen(command(path, "--quiet", "--resume"), env=ENVIRONMENT, stderr=subprocess.PIPE)
        mark = stamp(path)
        while process.poll() is None and stamp(path) == mark:  # until it has written anything
            time.sleep(0.002)
        time.sleep(chance.random() / 4)
        process.kill()
        kills += process.wait() == -signal.SIGKILL
        assert process.stderr is not None
        process.stderr.close()
    last = subprocess.run(command(path, "--quiet", "--resume"), env=ENVIRONMENT, capture_output=True, text=True)
    assert last.returncode == 0, last.stderr
    assert kills
    assert_same(tmp_path / "whole", path)


def stamp(path: Path) -> float:
    """When the last checkpoint of a run was put in its place."""
    try:
        return (path / "checkpoints").stat().st_mtime
    except FileNotFoundError:
        return 0.0


def test_ctrl_c_saves_and_says_how_to_go_on(tmp_path: Path) -> None:
    path = tmp_path / "run"
    arguments = command(path, "--set", "run.epochs=1000", "--set", "run.checkpoint_steps=0")
    process = subprocess.Popen(arguments, env=ENVIRONMENT, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    while "step 10 " not in process.stderr.readline():
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    text = process.stderr.read()
    assert process.wait() == 130
    process.stderr.close()
    step = RunDirectory.open(path).read("last").step
    assert step >= 10
    assert "stopping after this step; a second signal ends the run at once, without saving" in text.splitlines()
    assert text.splitlines()[-1] == f"stopped at step {step}; go on with: rankspace train --resume --output {path}"


def test_two_processes_at_one_run(tmp_path: Path) -> None:
    """The second is refused and changes nothing; a kill of the first lets go of the folder."""
    path = tmp_path / "run"
    arguments = command(path, "--resume", "--set", "run.epochs=1000")
    first = subprocess.Popen(arguments, env=ENVIRONMENT, stderr=subprocess.PIPE, text=True)
    assert first.stderr is not None
    while "step 10 " not in first.stderr.readline():
        assert first.poll() is None
    second = subprocess.run(arguments, env=ENVIRONMENT, capture_output=True, text=True)
    message = f"error: {path}: another process is writing to it; wait for its end, or choose another name.\n"
    assert (second.returncode, second.stdout, second.stderr) == (2, "", message)
    assert first.poll() is None
    first.kill()
    assert first.wait() == -signal.SIGKILL
    first.stderr.close()
    steps = [record["step"] for record in RunDirectory.open(path).metrics() if "loss" in record]
    assert steps == list(range(5, 5 * len(steps) + 1, 5))
    with held(path), pytest.raises(FormatError, match="another process is writing to it"), held(path):
        pass


def test_a_file_system_without_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(handle: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", unknown)
    outcome = train(config(CHAIN, run__max_steps=2), tmp_path / "run", device="cpu", data=data())
    assert outcome.results["steps"] == 2


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_in_this_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals, code: int
) -> None:
    chosen = config(CHAIN, run__max_steps=6)
    run(tmp_path / "whole", chosen)
    whole = GradientStep.__call__
    asked = [3]

    def signalling(step: GradientStep, shares: Sequence[Share], learning_rate: float, meanwhile: Task) -> None:
        whole(step, shares, learning_rate, meanwhile)
        if step.watch._recent[-1].step in asked:
            asked.clear()
            os.kill(os.getpid(), number)

    monkeypatch.setattr(GradientStep, "__call__", signalling)
    with pytest.raises(InterruptionError) as raised:
        train(chosen, tmp_path / "run", device="cpu", data=data())
    assert str(raised.value) == f"stopped at step 3; go on with: rankspace train --resume --output {tmp_path / 'run'}"
    assert raised.value.exit_code == code
    run(tmp_path / "run", chosen)
    assert_same(tmp_path / "whole", tmp_path / "run")


@pytest.fixture
def interrupts() -> Iterator[None]:
    """SIGINT raises KeyboardInterrupt, also where the tests were started with it ignored, as in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interrupts")
@pytest.mark.parametrize(
    ("world", "rank", "line"),
    [
        ("1", "0", "stopping after this step; a second signal ends the run at once, without saving\n"),
        (
            "2",
            "0",
            "stopping after the next step that is logged; a second signal ends the run at once, without saving\n",
        ),
        ("2", "1", ""),
    ],
)
def test_the_first_signal_is_answered_at_once_and_the_second_acts(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], world: str, rank: str, line: str
) -> None:
    monkeypatch.setenv("WORLD_SIZE", world)
    monkeypatch.setenv("RANK", rank)
    with Interruption() as interruption:
        signal.raise_signal(signal.SIGINT)
        assert (interruption.number, capsys.readouterr().err) == (signal.SIGINT, line)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert capsys.readouterr().err == ""


def test_a_damaged_checkpoint_gives_way_to_the_previous_one(tmp_path: Path) -> None:
    short, long = config(CHAIN, run__max_steps=5, run__checkpoint_steps=2), config(CHAIN, run__max_steps=9)
    for name in ("whole", "damaged"):
        run(tmp_path / name, short)
    file = tmp_path / "damaged" / "checkpoints" / "last" / "optimiser.safetensors"
    file.write_bytes(file.read_bytes()[:-3])
    for name in ("whole", "damaged"):
        run(tmp_path / name, long)
    assert_same(tmp_path / "whole", tmp_path / "damaged")


@pytest.mark.parametrize("model", [CHAIN, {**DIRECT, "em.batch": "mini"}])
def test_a_checkpoint_of_weights_alone_gives_way_too(tmp_path: Path, model: dict[str, Any]) -> None:
    path, short = tmp_path / "run", config(model, run__max_steps=4, run__checkpoint_steps=2)
    run(path, short)
    places = [path / "checkpoints" / name for name in ("last", "previous")]
    for place in places:
        card = json.loads((place / "state.json").read_text())
        (place / "optimiser.safetensors").unlink()
        del card["files"]["optimiser.safetensors"]
        (place / "state.json").write_text(json.dumps(card))
    with pytest.raises(FormatError) as raised:
        run(path, short)
    assert str(raised.value) == (
        f"{places[0]}/state.json: names no optimiser.safetensors, so training cannot go on from it; choose another "
        f"with --checkpoint, or allow to take one with --fallback."
    )


def test_a_kill_between_an_evaluation_and_its_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = config(CHAIN, run__checkpoint_steps=1, run__log_every=1)
    run(tmp_path / "whole", chosen)
    whole, kills = Trainer._evaluation, [1]

    def dying(trainer: Trainer, is_planned: bool = True) -> None:
        whole(trainer, is_planned)
        if kills:
            kills.clear()
            raise KilledError

    monkeypatch.setattr(Trainer, "_evaluation", dying)
    assert run(tmp_path / "killed", chosen) == 1
    assert_same(tmp_path / "whole", tmp_path / "killed")


def test_an_end_by_steps_leaves_no_trace_in_what_is_learnt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The evaluation at the end is recorded, but neither the schedule nor patience looks at it."""
    monkeypatch.setattr(Evaluated, "measure", lambda found, name: [1.0])  # after the first none is better
    changes = {"schedule__name": "plateau", "schedule__patience": 2, "evaluation__patience": 4, "run__epochs": 9}
    run(tmp_path / "whole", config(CHAIN, **changes))
    for num_steps in (3, 7, 0):  # of five an epoch
        run(tmp_path / "ended", config(CHAIN, **changes, run__max_steps=num_steps))
    whole, ended = (RunDirectory.open(tmp_path / name).read("last", resuming=True) for name in ("whole", "ended"))
    assert all(torch.equal(ended.weights[name], weight) for name, weight in whole.weights.items())
    assert all(torch.equal(ended.resuming[name], tensor) for name, tensor in whole.resuming.items())
    names = ("step", "epoch", "best", "num_bad", "stopped", "schedule")
    assert {name: ended.state[name] for name in names} == {name: whole.state[name] for name in names}
    assert whole.state["schedule"]["scale"] < 1
    evaluated = [r["step"] for r in RunDirectory.open(tmp_path / "ended").metrics() if r["split"] == "valid"]
    assert evaluated == [3, 5, 7, 10, 15, 20, 25]


def test_more_epochs(tmp_path: Path) -> None:
    path = tmp_path / "run"
    assert train(config(CHAIN, run__epochs=1), path, device="cpu", data=data()).results["epochs"] == 1
    more = config(CHAIN, run__epochs=2)
    assert train(more, path, resume=True, device="cpu", data=data()).results["epochs"] == 2
    run(tmp_path / "whole", more)
    assert_same(tmp_path / "whole", path)


def test_auto_decides_anew_and_the_card_tells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where a run goes on, on another device; a run that has no more steps to make decides nothing."""
    path, told = tmp_path / "run", []
    for precision, steps in [("medium", 2), ("medium", 3), ("highest", 5), ("medium", 5), ("medium", 6)]:
        monkeypatch.setattr("rankspace.training.runs.decided_precision", lambda *_, found=precision: found)
        run(path, config(CHAIN, run__max_steps=steps))
        told.append([(each["step"], each["precision"]) for each in RunDirectory.open(path).card["precision"]])
    changed = [(0, "medium"), (3, "highest")]
    assert told == [changed[:1], changed[:1], changed, changed, [*changed, (5, "medium")]]
    assert 'precision = "auto"' in RunDirectory.open(path).config


def test_a_precision_whose_steps_are_lost_is_not_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, chosen = tmp_path / "run", config(CHAIN, run__max_steps=4)
    with monkeypatch.context() as patched:
        patched.setattr("rankspace.training.runs.decided_precision", lambda *_: "medium")
        kill_at(patched, [1])
        with pytest.raises(KilledError):
            train(chosen, path, device="cpu", data=data())
    run(path, chosen)
    assert RunDirectory.open(path).card["precision"] == [{"step": 0, "precision": "highest"}]


def test_what_may_not_change(tmp_path: Path) -> None:
    path = tmp_path / "run"
    train(config(CHAIN, run__max_steps=1), path, device="cpu", data=data())
    with pytest.raises(RankspaceError) as raised:
        train(config(CHAIN, optimiser__clip=1.0), path, resume=True, device="cpu", data=data())
    assert str(raised.value) == (
        f"train: optimiser.clip is 1.0 but 0.0 in {path}/config.toml; leave it as it is to resume, or choose another "
        f"folder."
    )


def test_other_data(tmp_path: Path) -> None:
    from rankspace.training import synthetic_data

    path = tmp_path / "run"
    train(config(CHAIN, run__max_steps=1), path, device="cpu", data=data())
    with pytest.raises(RankspaceError) as raised:
        train(config(CHAIN), path, resume=True, device="cpu", data=synthetic_data(20))
    assert str(raised.value) == (
        f"train: the vocabulary of the data is not that of {path}; give the data it began with."
    )


def test_resuming_what_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(FormatError) as raised:
        train(config(), tmp_path, resume=True, device="cpu", data=data())
    assert str(raised.value) == f"{tmp_path}: is no run: it has no card.json; make one with rankspace train."
