"""What a picture is made of: rectangles, lines and text, with colours by their part to play.

Lengths are pixels of CSS, from the top left corner, y downwards. Shapes know nothing of files: `svg.py` and `png.py`
write them, so that both look alike.
"""

from collections.abc import Iterator, Sequence
from math import hypot
from typing import Literal, NamedTuple

from rankspace.viz.palette import Role

Point = tuple[float, float]
Size = tuple[float, float]  # width and height


class Rectangle(NamedTuple):
    left: float
    top: float
    width: float
    height: float
    fill: Role | None = None
    opacity: float = 1.0  # of the fill
    outline: Role | None = None
    line_width: float = 1.0
    radius: float = 0.0  # of the corners


class Line(NamedTuple):
    """Straight from point to point, with corners rounded by at most `radius`."""

    points: Sequence[Point]
    colour: Role
    width: float = 1.0
    dashed: bool = False
    radius: float = 0.0
    opacity: float = 1.0


class Text(NamedTuple):
    """One line; x is where its anchor stands, y its base, and `turn` turns it about that point, anticlockwise."""

    x: float
    y: float
    text: str
    size: float
    colour: Role = "ink"
    anchor: Literal["start", "middle", "end"] = "start"
    bold: bool = False
    turn: float = 0.0  # degrees


class Group(NamedTuple):
    """Shapes that belong together; browsers show the note where the pointer rests on them."""

    kind: str
    note: str
    shapes: "Sequence[Shape]"


Shape = Rectangle | Line | Text | Group


def moved(shape: Shape, right: float, down: float) -> Shape:
    match shape:
        case Rectangle():
            return shape._replace(left=shape.left + right, top=shape.top + down)
        case Line():
            return shape._replace(points=[(x + right, y + down) for x, y in shape.points])
        case Text():
            return shape._replace(x=shape.x + right, y=shape.y + down)
        case Group():
            return shape._replace(shapes=[moved(inner, right, down) for inner in shape.shapes])


class Curve(NamedTuple):
    """A piece of a line: straight to `end`, or bent towards `control` on the way."""

    control: Point | None
    end: Point


def pieces(line: Line) -> Iterator[Curve]:
    """The line after its first point; at each corner a curve that begins and ends half a line away at most."""
    points = line.points
    for before, corner, after in zip(points, points[1:], points[2:], strict=False):
        reach = min(line.radius, _distance(before, corner) / 2, _distance(corner, after) / 2)
        if reach:
            yield Curve(None, _towards(corner, before, reach))
            yield Curve(corner, _towards(corner, after, reach))
        else:
            yield Curve(None, corner)
    yield Curve(None, points[-1])


def _distance(one: Point, other: Point) -> float:
    return hypot(one[0] - other[0], one[1] - other[1])


def _towards(begin: Point, end: Point, by: float) -> Point:
    share = by / _distance(begin, end)
    return begin[0] + share * (end[0] - begin[0]), begin[1] + share * (end[1] - begin[1])
