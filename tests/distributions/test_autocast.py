"""Within autocast, as around the networks of a training loop, every query has the precision it was asked for."""

from typing import Any

import pytest
import torch
from torch import Tensor

from distributions.test_forbidden import CLASSES, LENGTHS, WORDS, made, tables_of
from rankspace.distributions import HMM, HSMM, LHMM, LPCFG, PCFG, BlockHMM, RankSpaceHMM, RankSpacePCFG

CHAINS = ("filter", "surprisal", "next_word", "state_marginals")
TREES = ("span_marginals", "log_prefix", "surprisal", "next_word")


def autocast() -> torch.autocast:
    return torch.autocast("cpu", dtype=torch.bfloat16)


def same(one: Any, other: Any) -> None:
    """A tensor, or several by name, to the last bit."""
    found, expected = ([each] if isinstance(each, Tensor) else list(each.values()) for each in (one, other))
    for a, b in zip(found, expected, strict=True):
        assert a.dtype == b.dtype
        assert torch.equal(a, b)


@pytest.mark.parametrize("of", CLASSES)
@pytest.mark.parametrize("backend", ["auto", "autograd"])
def test_queries(of: Any, backend: str) -> None:
    distribution = made(of, tables_of(of))
    distribution.backend = backend
    queries = ["log_prob", "expected_counts", "posterior_entropy"]
    queries += CHAINS if hasattr(distribution, "filter") else TREES
    for query in queries:
        expected = getattr(distribution, query)(WORDS, LENGTHS)
        with autocast():
            same(getattr(distribution, query)(WORDS, LENGTHS), expected)


@pytest.mark.parametrize("of", CLASSES)
def test_gradients(of: Any) -> None:
    """The backward pass is called outside, as torch wants it."""
    tables = {name: table.requires_grad_() for name, table in tables_of(of).items()}
    expected = torch.autograd.grad(made(of, tables).log_prob(WORDS, LENGTHS).sum(), list(tables.values()))
    with autocast():
        total = made(of, tables).log_prob(WORDS, LENGTHS).sum()
    found = torch.autograd.grad(total, list(tables.values()))
    assert all(one.equal(other) for one, other in zip(found, expected, strict=True))


@pytest.mark.parametrize("of", [HMM, HSMM, LHMM, BlockHMM, RankSpaceHMM, PCFG, LPCFG])
def test_a_backward_pass_within(of: Any) -> None:
    """The passes of the engines leave autocast themselves. Not so products of torch's own around them, which low-rank
    trees have: their backward passes belong outside."""
    tables = {name: table.requires_grad_() for name, table in tables_of(of).items()}
    expected = torch.autograd.grad(made(of, tables).log_prob(WORDS, LENGTHS).sum(), list(tables.values()))
    with autocast():
        found = torch.autograd.grad(made(of, tables).log_prob(WORDS, LENGTHS).sum(), list(tables.values()))
    assert all(one.equal(other) for one, other in zip(found, expected, strict=True))


@pytest.mark.parametrize("of", [RankSpaceHMM, LHMM, RankSpacePCFG, LPCFG])
def test_collapsed(of: Any) -> None:
    distribution = made(of, tables_of(of))
    expected = distribution.collapse().parameters
    with autocast():
        same(distribution.collapse().parameters, expected)
