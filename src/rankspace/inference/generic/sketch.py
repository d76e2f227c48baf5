"""Items and rule applications of one sentence (or one conjoined grammar) as arrays: what depends on what.

An item is a nonterminal over a stretch of the sentence. Rule applications are sorted by shape: two have the same shape
when they differ only in the items and words they touch, so that one batched contraction can serve them all.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from rankspace.errors import GrammarError
from rankspace.fgg import FGG, Indicator, Rule
from rankspace.fgg.observation import Reading

Numbers = np.ndarray


class Part(NamedTuple):
    """A factor or a nonterminal slot of a shape: its label (or type) and the places of its nodes."""

    name: str | tuple[str, ...]
    nodes: tuple[int, ...]


@dataclass(frozen=True)
class Shape:
    """A right-hand side without the items and words it is applied to. Nodes are numbered by place."""

    labels: tuple[str, ...]  # node labels
    external: tuple[int, ...]
    factors: tuple[Part, ...]
    slots: tuple[Part, ...]
    observed: tuple[int, ...]  # nodes whose value is given by a word


class Applications(NamedTuple):
    """All applications of one shape: rows are applications."""

    lhs: Numbers  # [application]
    children: Numbers  # [application, slot]
    words: Numbers  # [application, observed]: positions in the sentence


@dataclass(frozen=True)
class Sketch:
    """The items of one sentence with their types and levels, and the applications of each shape."""

    root: int
    types: tuple[tuple[str, ...], ...]  # of each item: node labels of its nonterminal's endpoints
    levels: Numbers  # [item]: 0 without children, else one above the highest child
    applications: dict[Shape, Applications]


class _Builder:
    """Collects applications; items are numbered in the order in which they are first named."""

    def __init__(self) -> None:
        self.items: dict[object, int] = {}
        self.types: list[tuple[str, ...]] = []
        self.rows: dict[Shape, list[tuple[int, tuple[int, ...], tuple[int, ...]]]] = {}

    def item(self, key: object, ends: tuple[str, ...]) -> int:
        if key not in self.items:
            self.items[key] = len(self.items)
            self.types.append(ends)
        return self.items[key]

    def add(self, shape: Shape, lhs: int, children: Iterable[int], words: Iterable[int]) -> None:
        self.rows.setdefault(shape, []).append((lhs, tuple(children), tuple(words)))

    def finish(self, root: int) -> Sketch:
        applications = {
            shape: Applications(
                np.array([lhs for lhs, _, _ in rows], dtype=np.int64),
                np.array([children for _, children, _ in rows], dtype=np.int64).reshape(len(rows), len(shape.slots)),
                np.array([words for _, _, words in rows], dtype=np.int64).reshape(len(rows), len(shape.observed)),
            )
            for shape, rows in self.rows.items()
        }
        names = list(self.items)
        return Sketch(root, tuple(self.types), _levels(names, applications.values()), applications)


def sketch_sentence(reading: Reading, length: int, open_words: Sequence[int] = ()) -> Sketch | None:
    """The items of a grammar over a sentence of some length; None if it has no derivation of that length.

    `open_words` are the positions that are summed over instead of observed.
    """
    fgg = reading.fgg
    builder = _Builder()
    shapes: dict[tuple[int, tuple[str, ...]], Shape] = {}
    for instance in reading.instances(length):
        given = tuple((node, position) for node, position in instance.words if position not in open_words)
        key = (id(instance.rule), tuple(node for node, _ in given))
        if key not in shapes:
            shapes[key] = _shape(fgg, instance.rule, key[1])
        lhs = builder.item(instance.lhs, fgg.grammar.nonterminals[instance.lhs.label])
        children = [builder.item(child, fgg.grammar.nonterminals[child.label]) for child in instance.children]
        builder.add(shapes[key], lhs, children, [position for _, position in given])
    return builder.finish(0) if builder.rows else None


def sketch_grammar(fgg: FGG) -> tuple[Sketch, list[int]]:
    """The nonterminals of a conjoined grammar as items, and the words its indicators name."""
    builder = _Builder()
    words: list[int] = []
    root = builder.item(fgg.start, fgg.grammar.nonterminals[fgg.start])
    for rule in fgg.rules:
        indicators: dict[str, str] = {}
        for edge in rule.rhs.edges:
            if _is_indicator(fgg, edge.label):
                indicators.setdefault(edge.nodes[0], edge.label)  # a second one at a node stays a factor
        lhs = builder.item(rule.lhs, fgg.grammar.nonterminals[rule.lhs])
        edges = fgg.grammar.nonterminal_edges(rule)
        children = [builder.item(edge.label, fgg.grammar.nonterminals[edge.label]) for edge in edges]
        places = range(len(words), len(words) + len(indicators))
        words += [factor.index for label in indicators.values() if isinstance(factor := fgg.factors[label], Indicator)]
        builder.add(_shape(fgg, rule, tuple(indicators)), lhs, children, places)
    return builder.finish(root), words


def _is_indicator(fgg: FGG, label: str) -> bool:
    return isinstance(fgg.factors.get(label), Indicator)


def _shape(fgg: FGG, rule: Rule, observed: Sequence[str]) -> Shape:
    place = {node.id: i for i, node in enumerate(rule.rhs.nodes)}
    factors: list[Part] = []
    watched = list(observed)
    for edge in fgg.grammar.terminal_edges(rule):
        if _is_indicator(fgg, edge.label) and edge.nodes[0] in watched:
            watched.remove(edge.nodes[0])
        else:
            factors.append(Part(edge.label, tuple(place[node] for node in edge.nodes)))
    slots = [
        Part(fgg.grammar.nonterminals[edge.label], tuple(place[node] for node in edge.nodes))
        for edge in fgg.grammar.nonterminal_edges(rule)
    ]
    return Shape(
        tuple(node.label for node in rule.rhs.nodes),
        tuple(place[node] for node in rule.rhs.external),
        tuple(factors),
        tuple(slots),
        tuple(place[node] for node in observed),
    )


def _levels(names: Sequence[object], groups: Iterable[Applications]) -> Numbers:
    """Longest distance of each item from the items without children."""
    users: list[list[int]] = [[] for _ in names]
    waiting_for = np.zeros(len(names), dtype=np.int64)
    for applications in groups:
        for lhs, children in zip(applications.lhs.tolist(), applications.children.tolist(), strict=True):
            waiting_for[lhs] += len(children)
            for child in children:
                users[child].append(lhs)
    levels = np.zeros(len(names), dtype=np.int64)
    ready = [item for item in range(len(names)) if waiting_for[item] == 0]
    done = 0
    while ready:
        item = ready.pop()
        done += 1
        for user in users[item]:
            levels[user] = max(levels[user], levels[item] + 1)
            waiting_for[user] -= 1
            if waiting_for[user] == 0:
                ready.append(user)
    if done < len(names):
        stuck = names[_on_a_cycle(int(np.flatnonzero(waiting_for)[0]), waiting_for, users)]
        raise GrammarError(
            f"generic engine: {stuck} depends on itself; observe a sentence, or use sum_product, which can go round "
            f"cycles."
        )
    return levels


def _on_a_cycle(item: int, waiting_for: Numbers, users: Sequence[Sequence[int]]) -> int:
    """An item that depends on itself, found by going from one that waits to one it waits for until one comes twice."""
    below: dict[int, int] = {}
    for child, parents in enumerate(users):
        if waiting_for[child] > 0:
            below |= dict.fromkeys(parents, child)
    seen: set[int] = set()
    while item not in seen:
        seen.add(item)
        item = below[item]
    return item
