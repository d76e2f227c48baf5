"""A connected graph in layers from top to bottom: no two parts meet, few lines cross, neighbours stand near each other.

Geometry alone, in points, y upwards. Layers follow the distance from the sources, nonterminal edges come after all of
their nodes. A line that passes a layer on its way has a bend there, so that room is left for it.
"""

from collections.abc import Collection, Mapping, Sequence
from itertools import accumulate, combinations, pairwise
from typing import Literal, NamedTuple

Point = tuple[float, float]
Size = tuple[float, float]

LAYER_GAP = 11.0  # between neighbouring layers
PART_GAP = 9.0  # between neighbours in one layer
FLATTEST = 0.45  # rise over run of the flattest line between two layers
SWEEPS = 200  # at most; most graphs settle in ten


class Box(NamedTuple):
    left: float
    bottom: float
    right: float
    top: float

    @classmethod
    def around(cls, centre: Point, size: Size) -> "Box":
        (x, y), (width, height) = centre, size
        return cls(x - width / 2, y - height / 2, x + width / 2, y + height / 2)

    def moved(self, right: float, up: float) -> "Box":
        return Box(self.left + right, self.bottom + up, self.right + right, self.top + up)

    def mirrored(self) -> "Box":
        """The box after the mirror (x, y) -> (-y, -x), which turns down into right and right into down."""
        return Box(-self.top, -self.right, -self.bottom, -self.left)

    def joined(self, other: "Box") -> "Box":
        return Box(
            min(self.left, other.left),
            min(self.bottom, other.bottom),
            max(self.right, other.right),
            max(self.top, other.top),
        )

    def meets(self, other: "Box") -> bool:
        beside = self.right <= other.left or other.right <= self.left
        return not (beside or self.top <= other.bottom or other.top <= self.bottom)


class Part(NamedTuple):
    """What is drawn at a node or an edge."""

    kind: Literal["node", "external", "factor", "word", "nonterminal"]
    id: str


class Bend(NamedTuple):
    """The point of a layer that the line between two parts of other layers passes through."""

    upper: Part
    lower: Part
    layer: int


Spot = Part | Bend
Layers = list[list[Spot]]
Links = Mapping[Spot, Sequence[Spot]]
BEND = Box(-2.0, 0.0, 2.0, 0.0)  # room for a line that passes through a layer


def place_in_layers(
    neighbours: Mapping[Part, Sequence[Part]], sources: Sequence[Part], extents: Mapping[Part, Box]
) -> dict[Spot, Point]:
    """Centres of the parts that have an extent (given around the origin), and of the bends between them.

    The first layer is at y = 0 and keeps the order of the sources.
    """
    inner = {part: [other for other in neighbours[part] if other in extents] for part in extents}
    layers, links = _layers_and_links(inner, distances(inner, sources))
    layers = _untangled(layers, links)
    boxes = {spot: extents[spot] if isinstance(spot, Part) else BEND for layer in layers for spot in layer}
    xs = _across(layers, links, boxes)
    ys = _down(layers, links, boxes, xs)
    return {spot: (xs[spot], y) for layer, y in zip(layers, ys, strict=True) for spot in layer}


def distances(neighbours: Mapping[Part, Sequence[Part]], sources: Sequence[Part]) -> dict[Part, int]:
    """Layer of each part of a connected graph: the flow passes nonterminal edges only where there is no other way."""
    found = dict.fromkeys(sources, 0)
    frontier = list(sources)
    while frontier:
        for part in frontier:  # it grows as we walk it
            for other in neighbours[part]:
                if other not in found and other.kind != "nonterminal":
                    found[other] = found[part] + 1
                    frontier.append(other)
        frontier = _first_gate(neighbours, found)
        found.update({gate: 1 + max(found[node] for node in neighbours[gate] if node in found) for gate in frontier})
    return found | {
        part: 1 + max(found[node] for node in nodes) for part, nodes in neighbours.items() if part not in found
    }


def _first_gate(neighbours: Mapping[Part, Sequence[Part]], found: Mapping[Part, int]) -> list[Part]:
    """The first nonterminal edge, if any, that leads from nodes with a layer to nodes without one."""
    for part, nodes in neighbours.items():
        if part not in found and any(node in found for node in nodes) and any(node not in found for node in nodes):
            return [part]
    return []


def _layers_and_links(
    neighbours: Mapping[Part, Sequence[Part]], depth: Mapping[Part, int]
) -> tuple[Layers, dict[Spot, list[Spot]]]:
    """Parts and bends by layer, and the links of each to those in the layers next to its own."""
    layers: Layers = [[] for _ in range(max(depth.values()) + 1)]
    links: dict[Spot, list[Spot]] = {part: [] for part in depth}
    for part, number in depth.items():
        layers[number].append(part)
    for upper, first in depth.items():
        for lower in neighbours[upper]:
            bends = [Bend(upper, lower, number) for number in range(first + 1, depth[lower])]
            for bend in bends:
                layers[bend.layer].append(bend)
            for a, b in pairwise([upper, *bends, lower]) if depth[lower] > first else ():
                links.setdefault(a, []).append(b)
                links.setdefault(b, []).append(a)
    return layers, links


def _untangled(layers: Layers, links: Links) -> Layers:
    """The layers but the first reordered by barycentres, where that makes fewer lines cross.

    Nonterminal edges keep their order, which is the order of the sentence.
    """
    given = {part: i for i, part in enumerate(part for layer in layers for part in layer)}

    def cost(layers: Layers) -> tuple[int, int]:
        names = [[given[spot] for spot in layer if getattr(spot, "kind", "") == "nonterminal"] for layer in layers]
        swapped = sum(a > b for layer in names for a, b in combinations(layer, 2))
        return swapped, sum(_crossings(upper, lower, links) for upper, lower in pairwise(layers))

    best, now = layers, layers
    for sweep in range(4):
        if cost(best) == (0, 0):
            break
        now = _sorted_by_barycentre(now, links, downwards=sweep % 2 == 0)
        best = min(best, now, key=cost)
    return best


def _crossings(upper: list[Spot], lower: list[Spot], links: Links) -> int:
    place = {part: i for i, part in enumerate(lower)}
    lines = [(i, place[other]) for i, part in enumerate(upper) for other in links[part] if other in place]
    return sum((a - c) * (b - d) < 0 for (a, b), (c, d) in combinations(lines, 2))


def _sorted_by_barycentre(layers: Layers, links: Links, downwards: bool) -> Layers:
    """One sweep: each layer but the first sorted by the mean place of its neighbours in the layer before it."""
    result = list(layers)
    numbers = range(1, len(layers)) if downwards else range(len(layers) - 2, 0, -1)
    for number in numbers:
        fixed = result[number - 1 if downwards else number + 1]
        place = {part: i for i, part in enumerate(fixed)}
        means = {}
        for i, part in enumerate(result[number]):
            places = [place[other] for other in links[part] if other in place]
            means[part] = sum(places) / len(places) if places else float(i)
        result[number] = sorted(result[number], key=lambda part, means=means: means[part])
    return result


def _across(layers: Layers, links: Links, boxes: Mapping[Spot, Box]) -> dict[Spot, float]:
    """x of each part: near the mean of its neighbours, as far as the parts of its layer leave it room.

    Lines to parts with no other neighbour pull harder, so that leaves hang straight; hardest at last.
    """
    gaps = [[boxes[a].right + PART_GAP - boxes[b].left for a, b in pairwise(layer)] for layer in layers]
    xs: dict[Spot, float] = {}
    for layer, apart in zip(layers, gaps, strict=True):
        xs.update(zip(layer, _apart([0.0] * len(layer), apart), strict=True))
    for pull in (8.0, 1000.0):
        for _ in range(SWEEPS):
            before = dict(xs)
            for layer, apart in zip([*layers, *layers[::-1]], [*gaps, *gaps[::-1]], strict=True):
                wanted = [_wanted(part, links, xs, pull) for part in layer]
                xs.update(zip(layer, _apart(wanted, apart), strict=True))
            if max(abs(xs[part] - before[part]) for part in xs) < 0.01:
                break
    return xs


def _wanted(part: Spot, links: Links, xs: Mapping[Spot, float], pull: float) -> float:
    """The weighted mean of a part's neighbours; where it stands, if it has none."""
    weights = [pull if len(links[part]) == 1 or len(links[other]) == 1 else 1.0 for other in links[part]]
    if not weights:
        return xs[part]
    return sum(weight * xs[other] for weight, other in zip(weights, links[part], strict=True)) / sum(weights)


def _apart(wanted: Sequence[float], gaps: Sequence[float]) -> list[float]:
    """The places nearest to the wanted ones (least squares) that keep the gaps: isotonic regression."""
    offsets = list(accumulate(gaps, initial=0.0))
    groups: list[list[float]] = []
    for want, offset in zip(wanted, offsets, strict=True):
        groups.append([want - offset])
        while len(groups) > 1 and _mean(groups[-2]) >= _mean(groups[-1]):
            last = groups.pop()
            groups[-1] += last
    level = [_mean(group) for group in groups for _ in group]
    return [place + offset for place, offset in zip(level, offsets, strict=True)]


def _mean(values: Collection[float]) -> float:
    return sum(values) / len(values)


def _down(layers: Layers, links: Links, boxes: Mapping[Spot, Box], xs: Mapping[Spot, float]) -> list[float]:
    """y of each layer: below the layer before, and further down where a line between the two would be too flat."""
    ys = [0.0]
    for upper, lower in pairwise(layers):
        low, high = min(boxes[part].bottom for part in upper), max(boxes[part].top for part in lower)
        runs = [abs(xs[part] - xs[other]) for part in upper for other in links[part] if other in lower]
        ys.append(ys[-1] - max(LAYER_GAP + high - low, FLATTEST * max(runs, default=0.0)))
    return ys
