"""How to evaluate one rule shape for all of its applications at once.

A right-hand side is contracted in three stages. *Messages* pass a child's vector through the factors that only it
needs, once per child item. The *meeting* multiplies the messages (and the factors of observed words) of one
application and sums over all applications of an item. What is left is linear, so it comes *after* that sum, once per
item. For the PCFG in rank space these are alpha^L and alpha^R, their split sum, and nothing; for TD-PCFG the factor
U^T is left for the end (Eq. 10 of the paper); both are found, not built in.
"""

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from math import prod
from typing import NamedTuple

from rankspace.fgg.contraction import Axes, Contraction, plan_contraction
from rankspace.inference.generic.sketch import Part, Shape

MEETING, AFTER = -1, -2  # stages of a factor; a number from 0 on is the slot whose message it belongs to
MOVED = 4  # operations that moving one number to or from memory counts for
LARGEST_SEARCH = 2000  # assignments of factors to stages that are all compared; beyond, one factor at a time

ITEM, APPLICATION = "item", "application"  # names of the batch axes


@dataclass(frozen=True)
class Message:
    """A child's array passed through some factors: `output` axes of the product summed over all others."""

    ends: tuple[str, ...]  # node labels of the child's endpoints
    own: Axes
    factors: tuple[tuple[str, Axes], ...]
    output: Axes
    sizes: tuple[tuple[str, int], ...]  # of all axes

    @cached_property
    def is_identity(self) -> bool:
        return not self.factors and self.own == self.output

    @cached_property
    def labels(self) -> tuple[str, ...]:
        return tuple(label for label, _ in self.factors)

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """Shape of one message."""
        size = dict(self.sizes)
        return tuple(size[axis] for axis in self.output)

    @cached_property
    def order(self) -> tuple[int, ...] | None:
        """Order of the axes of its only factor that makes this a matrix from items to messages; None if it is none."""
        wanted = (*self.own, *self.output)
        if len(self.factors) != 1 or len(set(wanted)) < len(wanted) or sorted(wanted) != sorted(self.factors[0][1]):
            return None
        return tuple(self.factors[0][1].index(axis) for axis in wanted)

    def contraction(self, rows: int) -> Contraction:
        """How to compute it for some rows of items at once."""
        operands = ((ITEM, *self.own), *(axes for _, axes in self.factors))
        return plan_contraction(operands, (ITEM, *self.output), ((ITEM, rows), *self.sizes))


class Gathered(NamedTuple):
    """A factor at observed nodes: the axes that remain, and which word indexes which of its axes.

    Without a label it is the indicator of the word, for an observed node that others see.
    """

    label: str | None
    axes: Axes
    picked: tuple[tuple[int, int], ...]  # (axis of the factor, place among the shape's observed nodes)


class Counts(NamedTuple):
    """How often the stages of a shape run: child items of each slot, applications, and items on the left."""

    children: tuple[int, ...]
    applications: int
    items: int


@dataclass(frozen=True)
class ContractionPlan:
    """The three stages of a shape, axes named by the places of its nodes."""

    messages: tuple[Message, ...]
    message_axes: tuple[Axes, ...]
    gathered: tuple[Gathered, ...]
    meeting: tuple[tuple[str, Axes], ...]
    met: Axes
    after: tuple[tuple[str, Axes], ...]
    output: Axes
    sizes: Mapping[str, int]  # of all axes
    alone: Axes  # axes of nodes that nothing touches
    cost: int  # operations and, counted as operations, numbers moved, over all applications

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """Factors of the last two stages that are the same for all applications; one that stands twice comes twice."""
        return tuple(label for label, _ in (*self.meeting, *self.after))

    @cached_property
    def all_labels(self) -> tuple[str, ...]:
        """Factors of all stages."""
        gathered = (part.label for part in self.gathered if part.label is not None)
        return (*self.labels, *gathered, *(label for message in self.messages for label in message.labels))

    @cached_property
    def operands(self) -> tuple[Axes, ...]:
        """Axes of what differs between applications: messages, then factors at words."""
        return (*self.message_axes, *(part.axes for part in self.gathered))

    @cached_property
    def num_arrays(self) -> int:
        """The most arrays that are multiplied between one table and the next."""
        return max(len(self.operands) + len(self.labels), *(1 + len(message.factors) for message in self.messages), 1)

    @cached_property
    def elementwise(self) -> bool:
        """Whether the meeting is nothing but a product of arrays over the same axes."""
        return bool(self.operands) and not self.meeting and all(axes == self.met for axes in self.operands)

    @cached_property
    def kind(self) -> Hashable:
        """What shapes have in common whose applications can be summed together: products of as many, then the same.

        A shape whose meeting is more than a product has a kind of its own.
        """
        if not self.elementwise:
            return id(self)
        axes = [*self.met, *self.output, *self.alone, *(axis for _, ends in self.after for axis in ends)]
        name = {axis: i for i, axis in enumerate(dict.fromkeys(axes))}
        after = tuple((label, tuple(name[axis] for axis in ends)) for label, ends in self.after)
        kept = tuple(name[axis] for axis in (*self.met, *self.output)), len(self.met), len(self.alone)
        return len(self.operands), tuple(self.sizes[axis] for axis in name), after, kept

    def meeting_contraction(self, items: int, applications: int, order: Sequence[int]) -> Contraction:
        """How to multiply the operands of a group, given in some order, and its factors, and sum its applications."""
        batched = [self.operands[i] for i in order]
        operands = (*((ITEM, APPLICATION, *axes) for axes in batched), *(axes for _, axes in self.meeting))
        lengths = {ITEM: items, APPLICATION: applications}
        lengths |= {axis: self.sizes[axis] for axes in operands for axis in axes if axis in self.sizes}
        return plan_contraction(operands, (ITEM, *self.met), tuple(lengths.items()))

    def last_contraction(self, items: int) -> Contraction | None:
        """How to finish the items of a group; None if the meeting was all."""
        if not self.after and not self.alone and self.met == self.output:
            return None
        operands = ((ITEM, *self.met), *(axes for _, axes in self.after))
        axes = dict.fromkeys([*self.met, *self.output, *self.alone, *(axis for ends in operands[1:] for axis in ends)])
        return plan_contraction(operands, (ITEM, *self.output), ((ITEM, items), *((a, self.sizes[a]) for a in axes)))


def plan_shape(
    shape: Shape, sizes: Mapping[str, int], counts: Counts, known: Collection[Message] = ()
) -> ContractionPlan:
    """The cheapest assignment of factors to stages, counted in operations over all applications.

    Messages that other shapes send already (`known`) cost nothing.
    """
    shared = [part for part in shape.factors if not set(part.nodes).intersection(_selected(shape))]
    options = [
        [AFTER, MEETING, *(i for i, slot in enumerate(shape.slots) if set(slot.nodes) & set(part.nodes))]
        for part in shared
    ]
    seen: dict[tuple[int, ...], int] = {}

    def cost(stages: tuple[int, ...]) -> int:
        if stages not in seen:
            seen[stages] = _build(shape, shared, stages, sizes, counts, known).cost
        return seen[stages]

    if prod(len(choices) for choices in options) <= LARGEST_SEARCH:
        best = min(product(*options), key=cost)
    else:
        best = tuple(choices[-1] for choices in options)
        improved = True
        while improved:
            nearby = [(*best[:i], c, *best[i + 1 :]) for i, choices in enumerate(options) for c in choices]
            candidate = min(nearby, key=cost)
            improved = cost(candidate) < cost(best)
            best = candidate if improved else best
    return _build(shape, shared, best, sizes, counts, known)


def _selected(shape: Shape) -> list[int]:
    """Observed nodes whose word picks entries of factors; a nonterminal or the outside must not see them."""
    seen = {node for slot in shape.slots for node in slot.nodes}.union(shape.external)
    return [node for node in shape.observed if node not in seen]


def _build(
    shape: Shape,
    shared: Sequence[Part],
    stages: Sequence[int],
    sizes: Mapping[str, int],
    counts: Counts,
    known: Collection[Message],
) -> ContractionPlan:
    size = {_axis(i): sizes[label] for i, label in enumerate(shape.labels)}
    output = tuple(_axis(node) for node in shape.external)
    selected = _selected(shape)
    picked = [_gather(part, shape, selected) for part in shape.factors if set(part.nodes) & set(selected)]
    seen = [Gathered(None, (_axis(n),), ((0, i),)) for i, n in enumerate(shape.observed) if n not in selected]
    gathered = (*picked, *seen)
    by_stage: dict[int, list[tuple[str, Axes]]] = {}
    for part, stage in zip(shared, stages, strict=True):
        by_stage.setdefault(stage, []).append((str(part.name), _axes(part)))
    after = tuple(by_stage.get(AFTER, ()))
    meeting = tuple(by_stage.get(MEETING, ()))
    fixed = {*output, *(axis for _, axes in after for axis in axes)}
    here = [axes for _, axes in meeting] + [part.axes for part in gathered]

    inputs = [[_axes(slot), *(axes for _, axes in by_stage.get(i, ()))] for i, slot in enumerate(shape.slots)]
    messages: list[Message] = []
    message_axes: list[Axes] = []
    total = 0
    for i, slot in enumerate(shape.slots):
        others = {axis for j, axes in enumerate(inputs) if j != i for part in axes for axis in part}
        needed = fixed | others | {axis for axes in here for axis in axes}
        own = tuple(dict.fromkeys(axis for axes in inputs[i] for axis in axes))
        kept = tuple(axis for axis in own if axis in needed)
        messages.append(_message(slot, by_stage.get(i, ()), kept, size))
        message_axes.append(kept)
        volume = MOVED * prod(size[axis] for axis in kept)
        total += counts.applications * volume
        if messages[-1] not in known:
            total += counts.children[i] * (_stage_flops(inputs[i], kept, size) + volume)
    operands = [*message_axes, *here]
    present = {axis for axes in operands for axis in axes}
    met = tuple(axis for axis in size if axis in present and axis in fixed)
    total += counts.applications * _stage_flops(operands, met, size) + counts.items * MOVED * prod(size[a] for a in met)
    touched = {axis for part in (*shape.factors, *shape.slots) for axis in _axes(part)}
    touched.update(axis for part in seen for axis in part.axes)
    alone = tuple(_axis(n) for n in range(len(shape.labels)) if n not in selected and _axis(n) not in touched)
    total += counts.items * _stage_flops([met, *(axes for _, axes in after)], output, size)
    return ContractionPlan(
        tuple(messages), tuple(message_axes), gathered, meeting, met, after, output, size, alone, total
    )


def _stage_flops(operands: Sequence[Axes], output: Axes, sizes: Mapping[str, int]) -> int:
    """Operations of one stage; a lone operand costs its reading."""
    if not operands:
        return 0
    alive = {axis: sizes[axis] for axes in operands for axis in axes}
    if len(operands) == 1:
        return prod(alive.values()) if tuple(operands[0]) != output else 0
    kept = tuple(axis for axis in output if axis in alive)
    return plan_contraction(tuple(operands), kept, tuple(alive.items())).flops


def _message(slot: Part, factors: Sequence[tuple[str, Axes]], kept: Axes, size: Mapping[str, int]) -> Message:
    """The message with axes renamed by order of appearance, so that equal ones of different shapes are one."""
    name: dict[str, str] = {}
    for axis in [*_axes(slot), *(axis for _, axes in factors for axis in axes)]:
        name.setdefault(axis, f"x{len(name)}")
    return Message(
        tuple(slot.name),
        tuple(name[axis] for axis in _axes(slot)),
        tuple((label, tuple(name[axis] for axis in axes)) for label, axes in factors),
        tuple(name[axis] for axis in kept),
        tuple((short, size[axis]) for axis, short in name.items()),
    )


def _gather(part: Part, shape: Shape, selected: Sequence[int]) -> Gathered:
    picked = tuple((i, shape.observed.index(node)) for i, node in enumerate(part.nodes) if node in selected)
    return Gathered(str(part.name), tuple(_axis(node) for node in part.nodes if node not in selected), picked)


def _axis(node: int) -> str:
    return f"v{node}"


def _axes(part: Part) -> Axes:
    return tuple(_axis(node) for node in part.nodes)
