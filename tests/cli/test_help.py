"""The help of every command: at once, with examples, and without what only the work itself needs."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from cli.tiny_runs import Run
from rankspace.cli.app import app

resource: Any = pytest.importorskip("resource")

SOURCE = Path(__file__).parents[2] / "src"
OURS = ("evaluate", "parse", "score", "sample", "info", "show tree", "show heat-map", "show curves", "show words")
HEAVY = {"torch", "numpy", "safetensors", "jaxtyping", "matplotlib", "nltk", "tensorly", "triton", "wandb", "rich"}
BARE = "import typer\napp = typer.Typer()\n@app.command()\ndef f(x: int = 1): 'x'\napp(['--help'])"
HELP = "from rankspace.cli import main\nmain(['parse', '--help'])"


def commands(group: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The names of all commands."""
    for name, command in group.commands.items():
        yield (*path, name)
        if hasattr(command, "commands"):
            yield from commands(command, (*path, name))


def run_python(code: str) -> tuple[str, float]:
    """What it prints, and the seconds of work it takes: time itself depends on what else the machine does."""
    path = os.pathsep.join([str(SOURCE), *filter(None, [os.environ.get("PYTHONPATH")])])
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    result = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert result.returncode == 0, result.stderr
    return result.stdout, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def test_no_help_loads_what_the_work_needs() -> None:
    names = list(commands(get_command(app)))
    assert {name.split()[-1] for name in OURS} <= {path[-1] for path in names}
    code = (
        "import sys\nfrom contextlib import suppress\nfrom rankspace.cli import main\n"
        f"for path in {names!r}:\n    with suppress(SystemExit):\n        main([*path, '--help'])\n"
        f"print('LOADED', {HEAVY!r} & set(sys.modules))"
    )
    assert run_python(code)[0].endswith("LOADED set()\n")


def test_help_takes_half_a_second() -> None:
    """Where printing an empty help takes typer a quarter of a second; on slower machines as much longer."""
    bare = min(run_python(BARE)[1] for _ in range(3))
    assert min(run_python(HELP)[1] for _ in range(3)) < max(0.5, 2 * bare)


@pytest.mark.parametrize("path", [(), *commands(get_command(app))], ids=" ".join)
def test_help_shows_examples_and_cuts_nothing(command: Run, path: tuple[str, ...]) -> None:
    ran = command(*path, "--help")
    text, heading, examples = ran.out.partition("\nExamples:\n")
    assert (ran.code, ran.err, heading) == (0, "", "\nExamples:\n")
    assert " ".join(["  rankspace", *path]) in examples
    assert "<bool>" not in text
    assert "[[" not in text
    assert "…" not in text
    assert "..." not in text.partition("\n")[2]


@pytest.mark.parametrize("name", ["", "data", "show", "fgg", "bench"])
def test_groups_without_a_command_show_help_alone(command: Run, name: str) -> None:
    ran = command(*name.split())
    assert ran == (0, command(*name.split(), "--help").out, "")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("train", "train: there is no place for the run; give --output DIR."),
        ("evaluate", "evaluate: there is nothing to evaluate; give RUN and DATA, or --predicted and --gold."),
        ("parse", "parse: there is no model; give RUN, or --model."),
        ("score", "score: there is no model; give RUN, or --model."),
        ("sample", "sample: there is no model; give RUN, or --model."),
        ("show tree", "Missing option '--output' / '-o'; see 'rankspace show tree --help'."),
        ("show heat-map", "Missing argument 'RUN'; see 'rankspace show heat-map --help'."),
        ("show curves", "Missing argument 'RUN'; see 'rankspace show curves --help'."),
        ("show words", "Missing argument 'RUN'; see 'rankspace show words --help'."),
        ("data prepare", "Missing argument 'SOURCE'; see 'rankspace data prepare --help'."),
        ("data info", "Missing argument 'DIR'; see 'rankspace data info --help'."),
        ("fgg check", "Missing argument 'FILE'; see 'rankspace fgg check --help'."),
        ("fgg z", "Missing argument 'FILE'; see 'rankspace fgg z --help'."),
        ("fgg rank-space", "Missing argument 'FILE'; see 'rankspace fgg rank-space --help'."),
        ("fgg draw", "Missing argument 'FILE'; see 'rankspace fgg draw --help'."),
    ],
)
def test_what_is_forgotten_is_a_mistake(command: Run, name: str, message: str) -> None:
    """Nothing on stdout, which may go to a file that is taken for results."""
    assert command(*name.split(), given="the dog sleeps\n") == (2, "", f"error: {message}\n")
