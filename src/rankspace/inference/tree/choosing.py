"""Choosing one of several outcomes for many nodes at once: at random by their weights, or the best."""

import math
from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Tensor

NUMBERS_TOGETHER = 2**22

Choose = Callable[[Tensor], Tensor]  # log weights [node, outcome] -> outcome of each node


def best(log_weights: Float[Tensor, "node outcome"]) -> Int[Tensor, "node"]:
    return log_weights.argmax(1)


def drawn(generator: torch.Generator | None) -> Choose:
    """By inverse distribution functions, in float64. Outcomes of weight zero are never drawn."""

    def choose(log_weights: Float[Tensor, "node outcome"]) -> Int[Tensor, "node"]:
        wide = log_weights.double()
        sums = (wide - wide.amax(1, keepdim=True)).exp().cumsum(1)
        total = sums[:, -1:]
        place = generator.device if generator is not None else wide.device
        uniform = torch.rand(total.shape, dtype=torch.float64, generator=generator, device=place).to(wide.device)
        below = torch.minimum(uniform * total, torch.nextafter(total, torch.zeros_like(total)))
        return torch.searchsorted(sums, below, right=True)[:, 0]

    return choose


def choose_in_portions(
    choose: Choose, count: int, num_outcomes: int, log_weights: Callable[[slice], Tensor], like: Tensor
) -> Int[Tensor, "node"]:
    """Chooses for `count` nodes, a portion of their weights at a time: log_weights(nodes) -> [node, outcome]."""
    size = max(1, NUMBERS_TOGETHER // max(1, num_outcomes))
    parts = [choose(log_weights(slice(start, min(start + size, count)))) for start in range(0, count, size)]
    return torch.cat(parts) if parts else like.new_zeros(0)


def log_of(table: Tensor, exponent: Tensor | None) -> Tensor:
    """Logarithms of mantissas with the exponents of their rows, in float64."""
    logs = table.double().log()
    return logs if exponent is None else logs + exponent.double() * math.log(2)
