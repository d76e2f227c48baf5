"""What people at a terminal see of long work on sentences, and that results go where they always go."""

import io
import sys
from pathlib import Path

import pytest
from rich.console import Console

from cli.tiny_runs import Ran, Run
from rankspace.cli.counting import Counter, figures

TEXT = "the dog sees the dog\n\ndog\nthe dog sleeps\n"


@pytest.fixture
def seen(command: Run, monkeypatch: pytest.MonkeyPatch) -> Run:
    """The command as if stderr, and nothing else, were a terminal."""
    monkeypatch.setenv("TERM", "xterm")

    def run(*arguments: str, given: str = "") -> Ran:
        monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
        return command(*arguments, given=given)

    return run


@pytest.mark.parametrize(
    ("done", "total", "seconds", "expected"),
    [
        (0, None, 2.0, ""),
        (0, 5000, 2.0, "5,000 sentences"),
        (1902, 5000, 9.0, "1,902 of 5,000 sentences, 211 a second, 0:00:15 left"),
        (3.5, 10_000, 10.0, "3 of 10,000 sentences, 0.35 a second, 7:56:01 left"),
        (1902, None, 9.0, "1,902 sentences, 211 a second"),
        (5, 5, 0.0, "5 of 5 sentences"),
    ],
)
def test_figures(done: float, total: int | None, seconds: float, expected: str) -> None:
    assert figures(done, total, seconds) == expected


def test_one_line_with_the_step_that_is_done() -> None:
    stream = io.StringIO()
    with Counter("reading", Console(file=stream, force_terminal=True, width=120, color_system=None)) as counter:
        counter.begin("parsing", 7)
        counter.advance(1.5)
        counter.advance(1.5)
    last = next(line for line in reversed(stream.getvalue().splitlines()) if "parsing" in line)
    assert "parsing 3 of 7 sentences, " in last
    assert last.rstrip().endswith(" left")


class TestAtATerminal:
    def test_parse_counts_the_sentences_of_files(self, seen: Run, grammar: str) -> None:
        Path("text").write_text(TEXT)
        whole = seen("parse", grammar, "text", "-q")
        ran = seen("parse", grammar, "text", "text")
        assert (ran.code, ran.out) == (0, 2 * whole.out)
        assert "parsing 8 of 8 sentences, " in ran.err
        assert " a second, 0:00:00 left" in ran.err

    def test_grammars_that_parse_together_count_once(self, seen: Run, grammar: str) -> None:
        Path("text").write_text(TEXT)
        assert "parsing 4 of 4 sentences, " in seen("parse", grammar, "text", "--with", grammar).err

    def test_standard_input_has_no_total(self, seen: Run, chain: str) -> None:
        ran = seen("score", chain, given=TEXT)
        assert len(ran.out.splitlines()) == 4
        assert "scoring 4 sentences, " in ran.err
        assert "left" not in ran.err

    def test_evaluate(self, seen: Run, grammar: str, data: str) -> None:
        ran = seen("evaluate", grammar, data)
        assert "S-F1" in ran.result
        assert "evaluating: bounds" in ran.err

    def test_quiet(self, seen: Run, grammar: str, data: str) -> None:
        assert seen("parse", grammar, "-q", given=TEXT).err == ""
        assert seen("score", grammar, "-q", given=TEXT).err == ""
        assert seen("evaluate", grammar, data, "-q").err == ""

    def test_nothing_where_results_are_printed(self, seen: Run, grammar: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
        assert seen("parse", grammar, given=TEXT).err == ""


class TestTreesReadAsWords:
    TREE = "(S (NP the dog) sleeps)\n"
    NOTICE = "line 2: begins with a bracket, and brackets are read as words; if these are trees, say --trees.\n"

    def test_parse(self, command: Run, grammar: str) -> None:
        Path("trees").write_text(f"\n{self.TREE}{self.TREE}")
        assert command("parse", grammar, "trees").err == f"trees: {self.NOTICE}"
        assert command("parse", grammar, given=f"\n{self.TREE}").err == f"standard input: {self.NOTICE}"
        assert command("parse", grammar, "trees", "-q").err == ""
        assert command("parse", grammar, "--trees", "trees") == (0, 2 * "(the (dog sleeps))\n", "")

    def test_score(self, command: Run, grammar: str) -> None:
        Path("trees").write_text(f"\n{self.TREE}")
        assert command("score", grammar, "trees").err.startswith(f"trees: {self.NOTICE}1 sentences")
