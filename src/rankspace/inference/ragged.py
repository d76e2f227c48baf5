"""Where the steps and spans of a ragged batch lie: all sentences in one table, without padding.

Sentences are numbered by falling length ("places"), so that those which are alive at a step are always the first few.
A table of steps is ordered by step, then place; a table of spans by width, then begin, then place. Every step and every
width is then one contiguous block of rows: the operand of one matrix product. This is the only file that knows.
"""

import operator
import reprlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache

import torch
from jaxtyping import Float, Int
from torch import Tensor

from rankspace.errors import ShapeError
from rankspace.inference.differentiation import lasting


@dataclass(frozen=True)
class Ragged:
    """Lengths of a batch and the order of its sentences."""

    lengths: tuple[int, ...]  # in the order of the caller
    device: torch.device

    @cached_property
    def order(self) -> tuple[int, ...]:
        """Sentences by falling length: order[place] = sentence."""
        return tuple(sorted(range(len(self.lengths)), key=lambda b: -self.lengths[b]))

    @cached_property
    def longest(self) -> int:
        return max(self.lengths, default=0)

    @cached_property
    def alive(self) -> tuple[int, ...]:
        """alive[k]: sentences with at least k words, k = 0 .. longest + 1."""
        return tuple(sum(length >= k for length in self.lengths) for k in range(self.longest + 2))

    @lasting
    def sentence_at(self) -> Int[Tensor, "batch"]:
        """[place] -> sentence."""
        return torch.tensor(self.order, dtype=torch.int64, device=self.device)

    @lasting
    def place_of(self) -> Int[Tensor, "batch"]:
        """[sentence] -> place."""
        return torch.argsort(self.sentence_at)

    @lasting
    def length_at(self) -> Int[Tensor, "batch"]:
        """[place] -> length."""
        return torch.tensor([self.lengths[b] for b in self.order], dtype=torch.int64, device=self.device)

    @cached_property
    def before(self) -> tuple[int, ...]:
        """before[k] = sum of alive[k'] over 1 <= k' < k, for k >= 1: the rows of all earlier steps."""
        sums = [0, 0]
        for count in self.alive[1:]:
            sums.append(sums[-1] + count)
        return tuple(sums)

    @property
    def num_tokens(self) -> int:
        return sum(self.lengths)

    def step(self, time: int) -> slice:
        """Rows of the words at a time, 0 .. longest - 1, one for each sentence alive there."""
        return slice(self.before[time + 1], self.before[time + 2])

    @lasting
    def token_place(self) -> Int[Tensor, "token"]:
        """[row] -> place of the sentence a word belongs to."""
        return torch.cat([torch.arange(self.alive[t + 1]) for t in range(self.longest)] or [_NONE]).to(self.device)

    @lasting
    def token_time(self) -> Int[Tensor, "token"]:
        """[row] -> time of a word in its sentence."""
        parts = [torch.full((self.alive[t + 1],), t) for t in range(self.longest)]
        return torch.cat(parts or [_NONE]).to(self.device)

    def pack(self, padded: Tensor) -> Tensor:
        """[batch, length, ...] in the caller's order -> [token, ...]; padding is not read."""
        return padded[self.sentence_at[self.token_place], self.token_time]

    def unpack(self, rows: Tensor, fill: int | float = 0) -> Tensor:
        """[token, ...] -> [batch, longest, ...] in the caller's order."""
        padded = rows.new_full((len(self.lengths), self.longest, *rows.shape[1:]), fill)
        return padded.index_put((self.sentence_at[self.token_place], self.token_time), rows)

    def in_callers_order(self, rows: Tensor) -> Tensor:
        """[place, ...] -> [sentence, ...]."""
        return rows.index_select(0, self.place_of)

    @lasting
    def last_token(self) -> Int[Tensor, "batch"]:
        """[place] -> row of a sentence's last word; 0 for an empty sentence."""
        rows = [self.before[self.lengths[b]] + place if self.lengths[b] else 0 for place, b in enumerate(self.order)]
        return torch.tensor(rows, dtype=torch.int64, device=self.device)

    @lasting
    def previous(self) -> Int[Tensor, "later"]:
        """[row - alive[1]] -> row of the word before: of all words but the first of their sentences."""
        alive = torch.tensor(self.alive, dtype=torch.int64, device=self.device)
        rows = torch.arange(self.num_tokens, device=self.device) - alive[self.token_time]
        return rows[self.alive[1] :]

    @lasting
    def following(self) -> Int[Tensor, "token"]:
        """[row] -> row of the word after; -1 for the last word of a sentence."""
        rows = torch.full((self.num_tokens,), -1, device=self.device)
        rows[self.previous] = torch.arange(self.alive[1], self.num_tokens, device=self.device)
        return rows

    # Spans. Row of the span [begin, begin + width) of the sentence at a place: see `row`.

    @cached_property
    def offsets(self) -> tuple[int, ...]:
        """offsets[w]: first row of the spans of width w; offsets[longest + 1]: number of spans."""
        sums = [0, 0]
        for width in range(1, self.longest + 1):
            sums.append(sums[-1] + self.num_spans(width))
        return tuple(sums)

    def num_spans(self, width: int) -> int:
        return self.before[self.longest + 1] - self.before[width]

    @property
    def total_spans(self) -> int:
        return self.offsets[self.longest + 1]

    def spans(self, width: int) -> slice:
        """Rows of all spans of a width. Those of width 1 are the tokens, in their order."""
        return slice(self.offsets[width], self.offsets[width + 1])

    @property
    def num_wide(self) -> int:
        """Spans of two words or more."""
        return self.total_spans - self.num_tokens

    def wide(self, width: int) -> slice:
        """Rows of all spans of a width, two or more, in a table that has no rows for single words."""
        return slice(self.offsets[width] - self.num_tokens, self.offsets[width + 1] - self.num_tokens)

    def whole_of(self, width: int) -> slice:
        """The sentences of a length, by places; also the rows, within their width, of the spans they are."""
        return slice(self.alive[width + 1], self.alive[width])

    def span_place(self, width: int) -> Int[Tensor, "span"]:
        """[row within its width] -> place of the sentence."""
        return self.token_place[self.before[width] :]

    def span_begin(self, width: int) -> Int[Tensor, "span"]:
        """[row within its width] -> first word."""
        return self.token_time[self.before[width] :] - (width - 1)

    @lasting
    def _row_tables(self) -> tuple[Tensor, Tensor]:
        before = torch.tensor(self.before, dtype=torch.int64, device=self.device)
        offsets = torch.tensor(self.offsets, dtype=torch.int64, device=self.device)
        return before, offsets - before[: len(offsets)]

    def row(self, place: Tensor, begin: Tensor | int, width: Tensor | int) -> Tensor:
        """Row of spans: offsets[width] + before[begin + width] - before[width] + place. All must exist."""
        before, shift = self._row_tables
        return shift[width] + before[begin + width] + place

    @lasting
    def row_arithmetic(self) -> tuple[Tensor, ...]:
        """What `row` is made of, for kernels, as int32: before, shift; of words place and time; of places length and
        sentence."""
        tables = (*self._row_tables, self.token_place, self.token_time, self.length_at, self.sentence_at)
        return tuple(table.to(torch.int32) for table in tables)

    @lasting
    def whole(self) -> Int[Tensor, "batch"]:
        """[place] -> row of the span that is the whole sentence; 0 for an empty sentence."""
        rows = [self.offsets[self.lengths[b]] + place if self.lengths[b] else 0 for place, b in enumerate(self.order)]
        return torch.tensor(rows, dtype=torch.int64, device=self.device)

    @lasting
    def places(self) -> Int[Tensor, "span"]:
        """[row] -> place of the sentence a span belongs to."""
        widths = range(1, self.longest + 1)
        return torch.cat([self.span_place(w) for w in widths] or [_NONE.to(self.device)])

    @lasting
    def _cells(self) -> tuple[Tensor, Tensor, Tensor]:
        widths = range(1, self.longest + 1)
        begin = torch.cat([self.span_begin(w) for w in widths] or [_NONE.to(self.device)])
        width = torch.cat([torch.full((self.num_spans(w),), w) for w in widths] or [_NONE]).to(self.device)
        return self.sentence_at[self.places], begin, begin + width

    def to_chart(self, rows: Float[Tensor, "span"], fill: float = 0) -> Float[Tensor, "batch end end"]:
        """[span] -> [batch, longest + 1, longest + 1] at [sentence, begin, end], in the caller's order."""
        size = self.longest + 1
        chart = rows.new_full((len(self.lengths), size, size), fill)
        return chart.index_put(self._cells, rows)

    def from_chart(self, chart: Float[Tensor, "batch end end"]) -> Float[Tensor, "span"]:
        """[batch, end, end] -> [span]; cells that are no span of their sentence are not read."""
        return chart[self._cells]


_NONE = torch.zeros(0, dtype=torch.int64)


@lru_cache(maxsize=64)
def ragged(lengths: tuple[int, ...], device: torch.device) -> Ragged:
    """The layout of a batch; kept, for training sees the same lengths again."""
    return Ragged(lengths, device)


@cache
def equal_lengths(batch: int, length: int, device: torch.device) -> Ragged:
    """The layout of sentences of one length; kept for good, for a CUDA graph that reads its tables may."""
    return Ragged((length,) * batch, device)


def lengths_of(name: str, words: Tensor, lengths: Sequence[int] | Tensor | None) -> tuple[int, ...]:
    """Lengths as integers on the host; all of the table [batch, length] if none are given.

    Raises ShapeError for what is not a row of integers: `ragged` would take 2.0 and True for the lengths 2 and 1.
    """
    if lengths is None:
        return (words.shape[1],) * words.shape[0]
    try:
        return tuple(_integer(length) for length in (lengths.tolist() if isinstance(lengths, Tensor) else lengths))
    except TypeError:
        shown = f"{lengths.dtype} {tuple(lengths.shape)}" if isinstance(lengths, Tensor) else reprlib.repr(lengths)
        raise ShapeError(f"{name}: lengths are {shown}; give one integer for each sentence.") from None


def _integer(number: object) -> int:
    if isinstance(number, bool):
        raise TypeError
    return operator.index(number)  # type: ignore[arg-type]  # TypeError if it is no integer
