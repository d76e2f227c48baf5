"""Where the words and nodes of a tree stand. Geometry alone, in pixels, y downwards; nothing recurses.

A sentence is a row of columns, one for each word. All that belongs to a node (its label, and the lines to its children)
stays within the columns of its span and above its children, and a node is as high as the tallest tree below it is deep.
So nothing meets anything else, whatever the tree.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import NamedTuple

from rankspace.trees import Tree
from rankspace.trees.nodes import Node

GAP = 12.0  # between words, and between the labels of neighbours
LABEL = 18.0  # the height of a label, and of the line of words
STEM = 5.0  # from a label down to the bar over its children
LEVELS = (29.0, 46.0)  # the least and greatest distance between levels
HEIGHT = 620.0  # of a tree for which the distance is in between


class Placed(NamedTuple):
    """A node: the point in the middle of its label, and what hangs on it, from left to right."""

    x: float
    y: float
    children: tuple[int, ...]  # positions in `Tree.nodes`, and -1 - i for word i


@dataclass(frozen=True)
class TreeLayout:
    """Nodes in the order of `Tree.nodes`, and the middle of each word; the box of it all begins at the origin."""

    nodes: list[Placed]
    words: list[tuple[float, float]]
    width: float
    height: float


def column_widths(words: Sequence[float], labels: Sequence[tuple[Node, float]]) -> list[float]:
    """The width of each word's column: room for the word, and for each node's label within the columns of its span.

    The words' own widths and those of labels are given; where several trees share the columns, for all of their nodes.
    """
    widths = [width + GAP for width in words]
    for (begin, end, _), width in sorted(labels, key=lambda pair: pair[0].end - pair[0].begin):
        missing = width + GAP - sum(widths[begin:end])
        if missing > 0:
            widths[begin:end] = [width + missing / (end - begin) for width in widths[begin:end]]
    return widths


def lay_out(tree: Tree, widths: Sequence[float], labels: Sequence[float]) -> TreeLayout:
    """The tree over columns of the given widths, which must leave room for its labels."""
    edges = [0.0, *accumulate(widths)]
    children = children_of(tree)
    levels = _levels(children)
    pitch = min(max(HEIGHT / levels[0], LEVELS[0]), LEVELS[1])
    base = levels[0] * pitch + LABEL / 2
    words = [((left + right) / 2, base) for left, right in pairwise(edges)]
    xs = _middles(tree, children, edges, labels)
    placed = [Placed(x, base - level * pitch, tuple(each)) for x, level, each in zip(xs, levels, children, strict=True)]
    return TreeLayout(placed, words, edges[-1], base + LABEL / 2)


def _middles(
    tree: Tree, children: Sequence[Sequence[int]], edges: Sequence[float], labels: Sequence[float]
) -> list[float]:
    """Each node between its first and last child, as far as its label stays within its columns."""
    xs = [0.0] * len(tree.nodes)
    for position in reversed(range(len(tree.nodes))):
        node, half = tree.nodes[position], (labels[position] + GAP) / 2
        ends = children[position][0], children[position][-1]
        first, last = (xs[end] if end >= 0 else (edges[-1 - end] + edges[-end]) / 2 for end in ends)
        xs[position] = min(max((first + last) / 2, edges[node.begin] + half), edges[node.end] - half)
    return xs


def children_of(tree: Tree) -> list[list[int]]:
    """For each node the positions of its children: of nodes in `Tree.nodes`, and -1 - i for word i."""
    children: list[list[int]] = [[] for _ in tree.nodes]
    path: list[int] = []
    for child, begin in _preorder(tree):
        while path and tree.nodes[path[-1]].end <= begin:
            path.pop()
        if path:
            children[path[-1]].append(child)
        if child >= 0:
            path.append(child)
    return children


def _preorder(tree: Tree) -> Iterator[tuple[int, int]]:
    """Nodes and words, each with where it begins, as a reader meets them: nodes before their first word."""
    position = 0
    for place in range(len(tree)):
        while position < len(tree.nodes) and tree.nodes[position].begin == place:
            yield position, place
            position += 1
        yield -1 - place, place


def _levels(children: Sequence[Sequence[int]]) -> list[int]:
    """How far each node is above the words: one more than its highest child."""
    levels = [0] * len(children)
    for position in reversed(range(len(children))):
        levels[position] = 1 + max(0 if child < 0 else levels[child] for child in children[position])
    return levels
