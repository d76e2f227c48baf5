"""A report as one HTML page that needs nothing else: no other files, scripts or fonts.

    report = Report("A grammar of 500 sentences").section("Scores").table(["model", "S-F1"], [["ours", 61.2]])
    report.save("report.html")

All text is escaped. The page follows the reader's choice of light or dark, fits a phone, and prints.
"""

from base64 import b64encode
from collections.abc import Collection, Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Literal, NamedTuple

from rankspace.errors import FormatError, RankspaceError, ShapeError
from rankspace.files import whole_file
from rankspace.viz.lettering import plain
from rankspace.viz.picture import Picture
from rankspace.viz.report_style import style
from rankspace.viz.svg import attributes, number

Cell = str | int | float | None
Best = Literal["highest", "lowest"]
NOTHING = "\u2013"
SHRINKS = 0.8  # how far a picture gets smaller on a narrow page before it is scrolled instead
MEDIA = {".png": "image/png", ".svg": "image/svg+xml"}
METRES_PER_INCH = 0.0254
MIN_SECTIONS = 3  # from which on a page has a list of them


class Figure(NamedTuple):
    """A number that matters: its name, the number as it is to be read, and a note below."""

    name: str
    value: str
    note: str = ""


class Report:
    """A page that grows by one part with each call; every method but the last two returns the report itself."""

    def __init__(self, title: str, subtitle: str = "") -> None:
        self.title = title
        self.subtitle = subtitle
        self._parts: list[str] = []
        self._sections: list[str] = []

    def section(self, heading: str) -> "Report":
        """A heading; the page begins with links to them if there are three or more."""
        self._sections.append(heading)
        return self._add(f'<h2 id="section-{len(self._sections)}">{_text(heading)}</h2>')

    def subsection(self, heading: str) -> "Report":
        return self._add(f"<h3>{_text(heading)}</h3>")

    def paragraph(self, text: str) -> "Report":
        return self._add(f"<p>{_text(text)}</p>")

    def figures(self, figures: Iterable[Figure | tuple[str, str] | tuple[str, str, str]]) -> "Report":
        """Tiles with one number each, as (name, value) or (name, value, note); the first is accented."""
        tiles: list[str] = []
        for figure in (Figure(*each) for each in figures):
            kind = "tile" if tiles else "tile main"
            note = f"<small>{_text(figure.note)}</small>" if figure.note else ""
            inside = f"<span>{_text(figure.name)}</span><b>{_text(figure.value)}</b>{note}"
            tiles.append(f'<div class="{kind}">{inside}</div>')
        return self._add('<div class="tiles">' + "\n".join(tiles) + "</div>")

    def table(
        self,
        columns: Sequence[str],
        rows: Sequence[Sequence[Cell]],
        best: Mapping[str, Best] | None = None,
        apart: Collection[int] = (),
        caption: str = "",
        digits: int = 2,
    ) -> "Report":
        """A table whose first column names the rows; columns of numbers are aligned, with `digits` after the point.

        `best` says for columns whether their "highest" or "lowest" number is to be marked. The rows in `apart`, by
        number, such as bounds, are set back and take no part in that. None is a dash. Raises ShapeError for a row of
        another length and RankspaceError for an unknown column.
        """
        _check_table(columns, rows, best or {})
        compared = [row for place, row in enumerate(rows) if place not in apart]
        winners = [_best(compared, place, (best or {}).get(column)) for place, column in enumerate(columns)]
        kinds = [' class="figure"' if _is_figure(rows, place) else "" for place in range(len(columns))]
        head = "".join(f"<th{kind}>{_text(column)}</th>" for kind, column in zip(kinds, columns, strict=True))
        body = [
            _row(row, kinds, [None] * len(columns) if place in apart else winners, digits, place in apart)
            for place, row in enumerate(rows)
        ]
        title = f"<caption>{_text(caption)}</caption>" if caption else ""
        table = f"<table>{title}<thead><tr>{head}</tr></thead>\n<tbody>\n" + "\n".join(body) + "\n</tbody></table>"
        return self._add(f'<div class="scroll">{table}</div>')

    def picture(self, picture: Picture, caption: str = "") -> "Report":
        """A picture as part of the page, in its colours; on a narrow page it shrinks a little, then it is scrolled."""
        svg = picture.to_svg(alone=False).replace("<svg", f"<svg{attributes({'style': _sizes(picture.width)})}", 1)
        return self._figure(svg, caption)

    def image(self, file: str | Path | bytes, caption: str = "", description: str = "") -> "Report":
        """A .png or .svg file, or the bytes of a PNG, as it is, on white. Raises FormatError if it cannot be read."""
        data, media = (file, MEDIA[".png"]) if isinstance(file, bytes) else _read(Path(file))
        width = f"width:{number(width)}px;" if (width := _png_width(data)) else ""
        source = f"data:{media};base64,{b64encode(data).decode()}"
        values = {"src": source, "alt": _plain(description or caption), "style": f"{width}max-width:100%"}
        image = f"<img{attributes(values)}>"
        return self._figure(image, caption)

    def preformatted(self, text: str) -> "Report":
        """Text in which blanks and line ends count, such as tables made for a terminal."""
        return self._add("<pre>" + "\n".join(_text(line) for line in text.split("\n")) + "</pre>")

    def fragment(self, html: str) -> "Report":
        """HTML as it is, such as `state_words_html` gives; nothing in it is escaped."""
        return self._add(html)

    def to_html(self) -> str:
        """The whole page."""
        subtitle = f'<p class="subtitle">{_text(self.subtitle)}</p>' if self.subtitle else ""
        return "\n".join(
            [
                "<!DOCTYPE html>",
                '<html lang="en"><head><meta charset="utf-8">',
                '<meta name="viewport" content="width=device-width, initial-scale=1">',
                f"<title>{_text(self.title)}</title>",
                f"<style>\n{style()}\n</style></head><body><main>",
                f"<header><h1>{_text(self.title)}</h1>{subtitle}{self._contents()}</header>",
                *self._parts,
                "</main></body></html>",
                "",
            ]
        )

    def save(self, path: str | Path) -> None:
        """Writes the page to a file, whole or not at all. Raises FormatError where it cannot be written."""
        with whole_file(path) as file:
            file.write_text(self.to_html(), encoding="utf-8")

    def _add(self, part: str) -> "Report":
        self._parts.append(part)
        return self

    def _figure(self, content: str, caption: str) -> "Report":
        below = f"<figcaption>{_text(caption)}</figcaption>" if caption else ""
        return self._add(f'<figure><div class="frame">{content}</div>{below}</figure>')

    def _contents(self) -> str:
        if len(self._sections) < MIN_SECTIONS:
            return ""
        links = (f'<a href="#section-{place}">{_text(name)}</a>' for place, name in enumerate(self._sections, start=1))
        return "<nav>" + "\n".join(links) + "</nav>"


def _plain(text: str) -> str:
    """The text without characters that are not shown, line ends in it as blanks."""
    return plain(" ".join(text.split("\n")))


def _text(text: str) -> str:
    return escape(_plain(text))


def _sizes(width: float) -> str:
    return f"width:100%;max-width:{number(width)}px;min-width:{number(SHRINKS * width)}px"


def _read(path: Path) -> tuple[bytes, str]:
    if path.suffix.lower() not in MEDIA:
        raise FormatError(f"Report.image: {path.name!r} is of no known kind; the name must end in .png or .svg.")
    try:
        return path.read_bytes(), MEDIA[path.suffix.lower()]
    except OSError as error:
        raise FormatError(f"{path}: cannot be read ({error.strerror or error}).") from None


def _png_width(data: bytes) -> float | None:
    """The width of a PNG in pixels of CSS, if it tells its pixels per metre; matplotlib's files do."""
    head, place = data[16:20], data.find(b"pHYs", 0, 1000)
    if not data.startswith(b"\x89PNG") or place < 0:
        return None
    per_metre = int.from_bytes(data[place + 4 : place + 8])
    return int.from_bytes(head) / (per_metre * METRES_PER_INCH / 96) if per_metre else None


def _check_table(columns: Sequence[str], rows: Sequence[Sequence[Cell]], best: Mapping[str, Best]) -> None:
    for place, row in enumerate(rows):
        if len(row) != len(columns):
            raise ShapeError(
                f"Report.table: row {place} has {len(row)} cells for {len(columns)} columns; give one for each."
            )
    for name in best:
        if name not in columns:
            raise RankspaceError(f"Report.table: there is no column {name!r}; the columns are {', '.join(columns)}.")


def _is_figure(rows: Sequence[Sequence[Cell]], place: int) -> bool:
    """Whether a column holds numbers, and nothing else but gaps."""
    cells = [row[place] for row in rows if row[place] is not None]
    return bool(cells) and not any(isinstance(cell, str) for cell in cells)


def _best(rows: Sequence[Sequence[Cell]], place: int, which: Best | None) -> float | None:
    values = [float(cell) for row in rows if isinstance(cell := row[place], int | float) and cell == cell]
    if which is None or not values:
        return None
    return max(values) if which == "highest" else min(values)


def _row(
    row: Sequence[Cell], kinds: Sequence[str], winners: Sequence[float | None], digits: int, is_apart: bool
) -> str:
    cells = []
    for place, (cell, kind, winner) in enumerate(zip(row, kinds, winners, strict=True)):
        tag, text = "td" if place else "th", _text(_written(cell, digits))
        if winner is not None and isinstance(cell, int | float) and _written(cell, digits) == _written(winner, digits):
            text = f'<strong class="best">{text}</strong>'
        cells.append(f"<{tag}{kind}>{text}</{tag}>")
    return ('<tr class="apart">' if is_apart else "<tr>") + "".join(cells) + "</tr>"


def _written(cell: Cell, digits: int) -> str:
    """A number with digits after the point and groups of thousands; a whole one without digits."""
    if cell is None:
        return NOTHING
    if isinstance(cell, float):
        return f"{cell:,.{digits}f}"
    return f"{cell:,}" if isinstance(cell, int) else cell
