"""Trees top-down from a chart: drawn from the posterior, or the best one, level by level over all trees at once."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from rankspace.inference.dense_tree.choices import Places, division, portions, ways
from rankspace.inference.dense_tree.groups import BUDGET
from rankspace.inference.dense_tree.log_space import LogChart, LogWeights
from rankspace.inference.ragged import Ragged
from rankspace.inference.tree.nodes import Nodes

# (log weights [group, way], group of each node [node]) -> way of each node
Choose = Callable[[Tensor, Tensor], Tensor]


class _Level(NamedTuple):
    tree: Int[Tensor, "node"]
    spans: Places
    symbol: Int[Tensor, "node"]

    def at(self, index: Tensor) -> "_Level":
        return _Level(self.tree[index], self.spans.at(index), self.symbol[index])


def trace(
    weights: LogWeights, chart: LogChart, layout: Ragged, num: int, choose: Choose, skip: Tensor | None = None
) -> Nodes:
    """`num` trees of every sentence that has a derivation and is not to be skipped ([places]).

    Tree s * num + i is the i-th of sentence s. A tree of n words takes as many rounds as it is deep; nodes of different
    trees that are divided alike are weighed once.
    """
    possible = chart.log_z > -torch.inf
    place = (possible if skip is None else possible & ~skip).nonzero()[:, 0].repeat_interleave(num)
    tree = layout.sentence_at[place] * num + torch.arange(len(place), device=place.device) % num
    width = layout.length_at[place]
    spans = Places(place, torch.zeros_like(place), width)
    rows = chart.spans[layout.whole[place] - layout.num_tokens]
    root = weights.root.expand(len(layout.lengths), -1)[place] if len(place) else rows
    level = _Level(tree, spans, choose(rows + root, torch.arange(len(place), device=place.device)))
    found = [Nodes(*(place[:0],) * 5)]
    while len(level.tree):
        branching = (level.spans.width > 1).nonzero()[:, 0]
        parents = level.at(branching)
        rows = _rule_rows(weights, chart, layout, parents, choose)
        found.append(_nodes(level, torch.full_like(level.symbol, -1).index_copy(0, branching, rows)))
        level = _children(weights, chart, layout, parents, rows, choose)
    return Nodes.joined(found)


def _nodes(level: _Level, rank: Int[Tensor, "node"]) -> Nodes:
    return Nodes(level.tree, level.spans.begin, level.spans.begin + level.spans.width, level.symbol, rank)


def _children(
    weights: LogWeights, chart: LogChart, layout: Ragged, level: _Level, rows: Int[Tensor, "node"], choose: Choose
) -> _Level:
    (place, begin, width), count = level.spans, weights.rule.shape[1]
    where = layout.row(place, begin, width) * count + rows
    distinct, group = torch.unique(where, return_inverse=True)
    first = _first_of(group, len(distinct))
    spans, rows = level.spans.at(first), rows[first]
    parts = []
    for portion in portions(spans, weights):
        log = ways(weights, chart, layout, spans.at(portion), rows[portion])
        number = torch.full_like(distinct, -1).index_copy(0, portion, torch.arange(len(portion), device=place.device))
        members = (number[group] >= 0).nonzero()[:, 0]
        way = choose(log, number[group[members]])
        parts.append(_divided(weights, level.at(members), way))
    return _Level(*_joined(parts)) if parts else level


def _rule_rows(weights: LogWeights, chart: LogChart, layout: Ragged, level: _Level, choose: Choose) -> Tensor:
    """The rank that each node goes through; its symbol where there is no head."""
    if weights.head is None or chart.ranks is None:
        return level.symbol
    rows = layout.row(*level.spans) - layout.num_tokens
    found = [level.symbol[:0]]
    for part in torch.arange(len(rows), device=rows.device).split(max(1, BUDGET // weights.sizes[2])):
        place = level.spans.place[part] if weights.per_sentence else torch.zeros_like(part)
        log = weights.head[place, level.symbol[part]] + chart.ranks[rows[part]]
        found.append(choose(log, torch.arange(len(part), device=rows.device)))
    return torch.cat(found)


def _first_of(group: Int[Tensor, "node"], count: int) -> Int[Tensor, "group"]:
    """Some node of every group: the first."""
    order = torch.argsort(group, stable=True)
    size = torch.bincount(group, minlength=count)
    return order[size.cumsum(0) - size]


def _divided(weights: LogWeights, level: _Level, way: Int[Tensor, "node"]) -> _Level:
    (place, begin, width), found = level.spans, division(weights, level.spans, way)
    return _Level(
        torch.cat([level.tree, level.tree]),
        Places(
            torch.cat([place, place]),
            torch.cat([begin, begin + found.left_width]),
            torch.cat([found.left_width, width - found.left_width]),
        ),
        torch.cat([found.left, found.right]),
    )


def _joined(parts: list[_Level]) -> tuple[Tensor, Places, Tensor]:
    tree = torch.cat([part.tree for part in parts])
    spans = Places(*(torch.cat(column) for column in zip(*(part.spans for part in parts), strict=True)))
    return tree, spans, torch.cat([part.symbol for part in parts])


def best_way(log: Float[Tensor, "group way"], group: Int[Tensor, "node"]) -> Int[Tensor, "node"]:
    """The heaviest way; the first of equal ones."""
    return log.argmax(1)[group]


def drawn(generator: torch.Generator | None) -> Choose:
    """Draws ways by their weights, by inverse cumulated weights in float64. What has weight zero is never drawn."""

    def choose(log: Float[Tensor, "group way"], group: Int[Tensor, "node"]) -> Int[Tensor, "node"]:
        if not len(group):
            return group
        log = log.double()
        cumulated = (log - log.amax(1, keepdim=True)).exp().cumsum(1)
        device = log.device if generator is None else generator.device
        uniform = torch.rand(len(group), dtype=torch.float64, generator=generator, device=device).to(log.device)
        total = cumulated[group, -1]
        threshold = torch.minimum(uniform * total, torch.nextafter(total, torch.zeros_like(total)))
        return _searched(cumulated, group, threshold)

    return choose


def _searched(cumulated: Float[Tensor, "group way"], group: Tensor, threshold: Tensor) -> Int[Tensor, "node"]:
    """First way whose cumulated weight is above a node's threshold; nodes of a group side by side in one search."""
    order = torch.argsort(group, stable=True)
    size = torch.bincount(group, minlength=len(cumulated))
    column = torch.arange(len(group), device=group.device) - (size.cumsum(0) - size)[group[order]]
    table = threshold.new_zeros(len(cumulated), int(size.max()))
    table[group[order], column] = threshold[order]
    found = torch.searchsorted(cumulated, table, right=True)[group[order], column]
    return torch.empty_like(found).index_copy(0, order, found)
