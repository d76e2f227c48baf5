"""Gradients under large slopes, such as those of scaled losses, are those under a slope of one, as many times over."""

import math
from typing import Any

import pytest
import torch

from distributions.test_forbidden import CLASSES, LENGTHS, WORDS, made, tables_of
from rankspace.distributions import HMM


@pytest.mark.parametrize("scale", [6, 20])
@pytest.mark.parametrize("of", CLASSES)
def test_random_models(of: Any, scale: float) -> None:
    """Peaked, and with entries that are impossible."""
    tables = tables_of(of)
    for label, table in tables.items():
        joint = of.JOINT.get(label, 1)
        peaked = (scale * table).flatten(-joint)
        peaked[..., 0] = -math.inf if label not in ("log_duration", "log_emission") else peaked[..., 0]
        tables[label] = peaked.log_softmax(-1).view_as(table).requires_grad_()
    found = made(of, tables).log_prob(WORDS, LENGTHS)
    found = found.where(found > -math.inf, 0).sum()
    expected = torch.autograd.grad(found, list(tables.values()), retain_graph=True)
    assert any(bool((each != 0).any()) for each in expected)
    for slope in (1e8, 1e10):
        for one, other in zip(
            torch.autograd.grad(slope * found, list(tables.values()), retain_graph=True), expected, strict=True
        ):
            torch.testing.assert_close(one / slope, other, rtol=1e-5, atol=1e-9)


def test_adjoints_near_the_end_of_the_range() -> None:
    """The only way on is e^-35 below the largest number: adjoints have its inverse."""
    stay = torch.tensor([[0.0, -math.inf], [-math.inf, 0.0]])
    tables = [torch.tensor([0.5, 0.5]).log(), stay, torch.tensor([[0.0, -math.inf], [-35.0, 0.0]])]
    for slope in (1.0, 1e7, 1e8):
        leaves = [table.clone().requires_grad_() for table in tables]
        (slope * HMM(*leaves, validate=False).log_prob(torch.tensor([[0, 0, 1]]))).sum().backward()
        found = [leaf.grad / slope for leaf in leaves if leaf.grad is not None]
        expected = [[0.0, 1.0], [[0.0, 0.0], [0.0, 2.0]], [[0.0, 0.0], [2.0, 1.0]]]
        for one, other in zip(found, expected, strict=True):
            torch.testing.assert_close(one, torch.tensor(other))
