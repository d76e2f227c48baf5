"""Corpora in memory: made from words or trees, and what is refused."""

from typing import Any

import numpy as np
import pytest

from rankspace import Tree
from rankspace.data import Corpus, Gold, Sentence, Vocabulary, encode_text, encode_trees
from rankspace.data.encoding import Encoder
from rankspace.errors import RankspaceError

VOCABULARY = Vocabulary(("<unk>", "a", "b", "c"))


def test_sentences_of_words() -> None:
    corpus = encode_text([["a", "b"], ["z"], iter("cab")], VOCABULARY)
    assert [sentence.tolist() for sentence in corpus] == [[1, 2], [0], [3, 1, 2]]
    assert corpus.lengths.tolist() == [2, 1, 3]
    assert corpus.gold is None


def test_no_sentences() -> None:
    for corpus in (encode_text([], VOCABULARY), encode_trees([], VOCABULARY)):
        assert (len(corpus), corpus.lengths.tolist(), list(corpus)) == (0, [], [])


@pytest.mark.parametrize(
    "text",
    [
        "(S (NP (D a) (N b)) (VP (V c)))",
        "(S a (X b c))",
        "(S (NP (NP (N a))) ( (B b) (C c)))",
        "(N a)",
        "( a b)",
    ],
)
def test_trees_come_back(text: str) -> None:
    corpus = encode_trees([Tree.parse("(S (A c) (A c))"), Tree.parse(text)], VOCABULARY)
    found = corpus.tree(1)
    assert found is not None
    assert found.words == Tree.parse(text).words
    assert {n for n in found.nodes if n.symbol} == {n for n in Tree.parse(text).nodes if n.symbol}
    assert found.spans(2) == Tree.parse(text).spans(2)


def test_unary_chains_keep_their_order() -> None:
    corpus = encode_trees([Tree.parse("(S (VP (V a) (NP (NX (N b)))))")], VOCABULARY)
    assert corpus.spans(0) == [(0, 2, "S"), (0, 2, "VP"), (1, 2, "NP"), (1, 2, "NX")]
    assert str(corpus.tree(0)) == "(S (VP (V a) (NP (NX (N b)))))"


def numbers(*values: int, kind: Any = np.int32) -> Any:
    return np.array(values, dtype=kind)


def gold(**changes: Any) -> Gold:
    parts: dict[str, Any] = {
        "offsets": numbers(0, 1, kind=np.int64),
        "spans": numbers(0, 2).reshape(1, 2),
        "labels": numbers(0),
        "tags": numbers(0, -1),
        "label_names": ("S",),
        "tag_names": ("N",),
    }
    return Gold(**(parts | changes))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"offsets": numbers(0, 3, kind=np.int64)}, "offsets do not rise from 0 to 2, the number of tokens."),
        ({"offsets": numbers(0, 2, 1, 2, kind=np.int64)}, "offsets do not rise from 0 to 2, the number of tokens."),
        ({"offsets": numbers(0, 0, 2, kind=np.int64)}, "sentence 0 has no words; leave it out."),
        ({"tokens": numbers(1, 4)}, "tokens go from 1 to 4, but the vocabulary has 4 entries."),
        ({"tokens": numbers(-1, 2)}, "tokens go from -1 to 2, but the vocabulary has 4 entries."),
        (
            {"gold": gold(tags=numbers(0))},
            "gold trees of 1 sentences and 1 words, but there are 1 sentences and 2 words.",
        ),
        (
            {"gold": gold(offsets=numbers(0, 2, kind=np.int64))},
            "offsets of gold spans do not rise from 0 to 1, the number of spans.",
        ),
        ({"gold": gold(labels=numbers(1))}, "labels go from 1 to 1, but the list of labels has 1 entries."),
        ({"gold": gold(tags=numbers(0, 1))}, "tags go from 0 to 1, but the list of tags has 1 entries."),
        ({"gold": gold(spans=numbers(0, 3).reshape(1, 2))}, "a gold span leaves its sentence."),
    ],
)
def test_what_does_not_fit_is_refused(changes: dict[str, Any], message: str) -> None:
    parts = {"tokens": numbers(1, 2), "offsets": numbers(0, 2, kind=np.int64), "gold": gold()}
    Corpus(VOCABULARY, **parts)
    with pytest.raises(RankspaceError) as error:
        Corpus(VOCABULARY, **(parts | changes))
    assert str(error.value) == f"Corpus: {message}"


def test_text_and_trees_do_not_mix() -> None:
    encoder = Encoder()
    encoder.add(Sentence(["a"]))
    with pytest.raises(RankspaceError, match="a split has sentences with and without trees; make two"):
        encoder.add(Sentence(["a"], ["N"], []))
