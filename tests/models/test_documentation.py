"""docs/models.md: the example prints what the page says, and the tables have every setting with its default."""

import contextlib
import io
import re
from pathlib import Path

import pytest

from rankspace.models import MODELS, describe

PAGE = (Path(__file__).parents[2] / "docs" / "models.md").read_text("utf-8")


def test_the_example_prints_what_the_page_says() -> None:
    ((code, output),) = re.findall(r"^```python\n(.*?)^```\n\n```text\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(code, {})
    assert printed.getvalue() == output


def test_every_model_has_a_section() -> None:
    sections = re.findall(r"^## (.*)$", PAGE, re.MULTILINE)
    assert sections == [*MODELS, "Compound models"]


@pytest.mark.parametrize("name", MODELS)
def test_settings_and_defaults(name: str) -> None:
    section = PAGE.split(f"\n## {name}\n")[1].split("\n## ")[0]
    rows = re.findall(r"^\| `(\w+)` \| `(.*?)` \|", section, re.MULTILINE)
    assert dict(rows) == {setting: repr(default) for setting, default in describe(name).settings.items()}
