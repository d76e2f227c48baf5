"""What a newcomer meets first: the version, the README's example, `make` with the wrong Python, and the CI script."""

import os
import re
import runpy
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import rankspace

ROOT = Path(__file__).parents[1]
FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_the_version_is_the_same_everywhere() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert rankspace.__version__ == project["version"]
    assert f"\nversion: {rankspace.__version__}\n" in (ROOT / "CITATION.cff").read_text()


def first_example(markdown: str) -> tuple[str, str | None]:
    """The first python block, and the text block right after it (None if another kind of block, or none, follows)."""
    blocks = FENCED.findall(markdown)
    position = next(index for index, (language, _) in enumerate(blocks) if language == "python")
    following = blocks[position + 1 : position + 2]
    output = following[0][1] if following and following[0][0] == "text" else None
    return blocks[position][1], output


def test_the_first_example_is_found_with_its_output() -> None:
    shell, python, text = "```sh\nmake demo\n```\n", "```python\nprint(1)\n```\n", "```text\n1\n```\n"
    assert first_example(shell + python + "It prints\n\n" + text) == ("print(1)\n", "1\n")
    assert first_example(python + shell + text) == ("print(1)\n", None)
    assert first_example(python) == ("print(1)\n", None)


def test_the_readme_example_prints_what_the_readme_says(tmp_path: Path) -> None:
    code, output = first_example((ROOT / "README.md").read_text(encoding="utf-8"))
    path = os.pathsep.join([str(ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])])
    result = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": path, "PYTHONUTF8": "1"},
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert result.returncode == 0, result.stderr
    if output is not None:
        assert result.stdout.strip() == output.strip()


def run_make(folder: Path, *arguments: str) -> tuple[int, list[str]]:
    """The exit code of make on a copy of the Makefile, and the lines it printed that are not make's own."""
    if shutil.which("make") is None:
        pytest.skip("needs make")
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, folder)
    # Without this a make that runs these tests would pass its own flags on, and ours would report its folders.
    inherited = ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")
    result = subprocess.run(
        ["make", *arguments],
        cwd=folder,
        env={name: value for name, value in os.environ.items() if name not in inherited},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return result.returncode, [line for line in result.stdout.splitlines() if not line.startswith("make:")]


def fake_python(folder: Path, version: str) -> Path:
    python = folder / "python"
    python.write_text(f"#!/bin/sh\necho {version}\n")
    python.chmod(0o755)
    return python


@pytest.mark.parametrize("target", ["demo", "test", "lint", "types"])
@pytest.mark.parametrize("version", ["2.7", "3.8", "3.10", "3.13"])
def test_make_refuses_another_python_in_one_line(tmp_path: Path, target: str, version: str) -> None:
    python = fake_python(tmp_path, version)
    code, lines = run_make(tmp_path, target, f"PYTHON={python}")
    assert code != 0
    assert lines == [f"rankspace needs Python 3.11 or 3.12, and '{python}' is {version}; name another with PYTHON=..."]
    assert not (tmp_path / ".venv").exists()


def test_make_refuses_a_missing_python_in_one_line(tmp_path: Path) -> None:
    code, lines = run_make(tmp_path, "demo", "PYTHON=no-such-python")
    assert code != 0
    assert lines == [
        "rankspace needs Python 3.11 or 3.12, and 'no-such-python' does not run; name another with PYTHON=..."
    ]


def test_make_alone_names_every_target(tmp_path: Path) -> None:
    code, lines = run_make(tmp_path)
    assert code == 0
    for target in ("demo", "test", "lint", "types", "clean"):
        assert any(line.startswith(f"make {target} ") for line in lines), target


def test_ci_runs_make_test() -> None:
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    lines = script.read_text().splitlines()
    assert lines[0] == "#!/usr/bin/env bash"
    assert "set -euo pipefail" in lines
    assert lines[-1] == "make test"


@pytest.mark.parametrize("name", ["README.md", "docs/performance-cpu.md"])
def test_figures_of_a_cpu_are_those_of_the_records(name: str) -> None:
    """`python benchmarks/cpu_performance.py` would change nothing."""
    script = runpy.run_path(str(ROOT / "benchmarks" / "cpu_performance.py"))
    text = (ROOT / name).read_text(encoding="utf-8")
    assert script["with_blocks"](text) == text
    if name != "README.md":
        assert [block for block in (*script["BLOCKS"], "generic") if f"<!-- {block} -->" not in text] == ["cpu"]
