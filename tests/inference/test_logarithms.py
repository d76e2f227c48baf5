"""Sums and products of numbers given by their logarithms."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from rankspace.inference.chain.log_space import log_product
from rankspace.inference.logarithms import exact_log_product, log_matrix_product, log_sum_exp

EXACT = {"rtol": 1e-12, "atol": 1e-12}


def test_exact_products_of_logarithms() -> None:
    """Entries that are 1e-600 of the largest are right too, and zeros stay zeros."""
    rows = torch.tensor([[0.0, -1500.0, -math.inf], [-math.inf] * 3, [-5000.0, -5001.0, -5002.0]], dtype=torch.float64)
    matrix = torch.tensor([[0.0, 0.0, 0.0], [-math.inf, -3.0, 0.0], [-900.0, -1.0, -2.0], [-math.inf, -math.inf, 0.0]])
    matrix = matrix.double()
    expected = log_product(matrix)(rows)
    torch.testing.assert_close(exact_log_product(matrix)(rows), expected, **EXACT)
    assert expected[0, 1] == -1503
    assert expected[0, 3] == -math.inf


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_log_of_a_product(dtype: torch.dtype) -> None:
    left = torch.tensor([[0.0, -800.0, -math.inf], [-1.0, -2.0, -3.0]], dtype=dtype).requires_grad_()
    right = torch.tensor([[-math.inf, -1.0], [-2.0, -math.inf], [0.0, -math.inf]], dtype=dtype).requires_grad_()
    found, expected = log_matrix_product(left, right), log_product(right.T)(left)
    torch.testing.assert_close(found, expected)
    assert found[0, 0] == -802
    for slope, other in zip(
        torch.autograd.grad(found.sum(), (left, right)), torch.autograd.grad(expected.sum(), (left, right)), strict=True
    ):
        torch.testing.assert_close(slope, other)


def second_derivatives(product: Callable[..., Tensor], left: Tensor, right: Tensor) -> list[Tensor]:
    """Of a sum of powers of first ones, so that all of them have a part."""
    given = (left.clone().requires_grad_(), right.clone().requires_grad_())
    slopes = torch.autograd.grad(product(*given).square().sum(), given, create_graph=True)
    total: Any = sum(slope.square().sum() for slope in slopes)
    return [*slopes, *torch.autograd.grad(total, given)]


def test_second_derivatives_of_low_entries() -> None:
    """Some of 1e-28, of which the square has no number in float32; one below the range; one that is zero. A logarithm
    of -65 is known to 4e-6 in float32, and derivatives of squares here are hundreds of times that."""
    left = torch.tensor([[-60.0, -70.0, -math.inf], [-1.0, -90.0, 0.0]])
    right = torch.tensor([[-5.0, -math.inf], [-1.0, -30.0], [-2.0, -math.inf]])
    found = second_derivatives(log_matrix_product, left, right)
    expected = second_derivatives(lambda one, other: log_product(other.T)(one), left.double(), right.double())
    assert log_matrix_product(left, right).exp().count_nonzero() == 3
    for mine, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(mine.double(), theirs, rtol=1e-3, atol=1e-3)


def test_any_derivatives() -> None:
    generator = torch.Generator().manual_seed(2)
    given = [torch.randn(*size, generator=generator, dtype=torch.float64).requires_grad_() for size in ((3, 4), (4, 2))]
    assert torch.autograd.gradcheck(log_matrix_product, given)
    assert torch.autograd.gradgradcheck(log_matrix_product, given)


def test_the_logarithm_of_nothing_has_no_slope() -> None:
    values = torch.tensor([[-math.inf, -math.inf], [-math.inf, 2.0]], dtype=torch.float64, requires_grad=True)
    found = log_sum_exp(values)
    assert found.tolist() == [-math.inf, 2]
    assert torch.autograd.grad(found.sum(), values)[0].tolist() == [[0, 0], [0, 1]]


@pytest.mark.parametrize("shift", [-3000.0, 0.0, 800.0])
def test_products_of_any_scale(shift: float) -> None:
    """Rows of either matrix may lie anywhere: neither overflows, and none is lost."""
    generator = torch.Generator().manual_seed(0)
    rows, matrix = (100 * torch.randn(5, 7, generator=generator, dtype=torch.float64) for _ in range(2))
    matrix += shift * torch.arange(5)[:, None]
    torch.testing.assert_close(exact_log_product(matrix)(rows), log_product(matrix)(rows), **EXACT)


def test_low_entries_of_large_products_are_made_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """All entries are below the range, and so many of them are not held at one time; gradients come through."""
    monkeypatch.setattr("rankspace.inference.logarithms.CHUNK", 40)
    generator = torch.Generator().manual_seed(1)
    left, right = (-900 - torch.rand(size, generator=generator, dtype=torch.float64) for size in ((6, 4), (4, 5)))
    given = (left.requires_grad_(), right.requires_grad_())
    expected = log_product(right.T)(left)
    for found in (log_matrix_product(*given), exact_log_product(right.detach().T)(left.detach())):
        torch.testing.assert_close(found, expected, **EXACT)
    slopes = torch.autograd.grad(log_matrix_product(*given).sum(), given)
    for mine, theirs in zip(slopes, torch.autograd.grad(expected.sum(), given), strict=True):
        torch.testing.assert_close(mine, theirs, **EXACT)


def test_empty_products() -> None:
    for shape in ((0, 3, 2), (3, 0, 2), (3, 2, 0)):
        row, middle, out = shape
        rows, matrix = torch.zeros(row, middle, dtype=torch.float64), torch.zeros(out, middle, dtype=torch.float64)
        found = exact_log_product(matrix)(rows)
        assert found.shape == (row, out)
        assert (found == -math.inf).all() or middle
