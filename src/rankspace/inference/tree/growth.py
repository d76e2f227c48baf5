"""Trees from the prior, all at once: every generation of nonterminals branches, until nothing but words is left."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from rankspace.inference.tree.nodes import Nodes

Branch = Callable[[Tensor], tuple[Tensor, Tensor]]  # nonterminals [node] -> symbols of their left and right parts


class _Generation(NamedTuple):
    """Nodes in pairs of siblings: children of node x of `parents` are 2x and 2x + 1."""

    tree: Int[Tensor, "node"]
    symbol: Int[Tensor, "node"]
    parents: Int[Tensor, "branching"]  # which nodes of the generation before branched


def grow(
    roots: Int[Tensor, "tree"], branch: Branch, num_nonterminals: int, max_length: int
) -> tuple[Nodes, Bool[Tensor, "tree"]]:
    """One tree for each root, and which of them were given up because they would have more than `max_length` words.

    Each node has at least one word below it, and each that branches adds a node: a tree of more than `max_length` nodes
    without children is given up at once, so there are at most `max_length` generations, whatever the grammar.
    """
    tree = torch.arange(len(roots), device=roots.device)
    size = torch.ones_like(tree)
    generations = [_Generation(tree, roots, tree[:0])]
    while len(generations[-1].tree):
        last = generations[-1]
        parents = ((last.symbol < num_nonterminals) & (size[last.tree] <= max_length)).nonzero()[:, 0]
        size = size + torch.bincount(last.tree[parents], minlength=len(roots))
        parents = parents[size[last.tree[parents]] <= max_length]
        symbols = torch.stack(branch(last.symbol[parents]), 1).flatten()
        generations.append(_Generation(last.tree[parents].repeat_interleave(2), symbols, parents))
    dropped = size > max_length
    nodes = _placed(generations)
    kept = ~dropped[nodes.tree]
    return nodes.at(kept), dropped


def _placed(generations: list[_Generation]) -> Nodes:
    """Begins and ends: widths from the last generation up, begins from the first one down."""
    widths = [torch.ones_like(generation.tree) for generation in generations]
    for width, below, parents in zip(
        widths[-2::-1], widths[:0:-1], [g.parents for g in generations[:0:-1]], strict=True
    ):
        width[parents] = below.view(-1, 2).sum(1)
    begins = [torch.zeros_like(generations[0].tree)]
    for generation, width in zip(generations[1:], widths[1:], strict=True):
        first = begins[-1][generation.parents]
        begins.append(torch.stack([first, first + width[::2]], 1).flatten())
    begin, width = torch.cat(begins), torch.cat(widths)
    tree, symbol = (torch.cat(column) for column in list(zip(*generations, strict=True))[:2])
    return Nodes(tree, begin, begin + width, symbol)
