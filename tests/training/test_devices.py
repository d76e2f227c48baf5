"""Which device a process trains on, and what is said of one that is not there."""

from pathlib import Path
from typing import Any

import pytest
import torch

from rankspace.errors import RankspaceError
from rankspace.training import train
from rankspace.training.graphs import Flag
from rankspace.training.processes import chosen_device
from training.tiny import config, data


@pytest.fixture
def two_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.delenv("LOCAL_RANK", raising=False)


@pytest.mark.usefixtures("two_gpus")
@pytest.mark.parametrize(
    ("name", "local", "expected"),
    [
        ("cpu", None, "cpu"),
        ("auto", None, "cuda:0"),
        ("cuda", None, "cuda:0"),
        ("cuda", "1", "cuda:1"),
        ("cuda:1", None, "cuda:1"),
        ("cuda:0", "1", "cuda:0"),
    ],
)
def test_devices(monkeypatch: pytest.MonkeyPatch, name: str, local: str | None, expected: str) -> None:
    if local is not None:
        monkeypatch.setenv("LOCAL_RANK", local)
    assert chosen_device(name) == torch.device(expected)


@pytest.mark.usefixtures("two_gpus")
def test_devices_that_are_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RankspaceError) as raised:
        train(config(), tmp_path / "run", device="cuda:7", data=data())
    assert str(raised.value) == "train: --device is cuda:7, but the last that torch sees is cuda:1; give that."
    monkeypatch.setenv("LOCAL_RANK", "2")
    for name in ("auto", "cuda"):
        with pytest.raises(RankspaceError) as raised:
            chosen_device(name)
        assert str(raised.value) == (
            "train: --device is cuda, but that of this process is cuda:2 and the last that torch sees is cuda:1; start "
            "fewer processes, or use --device cpu."
        )
    with pytest.raises(RankspaceError) as raised:
        chosen_device("gpu")
    assert str(raised.value) == "train: there is no device 'gpu'; give auto, cpu or cuda."


@pytest.mark.parametrize("name", ["cuda", "cuda:1"])
def test_no_gpu(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(RankspaceError) as raised:
        chosen_device(name)
    assert str(raised.value) == f"train: --device is {name}, but torch sees no CUDA device; use --device cpu."


def test_a_flag_is_taken_among_the_launches_of_its_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which need not be the device that is the current one."""
    recorded = list[Any]()
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device=None: f"the stream of {device}")
    flag = Flag(torch.device("cpu"))
    flag._device, flag._captures = torch.device("cuda", 1), True
    flag._event = type("Event", (), {"record": lambda _, stream=None: recorded.append(stream)})()
    flag.take(torch.ones(()))
    assert recorded == ["the stream of cuda:1"]
