"""Models with a latent vector for each sentence: bounds, what is posed, and what is kept in memory."""

import math
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from models.cases import SENTENCES, TREE, padded
from rankspace.models import create
from rankspace.models.compound import CompoundModel, Gaussian
from rankspace.models.emission import log_emission

WORDS, LENGTHS = padded(SENTENCES)


@pytest.fixture(params=["c-pcfg", "simple-cpcfg"])
def name(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


def made(name: str, **settings: Any) -> CompoundModel:
    torch.manual_seed(0)
    model = create(name, **{**TREE, "latent": 2, **settings}).double().eval()
    assert isinstance(model, CompoundModel)
    return model


def log_evidence(model: CompoundModel, words: Tensor) -> Tensor:
    """log E_z p(x | z) by the trapezoidal rule over the square [-6, 6]^2, for one sentence."""
    grid = torch.linspace(-6, 6, 41, dtype=torch.float64)
    z = torch.cartesian_prod(grid, grid)
    log_prior = -z.square().sum(1) / 2 - math.log(2 * math.pi) + 2 * math.log(12 / 40)
    found = model.given(z, words.expand(len(z), -1))
    places = (words[0, :, None] == words[0]).int().argmax(1).expand(len(z), -1)
    return torch.logsumexp(log_prior + found.log_prob(places), 0)


def test_divergence_of_gaussians() -> None:
    torch.manual_seed(0)
    q = Gaussian(torch.randn(3, 4), torch.randn(3, 4))
    own = torch.distributions.Normal(q.mean, (q.log_variance / 2).exp())
    expected = torch.distributions.kl_divergence(own, torch.distributions.Normal(0.0, 1.0)).sum(1)
    torch.testing.assert_close(q.divergence(), expected)


def test_samples_have_mean_and_variance() -> None:
    torch.manual_seed(0)
    q = Gaussian(torch.full((20000, 1), 3.0), torch.full((20000, 1), math.log(4.0)))
    drawn = q.draw()
    assert abs(drawn.mean().item() - 3) < 0.06  # four standard errors
    assert abs(drawn.var().item() - 4) < 0.16


def test_loss_is_likelihood_and_divergence(name: str) -> None:
    model = made(name)
    q = model.infer(WORDS, LENGTHS)
    posed = model.pose(WORDS, LENGTHS)
    expected = q.divergence() - posed.distribution.log_prob(posed.words, posed.lengths)
    torch.testing.assert_close(model.loss(WORDS, LENGTHS), expected)
    torch.testing.assert_close(model.log_prob(WORDS, LENGTHS), -expected)


def test_the_weight_of_the_divergence_is_for_training(name: str) -> None:
    model = made(name)
    divergence = model.infer(WORDS, LENGTHS).divergence()
    losses = []
    for weight in (0.0, 0.25):
        model.kl_weight = weight
        torch.manual_seed(1)
        losses.append(model.train().loss(WORDS, LENGTHS))
    torch.testing.assert_close(losses[1] - losses[0], 0.25 * divergence)
    torch.manual_seed(1)
    torch.testing.assert_close(model.log_prob(WORDS, LENGTHS), -losses[0] - divergence)
    before = model.eval().loss(WORDS, LENGTHS)
    model.kl_weight = 1.0
    assert torch.equal(before, model.loss(WORDS, LENGTHS))


def test_samples_give_a_bound_and_the_mean_of_the_training_loss(name: str) -> None:
    """The expected loss is at least -log p(x); both by 2000 samples, within four standard errors."""
    words = torch.tensor([[0, 1, 0, 3]])
    model = made(name)
    many, num = words.expand(2000, -1), 2000
    with torch.no_grad():
        training = model.train().loss(many)
        error = 4 * training.std() / math.sqrt(num)
        assert training.mean() >= -log_evidence(model, words) - error
        sampled = made(name, samples=1).loss(many)
        assert abs(sampled.mean() - training.mean()) < math.sqrt(2) * error


def test_more_samples_are_their_mean(name: str) -> None:
    model = made(name, samples=3)
    torch.manual_seed(5)
    found = model.loss(WORDS, LENGTHS)
    torch.manual_seed(5)
    q = model.infer(WORDS, LENGTHS)
    each = [model._log_likelihood(WORDS, LENGTHS, q.draw()) for _ in range(3)]
    torch.testing.assert_close(found, q.divergence() - torch.stack(each).mean(0))


def test_every_sentence_has_its_own_words(name: str) -> None:
    model = made(name)
    posed = model.pose(WORDS, LENGTHS)
    for sentence, own, places in zip(SENTENCES, posed.distinct, posed.words, strict=True):
        assert own[places[: len(sentence)]].tolist() == sentence
    whole = model.given(model.infer(WORDS, LENGTHS).mean)
    expected = whole.log_prob(WORDS.clamp(min=0), LENGTHS)
    torch.testing.assert_close(posed.distribution.log_prob(posed.words, posed.lengths), expected)


def test_evaluation_takes_the_mean_and_training_a_sample(name: str) -> None:
    model = made(name)
    first, second = (model.pose(WORDS, LENGTHS).distribution.parameters["log_root"] for _ in range(2))
    assert torch.equal(first, second)
    model.train()
    first, second = (model.pose(WORDS, LENGTHS).distribution.parameters["log_root"] for _ in range(2))
    assert not torch.equal(first, second)


def test_sentences_without_words_are_impossible(name: str) -> None:
    model = made(name)
    for words, lengths in ((WORDS[:2], [0, 3]), (WORDS[:2], [0, 0]), (WORDS[:2, :0], [0, 0])):
        found = model.infer(words, lengths)
        assert found.mean.isfinite().all()
        assert found.mean.shape == (2, 2)
    assert model.loss(WORDS[:2], [0, 3])[0] == torch.inf


def test_a_generator_draws_the_latent_vector(name: str) -> None:
    model = made(name)
    one, same, other = (model.sampler(torch.Generator().manual_seed(seed)).parameters["log_root"] for seed in (1, 1, 2))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)
    assert one.shape == (3,)


def test_no_table_over_the_vocabulary_is_kept(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a vocabulary that is several portions."""
    monkeypatch.setattr("rankspace.models.parts.log_emission", partial(log_emission, portion=2**16))
    model, kept = made(name, vocabulary=3000, preterminals=20), []
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: kept.append(tensor.numel()) or tensor, lambda x: x):
        loss = model.train().loss(WORDS, LENGTHS)
    assert max(kept) <= 3000 * TREE["size"] < len(SENTENCES) * 20 * 3000
    loss.sum().backward()
