"""Whether Triton runs on a device is asked once; a lack of memory is no answer."""

import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from rankspace.distributions import RankSpacePCFG
from rankspace.distributions.memory import if_known
from rankspace.errors import NotEnoughMemoryError
from rankspace.inference import backends
from rankspace.inference.backends import missing, runs_triton
from short_memory import lacking

GPU = torch.device("cuda", 0)


class Probe:
    """A device whose probe ends as one wants, call by call."""

    def __init__(self, *ends: Any) -> None:
        self.ends = list(ends)

    def __call__(self, device: torch.device) -> bool:
        end = self.ends.pop(0)
        if isinstance(end, Exception):
            raise end
        return bool(end)


@pytest.fixture(autouse=True)
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A GPU with Triton as far as is asked here, of which nothing is known yet."""
    backends._unusable.cache_clear()
    monkeypatch.setattr(backends, "find_spec", lambda _: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (9, 0))
    monkeypatch.setattr(backends, "launching_on", lambda _: torch.no_grad())
    yield
    backends._unusable.cache_clear()


def probed(monkeypatch: pytest.MonkeyPatch, *ends: Any) -> Probe:
    probe = Probe(*ends)
    monkeypatch.setitem(sys.modules, "rankspace.kernels.probe", SimpleNamespace(probe=probe))
    return probe


@pytest.mark.parametrize("lack", [RuntimeError("Triton Error [CUDA]: out of memory"), MemoryError()])
def test_a_lack_of_memory_is_raised_and_asked_again(monkeypatch: pytest.MonkeyPatch, lack: Exception) -> None:
    probe = probed(monkeypatch, lack, True)
    with pytest.raises(type(lack)) as raised:
        runs_triton("tree", "auto", torch.float32, GPU)
    assert raised.value is lack
    assert runs_triton("tree", "auto", torch.float32, GPU)
    assert runs_triton("tree", "auto", torch.float32, GPU)
    assert not probe.ends


@pytest.mark.parametrize(
    ("end", "reason"),
    [
        (RuntimeError("no compiler"), "triton cannot compile a kernel here (RuntimeError)"),
        (False, "a kernel that triton compiled did not run"),
        (True, ""),
    ],
)
def test_all_else_is_asked_once(monkeypatch: pytest.MonkeyPatch, end: Any, reason: str) -> None:
    probed(monkeypatch, end)
    assert [missing(GPU), missing(GPU)] == [reason, reason]


def test_a_lack_is_told_though_nobody_knows_whether_kernels_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its size is that of torch then."""
    tables = [torch.zeros(shape).log_softmax(-1) for shape in [(2,), (2, 3), (3, 5), (3, 5), (3, 7)]]
    monkeypatch.setattr(RankSpacePCFG, "_runs_kernels", lacking)
    with pytest.raises(NotEnoughMemoryError) as caught:
        RankSpacePCFG(*tables).log_prob(torch.zeros(2, 4, dtype=torch.int64))
    assert str(caught.value) == (
        "RankSpacePCFG.log_prob: not enough memory for 2 sentences of up to 4 words (rank 3, float32): it takes about "
        "1.0 kB, and 3.8 GB more could not be had; give fewer or shorter sentences at a time, or a lower rank."
    )


def test_other_errors_of_the_question_pass() -> None:
    def fail() -> bool:
        raise RuntimeError("size mismatch")

    with pytest.raises(RuntimeError, match="size mismatch"):
        if_known(fail)
