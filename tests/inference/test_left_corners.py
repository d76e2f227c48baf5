"""The closure of leftmost children."""

import math

import pytest
import torch
from torch import Tensor

from rankspace.inference.left_corners import log_closure


def rows(size: int, words: int, scale: float, seed: int, zeros: float = 0.0) -> tuple[Tensor, Tensor]:
    """Logarithms of what leads to states and to words, which sum to one; some are zero."""
    generator = torch.Generator().manual_seed(seed)
    logits = scale * torch.randn(size, size + words, generator=generator, dtype=torch.float64)
    logits[torch.rand(logits.shape, generator=generator) < zeros] = -math.inf
    logits[:, -1] = logits[:, -1].where(logits.isfinite().any(1), 0)  # no row without an entry
    found = logits.log_softmax(1)
    return found[:, :size], found[:, size:]


@pytest.mark.parametrize("size", [1, 2, 3, 17, 40])
def test_equals_the_inverse(size: int) -> None:
    step, words = rows(size, 3, 1, seed=size)
    expected = torch.linalg.inv(torch.eye(size, dtype=torch.float64) - step.exp())
    torch.testing.assert_close(log_closure(step, words).exp(), expected, rtol=1e-12, atol=0)


@pytest.mark.parametrize("scale", [1, 20, 100, 300])
@pytest.mark.parametrize("zeros", [0.0, 0.5, 0.9])
def test_every_left_edge_comes_to_one_word(scale: float, zeros: float) -> None:
    """Also where it is 1e100 states deep: closure times words sums to one, but for what never comes to a word; and it
    is I + A closure."""
    for seed in range(20):
        step, words = rows(9, 3, scale, seed, zeros)
        found = log_closure(step, words)
        total = (found + words.logsumexp(1)).logsumexp(1)
        if not zeros:
            torch.testing.assert_close(total, torch.zeros(9, dtype=torch.float64), rtol=0, atol=1e-12)
        assert total.amax() < 1e-12
        ends = total > -math.inf
        again = (step[:, :, None] + found[None]).logsumexp(1)
        again = torch.logaddexp(again, torch.eye(9, dtype=torch.float64).log())[ends][:, ends]
        torch.testing.assert_close(found[ends][:, ends], again, rtol=1e-12, atol=1e-11)


def test_what_is_reached_by_one_long_way_alone() -> None:
    """A chain of 200 states, each step of which has 1e-20: its ends are 1e-3980 apart."""
    step = torch.full((200, 200), -math.inf, dtype=torch.float64)
    step.diagonal(1).fill_(math.log(1e-20))
    found = log_closure(step, torch.zeros(200, 1, dtype=torch.float64))
    above, below = torch.triu_indices(200, 200)
    expected = torch.full_like(found, -math.inf)
    expected[above, below] = (below - above).double() * math.log(1e-20)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


def test_what_never_comes_to_a_word_counts_nothing() -> None:
    """0 leads to itself, to 1 and to a word; 1 to itself alone; 2 to 0 and 1."""
    step = torch.tensor([[0.5, 0.25, 0], [0, 1, 0], [0.5, 0.5, 0]], dtype=torch.float64).log()
    words = torch.tensor([[0.25], [0], [0]], dtype=torch.float64).log()
    found = log_closure(step, words).exp()
    torch.testing.assert_close(found, torch.tensor([[2, 0, 0], [0, 1, 0], [1, 0, 1]], dtype=torch.float64))


@pytest.mark.parametrize("log_leak", [-30.0, -300.0, -3000.0])
def test_left_edges_that_hardly_end(log_leak: float) -> None:
    """What float64 holds of one less a leak of 1e-1300 is one; the leak itself tells how deep they are."""
    step = torch.zeros(1, 1, dtype=torch.float64)
    found = log_closure(step, torch.full((1, 1), log_leak, dtype=torch.float64))
    assert found.item() == -log_leak


def test_no_states() -> None:
    assert log_closure(torch.zeros(0, 0, dtype=torch.float64), torch.zeros(0, 1, dtype=torch.float64)).shape == (0, 0)
