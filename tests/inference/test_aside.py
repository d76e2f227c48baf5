"""Work beside other work: what was started is waited for."""

from types import SimpleNamespace

import pytest
import torch

from rankspace.inference.aside import Aside


@pytest.mark.parametrize("fails", [False, True])
def test_an_error_waits_for_what_was_started(monkeypatch: pytest.MonkeyPatch, fails: bool) -> None:
    """Else a graph that is recorded could not be ended. Without an error the block has joined what it needs."""
    waited: list[str] = []
    current = SimpleNamespace(wait_stream=waited.append)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda _: current)
    aside = Aside(torch.device("cpu"))
    monkeypatch.setattr(aside, "stream", SimpleNamespace(device="gpu"))
    try:
        with aside:
            if fails:
                raise MemoryError
    except MemoryError:
        pass
    assert len(waited) == fails
