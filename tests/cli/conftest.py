"""Runs to ask things of, and the command as if its output went to a file."""

import io
import sys
from pathlib import Path

import pytest

from cli.tiny_runs import GRAMMAR, Ran, Run, make_run, prepared
from rankspace.cli import main


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Runs the command in this process, in a folder of its own; `given` is what comes in by standard input."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")

    def run(*arguments: str, given: str | bytes = "") -> Ran:
        data = given.encode() if isinstance(given, str) else given
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data), encoding="utf-8"))
        with pytest.raises(SystemExit) as left:
            main(arguments)
        assert isinstance(left.value.code, int)
        return Ran(left.value.code, *capsys.readouterr())

    return run


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of runs, which no test changes: grammar, chain, and one for each kind of model that is special."""
    folder = tmp_path_factory.mktemp("runs")
    make_run(folder / "grammar", "direct", of="rank-pcfg", **GRAMMAR)
    make_run(folder / "chain", "direct", of="hmm", states=4, eos=1)
    make_run(folder / "rank-hmm", "rank-hmm", states=4, rank=3, size=4, eos=1)
    make_run(folder / "vl-hmm", "vl-hmm", states=8, blocks=2, size=4, eos=1, clusters="uniform")
    make_run(folder / "c-pcfg", "c-pcfg", nonterminals=2, preterminals=3, size=4, latent=2)
    return folder


@pytest.fixture(scope="session")
def grammar(runs: Path) -> str:
    return str(runs / "grammar")


@pytest.fixture(scope="session")
def chain(runs: Path) -> str:
    return str(runs / "chain")


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    return prepared(tmp_path_factory.mktemp("data") / "prepared")
