"""Which spans meet in the sums of a width, in a batch of any lengths: row numbers of the table of spans."""

from dataclasses import dataclass
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
    right = layout.row(place, begin + first, width - first)
    return Pairs(first_parts(layout, width), right, None, [slice(0, len(place))] * (width - 1))


def first_parts(layout: Ragged, width: int) -> Int[Tensor, "split row"]:
    """[i, k), for each k, of all spans [i, j) of a width."""
    place = layout.span_place(width)
    first = torch.arange(1, width, device=place.device)[:, None]
    return layout.row(place, layout.span_begin(width), first)


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


@dataclass(frozen=True)
class WiderSpans:
    """All spans, in the order of their rows: what they are made of, given the width of one part."""

    layout: Ragged
    place: Int[Tensor, "span"]
    begin: Int[Tensor, "span"]
    width: Int[Tensor, "span"]

    @classmethod
    def of(cls, layout: Ragged) -> "WiderSpans":
        widths = range(1, layout.longest + 1)
        place, begin = (torch.cat(list(map(of, widths))) for of in (layout.span_place, layout.span_begin))
        counts = torch.tensor([layout.num_spans(width) for width in widths], device=place.device)
        return cls(layout, place, begin, torch.repeat_interleave(counts) + 1)

    def parts(self, width: int, side: int) -> tuple[Int[Tensor, "wider"], Int[Tensor, "wider"]]:
        """Of all spans wider than a width: rows, within the width, of the left (side 0) or right parts of that width;
        and rows of the other parts."""
        rows = slice(self.layout.offsets[width + 1], None)
        place, begin, rest = self.place[rows], self.begin[rows], self.width[rows] - width
        row, own, other = self.layout.row, begin, begin
        if side == 0:
            other = begin + width
        else:
            own = begin + rest
        return row(place, own, width) - self.layout.offsets[width], row(place, other, rest)
