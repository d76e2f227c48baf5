"""Which spans meet in the sums of a width, in a batch of any lengths: row numbers of the table of spans."""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from rankspace.inference.ragged import Ragged


class Pairs(NamedTuple):
    """Rows of both operands, for each row of the result. Pairs with fewer of them come later."""

    first: Int[Tensor, "pair row"]
    second: Int[Tensor, "pair row"]
    exists: Bool[Tensor, "pair row"] | None  # None: all do. Where not, the rows are any two that are filled
    extent: list[slice]  # of each pair: all rows it exists for lie there


def inside_pairs(layout: Ragged, width: int) -> Pairs:
    """[i, k) and [k, j), for each k, of all spans [i, j) of a width."""
    place, begin = layout.span_place(width), layout.span_begin(width)
    first = torch.arange(1, width, device=place.device)[:, None]
    left, right = layout.row(place, begin, first), layout.row(place, begin + first, width - first)
    return Pairs(left, right, None, [slice(0, len(place))] * (width - 1))


def left_pairs(layout: Ragged, width: int) -> Pairs:
    """[i, j) and [k, j), for each j > k, of all spans [i, k) of a width. Begins grow with the rows: prefixes."""
    place, end = layout.span_place(width), layout.span_begin(width) + width
    wider = torch.arange(width + 1, layout.longest + 1, device=place.device)[:, None]
    top = (end + wider - width).clamp(max=layout.longest + 1)
    exists = end + wider - width <= layout.length_at[place]
    parent = layout.row(place, top - wider, wider).where(exists, layout.num_tokens)
    sibling = layout.row(place, top - wider + width, wider - width).where(exists, 0)
    last = layout.longest + 1
    counts = [layout.before[last - W + width] - layout.before[width] for W in range(width + 1, last)]
    return Pairs(parent, sibling, exists, [slice(0, count) for count in counts])


def right_pairs(layout: Ragged, width: int) -> Pairs:
    """[i, j) and [i, k), for each i < k, of all spans [k, j) of a width: suffixes."""
    place, begin = layout.span_place(width), layout.span_begin(width)
    wider = torch.arange(width + 1, layout.longest + 1, device=place.device)[:, None]
    start = begin + width - wider
    exists = start >= 0
    start = start.clamp(min=0)
    parent = layout.row(place, start, (begin + width - start).clamp(min=2)).where(exists, layout.num_tokens)
    sibling = layout.row(place, start, (begin - start).clamp(min=1)).where(exists, 0)
    skipped = [layout.before[W] - layout.before[width] for W in range(width + 1, layout.longest + 1)]
    return Pairs(parent, sibling, exists, [slice(count, len(place)) for count in skipped])
