"""The example of docs/pictures.md prints what the page says and writes its files."""

import contextlib
import io
import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "pictures.md"


def test_the_example_prints_what_the_page_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = dict(re.findall(r"^```(python|text)\n(.*?)^```$", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL))
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(blocks["python"], {})
    assert printed.getvalue() == blocks["text"]
    files = sorted(file.name for file in tmp_path.iterdir())
    assert files == ["chart.svg", "curves.svg", "pair.svg", "report.html", "tree.svg"]
