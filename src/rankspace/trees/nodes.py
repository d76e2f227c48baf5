"""Nodes of trees: a flat list in preorder, the rules it keeps, and how to walk and build it from left to right."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from rankspace.errors import RankspaceError

Word = str | int
Symbol = str | int | None  # None: the node has no symbol
Span = tuple[int, int] | tuple[int, int, Symbol]


class Node(NamedTuple):
    """A node over words begin, ..., end - 1."""

    begin: int
    end: int
    symbol: Symbol = None


def steps(words: Sequence[Word], nodes: Sequence[Node]) -> Iterator[Node | Word | None]:
    """From left to right: each node where it begins, each word, None where the innermost open node ends."""
    path: list[Node] = []
    position = 0
    for place, word in enumerate(words):
        while position < len(nodes) and nodes[position].begin == place:
            path.append(nodes[position])
            yield path[-1]
            position += 1
        yield word
        while path and path[-1].end == place + 1:
            path.pop()
            yield None


class Assembly:
    """A tree in the making, from left to right."""

    def __init__(self) -> None:
        self.words: list[Word] = []
        self.nodes: list[Node] = []
        self.path: list[int] = []  # positions of the open nodes; their ends are not yet right

    def open(self, symbol: Symbol) -> None:
        self.path.append(len(self.nodes))
        self.nodes.append(Node(len(self.words), len(self.words), symbol))

    def word(self, word: Word) -> None:
        self.words.append(word)

    def close(self) -> bool:
        """Ends the innermost open node; whether it has words."""
        position = self.path.pop()
        self.nodes[position] = self.nodes[position]._replace(end=len(self.words))
        return self.nodes[position].begin < len(self.words)


def preorder(node: Node) -> tuple[int, int]:
    return node.begin, -node.end


def check_names(kind: str, names: Iterable[Word | None]) -> None:
    for position, name in enumerate(names):
        if isinstance(name, str) and name.split() != [name]:
            raise RankspaceError(f"Tree: {kind} {position} is {name!r}; give text without white space, not empty.")


def check_nodes(nodes: Sequence[Node], num_words: int) -> None:
    if not num_words:
        raise RankspaceError("Tree: there are no words; give at least one.")
    for begin, end, _ in nodes:
        if not 0 <= begin < end <= num_words:
            raise RankspaceError(
                f"Tree: the span ({begin}, {end}) leaves the sentence; give 0 <= begin < end <= {num_words}."
            )
    if not nodes or nodes[0][:2] != (0, num_words):
        raise RankspaceError(f"Tree: the first node is not (0, {num_words}); begin with the root, or use from_spans.")
    if any(preorder(one) > preorder(other) for one, other in pairwise(nodes)):
        raise RankspaceError("Tree: the nodes are not in preorder; sort them by begin, wider ones first.")
    _check_crossing(nodes)


def _check_crossing(nodes: Iterable[Node]) -> None:
    """Nodes in preorder cross where one begins within an open one and ends after it."""
    path: list[Node] = []
    for node in nodes:
        while path and path[-1].end <= node.begin:
            path.pop()
        if path and path[-1].end < node.end:
            first, second = path[-1][:2], node[:2]
            raise RankspaceError(f"Tree: the spans {first} and {second} cross; give spans nested or apart.")
        path.append(node)
