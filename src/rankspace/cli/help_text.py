"""How commands explain themselves: usage, text, options in full, and examples under a heading of their own.

Examples are the paragraphs after "Examples:" in the docstring of a command or the help of a group.
"""

from inspect import cleandoc
from typing import Any

from typer.core import TyperCommand, TyperGroup

HEADING = "Examples:"
WIDTH = 100  # columns, on terminals that have as many


class Command(TyperCommand):
    """A command whose help is plain text, in which nothing is cut."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        write_help(self, ctx, formatter)


class Group(TyperGroup):
    """A group of commands with the same kind of help."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        write_help(self, ctx, formatter)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        rows = [(name, _paragraphs(self.get_command(ctx, name))[0]) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


def write_help(command: Any, ctx: Any, formatter: Any) -> None:
    """Usage, text, arguments, options, commands, examples. An example stays on one line, to be copied."""
    text = _paragraphs(command)
    end = text.index(HEADING) if HEADING in text else len(text)
    command.format_usage(ctx, formatter)
    formatter.write_paragraph()
    with formatter.indentation():
        formatter.write_text("\n\n".join(text[:end]))
    command.format_options(ctx, formatter)
    if examples := text[end + 1 :]:
        with formatter.section(HEADING.removesuffix(":")):
            formatter.write("".join(f"{' ' * formatter.current_indent}{line}\n" for line in examples))


def _paragraphs(command: Any) -> list[str]:
    """Of the help, each on one line."""
    text = cleandoc(command.help or "")
    return [" ".join(paragraph.split()) for paragraph in text.split("\n\n") if paragraph.strip()]
