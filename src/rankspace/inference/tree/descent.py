"""Trees top-down from a chart, all trees at once, a generation of nodes per round: posterior samples, or the best tree.

A node carries the rank of the rule that rewrites it. Given that, its split is chosen; given the split, each part is a
left or right child of that rank, and its own rank is chosen, or its preterminal if it is a word; given the ranks on
both sides of a node, its symbol is chosen.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from rankspace.inference.ragged import Ragged
from rankspace.inference.tree.choosing import Choose, choose_in_portions, log_of
from rankspace.inference.tree.inside import Inside, parted
from rankspace.inference.tree.log_space import LogChart, LogInputs
from rankspace.inference.tree.nodes import Nodes


@dataclass(frozen=True)
class ChartLogs:
    """A chart, linear or logarithmic, of which logarithms can be asked for."""

    layout: Ragged
    children: Float[Tensor, "2 span rank"]
    alpha: Float[Tensor, "wide rank"]
    exponent: Int[Tensor, "span"] | None  # None: the tables are logarithms

    @classmethod
    def of_linear(cls, chart: Inside) -> "ChartLogs":
        assert chart.alpha is not None
        return cls(chart.layout, chart.children, chart.alpha, chart.exponent)

    @classmethod
    def of_logs(cls, chart: LogChart, layout: Ragged) -> "ChartLogs":
        children = parted(torch.cat(chart.children))
        none = children.new_zeros(0, children.shape[2])
        return cls(layout, children, torch.cat([*chart.alpha, none]), None)

    def child_at(self, side: int, rows: Tensor, ranks: Tensor) -> Tensor:
        """Entries of spans as children, [...] -> [...]."""
        found = self.children[side][rows, ranks]
        return found if self.exponent is None else log_of(found, self.exponent[rows])

    def alpha_at(self, rows: Int[Tensor, "node"]) -> Float[Tensor, "node rank"]:
        """Up to a constant for each span."""
        found = self.alpha[rows - self.layout.num_tokens]
        return found if self.exponent is None else log_of(found, None)


class _Generation(NamedTuple):
    """Nodes whose parents' ranks are known: `output` is the rank and side they hang on, -1 for roots."""

    tree: Int[Tensor, "node"]
    place: Int[Tensor, "node"]
    begin: Int[Tensor, "node"]
    width: Int[Tensor, "node"]
    output: Int[Tensor, "node"]

    def at(self, some: Tensor) -> "_Generation":
        return _Generation(*(column[some] for column in self))


@dataclass(frozen=True)
class Descent:
    """How trees are chosen from a chart."""

    chart: ChartLogs
    inputs: LogInputs  # with states
    token_word: Int[Tensor, "token"]
    ranks: LogInputs  # the same with states summed out
    choose: Choose

    def trees(self, possible: Bool[Tensor, "place"], num: int) -> Nodes:
        """`num` trees of each possible sentence; tree s * num + i is the i-th of sentence s."""
        layout = self.chart.layout
        place = possible.nonzero()[:, 0].repeat_interleave(num)
        tree = layout.sentence_at[place] * num + torch.arange(len(place), device=place.device) % num
        nodes = _Generation(tree, place, torch.zeros_like(place), layout.length_at[place], torch.full_like(place, -1))
        found = [Nodes(*(tree[:0],) * 5)]
        while len(nodes.tree):
            words, spans = nodes.at(nodes.width == 1), nodes.at(nodes.width > 1)
            rank = self._ranks(spans)
            found.append(_labelled(words, self._preterminals(words), torch.full_like(words.tree, -1)))
            found.append(_labelled(spans, self._symbols(spans, rank), rank))
            nodes = self._parts(spans, rank)
        return Nodes.joined(found)

    def _rows(self, nodes: _Generation) -> Int[Tensor, "node"]:
        return self.chart.layout.row(nodes.place, nodes.begin, nodes.width)

    def _pick(self, nodes: _Generation, num_outcomes: int, log_weights: Callable[[slice], Tensor]) -> Tensor:
        return choose_in_portions(self.choose, len(nodes.tree), num_outcomes, log_weights, nodes.tree)

    def _ranks(self, nodes: _Generation) -> Int[Tensor, "node"]:
        """Ranks of the rules that rewrite the nodes: link (root: root link) times what is below."""
        from_above, rows = _from_above(self.ranks), self._rows(nodes)
        return self._pick(
            nodes,
            self.ranks.rank,
            lambda some: _entries(from_above, nodes, nodes.output, some) + self.chart.alpha_at(rows[some]),
        )

    def _symbols(self, nodes: _Generation, rank: Tensor) -> Int[Tensor, "node"]:
        """States between the rank above and the rank below."""
        first = self.inputs.first
        if first is None:
            return rank
        from_above, below = _from_above(self.inputs), first.mT
        return self._pick(
            nodes,
            self.inputs.num_states,
            lambda some: _entries(from_above, nodes, nodes.output, some) + _entries(below, nodes, rank, some),
        )

    def _preterminals(self, nodes: _Generation) -> Int[Tensor, "node"]:
        words = self.token_word[self._rows(nodes)]
        sides, emission = self.inputs.sides, self.inputs.emission
        found = self._pick(
            nodes, sides.shape[-1], lambda some: _entries(sides, nodes, nodes.output, some) + emission[words[some]]
        )
        return found + self.inputs.num_states

    def _parts(self, nodes: _Generation, rank: Int[Tensor, "node"]) -> _Generation:
        """The next generation: both parts of every node."""
        num_splits = int(nodes.width.max()) - 1 if len(nodes.tree) else 0
        split = 1 + self._pick(nodes, num_splits, lambda some: self._split_weights(nodes, rank, some, num_splits))
        width = torch.cat([split, nodes.width - split])
        begin = torch.cat([nodes.begin, nodes.begin + split])
        output = torch.cat([rank, rank + self.ranks.rank])
        return _Generation(nodes.tree.repeat(2), nodes.place.repeat(2), begin, width, output)

    def _split_weights(self, nodes: _Generation, rank: Tensor, some: slice, num_splits: int) -> Tensor:
        """[node, split]: the products that meet in the sum of its rank."""
        layout = self.chart.layout
        place, begin, width = (column[some, None] for column in (nodes.place, nodes.begin, nodes.width))
        rank = rank[some, None]
        split = torch.arange(1, num_splits + 1, device=place.device)
        exists = split < width
        split = split.where(exists, 1)
        left = self.chart.child_at(0, layout.row(place, begin, split), rank)
        right = self.chart.child_at(1, layout.row(place, begin + split, width - split), rank)
        return (left + right).where(exists, -torch.inf)


def _from_above(inputs: LogInputs) -> Float[Tensor, "*place output state"]:
    """What a node can hang on: ranks, on either side, and, as the last, the root."""
    second, root = inputs.second, inputs.root
    if second.dim() < root.dim() + 1:
        second = second.expand(len(root), *second.shape)
    return torch.cat([second, root[..., None, :]], -2)


def _entries(
    table: Float[Tensor, "*place key value"], nodes: _Generation, keys: Int[Tensor, "node"], some: slice
) -> Float[Tensor, "_ value"]:
    """Rows of a table, or of the one of each node's sentence, for some nodes."""
    return table[keys[some]] if table.dim() == 2 else table[nodes.place[some], keys[some]]


def _labelled(nodes: _Generation, symbol: Tensor, rank: Tensor) -> Nodes:
    return Nodes(nodes.tree, nodes.begin, nodes.begin + nodes.width, symbol, rank)
