"""Which sentences lost more than rounding because numbers left the range of their dtype (DESIGN, section 4).

Arithmetic drops at most about the smallest normal number, at the scale at which a sum is taken. That is harmless if
all that comes out of it, at that scale, is at least `lowest`: every entry of a child, and Z itself. So a chart without
lower entries is exact up to rounding. Where weights are exactly zero, entries may be so too: then the recursion is run
on supports (zeros and ones), and only entries that should be positive are judged.
"""

from collections.abc import Callable

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from rankspace.inference.ragged import Ragged
from rankspace.inference.scaled import lowest, power_of_two
from rankspace.inference.tree.inputs import Sentences, TreeInputs
from rankspace.inference.tree.inside import Inside, SpanWeights, parted
from rankspace.inference.tree.splits import splits_of

Support = Callable[[], TreeInputs | None]


def lost_sentences(
    inputs: TreeInputs,
    sentences: Sentences,
    chart: Inside,
    weights: SpanWeights | None,
    support: Support,
) -> tuple[Bool[Tensor, "batch"], bool]:
    """Which sentences are lost, in the caller's order, and whether a child of the chart can be zero.

    `support` gives the inputs with ones where they are positive, or None if all are. One look at the chart; where
    weights are zero and entries low, one further inside pass with a chart of its own.
    """
    layout, least = sentences.layout, lowest(inputs.dtype)
    used = layout.offsets[layout.longest]  # wider ones are whole sentences, nobody's children
    low = chart.children[:, :used].amin(2).amin(0) * power_of_two(chart.shift[:used], inputs.dtype) < least
    low[: layout.num_tokens] |= (inputs.words.amin(1) < least)[sentences.token_word[:used]]
    low_top = _low_tops(chart, least)
    if not bool(low.any() | low_top.any()):
        return torch.zeros_like(low_top), False
    ones = support()
    if ones is None and weights is not None and bool((weights.factor == 0).any()):
        ones = inputs.like(tuple(torch.ones_like(tensor) for tensor in inputs.tensors))
    if ones is not None:
        low, possible = _low_where_positive(ones, inputs, sentences, chart, weights)
        low_top &= possible
    lost = low_top.clone()
    lost[layout.places[:used][low & ~_is_whole(layout)[:used]]] = True
    return layout.in_callers_order(lost), True


def _low_tops(chart: Inside, least: float) -> Bool[Tensor, "place"]:
    """Sentences of two words or more whose Z is low, at the scale at which it was summed."""
    layout = chart.layout
    if not layout.num_wide:
        return torch.zeros_like(layout.length_at, dtype=torch.bool)
    scaled = chart.top * power_of_two(chart.shift[layout.whole], chart.top.dtype)
    return (scaled < least) & (layout.length_at > 1)


def _low_where_positive(
    ones: TreeInputs,
    inputs: TreeInputs,
    sentences: Sentences,
    chart: Inside,
    weights: SpanWeights | None,
) -> tuple[Bool[Tensor, "used"], Bool[Tensor, "place"]]:
    """Spans with a low entry that is positive, and which sentences are possible: the recursion over zeros and ones."""
    layout, least = sentences.layout, lowest(inputs.dtype)
    allowed = None if weights is None else (weights.factor > 0).to(inputs.dtype)[:, None]
    positive = torch.zeros_like(chart.children)
    splits = splits_of(layout, positive, torch.zeros_like(chart.exponent))
    low = torch.zeros(layout.offsets[layout.longest], dtype=torch.bool, device=positive.device)
    possible = torch.zeros_like(layout.length_at, dtype=torch.bool)
    for width in range(1, layout.longest + 1):
        rows, whole = layout.spans(width), layout.whole_of(width)
        if width == 1:
            found = ones.words[sentences.token_word]
        else:
            found = positive.new_empty(layout.num_spans(width), positive.shape[2])
            splits.inside(width, False, found)
        found = found if allowed is None else found * allowed[rows]
        if width > 1:
            found = found.clamp(max=1)
            possible[whole] = ones.top(found[whole], whole) > 0
        if width < layout.longest:
            found = found if width == 1 else ones.link.at(rows).apply(found)
            positive[:, rows] = parted(found.clamp(max=1))
            low[rows] = ((_at_sum(inputs, sentences, chart, width) < least) & (found > 0)).any(1)
    return low, possible


def _at_sum(inputs: TreeInputs, sentences: Sentences, chart: Inside, width: int) -> Float[Tensor, "row both"]:
    """The children of a width at the scale at which they were summed."""
    if width == 1:
        return inputs.words[sentences.token_word]
    rows = chart.layout.spans(width)
    return chart.both(rows) * power_of_two(chart.shift[rows], inputs.dtype)[:, None]


def _is_whole(layout: Ragged) -> Bool[Tensor, "span"]:
    found = torch.zeros(layout.total_spans, dtype=torch.bool, device=layout.device)
    return found.index_fill(0, layout.whole[layout.length_at > 0], True)
