"""docs/commands.md has every command, and the options of those it is about as the program has them.

    PYTHONPATH=src:tests python tests/cli/test_commands_page.py

writes the tables of options anew.
"""

import re
from pathlib import Path
from typing import Any

from typer.main import get_command

from rankspace.cli.app import app

PAGE = Path(__file__).parents[2] / "docs" / "commands.md"
TABLE = re.compile(r"<!-- options: ([a-z -]+) -->\n(.*?)<!-- /options -->", re.DOTALL)


def find(name: str) -> Any:
    found: Any = get_command(app)
    for part in name.split():
        found = found.commands[part]
    return found


def table(name: str) -> str:
    rows = [row(parameter) for parameter in find(name).params if parameter.name != "help"]
    lines = [
        f"| {cells} |" for cells in (" | ".join(each) for each in [("option", "what it does"), ("---", "---"), *rows])
    ]
    return "\n".join(lines) + "\n"


def row(parameter: Any) -> tuple[str, str]:
    """Name and help, with the default where there is one to speak of."""
    is_option = parameter.opts[0].startswith("-")
    name = ", ".join(f"`{each}`" for each in parameter.opts) if is_option else f"`{parameter.metavar.strip('[]')}`"
    default = parameter.default
    shown = default is not None and default is not False and default != "" and default != []
    return name, f"{parameter.help} (default `{default}`)" if shown and not parameter.required else parameter.help


def test_every_command_is_mentioned() -> None:
    text = PAGE.read_text("utf-8")
    group: Any = get_command(app)
    assert [name for name in group.commands if f"`rankspace {name}`" not in text] == []


def test_every_option_is_as_the_program_has_it() -> None:
    text = PAGE.read_text("utf-8")
    names = [match[1] for match in TABLE.finditer(text)]
    assert {*names} == {
        "evaluate",
        "parse",
        "score",
        "sample",
        "info",
        "experiment",
        *(f"show {name}" for name in find("show").commands),
    }
    assert {match[1]: match[2] for match in TABLE.finditer(text)} == {name: table(name) for name in names}


if __name__ == "__main__":
    written = TABLE.sub(
        lambda match: f"<!-- options: {match[1]} -->\n{table(match[1])}<!-- /options -->", PAGE.read_text("utf-8")
    )
    PAGE.write_text(written, "utf-8")
