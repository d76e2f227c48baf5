"""Characters that the fonts of matplotlib lack, in place of which it draws boxes."""

import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

WARNING = r"Glyph (\d+) "  # how matplotlib's warning of such a character begins


@contextmanager
def lacking_glyphs() -> Iterator[list[str]]:
    """The characters that matplotlib warns of within, in place of these warnings; others are given on."""
    found: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.filterwarnings("always", WARNING)
        yield found
    for each in caught:
        if glyph := re.match(WARNING, str(each.message)):
            found.append(chr(int(glyph[1])))
        else:
            warnings.warn_explicit(each.message, each.category, each.filename, each.lineno)
