"""Pages of the documentation whose blocks are written from records, so that no figure is typed.

A block stands between <!-- NAME --> and <!-- /NAME -->.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

Block = tuple[str, Callable[[dict[str, Any]], str]]  # the name of a record, and what makes text of it


def record(folder: Path, name: str) -> dict[str, Any] | None:
    """A record, if it has been made."""
    file = folder / f"{name}.json"
    found: dict[str, Any] | None = json.loads(file.read_text(encoding="utf-8")) if file.exists() else None
    return found


def with_blocks(text: str, blocks: Mapping[str, Block], folder: Path) -> str:
    """A page with everything between its marks written anew; a block whose record does not exist is left empty."""
    for name, (source, block) in blocks.items():
        begin, end = f"<!-- {name} -->\n", f"<!-- /{name} -->"
        if begin in text:
            found = record(folder, source)
            before, after = text.index(begin) + len(begin), text.index(end)
            text = text[:before] + ("" if found is None else block(found)) + text[after:]
    return text


def markdown_table(columns: list[str], rows: list[list[str]]) -> str:
    """A table whose first line names the columns."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)
