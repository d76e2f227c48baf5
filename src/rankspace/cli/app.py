"""The `rankspace` command: its sub-commands, and one line on stderr for every mistake of its user.

A sub-command is a module with a typer app; it takes an import and one `add_typer` here. Modules of sub-commands import
torch, and whatever imports torch, inside their functions, so that help and usage errors come at once.
"""

import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from typer.main import get_command

from rankspace import __version__
from rankspace.cli import bench, data, fgg, show
from rankspace.cli.demo import demo
from rankspace.cli.evaluate import evaluate
from rankspace.cli.experiment import experiment
from rankspace.cli.help_text import WIDTH, Command, Group
from rankspace.cli.info import info
from rankspace.cli.output import printing
from rankspace.cli.parse import parse
from rankspace.cli.sample import sample
from rankspace.cli.score import score
from rankspace.cli.train import train
from rankspace.errors import RankspaceError, is_lack_of_memory

USER_ERROR = 2
INTERRUPTED = 130

# typer raises click's errors, or in later versions those of a copy of click it brings along: BadParameter is
# reachable in both, and this is the class above all of them.
_ClickException: type[Any] = typer.BadParameter.__mro__[2]

app = typer.Typer(
    cls=Group,
    help="""Exact inference with very large state spaces, in rank space.

    Examples:

    rankspace demo --quick

    rankspace data prepare train=train.txt valid=valid.txt -o my-data --min-count 2

    rankspace train my-data --preset demo -o my-run

    rankspace parse my-run text.txt
    """,
    add_completion=False,
    context_settings={"help_option_names": ["--help", "-h"], "max_content_width": WIDTH},
)
app.command(cls=Command)(demo)
app.command(cls=Command)(train)
app.command(cls=Command)(evaluate)
app.command(cls=Command)(parse)
app.command(cls=Command)(score)
app.command(cls=Command)(sample)
app.add_typer(show.app, name="show")
app.command(cls=Command)(info)
app.add_typer(fgg.app, name="fgg")
app.add_typer(data.app, name="data")
app.add_typer(bench.app, name="bench")
app.command(cls=Command)(experiment)


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the command and exits: 0 when all went well, 2 after a mistake of the user, 130 when interrupted.

    A mistake is told in one line on stderr that begins with "error: ". `arguments` default to those of the process.
    """
    raise SystemExit(_run(list(sys.argv[1:] if arguments is None else arguments)))


def _run(arguments: list[str]) -> int:
    _show_any_text()
    try:
        with printing() as stdout:
            code = _invoke(arguments)
            stdout.flush()
        return code
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
    except _ClickException as error:
        return _complain(_usage(error))
    except BrokenPipeError:  # whoever read our output has seen enough
        return 1
    except OSError as error:
        return _complain(f"{error.filename}: {error.strerror}." if error.filename else f"{error.strerror}.")
    except RankspaceError as error:
        return _complain(str(error))
    except (MemoryError, RuntimeError) as error:
        if not is_lack_of_memory(error):
            raise
        return _complain("not enough memory; make the grammar, the sentence or the rank smaller.")


def _invoke(arguments: list[str]) -> int:
    try:
        code = get_command(app).main(arguments or ["--help"], prog_name="rankspace", standalone_mode=False)
    except _ClickException as error:
        if type(error).__name__ != "NoArgsIsHelpError":  # raised by a group without a command
            raise
        print(error.format_message())
        return 0
    return code if isinstance(code, int) else 0


def _print_version(wanted: bool) -> bool:
    if wanted:
        print(f"rankspace {__version__}")
        raise typer.Exit
    return wanted


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Options of the command itself."""


def _usage(error: Any) -> str:
    message = str(error.format_message()).strip().rstrip(".")
    context = getattr(error, "ctx", None)
    return f"{message}; see '{context.command_path if context else 'rankspace'} --help'."


def _complain(message: str) -> int:
    line = "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in message)
    print(f"error: {line}", file=sys.stderr)
    return USER_ERROR


def _show_any_text() -> None:
    """Lets labels of any script through to a terminal or file of any encoding."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")
