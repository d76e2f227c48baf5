"""Span weights that forbid much or weigh heavily, and the shortest sentences, beside peaked parameters: trees against
the same in plain logarithms."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from distributions.test_on_gpu import TREES, VOCABULARY

CLOSE = {torch.float32: {"rtol": 1e-4, "atol": 2e-4}, torch.float64: {"rtol": 1e-8, "atol": 1e-8}}


def peaked(distribution: Any, scale: float, backend: str, dtype: torch.dtype) -> tuple[Any, list[Tensor]]:
    """The distribution with its log-probabilities scaled and normalised again, and its leaves."""
    leaves = {}
    for name, value in distribution.parameters.items():
        axes = distribution.JOINT.get(name, 1)
        rows = (scale * value.double()).flatten(-axes).log_softmax(-1).reshape(value.shape)
        leaves[name] = rows.to(dtype).requires_grad_()
    made = type(distribution)(**leaves, backend=backend, order=distribution.order, validate=False)
    return made, list(leaves.values())


def everything(made: Any, leaves: list[Tensor], words: Tensor, lengths: list[int], weights: Tensor) -> list[Tensor]:
    """log Z, where finite its gradients, and marginals of spans; all in float64."""
    own = weights.to(leaves[0].dtype).requires_grad_()
    found = made.log_prob(words, lengths, own)
    total = found.where(found > -math.inf, 0).sum()
    slopes = torch.autograd.grad(total, [*leaves, own], allow_unused=True, materialize_grads=True)
    return [part.detach().double() for part in (found, *slopes)]


def random_weights(lengths: list[int], generator: torch.Generator) -> Tensor:
    size = max(lengths) + 1
    weights = 300 * torch.randn(len(lengths), size, size, generator=generator, dtype=torch.float64)
    return weights.masked_fill(torch.rand(weights.shape, generator=generator) < 0.3, -math.inf)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("lengths", [[9, 9, 9, 9], [9, 2, 1, 7], [2, 1], [1, 2, 2, 2]])
@pytest.mark.parametrize("name", TREES)
def test_same_as_in_logarithms(name: str, lengths: list[int], dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(len(lengths) + max(lengths))
    for scale in (2.0, 15.0):
        words = torch.randint(VOCABULARY, (len(lengths), max(lengths)), generator=generator)
        weights = random_weights(lengths, generator)
        expected = everything(*peaked(TREES[name], scale, "autograd", torch.float64), words, lengths, weights)
        found = everything(*peaked(TREES[name], scale, "auto", dtype), words, lengths, weights)
        for mine, other in zip(found, expected, strict=True):
            torch.testing.assert_close(mine, other, **CLOSE[dtype])


@pytest.mark.parametrize("weight", [-1e9, 1e9, -1e30])
@pytest.mark.parametrize("span", [(0, 5), (1, 3)])
@pytest.mark.parametrize("name", TREES)
def test_weights_beyond_all_exponents(name: str, span: tuple[int, int], weight: float) -> None:
    words, lengths = torch.tensor([[1, 2, 3, 4, 5], [0, 1, 2, 3, 4]]), [5, 5]
    weights = torch.zeros(2, 6, 6, dtype=torch.float64)
    weights[0, span[0], span[1]] = weight
    expected = everything(*peaked(TREES[name], 1.0, "autograd", torch.float64), words, lengths, weights)
    found = everything(*peaked(TREES[name], 1.0, "auto", torch.float64), words, lengths, weights)
    for mine, other in zip(found, expected, strict=True):
        assert bool(mine.isfinite().all())
        torch.testing.assert_close(mine, other, rtol=1e-6, atol=1e-6)  # the spacing of numbers at 1e9 is 1e-7
