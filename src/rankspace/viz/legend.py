"""The line below a picture that says what its lines, colours and outlines mean."""

from collections.abc import Sequence
from typing import NamedTuple

from rankspace.viz.lettering import shown, text_width
from rankspace.viz.palette import Role
from rankspace.viz.shapes import Group, Line, Rectangle, Shape, Size, Text, moved

FONT = 11.0
SAMPLE, GAP, BETWEEN = 26.0, 7.0, 22.0  # a sample's width, to its text, and to the next sample
ROW = 20.0
STEPS = 6  # of the scale of colours


class Entry(NamedTuple):
    """A sample, drawn around y = 0 from x = 0, and what it stands for."""

    sample: Sequence[Shape]
    text: str
    width: float = SAMPLE


def line_entry(text: str, colour: Role, width: float = 1.5, dashed: bool = False) -> Entry:
    return Entry([Line([(0.0, 0.0), (SAMPLE, 0.0)], colour, width, dashed)], text)


def outline_entry(text: str, colour: Role) -> Entry:
    return Entry([Rectangle(6.0, -6.0, 12.0, 12.0, outline=colour, line_width=2.0, radius=2.0)], text, 20.0)


def scale_entry(text: str) -> Entry:
    """Colours from probability 0 to 1."""
    steps = [
        Rectangle(12.0 + 10.0 * place, -5.0, 10.0, 10.0, "accent", opacity)
        for place, opacity in enumerate(step / (STEPS - 1) for step in range(STEPS))
    ]
    width = 12.0 + 10.0 * STEPS
    frame = Rectangle(12.0, -5.0, 10.0 * STEPS, 10.0, outline="line")
    ends = [Text(0.0, 4.0, "0", FONT, "soft"), Text(width + 5.0, 4.0, "1", FONT, "soft")]
    return Entry([*steps, frame, *ends], text, width + 14.0)


def legend(entries: Sequence[Entry], width: float) -> tuple[list[Shape], Size]:
    """The entries in rows of at most `width`, from the origin down, and the room they take."""
    shapes: list[Shape] = []
    x, y, widest = 0.0, 0.0, 0.0
    for entry in entries:
        text = shown(entry.text, 60)
        needed = entry.width + GAP + text_width(text, FONT)
        if x and x + needed > width:
            x, y = 0.0, y + ROW
        label = Text(entry.width + GAP, 4.0, text, FONT, "soft")
        shapes.append(moved(Group("entry", text, [*entry.sample, label]), x, y + ROW / 2))
        widest, x = max(widest, x + needed), x + needed + BETWEEN
    return shapes, (widest, y + ROW if entries else 0.0)
