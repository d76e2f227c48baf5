"""What preprocessing does to words and trees."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rankspace.data import PRESETS, Cleaner, Preprocessing, Sentence
from rankspace.data.presets import preset
from rankspace.data.text import read_sentences
from rankspace.errors import RankspaceError

Read = Callable[[str], Sentence]

EXAMPLE = (
    "((S (NP-SBJ-1 (NNP Mr.) (NNP Smith)) (, ,) (VP (VBD paid) (NP (NP (-NONE- *T*-1)) (QP ($ $) (CD 1,500)"
    " (-NONE- *U*))) (S (NP (-NONE- *)) (VP (NP=2 (JJ 10-year) (NN debt))))) (. .)))"
)


@pytest.fixture
def read(tmp_path: Path) -> Read:
    def one(text: str) -> Sentence:
        (tmp_path / "file").write_text(text)
        (sentence,) = read_sentences(tmp_path / "file")
        return sentence

    return one


def clean(sentence: Sentence, **options: Any) -> Sentence:
    return Cleaner(Preprocessing(**options)).clean(sentence)


class TestTrees:
    def test_the_preset_ptb(self, read: Read) -> None:
        sentence = Cleaner(PRESETS["ptb"].preprocessing).clean(read(EXAMPLE))
        assert sentence.words == ["mr.", "smith", "paid", "N", "N-year", "debt"]
        assert sentence.tags == ["NNP", "NNP", "VBD", "CD", "JJ", "NN"]
        assert sentence.spans == [
            *((0, 6, "S"), (0, 2, "NP"), (2, 6, "VP")),
            *((3, 4, "NP"), (3, 4, "QP")),
            *((4, 6, "S"), (4, 6, "VP"), (4, 6, "NP")),
        ]

    def test_the_preset_nltk_lm_keeps_currency_and_numbers_within_words(self, read: Read) -> None:
        sentence = Cleaner(PRESETS["nltk-lm"].preprocessing).clean(read(EXAMPLE))
        assert sentence.words == ["mr.", "smith", "paid", "$", "N", "10-year", "debt"]

    def test_the_defaults_remove_traces_and_function_tags_alone(self, read: Read) -> None:
        sentence = clean(read(EXAMPLE))
        assert sentence.words == ["Mr.", "Smith", ",", "paid", "$", "1,500", "10-year", "debt", "."]
        assert (6, 8, "NP") in sentence.spans
        assert (0, 2, "NP") in sentence.spans

    def test_traces_and_function_tags_can_be_kept(self, read: Read) -> None:
        sentence = clean(read(EXAMPLE), keep_traces=True, keep_function_tags=True)
        assert len(sentence.words) == 12
        assert {"NP-SBJ-1", "NP=2"} <= {label for _, _, label in sentence.spans}

    def test_all_can_be_removed(self, read: Read) -> None:
        sentence = clean(read("(S (NP (-NONE- *)) (. .))"), removed_tags=(".",))
        assert (sentence.words, sentence.tags, sentence.spans) == ([], [], [])

    @pytest.mark.parametrize(
        ("unary", "labels"), [("keep", ["S", "VP", "NP"]), ("top", ["S", "NP"]), ("bottom", ["VP", "NP"])]
    )
    def test_unary_chains(self, read: Read, unary: str, labels: list[str]) -> None:
        sentence = clean(read("(S (VP (VB go) (NP (NN home))))"), unary=unary)
        assert [label for _, _, label in sentence.spans] == labels

    def test_a_label_over_itself_is_one_node(self, read: Read) -> None:
        sentence = clean(read("(NP (NP (NN a) (NN b)) (SBAR (-NONE- 0)))"))
        assert sentence.spans == [(0, 2, "NP")]

    @pytest.mark.parametrize("text", ["((S (A a) (B b)))", "(ROOT (S (A a) (B b)))", "(TOP (S (A a) (B b)))"])
    def test_brackets_around_a_tree_are_not_part_of_it(self, read: Read, text: str) -> None:
        assert clean(read(text)).spans == [(0, 2, "S")]

    def test_nodes_without_words_or_label(self, read: Read) -> None:
        assert clean(read("((S (NP ) (A a) ( (B b) (C c))))")).spans == [(0, 3, "S"), (1, 3, "")]

    def test_roots_that_are_left_out(self, read: Read) -> None:
        cleaner = Cleaner(PRESETS["craft"].preprocessing)
        assert cleaner.is_removed(read("((TITLE (NP (NN a))))"))
        assert cleaner.is_removed(read("((HEADING-1 (NP (NN a))))"))
        assert not cleaner.is_removed(read("((S (CAPTION (NN a))))"))

    def test_brackets_and_hyphens_go_by_their_tags(self, read: Read) -> None:
        text = "(NP (-LRB- -LRB-) (NN L2) (HYPH -) (JJ like) (-RRB- -RCB-))"
        assert Cleaner(PRESETS["gum"].preprocessing).clean(read(text)).words == ["lN", "like"]
        assert Cleaner(PRESETS["ptb"].preprocessing).clean(read(text)).words == ["lN", "-", "like"]


class TestText:
    def test_punctuation_goes_by_word(self) -> None:
        words = ["U.S.", ":", "``", "bonds", "--", "$", "5", "'s", "''", "!"]
        assert Cleaner(PRESETS["ptb"].preprocessing).clean(Sentence(words)).words == ["u.s.", "bonds", "N", "'s"]

    @pytest.mark.parametrize(
        ("word", "digits", "whole"),
        [
            ("1,500", "N", "N"),
            ("10-year", "N-year", "10-year"),
            ("1980s", "Ns", "1980s"),
            ("1989-90", "N-N", "N"),
            ("1\\/2", "N\\/N", "N"),
            ("29.", "N", "N"),
            ("-0.5", "-N", "N"),
            ("%", "%", "N"),
            ("--", "--", "--"),
            ("...", "...", "..."),
            ("B-2", "B-N", "B-2"),
            ("cat", "cat", "cat"),
        ],
    )
    def test_numbers(self, word: str, digits: str, whole: str) -> None:
        assert clean(Sentence([word]), numbers="digits").words == [digits]
        assert clean(Sentence([word]), numbers="words").words == [whole]
        assert clean(Sentence([word])).words == [word]


@pytest.mark.parametrize(("option", "least"), [("max_words", 1), ("min_count", 1), ("max_length", 0)])
def test_sizes_are_not_too_small(option: str, least: int) -> None:
    with pytest.raises(RankspaceError) as error:
        Preprocessing(**{option: least - 1})
    assert str(error.value) == f"Preprocessing: {option} is {least - 1}; give at least {least}."


def test_an_unknown_preset_is_reported() -> None:
    with pytest.raises(RankspaceError) as error:
        preset("wsj")
    expected = "the presets are plain, ptb, ptb-lm, nltk, nltk-lm, craft, gum."
    assert str(error.value) == f"prepare: there is no preset 'wsj'; {expected}"
