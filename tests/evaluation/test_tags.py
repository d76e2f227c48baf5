"""Many-to-one accuracy."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankspace import Tree
from rankspace.errors import RankspaceError, ShapeError
from rankspace.evaluation import many_to_one, preterminals


def test_by_hand() -> None:
    """State 0 meets DT 2 and NN 1, state 1 NN 1 and VB 1 (a tie, NN is first), state 2 VB 1: 4 of 6."""
    found = many_to_one([["DT", "NN", "VB"], ["DT", "NN", "VB"]], [[0, 1, 2], [0, 0, 1]])
    assert found.mapping == {0: "DT", 1: "NN", 2: "VB"}
    assert found.accuracy == pytest.approx(100 * 4 / 6)
    assert json.loads(json.dumps(found.to_json())) == {
        "accuracy": found.accuracy,
        "num_words": 6,
        "num_correct": 4,
        "num_tags": 3,
        "mapping": {"0": "DT", "1": "NN", "2": "VB"},
    }
    assert found.table().splitlines()[2] == "many-to-one accuracy  66.67"


@given(st.lists(st.lists(st.sampled_from("abcd"), min_size=1, max_size=6), min_size=1, max_size=6))
def test_a_finer_tagging_is_perfect_and_one_tag_gives_the_share_of_the_commonest(gold: list[list[str]]) -> None:
    finer = [[f"{tag}{place}" for place, tag in enumerate(tags)] for tags in gold]
    assert many_to_one(gold, finer).accuracy == pytest.approx(100)
    flat = [tag for tags in gold for tag in tags]
    commonest = max(flat.count(tag) for tag in flat)
    assert many_to_one(gold, [[0] * len(tags) for tags in gold]).accuracy == pytest.approx(100 * commonest / len(flat))


def test_what_does_not_match_is_refused() -> None:
    with pytest.raises(ShapeError, match=r"^many_to_one: 1 gold sentences but 0 predicted; give one for each\.$"):
        many_to_one([["DT"]], [])
    with pytest.raises(ShapeError, match=r"^many_to_one: sentence 0 has 1 gold tags but 2 predicted\.$"):
        many_to_one([["DT"]], [[0, 1]])
    with pytest.raises(RankspaceError, match=r"^many_to_one: there are no words; give at least one\.$"):
        many_to_one([], [])


def test_preterminals_are_the_lowest_symbols() -> None:
    assert preterminals(Tree.parse("(S (NP (NNP john)) (VP (VBZ sleeps)))")) == ["NNP", "VBZ"]
    with pytest.raises(RankspaceError, match=r"^preterminals: word 1, 'barks', has no symbol of its own\.$"):
        preterminals(Tree.parse("(S (NP dogs) barks)"))
