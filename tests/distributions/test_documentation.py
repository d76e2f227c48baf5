"""The examples of docs/distributions.md and docs/grammars.md, and that of the README, print what the pages say."""

import contextlib
import io
import re
from itertools import pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def examples(page: str) -> list[tuple[str, str]]:
    """Each python block with the text block that follows it."""
    blocks: list[tuple[str, str]] = BLOCK.findall((ROOT / page).read_text("utf-8"))
    pairs = pairwise(blocks)
    return [(code, output) for (kind, code), (other, output) in pairs if (kind, other) == ("python", "text")]


@pytest.mark.parametrize(("page", "count"), [("docs/distributions.md", 4), ("docs/grammars.md", 2), ("README.md", 1)])
def test_examples_print_what_the_page_says(
    page: str, count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # one of them writes a file
    about = [pair for pair in examples(page) if page != "README.md" or "rankspace.distributions" in pair[0]]
    assert len(about) == count
    names: dict[str, object] = {}  # later examples use what earlier ones made
    for code, output in about:
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(code, names)
        assert printed.getvalue() == output
