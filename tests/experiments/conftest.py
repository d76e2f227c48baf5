"""Runs of tests draw no curves, which takes longer than the runs."""

import pytest


@pytest.fixture(autouse=True)
def no_curves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rankspace.training.keeping.draw_curves", lambda run: None)
