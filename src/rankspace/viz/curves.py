"""Training curves from the records of metrics.jsonl: loss, perplexity and F1 of one run or of several.

A record is a dictionary; what it lacks is not drawn. Records of the split "train" (or of none) are thin lines, those of
others thick ones with a dot at the best value.
"""

from collections.abc import Mapping, Sequence
from itertools import groupby
from math import log
from statistics import fmean
from typing import Any, NamedTuple

from rankspace.errors import RankspaceError
from rankspace.viz.axes import BOTTOM, FONT, HEIGHT, LEFT, RIGHT, TITLE, TOP, WIDTH, Axis, Panel
from rankspace.viz.legend import Entry, legend, line_entry
from rankspace.viz.lettering import shown, text_width
from rankspace.viz.palette import SERIES, Role
from rankspace.viz.picture import Picture, beside_each_other
from rankspace.viz.shapes import Group, Line, Rectangle, Shape, Text, moved

Record = Mapping[str, Any]
TRAIN = "train"
FINAL = "final"  # marks the result of a run, which is no point of its curves
PER_WORD = "loss_per_word"  # not in the records: log(perplexity) of those with a loss
ACROSS = ("step", "epoch")  # what the first axis may be, the first that every record with a value has
BEYOND = 1e100  # larger numbers are as good as infinite
MAX_POINTS = 300  # of a line; of more, means of neighbours
THIN, THICK, FAINT = 1.0, 2.0, 0.5
DOT = 7.0
MARGIN, TITLE_ROW, MAX_TITLE = 12.0, 20.0, 120


class Kind(NamedTuple):
    """A panel: the name of its values in the records, its title, and which values are best."""

    name: str
    title: str
    best: Any  # min or max
    may_be_logarithmic: bool


KINDS = (
    Kind("loss", "loss", min, False),
    Kind(PER_WORD, "loss per word", min, False),
    Kind("perplexity", "perplexity", min, True),
    Kind("f1", "F1", max, False),
)


class Series(NamedTuple):
    """The values of one kind, run and split, in the order of the records; None breaks the line."""

    run: str
    split: str
    points: list[tuple[float, float] | None]

    @property
    def drawn(self) -> list[tuple[float, float]]:
        return [point for point in self.points if point is not None]


def training_curves(runs: Mapping[str, Sequence[Record]], title: str = "") -> Picture:
    """A panel for each of loss, perplexity and F1 that any record has, with a line for each run and split.

    The loss of a record with a perplexity is shown per word; where others have a perplexity, the loss of a record
    without one is left out: it is a mean of sentences, which rises when a curriculum lets in longer ones. All panels
    have one range of steps.

    Records have "step" or "epoch", some of the values, and perhaps "split". Values that are missing or None are passed
    over; those that are not finite break the line. Of more than 300 points of a line, means of neighbours are drawn.
    Raises RankspaceError if there is nothing to draw.
    """
    across = _across(runs)
    runs = _per_word(runs)
    found = [(kind, _series(runs, kind.name, across)) for kind in KINDS]
    panels = [(kind, series) for kind, series in found if any(each.drawn for each in series)]
    if not panels:
        names = ", ".join(kind.name for kind in KINDS if kind.name != PER_WORD)
        raise RankspaceError(f"training_curves: no record has a finite number for one of {names}; give some that do.")
    colours: dict[str, Role] = {run: SERIES[place % len(SERIES)] for place, run in enumerate(runs)}
    steps = Axis.of_steps([x for _, series in panels for each in series for x, _ in each.drawn], WIDTH)
    sheets = [_sheet(_panel(kind, series, across, steps), kind, series, colours) for kind, series in panels]
    row = beside_each_other(sheets, "training curves: " + "; ".join(sheet.description for sheet in sheets))
    return _framed(row, _entries(panels, colours), shown(title, MAX_TITLE))


def _framed(row: Picture, entries: Sequence[Entry], title: str) -> Picture:
    """The panels with a title above, a legend below and a margin around."""
    top = MARGIN + (TITLE_ROW if title else 0.0)
    width = max(row.width, LEFT + text_width(title, TITLE, bold=True)) + 2 * MARGIN
    shapes: list[Shape] = [Text(MARGIN + LEFT, MARGIN + TITLE, title, TITLE, "soft", bold=True)] if title else []
    shapes += [moved(shape, MARGIN, top) for shape in row.shapes]
    below, (_, height) = legend(entries, width - 2 * MARGIN - LEFT)
    shapes += [moved(shape, MARGIN + LEFT, top + row.height) for shape in below]
    return Picture(width, top + row.height + height + MARGIN, tuple(shapes), row.description)


def _across(runs: Mapping[str, Sequence[Record]]) -> str:
    """The name of the first axis; "record" is the number of the record in its run."""
    records = [record for records in runs.values() for record in records if any(kind.name in record for kind in KINDS)]
    return next((name for name in ACROSS if all(_number(record.get(name)) is not None for record in records)), "record")


def _series(runs: Mapping[str, Sequence[Record]], name: str, across: str) -> list[Series]:
    found: dict[tuple[str, str], list[tuple[float, float] | None]] = {}
    for run, records in runs.items():
        for place, record in enumerate(records):
            value = record.get(name)
            if value is None or record.get(FINAL):
                continue
            x, y = place if across == "record" else record[across], _number(value)
            split = str(record.get("split") or TRAIN)
            found.setdefault((run, split), []).append(None if y is None else (float(x), y))
    return [Series(run, split, _thinned(points)) for (run, split), points in found.items()]


def _number(value: object) -> float | None:
    """A number that an axis can show: none that is infinite (in JSON a string) or nearly so."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < BEYOND:
        return None
    return float(value)


def _thinned(points: Sequence[tuple[float, float] | None]) -> list[tuple[float, float] | None]:
    if len(points) <= MAX_POINTS:
        return list(points)
    size = -(-len(points) // MAX_POINTS)
    found: list[tuple[float, float] | None] = []
    for begin in range(0, len(points), size):
        some = [point for point in points[begin : begin + size] if point is not None]
        found.append((fmean(x for x, _ in some), fmean(y for _, y in some)) if some else None)
    return found


def _per_word(runs: Mapping[str, Sequence[Record]]) -> Mapping[str, Sequence[Record]]:
    """Records whose loss is per word, if any has a perplexity."""
    if not any(record.get("perplexity") is not None for records in runs.values() for record in records):
        return runs
    return {run: [_record_per_word(record) for record in records] for run, records in runs.items()}


def _record_per_word(record: Record) -> Record:
    if record.get("loss") is None:
        return record
    perplexity = _number(record.get("perplexity"))
    per_word = log(perplexity) if perplexity else record.get("perplexity")  # what is not finite breaks the line
    return {**record, "loss": None, PER_WORD: per_word}


def _panel(kind: Kind, series: Sequence[Series], across: str, steps: Axis) -> Panel:
    up = Axis.of_values([y for each in series for _, y in each.drawn], HEIGHT, kind.may_be_logarithmic)
    return Panel(f"{kind.title}, log scale" if up.logarithmic else kind.title, across, steps, up)


def _sheet(panel: Panel, kind: Kind, series: Sequence[Series], colours: Mapping[str, Role]) -> Picture:
    """One panel with its curves, thick ones above thin ones."""
    shapes = panel.frame()
    for each in sorted(series, key=lambda each: each.split != TRAIN):
        note = f"{each.run}, {each.split}: {kind.title}"
        shapes.append(Group("curve", note, _curve(panel, each, colours[each.run])))
    evaluated = [each for each in series if each.split != TRAIN and each.drawn]
    shapes += [_best(panel, kind, each, colours[each.run], len(evaluated) == 1) for each in evaluated]
    best = kind.best(y for each in evaluated or series for _, y in each.drawn)
    return Picture(LEFT + WIDTH + RIGHT, TOP + HEIGHT + BOTTOM, tuple(shapes), f"best {kind.title} {best:.4g}")


def _curve(panel: Panel, series: Series, colour: Role) -> list[Shape]:
    width, opacity = (THIN, FAINT) if series.split == TRAIN else (THICK, 1.0)
    parts = [list(part) for is_drawn, part in groupby(series.points, key=lambda point: point is not None) if is_drawn]
    shapes: list[Shape] = []
    for part in parts:
        points = [panel.point(*point) for point in part if point is not None]
        if len(points) == 1:
            shapes.append(_dot(*points[0], colour, DOT - 2.0))
        else:
            shapes.append(Line(points, colour, width, opacity=opacity))
    return shapes


def _dot(x: float, y: float, colour: Role, size: float) -> Rectangle:
    return Rectangle(x - size / 2, y - size / 2, size, size, colour, radius=size / 2)


def _best(panel: Panel, kind: Kind, series: Series, colour: Role, is_only: bool) -> Shape:
    """A dot at the best value, and the value itself where this is the only line with one."""
    at, value = kind.best(series.drawn, key=lambda point: point[1])
    x, y = panel.point(at, value)
    note = f"{series.run}, {series.split}: best {kind.title} {value:.4g} at {at:.10g}"
    ring = _dot(x, y, colour, DOT)._replace(outline="paper", line_width=1.5)
    if not is_only:
        return Group("best", note, [ring])
    above = y - 9.0 if y > TOP + 20.0 else y + 18.0
    number = Text(x, above, f"{value:.4g}", FONT, anchor="end" if x > LEFT + WIDTH - 40.0 else "middle", bold=True)
    return Group("best", note, [ring, number])


def _entries(panels: Sequence[tuple[Kind, Sequence[Series]]], colours: Mapping[str, Role]) -> list[Entry]:
    """The runs, if there are several, and the splits."""
    splits = sorted({each.split for _, series in panels for each in series}, key=lambda split: (split != TRAIN, split))
    runs = [line_entry(run, colour, THICK) for run, colour in colours.items()] if len(colours) > 1 else []
    own: Role = next(iter(colours.values())) if len(colours) == 1 else "soft"
    return runs + [line_entry(split, own, THIN if split == TRAIN else THICK) for split in splits]
