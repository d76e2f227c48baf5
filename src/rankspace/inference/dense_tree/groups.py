"""Which rows of a width are worked on together, and where their children lie."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import torch
from jaxtyping import Int
from torch import Tensor

from rankspace.inference.differentiation import lasting
from rankspace.inference.ragged import Ragged

BUDGET = 2**21  # numbers of one temporary: 8 MB in float32, which stays in a processor's cache

Rows = slice | Tensor


@dataclass(frozen=True)
class SpanGroup:
    """Spans of one width, [group, member]: the members of a group share their rule tensor.

    `groups` is where their rule tensors lie among those of the batch. Rows of children: a child that is a word is a row
    of the token table, a longer one a row of the span table, which starts with the spans of two words.
    """

    layout: Ragged
    width: int
    groups: slice
    rows: Rows  # within the spans of this width, group by group
    num_groups: int
    num_members: int

    @property
    def num_rows(self) -> int:
        return self.num_groups * self.num_members

    @lasting
    def place(self) -> Int[Tensor, "row"]:
        return self.layout.span_place(self.width)[self.rows]

    @lasting
    def begin(self) -> Int[Tensor, "row"]:
        return self.layout.span_begin(self.width)[self.rows]

    @lasting
    def own(self) -> Rows:
        """Rows of the spans themselves, in the span table."""
        return _moved(self.rows, self.layout.spans(self.width).start - self.layout.num_tokens)

    @lasting
    def last_words(self) -> Rows:
        """Row of each span's last word. Spans of a width are ordered as the words they end with."""
        return _moved(self.rows, self.layout.before[self.width])

    @lasting
    def first_words(self) -> Rows:
        if isinstance(self.rows, slice) and self.layout.alive[1] == self.layout.alive[self.layout.longest]:
            return self.rows  # all sentences of one length: the words they begin with are in the same order
        return self.layout.row(self.place, self.begin, 1)

    @lasting
    def among_all(self) -> Rows:
        """Rows of the spans themselves, in tables of words and spans."""
        return _moved(self.rows, self.layout.spans(self.width).start)

    @lasting
    def without_first(self) -> Rows:
        """Rows, in the span table, of the spans without their first word: they end with the same word."""
        shift = self.layout.spans(self.width - 1).start - self.layout.before[self.width - 1]
        return _moved(self.last_words, shift - self.layout.num_tokens)

    @lasting
    def without_last(self) -> Int[Tensor, "row"]:
        """Rows, in the span table, of the spans without their last word."""
        return self.layout.row(self.place, self.begin, self.width - 1) - self.layout.num_tokens

    def left(self, first: int, last: int) -> Int[Tensor, "row split"]:
        """Rows, among all spans and words, of the left children of widths first .. last."""
        widths = torch.arange(first, last + 1, device=self.layout.device)
        return self.layout.row(self.place[:, None], self.begin[:, None], widths)

    def right(self, first: int, last: int) -> Int[Tensor, "row split"]:
        """Rows, among all spans and words, of the siblings of left children of widths first .. last."""
        widths = torch.arange(first, last + 1, device=self.layout.device)
        return self.layout.row(self.place[:, None], self.begin[:, None] + widths, self.width - widths)


def span_groups(layout: Ragged, width: int, per_sentence: bool, numbers_per_row: int) -> "tuple[SpanGroup, ...]":
    """All spans of a width, cut so that [rows, numbers_per_row] stays within BUDGET (one row always goes).

    With one rule tensor for all, a group is a run of neighbouring rows. With rules per sentence, sentences of one
    length go together: they have equally many spans.
    """
    return _groups(layout, width, per_sentence, max(1, BUDGET // max(1, numbers_per_row)))


@lru_cache(maxsize=512)  # training sees the same lengths again; about 32 bytes for each span
def _groups(layout: Ragged, width: int, per_sentence: bool, most: int) -> "tuple[SpanGroup, ...]":
    if per_sentence:
        with torch.inference_mode(False):  # they may serve a backward pass later
            return tuple(_groups_of_sentences(layout, width, most))
    count = layout.num_spans(width)
    starts = ((start, min(start + most, count)) for start in range(0, count, most))
    return tuple(SpanGroup(layout, width, slice(0, 1), slice(*ends), 1, ends[1] - ends[0]) for ends in starts)


def _groups_of_sentences(layout: Ragged, width: int, most: int) -> Iterator[SpanGroup]:
    for first, last, length in _runs(layout):
        members = length - width + 1
        if members < 1:
            return  # lengths fall
        together = max(1, most // members)
        for start in range(first, last, together):
            places = slice(start, min(start + together, last))
            for begin in range(0, members, most):
                yield _rectangle(layout, width, places, range(begin, min(begin + most, members)))


def num_long(layout: Ragged) -> int:
    """Sentences of two words or more: the first places."""
    return layout.alive[2] if layout.longest > 1 else 0


def _rectangle(layout: Ragged, width: int, places: slice, begins: range) -> SpanGroup:
    place = torch.arange(places.start, places.stop, device=layout.device)
    begin = torch.arange(begins.start, begins.stop, device=layout.device)
    rows = layout.row(place[:, None], begin, width).flatten() - layout.spans(width).start
    return SpanGroup(layout, width, places, rows, len(place), len(begin))


def _runs(layout: Ragged) -> Iterator[tuple[int, int, int]]:
    """Places of sentences of one length: (first, one past the last, length), by falling length."""
    first = 0
    for length in sorted(set(layout.lengths), reverse=True):
        last = layout.alive[length]
        yield first, last, length
        first = last


def _moved(rows: Rows, by: int) -> Rows:
    if isinstance(rows, slice):
        return slice(rows.start + by, rows.stop + by)
    return rows + by
