"""Rules of a factor graph grammar as pictures, drawn as in figures 1, 3 and 4 of the paper."""

from collections.abc import Iterable, Sequence
from math import log
from pathlib import Path
from typing import Any, Literal, NamedTuple

from rankspace.errors import RankspaceError
from rankspace.fgg import FGG, Edge, Fragment, Indicator, Rule
from rankspace.files import whole_file
from rankspace.viz.drawing import (
    FAMILY,
    FONT,
    INK,
    SMALL_FONT,
    Label,
    Pen,
    factor_label,
    label_size,
    matplotlib,
    node_labels,
    nonterminal_label,
    rule_label,
)
from rankspace.viz.glyphs import lacking_glyphs
from rankspace.viz.layers import Box, Part, Size
from rankspace.viz.layout import Direction, Layout, Shape, Sketch, lay_out

MAX_RULES = 400  # more do not fit a picture that anyone can read

NODE = 18.0  # height of a node, and its width where the label fits (all lengths in points)
WIDEST_CIRCLE = 24.0  # a node or box with this label and padding is as wide as it is high
FACTOR = 6.5
PADDING = 4.5  # left and right of a label inside
ARROW = 34.0
NAME = 2.0  # above the arrow
SPACE = 12.0  # left and right of the arrow
BETWEEN = (44.0, 30.0)  # neighbouring rules
MARGIN = 8.0
ASPECT = 1.4  # width over height the whole picture should have
DPI, MAX_PIXELS = 200, 8000

SETTINGS = {
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "rankspace",
    "pdf.fonttype": 42,
    "font.serif": [FAMILY[0]],
}
METADATA = {".svg": {"Date": None}, ".png": {}, ".pdf": {"CreationDate": None}}  # no file tells when it was drawn


def draw_rules(fgg: FGG, path: str | Path, rules: Sequence[str] | None = None) -> str:
    """Draws the rules of an FGG, or those with the given names, to a .svg, .png or .pdf file.

    Trees grow down, chains (no rule has two nonterminal edges) to the right. Equal input gives equal bytes. The file
    appears complete or not at all. Returns the characters that the fonts of a .png or .pdf lack, in place of which
    there are boxes; who looks at a .svg has the fonts. Raises RankspaceError on another suffix, an unknown name, more
    than 400 rules or a file that cannot be written, and MissingExtraError without matplotlib.
    """
    path = Path(path)
    if path.suffix.lower() not in METADATA:
        raise RankspaceError(f"draw_rules: cannot draw to {path.name!r}; the name must end in .svg, .png or .pdf.")
    chosen = _choose(fgg, rules)
    library = matplotlib()
    with library.rc_context(), lacking_glyphs() as found:
        library.rcdefaults()
        library.rcParams.update(SETTINGS)
        _write(_figure(panels(fgg, chosen)), path)
    return "" if path.suffix.lower() == ".svg" else "".join(dict.fromkeys(found))


def _choose(fgg: FGG, names: Sequence[str] | None) -> list[Rule]:
    known = list(dict.fromkeys(rule.name for rule in fgg.rules))
    for name in names or ():
        if name not in known:
            raise RankspaceError(f"draw_rules: there is no rule {name!r}; the rules are {', '.join(known)}.")
    chosen = [rule for rule in fgg.rules if names is None or rule.name in names]
    if not chosen:
        raise RankspaceError(f"draw_rules: no rule is chosen; name some of {', '.join(known)}.")
    if len(chosen) > MAX_RULES:
        raise RankspaceError(
            f"draw_rules: {len(chosen)} rules are too many for one picture, which holds {MAX_RULES}; "
            f"choose some by name (--rule NAME, or rules=[...])."
        )
    return chosen


class Picture(NamedTuple):
    """A fragment, laid out; its left edge is at x = 0 and the level of the arrow at y = 0."""

    layout: Layout
    labels: dict[Part, Label]

    def draw(self, pen: Pen, right: float, up: float) -> None:
        moved = self.layout.moved(right, up)
        for line in moved.lines:
            pen.line(line)
        for part, boxes in moved.boxes.items():
            pen.part(part, boxes, self.labels[part])


class Panel(NamedTuple):
    """A rule: its left-hand side, the name above the arrow, and its right-hand side."""

    lhs: Picture
    name: Label
    rhs: Picture

    @property
    def arrow(self) -> float:
        return max(ARROW, label_size(self.name, FONT)[0] + 2 * PADDING)

    def draw(self, pen: Pen, left: float, middle: float, right: float, y: float) -> None:
        """The left-hand side ends at `left`, the arrow is around `middle`, the right-hand side begins at `right`."""
        self.lhs.draw(pen, left - self.lhs.layout.box.right, y)
        begin, end = middle - self.arrow / 2, middle + self.arrow / 2
        pen.arrow((begin, y), (end, y))
        pen.label(self.name, Box(begin, y + NAME, end, y + NAME + FONT), INK, FONT)
        self.rhs.draw(pen, right, y)


def panels(fgg: FGG, rules: Iterable[Rule]) -> list[Panel]:
    """The rules, laid out. One grammar flows one way: to the right if no rule has two nonterminal edges, else down."""
    branching = any(len(fgg.grammar.nonterminal_edges(rule)) > 1 for rule in fgg.rules)
    return [_panel(fgg, rule, "down" if branching else "right") for rule in rules]


def _panel(fgg: FGG, rule: Rule, direction: Direction) -> Panel:
    names = node_labels(rule.rhs.nodes)
    ends = tuple(node for name in rule.rhs.external for node in rule.rhs.nodes if node.id == name)
    lhs = Fragment(ends, (Edge("lhs", rule.lhs, rule.rhs.external),), rule.rhs.external)
    return Panel(_picture(fgg, lhs, names, direction), rule_label(rule.name), _picture(fgg, rule.rhs, names, direction))


def _picture(fgg: FGG, fragment: Fragment, names: dict[str, Label], direction: Direction) -> Picture:
    nodes = {name: Part("external", name) for name in fragment.external}  # first, and in their own order
    nodes |= {node.id: Part("node", node.id) for node in fragment.nodes if node.id not in nodes}
    edges = {edge.id: Part(_kind(fgg, edge), edge.id) for edge in fragment.edges}
    labels = {part: names[name] for name, part in nodes.items()}
    for edge in fragment.edges:
        part = edges[edge.id]
        labels[part] = (nonterminal_label if part.kind == "nonterminal" else factor_label)(edge.label)
    shapes = {part: _shape(part, label) for part, label in labels.items()}
    links = [(edges[edge.id], nodes[end]) for edge in fragment.edges for end in edge.nodes]
    layout = lay_out(Sketch(shapes, links), direction)
    return Picture(layout.moved(-layout.box.left, -_level(layout, direction)), labels)


def _kind(fgg: FGG, edge: Edge) -> Literal["nonterminal", "word", "factor"]:
    if edge.label in fgg.grammar.nonterminals:
        return "nonterminal"
    return "word" if isinstance(fgg.factors[edge.label], Indicator) else "factor"


def _shape(part: Part, label: Label) -> Shape:
    if part.kind in ("factor", "word"):
        return Shape((FACTOR, FACTOR), label_size(label, SMALL_FONT))
    width = label_size(label, FONT)[0] + 2 * PADDING
    return Shape((NODE if width < WIDEST_CIRCLE else width, NODE))


def _level(layout: Layout, direction: Direction) -> float:
    """Height of the arrow: that of the external nodes in a chain, the middle of a tree."""
    ends = [boxes[0] for part, boxes in layout.boxes.items() if part.kind == "external"]
    if direction == "down" or not layout.boxes:
        return (layout.box.bottom + layout.box.top) / 2
    level = ends or [next(iter(layout.boxes.values()))[0]]
    return sum(box.bottom + box.top for box in level) / (2 * len(level))


class Grid(NamedTuple):
    """Panels row by row: x of the left-hand sides, arrows and right-hand sides by column, y of the arrows by row."""

    lefts: list[float]
    middles: list[float]
    rights: list[float]
    ys: list[float]
    size: Size


def _grid(panels: Sequence[Panel], columns: int) -> Grid:
    lefts, middles, rights, ys = [], [], [], []
    x, y = MARGIN, -MARGIN
    for column in (panels[i::columns] for i in range(columns)):
        lefts.append(x + max(panel.lhs.layout.box.right for panel in column))
        arrow = max(panel.arrow for panel in column)
        middles.append(lefts[-1] + SPACE + arrow / 2)
        rights.append(middles[-1] + arrow / 2 + SPACE)
        x = rights[-1] + max(panel.rhs.layout.box.right for panel in column) + BETWEEN[0]
    for row in (panels[i : i + columns] for i in range(0, len(panels), columns)):
        boxes = [picture.layout.box for panel in row for picture in (panel.lhs, panel.rhs)]
        ys.append(y - max(NAME + FONT, *(box.top for box in boxes)))
        y = ys[-1] + min(box.bottom for box in boxes) - BETWEEN[1]
    return Grid(lefts, middles, rights, ys, (x - BETWEEN[0] + MARGIN, MARGIN - BETWEEN[1] - y))


def _best_grid(panels: Sequence[Panel]) -> Grid:
    """The number of columns that brings the picture nearest to the wanted aspect."""
    grids = [_grid(panels, columns) for columns in range(1, min(len(panels), 24) + 1)]
    return min(grids, key=lambda grid: abs(log(grid.size[0] / grid.size[1] / ASPECT)))


def _figure(panels: Sequence[Panel]) -> Any:
    grid = _best_grid(panels)
    width, height = grid.size
    figure = matplotlib(".figure").Figure(
        figsize=(width / 72, height / 72), dpi=min(DPI, 72 * MAX_PIXELS / max(width, height))
    )
    pen = Pen(figure)
    columns = len(grid.lefts)
    for i, panel in enumerate(panels):
        row, column = divmod(i, columns)
        panel.draw(pen, grid.lefts[column], grid.middles[column], grid.rights[column], grid.ys[row])
    return figure


def _write(figure: Any, path: Path) -> None:
    suffix = path.suffix.lower()
    with whole_file(path) as file:
        figure.savefig(file, format=suffix[1:], metadata=METADATA[suffix])
