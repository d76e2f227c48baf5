"""Labelled spans of many trees at once, as flat tensors: what samplers and Viterbi find, and how it becomes trees."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Int
from torch import Tensor

from rankspace.trees import Node, Tree
from rankspace.trees.nodes import preorder


class Spans(NamedTuple):
    """Some spans of a batch: words begin, ..., end - 1 of a sentence."""

    sentence: Int[Tensor, "span"]
    begin: Int[Tensor, "span"]
    end: Int[Tensor, "span"]


class Nodes(NamedTuple):
    """Nodes of numbered trees, in any order. Symbols: nonterminals first, then preterminals (spans of one word)."""

    tree: Int[Tensor, "node"]
    begin: Int[Tensor, "node"]
    end: Int[Tensor, "node"]
    symbol: Int[Tensor, "node"]
    rank: Int[Tensor, "node"] | None = None  # of the rule that rewrites the node, -1 for words; None: not known

    def at(self, some: Tensor) -> "Nodes":
        rank = None if self.rank is None else self.rank[some]
        return Nodes(self.tree[some], self.begin[some], self.end[some], self.symbol[some], rank)

    @classmethod
    def joined(cls, parts: Sequence["Nodes"]) -> "Nodes":
        if not parts:
            return cls(*(torch.zeros(0, dtype=torch.int64),) * 4)
        ranks = [part.rank for part in parts if part.rank is not None]
        found = cls(*(torch.cat(column) for column in zip(*(part[:4] for part in parts), strict=True)))
        return found._replace(rank=torch.cat(ranks) if len(ranks) == len(parts) else None)


def trees_of(nodes: Nodes, words: Sequence[Sequence[int]]) -> list[Tree | None]:
    """One tree for each sequence of words, from the nodes that bear its number; None where there are none.

    One transfer from the device, then a step for each node.
    """
    found: list[list[Node]] = [[] for _ in words]
    table = torch.stack(nodes[:4], 1).tolist() if len(nodes.tree) else []
    for tree, begin, end, symbol in table:
        found[tree].append(Node(begin, end, symbol))
    return [
        Tree(tuple(sentence), tuple(sorted(own, key=preorder))) if own else None
        for own, sentence in zip(found, words, strict=True)
    ]


def ranks_of(nodes: Nodes, num_trees: int) -> list[list[int] | None]:
    """The ranks of each tree's branching nodes, in preorder; None where a number has no nodes."""
    found: list[list[tuple[int, int, int]]] = [[] for _ in range(num_trees)]
    assert nodes.rank is not None
    for tree, begin, end, rank in torch.stack([nodes.tree, nodes.begin, nodes.end, nodes.rank], 1).tolist():
        if end - begin > 1:
            found[tree].append((begin, -end, rank))
    return [[rank for _, _, rank in sorted(own)] if own else None for own in found]
