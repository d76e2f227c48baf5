"""States and words in blocks: where they come from, that they are saved, and that states can be left out."""

from typing import Any

import numpy as np
import pytest
import torch

from models.cases import CHAIN, SENTENCES, VOCABULARY, padded
from rankspace.models import create
from rankspace.models.brown import brown_clusters, uniform_clusters
from rankspace.models.vl_hmm import VLHMM

WORDS, LENGTHS = padded(SENTENCES)
TOKENS = np.array([word for sentence in SENTENCES for word in sentence], dtype=np.int32)
OFFSETS = np.cumsum([0, *LENGTHS])


def made(**settings: Any) -> VLHMM:
    torch.manual_seed(0)
    model = create("vl-hmm", **{**CHAIN, "states": 12, "blocks": 4, **settings}).double().eval()
    assert isinstance(model, VLHMM)
    return model


def test_brown_clusters_of_the_text() -> None:
    model = made()
    assert model.block_of_word.tolist() == uniform_clusters(VOCABULARY, 4).tolist()
    model.prepare(TOKENS, OFFSETS)
    assert model.block_of_word.tolist() == brown_clusters(TOKENS, OFFSETS, VOCABULARY, 4).tolist()
    model = made(largest=5)
    model.prepare(TOKENS, OFFSETS)
    assert np.bincount(model.block_of_word).max() <= 5


def test_words_dealt_out_by_frequency() -> None:
    model = made(clusters="uniform")
    model.prepare(TOKENS, OFFSETS)
    expected = uniform_clusters(np.bincount(TOKENS, minlength=VOCABULARY), 4)
    assert model.block_of_word.tolist() == expected.tolist()


def test_blocks_of_unequal_sizes() -> None:
    """A word of its own and a block that no word of the batch is in."""
    model = made()
    model.block_of_word.copy_(torch.tensor([0, 1, 1, 1, 1, 1, 1, 1, 2, 3, 1]))
    words = torch.tensor([[1, 0, 4, 10]])
    posed = model.pose(words)
    found, expected = posed.distribution.log_prob(posed.words), model().log_prob(words)
    torch.testing.assert_close(found, expected)
    weights = list(model.parameters())
    for one, other in zip(torch.autograd.grad(found, weights), torch.autograd.grad(expected, weights), strict=True):
        torch.testing.assert_close(one, other)


def test_states_are_numbered_alike_whatever_the_words() -> None:
    model = made()
    model.block_of_word.copy_(torch.tensor([3, 1, 1, 1, 1, 1, 1, 1, 2, 0, 1]))
    words = torch.tensor([[1, 0, 4, 10]])
    posed: Any = model.pose(words)
    expected = model().state_marginals(words)
    torch.testing.assert_close(posed.distribution.state_marginals(posed.words), expected)


def test_blocks_are_saved_with_the_weights() -> None:
    model = made()
    model.prepare(TOKENS, OFFSETS)
    other = made()
    other.load_state_dict(model.state_dict())
    assert torch.equal(other.block_of_word, model.block_of_word)
    assert torch.equal(other.loss(WORDS, LENGTHS), model.loss(WORDS, LENGTHS))


@pytest.mark.parametrize("dropout", [0.5, 0.9])
def test_states_are_left_out_in_training_alone(dropout: float) -> None:
    model = made(dropout=dropout)
    assert model().sizes["state"] == 12
    kept = {0.5: 2, 0.9: 1}[dropout]
    distribution = model.train()()
    assert distribution.sizes["state"] == 4 * kept
    assert distribution.blocks.size == kept
