"""Presets on real corpora, which are not part of the project: skipped where they are not beside it."""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import stdev

import pytest

from rankspace.data import PreparedData, load_prepared
from rankspace.evaluation import score
from rankspace.evaluation.bounds import right_branching

ROOT = Path(__file__).parents[2]
DATA = ROOT.parent / "shared" / "data"

pytestmark = pytest.mark.skipif(not DATA.is_dir(), reason=f"needs the corpora in {DATA}")

Prepare = Callable[..., PreparedData]


@pytest.fixture(scope="module")
def prepare(tmp_path_factory: pytest.TempPathFactory) -> Prepare:
    """Runs the command in a process of its own, where shapes are not checked at every call, once for each folder."""
    place = tmp_path_factory.mktemp("prepared")
    code = "from rankspace.cli import main; main()"

    def run(preset: str, source: str, *options: str) -> PreparedData:
        folder = place / f"{preset}-{Path(source).name}"
        if not folder.exists():
            command = ["data", "prepare", str(DATA / source), "-o", str(folder), "--preset", preset, *options]
            path = os.pathsep.join([str(ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])])
            environment = {**os.environ, "PYTHONPATH": path}
            result = subprocess.run([sys.executable, "-c", code, *command], env=environment, capture_output=True)
            assert result.returncode == 0, result.stderr
        return load_prepared(folder)

    return run


def sentences(data: PreparedData) -> list[int]:
    return [len(data[split]) for split in ("train", "valid", "test")]


def test_the_language_model_text_of_the_penn_treebank(prepare: Prepare) -> None:
    data = prepare("ptb-lm", "lm/ptb")
    assert sentences(data) == [42_068, 3_370, 3_761]
    with_eos = [len(corpus.tokens) + len(corpus) for corpus in data.splits.values()]
    assert with_eos == [929_589, 73_760, 82_430]
    assert len(data.vocabulary) == 10_000


def test_wikitext(prepare: Prepare) -> None:
    data = prepare("plain", "lm/wikitext2")
    lines = [(DATA / "lm" / "wikitext2" / f"{split}.txt").read_bytes().count(b"\n") for split in data.splits]
    words = [len(corpus.tokens) for corpus in data.splits.values()]
    # the published counts have an <eos> for blank lines too
    assert [one + other for one, other in zip(words, lines, strict=True)] == [2_088_628, 217_646, 245_569]
    assert len(data.vocabulary) == 33_277


def test_the_sample_of_nltk(prepare: Prepare) -> None:
    data = prepare("nltk", "trees")
    assert sentences(data) == [3_167, 358, 389]
    plain = prepare("plain", "trees/nltk_ptb_sample.mrg")
    assert sum(len(corpus.tokens) for corpus in plain.splits.values()) == 94_084


def test_how_much_s_f1_depends_on_the_sentences(prepare: Prepare) -> None:
    """The standard error over those of the sample's test split, of right-branching trees: about a point."""
    corpus = prepare("nltk", "trees")["test"]
    parses = [corpus.tree(number) for number in range(len(corpus))]
    gold = [tree for tree in parses if tree is not None and len(tree.words) > 1]
    assert len(gold) == 388
    scores = [score([tree], [right_branching(len(tree.words))]).s_f1 for tree in gold]
    assert stdev(each for each in scores if each is not None) / len(gold) ** 0.5 == pytest.approx(1, abs=0.05)


def test_the_sample_reads_like_the_text_it_is_part_of(prepare: Prepare, tmp_path: Path) -> None:
    """All but the longest sentences of the sample are lines of the text, word by word, <unk> included."""
    text = prepare("ptb-lm", "lm/ptb")
    text.vocabulary.save(tmp_path / "words")
    sample = prepare("nltk-lm", "trees", "--vocabulary", str(tmp_path / "words"))
    assert sample.vocabulary == text.vocabulary
    lines = {tuple(sentence.tolist()) for sentence in text["train"]}
    found = [tuple(sentence.tolist()) in lines for corpus in sample.splits.values() for sentence in corpus]
    assert (sum(found), len(found)) == (3_910, 3_914)  # the others are lists of hundreds of words, not in the text


@pytest.mark.parametrize(
    ("name", "trees", "kept"),
    [("craft", [18_951, 2_780, 9_099], [13_105, 1_854, 6_064]), ("gum", [10_224, 1_575, 1_464], None)],
)
def test_treebanks_by_split(prepare: Prepare, name: str, trees: list[int], kept: list[int] | None) -> None:
    data = prepare(name, "trees")
    counts = data.card["splits"].values()
    assert [c["num_sentences"] + c["num_emptied"] + c["num_removed"] for c in counts] == trees
    assert sentences(data) == (kept or trees)
    assert len(data.vocabulary) == 10_001


@pytest.mark.parametrize("name", ["nltk", "craft", "gum"])
def test_gold_trees_have_neither_punctuation_nor_traces_nor_function_tags(prepare: Prepare, name: str) -> None:
    data = prepare(name, "trees")
    assert not {"-NONE-", ".", ",", ":", "(", ")", "``", "''", "$", "#"} & set(data.card["tags"])
    assert all(re.fullmatch("[A-Z]+", label) for label in data.card["labels"])
    corpus = data["valid"]
    for number in range(len(corpus)):
        tree = corpus.tree(number)
        assert tree is not None
        assert list(tree.words) == corpus.words(number)
