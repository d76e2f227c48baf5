"""The colours of pictures and pages: each has a part to play, and one value for light and one for dark surroundings.

In an SVG the light value stands at the shape itself, where every program understands it; browsers in dark surroundings
replace it by the rules of `dark_rules`.
"""

from collections.abc import Iterator
from typing import Literal, NamedTuple

Role = Literal[
    "paper",
    "wash",
    "ink",
    "soft",
    "line",
    "accent",
    "on_accent",
    "gold",
    "series_1",
    "series_2",
    "series_3",
    "series_4",
    "series_5",
    "series_6",
]


class Colour(NamedTuple):
    light: str
    dark: str


# `accent` at opacity 0.7 is as far from `ink` as from `on_accent`, in both: text on it changes colour there.
PALETTE: dict[Role, Colour] = {
    "paper": Colour("#ffffff", "#1b1d22"),
    "wash": Colour("#f2f4f6", "#262a31"),  # what is empty
    "ink": Colour("#1d2026", "#e6e7ea"),
    "soft": Colour("#626974", "#9ca3af"),  # captions and what stands back
    "line": Colour("#cdd2d8", "#474d58"),
    "accent": Colour("#0b4a8f", "#5b9bf5"),
    "on_accent": Colour("#ffffff", "#0d0f12"),
    "gold": Colour("#d08300", "#f5b143"),
    "series_1": Colour("#0b4a8f", "#5b9bf5"),
    "series_2": Colour("#c2570c", "#f08a4b"),
    "series_3": Colour("#2a7f62", "#52c39a"),
    "series_4": Colour("#8e3b8a", "#d08ad0"),
    "series_5": Colour("#8a6d00", "#d9b93b"),
    "series_6": Colour("#56606c", "#aab4c0"),
}
SERIES: tuple[Role, ...] = ("series_1", "series_2", "series_3", "series_4", "series_5", "series_6")
TEXT_CHANGES = 0.7  # opacity of `accent` from which text on it is `on_accent`

PICTURE = "rankspace-picture"  # the class of every picture: rules for one must not reach the page around it


def fill_class(role: Role) -> str:
    return f"f-{role}"


def stroke_class(role: Role) -> str:
    return f"s-{role}"


def dark_rules() -> str:
    """Style rules that give the shapes of pictures their dark colours, where those are asked for."""
    return "@media screen and (prefers-color-scheme: dark) {" + "".join(_rules()) + "}"


def _rules() -> Iterator[str]:
    for role, colour in PALETTE.items():
        yield f".{PICTURE} .{fill_class(role)}{{fill:{colour.dark}}}"
        yield f".{PICTURE} .{stroke_class(role)}{{stroke:{colour.dark}}}"
