"""A package imports only from those left of it, and what is optional or slow is imported only where it is used."""

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

SOURCE = Path(__file__).parents[1] / "src"

ARROW = (
    "errors",
    "seeds",
    "devices",
    "files",
    "trees",
    "fgg",
    "lowrank",
    "inference",
    "distributions",
    "models",
    "training",
    "bench",
    "demo",
    "experiments",
    "cli",
)
BESIDE = ("data", "evaluation", "viz")  # may use what is left of training; used from training on
KERNELS = "kernels"  # may use errors and devices alone; used by inference and models, inside functions
KERNEL_USERS = ("inference", "models")
ROOT = "rankspace"  # rankspace/__init__.py: errors and trees at once, the rest inside functions


class Import(NamedTuple):
    line: int
    module: str  # absolute: rankspace.fgg.grammar
    lazy: bool  # inside a function


def left_of(package: str) -> tuple[str, ...]:
    return ARROW[: ARROW.index(package)]


def may_import(importer: str, imported: str, lazy: bool) -> bool:
    if importer == imported:
        return True
    if imported == KERNELS:
        return lazy and importer in KERNEL_USERS
    if importer == KERNELS:
        return imported in ("errors", "devices")
    if importer == ROOT:
        return lazy or imported in ("errors", "trees")
    if importer in BESIDE:
        return imported in left_of("training")
    if imported in BESIDE:
        return "training" in (importer, *left_of(importer))
    return imported in left_of(importer)


def package_of(module: str) -> str:
    """rankspace.fgg.grammar -> fgg; rankspace -> rankspace; rankspace.__main__ -> cli."""
    parts = module.split(".")
    if len(parts) == 1:
        return ROOT
    return "cli" if parts[1] == "__main__" else parts[1]


def imports_of(source: str, module: str, is_package: bool) -> Iterator[Import]:
    """Every import of this library in `source`, wherever it stands, with relative ones made absolute."""
    tree = ast.parse(source)
    inside_functions = {
        id(node)
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for node in ast.walk(function)
    }
    for node in ast.walk(tree):
        lazy = id(node) in inside_functions
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            origin = absolute(node, module, is_package)
            # `from rankspace import fgg` names the package in the alias, not in the origin.
            names = [f"{origin}.{alias.name}" for alias in node.names] if origin == ROOT else [origin]
        else:
            continue
        yield from (Import(node.lineno, name, lazy) for name in names if name.split(".")[0] == ROOT)


def absolute(node: ast.ImportFrom, module: str, is_package: bool) -> str:
    if node.level == 0:
        return node.module or ""
    parts = module.split(".")
    anchor = parts[: len(parts) - node.level + is_package]
    return ".".join([*anchor, *([node.module] if node.module else [])])


def violations(source: str, path: str) -> list[str]:
    """One line for each import in the file at `path` (relative to src) that goes against the arrow."""
    parts = list(Path(path).with_suffix("").parts)
    is_package = parts[-1] == "__init__"
    module = ".".join(parts[:-1] if is_package else parts)
    importer = package_of(module)
    if importer not in (*ARROW, *BESIDE, KERNELS, ROOT):
        return [f"src/{path}:1: the package {importer} has no place in the arrow; give it one in {Path(__file__).name}"]
    return [
        f"src/{path}:{found.line}: {importer} must not import {found.module}{'' if found.lazy else ' at module level'}"
        for found in imports_of(source, module, is_package)
        if found.module != f"{ROOT}.__version__" and not may_import(importer, package_of(found.module), found.lazy)
    ]


def test_every_import_follows_the_arrow() -> None:
    files = sorted((SOURCE / ROOT).rglob("*.py"))
    assert files
    found = [line for file in files for line in violations(file.read_text(), file.relative_to(SOURCE).as_posix())]
    assert not found, "\n" + "\n".join(found)


@pytest.mark.parametrize(
    ("path", "source", "expected"),
    [
        (
            "rankspace/fgg/grammar.py",
            "import torch\nfrom rankspace.inference.chain import forward\n",
            "src/rankspace/fgg/grammar.py:2: fgg must not import rankspace.inference.chain at module level",
        ),
        (
            "rankspace/fgg/__init__.py",
            "from ..lowrank import CPD\n",
            "src/rankspace/fgg/__init__.py:1: fgg must not import rankspace.lowrank at module level",
        ),
        (
            "rankspace/fgg/zoo/hmm.py",
            "from ... import cli\n",
            "src/rankspace/fgg/zoo/hmm.py:1: fgg must not import rankspace.cli at module level",
        ),
        (
            "rankspace/lowrank/planner.py",
            "def plan():\n    import rankspace.models.hmm as hmm\n    return hmm\n",
            "src/rankspace/lowrank/planner.py:2: lowrank must not import rankspace.models.hmm",
        ),
        (
            "rankspace/lowrank/planner.py",
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from rankspace import training\n",
            "src/rankspace/lowrank/planner.py:3: lowrank must not import rankspace.training at module level",
        ),
        (
            "rankspace/inference/chain.py",
            "from rankspace.kernels import scan\n",
            "src/rankspace/inference/chain.py:1: inference must not import rankspace.kernels at module level",
        ),
        (
            "rankspace/cli/bench.py",
            "async def bench():\n    from rankspace.kernels import scan\n",
            "src/rankspace/cli/bench.py:2: cli must not import rankspace.kernels",
        ),
        (
            "rankspace/kernels/scan.py",
            "from rankspace.inference import chain\n",
            "src/rankspace/kernels/scan.py:1: kernels must not import rankspace.inference at module level",
        ),
        (
            "rankspace/models/hmm.py",
            "from rankspace.viz import curves\n",
            "src/rankspace/models/hmm.py:1: models must not import rankspace.viz at module level",
        ),
        (
            "rankspace/viz/curves.py",
            "from rankspace.data import batches\n",
            "src/rankspace/viz/curves.py:1: viz must not import rankspace.data at module level",
        ),
        (
            "rankspace/demo/story.py",
            "from rankspace.cli import main\n",
            "src/rankspace/demo/story.py:1: demo must not import rankspace.cli at module level",
        ),
        (
            "rankspace/__init__.py",
            "from rankspace.fgg import FGG\n",
            "src/rankspace/__init__.py:1: rankspace must not import rankspace.fgg at module level",
        ),
        (
            "rankspace/fgg/grammar.py",
            "from rankspace import Tree\n",
            "src/rankspace/fgg/grammar.py:1: fgg must not import rankspace.Tree at module level",
        ),
        (
            "rankspace/attic/old.py",
            "",
            "src/rankspace/attic/old.py:1: the package attic has no place in the arrow; give it one in test_imports.py",
        ),
    ],
)
def test_an_import_against_the_arrow_is_reported(path: str, source: str, expected: str) -> None:
    assert violations(source, path) == [expected]


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("rankspace/fgg/grammar.py", "from ..errors import GrammarError\nfrom .hypergraph import Fragment\n"),
        ("rankspace/inference/chain.py", "def forward():\n    from ..kernels.scan import scan\n    return scan\n"),
        ("rankspace/kernels/scan.py", "from rankspace.errors import ShapeError\n"),
        ("rankspace/viz/drawing.py", "from rankspace.fgg import FGG\nfrom rankspace.lowrank import CPD\n"),
        ("rankspace/training/loop.py", "from rankspace import data, evaluation, viz\n"),
        ("rankspace/cli/__init__.py", "from rankspace import __version__, demo\nfrom .fgg import check\n"),
        ("rankspace/__main__.py", "from rankspace.cli import main\n"),
        ("rankspace/__init__.py", "from .trees import Tree\ndef load():\n    from .training import load\n"),
        ("rankspace/fgg/grammar.py", "import rankspacex.cli\nfrom torch import nn\n"),
    ],
)
def test_an_import_along_the_arrow_is_not_reported(path: str, source: str) -> None:
    assert violations(source, path) == []


def loaded_after(code: str, modules: set[str]) -> set[str]:
    """Which of `modules` a fresh interpreter has loaded once it has run `code`."""
    report = f"import atexit, sys; atexit.register(lambda: print('LOADED', *({modules!r} & set(sys.modules))))\n"
    path = os.pathsep.join([str(SOURCE), *filter(None, [os.environ.get("PYTHONPATH")])])
    result = subprocess.run(
        [sys.executable, "-c", report + code],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    last_line = result.stdout.splitlines()[-1].split()
    assert last_line[0] == "LOADED", result.stdout
    return set(last_line[1:])


def test_importing_the_library_loads_nothing_optional() -> None:
    assert loaded_after("import rankspace", {"triton", "nltk", "matplotlib", "tensorly"}) == set()


@pytest.mark.parametrize("package", ["fgg", "lowrank", "inference", "viz"])
def test_importing_a_package_loads_nothing_optional(package: str) -> None:
    assert loaded_after(f"import rankspace.{package}", {"nltk", "matplotlib", "svgling", "tensorly"}) == set()


def test_the_report_of_loaded_modules_sees_a_loaded_module() -> None:
    assert loaded_after("import json.decoder", {"json", "triton"}) == {"json"}


def test_help_does_not_load_torch() -> None:
    code = "sys.argv = ['rankspace', '--help']\nfrom rankspace.cli import main\nmain()"
    assert loaded_after(code, {"torch", "matplotlib", "tensorly", "nltk", "triton"}) == set()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--preset", "demo", "-o", "out", "--set", "run.epoch=3"], "config: there is no key run.epoch; did you mean"),
        (["--preset", "demo", "-o", "out", "--set", "model.rnk=3"], "config: there is no key model.rnk; did you mean"),
        (
            ["--preset", "demo", "-o", "out", "--set", "optimiser.clip=-1"],
            "config: optimiser.clip is -1.0; give at least",
        ),
        (["--preset", "demo", "-o", "out", "--seeds", "1,x"], "train: --seeds is '1,x'; give different whole numbers"),
        (
            ["nowhere", "--preset", "demo", "-o", "out"],
            "nowhere: there is no such folder; make it with",
        ),
        (["--preset", "demo", "-o", "out", "--set", "data.train=t"], "prepared data: there is no split 't'; there are"),
        (["--preset", "demo", "-o", "out", "--set", "data.valid=v"], "prepared data: there is no split 'v'; there are"),
        (["--preset", "demo", "-o", "."], ".: exists already; choose another name."),
        (["--resume", "-o", "."], ".: is no run: it has no card.json; make one with rankspace train."),
    ],
)
def test_mistakes_in_training_are_told_without_torch(arguments: list[str], message: str, tmp_path: Path) -> None:
    code = (
        f"import contextlib, io, os\nos.chdir({str(tmp_path)!r})\nfrom rankspace.cli import main\n"
        "said = io.StringIO()\n"
        "with contextlib.suppress(SystemExit), contextlib.redirect_stderr(said):\n"
        f"    main(['train', *{arguments!r}])\n"
        f"assert {message!r} in said.getvalue(), said.getvalue()"
    )
    assert loaded_after(code, {"torch"}) == set()


def test_experiments_are_listed_and_their_mistakes_told_without_torch() -> None:
    code = (
        "import contextlib\nfrom rankspace.cli import main\n"
        "tries = ['--list'], ['hmm-table2', '--list'], ['hmm-table2', '--rows', 'x'], ['pcfg-table1', '--data', '.']\n"
        "for rest in tries:\n"
        "    with contextlib.suppress(SystemExit):\n        main(['experiment', *rest])"
    )
    assert loaded_after(code, {"torch"}) == set()
