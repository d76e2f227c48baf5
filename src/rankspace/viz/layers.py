"""A connected graph in layers from top to bottom: no two parts meet, few lines cross, neighbours stand near each other.

Geometry alone, in points, y upwards. Layers follow the distance from the sources, nonterminal edges come after all of
their nodes. A line that passes a layer on its way has a bend there, so that room is left for it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from statistics import fmean
from typing import Literal, NamedTuple

import numpy as np

Point = tuple[float, float]
Size = tuple[float, float]

LAYER_GAP = 12.0  # between the parts of neighbouring layers
NODE_GAP, PART_GAP = 20.0, 12.0  # between two nodes, and between other neighbours, in one layer
CLEARANCE = 5.0  # between a label and the parts of other layers
FLATTEST = 0.6  # rise over run of the flattest line between two layers
LEAF, LONG_LINE = 1000.0, 300.0  # how hard their ends pull, against 1 for other lines: leaves hang straight
STEPS = 200  # of the search for the best places, at most; one for each two neighbours that touch is usual


class Box(NamedTuple):
    left: float
    bottom: float
    right: float
    top: float

    @classmethod
    def around(cls, centre: Point, size: Size) -> "Box":
        (x, y), (width, height) = centre, size
        return cls(x - width / 2, y - height / 2, x + width / 2, y + height / 2)

    @classmethod
    def joining(cls, boxes: Sequence["Box"]) -> "Box":
        lefts, bottoms, rights, tops = zip(*boxes, strict=True)
        return cls(min(lefts), min(bottoms), max(rights), max(tops))

    def moved(self, right: float, up: float) -> "Box":
        return Box(self.left + right, self.bottom + up, self.right + right, self.top + up)

    def mapped(self, map_: Callable[[Point], Point]) -> "Box":
        """The box between the images of two opposite corners."""
        (x0, y0), (x1, y1) = map_(self[:2]), map_(self[2:])
        return Box(min(x0, x1), min(y0, y1), max(x0, x1), max(y0, y1))

    def widened(self, by: float) -> "Box":
        return Box(self.left - by, self.bottom - by, self.right + by, self.top + by)

    def meets(self, other: "Box") -> bool:
        beside = self.right <= other.left or other.right <= self.left
        return not (beside or self.top <= other.bottom or other.top <= self.bottom)


class Part(NamedTuple):
    """What is drawn at a node or an edge."""

    kind: Literal["node", "external", "factor", "word", "nonterminal"]
    id: str


class Bend(NamedTuple):
    """Where the line between two parts passes through a layer between theirs."""

    upper: Part
    lower: Part
    layer: int


Spot = Part | Bend
Graph = Mapping[Part, Sequence[Part]]  # the neighbours of each part
Layers = list[list[Spot]]
Links = Mapping[Spot, Sequence[Spot]]  # the neighbours of each spot, all in the layers next to its own
Boxes = Mapping[Spot, Sequence[Box]]  # around the origin: the part itself, then what belongs to it
ROOM_FOR_A_LINE = (Box(-2.0, 0.0, 2.0, 0.0),)


class Gap(NamedTuple):
    """What must lie between the centres of two neighbours in a layer, given by number."""

    left: int
    right: int
    width: float


@dataclass(frozen=True)
class Placement:
    """Centres of parts; for lines that pass layers, the points in which they enter and leave them, from the top."""

    centres: Mapping[Part, Point]
    bends: Mapping[tuple[Part, Part], Sequence[Point]]  # by upper and lower end

    def mapped(self, map_: Callable[[Point], Point]) -> "Placement":
        return Placement(
            {part: map_(point) for part, point in self.centres.items()},
            {ends: [map_(point) for point in points] for ends, points in self.bends.items()},
        )

    def moved(self, by: Point) -> "Placement":
        return self.mapped(lambda point: (point[0] + by[0], point[1] + by[1]))

    def joined(self, other: "Placement") -> "Placement":
        return Placement({**self.centres, **other.centres}, {**self.bends, **other.bends})


def place_in_layers(graph: Graph, sources: Sequence[Part], boxes: Mapping[Part, Sequence[Box]]) -> Placement:
    """Places the parts that have boxes. The first layer is at y = 0 and keeps the order of the sources."""
    inner = {part: [other for other in graph[part] if other in boxes] for part in boxes}
    layers, links = _layers_and_links(inner, distances(inner, sources))
    layers = _untangled(layers, links)
    rooms = {spot: boxes[spot] if isinstance(spot, Part) else ROOM_FOR_A_LINE for layer in layers for spot in layer}
    xs = _across(layers, links, rooms)
    centres: dict[Part, Point] = {}
    bends: dict[tuple[Part, Part], list[Point]] = {}
    for layer, y in zip(layers, _down(layers, links, rooms, xs), strict=True):
        whole = Box.joining([rooms[spot][0] for spot in layer])
        for spot in layer:
            if isinstance(spot, Part):
                centres[spot] = xs[spot], y
            else:
                way = bends.setdefault((spot.upper, spot.lower), [])
                way += [(xs[spot], y + whole.top), (xs[spot], y + whole.bottom)]
    return Placement(centres, bends)


def distances(graph: Graph, sources: Sequence[Part]) -> dict[Part, int]:
    """Layer of each part of a connected graph: the flow passes nonterminal edges only where there is no other way."""
    found = dict.fromkeys(sources, 0)
    frontier = list(sources)
    while frontier:
        for part in frontier:  # it grows as we walk it
            for other in graph[part]:
                if other not in found and other.kind != "nonterminal":
                    found[other] = found[part] + 1
                    frontier.append(other)
        frontier = _first_gate(graph, found)
        found.update({gate: 1 + max(found[node] for node in graph[gate] if node in found) for gate in frontier})
    return found | {part: 1 + max(found[node] for node in graph[part]) for part in graph if part not in found}


def _first_gate(graph: Graph, found: Mapping[Part, int]) -> list[Part]:
    """The first nonterminal edge, if any, that leads from nodes with a layer to nodes without one."""
    for part, nodes in graph.items():
        if part not in found and any(node in found for node in nodes) and any(node not in found for node in nodes):
            return [part]
    return []


def _layers_and_links(graph: Graph, depth: Mapping[Part, int]) -> tuple[Layers, Links]:
    layers: Layers = [[] for _ in range(max(depth.values()) + 1)]
    links: dict[Spot, list[Spot]] = {part: [] for part in depth}
    for part, number in depth.items():
        layers[number].append(part)
    for upper, lower in ((part, other) for part in depth for other in graph[part] if depth[part] < depth[other]):
        bends = [Bend(upper, lower, number) for number in range(depth[upper] + 1, depth[lower])]
        for bend in bends:
            layers[bend.layer].append(bend)
        way: list[Spot] = [upper, *bends, lower]
        for a, b in pairwise(way):
            links.setdefault(a, []).append(b)
            links.setdefault(b, []).append(a)
    return layers, links


def _untangled(layers: Layers, links: Links) -> Layers:
    """The layers below the first in an order with fewer crossings: long lines on the right or left, then barycentres.

    Nonterminal edges keep their order, which is that of the sentence.
    """
    given = {spot: i for i, spot in enumerate(spot for layer in layers for spot in layer)}

    def cost(layers: Layers) -> tuple[int, int]:
        names = [
            [given[spot] for spot in layer if isinstance(spot, Part) and spot.kind == "nonterminal"] for layer in layers
        ]
        swapped = sum(a > b for layer in names for a, b in combinations(layer, 2))
        return swapped, sum(_crossings(upper, lower, links) for upper, lower in pairwise(layers))

    tried = [layers, [sorted(layer, key=lambda spot: isinstance(spot, Part)) for layer in layers]]
    if min(map(cost, tried)) > (0, 0):
        for start in tuple(tried):
            now = start
            for downwards in (True, False, True):
                now = _sorted_by_barycentre(now, links, downwards)
                tried.append(now)
    return min(tried, key=cost)


def _crossings(upper: Sequence[Spot], lower: Sequence[Spot], links: Links) -> int:
    place = {spot: i for i, spot in enumerate(lower)}
    lines = [(i, place[other]) for i, spot in enumerate(upper) for other in links[spot] if other in place]
    return sum((a - c) * (b - d) < 0 for (a, b), (c, d) in combinations(lines, 2))


def _sorted_by_barycentre(layers: Layers, links: Links, downwards: bool) -> Layers:
    """One sweep: each layer but the first sorted by the mean place of its neighbours in the layer swept before it."""
    result = list(layers)
    for number in range(1, len(layers)) if downwards else range(len(layers) - 2, 0, -1):
        place = {spot: float(i) for i, spot in enumerate(result[number - 1 if downwards else number + 1])}
        means = {
            spot: fmean([place[other] for other in links[spot] if other in place] or [i])
            for i, spot in enumerate(result[number])
        }
        result[number] = sorted(result[number], key=means.__getitem__)
    return result


def _across(layers: Layers, links: Links, boxes: Boxes) -> dict[Spot, float]:
    """x of each spot: as near to its neighbours as the others of its layer leave it room, in least squares."""
    whole = {spot: Box.joining(boxes[spot]) for spot in boxes}
    place = {spot: i for i, spot in enumerate(boxes)}
    leaves = {spot for layer in layers[1:] for spot in layer if len(links[spot]) == 1}
    springs = np.eye(len(place)) * 1e-6  # holds the picture as a whole in its place
    for a, b in ((spot, other) for spot in links for other in links[spot]):
        bend = isinstance(a, Bend) or isinstance(b, Bend)
        stiffness = LEAF if a in leaves or b in leaves else LONG_LINE if bend else 1.0
        springs[place[a], place[a]] += stiffness
        springs[place[a], place[b]] -= stiffness
    pairs = [pair for layer in layers for pair in pairwise(layer)]
    gaps = [Gap(place[a], place[b], whole[a].right + _gap(a, b) - whole[b].left) for a, b in pairs]
    xs = _relaxed(springs, gaps)
    for gap in gaps:  # what numerics or an unfinished search left too narrow
        xs[gap.right] = max(xs[gap.right], xs[gap.left] + gap.width)
    return dict(zip(place, xs, strict=True))


def _gap(left: Spot, right: Spot) -> float:
    nodes = all(isinstance(spot, Part) and spot.kind in ("node", "external") for spot in (left, right))
    return NODE_GAP if nodes else PART_GAP


def _relaxed(springs: np.ndarray, gaps: Sequence[Gap]) -> list[float]:
    """The x with x[right] - x[left] >= width for each gap and the least energy in the springs: an active-set search."""
    xs: list[float] = []
    tight: list[Gap] = []
    for _ in range(STEPS):
        xs, pushes = _at_rest(springs, tight)
        if min(pushes, default=0.0) < -1e-9:  # a gap that would rather be wider
            del tight[pushes.index(min(pushes))]
            continue
        lacking = [gap.width - xs[gap.right] + xs[gap.left] for gap in gaps]
        if max(lacking, default=0.0) < 1e-6:
            break
        tight.append(gaps[lacking.index(max(lacking))])
    return xs


def _at_rest(springs: np.ndarray, tight: Sequence[Gap]) -> tuple[list[float], list[float]]:
    """The places with the least energy when some gaps have exactly their width, and how hard each gap pushes."""
    size = len(springs)
    system = np.zeros((size + len(tight), size + len(tight)))
    system[:size, :size] = springs
    for row, gap in enumerate(tight, start=size):
        system[row, [gap.left, gap.right]] = system[[gap.left, gap.right], row] = -1.0, 1.0
    solution = np.linalg.solve(system, [0.0] * size + [gap.width for gap in tight])
    return [float(x) for x in solution[:size]], [float(-push) for push in solution[size:]]


def _down(layers: Layers, links: Links, boxes: Boxes, xs: Mapping[Spot, float]) -> list[float]:
    """y of each layer: below the layer before it, clear of all labels, and so deep that no line is too flat."""
    ys, placed = [0.0], [box.moved(xs[spot], 0.0) for spot in layers[0] for box in boxes[spot]]
    for upper, lower in pairwise(layers):
        room = max(boxes[spot][0].top for spot in lower) - min(boxes[spot][0].bottom for spot in upper)
        runs = [abs(xs[spot] - xs[other]) for spot in upper for other in links[spot] if other in lower]
        y = ys[-1] - max(LAYER_GAP + room, FLATTEST * max(runs, default=0.0))
        fresh = [box.moved(xs[spot], 0.0) for spot in lower for box in boxes[spot]]
        for box in fresh:
            above = [
                old.bottom for old in placed if old.left - CLEARANCE < box.right and box.left < old.right + CLEARANCE
            ]
            y = min([y, *(bottom - CLEARANCE - box.top for bottom in above)])
        placed += [box.moved(0.0, y) for box in fresh]
        ys.append(y)
    return ys
