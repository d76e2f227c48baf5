"""Batches: every sentence once, within the budget, in an order that can be repeated and resumed."""

import json
from itertools import chain, pairwise
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rankspace.data import Batches, Corpus, Vocabulary, encode_text
from rankspace.errors import RankspaceError

VOCABULARY = Vocabulary(("<unk>", "<eos>", *(f"w{number}" for number in range(50))))

lengths = st.lists(st.integers(1, 30), max_size=40)
budgets = st.fixed_dictionaries(
    {},
    optional={
        "max_tokens": st.integers(1, 100),
        "max_sentences": st.integers(1, 10),
        "padded": st.booleans(),
        "eos": st.booleans(),
        "shuffle": st.booleans(),
        "seed": st.integers(0, 5),
    },
).filter(lambda options: "max_tokens" in options or "max_sentences" in options)


def corpus_of(lengths: list[int]) -> Corpus:
    """Sentences of some lengths, no two alike if they are long."""
    generator = np.random.default_rng(0)
    return encode_text(([f"w{w}" for w in generator.integers(50, size=length)] for length in lengths), VOCABULARY)


def numbers_of(batches: Batches) -> list[list[int]]:
    return [batch.numbers.tolist() for batch in batches]


@given(lengths, budgets)
def test_every_sentence_is_in_every_epoch_once(lengths: list[int], options: dict[str, Any]) -> None:
    batches = Batches(corpus_of(lengths), **options)
    for epoch in range(3):
        assert batches.epoch == epoch
        num_batches = len(batches)
        epoch_numbers = numbers_of(batches)
        assert len(epoch_numbers) == num_batches
        assert sorted(chain(*epoch_numbers)) == list(range(len(lengths)))


@given(lengths, budgets)
def test_batches_keep_the_budget_and_could_not_be_larger(lengths: list[int], options: dict[str, Any]) -> None:
    batches = Batches(corpus_of(lengths), **(options | {"shuffle": False}))
    parts = [np.array(lengths)[part] + options.get("eos", False) for part in batches.plan()]

    def fits(part: np.ndarray) -> bool:
        cost = len(part) * part.max() if options.get("padded", True) else part.sum()
        return cost <= options.get("max_tokens", np.inf) and len(part) <= options.get("max_sentences", np.inf)

    assert all(fits(part) or len(part) == 1 for part in parts)
    assert not any(fits(np.append(part, after[0])) for part, after in pairwise(parts))


@given(lengths, budgets)
def test_batches_hold_the_words_of_their_sentences(lengths: list[int], options: dict[str, Any]) -> None:
    corpus = corpus_of(lengths)
    end = [VOCABULARY.eos] if options.get("eos") else []
    for batch in Batches(corpus, **options):
        assert batch.words.dtype == batch.lengths.dtype == batch.numbers.dtype == torch.int64
        assert batch.words.shape == (len(batch.numbers), batch.lengths.max())
        assert batch.num_tokens == int(batch.lengths.sum())
        for words, length, number in zip(batch.words, batch.lengths, batch.numbers, strict=True):
            assert words[:length].tolist() == corpus[int(number)].tolist() + end
            assert not words[length:].any()


@given(lengths, budgets, st.integers(0, 2), st.integers(0, 60))
def test_resuming_gives_exactly_the_remaining_batches(
    lengths: list[int], options: dict[str, Any], epoch: int, position: int
) -> None:
    corpus = corpus_of(lengths)
    whole = Batches(corpus, **options)
    epochs = [numbers_of(whole) for _ in range(4)]
    position = min(position, len(epochs[epoch]))

    first = Batches(corpus, **options)
    for _ in range(epoch):
        numbers_of(first)
    running = iter(first)
    for _ in range(position):
        next(running)
    state = json.loads(json.dumps(first.state_dict()))

    second = Batches(corpus, **options)
    second.load_state_dict(state)
    assert numbers_of(second) == epochs[epoch][position:]
    assert [numbers_of(second) for _ in range(epoch + 1, 4)] == epochs[epoch + 1 :]


def test_iterating_again_goes_on() -> None:
    batches = Batches(corpus_of([3] * 6), max_sentences=2)
    for _ in batches:
        break
    assert (batches.epoch, batches.position) == (0, 1)
    assert len(numbers_of(batches)) == 2
    assert (batches.epoch, batches.position) == (1, 0)


def test_seeds_and_epochs_have_orders_of_their_own() -> None:
    corpus = corpus_of([5] * 30 + [7] * 30)
    orders = [numbers_of(Batches(corpus, max_tokens=40, seed=seed)) for seed in (0, 0, 1)]
    assert orders[0] == orders[1] != orders[2]
    batches = Batches(corpus, max_tokens=40)
    assert numbers_of(batches) != numbers_of(batches)


def test_without_shuffling_short_sentences_come_first_and_equal_ones_in_order() -> None:
    batches = Batches(corpus_of([3, 1, 2, 1]), max_sentences=3, shuffle=False)
    assert numbers_of(batches) == numbers_of(batches) == [[1, 3, 2], [0]]


def test_sentences_of_other_lengths_are_left_out_and_counted() -> None:
    batches = Batches(corpus_of([1, 2, 3, 40, 5]), max_sentences=9, min_length=2, max_length=5, eos=True, shuffle=False)
    assert batches.num_left_out == 2
    assert numbers_of(batches) == [[1, 2, 4]]


def test_one_long_sentence_is_a_batch_of_its_own() -> None:
    batches = Batches(corpus_of([2, 2, 5000]), max_tokens=10, shuffle=False)
    assert [tuple(batch.words.shape) for batch in batches] == [(2, 2), (1, 5000)]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "there is no budget; give max_tokens or max_sentences."),
        ({"max_tokens": 0}, "max_tokens is 0; give at least 1."),
        ({"max_sentences": -1}, "max_sentences is -1; give at least 1."),
    ],
)
def test_impossible_budgets(options: dict[str, Any], message: str) -> None:
    with pytest.raises(RankspaceError) as error:
        Batches(corpus_of([1]), **options)
    assert str(error.value) == f"Batches: {message}"


def test_eos_needs_a_number() -> None:
    corpus = encode_text([["a"]], Vocabulary(("<unk>", "a")))
    with pytest.raises(RankspaceError) as error:
        Batches(corpus, max_tokens=3, eos=True)
    remedy = "prepare the data with --eos."
    assert str(error.value) == f"Batches: eos=True, but the vocabulary has no <eos>; {remedy}"


@pytest.mark.parametrize("change", [{"seed": 1}, {"max_tokens": 45}, {"max_length": 4}])
def test_a_state_of_other_batches_is_refused(change: dict[str, int]) -> None:
    corpus = corpus_of([3, 4, 5, 6, 7, 3, 4, 5] * 3)
    batches = Batches(corpus, max_tokens=30)
    next(iter(batches))
    other = Batches(corpus, **({"max_tokens": 30} | change))
    with pytest.raises(RankspaceError) as error:
        other.load_state_dict(batches.state_dict())
    assert str(error.value) == (
        "Batches: the batches of epoch 0 are not those of the saved state; give the same corpus, seed, budget and "
        "lengths."
    )
    assert (other.epoch, other.position) == (0, 0)
