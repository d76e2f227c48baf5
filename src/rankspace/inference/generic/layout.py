"""Where the numbers of a batch are kept: items, messages and factors at words are rows of one table per shape.

An operand of a rule application is then a row number, whatever it stands for, and applications of different shapes
differ in numbers alone. Rows of items and of messages are ordered by level, so that what a level sends stands together.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from rankspace.inference.generic.contraction_plan import ContractionPlan, Message
from rankspace.inference.generic.sketch import Applications, Numbers, Shape, Sketch

Ends = tuple[str, ...]
Sizes = tuple[int, ...]  # shape of the entries of a table, by which tables are known


class Rows(NamedTuple):
    """Some rows of a table: their numbers, how many, and where they begin if they follow each other."""

    numbers: Tensor
    length: int
    begin: int | None

    @classmethod
    def of(cls, numbers: Numbers) -> "Rows":
        adjacent = len(numbers) > 0 and bool((np.diff(numbers) == 1).all())
        return cls(torch.from_numpy(numbers), len(numbers), int(numbers[0]) if adjacent else None)

    @classmethod
    def span(cls, begin: int, count: int) -> "Rows":
        """Rows that follow each other."""
        return cls(torch.arange(begin, begin + count), count, begin)

    def take(self, table: Tensor) -> Tensor:
        """The rows; a view of the table where they follow each other."""
        if self.begin is None:
            return table.index_select(0, self.numbers)
        return table[self.begin : self.begin + self.length]

    def put(self, table: Tensor, values: Tensor) -> None:
        """Overwrites the rows."""
        if self.begin is None:
            table.index_copy_(0, self.numbers, values.to(table.dtype))
        else:
            table[self.begin : self.begin + self.length] = values

    def to(self, device: torch.device) -> "Rows":
        return self._replace(numbers=self.numbers.to(device))


class Items(NamedTuple):
    """The items of all sentences in one numbering."""

    levels: Numbers
    types: Numbers  # places in the list of types
    sentences: Numbers

    @classmethod
    def of(cls, sketches: Sequence[Sketch | None], types: Sequence[Ends]) -> "Items":
        place = {ends: i for i, ends in enumerate(types)}
        present = [(b, sketch) for b, sketch in enumerate(sketches) if sketch]
        empty = np.zeros(0, dtype=np.int64)
        levels = np.concatenate([empty, *(sketch.levels for _, sketch in present)])
        kinds = np.concatenate([empty, *(np.array([place[e] for e in sketch.types]) for _, sketch in present)])
        owner = np.concatenate([empty, *(np.full(len(sketch.types), b) for b, sketch in present)])
        return cls(levels, kinds, owner)


class Lookup(NamedTuple):
    """A factor at words, for every place where a rule looks at it; without a label the indicators of the words."""

    label: str | None
    picked: tuple[int, ...]  # axes of the factor that words index
    table: Sizes
    rows: Rows
    places: Tensor  # [picked, row]: in the list of all words


class Bundle(NamedTuple):
    """Messages of one shape that the same items send, kept side by side: row begin + i * len(messages) + j."""

    messages: tuple[Message, ...]
    senders: Numbers  # items i in the order of their rows
    begin: int

    @property
    def table(self) -> Sizes:
        return self.messages[0].shape

    def rows(self, first: int, count: int) -> Rows:
        """Rows of all messages of some senders that follow each other."""
        return Rows.span(self.begin + first * len(self.messages), count * len(self.messages))


@dataclass
class Layout:
    """The tables of a batch, and where in them each operand of each application stands."""

    item_tables: Sequence[Sizes]  # for each type of items
    item_rows: Numbers  # [item]
    lookups: tuple[Lookup, ...] = ()
    bundles: tuple[Bundle, ...] = ()
    operands: dict[Shape, list[tuple[Sizes, Numbers]]] = field(default_factory=dict)  # table, and rows [application]
    owners: dict[Sizes, list[Numbers]] = field(default_factory=lambda: {(): []})  # sentences of the rows, in parts

    def reserve(self, table: Sizes, owners: Numbers) -> int:
        """Appends rows that belong to some sentences; returns where they begin."""
        parts = self.owners.setdefault(table, [])
        parts.append(owners)
        return sum(len(part) for part in parts[:-1])

    def sentence_of(self, table: Sizes) -> Tensor:
        """[row]: which sentence each row of a table belongs to."""
        return torch.from_numpy(np.concatenate([np.zeros(0, dtype=np.int64), *self.owners[table]]))


def lay_out(
    items: Items,
    types: Sequence[Ends],
    sizes: Mapping[str, int],
    applications: Mapping[Shape, Applications],
    plans: Mapping[Shape, ContractionPlan],
    sentence_of_word: Numbers,
) -> Layout:
    """Gives every item, message and factor at words its rows."""
    layout = Layout([tuple(sizes[label] for label in ends) for ends in types], np.zeros_like(items.levels))
    for shape, plan in plans.items():
        layout.operands[shape] = [((), np.zeros(0, dtype=np.int64))] * len(plan.operands)
    for kind, table in enumerate(layout.item_tables):
        chosen = np.flatnonzero(items.types == kind)
        chosen = chosen[np.argsort(items.levels[chosen], kind="stable")]
        begin = layout.reserve(table, items.sentences[chosen])
        layout.item_rows[chosen] = begin + np.arange(len(chosen))
    layout.lookups = tuple(_lookups(layout, applications, plans, sentence_of_word))
    layout.bundles = tuple(_bundles(layout, items, applications, plans))
    return layout


def _lookups(
    layout: Layout,
    applications: Mapping[Shape, Applications],
    plans: Mapping[Shape, ContractionPlan],
    sentence_of_word: Numbers,
) -> Iterator[Lookup]:
    """One row for each factor and each tuple of places, however many applications look there."""
    users: dict[tuple[str | None, tuple[int, ...], Sizes], list[tuple[Shape, int, Numbers]]] = {}
    for shape, plan in plans.items():
        for operand, part in enumerate(plan.gathered, len(plan.messages)):
            table = tuple(plan.sizes[axis] for axis in part.axes)
            places = applications[shape].words[:, [place for _, place in part.picked]]
            key = part.label, tuple(axis for axis, _ in part.picked), table
            users.setdefault(key, []).append((shape, operand, places))
    for (label, picked, table), parts in users.items():
        found, inverse = np.unique(np.concatenate([places for _, _, places in parts]), axis=0, return_inverse=True)
        begin = layout.reserve(table, sentence_of_word[found[:, 0]])
        ends = np.cumsum([len(places) for _, _, places in parts])[:-1]
        for (shape, operand, _), rows in zip(parts, np.split(begin + inverse.reshape(-1), ends), strict=True):
            layout.operands[shape][operand] = table, rows
        columns = torch.from_numpy(np.ascontiguousarray(found.T))
        yield Lookup(label, picked, table, Rows.span(begin, len(found)), columns)


def _bundles(
    layout: Layout,
    items: Items,
    applications: Mapping[Shape, Applications],
    plans: Mapping[Shape, ContractionPlan],
) -> Iterator[Bundle]:
    """Messages that are matrices from the same items to one shape go together; every other message goes alone.

    A sender sends all messages of its bundle, also one that nobody reads.
    """
    users: dict[object, dict[Message, list[tuple[Shape, int, Numbers]]]] = {}
    for shape, plan in plans.items():
        for operand, message in enumerate(plan.messages):
            children = applications[shape].children[:, operand]
            if message.is_identity:
                layout.operands[shape][operand] = message.shape, layout.item_rows[children]
            else:
                key = message if message.order is None else (message.ends, message.shape)
                users.setdefault(key, {}).setdefault(message, []).append((shape, operand, children))
    place = np.zeros(len(items.levels), dtype=np.int64)
    for found in users.values():
        senders = np.unique(np.concatenate([c for parts in found.values() for _, _, c in parts]))
        senders = senders[np.argsort(layout.item_rows[senders])]
        messages = tuple(found)
        begin = layout.reserve(messages[0].shape, np.repeat(items.sentences[senders], len(messages)))
        place[senders] = np.arange(len(senders))
        for j, parts in enumerate(found.values()):
            for shape, operand, children in parts:
                layout.operands[shape][operand] = messages[0].shape, begin + place[children] * len(messages) + j
        yield Bundle(messages, senders, begin)
