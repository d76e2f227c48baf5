"""Small grammars for the tests of sums, and the weights of all their derivations."""

from typing import Any

import torch
from torch import Tensor

from rankspace.fgg import (
    FGG,
    Rule,
    enumerate_derivations,
    zoo,
)

EXACT = 1e-13  # relative: rounding of a few hundred float64 operations on positive numbers
SEMIRINGS = ("real", "log", "max", "boolean", "counting", "entropy")


def weights(*shape: int, seed: int = 0, zeros: float = 0.0) -> Tensor:
    """Weights in (0, 1), each replaced by zero with a given probability."""
    generator = torch.Generator().manual_seed(1000 * seed + 10 * len(shape) + sum(shape))
    table = torch.rand(*shape, generator=generator, dtype=torch.float64)
    return torch.where(torch.rand(*shape, generator=generator) < zeros, 0, table)


def numbers(**values: float) -> dict[str, Tensor]:
    return {name: torch.tensor(value, dtype=torch.float64) for name, value in values.items()}


def equations(text: str, **coefficients: Any) -> FGG:
    """A grammar without nodes from a system of polynomial equations, the first of which gives the start symbol.

    "S = a X X + b; X = c" has the rules S -> a X X, S -> b and X -> c.
    """
    rules = []
    for equation in text.split(";"):
        left, _, right = equation.partition("=")
        for i, term in enumerate(right.split("+"), start=1):
            rules.append(Rule.build(left.strip(), {}, [(label,) for label in term.split()], name=f"{left.strip()}{i}"))
    factors = {k: v if isinstance(v, Tensor) else numbers(_=v)["_"] for k, v in coefficients.items()}
    return FGG.build(rules[0].lhs, rules, {}, factors)


RECURSIVE: dict[str, FGG] = {
    "line": equations("X = a X + b", a=0.9, b=3),
    "parabola": equations("X = p X X + q", p=0.3, q=0.7),
    "parabola, other branch": equations("X = p X X + q", p=0.7, q=0.3),
    "pair": equations("S = X Y; X = a Y Y + b; Y = c X + d", a=0.5, b=0.25, c=0.8, d=0.1),
    "ring": equations("A = a B + b; B = a C; C = a D; D = a A", a=0.9, b=1),
    "hmm": zoo.hmm(weights(3), weights(3, 3) / 3, weights(3, 2), weights(3, seed=1)),
    "hmm with zeros": zoo.hmm(weights(4), weights(4, 4, zeros=0.5) / 4, weights(4, 2), weights(4, seed=1, zeros=0.5)),
    "hsmm": zoo.hsmm(weights(2), weights(2, 2) / 2, weights(2, 3) / 3, weights(2, 2), weights(2, seed=1)),
    "pcfg": zoo.pcfg(weights(3), 0.1 * weights(3, 3, 3), 0.5 * weights(3, 2)),
    "qcfg": zoo.qcfg(weights(2, 2), 0.05 * weights(2, 2, 2, 2, 2, 2), 0.5 * weights(2, 2, 2)),
}


def clock() -> FGG:
    """Y(d) emits one of d + 1 numbers and stops, or passes to d - 1: recursive in the symbol, not in the value."""
    rules = [
        Rule.build("S", {"d": "D"}, [("top", "d"), ("Y", "d")]),
        Rule.build("Y", {"d": "D", "e": "D"}, [("tick", "d", "e"), ("Y", "e")], ["d"]),
        Rule.build("Y", {"d": "D", "n": "D"}, [("below", "d", "n")], ["d"]),
    ]
    factors = {
        "top": torch.tensor([0.0, 0.0, 1.0], dtype=torch.float64),
        "tick": torch.diag(torch.ones(2, dtype=torch.float64), -1),
        "below": torch.ones(3, 3, dtype=torch.float64).tril(),
    }
    return FGG.build("S", rules, {"D": 3}, factors)


def every_weight(fgg: FGG, **bounds: int) -> Tensor:
    """Weights of all pairs of a derivation and an assignment, in one long vector."""
    found = [torch.zeros(0, dtype=torch.float64)]
    for derivation in enumerate_derivations(fgg, **bounds):
        graph = derivation.factor_graph(fgg)
        sizes = list(graph.sizes.values())
        axes = torch.meshgrid(*map(torch.arange, sizes), indexing="ij") if sizes else ()
        grid = dict(zip(graph.sizes, axes, strict=True))
        table = torch.ones(sizes, dtype=torch.float64)
        for factor, ends in graph.factors:
            table = table * factor[tuple(grid[end] for end in ends)]
        found.append(table.flatten())
    return torch.cat(found)


def entropy_of(table: Tensor) -> float:
    p = table[table > 0] / table.sum()
    return -(p * p.log()).sum().item()
