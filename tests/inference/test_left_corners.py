"""The closure of leftmost children."""

import math

import pytest
import torch

from rankspace.errors import DivergenceError
from rankspace.inference.left_corners import log_closure


@pytest.mark.parametrize("leak", [0.5, 0.01, 1e-5])
def test_equals_the_inverse(leak: float) -> None:
    generator = torch.Generator().manual_seed(0)
    step = torch.rand(30, 30, generator=generator, dtype=torch.float64)
    step *= (1 - leak) / step.sum(1, keepdim=True)
    found = log_closure(step.log(), torch.full((30, 2), leak / 2, dtype=torch.float64).log())
    expected = torch.linalg.inv(torch.eye(30, dtype=torch.float64) - step)
    torch.testing.assert_close(found.exp(), expected, rtol=1e-14 / leak * 30, atol=0)  # the inverse loses 1 / leak


def test_what_is_reached_by_one_long_way_alone() -> None:
    """A chain of 200 states, each step of which has 1e-20: its ends are 1e-3980 apart."""
    step = torch.full((200, 200), -math.inf, dtype=torch.float64)
    step.diagonal(1).fill_(math.log(1e-20))
    found = log_closure(step, torch.full((200, 1), math.log(0.5), dtype=torch.float64))
    above, below = torch.triu_indices(200, 200)
    expected = torch.full_like(found, -math.inf)
    expected[above, below] = (below - above).double() * math.log(1e-20)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


def test_what_never_comes_to_a_word_counts_nothing() -> None:
    """0 leads to 1 and to a word; 1 to itself alone; 2 to 0."""
    step = torch.tensor([[0, 0.5, 0], [0, 1, 0], [1, 0, 0]], dtype=torch.float64).log()
    words = torch.tensor([[0.5], [0], [0]], dtype=torch.float64).log()
    found = log_closure(step, words).exp()
    torch.testing.assert_close(found, torch.tensor([[1, 0, 0], [0, 1, 0], [1, 0, 1]], dtype=torch.float64))


@pytest.mark.parametrize("leak", [1e-12, 1e-17, 1e-300])
def test_left_edges_that_hardly_end_are_refused(leak: float) -> None:
    step = torch.tensor([[1 - leak]], dtype=torch.float64).log()
    with pytest.raises(DivergenceError, match="left edges have no end"):
        log_closure(step, torch.tensor([[leak]], dtype=torch.float64).log())


def test_no_states() -> None:
    assert log_closure(torch.zeros(0, 0, dtype=torch.float64), torch.zeros(0, 1, dtype=torch.float64)).shape == (0, 0)
