"""Text in pictures without a font at hand: what can be shown of it, and how much room it takes at most.

Widths are those of wide sans-serif fonts, such as DejaVu Sans or Verdana, or a little more; narrower fonts leave room.
"""

import unicodedata
from functools import lru_cache

FAMILY = "system-ui, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
MAX_CHARACTERS = 32  # of a word or symbol; longer ones end in an ellipsis
JOINERS = "\u200c\u200d"  # not printable by themselves, but part of words in several scripts
ELLIPSIS = "\u2026"

GROUPS = {  # relative to the size of the font
    0.3: "'IJijl",
    0.35: " ,./:;\\|",
    0.4: "()-[]ft",
    0.45: "!r",
    0.5: '"*_`',
    0.55: "?csz",
    0.6: "FLkvxy",
    0.65: "$0123456789EPSTYabdeghnopqu{}",
    0.7: "ABCKRVXZ",
    0.75: "NU",
    0.8: "&DGHOQ",
    0.85: "#+<=>^w~",
    1.0: "%@MWm" + ELLIPSIS,
}
WIDTHS = {character: width for width, group in GROUPS.items() for character in group}
FOREIGN, FULL = 0.9, 1.05  # other letters; characters of East Asia that are as wide as high
BOLD = 1.2  # a bold letter against a plain one


def shown(text: object, limit: int = MAX_CHARACTERS) -> str:
    """The text with an escape for each character that has no shape of its own, cut to at most `limit` characters."""
    found = "".join(c if c.isprintable() or c in JOINERS else c.encode("unicode_escape").decode() for c in str(text))
    return found if len(found) <= limit else found[: limit - 1] + ELLIPSIS


def plain(text: str) -> str:
    """The same without a limit."""
    return shown(text, len(text) * len("\\U0010ffff"))


def text_width(text: str, size: float, bold: bool = False) -> float:
    """The most room that a line of text takes, in the unit of `size`."""
    return sum(map(_width, text)) * size * (BOLD if bold else 1.0)


def num_columns(text: str) -> int:
    """The columns of a terminal that a text takes: two for a wide character, none for a mark on another one."""
    return sum(0 if _is_mark(c) else 2 if _is_full(c) else 1 for c in text)


@lru_cache(maxsize=4096)
def _width(character: str) -> float:
    letter = unicodedata.normalize("NFD", character)[0]  # without its accents
    if letter in WIDTHS:
        return WIDTHS[letter]
    if _is_mark(letter):
        return 0.0
    return FULL if _is_full(letter) else FOREIGN


def _is_mark(character: str) -> bool:
    return character in JOINERS or unicodedata.category(character) in ("Mn", "Me")


def _is_full(character: str) -> bool:
    return unicodedata.east_asian_width(character) in "WF"
