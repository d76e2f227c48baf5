"""Factor graphs of fixed size: definition 2 of the paper, with variable elimination and plain enumeration."""

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from itertools import count
from math import prod

import torch
from torch import Tensor

Table = tuple[Tensor, tuple[str, ...]]  # a factor over distinct variables


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
        """Sum of `weight` over every assignment, one after the other: O(product of all sizes), for checks.

        Variables get their values in order; a branch ends where a factor is zero.
        """
        names = list(self.sizes)
        ready: list[list[tuple[Tensor, tuple[str, ...]]]] = [[] for _ in range(len(names) + 1)]
        for factor, ends in self.factors:
            ready[max((names.index(end) + 1 for end in ends), default=0)].append((factor, ends))
        total = torch.zeros((), dtype=self._dtype)
        waiting: list[tuple[Tensor, dict[str, int]]] = [(torch.ones((), dtype=self._dtype), {})]
        while waiting:
            weight, chosen = waiting.pop()
            for factor, ends in ready[len(chosen)]:
                weight = weight * factor[tuple(chosen[end] for end in ends)]
            if weight == 0:
                continue
            if len(chosen) == len(names):
                total = total + weight
                continue
            name = names[len(chosen)]
            waiting.extend((weight, {**chosen, name: value}) for value in range(self.sizes[name]))
        return total

    def sum_product(self, order: Sequence[str] | None = None) -> Tensor:
        """Sum over every assignment by variable elimination (differentiable).

        Each variable in turn: multiply the factors that mention it and sum it out. Variables in `order` come first, in
        that order; of the others always the one whose product table is smallest.
        """
        elimination = _Elimination(self.sizes, torch.ones((), dtype=self._dtype))
        for factor, ends in self.factors:
            elimination.add(_on_distinct(factor, ends))
        for variable in order or ():
            elimination.eliminate(variable)
        elimination.eliminate_cheapest()
        return elimination.result

    @property
    def _dtype(self) -> torch.dtype:
        return self.factors[0][0].dtype if self.factors else torch.get_default_dtype()


class _Elimination:
    """The tables that are left, by the variables they mention, and the product of those that mention none."""

    def __init__(self, sizes: dict[str, int], result: Tensor) -> None:
        self.sizes = sizes
        self.result = result
        self.tables: dict[str, dict[int, Table]] = {variable: {} for variable in sizes}
        self.numbers = count()

    def add(self, table: Table) -> None:
        number = next(self.numbers)
        for end in table[1]:
            self.tables[end][number] = table
        if not table[1]:
            self.result = self.result * table[0]

    def eliminate(self, variable: str) -> tuple[str, ...]:
        """Sums a variable out; returns those that shared a table with it."""
        touching = self.tables.pop(variable)
        if not touching:
            self.result = self.result * self.sizes[variable]
            return ()
        for number, (_, ends) in touching.items():
            for end in ends:
                if end != variable:
                    del self.tables[end][number]
        table = _sum_out(variable, list(touching.values()))
        self.add(table)
        return table[1]

    def eliminate_cheapest(self) -> None:
        """Sums out every variable, smallest product table first."""
        place = {variable: i for i, variable in enumerate(self.sizes)}
        waiting = [(self._cost(variable), place[variable], variable) for variable in self.tables]
        heapify(waiting)
        while waiting:
            cost, _, variable = heappop(waiting)
            if variable in self.tables and cost == self._cost(variable):  # an entry may be out of date
                for other in self.eliminate(variable):
                    heappush(waiting, (self._cost(other), place[other], other))

    def _cost(self, variable: str) -> int:
        return prod(self.sizes[end] for end in {end for _, ends in self.tables[variable].values() for end in ends})


def _on_distinct(factor: Tensor, ends: tuple[str, ...]) -> Table:
    """The factor as a table over distinct variables: a variable that occurs twice picks the diagonal."""
    names = tuple(dict.fromkeys(ends))
    place = {name: i for i, name in enumerate(names)}
    return torch.einsum(factor, [place[end] for end in ends], list(range(len(names)))), names


def _sum_out(variable: str, tables: Sequence[Table]) -> Table:
    names = tuple(dict.fromkeys(end for _, ends in tables for end in ends))
    result = torch.ones((), dtype=tables[0][0].dtype, device=tables[0][0].device)
    for table, ends in tables:
        missing = [name for name in names if name not in ends]
        aligned = table.reshape(*table.shape, *[1] * len(missing))
        result = result * aligned.permute([(*ends, *missing).index(name) for name in names])
    return result.sum(names.index(variable)), tuple(name for name in names if name != variable)
