"""What holds for every model of the registry."""

from typing import Any

import pytest
import torch
from torch import Tensor

from models.cases import CASES, SENTENCES, VOCABULARY, padded, sentence_alone
from rankspace.distributions import BlockHMM
from rankspace.distributions.contract import Distribution
from rankspace.errors import RankspaceError
from rankspace.models import MODELS, Model, create, describe

WORDS, LENGTHS = padded(SENTENCES)


def made(case: str) -> Model:
    """In float64, in evaluation: rounding is no reason for a difference."""
    torch.manual_seed(0)
    name, settings = CASES[case]
    return create(name, **settings).double().eval()


@pytest.fixture(params=list(CASES))
def model(request: pytest.FixtureRequest) -> Model:
    return made(request.param)


@pytest.fixture(params=[case for case, (_, settings) in CASES.items() if "samples" not in settings])
def certain_model(request: pytest.FixtureRequest) -> Model:
    """Nothing is drawn in evaluation."""
    return made(request.param)


@pytest.fixture(params=[case for case, (name, _) in CASES.items() if not MODELS[name].BOUND])
def exact_model(request: pytest.FixtureRequest) -> Model:
    """p(x) has a closed form."""
    return made(request.param)


def in_parameters(distribution: Distribution) -> dict[str, Tensor]:
    """Tables that compare: those of blocks over all words."""
    found = distribution.expanded() if isinstance(distribution, BlockHMM) else distribution
    return found.parameters


def gradients(model: Model, value: Tensor) -> dict[str, Tensor]:
    names, weights = zip(*model.named_parameters(), strict=True)
    found = torch.autograd.grad(value, weights, allow_unused=True)
    return {name: slope for name, slope in zip(names, found, strict=True) if slope is not None}


def test_every_model_has_a_case() -> None:
    assert {name for name, _ in CASES.values()} == set(MODELS)


@pytest.mark.parametrize(
    "case", ["vl-hmm", "simple-cpcfg", "direct, hmm", "direct, pcfg", "direct, l-pcfg", "direct, lhmm"]
)
def test_a_model_without_kernels_says_so(case: str) -> None:
    model = made(case).float()
    model.options = {"backend": "triton"}
    for query in (model, lambda: model.loss(WORDS, LENGTHS), lambda: model.pose(WORDS, LENGTHS), model.sampler):
        with pytest.raises(RankspaceError) as caught:
            query()
        assert str(caught.value) == (
            f"{model.NAME}: backend is 'triton', but this model has no kernels; give backend='auto'."
        )
    model.options = {"backend": "auto"}
    assert bool(model.loss(WORDS, LENGTHS).isfinite().any())


def test_every_table_is_normalised(model: Model) -> None:
    distribution = model()
    made: Any = type(distribution)
    made(**distribution.parameters, **distribution.options(), validate=True)
    assert distribution.vocabulary == VOCABULARY == model.vocabulary


def test_every_table_is_normalised_in_training(model: Model) -> None:
    distribution = model.train()()
    made: Any = type(distribution)
    made(**distribution.parameters, **distribution.options(), validate=True)


def test_normalised_axes_are_contiguous(model: Model) -> None:
    for name, table in model().parameters.items():
        assert table.stride(-1) == 1, name


@pytest.mark.parametrize("some", [[0, 3, 4, 10], [7], list(range(VOCABULARY))])
def test_some_words_are_as_among_all(model: Model, some: list[int]) -> None:
    whole, part = in_parameters(model()), in_parameters(model(torch.tensor(some)))
    for name, table in part.items():
        expected = whole[name][..., some] if name == "log_emission" else whole[name]
        torch.testing.assert_close(table, expected, rtol=1e-12, atol=1e-12)


def test_gradients_of_some_words_are_as_among_all(model: Model) -> None:
    some = torch.unique(torch.cat(list(sentence_alone(SENTENCES)), 1))
    places = torch.searchsorted(some, WORDS.clamp(min=0))
    by_all = model().log_prob(WORDS, LENGTHS)
    by_some = model(some).log_prob(places, LENGTHS)
    torch.testing.assert_close(by_some, by_all)
    expected, found = gradients(model, by_all.sum()), gradients(model, by_some.sum())
    assert expected.keys() == found.keys()
    for name, slope in expected.items():
        torch.testing.assert_close(found[name], slope, rtol=1e-8, atol=1e-10)


def test_a_posed_batch_has_the_probabilities_of_the_model(exact_model: Model) -> None:
    posed = exact_model.pose(WORDS, LENGTHS)
    torch.testing.assert_close(
        posed.distribution.log_prob(posed.words, posed.lengths), exact_model().log_prob(WORDS, LENGTHS)
    )
    torch.testing.assert_close(exact_model.loss(WORDS, LENGTHS), -exact_model.log_prob(WORDS, LENGTHS))
    rows = [posed.distinct[row[:length]].tolist() for row, length in zip(posed.words, posed.lengths, strict=True)]
    assert rows == SENTENCES


def test_padding_and_company_do_not_matter(certain_model: Model) -> None:
    together = certain_model.loss(WORDS, LENGTHS)
    alone = torch.cat([certain_model.loss(sentence) for sentence in sentence_alone(SENTENCES)])
    torch.testing.assert_close(together, alone)


@pytest.mark.parametrize("length", [0, 3])
def test_a_batch_without_words(model: Model, length: int) -> None:
    """No tree is so short; of a chain nothing has been asked."""
    log_p = model.log_prob(WORDS[:2, :length], [0, 0])
    expected = -torch.inf if model.KIND == "tree" else 0.0
    assert log_p.tolist() == [expected] * 2
    assert len(model.pose(WORDS[:2, :length], [0, 0]).words) == 2


def test_queries_run_on_what_is_posed(model: Model) -> None:
    with torch.inference_mode():
        distribution, words, lengths, _ = model.pose(WORDS, LENGTHS)
        assert isinstance(distribution, Distribution)
        if model.KIND == "tree":
            trees: Any = distribution
            assert [len(tree.words) for tree in trees.mbr(words, lengths)] == LENGTHS
        else:
            chains: Any = distribution
            total = chains.state_marginals(words, lengths).sum((1, 2))
            torch.testing.assert_close(total, torch.tensor(LENGTHS).double())


def test_sentences_can_be_drawn(model: Model) -> None:
    sample: Any = model.sampler(torch.Generator().manual_seed(0))
    assert sample.sample(3, 6, torch.Generator().manual_seed(1)) is not None


def test_settings_and_weights_make_its_like(model: Model) -> None:
    torch.manual_seed(7)
    other = create(model.NAME, **model.settings).double().eval()
    assert other.settings == model.settings
    assert other.num_weights == model.num_weights
    other.load_state_dict(model.state_dict())
    losses = []
    for each in (model, other):
        torch.manual_seed(0)
        losses.append(each.loss(WORDS, LENGTHS))
    assert torch.equal(*losses)


def test_settings_are_those_described(model: Model) -> None:
    assert set(model.settings) == {"vocabulary", *describe(model.NAME).settings}


def test_the_same_seed_gives_the_same_bits(model: Model) -> None:
    found = []
    for _ in range(2):
        torch.manual_seed(3)
        fresh = create(model.NAME, **model.settings).train()
        fresh.loss(WORDS, LENGTHS).sum().backward()
        found.append([fresh.loss(WORDS, LENGTHS), *(weight.grad for weight in fresh.parameters())])
    for first, second in zip(*found, strict=True):
        assert torch.equal(first, second)


def test_gradients_reach_every_weight(model: Model) -> None:
    model.train().loss(WORDS, LENGTHS).sum().backward()
    for name, weight in model.named_parameters():
        assert weight.grad is not None, name
        assert weight.grad.isfinite().all(), name
        assert weight.grad.abs().sum() > 0, name


def embeddings(model: Model) -> dict[str, Tensor]:
    """Tables whose rows are of a symbol, a word, a state or a rank each; units of a network may be idle, rows not."""
    networks = torch.nn.Linear | torch.nn.LSTM
    return {
        f"{prefix}.{name}": weight
        for prefix, module in model.named_modules()
        if not isinstance(module, networks)
        for name, weight in module.named_parameters(recurse=False)
        if weight.dim() > 1
    }


def test_gradients_reach_every_row_of_embeddings(model: Model) -> None:
    """In evaluation: nothing is left out."""
    model.loss(WORDS, LENGTHS).sum().backward()
    for name, table in embeddings(model).items():
        assert table.grad is not None, name
        assert (table.grad.flatten(1) != 0).any(1).all(), name


def test_large_weights_give_no_nan(exact_model: Model) -> None:
    """Logits in the hundreds: most probabilities are zero in float32. Variances of latent vectors would be infinite."""
    exact_model.float().train()
    with torch.no_grad():
        for weight in exact_model.parameters():
            weight *= 4
    loss = exact_model.loss(WORDS, LENGTHS)
    loss.sum().backward()
    assert loss.isfinite().all()
    assert all(weight.grad.isfinite().all() for weight in exact_model.parameters())


def test_it_learns(certain_model: Model) -> None:
    torch.manual_seed(1)
    certain_model.float().train()
    before = certain_model.eval().loss(WORDS, LENGTHS).sum().item()
    optimiser = torch.optim.Adam(certain_model.parameters(), lr=0.02)
    for _ in range(30):
        optimiser.zero_grad()
        certain_model.train().loss(WORDS, LENGTHS).sum().backward()
        optimiser.step()
    after = certain_model.eval().loss(WORDS, LENGTHS).sum().item()
    assert after < 0.9 * before
    assert all(weight.isfinite().all() for weight in certain_model.parameters())


def test_options_reach_the_distribution(model: Model) -> None:
    model.options = {"order": "state", "precision": "high", "backend": "torch"}
    posed = model.pose(WORDS, LENGTHS).distribution
    assert (posed.order, posed.precision, posed.backend) == ("state", "high", "torch")


@pytest.mark.gpu
def test_a_gpu_finds_what_the_cpu_finds(certain_model: Model) -> None:
    expected = certain_model.loss(WORDS, LENGTHS)
    slopes = gradients(certain_model, expected.sum())
    certain_model.cuda()
    with torch.backends.cudnn.flags(enabled=False):  # whose LSTM has no gradients in evaluation
        found = certain_model.loss(WORDS.cuda(), LENGTHS)
        there = gradients(certain_model, found.sum())
    torch.testing.assert_close(found.cpu(), expected)
    for name, slope in there.items():
        torch.testing.assert_close(slope.cpu(), slopes[name], rtol=1e-6, atol=1e-9)


@pytest.mark.gpu
def test_a_gpu_finds_the_same_bits_twice(model: Model) -> None:
    model.float().cuda().train()
    found = []
    for _ in range(2):
        torch.manual_seed(3)
        loss = model.loss(WORDS.cuda(), LENGTHS)
        found.append([loss, *gradients(model, loss.sum()).values()])
    for first, second in zip(*found, strict=True):
        assert torch.equal(first, second)
