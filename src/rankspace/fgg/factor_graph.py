"""Factor graphs of fixed size: definition 2 of the paper, with variable elimination and plain enumeration."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

import torch
from torch import Tensor


@dataclass
class FactorGraph:
    """Variables with their numbers of values, factors with the variables they join, perhaps an assignment."""

    sizes: dict[str, int]
    factors: list[tuple[Tensor, tuple[str, ...]]]
    assignment: dict[str, int]

    def weight(self, assignment: dict[str, int] | None = None) -> Tensor:
        """w_D(xi): the product of all factors at an assignment (the graph's own if none is given)."""
        chosen = self.assignment if assignment is None else assignment
        result = torch.ones((), dtype=self._dtype)
        for factor, ends in self.factors:
            result = result * factor[tuple(chosen[end] for end in ends)]
        return result

    def sum_by_enumeration(self) -> Tensor:
        """Sum of `weight` over every assignment: O(product of all sizes), for tests."""
        names = list(self.sizes)
        total = torch.zeros((), dtype=self._dtype)
        for values in product(*(range(self.sizes[name]) for name in names)):
            total = total + self.weight(dict(zip(names, values, strict=True)))
        return total

    def sum_product(self, order: Sequence[str] | None = None) -> Tensor:
        """Sum over every assignment by variable elimination (differentiable).

        Each variable in turn: multiply the factors that mention it and sum it out. Without an `order`, the variable
        whose product table is smallest goes first.
        """
        tables = [_on_distinct(factor, ends) for factor, ends in self.factors]
        waiting = list(order if order is not None else self.sizes)
        result = torch.ones((), dtype=self._dtype)
        while waiting:
            variable = waiting[0] if order is not None else min(waiting, key=lambda v: self._cost(v, tables))
            waiting.remove(variable)
            touching = [table for table in tables if variable in table[1]]
            tables = [table for table in tables if variable not in table[1]]
            if touching:
                tables.append(_eliminate(variable, touching))
            else:
                result = result * self.sizes[variable]
        for table, _ in tables:
            result = result * table
        return result

    @property
    def _dtype(self) -> torch.dtype:
        return self.factors[0][0].dtype if self.factors else torch.get_default_dtype()

    def _cost(self, variable: str, tables: Sequence[tuple[Tensor, tuple[str, ...]]]) -> int:
        return prod(self.sizes[end] for end in {end for _, ends in tables if variable in ends for end in ends})


def _on_distinct(factor: Tensor, ends: tuple[str, ...]) -> tuple[Tensor, tuple[str, ...]]:
    """The factor as a table over distinct variables: a variable that occurs twice picks the diagonal."""
    names = tuple(dict.fromkeys(ends))
    place = {name: i for i, name in enumerate(names)}
    return torch.einsum(factor, [place[end] for end in ends], list(range(len(names)))), names


def _eliminate(variable: str, tables: Sequence[tuple[Tensor, tuple[str, ...]]]) -> tuple[Tensor, tuple[str, ...]]:
    names = tuple(dict.fromkeys(end for _, ends in tables for end in ends))
    result = torch.ones((), dtype=tables[0][0].dtype, device=tables[0][0].device)
    for table, ends in tables:
        missing = [name for name in names if name not in ends]
        aligned = table.reshape(*table.shape, *[1] * len(missing))
        result = result * aligned.permute([(*ends, *missing).index(name) for name in names])
    return result.sum(names.index(variable)), tuple(name for name in names if name != variable)
