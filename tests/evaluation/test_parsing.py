"""Scores of parses: examples worked by hand, what must always hold, and PYEVALB."""

import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankspace import Tree
from rankspace.errors import RankspaceError, ShapeError
from rankspace.evaluation import bounds, brackets, left_branching, random_branching, right_branching, score

# Spans that count: gold (0, 2) NP, (2, 5) VP, (3, 5) NP; predicted (1, 5), (2, 5), (3, 5). Two are common.
GOLD = Tree.parse("(S (NP (DT the) (NN dog)) (VP (VBZ sees) (NP (DT a) (NN cat))))")
RIGHT = right_branching(5)


def some_tree(generator: random.Random) -> Tree:
    """A tree with nodes of any number of children: some of the spans of a random binary tree."""
    length = generator.randint(1, 12)
    spans = [span for span in sorted(random_branching(length, generator)) if generator.random() < 0.6]
    return Tree.from_spans([f"w{place}" for place in range(length)], spans)


def some_treebanks(generator: random.Random) -> tuple[list[Tree], list[Tree]]:
    """Gold trees, and binary ones over the same words. Strategies cannot build them: beartype draws random numbers."""
    gold = [some_tree(generator) for _ in range(generator.randint(1, 8))]
    return gold, [Tree.from_spans(tree.words, random_branching(len(tree), generator)) for tree in gold]


def test_brackets_leave_out_words_the_whole_sentence_labels_and_duplicates() -> None:
    tree = Tree.parse("(TOP (S (NP (NP (DT the) (NN dog))) (VP (VBZ sees) (NP (PRP it)))))")
    assert brackets(tree, 4) == {(0, 2), (2, 4)}
    assert brackets([(0, 4), (0, 2, "NP"), (0, 2), (3, 4)], 4) == {(0, 2)}


def test_one_sentence_by_hand() -> None:
    scores = score([GOLD], [RIGHT])
    assert scores.s_f1 == pytest.approx(200 / 3)
    assert scores.corpus_f1 == pytest.approx(200 / 3)
    assert {name: (each.num_gold, each.num_found) for name, each in scores.by_label.items()} == {
        "NP": (2, 1),
        "VP": (1, 1),
    }
    assert scores.by_label["NP"].recall == 50


def test_a_corpus_by_hand() -> None:
    """F1 is 2/3 with 2 of 3 and 3; 1 with two words; 0 where gold is flat; 2/(1 + 2) with 1 of 1 and 2."""
    flat = Tree.parse("(S (A a) (B b) (C c) (D d))")
    pair = Tree.parse("(S (A a) (B b))")
    one = Tree.parse("(S (A a))")
    four = Tree.parse("(S (A a) (X (B b) (C c) (D d)))")
    scores = score([GOLD, pair, flat, one, four], [RIGHT, None, right_branching(4), None, right_branching(4)])
    assert (scores.num_sentences, scores.num_skipped, scores.num_unparsed) == (4, 1, 1)
    assert scores.s_f1 == pytest.approx(100 * (2 / 3 + 1 + 0 + 2 / 3) / 4)
    assert scores.s_f1_longer == pytest.approx(100 * (2 / 3 + 0 + 2 / 3) / 3)
    # all brackets: gold 3 + 0 + 0 + 1, predicted 3 + 0 + 2 + 2, common 2 + 0 + 0 + 1
    assert scores.corpus_precision == pytest.approx(100 * 3 / 7)
    assert scores.corpus_recall == pytest.approx(100 * 3 / 4)
    assert scores.corpus_f1 == pytest.approx(100 * 6 / 11)


def test_no_tree_scores_nothing_where_gold_has_brackets() -> None:
    scores = score([GOLD], [None])
    assert (scores.s_f1, scores.corpus_precision, scores.corpus_recall, scores.num_unparsed) == (0, 0, 0, 1)


def test_an_unary_chain_counts_once_in_f1_and_once_for_each_of_its_labels() -> None:
    gold = Tree.parse("(S (V want) (S (VP (TO to) (VP sleep))))")
    scores = score([gold], [right_branching(3)])
    assert scores.s_f1 == 100
    assert {name: each.num_gold for name, each in scores.by_label.items()} == {"S": 1, "VP": 1}


def test_lengths_fall_into_buckets() -> None:
    gold = [Tree.from_spans(range(length), right_branching(length)) for length in (1, 2, 5, 10, 11, 45)]
    predicted = [left_branching(len(tree)) if len(tree) == 5 else tree for tree in gold]
    found = [(each.shortest, each.longest, each.num_sentences, each.s_f1) for each in score(gold, predicted).by_length]
    assert found == [
        (2, 10, 3, pytest.approx(200 / 3)),
        (11, 20, 1, 100),
        (21, 30, 0, None),
        (31, 40, 0, None),
        (41, None, 1, 100),
    ]
    assert [each.num_sentences for each in score(gold, predicted, last_lengths=[5]).by_length] == [2, 3]


def test_spans_need_lengths() -> None:
    assert score([[(0, 2, "NP"), (0, 3, "S")]], [[(0, 2)]], lengths=[3]).s_f1 == 100
    with pytest.raises(
        RankspaceError, match=r"^score: gold parse 0 is a set of spans, which tells no length; give lengths\.$"
    ):
        score([[(0, 2)]], [[(0, 2)]])


def test_what_does_not_match_is_refused() -> None:
    with pytest.raises(ShapeError, match=r"^score: there are 1 gold parses but 2 predicted; give one for each\.$"):
        score([GOLD], [GOLD, GOLD])
    with pytest.raises(ShapeError, match=r"^score: sentence 0 has 5 words but its predicted tree 2\.$"):
        score([GOLD], [Tree.parse("(S a b)")])
    with pytest.raises(ShapeError, match=r"^score: sentence 0 has 5 words but the predicted span \(2, 6\)\.$"):
        score([GOLD], [[(2, 6)]])
    with pytest.raises(ShapeError, match=r"^score: there are 1 gold parses but 2 lengths; give one for each\.$"):
        score([GOLD], [GOLD], lengths=[5, 5])


def test_nothing_to_score_gives_no_score() -> None:
    scores = score([Tree.parse("(S a)")], [None])
    assert (scores.s_f1, scores.s_f1_longer, scores.corpus_f1, scores.num_skipped) == (None, None, None, 1)
    assert scores.table().splitlines()[2].split() == ["S-F1", "-"]


def test_json_and_table() -> None:
    scores = score([GOLD], [RIGHT])
    plain = json.loads(json.dumps(scores.to_json()))
    assert plain["by_label"]["NP"] == {"num_gold": 2, "num_found": 1, "recall": 50.0}
    assert plain["by_length"][0]["num_sentences"] == 1
    assert scores.table() == TABLE


@given(st.randoms())
def test_scores_stay_between_nothing_and_all(generator: random.Random) -> None:
    gold, predicted = some_treebanks(generator)
    scores = score(gold, predicted)
    for value in (scores.s_f1, scores.s_f1_longer, scores.corpus_f1, scores.corpus_precision, scores.corpus_recall):
        assert value is None or 0 <= value <= 100 + 1e-9
    assert scores.num_sentences + scores.num_skipped == len(gold)
    assert sum(bucket.num_sentences for bucket in scores.by_length) == scores.num_sentences


@given(st.randoms())
def test_a_treebank_is_perfect_against_itself(generator: random.Random) -> None:
    for trees_of in some_treebanks(generator):
        scores = score(trees_of, trees_of)
        assert scores.s_f1 is None or scores.s_f1 == pytest.approx(100)
        assert all(each.recall == 100 for each in scores.by_label.values())


@given(st.randoms())
def test_the_order_of_sentences_the_form_and_whole_spans_do_not_matter(generator: random.Random) -> None:
    gold, predicted = some_treebanks(generator)
    expected = score(gold, predicted)
    assert score(gold[::-1], predicted[::-1]).s_f1 == pytest.approx(expected.s_f1)
    spans = [tree.spans(min_width=2, whole=False) for tree in predicted]
    assert score(gold, spans) == expected
    lengths = [len(tree) for tree in gold]
    assert score([tree.nodes for tree in gold], predicted, lengths) == expected


@given(st.randoms())
def test_precision_and_recall_change_places_with_gold_and_prediction(generator: random.Random) -> None:
    gold, predicted = some_treebanks(generator)
    forth, back = score(gold, predicted), score(predicted, gold)
    if any(brackets(tree, len(tree)) for tree in gold) and any(brackets(tree, len(tree)) for tree in predicted):
        assert forth.corpus_precision == pytest.approx(back.corpus_recall)
        assert forth.corpus_f1 == pytest.approx(back.corpus_f1)


@given(st.randoms())
def test_no_binary_tree_beats_the_oracle(generator: random.Random) -> None:
    gold, predicted = some_treebanks(generator)
    found, best = score(gold, predicted), bounds(gold, num_random=1).oracle
    assert found.s_f1 is None or found.s_f1 <= best.s_f1 + 1e-9


@given(st.randoms())
def test_pyevalb_counts_the_same_brackets(generator: random.Random) -> None:
    """PYEVALB also counts the whole sentence and scores sentences of one word; its brackets are a set, as ours.

    Words without preterminal and one-word nodes would confuse it, so every word gets a tag, and all labels are one.
    """
    parser = pytest.importorskip("PYEVALB.parser")
    scorer = pytest.importorskip("PYEVALB.scorer").Scorer()
    for gold, predicted in zip(*some_treebanks(generator), strict=True):
        if len(gold) == 1:
            continue
        theirs = scorer.score_trees(*(parser.create_from_bracket_string(_tagged(tree)) for tree in (gold, predicted)))
        right, found = brackets(gold, len(gold)), brackets(predicted, len(gold))
        assert theirs.gold_brackets == len(right) + 1
        assert theirs.test_brackets == len(found) + 1
        assert theirs.matched_brackets == len(right & found) + 1


def _tagged(tree: Tree) -> str:
    spans = [(begin, end, "X") for begin, end in brackets(tree, len(tree))]
    tags = [(place, place + 1, "T") for place in range(len(tree))]
    return Tree.from_spans(tree.words, [(0, len(tree), "X"), *spans, *tags]).bracketed()


TABLE = """\
score
------------------------------
S-F1                     66.67
S-F1, more than 2 words  66.67
corpus F1                66.67
corpus precision         66.67
corpus recall            66.67
sentences scored             1
skipped, of one word         0
without a tree               0

words  sentences   S-F1  corpus F1
----------------------------------
2-10           1  66.67      66.67

gold label  brackets  recall
----------------------------
NP                 2   50.00
VP                 1  100.00"""
