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

    @classmethod
    def joined(cls, parts: Sequence["Nodes"]) -> "Nodes":
        none = torch.zeros(0, dtype=torch.int64)
        return cls(*(torch.cat(column) for column in zip(*parts, strict=True))) if parts else cls(*(none,) * 4)


def trees_of(nodes: Nodes, words: Sequence[Sequence[int]]) -> list[Tree | None]:
    """One tree for each sequence of words, from the nodes that bear its number; None where there are none.

    One transfer from the device, then a step for each node.
    """
    found: list[list[Node]] = [[] for _ in words]
    table = torch.stack(nodes, 1).tolist() if len(nodes.tree) else []
    for tree, begin, end, symbol in table:
        found[tree].append(Node(begin, end, symbol))
    return [
        Tree(tuple(sentence), tuple(sorted(own, key=preorder))) if own else None
        for own, sentence in zip(found, words, strict=True)
    ]
