"""`rankspace show`: pictures that are written, tables that are printed."""

import json
from pathlib import Path

import pytest
import torch

import rankspace
from cli.tiny_runs import NO_RUN, Run

SENTENCE = "the dog sees the dog"
GOLD = "(S (NP the dog) (VP sees (NP the dog)))"


class TestTree:
    def test_a_parse(self, command: Run, grammar: str) -> None:
        assert command("show", "tree", grammar, SENTENCE, "-o", "t.svg") == (0, "", "wrote t.svg\n")
        plain = Path("t.svg").read_text()
        assert "probability" in plain
        assert "NT-" not in plain
        assert command("show", "tree", grammar, SENTENCE, "-o", "l.svg", "--labels", "-q") == (0, "", "")
        assert "NT-" in Path("l.svg").read_text()

    def test_beside_gold(self, command: Run, grammar: str) -> None:
        assert command("show", "tree", grammar, SENTENCE, "--gold", GOLD, "-o", "t.svg").code == 0
        text = Path("t.svg").read_text()
        assert "in both trees" in text
        assert "NP" in text

    def test_brackets_without_a_run(self, command: Run) -> None:
        assert command("show", "tree", "--brackets", GOLD, "-o", "t.svg").code == 0
        assert "VP" in Path("t.svg").read_text()
        assert command("show", "tree", "--brackets", GOLD, "--gold", GOLD, "-o", "t.svg", "--force").code == 0

    def test_png(self, command: Run, grammar: str) -> None:
        pytest.importorskip("matplotlib")
        assert command("show", "tree", grammar, SENTENCE, "-o", "t.png").code == 0
        assert Path("t.png").read_bytes().startswith(b"\x89PNG")

    def test_characters_that_the_font_of_a_png_lacks(self, command: Run) -> None:
        pytest.importorskip("matplotlib")
        notice = "wrote t.png\nshow: the font of .png has no 猫 好 き; use .svg.\n"
        assert command("show", "tree", "--brackets", "(S 猫 好 き 猫)", "-o", "t.png") == (0, "", notice)
        many = "(S " + " ".join("一丁七万丈三上下不与") + ")"
        notice = "wrote m.png\nshow: the font of .png has no 一 丁 七 万 丈 三 上 下 and 2 more; use .svg.\n"
        assert command("show", "tree", "--brackets", many, "-o", "m.png") == (0, "", notice)
        assert command("show", "tree", "--brackets", many, "-o", "q.png", "-q") == (0, "", "")
        assert command("show", "tree", "--brackets", many, "-o", "m.svg") == (0, "", "wrote m.svg\n")


class TestHeatMap:
    def test_a_chart(self, command: Run, grammar: str) -> None:
        assert command("show", "heat-map", grammar, SENTENCE, "-o", "h.svg") == (0, "", "wrote h.svg\n")
        assert "probability of the span" in Path("h.svg").read_text()
        assert command("show", "heat-map", grammar, SENTENCE, "-o", "g.svg", "--gold", GOLD).code == 0
        assert "in gold" in Path("g.svg").read_text()


class TestCurves:
    def test_several_runs(self, command: Run, grammar: str, chain: str) -> None:
        assert command("show", "curves", grammar, chain, "-o", "c.svg", "--title", "Two runs").code == 0
        text = Path("c.svg").read_text()
        assert all(word in text for word in ("Two runs", "grammar", "chain", "perplexity", "F1"))

    def test_runs_of_one_name(self) -> None:
        from rankspace.cli.show import _names

        assert list(_names([Path("a/run"), Path("b/run"), Path("c")])) == ["a/run", "b/run", "c"]


class TestWords:
    @pytest.mark.parametrize(
        ("model", "name", "num"),
        [("grammar", "PT", 4), ("chain", "state", 4), ("rank-hmm", "rank", 3), ("c-pcfg", "PT", 3)],
    )
    def test_likely_words(self, command: Run, runs: Path, model: str, name: str, num: int) -> None:
        found = json.loads(command("show", "words", str(runs / model), "--top", "2", "--json").result)["states"]
        assert sorted(each["name"] for each in found) == [f"{name}-{n}" for n in range(num)]
        shares = [each["share"] for each in found]
        assert shares == sorted(shares, reverse=True)
        assert sum(shares) == pytest.approx(1)
        trained = rankspace.load(runs / model)
        place = int(found[0]["name"].split("-")[1])
        log_probs, numbers = trained.distribution().parameters["log_emission"][place].topk(2)
        assert [each["word"] for each in found[0]["words"]] == trained.vocabulary.decode(numbers.tolist())
        assert [each["probability"] for each in found[0]["words"]] == pytest.approx(log_probs.exp().tolist())

    def test_words_of_blocks(self, command: Run, runs: Path) -> None:
        found = json.loads(command("show", "words", str(runs / "vl-hmm"), "--json").result)["states"]
        trained = rankspace.load(runs / "vl-hmm")
        whole = trained.distribution().expanded().parameters["log_emission"].exp()
        for each in found:
            row = whole[int(each["name"].removeprefix("state-"))]
            assert {trained.vocabulary.index[pair["word"]] for pair in each["words"]} == set(
                row.nonzero()[:, 0].tolist()
            )
            assert [pair["probability"] for pair in each["words"]] == pytest.approx(sorted(row[row > 0].tolist())[::-1])

    @pytest.mark.parametrize("model", ["grammar", "chain", "c-pcfg", "vl-hmm"])
    def test_use_in_data(self, command: Run, runs: Path, data: str, model: str) -> None:
        options = ["--data", data, "--split", "train", "--json"]
        found = json.loads(command("show", "words", str(runs / model), *options).result)["states"]
        assert sum(each["share"] for each in found) == pytest.approx(1)
        again = json.loads(command("show", "words", str(runs / model), *options, "--seed", "9").result)["states"]
        assert found == again

    def test_shares_are_expected_counts(self, command: Run, chain: str, data: str) -> None:
        found = json.loads(command("show", "words", chain, "--data", data, "--split", "test", "--json").result)[
            "states"
        ]
        trained = rankspace.load(chain)
        sentences = [
            ["the", "dog", "sees", "the", "dog"],
            ["the", "dog", "sleeps", "N", "dog"],
            ["dog", "sleeps"],
            ["dog"],
        ]
        counts = trained.distribution().expected_counts(*trained.encode(sentences))["log_emission"].sum(1)
        shares = (counts / counts.sum()).tolist()
        assert [each["share"] for each in found] == pytest.approx(sorted(shares, reverse=True), abs=1e-5)

    def test_for_people(self, command: Run, grammar: str) -> None:
        lines = command("show", "words", grammar, "--states", "2", "--top", "3").result.splitlines()
        assert lines[0].split() == ["state", "share", "words"]
        assert len(lines) == 4
        assert all(len(line.split()) == 9 for line in lines[2:])

    def test_a_page(self, command: Run, grammar: str) -> None:
        assert command("show", "words", grammar, "-o", "w.html") == (0, "", "wrote w.html\n")
        assert "<!DOCTYPE html>" in Path("w.html").read_text()


class TestMistakes:
    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (["tree", "RUN", SENTENCE], "Missing option '--output'"),
            (["tree", "RUN", SENTENCE, "-o", "t.pdf"], "t.pdf: is no name of a picture; it must end in .svg or .png."),
            (
                ["tree", "RUN", SENTENCE, "-o", "there.svg"],
                "there.svg: exists already; choose another name, or overwrite",
            ),
            (["tree", "RUN", SENTENCE, "-o", "no/t.svg"], "no/t.svg: there is no folder 'no'; make it first."),
            (
                ["tree", "RUN", "-o", "t.svg"],
                "show tree: there is nothing to draw; give RUN and SENTENCE, or --brackets.",
            ),
            (
                ["tree", "RUN", SENTENCE, "--brackets", GOLD, "-o", "t.svg"],
                "show tree: give either RUN and SENTENCE or",
            ),
            (
                ["tree", "--brackets", "(S a", "-o", "t.svg"],
                "--brackets: line 1, column 1: this ( is never closed; add",
            ),
            (["tree", "RUN", "dog", "-o", "t.svg"], "show tree: the sentence has 1 words; give at least 2, in quotes."),
            (
                ["tree", "RUN", "a never", "-o", "t.svg"],
                "show tree: the grammar cannot produce this sentence; there is",
            ),
            (
                ["tree", "CHAIN", SENTENCE, "-o", "t.svg"],
                "show tree: direct is a chain; this is for grammars, which have",
            ),
            (
                ["tree", "RUN", "the cat", "--gold", "(S the dog)", "-o", "t.svg"],
                "--gold: its words are 'the dog', but the sentence is 'the cat'; give trees of one sentence.",
            ),
            (["heat-map", "CHAIN", SENTENCE, "-o", "t.svg"], "show heat-map: direct is a chain; this is for grammars,"),
            (
                ["heat-map", "RUN", " ", "-o", "t.svg"],
                "show heat-map: the sentence has 0 words; give at least 2, in quotes.",
            ),
            (
                ["curves", "RUN", "no", "-o", "t.svg"],
                NO_RUN,
            ),
            (["words", "RUN", "-o", "t.svg"], "t.svg: is no name of a page; it must end in .html."),
            (
                ["words", "RUN", "--data", "no"],
                "no: there is no such folder; make it with data prepare.",
            ),
            (["words", "no"], NO_RUN),
        ],
    )
    def test_one_line_and_nothing_written(
        self, command: Run, grammar: str, chain: str, arguments: list[str], message: str
    ) -> None:
        Path("there.svg").write_text("old")
        paths = {"RUN": grammar, "CHAIN": chain}
        ran = command("show", *(paths.get(each, each) for each in arguments))
        assert (ran.code, ran.out) == (2, "")
        assert ran.err.startswith(f"error: {message}")
        assert ran.err.count("\n") == 1
        assert [path.name for path in Path().iterdir()] == ["there.svg"]
        assert Path("there.svg").read_text() == "old"


@pytest.mark.gpu
@pytest.mark.parametrize("model", ["grammar", "chain", "rank-hmm", "vl-hmm", "c-pcfg"])
def test_words_on_a_gpu(command: Run, runs: Path, data: str, model: str) -> None:
    assert torch.cuda.is_available()
    options = ["--data", data, "--split", "train", "--json"]
    shares = []
    for device in ("cpu", "cuda"):
        found = json.loads(command("show", "words", str(runs / model), *options, "--device", device).result)["states"]
        shares.append({each["name"]: each["share"] for each in found})
    assert shares[0] == pytest.approx(shares[1], abs=1e-4)  # float32, other orders of sums
