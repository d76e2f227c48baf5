"""The models of the package: what is in their folders, that they load by name, and where a run is looked for."""

from pathlib import Path

import pytest
import torch

import rankspace
from rankspace.errors import FormatError
from rankspace.training import RunDirectory
from rankspace.training.config import config_from_text
from rankspace.training.shipped import ENTRY, FOLDER, find_run, shipped_names

KINDS = {"craft-small": ("simple-pcfg", "tree"), "craft-small-hmm": ("rank-hmm", "chain")}
FILES = {
    "card.json",
    "checkpoints/best/model.safetensors",
    "checkpoints/best/state.json",
    "config.toml",
    "metrics.jsonl",
    "vocabulary.txt",
}
SENTENCES = [["mice", "lacking", "the", "receptor"], ["the", "gene", "is", "expressed", "in", "the", "retina"]]


def files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def test_there_is_one_of_each_kind() -> None:
    assert shipped_names() == list(KINDS)
    for name, (model, kind) in KINDS.items():
        trained = rankspace.load(name)
        assert (trained.model.NAME, trained.kind, trained.notice) == (model, kind, None)
        assert {weight.dtype for weight in trained.model.parameters()} == {torch.float32}
        assert all(value > -float("inf") for value in trained.log_prob(SENTENCES))


def test_the_grammar_parses() -> None:
    trees = rankspace.load("craft-small").parse(SENTENCES)
    assert [tree is not None and tree.words for tree in trees] == [tuple(words) for words in SENTENCES]


def test_the_chain_reads_word_by_word() -> None:
    hmm = rankspace.load("craft-small-hmm")
    rows = hmm.surprisal(SENTENCES)
    assert [len(row) for row in rows] == [len(words) + 1 for words in SENTENCES]
    assert [-sum(row) for row in rows] == pytest.approx(hmm.log_prob(SENTENCES), rel=1e-5)  # sums of float32


def test_the_grammar_reads_word_by_word() -> None:
    grammar = rankspace.load("craft-small")
    rows = grammar.surprisal(SENTENCES)
    assert [len(row) for row in rows] == [len(words) + 1 for words in SENTENCES]
    assert [-sum(row) for row in rows] == pytest.approx(grammar.log_prob(SENTENCES), rel=1e-5)


def test_they_are_small_and_hold_no_more_than_they_need() -> None:
    for name in KINDS:
        assert sum(file.stat().st_size for file in files(FOLDER / name)) < 4_000_000
        assert {path.relative_to(FOLDER / name).as_posix() for path in files(FOLDER / name)} == FILES


@pytest.mark.parametrize("name", KINDS)
def test_a_card(name: str) -> None:
    run = RunDirectory.open(FOLDER / name)
    card = run.card
    assert card[ENTRY].keys() >= {"date", "commit", "command", "seed", "licence", "attribution"}
    assert card[ENTRY]["licence"].startswith("CC BY 3.0")
    assert "CRAFT" in card[ENTRY]["attribution"]
    assert config_from_text(run.config, name).data.source == ""  # no one else has that folder
    scores = card["experiment"]["scores"]
    assert list(scores) == ["valid", "test"]
    assert all(1 < each["perplexity"] < 1000 and not each["num_impossible"] for each in scores.values())
    if KINDS[name][1] == "tree":
        for each in scores.values():
            bounds = {name: bound["s_f1"] for name, bound in each["bounds"].items()}
            assert bounds["random"] < each["s_f1"] < bounds["oracle"]


def test_the_attribution_lies_beside_them() -> None:
    text = (FOLDER / "README.md").read_text("utf-8")
    for wanted in (*KINDS, "https://github.com/UCDenver-ccp/CRAFT", "https://creativecommons.org/licenses/by/3.0/"):
        assert wanted in text


class TestFinding:
    def test_a_folder_comes_first(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        name = Path("craft-small")
        assert find_run(name) == FOLDER / name
        assert find_run(Path("./craft-small")) == FOLDER / name
        name.mkdir()
        assert find_run(name) == name
        with pytest.raises(FormatError, match=r"^craft-small: is no run: it has no card\.json;"):
            rankspace.load(name)

    def test_what_is_neither(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        for name in ("craft-smal", "elsewhere/craft-small", "README.md"):
            with pytest.raises(FormatError) as error:
                rankspace.load(name)
            assert str(error.value) == (
                f"{name}: there is no such folder; make one with rankspace train, or name a model of the package: "
                f"craft-small, craft-small-hmm."
            )
