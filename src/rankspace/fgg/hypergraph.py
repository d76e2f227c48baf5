"""Hypergraphs and fragments: definitions 1 and 3 of the paper."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from rankspace.errors import GrammarError


@dataclass(frozen=True)
class Node:
    """A variable of a factor graph; its label decides its domain."""

    id: str
    label: str


@dataclass(frozen=True)
class Edge:
    """A hyperedge: a factor if its label is terminal, a place to rewrite if it is nonterminal."""

    id: str
    label: str
    nodes: tuple[str, ...]  # att(e): identifiers of its endpoints, not necessarily distinct


@dataclass(frozen=True)
class Hypergraph:
    """Nodes and edges in a fixed order (V, E, att, lab).

    The order carries no weight, but queries read it: the words of a rule stand in the order of its edges.
    Raises GrammarError on identifiers used twice and on edges that join unknown nodes.
    """

    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]

    def __post_init__(self) -> None:
        _refuse_repeats("node", [node.id for node in self.nodes])
        _refuse_repeats("edge", [edge.id for edge in self.edges])
        for edge in self.edges:
            for node in edge.nodes:
                if node not in self.label_of:
                    raise GrammarError(
                        f"edge {edge.id!r} with label {edge.label!r} joins node {node!r}, which does not exist; "
                        f"the nodes are {', '.join(map(repr, self.label_of)) or '(none)'}."
                    )

    @cached_property
    def label_of(self) -> Mapping[str, str]:
        """Label of each node by its identifier."""
        return {node.id: node.label for node in self.nodes}

    @cached_property
    def edges_at(self) -> Mapping[str, tuple[Edge, ...]]:
        """Edges that touch each node, in order."""
        return {node.id: tuple(edge for edge in self.edges if node.id in edge.nodes) for node in self.nodes}


@dataclass(frozen=True)
class Fragment(Hypergraph):
    """A hypergraph with an ordered list of distinct external nodes, through which it meets its surroundings."""

    external: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        for node in self.external:
            if node not in self.label_of:
                raise GrammarError(f"external node {node!r} does not exist; list it among the nodes.")
        _refuse_repeats("external node", self.external)

    @classmethod
    def build(
        cls,
        nodes: Mapping[str, str],
        edges: Iterable[Sequence[str]] = (),
        external: Sequence[str] = (),
    ) -> "Fragment":
        """A fragment as one writes it down.

        `nodes` maps identifiers to labels; each edge is (label, endpoint, endpoint, ...) and is named by its place.

            Fragment.build({"t1": "T", "t2": "T"}, [("transition", "t1", "t2"), ("X", "t2")], external=["t1"])
        """
        edges = list(edges)
        for given in (external, *edges):
            if isinstance(given, str):
                raise GrammarError(f"{given!r} is one string where a list of names belongs; write [{given!r}].")
        return cls(
            nodes=tuple(Node(name, label) for name, label in nodes.items()),
            edges=tuple(Edge(f"e{i}", label, tuple(ends)) for i, (label, *ends) in enumerate(edges)),
            external=tuple(external),
        )


def _refuse_repeats(kind: str, names: Sequence[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise GrammarError(f"{kind} {name!r} occurs twice; each may occur once.")
        seen.add(name)
