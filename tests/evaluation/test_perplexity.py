"""Perplexity and the n-gram models beside it."""

import json
import math
from itertools import product

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rankspace.errors import RankspaceError, ShapeError
from rankspace.evaluation import NgramModel, chain_perplexity, tree_perplexity
from rankspace.evaluation.ngrams import END

TEXT = [["a", "b"], ["a", "c"], ["a", "b"]]
texts = st.lists(st.lists(st.sampled_from("abc"), max_size=5), min_size=1, max_size=8)


def test_trees_count_one_more_than_words() -> None:
    found = tree_perplexity([math.log(1 / 8), math.log(1 / 4)], [2, 2])
    assert found.perplexity == pytest.approx(32 ** (1 / 6))
    assert (found.num_sentences, found.num_predictions) == (2, 6)


def test_chains_count_the_words_that_they_are_given() -> None:
    assert chain_perplexity([math.log(1 / 8)], [3]).perplexity == pytest.approx(2)


def test_tensors_are_numbers_too() -> None:
    log_probs = torch.tensor([1 / 8, 1 / 4], dtype=torch.float64).log()
    assert tree_perplexity(log_probs, torch.tensor([2, 2])).perplexity == pytest.approx(32 ** (1 / 6))


def test_single_words_are_skipped_for_trees_and_counted() -> None:
    found = tree_perplexity([-math.inf, math.log(1 / 8)], [1, 2])
    assert (found.num_skipped, found.num_impossible, found.num_sentences) == (1, 0, 1)
    assert found.perplexity == pytest.approx(2)
    assert tree_perplexity([math.log(1 / 4)], [1], shortest=1).perplexity == pytest.approx(2)


def test_impossible_sentences_are_not_hidden() -> None:
    found = tree_perplexity([-math.inf, math.log(1 / 8)], [3, 2])
    assert (found.perplexity, found.num_impossible, found.num_sentences) == (math.inf, 1, 2)
    assert found.of_possible == pytest.approx(2)
    assert json.loads(json.dumps(found.to_json(), allow_nan=False))["perplexity"] == "inf"
    assert found.table() == TABLE


def test_no_sentences_have_no_perplexity() -> None:
    found = tree_perplexity([], [])
    assert math.isnan(found.perplexity)
    assert found.to_json()["perplexity"] == "nan"


def test_a_perplexity_beyond_floats_is_infinite() -> None:
    assert chain_perplexity([-1000.0], [1]).of_possible == math.inf


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ShapeError, match=r"^perplexity: there are 1 log_probs but 2 lengths; give one for each\.$"):
        chain_perplexity([-1.0], [1, 2])
    with pytest.raises(RankspaceError, match=r"^perplexity: log p of sentence 1 is nan; it must be at most 0\.$"):
        chain_perplexity([-1.0, math.nan], [1, 2])
    with pytest.raises(RankspaceError, match=r"^perplexity: log p of sentence 0 is 0\.5; it must be at most 0\.$"):
        chain_perplexity([0.5], [1])


def test_unigrams_by_hand() -> None:
    """Counts: a 3, b 2, c 1, end 3 of 9; four kinds and one unknown word share what is discounted, 4 / 2 of 9."""
    model = NgramModel(TEXT, order=1, discount=0.5)
    below = 0.5 * 4 / 9 / 5
    assert model.prob("a", []) == pytest.approx(2.5 / 9 + below)
    assert model.prob("c", []) == pytest.approx(0.5 / 9 + below)
    assert model.prob("unseen", []) == pytest.approx(below)
    expected = math.log(model.prob("a", [])) + math.log(model.prob(END, []))
    assert model.log_prob(["a"]) == pytest.approx(expected)


def test_bigrams_by_hand() -> None:
    """Lower orders count kinds of words to the left: a 1 (begin), b 1, c 1, end 2 (b and c); five in all."""
    model = NgramModel(TEXT, order=2, discount=0.5)
    unigram_b = (0.5 + 0.5 * 4 / 5) / 5
    assert model.prob("b", ["a"]) == pytest.approx((1.5 + 0.5 * 2 * unigram_b) / 3)
    assert model.prob("b", ["unseen"]) == pytest.approx(unigram_b)


def test_discounts_come_from_what_was_counted_once_and_twice() -> None:
    """After a, b was counted twice and c once; ends follow b twice and c once; a follows the beginning thrice."""
    assert NgramModel(TEXT, order=2).discounts == [pytest.approx(3 / (3 + 2 * 1)), pytest.approx(2 / (2 + 2 * 2))]
    assert NgramModel([["a"]], order=1).discounts == [0.75]


@given(texts, st.integers(1, 4))
def test_probabilities_sum_to_one(text: list[list[str]], order: int) -> None:
    model = NgramModel(text, order)
    words = sorted({word for sentence in text for word in sentence})
    for context in product([*words, "unseen"], repeat=order - 1):
        total = sum(model.prob(word, context) for word in [*words, END, "unseen"])
        assert total == pytest.approx(1)


@given(texts)
def test_longer_contexts_fit_the_training_text_better(text: list[list[str]]) -> None:
    frequent = text * 20  # so that discounts matter little
    unigram, trigram = (NgramModel(frequent, order).perplexity(text).perplexity for order in (1, 3))
    assert trigram <= unigram * 1.01


def test_the_end_of_a_sentence_counts() -> None:
    found = NgramModel(TEXT, order=1).perplexity(TEXT)
    assert (found.num_predictions, found.num_impossible) == (9, 0)


def test_a_model_that_cannot_be_is_refused() -> None:
    with pytest.raises(RankspaceError, match=r"^NgramModel: order is 0; give 1 or more\.$"):
        NgramModel(TEXT, order=0)
    with pytest.raises(RankspaceError, match=r"^NgramModel: discount is 1\.0; give a number between 0 and 1\.$"):
        NgramModel(TEXT, order=1, discount=1.0)
    with pytest.raises(RankspaceError, match=r"^NgramModel: there are no sentences to count; give at least one\.$"):
        NgramModel([], order=2)


TABLE = """\
score
---------------------------
perplexity              inf
of possible sentences  2.00
sentences scored          2
impossible                1
skipped                   0"""
