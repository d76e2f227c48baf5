"""Scoring files of trees against each other."""

from pathlib import Path

import pytest

from rankspace.errors import FormatError
from rankspace.evaluation import read_trees, score, score_files

GOLD = """\
(S (NP (DT the) (NN dog)) (VP (VBZ sees) (NP (DT a) (NN cat))))

( (S (NP (NNP john)) (VP (VBZ sleeps))))
"""


@pytest.fixture
def gold(tmp_path: Path) -> Path:
    return written(tmp_path, "gold", GOLD)


def written(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_bytes(text.encode())
    return path


def message(gold: Path, predicted: Path, **options: bool) -> str:
    with pytest.raises(FormatError) as caught:
        score_files(gold, predicted, **options)
    return str(caught.value).replace(f"{gold.parent}/", "")


def test_a_file_against_itself_is_perfect(gold: Path) -> None:
    assert score_files(gold, gold).s_f1 == 100
    assert [row.line for row in read_trees(gold)] == [1, 3]


def test_files_score_as_their_trees_do(gold: Path, tmp_path: Path) -> None:
    text = "(X (X the) (X (X dog) (X (X sees) (X (X a) (X cat)))))\r\n(X john sleeps)\r\n"
    predicted = written(tmp_path, "predicted", text)
    trees = [row.tree for row in read_trees(gold)]
    assert score_files(gold, predicted) == score(trees, [row.tree for row in read_trees(predicted)])
    assert score_files(gold, predicted).s_f1 == pytest.approx(100 * (2 / 3 + 1) / 2)


def test_brackets_need_no_labels(gold: Path, tmp_path: Path) -> None:
    predicted = written(tmp_path, "predicted", "(the (dog (sees (a cat))))\n(john sleeps)\n")
    assert score_files(gold, predicted, labelled=False).s_f1 == pytest.approx(100 * (2 / 3 + 1) / 2)


def test_sentences_without_a_tree_are_counted(gold: Path, tmp_path: Path) -> None:
    predicted = written(tmp_path, "predicted", "(())\n(S john sleeps)\n")
    found = score_files(gold, predicted)
    assert (found.s_f1, found.num_unparsed) == (50, 1)


def test_a_gold_sentence_needs_a_tree(gold: Path, tmp_path: Path) -> None:
    empty = written(tmp_path, "empty", "()\n()\n")
    assert message(empty, gold) == "empty, line 1: a gold sentence has no tree; remove it from both files."


def test_missing_trees_are_named(gold: Path, tmp_path: Path) -> None:
    short = written(tmp_path, "short", GOLD.splitlines()[0])
    expected = "gold, line 3: this tree has no partner; gold has 2 trees but short 1."
    assert message(gold, short) == expected
    assert message(short, gold) == "gold, line 3: this tree has no partner; short has 1 trees but gold 2."


def test_other_words_are_named(gold: Path, tmp_path: Path) -> None:
    other = written(tmp_path, "other", "(S the dog sees a cat)\n(S john slept)\n")
    assert message(gold, other) == "other, line 2: word 2 is 'slept', but 'sleeps' in line 3 of gold."
    longer = written(tmp_path, "longer", "(S the dog sees a big cat)\n(S john sleeps)\n")
    assert message(gold, longer) == "longer, line 1: 6 words, but line 1 of gold has 5."


def test_other_words_and_another_number_of_trees(gold: Path, tmp_path: Path) -> None:
    short = written(tmp_path, "short", "(S john sleeps)\n")
    assert message(gold, short) == ("short, line 1: 2 words, but line 1 of gold has 5; gold has 2 trees but short 1.")


def test_broken_brackets_are_named(gold: Path, tmp_path: Path) -> None:
    broken = written(tmp_path, "broken", "(S the dog sees a cat)\n(S (john sleeps)\n")
    assert message(gold, broken) == "broken, line 2: column 1: this ( is never closed; add the missing )."


def test_files_that_cannot_be_read_are_named(gold: Path, tmp_path: Path) -> None:
    assert message(gold, tmp_path / "nowhere") == "nowhere: cannot be read (No such file or directory)."
    (tmp_path / "latin").write_bytes("(S caf\xe9)".encode("latin-1"))
    assert message(gold, tmp_path / "latin") == "latin: is not UTF-8 (byte 6); convert it first."
