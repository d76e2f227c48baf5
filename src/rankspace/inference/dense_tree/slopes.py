"""Directional derivatives of every sentence's log Z, without a gradient of its own for any sentence."""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from rankspace.inference.dense_tree.groups import SpanGroup
from rankspace.inference.dense_tree.outside import Collector, outside
from rankspace.inference.dense_tree.partition import at_root, given_words, scaled_chart, seed_of
from rankspace.inference.dense_tree.precision_loss import SupportOf
from rankspace.inference.dense_tree.weights import Blocks, DenseWeights, root_rows
from rankspace.inference.links import product
from rankspace.inference.ragged import Ragged


class Slopes(NamedTuple):
    slope: Float[Tensor, "places"]  # float64; zero for sentences that are impossible or lost
    lost: Bool[Tensor, "places"]


def slopes(weights: DenseWeights, moved: DenseWeights, layout: Ragged, support_of: SupportOf) -> Slopes:
    """d log Z / dt where the weights move along `moved` (same shapes, any sign). Costs about two inside passes more
    than the outside pass: each use of a weight is computed once more with its tangent."""
    chart, log_z, lost = scaled_chart(weights, layout, support_of)
    top = at_root(weights, layout, chart)
    seed = seed_of(top, ~lost, torch.ones_like(log_z))
    collector = _Tangents(moved, layout)
    adjoint = outside(weights, layout, chart, seed[:, None] * root_rows(weights, len(seed)), collector)
    rows = collector.rows
    rows[: layout.num_tokens] += (given_words(weights, layout, adjoint) * moved.words).sum(1, dtype=torch.float64)
    slope = layout.to_chart(rows).sum((1, 2)).index_select(0, layout.sentence_at)
    slope[: len(seed)] += (seed[:, None] * top.whole * root_rows(moved, len(seed))).sum(1, dtype=torch.float64)
    return Slopes(slope, lost)


class _Tangents(Collector):
    """Adds to every word and span what the moving weights used there change."""

    def __init__(self, moved: DenseWeights, layout: Ragged) -> None:
        self.moved, self.blocks = moved, Blocks.of(moved.rule, moved.num_nonterminals)
        self.rows = moved.rule.new_zeros(layout.total_spans, dtype=torch.float64)

    def pairs(self, group: SpanGroup, block: str, adjoint: Tensor, pairs: Tensor) -> None:
        self._add(getattr(self.blocks, block), group, adjoint, pairs.flatten(1))

    def words(self, group: SpanGroup, side: str, adjoint: Tensor, words: Tensor) -> None:
        self._add(getattr(self.blocks, side), group, adjoint, words)

    def heads(self, group: SpanGroup, adjoint: Tensor, ranks: Tensor) -> None:
        assert self.moved.head is not None
        self._add(self.moved.head, group, adjoint, ranks)

    def _add(self, block: Tensor, group: SpanGroup, adjoint: Tensor, inputs: Tensor) -> None:
        flat = inputs.view(group.num_groups, group.num_members, -1)
        change = product(flat, block[group.groups].mT, self.moved.precision).flatten(0, 1)
        self.rows[group.among_all] += (adjoint * change).sum(1, dtype=torch.float64)
