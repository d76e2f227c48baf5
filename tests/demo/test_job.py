"""The main job, run for real: once quickly for everything it leaves, once as `make demo` runs it for its promises."""

import json
import os
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import torch

import rankspace
from rankspace.cli import main

pytest.importorskip("matplotlib")
ROOT = Path(__file__).parents[2]
RECORD = ROOT / "benchmarks" / "results" / "demo.json"


def demo(*arguments: str) -> subprocess.CompletedProcess[str]:
    """In a process of its own, where shapes are not checked at every call."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "PYTHONUTF8": "1"}
    command = [sys.executable, "-m", "rankspace", "demo", *arguments]
    return subprocess.run(command, capture_output=True, encoding="utf-8", env=environment, check=False)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("demo") / "out"


@pytest.fixture(scope="module")
def quick(folder: Path) -> dict[str, Any]:
    result = demo("--quick", "--quiet", "--json", "-o", str(folder))
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    found: dict[str, Any] = json.loads(result.stdout)
    return found


class Page(HTMLParser):
    """What a page refers to, and its tags."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.references: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.references += [value or "" for name, value in attributes if name in ("src", "href")]


class TestQuick:
    def test_scores(self, quick: dict[str, Any]) -> None:
        [run] = quick["runs"]
        perplexities = run["perplexities"]
        assert list(perplexities) == ["true grammar", "rank-hmm", "rank-pcfg", "trigram", "unigram"]
        assert perplexities["true grammar"] < min(perplexities["rank-hmm"], perplexities["rank-pcfg"])
        assert perplexities["rank-hmm"] < perplexities["unigram"]
        bounds = {name: bound["s_f1"] for name, bound in run["bounds"].items()}
        assert bounds["left_branching"] < bounds["right_branching"] < 50 < bounds["oracle"]
        assert run["parses"]["s_f1"] - bounds["right_branching"] == pytest.approx(run["points_above_right_branching"])
        assert quick["mean"]["share_below_unigram"] == pytest.approx(run["share_below_unigram"])
        assert [model["name"] for model in quick["models"]] == ["HMM", "PCFG"]

    def test_the_report_is_one_file(self, quick: dict[str, Any], folder: Path) -> None:
        assert quick["runs"][0]["report"] == str(folder / "report.html")
        page = Page((folder / "report.html").read_text("utf-8"))
        assert all(reference.startswith(("data:", "#")) for reference in page.references)
        assert page.tags.count("svg") >= 7  # two sets of curves, four pairs of trees, a chart
        assert "script" not in page.tags

    def test_what_it_leaves_is_for_every_command(
        self, quick: dict[str, Any], folder: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        [tree] = rankspace.load(folder / "grammar").parse([["the", "dog", "walks"]])
        assert tree.words == ("the", "dog", "walks")
        with pytest.raises(SystemExit) as caught:
            main(["evaluate", str(folder / "grammar"), str(folder / "data"), "--json"])
        assert not caught.value.code
        assert quick["runs"][0]["parses"]["s_f1"] == pytest.approx(
            json.loads(capsys.readouterr().out)["parsing"]["s_f1"], abs=2.0
        )  # the prepared test sentences have <unk> for words that training lacks


class TestMistakes:
    def run(self, *arguments: str) -> int:
        with pytest.raises(SystemExit) as caught:
            main(["demo", *arguments])
        return int(caught.value.code or 0)

    def test_a_file_in_place_of_the_folder(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        file = tmp_path / "train.txt"
        file.write_text("years of work")
        for name, message in (
            (file, "is a file; give the name of a folder."),
            (file / "out", f"'{file}' is a file, in which nothing can be; choose another place."),
        ):
            assert self.run("--quick", "-q", "-o", str(name)) == 2
            assert capsys.readouterr().err == f"error: {name}: {message}\n"

    def test_what_is_not_a_demonstration_is_kept(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        (tmp_path / "data").mkdir()
        (tmp_path / "data" / "thesis.txt").write_text("years of work")
        assert self.run("--quick", "-o", str(tmp_path)) == 2
        [line] = capsys.readouterr().err.splitlines()
        assert line == f"error: {tmp_path}/data: is no prepared data: it has no card.json; make it with data prepare."
        assert (tmp_path / "data" / "thesis.txt").read_text() == "years of work"

    @pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
    def test_a_device_that_is_not_there(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert self.run("--device", "cuda") == 2
        assert capsys.readouterr() == ("", "error: demo: device 'cuda' is not to be had here; use cpu.\n")

    def test_seeds_that_are_none(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert self.run("--seeds", "1,two") == 2
        assert capsys.readouterr().err == (
            "error: demo: --seeds is '1,two'; give different whole numbers with commas, such as 1,2,3.\n"
        )


class TestPromises:
    """The grammar beats right-branching by 20 points, and the HMM's perplexity is 30 % below the unigram model's."""

    def test_with_the_default_seed(self, tmp_path: Path) -> None:
        result = demo("--quiet", "--json", "-o", str(tmp_path / "out"))
        assert result.returncode == 0, result.stderr
        [run] = json.loads(result.stdout)["runs"]
        assert run["points_above_right_branching"] >= 20
        assert run["share_below_unigram"] >= 0.3

    def test_of_three_seeds_as_recorded(self) -> None:
        """`rankspace demo --seeds 1,2,3 --json`; three runs would take too long here."""
        record = json.loads(RECORD.read_text())
        assert [run["seed"] for run in record["runs"]] == [1, 2, 3]
        assert record["mean"]["points_above_right_branching"] >= 20
        assert record["mean"]["share_below_unigram"] >= 0.3
