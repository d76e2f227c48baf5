"""A batch of sentences as a program: levels of groups, each of which is one batched contraction.

Building it is index arithmetic alone; it depends on the lengths in the batch, not on their words or on the weights.
"""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from rankspace.fgg.contraction import Contraction
from rankspace.inference.generic.contraction_plan import ContractionPlan, Counts, Message, plan_shape
from rankspace.inference.generic.layout import Items, Layout, Lookup, Rows, Sizes, lay_out
from rankspace.inference.generic.sketch import Applications, Numbers, Shape, Sketch


class Block(NamedTuple):
    """Operands of a group that stand in one table."""

    table: Sizes
    rows: Tensor  # for each operand, item and application, in this order
    shape: tuple[int, int, int]  # how many operands, items and applications of each item


class Group(NamedTuple):
    """Applications to items of one level, the same number to each: arrays [item, application].

    They are of one shape, or of several whose meetings are products of as many rows and which end alike.
    """

    plan: ContractionPlan  # of one of them; the others agree in all that follows the products
    table: Sizes
    rows: Rows  # of the items on the left
    operands: tuple[Block, ...]
    repeats: int  # applications of each item
    meeting: Contraction
    last: Contraction | None
    first: bool  # whether its items have no values yet
    shared: bool  # whether other groups add to its items

    @property
    def shapes(self) -> list[Sizes]:
        """The shape of each operand."""
        return [block.table for block in self.operands for _ in range(block.shape[0])]

    def to(self, device: torch.device) -> "Group":
        operands = tuple(block._replace(rows=block.rows.to(device)) for block in self.operands)
        return self._replace(rows=self.rows.to(device), operands=operands)


class Passing(NamedTuple):
    """A bundle of messages to compute as soon as its items are known."""

    number: int  # of the bundle
    messages: tuple[Message, ...]
    items: Sizes
    senders: Rows
    table: Sizes
    rows: Rows  # of the messages, one sender after the other
    contractions: tuple[Contraction, ...]  # of each message, for all senders

    def to(self, device: torch.device) -> "Passing":
        return self._replace(senders=self.senders.to(device), rows=self.rows.to(device))


class Level(NamedTuple):
    """Groups that do not depend on each other, and the messages that their items send."""

    groups: tuple[Group, ...]
    passing: tuple[Passing, ...]


@dataclass(frozen=True)
class Program:
    """Everything the engine needs to know about a batch besides weights and words."""

    levels: tuple[Level, ...]
    lookups: tuple[Lookup, ...]
    plans: tuple[ContractionPlan, ...]  # of all shapes
    owners: Mapping[Sizes, Tensor]  # [row]: which sentence each row of each table belongs to
    possible: Tensor  # sentences that can be derived
    roots: Tensor  # their rows in the table of shape ()
    sentence_of_word: Tensor
    tiled: bool  # whether every derivation of a sentence looks at each of its words once
    num_sentences: int
    num_items: int
    num_applications: int

    def shape(self, table: Sizes) -> tuple[int, int]:
        """Shape of a table: its rows, and how many entries each has."""
        return len(self.owners[table]), prod(table)

    def to(self, device: torch.device) -> "Program":
        """The same program with its indices on another device."""
        if device.type == "cpu":
            return self
        return replace(
            self,
            levels=tuple(
                Level(tuple(group.to(device) for group in groups), tuple(part.to(device) for part in passing))
                for groups, passing in self.levels
            ),
            lookups=tuple(
                part._replace(rows=part.rows.to(device), places=part.places.to(device)) for part in self.lookups
            ),
            owners={table: sentences.to(device) for table, sentences in self.owners.items()},
            possible=self.possible.to(device),
            roots=self.roots.to(device),
            sentence_of_word=self.sentence_of_word.to(device),
        )


def build_program(
    sketches: Sequence[Sketch | None], lengths: Sequence[int], sizes: Mapping[str, int], *, conjoined: bool = False
) -> Program:
    """Joins the sketches of a batch; sentence b's words stand after those of the sentences before it.

    In a conjoined grammar each rule has words of its own.
    """
    types = list(dict.fromkeys(ends for sketch in sketches if sketch for ends in sketch.types))
    offsets = np.cumsum([0] + [len(sketch.types) if sketch else 0 for sketch in sketches])
    items = Items.of(sketches, types)
    applications = _concatenate(sketches, offsets, np.cumsum([0, *lengths]))
    plans = _plans(applications, sizes)
    sentence_of_word = np.repeat(np.arange(len(lengths)), lengths)
    layout = lay_out(items, types, sizes, applications, plans, sentence_of_word)
    num_levels = int(items.levels.max()) + 1 if len(items.levels) else 0
    groups: list[list[Group]] = [[] for _ in range(num_levels)]
    for level, group in _groups(applications, plans, items, layout):
        groups[level].append(group)
    passing: list[list[Passing]] = [[] for _ in range(num_levels)]
    for level, part in _passing(items, layout):
        passing[level].append(part)
    possible = [b for b, sketch in enumerate(sketches) if sketch]
    roots = [layout.item_rows[offsets[b] + sketch.root] for b, sketch in enumerate(sketches) if sketch]
    return Program(
        tuple(Level(tuple(_marked(here)), tuple(sent)) for here, sent in zip(groups, passing, strict=True)),
        layout.lookups,
        tuple(plans.values()),
        {table: layout.sentence_of(table) for table in layout.owners},
        torch.tensor(possible, dtype=torch.int64),
        torch.tensor(np.array(roots, dtype=np.int64)),
        torch.from_numpy(sentence_of_word),
        not conjoined and all(map(_looks_once, plans, plans.values())),
        len(sketches),
        len(items.levels),
        sum(len(apps.lhs) for apps in applications.values()),
    )


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


def _looks_once(shape: Shape, plan: ContractionPlan) -> bool:
    """Whether each observed node of a shape is looked at by one factor, which looks at no other."""
    return sorted(part.picked[0][1] for part in plan.gathered) == list(range(len(shape.observed))) and all(
        len(part.picked) == 1 for part in plan.gathered
    )


def _counts(apps: Applications) -> Counts:
    children = tuple(len(np.unique(column)) for column in apps.children.T)
    return Counts(children, len(apps.lhs), len(np.unique(apps.lhs)))


def _groups(
    applications: Mapping[Shape, Applications], plans: Mapping[Shape, ContractionPlan], items: Items, layout: Layout
) -> Iterator[tuple[int, Group]]:
    """The groups of each level; shapes of one kind go together."""
    kinds: dict[Hashable, list[Shape]] = {}
    for shape, plan in plans.items():
        kinds.setdefault(plan.kind, []).append(shape)
    for shapes in kinds.values():
        plan, operands = plans[shapes[0]], layout.operands[shapes[0]]
        order = sorted(range(len(operands)), key=lambda i: operands[i][0])
        by_table: dict[Sizes, list[Numbers]] = {}
        for i in order:
            rows = np.concatenate([layout.operands[shape][i][1] for shape in shapes])
            by_table.setdefault(operands[i][0], []).append(rows)
        lhs = np.concatenate([applications[shape].lhs for shape in shapes])
        for level, kind, chosen, picked in _rectangles(lhs, items):
            yield (
                level,
                Group(
                    plan,
                    layout.item_tables[kind],
                    Rows.of(layout.item_rows[chosen]),
                    tuple(_block(table, [numbers[picked] for numbers in rows]) for table, rows in by_table.items()),
                    picked.shape[1],
                    plan.meeting_contraction(len(chosen), picked.shape[1], order),
                    plan.last_contraction(len(chosen)),
                    first=False,
                    shared=False,
                ),
            )


def _block(table: Sizes, rows: Sequence[Numbers]) -> Block:
    return Block(table, torch.from_numpy(np.concatenate([r.reshape(-1) for r in rows])), (len(rows), *rows[0].shape))


def _rectangles(lhs: Numbers, items: Items) -> Iterator[tuple[int, int, Numbers, Numbers]]:
    """Applications by level, type and how many an item has: level, type, items and applications [item, number]."""
    order = np.argsort(lhs, kind="stable")
    found, counts = np.unique(lhs, return_counts=True)
    starts = np.cumsum(counts) - counts
    keys = np.stack([items.types[found], items.levels[found], counts], axis=1)
    for kind, level, count in np.unique(keys, axis=0):
        chosen = np.flatnonzero((keys == [kind, level, count]).all(axis=1))
        yield int(level), int(kind), found[chosen], order[starts[chosen][:, None] + np.arange(count)]


def _passing(items: Items, layout: Layout) -> Iterator[tuple[int, Passing]]:
    """What the items of each level send."""
    for number, bundle in enumerate(layout.bundles):
        levels = items.levels[bundle.senders]
        for level in np.unique(levels):
            first, end = np.searchsorted(levels, [level, level + 1])  # rows are ordered by level
            senders = bundle.senders[first:end]
            yield (
                int(level),
                Passing(
                    number,
                    bundle.messages,
                    layout.item_tables[items.types[senders[0]]],
                    Rows.of(layout.item_rows[senders]),
                    bundle.table,
                    bundle.rows(int(first), len(senders)),
                    tuple(message.contraction(len(senders)) for message in bundle.messages),
                ),
            )


def _marked(groups: Sequence[Group]) -> Iterator[Group]:
    """The groups of a level, each told whether it is the first or not the only one to fill its items."""
    filled: dict[Sizes, dict[int, int]] = {}
    for group in groups:
        counts = filled.setdefault(group.table, {})
        for row in group.rows.numbers.tolist():
            counts[row] = counts.get(row, 0) + 1
    seen: dict[Sizes, set[int]] = {table: set() for table in filled}
    for group in groups:
        rows = group.rows.numbers.tolist()
        first = seen[group.table].isdisjoint(rows)
        seen[group.table].update(rows)
        yield group._replace(first=first, shared=any(filled[group.table][row] > 1 for row in rows))
