"""The chart of a sentence as a triangle: how probable each span is, with the spans of gold outlined.

Words run down the diagonal. The cell in the row of one word and the column of another is the span from the one to the
other, both included.
"""

from collections.abc import Iterable, Iterator, Sequence
from math import cos, radians, sin

from rankspace.errors import RankspaceError, ShapeError
from rankspace.trees import Tree
from rankspace.trees.nodes import Word
from rankspace.viz.legend import legend, outline_entry, scale_entry
from rankspace.viz.lettering import shown, text_width
from rankspace.viz.palette import TEXT_CHANGES, Role
from rankspace.viz.picture import Picture
from rankspace.viz.shapes import Group, Rectangle, Shape, Text, moved

MAX_WORDS = 150  # more cells than anyone can tell apart
CELLS = (13.0, 32.0)  # the least and greatest side of a cell
SIDE = 640.0  # of a chart whose cells are in between
NUMBERED = 27.0  # from this side on a cell has its number in it
FONT, NUMBER, TITLE = 13.0, 9.5, 13.0
TURN = 60.0  # degrees of the words above the columns
LETTERS = 18  # of a word; longer ones are cut
MARGIN, GAP, TITLE_ROW, LEGEND_ROW = 14.0, 6.0, 26.0, 10.0
AXIS, AXIS_ROW = 10.5, 18.0  # the names of the axes, above the chart and below
COLUMNS, ROWS = "columns: end word", "rows: begin word"
MAX_TITLE, WIDEST_LEGEND = 120, 400.0
INVISIBLE = 0.005  # less would be written as 0.00
ROUNDING = 1e-4  # by how much a probability of float32 may leave the range from 0 to 1


def heat_map(
    words: Sequence[Word],
    marginals: Sequence[Sequence[float]],
    gold: Tree | Iterable[tuple[int, int]] | None = None,
    title: str = "",
) -> Picture:
    """The probabilities `marginals[begin][end]` of the spans of a sentence of n words, n + 1 by n + 1 numbers.

    That is what `span_marginals(...)[0].tolist()` of a distribution gives. Only spans of two words and more are shown.
    Raises ShapeError for another number of rows or columns or a gold tree of another sentence, and RankspaceError for
    what is no probability and for more than 150 words.
    """
    probabilities = _checked(words, marginals)
    side = min(max(SIDE / len(words), CELLS[0]), CELLS[1])
    chart = [*_words(words, side), *_cells(words, probabilities, side), *_outlines(words, gold, side)]
    left, top, right = _room(words, side)
    entries = [scale_entry("probability of the span")] + ([] if gold is None else [outline_entry("in gold", "gold")])
    below, (legend_width, legend_height) = legend(entries, WIDEST_LEGEND)
    title = shown(title, MAX_TITLE)
    named = MARGIN + (TITLE_ROW if title else 0.0) + AXIS  # the base line of the name of the columns
    top += named - MARGIN - AXIS + AXIS_ROW
    bottom = top + side * len(words) + AXIS_ROW + LEGEND_ROW
    shapes: list[Shape] = [Text(MARGIN, MARGIN + TITLE, title, TITLE, "soft", bold=True)] if title else []
    shapes += [Text(MARGIN, named, COLUMNS, AXIS, "soft"), Text(MARGIN, bottom - LEGEND_ROW, ROWS, AXIS, "soft")]
    shapes += [moved(shape, left, top) for shape in chart] + [moved(shape, MARGIN, bottom) for shape in below]
    lines = legend_width, text_width(title, TITLE, bold=True), text_width(COLUMNS, AXIS), text_width(ROWS, AXIS)
    width = max(left + side * len(words) + right, 2 * MARGIN + max(lines))
    description = f"{title or 'span probabilities'}: {' '.join(map(str, words))}"
    return Picture(width, bottom + legend_height + MARGIN, tuple(shapes), description)


def _room(words: Sequence[Word], side: float) -> tuple[float, float, float]:
    """What words need left of the chart, above it, and right of it, margins included."""
    widths = [text_width(shown(word, LETTERS), _font(side)) for word in words]
    left = max(0.0, *(width + GAP - side * (place + 1) for place, width in enumerate(widths)))
    up, along = sin(radians(TURN)), cos(radians(TURN))
    right = max(0.0, *(width * along - side * (len(words) - place - 1) for place, width in enumerate(widths)))
    return MARGIN + left, MARGIN + max(widths) * up + 2 * GAP, MARGIN + right


def _font(side: float) -> float:
    return min(FONT, 0.78 * side)


def _checked(words: Sequence[Word], marginals: Sequence[Sequence[float]]) -> list[list[float]]:
    """The numbers, cut to the range from 0 to 1 where rounding left it."""
    size = len(words) + 1
    if size == 1 or len(words) > MAX_WORDS:
        raise RankspaceError(f"heat_map: there are {len(words)} words; give a sentence of 1 to {MAX_WORDS}.")
    shape = (len(marginals), *{len(row) for row in marginals})
    if shape != (size, size):
        raise ShapeError(f"heat_map: marginals are {shape} for {len(words)} words; give ({size}, {size}) numbers.")
    for begin, row in enumerate(marginals):
        for end in range(begin + 2, size):
            if not -ROUNDING <= row[end] <= 1 + ROUNDING:
                raise RankspaceError(
                    f"heat_map: marginals[{begin}][{end}] is {row[end]}; give probabilities from 0 to 1."
                )
    return [[min(max(value, 0.0), 1.0) for value in row] for row in marginals]


def _words(words: Sequence[Word], side: float) -> Iterator[Shape]:
    """Down the diagonal, where spans begin, and above the columns, where they end."""
    font = _font(side)
    for place, word in enumerate(words):
        name = shown(word, LETTERS)
        right, middle = side * (place + 1) - GAP / 2, side * (place + 0.5)
        yield Group("first", str(word), [Text(right, middle + font * 0.35, name, font, anchor="end")])
        if place:
            yield Group("last", str(word), [Text(middle + font * 0.25, -GAP, name, font, "soft", turn=TURN)])


def _cells(words: Sequence[Word], probabilities: Sequence[Sequence[float]], side: float) -> Iterator[Shape]:
    for begin in range(len(words)):
        for end in range(begin + 2, len(words) + 1):
            value = probabilities[begin][end]
            cell = _cell(begin, end, side)
            if value < INVISIBLE:
                yield cell
                continue
            shapes: list[Shape] = [cell, cell._replace(fill="accent", opacity=value)]
            if side >= NUMBERED:
                colour: Role = "on_accent" if value >= TEXT_CHANGES else "ink"
                x, y = cell.left + cell.width / 2, cell.top + cell.height / 2
                shapes.append(Text(x, y + NUMBER * 0.36, f"{value:.2f}", NUMBER, colour, "middle"))
            yield Group("cell", f"({begin}, {end}): {value:.2f} {' '.join(map(str, words[begin:end]))}", shapes)


def _cell(begin: int, end: int, side: float) -> Rectangle:
    space = 1.0 if side < NUMBERED else 1.5
    return Rectangle(
        side * (end - 1) + space / 2, side * begin + space / 2, side - space, side - space, "wash", radius=2.0
    )


def _outlines(words: Sequence[Word], gold: Tree | Iterable[tuple[int, int]] | None, side: float) -> Iterator[Shape]:
    if isinstance(gold, Tree) and len(gold) != len(words):
        raise ShapeError(
            f"heat_map: there are {len(words)} words but gold has {len(gold)}; give the tree of the sentence."
        )
    spans = [(node.begin, node.end) for node in gold.nodes] if isinstance(gold, Tree) else gold or ()
    for begin, end in dict.fromkeys(spans):
        if not 0 <= begin < end <= len(words):
            raise RankspaceError(
                f"heat_map: the gold span ({begin}, {end}) leaves the sentence; give 0 <= begin < end <= {len(words)}."
            )
        if end - begin > 1:
            cell = _cell(begin, end, side)._replace(fill=None, outline="gold", line_width=2.0)
            yield Group("gold", f"({begin}, {end}) in gold", [cell])
