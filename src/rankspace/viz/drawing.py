"""Lettering and shapes: what a label looks like and how big it is, and the pen that puts it on matplotlib's axes.

Labels are set piece by piece without any markup, so every character stands for itself.
"""

import importlib
import re
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any, Literal, NamedTuple

from rankspace.errors import MissingExtraError
from rankspace.fgg import Node
from rankspace.viz.layers import Box, Part, Point, Size
from rankspace.viz.layout import Line

FAMILY = ("STIXGeneral", "DejaVu Serif", "serif")  # the first two come with matplotlib, the last is for browsers
FONT, SMALL_FONT = 11.0, 9.5  # of labels inside and beside (all lengths in points)
SUBSCRIPT, DROP = 0.72, 0.18  # size and depth of a subscript, relative to the font
CAPITAL, LINE = 0.66, 0.95  # height of a capital letter and of a line, relative to the font
KERN = 0.02  # after each piece of a label, relative to the font
MAX_CHARACTERS = 40  # of one label; longer ones end in an ellipsis
LINE_WIDTH, ARROW_WIDTH = 0.8, 1.0
ARROW_HEAD = (4.0, 2.5)  # its length, and its width to either side
DOUBLE = 3.0  # between the lines to one endpoint
INK, PAPER, RED = "black", "white", "#b01010"  # in greyscale, red is a dark grey
SPAN = re.compile(r"(.*?,)(\(\d+(?:,\d+)?\))", re.DOTALL)  # X,(0,3): names of conjoined nonterminals
NUMBERED_PI = re.compile(r"(?<![A-Za-z])pi_(\d+)(?!\w)")


def matplotlib(module: str = "") -> Any:
    """matplotlib or one of its modules, which are imported only when something is drawn."""
    try:
        return importlib.import_module(f"matplotlib{module}")
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            "draw_rules: matplotlib is not installed; install it with pip install 'rankspace[pictures]'."
        ) from error


class Piece(NamedTuple):
    text: str
    style: Literal["roman", "italic", "bold"] = "roman"
    lowered: bool = False
    colour: str = ""  # the label's own, if empty


Label = Sequence[Piece]


def node_labels(nodes: Sequence[Node]) -> dict[str, Label]:
    """By identifier: the label with a subscript, which is the number at the end of the identifier, or else the place.

    If that gives two nodes one name, all are numbered by their places.
    """
    found = [(node.label, _number(node.id) or str(i)) for i, node in enumerate(nodes, start=1)]
    if len(set(found)) < len(found):
        found = [(node.label, str(i)) for i, node in enumerate(nodes, start=1)]
    return {
        node.id: [Piece(_shown(label), "bold"), Piece(_shown(subscript), lowered=True)]
        for node, (label, subscript) in zip(nodes, found, strict=True)
    }


def _number(name: str) -> str:
    return name[len(name.rstrip("0123456789")) :]


def factor_label(label: str) -> Label:
    """Tables of one letter, such as U or V', are set like matrices."""
    return [Piece(_shown(label), "bold" if len(label.rstrip("'")) == 1 else "roman")]


def nonterminal_label(label: str) -> Label:
    """The name; the span it got from a sentence, as in X,(0,3), in red."""
    match = SPAN.fullmatch(label)
    name, span = match.groups() if match else (label, "")
    pieces = [Piece(_shown(name), "italic" if len(name.rstrip("',")) == 1 else "roman")]
    return [*pieces, Piece(span, colour=RED)] if span else pieces


def rule_label(name: str) -> Label:
    """pi_6 becomes the Greek letter with a subscript, wherever it stands."""
    found: list[Piece] = []
    for i, text in enumerate(NUMBERED_PI.split(name)):
        found += [Piece("\u03c0", "italic"), Piece(text, lowered=True)] if i % 2 else [Piece(_shown(text))]
    return [piece for piece in found if piece.text]


def _shown(text: str) -> str:
    """Characters without a shape of their own as escapes, and not too many of them."""
    shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    return shown if len(shown) <= MAX_CHARACTERS else shown[: MAX_CHARACTERS - 1] + "\u2026"


def label_size(label: Label, font: float) -> Size:
    return sum(_width(piece, font) for piece in label), font * LINE


@lru_cache(maxsize=4096)
def _width(piece: Piece, font: float) -> float:
    measure = matplotlib(".textpath").text_to_path.get_text_width_height_descent
    return float(measure(piece.text, _properties(piece, font), False)[0]) + KERN * font


def _properties(piece: Piece, font: float) -> Any:
    return matplotlib(".font_manager").FontProperties(
        family=FAMILY,
        size=font * SUBSCRIPT if piece.lowered else font,
        style="italic" if piece.style == "italic" else "normal",
        weight="bold" if piece.style == "bold" else "normal",
    )


class Pen:
    """Draws on a figure of matplotlib, in points from its top left corner, y upwards."""

    def __init__(self, figure: Any) -> None:
        points = matplotlib(".transforms").Affine2D().scale(1 / 72).translate(0, figure.get_figheight())
        self.figure = figure
        self.transform = points + figure.dpi_scale_trans

    def part(self, part: Part, boxes: Sequence[Box], label: Label) -> None:
        """A node, factor or nonterminal edge, with its label inside or in the second box."""
        outline = boxes[0]
        fill = {"external": INK, "word": RED}.get(part.kind, PAPER)
        self._shape(outline, fill, RED if part.kind == "word" else INK, is_round=part.kind in ("node", "external"))
        if part.kind in ("factor", "word"):
            self._background(boxes[1])
            self.label(label, boxes[1], RED if part.kind == "word" else INK, SMALL_FONT)
        else:
            self.label(label, outline, PAPER if part.kind == "external" else INK, FONT)

    def label(self, label: Label, box: Box, colour: str, font: float) -> None:
        """In the middle of the box; the middle of a line is half a capital above its base."""
        x = (box.left + box.right - label_size(label, font)[0]) / 2
        base = (box.bottom + box.top - CAPITAL * font) / 2
        for piece in label:
            self.figure.text(
                x,
                base - (DROP * font if piece.lowered else 0.0),
                piece.text,
                fontproperties=_properties(piece, font),
                color=piece.colour or colour,
                parse_math=False,
                transform=self.transform,
                zorder=4,
            )
            x += _width(piece, font)

    def line(self, line: Line) -> None:
        """Straight, or rounded at the bends; once for each time that the edge has this endpoint."""
        for i in range(line.times):
            points = _beside(line.points, DOUBLE * (i - (line.times - 1) / 2))
            path = _smooth(points) if len(points) > 2 else matplotlib(".path").Path(points)
            self._add(path, facecolor="none", edgecolor=INK, linewidth=LINE_WIDTH, zorder=1)

    def arrow(self, begin: Point, end: Point) -> None:
        """Level, from left to right."""
        length, width = ARROW_HEAD
        head = [(end[0] - length, end[1] + width), end, (end[0] - length, end[1] - width)]
        for points in ([begin, end], head):
            self._add(matplotlib(".path").Path(points), facecolor="none", edgecolor=INK, linewidth=ARROW_WIDTH)

    def _shape(self, box: Box, fill: str, colour: str, is_round: bool) -> None:
        path = _stadium(box) if is_round else _rectangle(box)
        self._add(path, facecolor=fill, edgecolor=colour, linewidth=LINE_WIDTH, zorder=3)

    def _background(self, box: Box) -> None:
        self._add(_rectangle(box), facecolor=PAPER, edgecolor="none", zorder=2)

    def _add(self, path: Any, **style: Any) -> None:
        self.figure.add_artist(matplotlib(".patches").PathPatch(path, transform=self.transform, **style))


def _rectangle(box: Box) -> Any:
    left, bottom, right, top = box
    return matplotlib(".path").Path(
        [(left, bottom), (right, bottom), (right, top), (left, top), (left, bottom)], closed=True
    )


def _stadium(box: Box) -> Any:
    """The path of a circle, pulled apart to the left and right if the box is wider than high."""
    path = matplotlib(".path").Path
    radius, y = (box.top - box.bottom) / 2, (box.top + box.bottom) / 2
    right, left = path.arc(-90, 90), path.arc(90, 270)
    vertices = [(box.right + radius * (x - 1), y + radius * up) for x, up in right.vertices]
    vertices += [(box.left + radius * (x + 1), y + radius * up) for x, up in left.vertices]
    return path([*vertices, vertices[0]], [*right.codes, path.LINETO, *left.codes[1:], path.CLOSEPOLY])


def _smooth(points: Sequence[Point]) -> Any:
    """A path of cubic curves: straight through each layer that is passed, rounded between the layers."""
    path = matplotlib(".path").Path
    vertices = [points[0]]
    for i, (begin, end) in enumerate(pairwise(points)):
        along = (0.0, 0.0) if i % 2 else _half_way(points[1], points[2], begin, end)
        first = begin if i == 0 else (begin[0] + along[0], begin[1] + along[1])
        second = end if i == len(points) - 2 else (end[0] - along[0], end[1] - along[1])
        vertices += [first, second, end]
    return path(vertices, [path.MOVETO, *[path.CURVE4] * (len(vertices) - 1)])


def _half_way(enter: Point, leave: Point, begin: Point, end: Point) -> Point:
    """Half of the way from `begin` to `end`, in the direction in which the layers are passed."""
    x, y = leave[0] - enter[0], leave[1] - enter[1]
    share = ((end[0] - begin[0]) * x + (end[1] - begin[1]) * y) / (x * x + y * y) / 2
    return share * x, share * y


def _beside(points: Sequence[Point], by: float) -> list[Point]:
    """The line moved sideways, at a right angle to the way from its first to its last point."""
    (x0, y0), (x1, y1) = points[0], points[-1]
    length = ((x1 - x0) ** 2 + (y1 - y0) ** 2) ** 0.5 or 1.0
    return [(x + by * (y1 - y0) / length, y - by * (x1 - x0) / length) for x, y in points]
