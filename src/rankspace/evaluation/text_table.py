"""Tables as plain text, for results that are printed, logged or written to a file."""

from collections.abc import Iterable, Sequence


def text_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A header, a rule and the rows; the first column aligned to the left, the others to the right."""
    lines = [columns, *rows]
    widths = [max(len(line[place]) for line in lines) for place in range(len(columns))]
    text = [_line(line, widths) for line in lines]
    return "\n".join([text[0], "-" * (sum(widths) + 2 * len(widths) - 2), *text[1:]])


def percentage(value: float | None) -> str:
    """Two digits after the point, as papers give them; - where there is no value."""
    return "-" if value is None else f"{value:.2f}"


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    first, *others = (
        cell.rjust(width) if place else cell.ljust(width)
        for place, (cell, width) in enumerate(zip(cells, widths, strict=True))
    )
    return "  ".join([first, *others]).rstrip()
