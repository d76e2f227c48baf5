"""The layout of a fragment's picture: parts and labels that do not meet, lines between them.

Geometry alone, in points, y upwards; the caller knows the font and gives the sizes. The flow goes down the page (trees)
or to the right (chains), where words and other dead ends hang below the chain.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from statistics import fmean
from typing import Literal, NamedTuple

from rankspace.viz.layers import Box, Part, Placement, Point, Size, distances, place_in_layers

Direction = Literal["down", "right"]
Side = Literal["left", "right", "upper left", "upper right", "above", "below"]

CLEARANCE = 4.0  # between a line that could also bend and what it passes
COMPONENT_GAP = 16.0  # between components, which no edge connects
LABEL_GAP = 3.0  # between a factor and its label


class Shape(NamedTuple):
    """Size of a part and of the label beside it, if its label does not stand inside."""

    size: Size
    label: Size | None = None

    def boxes(self, centre: Point, side: Side) -> list[Box]:
        """The outline, then the label."""
        outline = Box.around(centre, self.size)
        if self.label is None:
            return [outline]
        right = (self.size[0] + self.label[0]) / 2 + LABEL_GAP
        up = (self.size[1] + self.label[1]) / 2 + LABEL_GAP / 2
        shifts = {
            "left": (-right, 0.0),
            "right": (right, 0.0),
            "upper left": (-right, up / 2),
            "upper right": (right, up / 2),
            "above": (0.0, up),
            "below": (0.0, -up),
        }
        return [outline, Box.around(centre, self.label).moved(*shifts[side])]


@dataclass(frozen=True)
class Sketch:
    """Parts with their shapes, and the links (edge, node), one for each endpoint."""

    shapes: Mapping[Part, Shape]
    links: Sequence[tuple[Part, Part]]

    @cached_property
    def neighbours(self) -> Mapping[Part, Sequence[Part]]:
        found: dict[Part, list[Part]] = {part: [] for part in self.shapes}
        for edge, node in dict.fromkeys(self.links):
            found[edge].append(node)
            found[node].append(edge)
        return found


class Line(NamedTuple):
    """From an edge to a node, through bends if there are any, and as many times as the edge has this endpoint."""

    edge: Part
    node: Part
    points: list[Point]
    times: int


@dataclass(frozen=True)
class Layout:
    boxes: Mapping[Part, list[Box]]  # the outline, then the label if it stands beside
    lines: Sequence[Line]

    @property
    def box(self) -> Box:
        """Around everything; a point if there is nothing."""
        found = [box for boxes in self.boxes.values() for box in boxes]
        return Box.joining(found) if found else Box(0.0, 0.0, 0.0, 0.0)

    def moved(self, right: float, up: float) -> "Layout":
        boxes = {part: [box.moved(right, up) for box in found] for part, found in self.boxes.items()}
        lines = [line._replace(points=[(x + right, y + up) for x, y in line.points]) for line in self.lines]
        return Layout(boxes, lines)

    def lines_behind_parts(self) -> int:
        """How often a line passes behind a part that it does not join."""
        return sum(
            any(_passes(begin, end, boxes[0]) for begin, end in pairwise(line.points))
            for line in self.lines
            for part, boxes in self.boxes.items()
            if part not in (line.edge, line.node)
        )


def lay_out(sketch: Sketch, direction: Direction) -> Layout:
    """Places every part so that no two boxes of parts and labels meet. Lines may pass behind a label."""
    layout = _lay_out(sketch, direction, hang=direction == "right")
    if direction == "right" and layout.lines_behind_parts():
        layout = min(layout, _lay_out(sketch, direction, hang=False), key=Layout.lines_behind_parts)
    return layout


def _lay_out(sketch: Sketch, direction: Direction, hang: bool) -> Layout:
    components = _components(sketch, hang)
    sides = {part: component.side(part, direction) for component in components for part in component.members}
    beside = [part for part, side in sides.items() if side == "right"]
    placement = _place(sketch, components, direction, sides)
    for _ in range(2):  # a label that changes its side makes others move
        sides.update({part: _better_side(sketch, part, placement.centres) for part in beside})
        placement = _place(sketch, components, direction, sides)
    boxes = {part: shape.boxes(placement.centres[part], sides[part]) for part, shape in sketch.shapes.items()}
    times = {link: sketch.links.count(link) for link in sketch.links}
    return Layout(boxes, [Line(*link, _route(link, placement, boxes), times[link]) for link in times])


def _better_side(sketch: Sketch, part: Part, centres: Mapping[Part, Point]) -> Side:
    """Left or right, rather where the part leans, straight or raised: the first where the fewest lines pass behind."""
    x, y = centres[part]
    above = [centres[other][0] for other in sketch.neighbours[part] if centres[other][1] > y]
    sides: list[Side] = ["right", "left", "upper right", "upper left"]
    if above and x < fmean(above) - 1:
        sides = ["left", "right", "upper left", "upper right"]

    def passing(side: Side) -> int:
        label = sketch.shapes[part].boxes((x, y), side)[-1]
        return sum(_passes(centres[edge], centres[node], label) for edge, node in sketch.links)

    return min(sides, key=passing)


def _route(link: tuple[Part, Part], placement: Placement, boxes: Mapping[Part, list[Box]]) -> list[Point]:
    """The straight line where that is free, else the way through the bends that were placed for it."""
    edge, node = link
    begin, end = placement.centres[edge], placement.centres[node]
    bends = placement.bends.get((edge, node)) or placement.bends.get((node, edge), [])[::-1]
    others = [box.widened(CLEARANCE) for part, found in boxes.items() if part not in link for box in found]
    return [begin, *bends, end] if any(_passes(begin, end, box) for box in others) else [begin, end]


def _passes(begin: Point, end: Point, box: Box) -> bool:
    """Whether a straight line runs through a box: the stretches of it that are inside in x and in y overlap."""
    enter, leave = 0.0, 1.0
    for b, e, low, high in zip(begin, end, box[:2], box[2:], strict=True):
        if b == e:
            if not low < b < high:
                return False
        else:
            first, last = sorted(((low - b) / (e - b), (high - b) / (e - b)))
            enter, leave = max(enter, first), min(leave, last)
    return enter < leave


@dataclass(frozen=True)
class _Component:
    """Connected parts, where the flow begins in them, and what hangs on the chain that they form."""

    members: list[Part]
    sources: list[Part]
    hanging: dict[Part, list[Part]]  # by the part of the chain that it hangs from
    upwards: set[Part]  # parts from which it stands up instead, since another chain runs below

    def hung(self, part: Part) -> Part | None:
        """From where a part hangs, if it does."""
        return next((host for host, parts in self.hanging.items() if part in parts), None)

    def side(self, part: Part, direction: Direction) -> Side:
        """Where the label of a part stands unless something speaks against it."""
        host = self.hung(part)
        if part.kind == "word":
            return "above" if host in self.upwards else "below"
        return "right" if direction == "down" or host else "above"


def _components(sketch: Sketch, hang: bool) -> list[_Component]:
    found = []
    external = [part for part in sketch.shapes if part.kind == "external"]
    for members in _connected(sketch, list(sketch.shapes)):
        factors = [part for part in members if part.kind == "factor"]
        # Rules of a start symbol have no external nodes and flow from their first factor.
        sources = [part for part in members if part in external] or factors[:1] or members[:1]
        hanging = _hanging(sketch, members, sources) if hang else {}
        found.append(_Component(members, sources, hanging, set(external[:-1])))
    return found


def _connected(sketch: Sketch, parts: Sequence[Part]) -> list[list[Part]]:
    """The connected components of the subgraph of some parts, each in the order of the parts."""
    left, found = dict.fromkeys(parts), []
    while left:
        group = [next(iter(left))]
        for part in group:  # it grows as we walk it
            left.pop(part, None)
            group.extend(other for other in sketch.neighbours[part] if other in left and other not in group)
        found.append(sorted(group, key=parts.index))
    return found


def _hanging(sketch: Sketch, members: list[Part], sources: list[Part]) -> dict[Part, list[Part]]:
    """Trees without external nodes and nonterminal edges, by the part of the chain that they grow from."""
    keep = {part for part in members if part.kind in ("external", "nonterminal")} | set(sources)
    if all(part.kind != "nonterminal" for part in members):
        keep.add(_terminus(sketch, members, sources))
    chain = set(members)
    while leaves := {p for p in chain - keep if sum(other in chain for other in sketch.neighbours[p]) <= 1}:
        chain -= leaves
    found: dict[Part, list[Part]] = {}
    for tree in _connected(sketch, [part for part in members if part not in chain]):
        host = next(other for part in tree for other in sketch.neighbours[part] if other in chain)
        found.setdefault(host, []).extend(tree)
    return found


def _terminus(sketch: Sketch, members: list[Part], sources: list[Part]) -> Part:
    """Where a chain without nonterminal edge ends: at its last factor of one node, or else as far away as it goes."""
    depth = distances({part: sketch.neighbours[part] for part in members}, sources)
    last = [p for p in members if p.kind == "factor" and len(sketch.neighbours[p]) == 1 and p not in sources]
    return max(last or members, key=lambda part: depth[part])


def _place(
    sketch: Sketch, components: Iterable[_Component], direction: Direction, sides: Mapping[Part, Side]
) -> Placement:
    """All parts: components side by side in trees, one below the other in chains."""
    boxes = {part: shape.boxes((0.0, 0.0), sides[part]) for part, shape in sketch.shapes.items()}
    result = Placement({}, {})
    x = y = 0.0
    for component in components:
        own = {part: boxes[part] for part in component.members}
        placed = (_place_tree if direction == "down" else _place_chain)(sketch, component, own)
        whole = Box.joining(_around(placed, own))
        result = result.joined(placed.moved((x - whole.left, 0.0) if direction == "down" else (0.0, y - whole.top)))
        x += whole.right - whole.left + COMPONENT_GAP
        y -= whole.top - whole.bottom + COMPONENT_GAP
    return result


def _place_tree(sketch: Sketch, component: _Component, boxes: Mapping[Part, list[Box]]) -> Placement:
    return place_in_layers(sketch.neighbours, component.sources, boxes)


def _place_chain(sketch: Sketch, component: _Component, boxes: Mapping[Part, list[Box]]) -> Placement:
    """Layers from left to right, each part in one piece with what hangs from it."""
    blocks = {part: boxes[part] for part in boxes if component.hung(part) is None}
    hung = {}
    for host, parts in component.hanging.items():
        turn = _upside_down if host in component.upwards else _as_it_is
        own = {part: boxes[part] for part in (host, *parts)}
        turned = {part: [box.mapped(turn) for box in found] for part, found in own.items()}
        hung[host] = place_in_layers(sketch.neighbours, [host], turned).mapped(turn)
        blocks[host] = _around(hung[host], own)
    turned = {part: [box.mapped(_quarter_turn) for box in found] for part, found in blocks.items()}
    result = place_in_layers(sketch.neighbours, component.sources, turned).mapped(_quarter_turn)
    for host, placed in hung.items():
        result = result.joined(placed.moved(result.centres[host]))
    return result


def _around(placed: Placement, boxes: Mapping[Part, list[Box]]) -> list[Box]:
    return [box.moved(*centre) for part, centre in placed.centres.items() for box in boxes[part]]


def _as_it_is(point: Point) -> Point:
    return point


def _upside_down(point: Point) -> Point:
    return point[0], -point[1]


def _quarter_turn(point: Point) -> Point:
    """A mirror, its own inverse, that turns down into right and right into down."""
    return -point[1], -point[0]
