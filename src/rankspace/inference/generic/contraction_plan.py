"""How to evaluate one rule shape for all of its applications at once.

A right-hand side is contracted in three stages. *Messages* pass a child's vector through the factors that only it
needs, once per child item. The *meeting* multiplies the messages (and the factors of observed words) of one
application and sums over all applications of an item. What is left is linear, so it comes *after* that sum, once per
item. For the PCFG in rank space these are alpha^L and alpha^R, their split sum, and nothing; for TD-PCFG the factor
U^T is left for the end (Eq. 6 of the paper); both are found, not built in.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import NamedTuple

from rankspace.fgg.contraction import contraction_flops
from rankspace.inference.generic.sketch import Part, Shape

MEETING, AFTER = -1, -2  # stages of a factor; a number from 0 on is the slot whose message it belongs to
LARGEST_SEARCH = 2000  # assignments of factors to stages that are all compared; beyond, one factor at a time

Axes = tuple[str, ...]


@dataclass(frozen=True)
class Message:
    """A child's array passed through some factors: `output` axes of the product summed over all others."""

    ends: tuple[str, ...]  # node labels of the child's endpoints
    own: Axes
    factors: tuple[tuple[str, Axes], ...]
    output: Axes

    @property
    def is_identity(self) -> bool:
        return not self.factors and self.own == self.output


class Gathered(NamedTuple):
    """A factor at observed nodes: the axes that remain, and which word indexes which of its axes."""

    label: str
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
    one_hot: tuple[tuple[str, int, int], ...]  # observed nodes that others see: axis, place among the observed, size
    meeting: tuple[tuple[str, Axes], ...]
    met: Axes
    after: tuple[tuple[str, Axes], ...]
    output: Axes
    sizes: Mapping[str, int]  # of the axes of the last stage, with those of nodes that nothing touches
    flops: int


def plan_contraction(
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
    cost = {}

    def flops(stages: tuple[int, ...]) -> int:
        if stages not in cost:
            cost[stages] = _build(shape, shared, stages, sizes, counts, known).flops
        return cost[stages]

    if prod(len(choices) for choices in options) <= LARGEST_SEARCH:
        best = min(product(*options), key=flops)
    else:
        best = tuple(choices[-1] for choices in options)
        improved = True
        while improved:
            nearby = [(*best[:i], c, *best[i + 1 :]) for i, choices in enumerate(options) for c in choices]
            candidate = min(nearby, key=flops)
            improved = flops(candidate) < flops(best)
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
    gathered = tuple(_gather(part, shape, selected) for part in shape.factors if set(part.nodes) & set(selected))
    one_hot = tuple((_axis(n), i, size[_axis(n)]) for i, n in enumerate(shape.observed) if n not in selected)
    by_stage: dict[int, list[tuple[str, Axes]]] = {}
    for part, stage in zip(shared, stages, strict=True):
        by_stage.setdefault(stage, []).append((str(part.name), _axes(part)))
    after = tuple(by_stage.get(AFTER, ()))
    meeting = tuple(by_stage.get(MEETING, ()))
    fixed = {*output, *(axis for _, axes in after for axis in axes)}
    here = [axes for _, axes in meeting] + [g.axes for g in gathered] + [(axis,) for axis, _, _ in one_hot]

    inputs = [[_axes(slot), *(axes for _, axes in by_stage.get(i, ()))] for i, slot in enumerate(shape.slots)]
    messages, message_axes, total = [], [], 0
    for i, slot in enumerate(shape.slots):
        others = {axis for j, axes in enumerate(inputs) if j != i for part in axes for axis in part}
        needed = fixed | others | {axis for axes in here for axis in axes}
        own = tuple(dict.fromkeys(axis for axes in inputs[i] for axis in axes))
        kept = tuple(axis for axis in own if axis in needed)
        messages.append(_message(slot, by_stage.get(i, ()), kept))
        message_axes.append(kept)
        if messages[-1] not in known:
            total += counts.children[i] * _stage_flops(inputs[i], kept, size)
    operands = [*message_axes, *here]
    present = {axis for axes in operands for axis in axes}
    met = tuple(axis for axis in size if axis in present and axis in fixed)
    total += counts.applications * (_stage_flops(operands, met, size) + 2 * prod(size[a] for a in met))
    touched = {axis for part in (*shape.factors, *shape.slots) for axis in _axes(part)}.union(a for a, _, _ in one_hot)
    alone = {_axis(n) for n in range(len(shape.labels)) if n not in selected}.difference(touched)
    final = {axis: n for axis, n in size.items() if axis in fixed or axis in alone}
    total += counts.items * _stage_flops([met, *(axes for _, axes in after)], output, final)
    return ContractionPlan(
        tuple(messages), tuple(message_axes), gathered, one_hot, meeting, met, after, output, final, total
    )


def _stage_flops(operands: Sequence[Axes], output: Axes, sizes: Mapping[str, int]) -> int:
    """Operations of one stage; a lone operand costs its reading."""
    if not operands:
        return 0
    alive = {axis: sizes[axis] for axes in operands for axis in axes}
    if len(operands) == 1:
        return prod(alive.values()) if tuple(operands[0]) != output else 0
    return contraction_flops(operands, output, alive)


def _message(slot: Part, factors: Sequence[tuple[str, Axes]], kept: Axes) -> Message:
    """The message with axes renamed by order of appearance, so that equal ones of different shapes are one."""
    name: dict[str, str] = {}
    for axis in [*_axes(slot), *(axis for _, axes in factors for axis in axes)]:
        name.setdefault(axis, f"x{len(name)}")
    return Message(
        tuple(slot.name),
        tuple(name[axis] for axis in _axes(slot)),
        tuple((label, tuple(name[axis] for axis in axes)) for label, axes in factors),
        tuple(name[axis] for axis in kept),
    )


def _gather(part: Part, shape: Shape, selected: Sequence[int]) -> Gathered:
    picked = tuple((i, shape.observed.index(node)) for i, node in enumerate(part.nodes) if node in selected)
    return Gathered(str(part.name), tuple(_axis(node) for node in part.nodes if node not in selected), picked)


def _axis(node: int) -> str:
    return f"v{node}"


def _axes(part: Part) -> Axes:
    return tuple(_axis(node) for node in part.nodes)
