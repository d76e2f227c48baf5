"""Summing the states out of a decomposed B-FGG, once: step (2) of section 4.1.

After decomposition a state node lies between matrices of the rule that made it and of the rules that rewrite its
nonterminal edges. Choosing those rules in advance lets the state be summed out for good: one table per choice.
"""

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from itertools import product
from typing import NamedTuple

import torch

from rankspace.fgg import FGG, Domain, Edge, Factor, Fragment, Grammar, Node, Rule
from rankspace.fgg.contraction import contract
from rankspace.fgg.semirings import Real
from rankspace.lowrank.decomposition import state_labels


class Table(NamedTuple):
    """A table of the new grammar: the product of some factors, summed over a state."""

    name: str
    factors: tuple[str, ...]
    summed: str  # node label of the state
    axes: tuple[str, ...]  # node labels


class Eliminated(NamedTuple):
    """What is left of a grammar: rules over ranks (and states that had to stay), and the tables in order of use."""

    grammar: Grammar
    domains: dict[str, Domain]
    factors: dict[str, Factor]
    tables: tuple[Table, ...]


def eliminate_states(fgg: FGG, ranks: frozenset[str]) -> Eliminated:
    """Sums out every state node of a B-FGG that can be; node labels in `ranks` are ranks.

    See `to_rank_space` for which states go, and for the names of tables and rules.
    """
    return _Elimination(fgg, ranks).run()


class _Head(NamedTuple):
    """How a rule looks from above, once its external node is gone: a matrix (or table) over that node's states."""

    operands: tuple[Edge, ...]  # factors at the external node
    axes: tuple[Node, ...]  # what takes the external node's place: its rank node, or the words written into the parent
    ranked: bool
    name: str


class _Choice(NamedTuple):
    """The rule that rewrites a nonterminal edge, if it was chosen in advance."""

    rule: Rule
    head: _Head


class _Elimination:
    def __init__(self, factored: FGG, ranks: frozenset[str]) -> None:
        self.fgg, self.ranks = factored, ranks
        self.states = state_labels(factored)
        self.heads = {id(rule): self._head(rule) for rule in factored.rules}
        self.tables: dict[tuple[object, ...], Table] = {}
        self.carried: dict[str, str] = {}
        self.names: dict[tuple[str, int], str] = {}  # of the new nonterminals
        self.held: dict[str, str] = {}  # factors of ones, by node label
        self.factors: dict[str, Factor] = {}
        self.terminals: dict[str, tuple[str, ...]] = {}
        self.wanted: list[tuple[str, Rule | None]] = []  # a nonterminal in state space, or one ranked rule of it

    def run(self) -> Eliminated:
        fgg = self.fgg
        start_rules = [
            rule for source in fgg.grammar.rules_of[fgg.start] for rule in self._rewrite(source, fgg.start, None)
        ]
        rules: list[Rule] = []
        nonterminals: dict[str, tuple[str, ...]] = {}
        done: set[tuple[str, int]] = set()
        while self.wanted:
            label, ranked = self.wanted.pop(0)
            key = (label, id(ranked))
            if key in done or label == fgg.start:
                continue
            done.add(key)
            name = self._name(label, ranked)
            if ranked is None:
                nonterminals[name] = fgg.grammar.nonterminals[label]
                rules += [r for source in fgg.grammar.rules_of[label] for r in self._in_state_space(source, name)]
            else:
                rules += self._rewrite(ranked, name, self.heads[id(ranked)])
                nonterminals[name] = tuple(rules[-1].rhs.label_of[node] for node in rules[-1].rhs.external)
        numbered = tuple(Rule(rule.lhs, rule.rhs, f"pi_{i}") for i, rule in enumerate(rules + start_rules, start=1))
        nonterminals[fgg.start] = ()
        return self._finish(numbered, nonterminals)

    def _finish(self, rules: tuple[Rule, ...], nonterminals: Mapping[str, tuple[str, ...]]) -> Eliminated:
        used = {node.label for rule in rules for node in rule.rhs.nodes}
        hidden = self.states | self.ranks
        order = list(dict.fromkeys(e.label for rule in rules for e in rule.rhs.edges if e.label in self.terminals))
        return Eliminated(
            Grammar(self.fgg.start, rules, {label: self.terminals[label] for label in order}, nonterminals),
            {label: domain for label, domain in self.fgg.domains.items() if label in used or label not in hidden},
            {label: self.factors[label] for label in order},
            tuple(sorted(self.tables.values(), key=lambda table: order.index(table.name))),
        )

    # What can be summed out.

    def _head(self, rule: Rule) -> _Head | None:
        """The rule as seen from above, or None if its external node must stay."""
        if not rule.rhs.external:
            return None
        [external] = rule.rhs.external
        at_it = rule.rhs.edges_at[external]
        ranks = self._ranks_beyond(rule, external)
        if ranks is not None and len(ranks) == 1:
            return _Head(at_it, ranks, True, "*".join(edge.label for edge in at_it))
        words = tuple(node for node in rule.rhs.nodes if node.label not in self.states | self.ranks)
        if self.fgg.grammar.nonterminal_edges(rule) or len(words) > 1:
            return None
        plain = len(rule.rhs.edges) == 1 and len(rule.rhs.nodes) == len(rule.rhs.edges[0].nodes)
        return _Head(rule.rhs.edges, words, False, rule.rhs.edges[0].label if plain else rule.name)

    def _ranks_beyond(self, rule: Rule, node: str) -> tuple[Node, ...] | None:
        """Rank nodes joined to a state by matrices, or None if some factor at it is neither matrix nor vector."""
        found: dict[str, Node] = {}
        for edge in rule.rhs.edges_at[node]:
            if edge.label in self.fgg.grammar.nonterminals:
                continue
            others = [other for other in edge.nodes if other != node]
            if len(others) > 1 or any(rule.rhs.label_of[other] not in self.ranks for other in others):
                return None
            found |= {other: Node(other, rule.rhs.label_of[other]) for other in others}
        return tuple(found.values())

    def _summable(self, rule: Rule, node: str) -> bool:
        """Whether an internal state of a rule can be summed out in advance."""
        if self._ranks_beyond(rule, node) is None:
            return False
        below = [edge for edge in rule.rhs.edges_at[node] if edge.label in self.fgg.grammar.nonterminals]
        rules = [child for edge in below for child in self.fgg.grammar.rules_of[edge.label]]
        return all(self.heads[id(child)] is not None for child in rules)

    def _choices(self, label: str) -> list[_Choice]:
        """Rules that may rewrite a nonterminal, the ranked ones first."""
        heads = [(rule, self.heads[id(rule)]) for rule in self.fgg.grammar.rules_of[label]]
        found = [_Choice(rule, head) for rule, head in heads if head is not None]
        return sorted(found, key=lambda choice: not choice.head.ranked)

    # The new rules.

    def _in_state_space(self, rule: Rule, name: str) -> Iterator[Rule]:
        """Rules for a nonterminal that keeps its state: ranked ones pass on to their rank-space form."""
        head = self.heads[id(rule)]
        if head is None or not head.ranked:
            yield from self._rewrite(rule, name, None)
            return
        self.wanted.append((rule.lhs, rule))
        for edge in head.operands:
            self._use(edge.label)
        below = Edge("below", self._name(rule.lhs, rule), (head.axes[0].id,))
        nodes = tuple(n for n in rule.rhs.nodes if n.id in (rule.rhs.external[0], head.axes[0].id))
        yield Rule(name, _renamed(nodes, [*head.operands, below], rule.rhs.external))

    def _rewrite(self, rule: Rule, name: str, head: _Head | None) -> Iterator[Rule]:
        """One new rule for each way to choose the rules below the states that are summed out."""
        gone = [
            node.id
            for node in rule.rhs.nodes
            if node.label in self.states
            and node.id not in rule.rhs.external
            and rule.rhs.edges_at[node.id]
            and self._summable(rule, node.id)
        ]
        slots = [e for e in self.fgg.grammar.nonterminal_edges(rule) if any(node in gone for node in e.nodes)]
        options = [self._choices(edge.label) for edge in reversed(slots)]
        for chosen in product(*options):  # the leftmost slot varies fastest
            choice = {edge.id: pick for edge, pick in zip(slots, reversed(chosen), strict=True)}
            yield self._assemble(rule, name, head, gone, choice)

    def _assemble(
        self, rule: Rule, name: str, head: _Head | None, gone: Sequence[str], choice: Mapping[str, _Choice]
    ) -> Rule:
        outside = set(rule.rhs.external) if head else set()
        nodes = [node for node in rule.rhs.nodes if node.id not in gone and node.id not in outside]
        if head:  # the rank node comes first, in the external node's place
            nodes.sort(key=lambda node: node.id != head.axes[0].id)
        edges: list[Edge] = []
        tabled: set[str] = set()
        for edge in rule.rhs.edges:
            state = next((node for node in edge.nodes if node in gone), None)
            if state is not None and self._is_first_below(rule, edge, state):
                nodes += [node for e in rule.rhs.edges_at[state] for node in _axes_below(e, choice)]
                edges.append(self._table_edge(rule, state, choice))
                tabled.add(edges[-1].id)
            if edge.id in choice:
                edges += self._below(edge, choice[edge.id])
            elif state is None and not outside.intersection(edge.nodes):
                edges.append(self._kept(edge))
        external = (head.axes[0].id,) if head else rule.rhs.external
        return Rule(name, _renamed(nodes, self._in_reading_order(rule, edges, choice, tabled), external))

    def _is_first_below(self, rule: Rule, edge: Edge, state: str) -> bool:
        """A state's table stands where its first nonterminal edge stood, or its first edge if it has none."""
        at_it = rule.rhs.edges_at[state]
        below = [e for e in at_it if e.label in self.fgg.grammar.nonterminals]
        return edge == (below or at_it)[0]

    def _table_edge(self, rule: Rule, state: str, choice: Mapping[str, _Choice]) -> Edge:
        """The factors at a state, multiplied and summed over it: step (2) of section 4.1."""
        names: list[str] = []
        inner_nodes = [state]
        operands: list[tuple[str, tuple[str, ...]]] = []
        axes: list[Node] = list(self._ranks_beyond(rule, state) or ())
        labels = dict(rule.rhs.label_of)
        for edge in rule.rhs.edges_at[state]:
            if edge.id not in choice:
                names.append(edge.label)
                operands.append((edge.label, edge.nodes))
                continue
            pick = choice[edge.id]
            there = {pick.rule.rhs.external[0]: state}
            names.append(pick.head.name)
            for inner in pick.head.operands:
                operands.append((inner.label, tuple(there.get(n, f"{edge.id}/{n}") for n in inner.nodes)))
            labels |= {f"{edge.id}/{node.id}": node.label for node in pick.rule.rhs.nodes}
            if not pick.head.ranked:  # all of its nodes are summed over, also those that nothing touches
                inner_nodes += [f"{edge.id}/{node.id}" for node in pick.rule.rhs.nodes if node.id not in there]
            axes += _axes_below(edge, choice)
        table = self._table("*".join(names), operands, axes, labels, inner_nodes)
        name = _fresh(f"sum.{state}", [edge.id for edge in rule.rhs.edges])
        return Edge(name, table.name, tuple(node.id for node in axes))

    def _table(
        self,
        key: str,
        operands: Sequence[tuple[str, tuple[str, ...]]],
        axes: Sequence[Node],
        labels: Mapping[str, str],
        inside: Sequence[str],
    ) -> Table:
        """A table, computed once however often it is used; `inside` are nodes to sum over, the state first."""
        place: dict[str, int] = {}
        for node in [*(axis.id for axis in axes), *inside, *(node for _, ends in operands for node in ends)]:
            place.setdefault(node, len(place))
        types = tuple(labels[node] for node in place)
        shape = (len(axes), types, tuple((label, tuple(place[n] for n in ends)) for label, ends in operands))
        if shape in self.tables:
            return self.tables[shape]
        name = self._free(self.fgg.table_names.get(key, key))
        inner = [(self.fgg.tensors[label], ends) for label, ends in operands]
        sizes = {node: self.fgg.size(labels[node]) for node in place}
        summed = contract(Real(), inner, [axis.id for axis in axes], sizes, self.fgg.like)
        self._add(name, summed, tuple(axis.label for axis in axes))
        self.tables[shape] = Table(name, tuple(label for label, _ in operands), labels[inside[0]], self.terminals[name])
        return self.tables[shape]

    def _below(self, edge: Edge, pick: _Choice) -> list[Edge]:
        if not pick.head.ranked:
            return []
        self.wanted.append((edge.label, pick.rule))
        [node] = _axes_below(edge, {edge.id: pick})
        return [Edge(edge.id, self._name(edge.label, pick.rule), (node.id,))]

    def _kept(self, edge: Edge) -> Edge:
        """An edge that stays: a factor as it was, or a nonterminal in state space."""
        if edge.label in self.fgg.grammar.nonterminals:
            self.wanted.append((edge.label, None))
            return Edge(edge.id, self._name(edge.label, None), edge.nodes)
        return Edge(edge.id, self._use(edge.label), edge.nodes)

    def _use(self, label: str) -> str:
        """Carries a factor over unchanged, under its name in the new grammar."""
        if label not in self.carried:
            self.carried[label] = self._free(self.fgg.table_names.get(label, label))
            self._add(self.carried[label], self.fgg.factors[label], self.fgg.grammar.terminals[label])
        return self.carried[label]

    def _add(self, name: str, factor: Factor, ends: tuple[str, ...]) -> None:
        self.factors[name], self.terminals[name] = factor, ends

    def _free(self, name: str) -> str:
        return _fresh(name, {*self.terminals, *self.fgg.grammar.nonterminals, *self.names.values()})

    def _name(self, label: str, ranked: Rule | None) -> str:
        """A nonterminal keeps its name unless several new ones come of it; no two have the same."""
        key = (label, id(ranked))
        if key not in self.names:
            rules = self.fgg.grammar.rules_of[label]
            heads = [rule for rule in rules if (head := self.heads[id(rule)]) is not None and head.ranked]
            if ranked is None:
                wanted = f"{label}:state" if heads else label
            else:
                wanted = label if len(heads) == 1 else f"{label}:{ranked.name}"
            taken = {*self.names.values(), *self.terminals}.union(set(self.fgg.grammar.nonterminals) - {label})
            self.names[key] = _fresh(wanted, taken)
        return self.names[key]

    def _in_reading_order(
        self, rule: Rule, edges: list[Edge], choice: Mapping[str, _Choice], tabled: Container[str]
    ) -> list[Edge]:
        """The edges such that words and nonterminals stand in the order in which the original rules read them.

        Only a state that several nonterminal edges share can disturb it: its table touches all words below it at once.
        Then the tables go last and each of their words is held in its place by a factor of ones.
        """
        wanted = self._reading(rule.rhs.edges, rule.rhs.label_of, choice)
        labels = dict(rule.rhs.label_of)
        labels |= {node.id: node.label for edge in rule.rhs.edges for node in _axes_below(edge, choice)}
        if self._reading(edges, labels, {}) == wanted:
            return edges
        tables = [edge for edge in edges if edge.id in tabled]
        rest = [edge for edge in edges if edge not in tables]
        held = {node for edge in tables for node in edge.nodes}
        ordered: list[Edge] = []
        for part in wanted:
            if part in held:
                ordered.append(Edge(f"hold.{part}", self._ones(labels[part]), (part,)))
            else:
                until = next(i for i, edge in enumerate(rest) if part == edge.id or part in edge.nodes)
                ordered += rest[: until + 1]
                rest = rest[until + 1 :]
        return ordered + rest + tables

    def _reading(self, edges: Iterable[Edge], labels: Mapping[str, str], choice: Mapping[str, _Choice]) -> list[str]:
        """Words and nonterminal edges in the order of the edges; a chosen rule stands for the edge it rewrites."""
        parts: dict[str, None] = {}
        for edge in edges:
            parts |= {node: None for node in edge.nodes if labels[node] not in self.states | self.ranks}
            if edge.id in choice and not choice[edge.id].head.ranked:
                parts |= {node.id: None for node in _axes_below(edge, choice)}
            elif edge.label not in self.terminals and edge.label not in self.fgg.grammar.terminals:
                parts |= {edge.id: None}
        return list(parts)

    def _ones(self, label: str) -> str:
        if label not in self.held:
            self.held[label] = self._free(f"any {label}")
            ones = torch.ones(self.fgg.size(label), dtype=self.fgg.dtype, device=self.fgg.device)
            self._add(self.held[label], ones, (label,))
        return self.held[label]


def _fresh(name: str, taken: Container[str]) -> str:
    while name in taken:
        name += "'"
    return name


def _axes_below(edge: Edge, choice: Mapping[str, _Choice]) -> list[Node]:
    """The nodes that a chosen rule puts in place of the state it shares with its parent."""
    if edge.id not in choice:
        return []
    return [Node(f"{edge.id}/{node.id}", node.label) for node in choice[edge.id].head.axes]


def _renamed(nodes: Sequence[Node], edges: Sequence[Edge], external: Sequence[str]) -> Fragment:
    """A fragment with nodes called r1, o2, r3, ... by label and place, as the figures call them."""
    name = {node.id: f"{node.label[:1].lower()}{i}" for i, node in enumerate(nodes, start=1)}
    return Fragment(
        tuple(Node(name[node.id], node.label) for node in nodes),
        tuple(Edge(f"e{i}", edge.label, tuple(name[n] for n in edge.nodes)) for i, edge in enumerate(edges)),
        tuple(name[node] for node in external),
    )
