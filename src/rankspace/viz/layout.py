"""The layout of a fragment's picture: parts and labels that do not meet, lines between them.

Geometry alone, in points, y upwards; the caller knows the font and gives the sizes. The flow goes down the page (trees)
or to the right (chains), where words and other dead ends hang below the chain.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from math import dist
from typing import Literal, NamedTuple

from rankspace.viz.layers import Bend, Box, Part, Point, Size, Spot, distances, place_in_layers

Direction = Literal["down", "right"]
Side = Literal["left", "right", "above", "below"]

COMPONENT_GAP = 16.0  # between components, which no edge connects
LABEL_GAP = 2.5  # between a factor and its label


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
        shift = {"left": (-right, 0.0), "right": (right, 0.0), "above": (0.0, up), "below": (0.0, -up)}[side]
        return [outline, Box.around(centre, self.label).moved(*shift)]


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
    """From an edge to a node, through bends if there are any; `count` times where the edge has that node so often."""

    points: list[Point]
    count: int


@dataclass(frozen=True)
class Layout:
    boxes: Mapping[Part, list[Box]]  # the outline, then the label if it stands beside
    lines: Sequence[Line]

    @property
    def box(self) -> Box:
        """Around everything; a point if there is nothing."""
        found = [box for boxes in self.boxes.values() for box in boxes]
        return reduce(Box.joined, found) if found else Box(0.0, 0.0, 0.0, 0.0)

    def moved(self, right: float, up: float) -> "Layout":
        boxes = {part: [box.moved(right, up) for box in found] for part, found in self.boxes.items()}
        lines = [Line([(x + right, y + up) for x, y in points], count) for points, count in self.lines]
        return Layout(boxes, lines)


def lay_out(sketch: Sketch, direction: Direction) -> Layout:
    """Places every part so that no two boxes of parts and labels meet. Lines may pass behind a label."""
    components = _components(sketch, direction)
    sides = {part: component.side(part, direction) for component in components for part in component.members}
    centres = _place(sketch, components, direction, sides)
    for part, side in sides.items():
        if side == "right" and _slants_left(sketch, part, centres):
            sides[part] = "left"
    centres = _place(sketch, components, direction, sides)
    boxes = {part: shape.boxes(centres[part], sides[part]) for part, shape in sketch.shapes.items()}
    counts = {link: sketch.links.count(link) for link in sketch.links}
    return Layout(boxes, [Line(_route(link, centres, boxes), count) for link, count in counts.items()])


def _slants_left(sketch: Sketch, part: Part, centres: Mapping[Spot, Point]) -> bool:
    """Whether a part stands to the left of what is above it: then its label is better off on the left too."""
    x, y = centres[part]
    above = [centres[other][0] for other in sketch.neighbours[part] if centres[other][1] > y]
    return bool(above) and x < sum(above) / len(above) - 1


def _route(link: tuple[Part, Part], centres: Mapping[Spot, Point], boxes: Mapping[Part, list[Box]]) -> list[Point]:
    """The straight line where that is free, else the way through the bends that were placed for it."""
    bends = [spot for spot in centres if isinstance(spot, Bend) and {spot.upper, spot.lower} == set(link)]
    begin, end = (centres[part] for part in link)
    others = [box for part, found in boxes.items() if part not in link for box in found]
    if not bends or not any(_passes(begin, end, box) for box in others):
        return [begin, end]
    way = [centres[bend] for bend in bends]
    return [begin, *(way if bends[0].upper == link[0] else way[::-1]), end]


def _passes(begin: Point, end: Point, box: Box) -> bool:
    """Whether a straight line runs through a box, looked up at every point of its way."""
    steps = max(1, round(dist(begin, end)))
    for i in range(steps + 1):
        x, y = (b + (e - b) * i / steps for b, e in zip(begin, end, strict=True))
        if box.left < x < box.right and box.bottom < y < box.top:
            return True
    return False


@dataclass(frozen=True)
class _Component:
    """Connected parts, where the flow begins in them, and what hangs below the chain they form."""

    members: list[Part]
    sources: list[Part]
    hanging: dict[Part, list[Part]]  # by the part of the chain it hangs from

    @property
    def hung(self) -> set[Part]:
        return {part for parts in self.hanging.values() for part in parts}

    def side(self, part: Part, direction: Direction) -> Side:
        """Where a label begins its search for a free side."""
        if part.kind == "word":
            return "below"
        return "right" if direction == "down" or part in self.hung else "above"


def _components(sketch: Sketch, direction: Direction) -> list[_Component]:
    found = []
    for members in _connected(sketch, list(sketch.shapes)):
        external = [part for part in members if part.kind == "external"]
        factors = [part for part in members if part.kind == "factor"]
        sources = external or factors[:1] or members[:1]  # start rules flow from their first factor
        found.append(_Component(members, sources, _hanging(sketch, members, sources) if direction == "right" else {}))
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
) -> dict[Spot, Point]:
    """Centres of all parts and bends: components side by side in trees, one below the other in chains."""
    extents = {part: reduce(Box.joined, shape.boxes((0.0, 0.0), sides[part])) for part, shape in sketch.shapes.items()}
    centres: dict[Spot, Point] = {}
    x = y = 0.0
    for component in components:
        placed = _place_component(sketch, component, direction, extents)
        box = reduce(Box.joined, (extents[part].moved(*placed[part]) for part in component.members))
        right, up = (x - box.left, 0.0) if direction == "down" else (0.0, y - box.top)
        centres.update(_moved(placed, (right, up)))
        x += box.right - box.left + COMPONENT_GAP
        y -= box.top - box.bottom + COMPONENT_GAP
    return centres


def _place_component(
    sketch: Sketch, component: _Component, direction: Direction, extents: Mapping[Part, Box]
) -> dict[Spot, Point]:
    """Layers run down; to run to the right they are mirrored, each part with all that hangs below it as one block."""
    if direction == "down":
        return place_in_layers(sketch.neighbours, component.sources, {part: extents[part] for part in component.members})
    hung = {
        host: place_in_layers(sketch.neighbours, [host], {part: extents[part] for part in (host, *parts)})
        for host, parts in component.hanging.items()
    }
    blocks = {part: extents[part] for part in component.members if part not in component.hung}
    for host, placed in hung.items():
        blocks[host] = reduce(Box.joined, (extents[part].moved(*placed[part]) for part in placed if part in extents))
    mirrored = {part: box.mirrored() for part, box in blocks.items()}
    chain = place_in_layers(sketch.neighbours, component.sources, mirrored)
    centres = {spot: (-y, -x) for spot, (x, y) in chain.items()}
    for host, placed in hung.items():
        centres.update(_moved(placed, centres[host]))
    return centres


def _moved(centres: Mapping[Spot, Point], by: Point) -> dict[Spot, Point]:
    return {spot: (x + by[0], y + by[1]) for spot, (x, y) in centres.items()}
