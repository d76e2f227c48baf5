"""The charts of a batch of trees with a full rule tensor as kernels see them.

Single words carry vectors over the preterminals, spans of two words or more over the nonterminals, and each stands at
the scale of its own power of two: value = number * 2^exponent. Rows are those of `tree_chart.SpanRows`.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
import triton
from jaxtyping import Float, Int
from torch import Tensor

from rankspace.kernels.tree_chart import SpanRows

SPLITS = 16  # terms of a sum at a time: the least that a product of tiles takes
TILE = 32  # nonterminals on either side of a tile of pairs


@dataclass(frozen=True)
class DenseChart:
    """What the inside pass fills. rho of a span is the sum over its splits, at the scale of `base`; its vector is rho
    divided by the power of two of the largest, at the scale of `exponent`."""

    rows: SpanRows
    words: Float[Tensor, "token preterminal"]
    links: Float[Tensor, "token 2 parent nonterminal"]  # of a word as left and as right child, from sibling to parent
    spans: Float[Tensor, "wide nonterminal"]
    pairs: Float[Tensor, "wider nonterminal nonterminal"]  # of spans of three words or more; both children are spans
    exponent: Int[Tensor, "span"]  # of words, then of spans
    base: Int[Tensor, "wide"]
    lost: Int[Tensor, "batch"]  # [place]: whether something was lost

    @property
    def size(self) -> int:
        """Nonterminals."""
        return self.spans.shape[1]

    def wider(self, width: int) -> slice:
        """Rows of a width in tables of spans of three words or more."""
        first = self.rows.offsets[3]
        return slice(self.rows.offsets[width] - first, self.rows.offsets[width + 1] - first)


def new_dense_chart(rows: SpanRows, words: Float[Tensor, "token preterminal"], size: int) -> DenseChart:
    """Charts that nothing but words was written to, for at least one span of two words."""
    device, num_spans = words.device, rows.offsets[-1]
    return DenseChart(
        rows,
        words,
        torch.empty(rows.num_tokens, 2, size, size, device=device),
        torch.empty(num_spans - rows.num_tokens, size, device=device),
        torch.empty(num_spans - rows.offsets[3], size, size, device=device),
        torch.empty(num_spans, dtype=torch.int32, device=device),
        torch.empty(num_spans - rows.num_tokens, dtype=torch.int32, device=device),
        torch.zeros(rows.num_sentences, dtype=torch.int32, device=device),
    )


class DenseAbove(NamedTuple):
    """Derivatives of the sum over sentences of slope * log Z."""

    rho: Float[Tensor, "wide nonterminal"]
    pairs: Float[Tensor, "wider nonterminal nonterminal"]  # of spans of four words or more
    whole: Float[Tensor, "batch nonterminal"]  # [place]: with respect to the vectors of whole sentences


def new_dense_above(chart: DenseChart, whole: Float[Tensor, "batch nonterminal"]) -> DenseAbove:
    """Tables that nothing was written to, below whole sentences."""
    return DenseAbove(torch.empty_like(chart.spans), torch.empty_like(chart.pairs), whole)


def tile_of(size: int) -> int:
    """Symbols of a block: a power of two that products of tiles take."""
    return TILE if size > TILE // 2 else TILE // 2


def row_block(size: int) -> int:
    """Of programs that hold a whole vector."""
    return max(int(triton.next_power_of_2(size)), 16)


class Span(NamedTuple):
    """A span by its numbers on the host, for the plain-torch twins."""

    place: int
    begin: int
    end: int


def spans_of(rows: SpanRows, width: int) -> list[Span]:
    """All spans of a width, in the order of their rows."""
    tokens = slice(rows.num_before[width], rows.num_before[width] + rows.num_spans(width))
    ends = [time + 1 for time in rows.token_time[tokens].tolist()]
    return [Span(p, end - width, end) for p, end in zip(rows.token_place[tokens].tolist(), ends, strict=True)]


def row_of(rows: SpanRows, span: Span) -> int:
    return int(rows.shift[span.end - span.begin] + rows.before[span.end]) + span.place
