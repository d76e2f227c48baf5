"""Pages of the documentation whose blocks are written from records, so that no figure is typed.

A block stands between <!-- NAME --> and <!-- /NAME -->.
"""

import json
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

Block = tuple[str, Callable[[dict[str, Any]], str]]  # the name of a record, and what makes text of it

WIDTH = 120  # of a line of text


def record(folder: Path, name: str) -> dict[str, Any] | None:
    """A record, if it has been made."""
    file = folder / f"{name}.json"
    found: dict[str, Any] | None = json.loads(file.read_text(encoding="utf-8")) if file.exists() else None
    return found


def with_blocks(text: str, blocks: Mapping[str, Block], folder: Path) -> str:
    """A page with everything between its marks written anew; a block whose record does not exist is left empty."""

    def written(source: str, block: Callable[[dict[str, Any]], str]) -> str:
        found = record(folder, source)
        return "" if found is None else block(found)

    for name, given in blocks.items():
        text = with_block(text, name, partial(written, *given))
    return text


def with_block(text: str, name: str, write: Callable[[], str]) -> str:
    """A page with one block written anew; a page that does not have its marks is left as it is."""
    begin, end = f"<!-- {name} -->\n", f"<!-- /{name} -->"
    if begin not in text:
        return text
    before, after = text.index(begin) + len(begin), text.index(end)
    return text[:before] + write() + text[after:]


def markdown_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table whose first line names the columns; those with nothing in any row are left out."""
    kept = [place for place in range(len(columns)) if any(cells[place] for cells in rows)]
    lines = [columns, ["---"] * len(columns), *rows]
    return "".join(f"| {' | '.join(cells[place] for place in kept)} |\n" for cells in lines)


def listed(lines: Iterable[str]) -> str:
    """A list with a point for each line."""
    return "".join(f"- {filled(line, '  ')}\n" for line in lines)


def gathered(remarks: Iterable[tuple[str, str]]) -> list[str]:
    """A line for each remark, with all names that it is made on; remarks are given each with one name."""
    names: dict[str, list[str]] = {}
    for name, remark in dict.fromkeys(remarks):
        names.setdefault(remark, []).append(f"`{name}`")
    return [f"{', '.join(own)}: {remark}." for remark, own in names.items()]


def numbered(word: str, numbers: Sequence[int]) -> str:
    """As "seed 1" and "seeds 1, 2"."""
    return f"{word}{'s' * (len(numbers) != 1)} {', '.join(map(str, numbers))}"


def filled(text: str, indent: str = "") -> str:
    """Text broken into lines, all but the first of them indented."""
    return textwrap.fill(
        text, WIDTH - len(indent), subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )
