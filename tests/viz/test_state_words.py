"""Tables of the words of states, in text and in HTML."""

import xml.etree.ElementTree as ElementTree

import pytest

from rankspace.errors import RankspaceError, ShapeError
from rankspace.viz import state_words_html, state_words_text

NAMES = ["PT-1", "日本", "<x>"]
WORDS = [[("the", 0.5), ("a", 0.25)], [("語", 0.125)], []]


def test_the_text_is_aligned_also_for_wide_characters() -> None:
    lines = state_words_text(NAMES, WORDS, [0.75, 0.25, 0.0]).split("\n")
    assert lines[0] == "state   share  words"
    assert set(lines[1]) == {"-"}
    assert lines[2:] == ["PT-1   75.0 %  the 0.50  a 0.25", "日本   25.0 %  語 0.12", "<x>     0.0 %"]
    assert len(lines[1]) == len(lines[2])


def test_small_probabilities_have_two_digits() -> None:
    words = [("a", 0.034567), ("b", 0.0012), ("c", 0.0000456), ("d", 0.0)]
    assert state_words_text(["s"], [words]).endswith("a 0.035  b 0.0012  c 4.6e-05  d 0")


def test_without_shares_there_is_no_column_for_them_and_few_words_can_be_asked_for() -> None:
    assert state_words_text(NAMES[:1], WORDS[:1], num_words=1) == "state  words\n---------------\nPT-1   the 0.50"


def test_the_html_is_a_table_with_everything_escaped() -> None:
    root = ElementTree.fromstring(
        state_words_html([*NAMES[:2], "<x>"], [*WORDS[:2], [("<&\"'", 1.0)]], [0.5, 0.25, 0.0])
    )
    assert [cell.text for cell in root.iter("th")][-3:] == ["PT-1", "日本", "<x>"]
    words = [span for span in root.iter("span") if span.attrib["class"] == "word"]
    assert [(span.text, span[0].text) for span in words] == [
        ("the ", "0.50"), ("a ", "0.25"), ("語 ", "0.12"), ("<&\"' ", "1.00")
    ]  # fmt: skip
    bars = [span.attrib["style"] for span in root.iter("span") if span.attrib["class"] == "bar"]
    assert bars == ["width:100%", "width:50%", "width:0%"]


def test_the_html_has_no_column_for_shares_if_there_are_none() -> None:
    root = ElementTree.fromstring(state_words_html(NAMES, WORDS))
    assert [cell.text for cell in root.iter("th")][:2] == ["state", "words"]


@pytest.mark.parametrize("function", [state_words_text, state_words_html])
def test_mistakes_are_named(function: object) -> None:
    assert callable(function)
    with pytest.raises(ShapeError) as caught:
        function(NAMES, WORDS[:2])
    assert str(caught.value) == "state_words: there are 3 names but 2 lists of words; give one for each."
    with pytest.raises(ShapeError) as caught:
        function(NAMES, WORDS, [0.5])
    assert str(caught.value) == "state_words: there are 3 names but 1 shares; give one for each."
    with pytest.raises(RankspaceError) as caught:
        function(["A"], [[("w", 1.5)]])
    assert str(caught.value) == ("state_words: of 'A', 'w' has 1.5; give probabilities and shares from 0 to 1.")
