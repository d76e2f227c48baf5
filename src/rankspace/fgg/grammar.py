"""Hyperedge replacement grammars: definition 4 of the paper."""

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from rankspace.errors import GrammarError
from rankspace.fgg.components import strong_components
from rankspace.fgg.hypergraph import Edge, Fragment


@dataclass(frozen=True)
class Rule:
    """X -> R: an edge labelled `lhs` may be replaced by the fragment `rhs`."""

    lhs: str
    rhs: Fragment
    name: str = ""

    @classmethod
    def build(
        cls,
        lhs: str,
        nodes: Mapping[str, str],
        edges: Iterable[Sequence[str]] = (),
        external: Sequence[str] = (),
        name: str = "",
    ) -> "Rule":
        """A rule as one writes it down; see `Fragment.build`. Mistakes in it are reported with the rule's name."""
        try:
            return cls(lhs, Fragment.build(nodes, edges, external), name)
        except GrammarError as error:
            raise GrammarError(f"rule {name or '?'} of {lhs}: {error}") from None

    def __str__(self) -> str:
        return f"rule {self.name or '?'} of {self.lhs}"


class Useless(NamedTuple):
    """Nonterminals that no derivation of the start symbol can use, or that derive nothing."""

    unreachable: tuple[str, ...]
    unproductive: tuple[str, ...]


@dataclass(frozen=True)
class Grammar:
    """(N, T, P, S). `terminals` and `nonterminals` give the type of each label: the node labels of its endpoints.

    Construction checks every definition and raises GrammarError with the rule and label that break it.
    `open_start=True` admits a start symbol with endpoints: its sum-product is then a tensor over them.
    """

    start: str
    rules: tuple[Rule, ...]
    terminals: Mapping[str, tuple[str, ...]]
    nonterminals: Mapping[str, tuple[str, ...]]
    open_start: bool = False

    def __post_init__(self) -> None:
        for label in self.terminals:
            if label in self.nonterminals:
                raise GrammarError(
                    f"label {label!r}{self._place_of(label)} is both a terminal and a nonterminal; rename one of them."
                )
        self._check_start()
        for rule in self.rules:
            self._check_rule(rule)
        for label in self.nonterminals:
            if label not in self.rules_of:
                raise GrammarError(
                    f"nonterminal {label!r}{self._place_of(label)} has no rule; give it one or remove it."
                )

    def _check_start(self) -> None:
        if self.start not in self.nonterminals:
            raise GrammarError(f"start symbol {self.start!r} is not a nonterminal; give it a rule.")
        endpoints = self.nonterminals[self.start]
        if endpoints and not self.open_start:
            culprit = next((str(rule) for rule in self.rules if rule.lhs == self.start), "no rule")
            raise GrammarError(
                f"start symbol {self.start!r} has {len(endpoints)} endpoint(s) ({', '.join(endpoints)}; {culprit}) but "
                f"takes none; add a rule that sums them out, or pass open_start=True for a tensor over them."
            )

    def _check_rule(self, rule: Rule) -> None:
        if rule.lhs not in self.nonterminals:
            raise GrammarError(f"{rule}: left-hand side {rule.lhs!r} is not a nonterminal; declare it as one.")
        ends = tuple(rule.rhs.label_of[node] for node in rule.rhs.external)
        if ends != self.nonterminals[rule.lhs]:
            raise GrammarError(
                f"{rule}: external nodes have labels ({', '.join(ends)}) but {rule.lhs!r} has endpoints "
                f"({', '.join(self.nonterminals[rule.lhs])}); make them agree."
            )
        for edge in rule.rhs.edges:
            self._check_edge(rule, edge)

    def _check_edge(self, rule: Rule, edge: Edge) -> None:
        expected = self.type_of(edge.label)
        if expected is None:
            raise GrammarError(
                f"{rule}: edge {edge.id!r} has the unknown label {edge.label!r}; give it a factor or a rule."
            )
        if len(edge.nodes) != len(expected):
            raise GrammarError(
                f"{rule}: edge {edge.id!r} joins {len(edge.nodes)} node(s) but its label {edge.label!r} takes "
                f"{len(expected)} ({', '.join(expected)})."
            )
        for node, label in zip(edge.nodes, expected, strict=True):
            if rule.rhs.label_of[node] != label:
                raise GrammarError(
                    f"{rule}: edge {edge.id!r} with label {edge.label!r} joins node {node!r} of label "
                    f"{rule.rhs.label_of[node]!r} where it takes {label!r}."
                )

    def _place_of(self, label: str) -> str:
        """The first rule that rewrites or uses an edge label, in brackets; nothing where there is none."""
        places = (r for r in self.rules if r.lhs == label or any(edge.label == label for edge in r.rhs.edges))
        return next((f" ({rule})" for rule in places), "")

    def type_of(self, label: str) -> tuple[str, ...] | None:
        """Node labels of the endpoints of an edge label, or None if the label is unknown."""
        return self.terminals.get(label, self.nonterminals.get(label))

    @cached_property
    def rules_of(self) -> Mapping[str, tuple[Rule, ...]]:
        """Rules by left-hand side, in order; labels without a rule are absent."""
        found: dict[str, list[Rule]] = {}
        for rule in self.rules:
            found.setdefault(rule.lhs, []).append(rule)
        return {label: tuple(rules) for label, rules in found.items()}

    def nonterminal_edges(self, rule: Rule) -> tuple[Edge, ...]:
        return tuple(edge for edge in rule.rhs.edges if edge.label in self.nonterminals)

    def terminal_edges(self, rule: Rule) -> tuple[Edge, ...]:
        return tuple(edge for edge in rule.rhs.edges if edge.label in self.terminals)

    @cached_property
    def uses(self) -> Mapping[str, tuple[str, ...]]:
        """Nonterminals on the right-hand sides of each nonterminal, without repeats."""
        return {
            label: tuple(dict.fromkeys(e.label for rule in self.rules_of[label] for e in self.nonterminal_edges(rule)))
            for label in self.nonterminals
        }

    @cached_property
    def productive(self) -> frozenset[str]:
        """Nonterminals that derive at least one factor graph."""
        found: set[str] = set()
        for component in strong_components(self.uses):
            for _ in component:  # each round but the last finds at least one more
                fresh = [
                    label
                    for label in component
                    if label not in found and any(self._finishes(rule, found) for rule in self.rules_of[label])
                ]
                found.update(fresh)
                if not fresh:
                    break
        return frozenset(found)

    def _finishes(self, rule: Rule, labels: Container[str]) -> bool:
        return all(edge.label in labels for edge in self.nonterminal_edges(rule))

    @cached_property
    def useful_rules(self) -> tuple[Rule, ...]:
        """Rules that some derivation of the start symbol uses, in order."""
        finishing = [rule for rule in self.rules if self._finishes(rule, self.productive)]
        uses: dict[str, list[str]] = {}
        for rule in finishing:
            uses.setdefault(rule.lhs, []).extend(edge.label for edge in self.nonterminal_edges(rule))
        reached = _reached(self.start, uses)
        return tuple(rule for rule in finishing if rule.lhs in reached)

    def useless(self) -> Useless:
        """Nonterminals that are unreachable from the start symbol or that derive no factor graph."""
        reached = _reached(self.start, self.uses)
        return Useless(
            unreachable=tuple(label for label in self.nonterminals if label not in reached),
            unproductive=tuple(label for label in self.nonterminals if label not in self.productive),
        )


def _reached(start: str, uses: Mapping[str, Sequence[str]]) -> set[str]:
    """Labels that can be reached; labels that are not among the keys use nothing."""
    reached, waiting = {start}, [start]
    while waiting:
        fresh = [label for label in dict.fromkeys(uses.get(waiting.pop(), ())) if label not in reached]
        reached.update(fresh)
        waiting.extend(fresh)
    return reached


def named(rules: Iterable[Rule]) -> tuple[Rule, ...]:
    """The rules with a name each: rules without one are called by their place, counted from 1."""
    return tuple(rule if rule.name else Rule(rule.lhs, rule.rhs, f"#{i}") for i, rule in enumerate(rules, start=1))
