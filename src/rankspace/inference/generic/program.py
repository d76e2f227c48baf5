"""A batch of sentences as a program: levels of groups, each of which is one batched contraction.

Building it is index arithmetic alone; it depends on the lengths in the batch, not on their words or on the weights.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from rankspace.fgg.contraction import Contraction
from rankspace.inference.generic.contraction_plan import ContractionPlan, Counts, Message, plan_shape
from rankspace.inference.generic.sketch import Applications, Numbers, Shape, Sketch

Ends = tuple[str, ...]


class Rows(NamedTuple):
    """Some rows of a table: their numbers, and where they begin if they follow each other."""

    numbers: Tensor
    begin: int | None

    @classmethod
    def of(cls, numbers: Numbers) -> "Rows":
        adjacent = bool((np.diff(numbers) == 1).all())
        return cls(torch.from_numpy(numbers), int(numbers[0]) if adjacent else None)

    def __len__(self) -> int:
        return len(self.numbers)

    def take(self, table: Tensor) -> Tensor:
        """The rows; a view of the table where they follow each other."""
        if self.begin is None:
            return table.index_select(0, self.numbers)
        return table[self.begin : self.begin + len(self)]

    def put(self, table: Tensor, values: Tensor) -> None:
        """Overwrites the rows."""
        if self.begin is None:
            table.index_copy_(0, self.numbers, values)
        else:
            table[self.begin : self.begin + len(self)] = values

    def to(self, device: torch.device) -> "Rows":
        return Rows(self.numbers.to(device), self.begin)


class Group(NamedTuple):
    """Applications of one shape to items of one level, the same number to each: arrays [item, application]."""

    plan: ContractionPlan
    ends: Ends
    rows: Rows  # of the items on the left in the table of their type
    children: tuple[Tensor, ...]  # [item, application]: rows of the child of each slot
    words: tuple[Tensor, ...]  # [item, application]: places in the list of all words, for each observed node
    repeats: int  # applications of each item
    meeting: Contraction
    last: Contraction | None
    first: bool  # whether its items have no values yet
    shared: bool  # whether other groups add to its items


class Passing(NamedTuple):
    """A message to compute as soon as its items are known."""

    message: Message
    rows: Rows
    contraction: Contraction


class Level(NamedTuple):
    """Groups that do not depend on each other, and the messages that their items send."""

    groups: tuple[Group, ...]
    passing: tuple[Passing, ...]


@dataclass(frozen=True)
class Program:
    """Everything the engine needs to know about a batch besides weights and words."""

    levels: tuple[Level, ...]
    sizes: Mapping[str, int]  # number of values of each node label
    num_rows: Mapping[Ends, int]
    roots: tuple[tuple[Ends, int] | None, ...]  # row of each sentence's root; None where nothing can be derived
    num_applications: int
    sentence_of: Mapping[Ends, Tensor]  # [row]: which sentence an item belongs to

    @property
    def num_items(self) -> int:
        return sum(self.num_rows.values())

    def all_rows(self, ends: Ends) -> Rows:
        """Every row of the table of a type."""
        return Rows(torch.arange(self.num_rows[ends], device=self.sentence_of[ends].device), 0)

    def item_shape(self, ends: Ends) -> tuple[int, ...]:
        """Shape of the table of all items of a type: rows, then the sizes of its endpoints."""
        return (self.num_rows[ends], *(self.sizes[label] for label in ends))

    def to(self, device: torch.device) -> "Program":
        """The same program with its indices on another device."""
        if device.type == "cpu":
            return self
        levels = tuple(
            Level(
                tuple(
                    group._replace(
                        rows=group.rows.to(device),
                        children=tuple(rows.to(device) for rows in group.children),
                        words=tuple(places.to(device) for places in group.words),
                    )
                    for group in level.groups
                ),
                tuple(passing._replace(rows=passing.rows.to(device)) for passing in level.passing),
            )
            for level in self.levels
        )
        owner = {ends: sentences.to(device) for ends, sentences in self.sentence_of.items()}
        return replace(self, levels=levels, sentence_of=owner)


class _Joined(NamedTuple):
    """The items of all sentences in one numbering."""

    levels: Numbers
    types: Numbers  # places in the list of types
    sentences: Numbers
    rows: Numbers  # of each item in the table of its type


def build_program(sketches: Sequence[Sketch | None], lengths: Sequence[int], sizes: Mapping[str, int]) -> Program:
    """Joins the sketches of a batch; sentence b's words stand after those of the sentences before it."""
    types = list(dict.fromkeys(ends for sketch in sketches if sketch for ends in sketch.types))
    offsets = np.cumsum([0] + [len(sketch.types) if sketch else 0 for sketch in sketches])
    joined = _join(sketches, types)
    applications = _concatenate(sketches, offsets, np.cumsum([0, *lengths]))
    plans = _plans(applications, sizes)
    num_levels = int(joined.levels.max()) + 1 if len(joined.levels) else 0
    groups: list[list[Group]] = [[] for _ in range(num_levels)]
    used: dict[Message, list[Numbers]] = {}
    for shape, apps in applications.items():
        for level, group in _group(plans[shape], types, apps, joined):
            groups[level].append(group)
        for message, children in zip(plans[shape].messages, apps.children.T, strict=True):
            used.setdefault(message, []).append(children)
    senders = {message: np.unique(np.concatenate(parts)) for message, parts in used.items()}
    levels = []
    for level in range(num_levels):
        passing = [
            Passing(message, Rows.of(joined.rows[here]), message.contraction(len(here)))
            for message, items in senders.items()
            if not message.is_identity and len(here := items[joined.levels[items] == level])
        ]
        levels.append(Level(tuple(_marked(groups[level])), tuple(passing)))
    roots = tuple(
        (sketch.types[sketch.root], int(joined.rows[offset + sketch.root])) if sketch else None
        for sketch, offset in zip(sketches, offsets, strict=False)
    )
    return Program(
        tuple(levels),
        dict(sizes),
        {ends: int((joined.types == i).sum()) for i, ends in enumerate(types)},
        roots,
        sum(len(apps.lhs) for apps in applications.values()),
        {ends: torch.from_numpy(_by_row(joined, i)) for i, ends in enumerate(types)},
    )


def _join(sketches: Sequence[Sketch | None], types: Sequence[Ends]) -> _Joined:
    place = {ends: i for i, ends in enumerate(types)}
    present = [(b, sketch) for b, sketch in enumerate(sketches) if sketch]
    empty = np.zeros(0, dtype=np.int64)
    levels = np.concatenate([empty, *(sketch.levels for _, sketch in present)])
    kinds = np.concatenate([empty, *(np.array([place[e] for e in sketch.types]) for _, sketch in present)])
    owner = np.concatenate([empty, *(np.full(len(sketch.types), b) for b, sketch in present)])
    rows = np.zeros(len(levels), dtype=np.int64)
    for i in range(len(types)):
        items = np.flatnonzero(kinds == i)
        rows[items[np.argsort(levels[items], kind="stable")]] = np.arange(len(items))
    return _Joined(levels, kinds, owner, rows)


def _by_row(joined: _Joined, kind: int) -> Numbers:
    items = np.flatnonzero(joined.types == kind)
    result = np.zeros(len(items), dtype=np.int64)
    result[joined.rows[items]] = joined.sentences[items]
    return result


def _concatenate(sketches: Sequence[Sketch | None], items: Numbers, words: Numbers) -> dict[Shape, Applications]:
    parts: dict[Shape, list[Applications]] = {}
    for b, sketch in enumerate(sketches):
        for shape, apps in sketch.applications.items() if sketch else ():
            moved = Applications(apps.lhs + items[b], apps.children + items[b], apps.words + words[b])
            parts.setdefault(shape, []).append(moved)
    return {
        shape: Applications(*(np.concatenate(arrays) for arrays in zip(*found, strict=True)))
        for shape, found in parts.items()
    }


def _plans(applications: Mapping[Shape, Applications], sizes: Mapping[str, int]) -> dict[Shape, ContractionPlan]:
    """A plan for each shape, the most frequent first: later ones may use the messages of earlier ones."""
    plans: dict[Shape, ContractionPlan] = {}
    known: set[Message] = set()
    for shape, apps in sorted(applications.items(), key=lambda pair: -len(pair[1].lhs)):
        plans[shape] = plan_shape(shape, sizes, _counts(apps), known)
        known.update(plans[shape].messages)
    return plans


def _counts(apps: Applications) -> Counts:
    children = tuple(len(np.unique(column)) for column in apps.children.T)
    return Counts(children, len(apps.lhs), len(np.unique(apps.lhs)))


def _group(
    plan: ContractionPlan, types: Sequence[Ends], apps: Applications, joined: _Joined
) -> list[tuple[int, Group]]:
    """Applications of a shape by level and by how many each item has, so that each group is a full rectangle."""
    order = np.argsort(apps.lhs, kind="stable")
    items, counts = np.unique(apps.lhs, return_counts=True)
    starts = np.cumsum(counts) - counts
    result: list[tuple[int, Group]] = []
    keys = np.stack([joined.types[items], joined.levels[items], counts], axis=1)
    for kind, level, count in np.unique(keys, axis=0):
        chosen = np.flatnonzero((keys == [kind, level, count]).all(axis=1))
        picked = order[starts[chosen][:, None] + np.arange(count)]
        group = Group(
            plan,
            types[kind],
            Rows.of(joined.rows[items[chosen]]),
            tuple(torch.from_numpy(joined.rows[apps.children[picked, slot]]) for slot in range(apps.children.shape[1])),
            tuple(torch.from_numpy(apps.words[picked, place]) for place in range(apps.words.shape[1])),
            int(count),
            plan.meeting_contraction(len(chosen), int(count)),
            plan.last_contraction(len(chosen)),
            first=False,
            shared=False,
        )
        result.append((int(level), group))
    return result


def _marked(groups: Sequence[Group]) -> Iterator[Group]:
    """The groups of a level, each told whether it is the first or not the only one to fill its items."""
    filled: dict[Ends, dict[int, int]] = {}
    for group in groups:
        counts = filled.setdefault(group.ends, {})
        for row in group.rows.numbers.tolist():
            counts[row] = counts.get(row, 0) + 1
    seen: dict[Ends, set[int]] = {ends: set() for ends in filled}
    for group in groups:
        rows = group.rows.numbers.tolist()
        first = seen[group.ends].isdisjoint(rows)
        seen[group.ends].update(rows)
        yield group._replace(first=first, shared=any(filled[group.ends][row] > 1 for row in rows))
