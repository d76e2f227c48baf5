"""Constituency trees as pictures: words on one line, symbols at the nodes, lines that tell what gold has too.

The colour behind a symbol is the probability of its span; solid lines are of spans that both trees have.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from rankspace.errors import RankspaceError, ShapeError
from rankspace.trees import Tree
from rankspace.trees.nodes import Node
from rankspace.viz.legend import Entry, legend, line_entry, scale_entry
from rankspace.viz.lettering import shown, text_width
from rankspace.viz.palette import TEXT_CHANGES, Role
from rankspace.viz.picture import Picture, below_each_other, beside_each_other
from rankspace.viz.shapes import Group, Line, Point, Rectangle, Shape, Text, moved
from rankspace.viz.tree_layout import LABEL, STEM, Placed, TreeLayout, column_widths, lay_out

WORD, SYMBOL, NUMBER, TITLE = 14.0, 12.0, 9.5, 13.0  # sizes of text
PADDING, BESIDE = 5.0, 4.0  # within a label: at its ends, and between symbol and number
BASE = 5.0  # of words, below the middle of their line
LINE, CORNER = 1.2, 5.0  # the width of lines, and the radius of their corners
MARGIN, TITLE_ROW = 14.0, 26.0
MAX_TITLE, NARROWEST_LEGEND = 120, 240.0
WIDEST_PAIR = 1000.0  # wider pairs of trees stand one below the other
ROUNDING = 1e-4  # by how much a probability of float32 may leave the range from 0 to 1

Span = tuple[int, int]
Confidence = Mapping[Span, float]


class Label(NamedTuple):
    """What stands at a node: its symbol, which may be empty, and the probability of its span."""

    symbol: str
    confidence: float | None

    @property
    def number(self) -> str:
        return "" if self.confidence is None else f"{self.confidence:.2f}"

    @property
    def width(self) -> float:
        inside = text_width(self.symbol, SYMBOL, bold=True) + text_width(self.number, NUMBER)
        space = BESIDE if self.symbol and self.number else 0.0
        return inside + space + 2 * PADDING if self.symbol or self.number else 0.0


@dataclass(frozen=True)
class Sketch:
    """A tree, what stands at its nodes, and the spans of the tree that it is compared with."""

    tree: Tree
    labels: list[Label]
    others: Collection[Span] | None

    @classmethod
    def of(cls, operation: str, tree: Tree, confidence: Confidence | None, other: Tree | None) -> "Sketch":
        if other is not None and len(tree) != len(other):
            raise ShapeError(
                f"{operation}: one tree has {len(tree)} words, the other {len(other)}; give trees of one sentence."
            )
        labels = [_label(operation, node, confidence or {}) for node in tree.nodes]
        return cls(tree, labels, None if other is None else _spans(other))

    def is_dashed(self, position: int) -> bool:
        return self.others is not None and self.tree.nodes[position][:2] not in self.others

    def note(self, position: int) -> str:
        begin, end, symbol = self.tree.nodes[position]
        name, number = "span" if symbol is None else symbol, self.labels[position].number
        words = " ".join(map(str, self.tree.words[begin:end]))
        return f"{name} ({begin}, {end}){': ' if number else ''}{number} {words}"


def tree_picture(
    tree: Tree, confidence: Confidence | None = None, gold: Tree | None = None, title: str = ""
) -> Picture:
    """The tree, with the probability of each span that `confidence` has, by (begin, end).

    With `gold`, the brackets of spans that gold lacks are dashed; the whole sentence and single words count as spans of
    gold. Spans of `confidence` that the tree lacks are left out. Raises RankspaceError for a confidence that is no
    probability and ShapeError if gold has another number of words.
    """
    sketch = Sketch.of("tree_picture", tree, confidence, gold)
    entries = [] if gold is None else [line_entry("in gold", "ink"), line_entry("not in gold", "soft", dashed=True)]
    return _with_legend(_sheet(sketch, _columns(sketch), title), _scale(sketch) + entries)


def tree_pair_picture(
    predicted: Tree,
    gold: Tree,
    confidence: Confidence | None = None,
    titles: tuple[str, str] = ("predicted", "gold"),
    arrangement: Literal["auto", "beside", "below"] = "auto",
) -> Picture:
    """Two trees of one sentence: what only one of them has is dashed there.

    "below" puts gold below the prediction, word under word; "auto" does so where both do not fit into a page beside
    each other. Raises as `tree_picture` does.
    """
    first = Sketch.of("tree_pair_picture", predicted, confidence, gold)
    second = Sketch.of("tree_pair_picture", gold, None, predicted)
    widths = [_columns(first), _columns(second)]
    if arrangement == "auto":
        arrangement = "beside" if sum(map(sum, widths)) + 4 * MARGIN <= WIDEST_PAIR else "below"
    if arrangement == "below":
        widths = [_columns(first, second)] * 2
    sheets = [_sheet(*each) for each in zip((first, second), widths, titles, strict=True)]
    joined = (beside_each_other if arrangement == "beside" else below_each_other)(
        sheets, "; ".join(sheet.description for sheet in sheets)
    )
    entries = [line_entry("in both trees", "ink"), line_entry("in one of them", "soft", dashed=True)]
    return _with_legend(joined, _scale(first) + entries)


def _label(operation: str, node: Node, confidence: Confidence) -> Label:
    symbol = "" if node.symbol is None else shown(node.symbol)
    value = confidence.get((node.begin, node.end))
    if value is None:
        return Label(symbol, None)
    if not -ROUNDING <= value <= 1 + ROUNDING:
        raise RankspaceError(
            f"{operation}: the confidence of ({node.begin}, {node.end}) is {value}; give a probability from 0 to 1."
        )
    return Label(symbol, min(max(value, 0.0), 1.0))


def _spans(tree: Tree) -> Collection[Span]:
    """The spans of the tree, and those that every tree has."""
    return {(node.begin, node.end) for node in tree.nodes} | {(place, place + 1) for place in range(len(tree))}


def _columns(*sketches: Sketch) -> list[float]:
    words = zip(*([text_width(shown(word), WORD) for word in each.tree.words] for each in sketches), strict=True)
    labels = [pair for each in sketches for pair in zip(each.tree.nodes, each.labels, strict=True)]
    return column_widths([max(column) for column in words], [(node, label.width) for node, label in labels])


def _scale(sketch: Sketch) -> list[Entry]:
    return [scale_entry("probability")] if any(label.number for label in sketch.labels) else []


def _sheet(sketch: Sketch, widths: Sequence[float], title: str) -> Picture:
    """The tree with its title and a margin around it."""
    layout = lay_out(sketch.tree, widths, [label.width for label in sketch.labels])
    title = shown(title, MAX_TITLE)
    name = [Text(MARGIN, MARGIN + TITLE, title, TITLE, "soft", bold=True)] if title else []
    top = MARGIN + (TITLE_ROW if title else 0.0)
    width = max(layout.width, text_width(title, TITLE, bold=True)) + 2 * MARGIN
    placed = [moved(shape, (width - layout.width) / 2, top) for shape in _drawn(sketch, layout)]
    description = f"{title or 'tree'}: {sketch.tree.bracketed()}"
    return Picture(width, top + layout.height + MARGIN, (*name, *placed), description)


def _drawn(sketch: Sketch, layout: TreeLayout) -> Iterator[Shape]:
    """Dashed brackets first, for where they touch solid ones; then labels and words."""
    positions = range(len(layout.nodes))
    for position in sorted(positions, key=lambda position: not sketch.is_dashed(position)):
        if len(sketch.tree) > 1 or any(label.width for label in sketch.labels[: position + 1]):  # not from nowhere
            yield Group("bracket", sketch.note(position), list(_bracket(sketch, layout, position)))
    for position in positions:
        if sketch.labels[position].width:
            yield Group("node", sketch.note(position), _drawn_label(sketch.labels[position], layout.nodes[position]))
    for word, (x, y) in zip(sketch.tree.words, layout.words, strict=True):
        yield Group("word", str(word), [Text(x, y + BASE, shown(word), WORD, anchor="middle")])


def _bracket(sketch: Sketch, layout: TreeLayout, position: int) -> Iterator[Line]:
    """From the label down to a bar, along it, and down to each child."""
    placed, is_dashed = layout.nodes[position], sketch.is_dashed(position)
    begin = (placed.x, _bottom(placed, sketch.labels[position]))
    bar = placed.y + LABEL / 2 + STEM
    for child in placed.children:
        x, top = _top(sketch, layout, child)
        corners = [] if x == placed.x else [(placed.x, bar), (x, bar)]
        points = [begin, *(corner for corner in corners if corner != begin), (x, top)]
        yield Line(points, "soft" if is_dashed else "ink", LINE, is_dashed, CORNER)


def _bottom(placed: Placed, label: Label) -> float:
    """Where the lines of a node begin: below its label, or at the bar if it has none."""
    return placed.y + LABEL / 2 + (0.0 if label.width else STEM)


def _top(sketch: Sketch, layout: TreeLayout, child: int) -> Point:
    """Where the line to a child ends."""
    if child < 0:
        x, y = layout.words[-1 - child]
        return x, y - LABEL / 2
    placed, label = layout.nodes[child], sketch.labels[child]
    return placed.x, placed.y - LABEL / 2 if label.width else _bottom(placed, label)


def _drawn_label(label: Label, placed: Placed) -> list[Shape]:
    """The symbol, and the probability beside it, both on the colour of the probability."""
    shapes: list[Shape] = []
    left, base = placed.x - label.width / 2, placed.y + BASE - 1.0
    colour: Role = "ink"
    if label.confidence is not None:
        box = Rectangle(left, placed.y - LABEL / 2, label.width, LABEL, "paper", radius=4.0)
        shapes += [box, box._replace(fill="accent", opacity=label.confidence, outline="line")]
        colour = "on_accent" if label.confidence >= TEXT_CHANGES else "ink"
    symbol = Text(placed.x, base, label.symbol, SYMBOL, colour, "middle", bold=True)
    number = Text(placed.x, base, label.number, NUMBER, colour, "middle")
    if not (label.symbol and label.number):
        return [*shapes, symbol if label.symbol else number]
    between = left + PADDING + text_width(label.symbol, SYMBOL, bold=True)
    return [*shapes, symbol._replace(x=between, anchor="end"), number._replace(x=between + BESIDE, anchor="start")]


def _with_legend(sheet: Picture, entries: Sequence[Entry]) -> Picture:
    shapes, (width, height) = legend(entries, max(sheet.width - 2 * MARGIN, NARROWEST_LEGEND))
    if not shapes:
        return sheet
    below = [moved(shape, MARGIN, sheet.height) for shape in shapes]
    width, height = max(sheet.width, width + 2 * MARGIN), sheet.height + height + MARGIN / 2
    return Picture(width, height, (*sheet.shapes, *below), sheet.description)
