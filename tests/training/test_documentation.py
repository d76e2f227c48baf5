"""The example of docs/training.md prints what the page says."""

import contextlib
import io
import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "training.md"


def test_the_example_prints_what_the_page_says() -> None:
    blocks = dict(re.findall(r"^```(python|text)\n(.*?)^```$", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL))
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(blocks["python"], {})
    assert printed.getvalue() == blocks["text"]
