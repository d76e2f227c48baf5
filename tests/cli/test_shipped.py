"""The commands with the models of the package, by name."""

import json
from pathlib import Path

import pytest

from cli.tiny_runs import Run
from rankspace.training import RunDirectory
from rankspace.training.shipped import FOLDER

SENTENCE = "mice lacking the receptor show severe defects"


def words_of(brackets: str) -> str:
    return " ".join(brackets.replace("(", " ").replace(")", " ").split())


class TestParse:
    def test_as_the_issue_writes_it(self, command: Run) -> None:
        ran = command("parse", "--model", "craft-small", given=f"{SENTENCE}\n")
        assert (ran.code, ran.err, words_of(ran.out)) == (0, "", SENTENCE)

    def test_with_and_without_the_option(self, command: Run) -> None:
        for file in ("a.txt", "b.txt"):
            Path(file).write_text(f"{SENTENCE}\n{file} the gene\n")
        plain = command("parse", "craft-small", "a.txt", "b.txt").result
        assert len(plain.splitlines()) == 4
        assert command("parse", "--model", "craft-small", "a.txt", "b.txt").result == plain
        assert command("parse", "a.txt", "b.txt", "--model", "craft-small").result == plain
        assert command("parse", "--model", str(FOLDER / "craft-small"), "a.txt", "b.txt").result == plain

    def test_a_folder_comes_first(self, command: Run, grammar: str) -> None:
        Path("craft-small").symlink_to(grammar)
        text = "the dog sees the dog\n"
        assert command("parse", "--model", "craft-small", given=text) == command("parse", grammar, given=text)

    def test_mistakes(self, command: Run) -> None:
        for arguments, message in (
            (["--labels"], "parse: there is no model; give RUN, or --model."),
            (
                ["--model", "craft"],
                "craft: there is no such folder; make one with rankspace train, or name a model of the package: "
                "craft-small, craft-small-hmm.",
            ),
            (["craft-small-hmm"], "parse: rank-hmm is a chain; this is for grammars, which have trees."),
        ):
            assert command("parse", *arguments) == (2, "", f"error: {message}\n")


def test_score(command: Run) -> None:
    for name in ("craft-small", "craft-small-hmm"):
        first = command("score", "--model", name, given=f"{SENTENCE}\n")
        assert float(first.result.split("\t")[0]) < 0
        assert "1 sentences, 7 words: log p " in first.err
        assert command("score", name, given=f"{SENTENCE}\n") == first
    rows = command("score", "--surprisal", "--model", "craft-small-hmm", given=f"{SENTENCE}\n").result.splitlines()
    assert [row.split("\t")[2] for row in rows[1:]] == [*SENTENCE.split(), "<eos>"]
    assert command("score", "--json").err == "error: score: there is no model; give RUN, or --model.\n"


def test_sample(command: Run) -> None:
    for name in ("craft-small", "craft-small-hmm"):
        first = command("sample", name, "--num", "3", "--max-length", "20")
        assert first.code == 0
        assert command("sample", "--model", name, "--num", "3", "--max-length", "20") == first
    message = "error: sample: RUN and --model name the same thing; give one of them.\n"
    assert command("sample", "craft-small", "--model", "craft-small") == (2, "", message)
    assert command("sample", "--num", "3").err == "error: sample: there is no model; give RUN, or --model.\n"


def test_evaluate_names_a_vocabulary_that_is_there(command: Run, data: str) -> None:
    ran = command("evaluate", "craft-small", data)
    assert ran.code == 2
    file = ran.err.rstrip(".\n").split()[-1]
    assert Path(file) == FOLDER / "craft-small" / "vocabulary.txt"
    assert Path(file).is_file()


def test_show(command: Run) -> None:
    assert command("show", "tree", "craft-small", SENTENCE, "-o", "t.svg").code == 0
    assert command("show", "curves", "craft-small", "craft-small-hmm", "-o", "c.svg").code == 0
    found = json.loads(command("show", "words", "craft-small", "--states", "3", "--top", "2", "--json").result)
    assert [len(each["words"]) for each in found["states"]] == [2, 2, 2]


class TestInfo:
    @pytest.mark.parametrize("name", ["craft-small", "craft-small-hmm"])
    def test_a_model(self, command: Run, name: str) -> None:
        found = json.loads(command("info", name, "--json").result)
        card = RunDirectory.open(FOLDER / name).card
        assert {key: found[key] for key in card} == card
        assert (found["run"], found["folder"]) == (name, str(FOLDER / name))
        assert list(found["checkpoints"]) == ["best"]

    def test_for_people(self, command: Run) -> None:
        text = command("info", "craft-small").result
        scores = RunDirectory.open(FOLDER / "craft-small").card["experiment"]["scores"].values()
        rows = [line.split() for line in text.splitlines()]
        assert ["scores", "valid", "test"] in rows
        assert ["perplexity", *(f"{each['perplexity']:.2f}" for each in scores)] in rows
        assert ["S-F1", *(f"{each['s_f1']:.2f}" for each in scores)] in rows
        bounds = [f"{each['bounds']['right_branching']['s_f1']:.2f}" for each in scores]
        assert ["S-F1,", "right-branching", *bounds] in rows
        assert ["run", "craft-small"] in rows
        assert ["data", "craft"] in rows
        assert ["licence", "CC", "BY", "3.0,", "https://creativecommons.org/licenses/by/3.0/"] in rows
        assert "CRAFT corpus (Colorado Richly Annotated Full Text)" in text
        assert "rankspace experiment craft-small --data DIR --rows pcfg --seeds" in text

    def test_a_chain_has_no_row_of_trees(self, command: Run) -> None:
        rows = [line.split() for line in command("info", "craft-small-hmm").result.splitlines()]
        assert [len(row) for row in rows if row[:1] == ["perplexity"]] == [3]
        assert not [row for row in rows if row[:1] in (["S-F1"], ["S-F1,"])]

    def test_a_list(self, command: Run) -> None:
        found = json.loads(command("info", "--models", "--json").result)["shipped"]
        assert [(each["name"], each["model"]) for each in found] == [
            ("craft-small", "simple-pcfg"),
            ("craft-small-hmm", "rank-hmm"),
        ]
        assert "craft-small-hmm" in command("info", "--models").result
