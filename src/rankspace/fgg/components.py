"""Strongly connected components of "uses" between nonterminals, in the order in which they can be evaluated."""

from collections.abc import Hashable, Mapping, Sequence
from typing import TypeVar

Name = TypeVar("Name", bound=Hashable)


def strong_components(uses: Mapping[Name, Sequence[Name]]) -> list[list[Name]]:
    """Components of a graph, each after all that it uses (Tarjan's algorithm, without recursion)."""
    order: dict[Name, int] = {}
    low: dict[Name, int] = {}
    stack: list[Name] = []
    on_stack: set[Name] = set()
    components: list[list[Name]] = []
    for root in uses:
        if root in order:
            continue
        path = [(root, iter(uses[root]))]
        order[root] = low[root] = len(order)
        stack.append(root)
        on_stack.add(root)
        while path:
            here, rest = path[-1]
            for there in rest:
                if there not in order:
                    order[there] = low[there] = len(order)
                    stack.append(there)
                    on_stack.add(there)
                    path.append((there, iter(uses[there])))
                    break
                if there in on_stack:
                    low[here] = min(low[here], order[there])
            else:
                path.pop()
                if path:
                    parent = path[-1][0]
                    low[parent] = min(low[parent], low[here])
                if low[here] == order[here]:
                    components.append(_pop_until(here, stack, on_stack))
    return components


def is_recursive(component: Sequence[Name], uses: Mapping[Name, Sequence[Name]]) -> bool:
    """Whether a component contains a cycle."""
    return len(component) > 1 or component[0] in uses[component[0]]


def _pop_until(root: Name, stack: list[Name], on_stack: set[Name]) -> list[Name]:
    component: list[Name] = []
    while not component or component[-1] != root:
        component.append(stack.pop())
        on_stack.discard(component[-1])
    return component[::-1]
