"""The generative story: derivations, the factor graphs they yield, and Z by enumerating them."""

from collections.abc import Iterator, Mapping, Sequence
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
from rankspace.fgg.grammar import Grammar, Rule


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

        A node is named by the path of edges to the rule that made it: "e2/e0/t2" (a "/" in an identifier reads "~1",
        a "~" reads "~0").
        """
        graph = FactorGraph({}, [], {})
        waiting: list[tuple[Derivation, str, dict[str, str]]] = [(self, "", {})]
        while waiting:
            here, path, given = waiting.pop()
            name = {node.id: given.get(node.id, path + _escaped(node.id)) for node in here.rule.rhs.nodes}
            graph.sizes |= {name[node.id]: fgg.size(node.label) for node in here.rule.rhs.nodes}
            graph.assignment |= {name[node]: value for node, value in here.assignment.items()}
            for edge in here.rule.rhs.edges:
                ends = tuple(name[node] for node in edge.nodes)
                if edge.id in here.children:
                    child = here.children[edge.id]
                    met = dict(zip(child.rule.rhs.external, ends, strict=True))
                    waiting.append((child, f"{path}{_escaped(edge.id)}/", met))
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
    if (limit is not None and limit < 0) or (max_size is not None and max_size < 0):
        raise GrammarError("enumerate_derivations: limit and max_size are numbers from 0 on.")
    largest = _largest_size(fgg)
    if largest is None and limit is None and max_size is None:
        raise GrammarError(
            "enumerate_derivations: the grammar has infinitely many derivations; give limit or max_size."
        )
    bound = min((size for size in (largest, max_size) if size is not None), default=None)
    return _up_to(fgg, bound, limit)


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


def _up_to(fgg: FGG, bound: int | None, limit: int | None) -> Iterator[Derivation]:
    by_size = _BySize(fgg)
    count, size = 0, 0
    while bound is None or size < bound:
        size += 1
        for derivation in by_size.of(fgg.start, size):
            if limit is not None and count >= limit:
                return
            yield derivation
            count += 1
        if limit is not None and count >= limit:
            return


class _BySize:
    """All derivations of a nonterminal that use exactly a given number of rules."""

    def __init__(self, fgg: FGG) -> None:
        self.grammar = fgg.grammar
        self.smallest = _smallest_sizes(fgg.grammar)
        self.known: dict[tuple[str, int], list[Derivation]] = {}

    def of(self, label: str, size: int) -> list[Derivation]:
        waiting = [(label, size)]  # a stack, since derivations of long sentences are deep
        while waiting:
            here = waiting[-1]
            missing = [part for parts in self._parts(*here) for part in parts if part not in self.known]
            if missing:
                waiting.extend(missing)
            else:
                self.known[here] = list(self._built(*here))
                waiting.pop()
        return self.known[label, size]

    def _built(self, label: str, size: int) -> Iterator[Derivation]:
        for rule in self.grammar.rules_of[label]:
            edges = [edge.id for edge in self.grammar.nonterminal_edges(rule)]
            for parts in self._ways(rule, size):
                for children in product(*(self.known[part] for part in parts)):
                    yield Derivation(rule, dict(zip(edges, children, strict=True)))

    def _parts(self, label: str, size: int) -> Iterator[tuple[tuple[str, int], ...]]:
        return (parts for rule in self.grammar.rules_of[label] for parts in self._ways(rule, size))

    def _ways(self, rule: Rule, size: int) -> Iterator[tuple[tuple[str, int], ...]]:
        """Sizes of the children of a rule, with their labels, that make a derivation of a given size."""
        labels = [edge.label for edge in self.grammar.nonterminal_edges(rule)]
        if all(label in self.smallest for label in labels):
            for sizes in _compositions(size - 1, [self.smallest[label] for label in labels]):
                yield tuple(zip(labels, sizes, strict=True))


def _compositions(total: int, smallest: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Ways to write a number as an ordered sum of parts that are not smaller than the given ones."""
    if not smallest:
        if total == 0:
            yield ()
        return
    least, *others = smallest
    for first in range(least, total - sum(others) + 1) if others else (total,) * (total >= least):
        for rest in _compositions(total - first, others):
            yield first, *rest


def _smallest_sizes(grammar: Grammar) -> dict[str, int]:
    """Rules in the smallest derivation of each nonterminal that has one."""
    sizes: dict[str, int] = {}
    for component in strong_components(grammar.uses):
        for _ in component:  # a smallest derivation repeats no nonterminal on a path
            for label in component:
                found = [
                    1 + sum(sizes[edge.label] for edge in grammar.nonterminal_edges(rule))
                    for rule in grammar.rules_of[label]
                    if all(edge.label in sizes for edge in grammar.nonterminal_edges(rule))
                ]
                if found:
                    sizes[label] = min(found)
    return sizes


def _largest_size(fgg: FGG) -> int | None:
    """Rules in the largest derivation of the start symbol; None if there is no largest, 0 if there is none at all."""
    grammar = fgg.grammar
    edges: dict[str, list[list[str]]] = {}
    for rule in grammar.useful_rules:
        edges.setdefault(rule.lhs, []).append([edge.label for edge in grammar.nonterminal_edges(rule)])
    uses = {label: [name for names in rules for name in names] for label, rules in edges.items()}
    sizes: dict[str, int] = {}
    for component in strong_components(uses):
        if is_recursive(component, uses):
            return None
        [label] = component
        sizes[label] = max(1 + sum(sizes[name] for name in names) for names in edges[label])
    return sizes.get(fgg.start, 0)


def _escaped(identifier: str) -> str:
    return identifier.replace("~", "~0").replace("/", "~1")
