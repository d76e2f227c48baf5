"""Trivial parsers and the bounds they give."""

import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankspace import Tree
from rankspace.errors import RankspaceError
from rankspace.evaluation import binarised, bounds, brackets, left_branching, random_branching, right_branching

TREEBANK = [
    Tree.parse("(S (NP (DT the) (NN dog)) (VP (VBZ sees) (NP (DT a) (NN cat))))"),
    Tree.parse("(S (NP (DT a) (JJ big) (NN dog)) (VP barks))"),
]


def test_branching_to_a_side() -> None:
    assert left_branching(4) == {(0, 2), (0, 3), (0, 4)}
    assert right_branching(4) == {(0, 4), (1, 4), (2, 4)}
    assert left_branching(1) == right_branching(1) == frozenset()


@given(st.integers(1, 30), st.randoms())
def test_random_trees_are_binary(length: int, generator: random.Random) -> None:
    spans = random_branching(length, generator)
    assert Tree.from_spans(range(length), spans).is_binary or length == 1
    assert len(spans) == length - 1


def test_random_trees_divide_uniformly() -> None:
    generator = random.Random(0)
    found = [random_branching(3, generator) for _ in range(2000)]
    left = sum((0, 2) in spans for spans in found)
    assert abs(left - 1000) < 4 * (2000 / 4) ** 0.5  # four standard deviations


def test_binarisation_divides_from_the_right() -> None:
    assert binarised(TREEBANK[0], 5) == {(0, 5), (0, 2), (2, 5), (3, 5)}
    assert binarised(TREEBANK[1], 4) == {(0, 4), (0, 3), (1, 3)}
    assert binarised(Tree.parse("(S a)"), 1) == frozenset()


@given(st.integers(1, 15), st.randoms(), st.lists(st.booleans(), min_size=14, max_size=14))
def test_binarised_trees_are_binary_and_have_all_brackets(
    length: int, generator: random.Random, kept: list[bool]
) -> None:
    spans = [span for span, keep in zip(sorted(random_branching(length, generator)), kept, strict=False) if keep]
    found = binarised(spans, length)
    assert brackets(spans, length) <= found
    assert len(found) == length - 1
    Tree.from_spans(range(length), found)  # which refuses crossing spans


def test_crossing_gold_spans_have_no_oracle() -> None:
    with pytest.raises(
        RankspaceError, match=r"^Tree: the spans \(0, 2\) and \(1, 3\) cross; give spans nested or apart\.$"
    ):
        binarised([(0, 2), (1, 3)], 4)


def test_bounds_by_hand() -> None:
    """First: gold 3 brackets; left finds 1 of 3, right 2 of 3. Second: gold 1; left finds 1 of 2, right none of 2."""
    found = bounds(TREEBANK)
    assert found.left_branching.s_f1 == pytest.approx(100 * (1 / 3 + 2 / 3) / 2)
    assert found.left_branching.corpus_f1 == pytest.approx(100 * 2 * 2 / (4 + 5))
    assert found.right_branching.s_f1 == pytest.approx(100 * (2 / 3 + 0) / 2)
    assert found.oracle.s_f1 == pytest.approx(100 * (1 + 2 / 3) / 2)
    assert found.oracle.corpus_f1 == pytest.approx(100 * 2 * 4 / (4 + 5))


def test_bounds_of_spans_are_those_of_trees() -> None:
    assert bounds([tree.nodes for tree in TREEBANK], lengths=[5, 4]) == bounds(TREEBANK)


def test_spans_need_lengths() -> None:
    with pytest.raises(RankspaceError, match=r"^score: gold parse 0 is a set of spans, which tells no length"):
        bounds([tree.nodes for tree in TREEBANK])


def test_the_random_bound_is_a_mean_and_depends_on_its_seed_alone() -> None:
    assert bounds(TREEBANK, seed=1) == bounds(TREEBANK, seed=1)
    many = bounds(TREEBANK, num_random=1000).random.s_f1
    # F1 of a random tree: a bracket of gold is found as often as it is drawn. First: (0, 2) has probability
    # 1/4 + 1/4 * 1/2 + ... by division: at 2 (1/4); at 3 (1/4 * 1/2); at 4 (1/4 * (1/3 + 1/3 * 1/2)).
    first = 1 / 4 + 1 / 8 + 1 / 4 * (1 / 3 + 1 / 6)  # (0, 2), and by symmetry (3, 5)
    middle = 1 / 4 + 1 / 4 * 1 / 3  # (2, 5): divided at 2, or at 1 and then at 2
    second = 1 / 3 + 0  # (0, 3) of four words: divided at 3
    assert many == pytest.approx(100 * ((2 * first + middle) / 3 + 2 * second / 3) / 2, abs=3)  # three standard errors


def test_json_and_table() -> None:
    found = bounds(TREEBANK)
    assert json.loads(json.dumps(found.to_json()))["oracle"]["corpus_f1"] == pytest.approx(800 / 9)
    lines = found.table().splitlines()
    assert lines[0] == "bound             S-F1  S-F1, > 2 words  corpus F1"
    assert lines[3] == "right branching  33.33            33.33      44.44"


def test_a_treebank_of_single_words_has_no_bounds() -> None:
    assert bounds([Tree.parse("(S a)")]).random == (None, None, None)
