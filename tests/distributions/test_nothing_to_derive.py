"""Batches in which no sentence has a derivation, for want of words, on every backend: zeros, None and -inf."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from distributions.test_forbidden import CLASSES, made, tables_of
from rankspace.distributions import LPCFG, PCFG, RankSpacePCFG, SimplePCFG

TREES = [PCFG, SimplePCFG, RankSpacePCFG, LPCFG]
BATCHES = {
    "one word": torch.zeros(2, 1, dtype=torch.int64),
    "no word": torch.zeros(2, 0, dtype=torch.int64),
    "no sentence": torch.zeros(0, 3, dtype=torch.int64),
}


def distribution(of: Any, backend: str) -> tuple[Any, dict[str, Tensor]]:
    tables = {name: table.requires_grad_() for name, table in tables_of(of).items()}
    found = made(of, tables)
    found.backend = backend
    return found, tables


@pytest.mark.parametrize("backend", ["auto", "autograd"])
@pytest.mark.parametrize("words", BATCHES.values(), ids=BATCHES)
@pytest.mark.parametrize("of", CLASSES)
def test_counts_and_gradients(of: Any, words: Tensor, backend: str) -> None:
    """Of a chain one word is a sentence like others."""
    found, tables = distribution(of, backend)
    counts = found.expected_counts(words)
    total = found.log_prob(words)
    gradients = torch.autograd.grad(total.where(total > -math.inf, 0).sum(), list(tables.values()), allow_unused=True)
    for count, gradient, table in zip(counts.values(), gradients, tables.values(), strict=True):
        assert count.shape == table.shape
        torch.testing.assert_close(count, torch.zeros_like(count) if gradient is None else gradient)
        if of in TREES or not words.numel():
            assert not count.any()


@pytest.mark.parametrize("backend", ["auto", "autograd"])
@pytest.mark.parametrize("words", BATCHES.values(), ids=BATCHES)
@pytest.mark.parametrize("of", TREES)
def test_trees(of: Any, words: Tensor, backend: str) -> None:
    found, _ = distribution(of, backend)
    num, length = words.shape
    weights = torch.zeros(num, length + 1, length + 1, requires_grad=True)
    for span_weights in (None, weights):
        marginals = found.span_marginals(words, None, span_weights)
        assert marginals.shape == (num, length + 1, length + 1)
        assert not marginals.any()
        assert not found.labelled_marginals(words, None, None, span_weights).any()
        assert found.mbr(words, None, span_weights=span_weights) == [None] * num
        assert found.mbr_kbest(words, None, k=2, span_weights=span_weights) == [[]] * num
        total = found.log_prob(words, None, span_weights)
        assert total.tolist() == [-math.inf] * num
        best = found.viterbi if of in (PCFG, SimplePCFG) else found.viterbi_joint
        parses = best(words, None, span_weights)
        assert (parses.trees, parses.log_prob.tolist()) == ([None] * num, [-math.inf] * num)
    (of_weights,) = torch.autograd.grad(found.log_prob(words, None, weights).clamp(min=0).sum(), weights)
    assert not of_weights.any()
    if num:
        assert found.log_joint(words, [None] * num).tolist() == [-math.inf] * num
