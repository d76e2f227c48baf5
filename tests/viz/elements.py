"""What the tests of pictures share: SVG read by a parser of XML, and the places of shapes."""

import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from itertools import combinations

from rankspace.viz.layers import Box
from rankspace.viz.lettering import text_width
from rankspace.viz.picture import Picture
from rankspace.viz.shapes import Group, Line, Rectangle, Shape, Text

SVG = "{http://www.w3.org/2000/svg}"


def root_of(picture: Picture) -> ElementTree.Element:
    return ElementTree.fromstring(picture.to_svg())


def texts(picture: Picture) -> list[str]:
    return [element.text or "" for element in root_of(picture).iter(f"{SVG}text")]


def groups(picture: Picture, kind: str) -> list[Group]:
    return [shape for shape in picture.shapes if isinstance(shape, Group) and shape.kind == kind]


def flat(shapes: "tuple[Shape, ...] | list[Shape]") -> Iterator[Rectangle | Line | Text]:
    for shape in shapes:
        if isinstance(shape, Group):
            yield from flat(list(shape.shapes))
        else:
            yield shape


def text_box(text: Text) -> Box:
    """The room of a level line of text, y downwards; at least that of its letters in a wide font."""
    assert not text.turn
    width = text_width(text.text, text.size, text.bold)
    left = text.x - {"start": 0.0, "middle": width / 2, "end": width}[text.anchor]
    return Box(left, text.y - 0.75 * text.size, left + width, text.y + 0.2 * text.size)


def meeting(boxes: list[Box]) -> list[tuple[Box, Box]]:
    return [(one, other) for one, other in combinations(boxes, 2) if one.meets(other)]


def line_boxes(line: Line) -> list[Box]:
    """The straight pieces of a line that goes only along the axes."""
    found = []
    for (x0, y0), (x1, y1) in zip(line.points, line.points[1:], strict=False):
        assert x0 == x1 or y0 == y1
        found.append(Box(min(x0, x1), min(y0, y1), max(x0, x1), max(y0, y1)).widened(0.5))
    return found


def is_within(picture: Picture) -> bool:
    """Whether all numbers of the file lie on its sheet."""
    root = root_of(picture)
    width, height = float(root.attrib["width"]), float(root.attrib["height"])
    for element in root.iter():
        for name, most in (("x", width), ("y", height)):
            if not -0.5 <= float(element.attrib.get(name, 0)) <= most + 0.5:
                return False
        numbers = [float(number) for number in re.findall(r"-?[\d.]+", element.attrib.get("d", ""))]
        if any(not -0.5 <= x <= width + 0.5 for x in numbers[::2]) or any(y > height + 0.5 for y in numbers[1::2]):
            return False
    return True
