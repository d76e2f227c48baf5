"""Divergences are infinite where another distribution forbids what this one allows, however improbable it is there."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from rankspace.distributions import HMM, HSMM, LHMM, LPCFG, PCFG, BlockHMM, RankSpaceHMM, RankSpacePCFG, SimplePCFG

SIZES = {"nonterminal": 2, "preterminal": 3, "symbol": 5, "rank": 2, "vocab": 3, "vocabulary": 3}
SIZES |= {"state": 4, "duration": 2, "column": 2}
CLASSES: list[Any] = [HMM, HSMM, LHMM, BlockHMM, RankSpaceHMM, PCFG, SimplePCFG, RankSpacePCFG, LPCFG]
CASES = [(of, label) for of in CLASSES for label in of.AXES]
WORDS = torch.tensor([[0, 1, 2, 0, 1], [2, 0, 0, 0, 0], [1, 0, 2, 1, 0]])
LENGTHS = (5, 2, 4)


def made(of: Any, tables: dict[str, Tensor]) -> Any:
    others = {"block_of_word": torch.tensor([0, 1, 0])} if of is BlockHMM else {}
    return of(**tables, **others, validate=False)


def tables_of(of: Any) -> dict[str, Tensor]:
    torch.manual_seed(0)
    found = {}
    for label, axes in of.AXES.items():
        logits, joint = torch.randn([SIZES[axis] for axis in axes]), of.JOINT.get(label, 1)
        found[label] = logits.flatten(-joint).log_softmax(-1).view_as(logits)
    if of is BlockHMM:
        found["log_emission"][2:, 1] = -math.inf  # block 1 has one word
    return found


@pytest.mark.parametrize(("of", "label"), CASES)
def test_every_parameter(of: Any, label: str) -> None:
    """Each entry in turn is all but impossible under p and impossible under q. Whether a sentence can use it at all is
    told by how often it does where it is as probable as any other."""
    tables, both = tables_of(of), set()
    for place in range(tables[label].numel()):
        entry = torch.zeros(tables[label].numel(), dtype=torch.bool)
        entry[place] = True
        entry = entry.view_as(tables[label]) & (tables[label] > -math.inf)
        if not entry.any():
            continue
        p, q = (made(of, {**tables, label: tables[label].masked_fill(entry, low)}) for low in (-800.0, -math.inf))
        direction = {name: torch.zeros_like(value) for name, value in tables.items()}
        probable = made(of, tables)
        used = probable._slope(probable._batch(WORDS, LENGTHS), {**direction, label: entry.float()}) > 0
        possible = q.log_prob(WORDS, LENGTHS) > -math.inf
        both |= set(used.tolist())
        for found in (p.posterior_kl(q, WORDS, LENGTHS), p.posterior_cross_entropy(q, WORDS, LENGTHS)):
            assert (found == math.inf).tolist() == (used | ~possible).tolist()
        torch.testing.assert_close(q.posterior_kl(p, WORDS, LENGTHS)[possible], torch.zeros(int(possible.sum())))
    assert True in both


def test_what_is_improbable_by_many_words() -> None:
    """e^-20 for each word is below the range of float64 from 40 words on."""
    stay = torch.tensor([[0.0, -math.inf], [-math.inf, 0.0]])
    emission = torch.tensor([[0.0, -math.inf], [-20.0, 0.0]])
    p = HMM(torch.tensor([0.5, 0.5]).log(), stay, emission, validate=False)
    q = HMM(torch.tensor([0.0, -math.inf]), stay, emission, validate=False)
    for length in (30, 40, 400):
        words = torch.zeros(1, length, dtype=torch.int64)
        assert p.posterior_kl(q, words).tolist() == p.posterior_cross_entropy(q, words).tolist() == [math.inf]
        assert q.posterior_kl(p, words).item() == pytest.approx(0, abs=1e-6)
