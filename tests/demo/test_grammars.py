"""Rank space at a size that brute force can check."""

from pathlib import Path

import pytest
import torch

from rankspace.demo import check_grammars, grammars
from rankspace.errors import RankspaceError

pytest.importorskip("matplotlib")


def test_tables_and_pictures(tmp_path: Path) -> None:
    told: list[str] = []
    hmm, pcfg = check_grammars(tmp_path / "out", told.append)
    assert set(hmm.rank_space.tables) == {"start", "link", "emission", "end"}
    assert set(pcfg.rank_space.tables) == {"H", "I", "J", "K", "L"}
    assert "pi_1: X(r1) -> H(r1, r2) X(r2) I(r1, r3) X(r3)" in pcfg.rank_space.explain()
    assert told[0] == "HMM: compiling to rank space"
    for model in (hmm, pcfg):
        assert len(model.rows) == len(grammars.SENTENCES)
        for row in model.rows:
            # float64; the four ways differ in the order of a few hundred sums
            assert row[2:] == pytest.approx((row.brute_force,) * 3, rel=1e-12)
        assert all(path.read_text().startswith("<?xml") for path in model.pictures)
        assert all(plan.state.flops > 0 and plan.rank.flops > 0 for plan in model.plans)


def test_disagreement_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    grammar, cpds = grammars._pcfg(torch.Generator().manual_seed(0))
    monkeypatch.setattr(grammars, "_brute_force", lambda fgg: 0.5)
    with pytest.raises(RankspaceError, match=r"has probability 0\.5 by brute force but"):
        grammars._row("the dog sleeps", grammar, grammars.to_rank_space(grammar, cpds))
