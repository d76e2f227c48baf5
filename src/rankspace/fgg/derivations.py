"""The generative story: derivations, the factor graphs they yield, and Z by enumerating them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from typing import NamedTuple

import torch
from torch import Tensor

from rankspace.errors import GrammarError
from rankspace.fgg.components import is_recursive, strong_components
from rankspace.fgg.factor_graph import FactorGraph
from rankspace.fgg.factor_graph_grammar import FGG
from rankspace.fgg.grammar import Rule


@dataclass(frozen=True)
class Derivation:
    """A rule, and for each of its nonterminal edges (by identifier) the derivation that replaces it.

    `assignment` gives a value (its place in the domain) to each node of the rule, where one has been chosen.
    """

    rule: Rule
    children: Mapping[str, "Derivation"] = field(default_factory=dict)
    assignment: Mapping[str, int] = field(default_factory=dict)

    def walk(self) -> Iterator["Derivation"]:
        """This derivation and all below it, parents first, children in the order of their edges."""
        waiting = [self]  # a stack, since derivations of long sentences are deep
        while waiting:
            here = waiting.pop()
            yield here
            waiting.extend(here.ordered_children()[::-1])

    def ordered_children(self) -> list["Derivation"]:
        """The children in the order of the rule's edges."""
        return [self.children[edge.id] for edge in self.rule.rhs.edges if edge.id in self.children]

    @cached_property
    def size(self) -> int:
        """Number of rules used."""
        return sum(1 for _ in self.walk())

    def factor_graph(self, fgg: FGG) -> FactorGraph:
        """The factor graph this derivation generates, with the assignment of its nodes where there is one.

        A node is named by the path of edges to the rule that made it: "e2/e0/t2".
        """
        graph = FactorGraph({}, [], {})
        waiting: list[tuple[Derivation, str, dict[str, str]]] = [(self, "", {})]
        while waiting:
            here, path, given = waiting.pop()
            name = {node.id: given.get(node.id, path + node.id) for node in here.rule.rhs.nodes}
            graph.sizes |= {name[node.id]: fgg.size(node.label) for node in here.rule.rhs.nodes}
            graph.assignment |= {name[node]: value for node, value in here.assignment.items()}
            for edge in here.rule.rhs.edges:
                ends = tuple(name[node] for node in edge.nodes)
                if edge.id in here.children:
                    child = here.children[edge.id]
                    waiting.append((child, f"{path}{edge.id}/", dict(zip(child.rule.rhs.external, ends, strict=True))))
                else:
                    graph.factors.append((fgg.tensors[edge.label], ends))
        return graph

    def __str__(self) -> str:
        """Rule names as a term: pi_1(pi_2(pi_3))."""
        text: list[str] = []
        waiting: list[Derivation | str] = [self]
        while waiting:
            here = waiting.pop()
            if isinstance(here, str):
                text.append(here)
                continue
            text.append(here.rule.name or here.rule.lhs)
            inside: list[Derivation | str] = []
            for child in here.ordered_children():
                inside += [", " if inside else "(", child]
            waiting.extend([*inside, ")"][::-1] if inside else [])
        return "".join(text)


class Enumerated(NamedTuple):
    """Z over the derivations that were visited; `complete` says whether there are no others."""

    z: Tensor
    num_derivations: int
    complete: bool


def enumerate_derivations(fgg: FGG, limit: int | None = None, max_size: int | None = None) -> Iterator[Derivation]:
    """Derivations of the start symbol in order of the number of rules they use, smallest first.

    Stops after `limit` derivations or at `max_size` rules. Raises GrammarError if neither is given and the grammar
    has infinitely many. Time and memory grow with the number of derivations: this is the bottom of the ladder.
    """
    largest = _largest_size(fgg)
    if largest is None and limit is None and max_size is None:
        raise GrammarError(
            "enumerate_derivations: the grammar has infinitely many derivations; give limit or max_size."
        )
    bound = min((size for size in (largest, max_size) if size is not None), default=None)
    return _up_to(_BySize(fgg), bound, limit)


def z_by_enumeration(fgg: FGG, limit: int | None = None, max_size: int | None = None) -> Enumerated:
    """Z as the sum of the weights of single derivations, each by variable elimination on its factor graph."""
    total = torch.zeros((), dtype=fgg.dtype, device=fgg.device)
    count = 0
    for derivation in enumerate_derivations(fgg, None if limit is None else limit + 1, max_size):
        if count == limit:
            return Enumerated(total, count, False)
        total = total + derivation.factor_graph(fgg).sum_product()
        count += 1
    largest = _largest_size(fgg)
    complete = largest is not None and (max_size is None or largest <= max_size)
    return Enumerated(total, count, complete)


def _up_to(by_size: "_BySize", bound: int | None, limit: int | None) -> Iterator[Derivation]:
    count, size = 0, 0
    while bound is None or size < bound:
        size += 1
        for derivation in by_size.of(by_size.fgg.start, size):
            if limit is not None and count >= limit:
                return
            yield derivation
            count += 1
        if limit is not None and count >= limit:
            return


class _BySize:
    """All derivations of a nonterminal that use exactly a given number of rules."""

    def __init__(self, fgg: FGG) -> None:
        self.fgg = fgg
        self.known: dict[tuple[str, int], list[Derivation]] = {}

    def of(self, label: str, size: int) -> list[Derivation]:
        key = (label, size)
        if key not in self.known:
            self.known[key] = [d for rule in self.fgg.grammar.rules_of[label] for d in self._with(rule, size)]
        return self.known[key]

    def _with(self, rule: Rule, size: int) -> Iterator[Derivation]:
        edges = self.fgg.grammar.nonterminal_edges(rule)
        for sizes in _compositions(size - 1, len(edges)):
            choices = [self.of(edge.label, part) for edge, part in zip(edges, sizes, strict=True)]
            for children in product(*choices):
                yield Derivation(rule, {edge.id: child for edge, child in zip(edges, children, strict=True)})


def _compositions(total: int, parts: int) -> Iterator[tuple[int, ...]]:
    """Ways to write a number as an ordered sum of positive parts."""
    if parts == 0:
        if total == 0:
            yield ()
        return
    for first in range(1, total - parts + 2):
        for rest in _compositions(total - first, parts - 1):
            yield first, *rest


def _largest_size(fgg: FGG) -> int | None:
    """Rules in the largest derivation of the start symbol; None if there is no largest, 0 if there is none at all."""
    grammar = fgg.grammar
    useless = grammar.useless()
    useful = [label for label in grammar.nonterminals if label not in useless.unreachable + useless.unproductive]
    uses = {
        label: [
            edge.label
            for rule in grammar.rules_of[label]
            if all(e.label in useful for e in grammar.nonterminal_edges(rule))
            for edge in grammar.nonterminal_edges(rule)
        ]
        for label in useful
    }
    sizes: dict[str, int] = {}
    for component in strong_components(uses):
        if is_recursive(component, uses):
            return None
        [label] = component
        sizes[label] = max(
            1 + sum(sizes[edge.label] for edge in grammar.nonterminal_edges(rule))
            for rule in grammar.rules_of[label]
            if all(edge.label in sizes for edge in grammar.nonterminal_edges(rule))
        )
    return sizes.get(fgg.start, 0)
