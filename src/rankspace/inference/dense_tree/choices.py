"""How a node of a tree is divided: all ways with their log weights, and one of them, drawn or best.

A node is a span with a row of the rule tensor (a nonterminal, or a rank under a head). Its ways are (split, left
symbol, right symbol), and only those that exist are looked at: two spans at an inner split, a span and a word at either
end, two words. One node of w words takes w m^2 + 2 m p numbers; nodes are done in portions of BUDGET numbers.
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from rankspace.inference.dense_tree.groups import BUDGET
from rankspace.inference.dense_tree.log_space import LogChart, LogWeights
from rankspace.inference.ragged import Ragged


class Places(NamedTuple):
    """Spans of a batch."""

    place: Int[Tensor, "node"]
    begin: Int[Tensor, "node"]
    width: Int[Tensor, "node"]

    def at(self, index: Tensor) -> "Places":
        return Places(*(column[index] for column in self))


class Division(NamedTuple):
    """A node's children: how wide the left one is, and their symbols, preterminals numbered after nonterminals."""

    left_width: Int[Tensor, "node"]
    left: Int[Tensor, "node"]
    right: Int[Tensor, "node"]


def portions(nodes: Places, weights: LogWeights) -> Iterator[Int[Tensor, "node"]]:
    """Numbers of nodes, each once; nodes of two words, which have ways of their own, never with others."""
    order = torch.argsort(nodes.width, stable=True)
    widths = nodes.width[order].tolist()
    start = 0
    while start < len(widths):
        stop, most = start + 1, 0
        while stop < len(widths) and (widths[stop] == 2) == (widths[start] == 2):
            most = num_ways(weights, widths[stop])
            if (stop + 1 - start) * most > BUDGET:
                break
            stop += 1
        yield order[start:stop]
        start = stop


def num_ways(weights: LogWeights, width: int) -> int:
    n, p, _ = weights.sizes
    return p * p if width == 2 else max(width - 3, 0) * n * n + 2 * n * p


def ways(
    weights: LogWeights, chart: LogChart, layout: Ragged, nodes: Places, rows: Int[Tensor, "node"]
) -> Float[Tensor, "node way"]:
    """Log weights of all divisions of nodes that are all of two words or all of more; `rows` of the rule tensor."""
    n = weights.sizes[0]
    rule = weights.rule[nodes.place if weights.per_sentence else torch.zeros_like(nodes.place), rows]
    first = chart.words[layout.row(nodes.place, nodes.begin, 1)]
    last = chart.words[layout.row(nodes.place, nodes.begin + nodes.width - 1, 1)]
    if int(nodes.width[0]) == 2:
        return (rule[:, n:, n:] + first[:, :, None] + last[:, None, :]).flatten(1)
    start = layout.num_tokens
    without_last = chart.spans[layout.row(nodes.place, nodes.begin, nodes.width - 1) - start]
    without_first = chart.spans[layout.row(nodes.place, nodes.begin + 1, nodes.width - 1) - start]
    parts = [
        rule[:, :n, n:] + without_last[:, :, None] + last[:, None, :],
        rule[:, n:, :n] + first[:, :, None] + without_first[:, None, :],
    ]
    inner = _inner(chart, layout, nodes)
    if inner is not None:
        parts.append(rule[:, None, :n, :n] + inner[0][:, :, :, None] + inner[1][:, :, None, :])
    return torch.cat([part.flatten(1) for part in parts], 1)


def _inner(chart: LogChart, layout: Ragged, nodes: Places) -> tuple[Tensor, Tensor] | None:
    """Left and right children at splits where both are spans, [node, split, nonterminal]; -inf beyond a node's last."""
    widest = int(nodes.width.max())
    if widest < 4:
        return None
    left = torch.arange(2, widest - 1, device=layout.device)
    exists = left <= nodes.width[:, None] - 2
    safe = torch.where(exists, left, 1)
    place, begin = nodes.place[:, None], nodes.begin[:, None]
    rows = layout.row(place, begin, safe), layout.row(place, begin + safe, nodes.width[:, None] - safe)
    before, after = (chart.spans[(row - layout.num_tokens).clamp(min=0)] for row in rows)
    return before.masked_fill(~exists[:, :, None], -torch.inf), after


def division(weights: LogWeights, nodes: Places, way: Int[Tensor, "node"]) -> Division:
    """What the number of a way means."""
    n, p, _ = weights.sizes
    if int(nodes.width[0]) == 2:
        return Division(torch.ones_like(way), n + way // p, n + way % p)
    inner = way - 2 * n * p
    beside_first = way - n * p
    kinds = (
        (way < n * p, nodes.width - 1, way // p, n + way % p),
        (beside_first < n * p, torch.ones_like(way), n + beside_first // n, beside_first % n),
    )
    found = Division(2 + inner // (n * n), inner // n % n, inner % n)
    for mask, *meaning in reversed(kinds):
        found = Division(*(torch.where(mask, a, b) for a, b in zip(meaning, found, strict=True)))
    return found
