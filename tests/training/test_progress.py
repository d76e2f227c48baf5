"""What people see: lines, a display, nothing; and trackers with the packages they need stood in for."""

import io
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from rich.console import Console

from rankspace.errors import MissingExtraError
from rankspace.training.progress import Lines, Live, Quiet, line, make_display
from rankspace.training.trackers import check_tracker, make_tracker, named_values

TRAIN = {
    "step": 50,
    "epoch": 2,
    "split": "train",
    "loss": 41.23456,
    "perplexity": 123.456,
    "num_impossible": 0,
    "learning_rate": 0.002,
    "words_per_second": 12345,
    "memory_mb": 1234,
}
VALID = {
    "step": 60,
    "epoch": 2,
    "split": "valid",
    "perplexity": "inf",
    "f1": 45.678,
    "num_impossible": 2,
    "num_skipped": 3,
    "num_left_out": 1,
}


def test_records_as_lines() -> None:
    assert line(TRAIN) == (
        "step 50  epoch 2  train  loss 41.235  perplexity 123.46  rate 0.002  words/s 12,345  MB 1,234"
    )
    assert line({**TRAIN, "num_again": 3}).endswith("MB 1,234  (3 done again)")
    assert line(VALID) == "step 60  epoch 2  valid  perplexity inf  S-F1 45.68  (2 impossible, 4 left out)"


def shown(display: Any) -> None:
    display.begin("a model", 10, 1.5)
    display.advance(1.6, TRAIN)
    display.advance(1.7, TRAIN)
    display.evaluated(VALID)
    display.say("a line [not markup]")
    display.end()


def test_lines() -> None:
    stream = io.StringIO()
    shown(Lines(stream))
    first, trained, *others = stream.getvalue().splitlines()
    assert (first, others) == ("a model", [line(VALID), "a line [not markup]"])
    assert trained.startswith(f"{line(TRAIN)}  left 0:00:0")


def test_a_display() -> None:
    stream = io.StringIO()
    shown(Live(Console(file=stream, force_terminal=True, width=160, color_system=None)))
    text = stream.getvalue()
    assert all(part in text for part in ("a model", line(VALID), "a line [not markup]", "1.70/10", "perplexity 123.46"))


def test_which_display(monkeypatch: pytest.MonkeyPatch) -> None:
    assert type(make_display(quiet=True)) is Quiet
    assert type(make_display(quiet=False)) is Lines
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    assert type(make_display(quiet=False)) is Live


def test_values_by_name() -> None:
    assert named_values(VALID) == {
        "valid/epoch": 2,
        "valid/f1": 45.678,
        "valid/num_impossible": 2,
        "valid/num_skipped": 3,
        "valid/num_left_out": 1,
    }


class Recorder:
    """Takes the place of a writer or a run of either package."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self.made_with, self.calls = (arguments, options), list[Any]()

    def add_scalar(self, *arguments: Any) -> None:
        self.calls.append(arguments)

    def log(self, values: dict[str, Any], step: int) -> None:
        self.calls.append((values, step))

    def close(self) -> None:
        self.calls.append("closed")

    finish = close


def test_tensorboard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module: Any = ModuleType("torch.utils.tensorboard")
    module.SummaryWriter = Recorder
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", module)
    tracker: Any = make_tracker("tensorboard", tmp_path, {})
    tracker.add({"step": 3, "split": "valid", "perplexity": 2.5})
    tracker.close()
    assert tracker._writer.made_with == ((str(tmp_path / "tensorboard"),), {})
    assert tracker._writer.calls == [("valid/perplexity", 2.5, 3), "closed"]


def test_weights_and_biases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module: Any = ModuleType("wandb")
    module.init = Recorder
    monkeypatch.setitem(sys.modules, "wandb", module)
    tracker: Any = make_tracker("wandb", tmp_path, {"run.seed": 1})
    tracker.add({"step": 3, "split": "valid", "perplexity": 2.5})
    tracker.close()
    assert tracker._run.made_with[1] == {
        "mode": "offline",
        "dir": str(tmp_path),
        "name": tmp_path.name,
        "config": {"run.seed": 1},
    }
    assert tracker._run.calls == [({"valid/perplexity": 2.5}, 3), "closed"]


@pytest.mark.parametrize(("name", "module"), [("tensorboard", "torch.utils.tensorboard"), ("wandb", "wandb")])
def test_a_tracker_that_is_not_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, module: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtraError):
        make_tracker(name, tmp_path, {})
    with pytest.raises(MissingExtraError) as raised:
        check_tracker(name)
    assert str(raised.value) == (
        f"train: run.track is {name!r}, but {name} is not installed; install it with pip install 'rankspace[tracking]'."
    )


def test_no_tracker(tmp_path: Path) -> None:
    assert make_tracker("none", tmp_path, {}) is None
