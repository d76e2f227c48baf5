"""The most likely words of each state or symbol, as a table in plain text and as one in HTML."""

from collections.abc import Sequence
from html import escape

from rankspace.errors import RankspaceError, ShapeError
from rankspace.viz.lettering import num_columns, shown
from rankspace.viz.svg import number

Words = Sequence[tuple[str, float]]  # with their probabilities
NUM_WORDS = 10
NO_SHARE = "-"


def state_words_text(
    names: Sequence[str], words: Sequence[Words], shares: Sequence[float] | None = None, num_words: int = NUM_WORDS
) -> str:
    """A line for each state: its name, the share of its use in per cent, and its first words with probabilities.

    States and words stay in the order given. Raises ShapeError if there are not as many lists of words, or shares, as
    names, and RankspaceError for what is no probability.
    """
    _check(names, words, shares)
    header = ["state", *([] if shares is None else ["share"]), "words"]
    rows = [header]
    for place, name in enumerate(names):
        listed = "  ".join(f"{shown(word)} {_probability(value)}" for word, value in words[place][:num_words])
        rows.append([shown(name), *([] if shares is None else [_per_cent(shares[place])]), listed])
    widths = [max(num_columns(row[column]) for row in rows) for column in range(len(header) - 1)]
    lines = [_line(row, widths) for row in rows]
    return "\n".join([lines[0], "-" * max(map(num_columns, lines)), *lines[1:]])


def state_words_html(
    names: Sequence[str], words: Sequence[Words], shares: Sequence[float] | None = None, num_words: int = NUM_WORDS
) -> str:
    """The same as a table for `Report.fragment`: a bar for each share, and words the stronger the more likely."""
    _check(names, words, shares)
    share = "" if shares is None else '<th class="figure">share</th><th class="bar-column"></th>'
    longest = max(shares or [0.0])
    rows = []
    for place, name in enumerate(names):
        own = "" if shares is None else _share_cells(shares[place], longest)
        listed = " ".join(_word(word, value) for word, value in words[place][:num_words])
        rows.append(f'<tr><th scope="row">{escape(shown(name))}</th>{own}<td class="words">{listed}</td></tr>')
    head = f"<thead><tr><th>state</th>{share}<th>words</th></tr></thead>"
    table = f"<table>{head}\n<tbody>\n" + "\n".join(rows) + "\n</tbody></table>"
    return f'<div class="scroll state-words">{table}</div>'


def _check(names: Sequence[str], words: Sequence[Words], shares: Sequence[float] | None) -> None:
    for name, values in (("lists of words", words), ("shares", shares)):
        if values is not None and len(values) != len(names):
            raise ShapeError(f"state_words: there are {len(names)} names but {len(values)} {name}; give one for each.")
    for place, name in enumerate(names):
        for word, value in (*words[place], *([] if shares is None else [("its share", shares[place])])):
            if not 0 <= value <= 1:
                raise RankspaceError(
                    f"state_words: of {name!r}, {word!r} has {value}; give probabilities and shares from 0 to 1."
                )


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    """The first column to the left, a share to the right, and the words as they come."""
    cells = [" " * (width - num_columns(cell)) for width, cell in zip(widths, row, strict=False)]
    padded = [row[0] + cells[0], *(space + cell for space, cell in zip(cells[1:], row[1:], strict=False)), row[-1]]
    return "  ".join(padded).rstrip()


def _probability(value: float) -> str:
    """0.52, 0.0052, 5.2e-05: two digits that say something."""
    return f"{value:.2f}" if value >= 0.1 else f"{value:.2g}"


def _per_cent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _share_cells(share: float, longest: float) -> str:
    width = number(100 * share / longest) if longest else "0"
    bar = f'<span class="bar" style="width:{width}%"></span>'
    return f'<td class="figure">{_per_cent(share)}</td><td class="bar-column">{bar}</td>'


def _word(word: str, value: float) -> str:
    inside = f"{escape(shown(word))} <small>{_probability(value)}</small>"
    return f'<span class="word" style="--p:{number(100 * value)}%" title="{value:.4f}">{inside}</span>'
