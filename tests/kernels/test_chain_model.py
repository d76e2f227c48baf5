"""log p of the rank-space HMM from its embeddings by kernels, against the torch engine."""

import math
from collections.abc import Sequence
from typing import Literal

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton", reason="needs triton")

from kernels.charts import DEVICE
from rankspace.distributions import RankSpaceHMM
from rankspace.inference.links import Precision
from rankspace.inference.ragged import ragged
from rankspace.kernels.dropping import kept_by_torch
from rankspace.models.fast_batch import Batch
from rankspace.models.fast_chain import rank_chain_log_prob
from rankspace.models.fast_networks import residual_network
from rankspace.models.fast_rank_hmm import rank_hmm_log_prob
from rankspace.models.networks import ResidualNetwork
from rankspace.models.rank_hmm import RankHMM

VOCABULARY = 23
Start = Literal["states", "ranks"]


def batch_of(
    lengths: Sequence[int], precision: Precision = "highest", seed: int = 0, true_lengths: Tensor | None = None
) -> Batch:
    return Batch(ragged(tuple(lengths), DEVICE), precision, seed_of(seed), true_lengths)


def seed_of(number: int) -> Tensor:
    return torch.tensor(number, dtype=torch.int64, device=DEVICE)


def new_model(
    start: Start,
    states: int,
    rank: int,
    dropout: float = 0.0,
    scale: float = 1.5,
    size: int = 8,
    vocabulary: int = VOCABULARY,
) -> RankHMM:
    torch.manual_seed(states + rank)
    model = RankHMM(vocabulary, states, rank, size, dropout, start)
    with torch.no_grad():
        for parameter in (model.from_states, model.to_states, model.ranks, model.emitters):
            parameter.normal_().mul_(scale)
        if start == "states":
            model.starts.mul_(0.3)  # else one state has all the probability, and no gradient
    return model.to(DEVICE)


def random_words(lengths: tuple[int, ...], vocabulary: int = VOCABULARY) -> Tensor:
    generator = torch.Generator().manual_seed(sum(lengths))
    return torch.randint(vocabulary, (len(lengths), max(lengths)), generator=generator).to(DEVICE)


def gradients(model: RankHMM, log_p: Tensor) -> dict[str, Tensor]:
    model.zero_grad()
    slopes = torch.linspace(0.5, 2, len(log_p), device=log_p.device, dtype=log_p.dtype)
    (log_p * slopes).sum().backward()
    return {name: parameter.grad for name, parameter in model.named_parameters() if parameter.grad is not None}


def relative_errors(found: dict[str, Tensor], expected: dict[str, Tensor]) -> float:
    """The largest; of a parameter whose gradient is small, relative to a share of the largest of all."""
    assert found.keys() == expected.keys()
    largest = max(float(each.norm()) for each in expected.values())
    return max(
        float((found[name] - each).norm()) / max(float(each.norm()), 1e-2 * largest) for name, each in expected.items()
    )


@pytest.mark.parametrize("start", ["states", "ranks"])
@pytest.mark.parametrize(
    ("lengths", "states", "rank"),
    [
        ((5, 3, 1, 2), 37, 13),
        ((5, 3, 1, 2), 16, 40),
        ((7,), 16, 40),
        ((1, 1), 37, 13),
        ((2, 0, 4), 1, 1),
        ((8, 9, 2), 37, 13),
        ((70, 3), 9, 5),
    ],
)
def test_equals_the_torch_engine(start: Start, lengths: tuple[int, ...], states: int, rank: int) -> None:
    """Both ways of the link's gradient: few tokens for the rank, and many."""
    model, words = new_model(start, states, rank), random_words(lengths)
    log_p, lost = rank_hmm_log_prob(model, words, batch_of(lengths))
    found = gradients(model, log_p)
    double = new_model(start, states, rank).double()
    double.options = {"backend": "torch", "order": "rank"}
    expected_log_p = double.log_prob(words, lengths)
    torch.testing.assert_close(log_p, expected_log_p, rtol=1e-6, atol=1e-4)
    assert not bool(lost.any())
    assert relative_errors(found, gradients(double, expected_log_p)) < 1e-4


@pytest.mark.parametrize(("rank", "scale"), [(3, 0.0), (7, 0.0), (7, 0.7), (7, 2.0)])
@pytest.mark.parametrize("precision", ["highest", "medium"])
def test_all_sentences_have_probability_one(precision: Precision, rank: int, scale: float) -> None:
    """Also where all entries of a table are rounded the same way: with a scale of zero tables are uniform."""
    model = new_model("ranks", 11, rank, scale=scale, vocabulary=3).eval()
    sentences = torch.cartesian_prod(*[torch.arange(3, device=DEVICE)] * 3)
    lengths = (3,) * len(sentences)
    log_p, lost = rank_hmm_log_prob(model, sentences, batch_of(lengths, precision))
    assert not bool(lost.any())
    assert float(log_p.detach().exp().sum()) == pytest.approx(1, abs=3e-6)


@pytest.mark.parametrize("start", ["states", "ranks"])
def test_ranks_states_and_numbers_of_words_are_left_out(start: Start) -> None:
    """The kernels draw as the torch engine does, in the same order."""
    lengths = (4, 2, 6)
    settings = {"rank_dropout": 0.5, "state_dropout": 0.25, "word_dropout": 0.5}
    model, words = new_model(start, 40, 9), random_words(lengths)
    model.settings.update(settings)
    torch.manual_seed(5)
    log_p, lost = rank_hmm_log_prob(model, words, batch_of(lengths, "highest", 11))
    torch.manual_seed(5)
    model.options = {"backend": "torch"}
    expected = model.log_prob(words, lengths)
    assert not bool(lost.any())
    torch.testing.assert_close(log_p, expected, rtol=1e-6, atol=1e-4, check_dtype=False)
    assert relative_errors(gradients(model, log_p), gradients(model, expected)) < 1e-4
    whole = model.eval().log_prob(words, lengths)
    assert float((whole - expected).detach().abs().min()) > 1e-3
    model.settings.update(dict.fromkeys(settings, 0.0))
    assert torch.equal(model.train().log_prob(words, lengths), whole)


@pytest.mark.parametrize("start", ["states", "ranks"])
def test_entries_are_left_out_in_training(start: Start) -> None:
    states, rank, lengths, dropout = 40, 9, (4, 2, 6), 0.3
    model, words, seed = new_model(start, states, rank, dropout), random_words(lengths), seed_of(11)
    if start == "states":
        with torch.no_grad():
            model.starts.zero_()  # whose own dropout then changes nothing
    log_p, lost = rank_hmm_log_prob(model, words, Batch(ragged(lengths, DEVICE), "highest", seed))
    reached = model.to_states[:states]
    to_rank = model.from_states @ model.ranks.T
    to_rank = to_rank.masked_fill(~kept_by_torch(seed, 0, *to_rank.shape, dropout), -torch.inf).log_softmax(1)
    to_state = model.ranks @ reached.T
    to_state = to_state.masked_fill(~kept_by_torch(seed, 1, *to_state.shape, dropout), -torch.inf).log_softmax(1)
    model.eval()
    log_start, emission = (
        model._log_start(model.kept()),
        (model.emitters @ model.word_network(model.words).T).log_softmax(1),
    )
    if start == "ranks":
        to_state = torch.nn.functional.pad(to_state, (0, 1), value=-torch.inf)
    expected = RankSpaceHMM(log_start, to_rank, to_state, emission, backend="torch").log_prob(words, lengths)
    torch.testing.assert_close(log_p, expected, rtol=1e-6, atol=1e-4, check_dtype=False)
    assert not bool(lost.any())
    found, wanted = gradients(model, log_p), gradients(model, expected)
    for each in (found, wanted):
        each.pop("starts", None)  # dropped here and not there
    assert relative_errors(found, wanted) < 1e-4


@pytest.mark.parametrize("scale", [2.5, 12.0])
def test_peaked_parameters_are_right_or_lost(scale: float) -> None:
    lengths = (6, 3, 12, 12)
    model, words = new_model("ranks", 30, 12, scale=scale), random_words(lengths)
    log_p, lost = rank_hmm_log_prob(model, words, batch_of(lengths))
    double = new_model("ranks", 30, 12, scale=scale).double()
    expected = double.log_prob(words, lengths)
    limit = (1e-6 * expected.abs() * (scale**2)).clamp(min=1e-4)  # logits themselves are rounded in float32
    assert bool((lost | ((log_p - expected).abs() <= limit)).all())
    assert bool(lost.any()) == (scale > 10)
    found = gradients(model, log_p)
    assert all(bool(each.isfinite().all()) for each in found.values())
    if bool(lost.all()):
        assert not any(bool(each.any()) for each in found.values())


def test_products_of_bfloat16() -> None:
    """As the torch engine has them, but vectors are rounded as well, and Triton's interpreter cuts bits off."""
    model, lengths = new_model("ranks", 37, 13), (5, 3, 1, 4)
    words = random_words(lengths)
    log_p, lost = rank_hmm_log_prob(model, words, batch_of(lengths, "medium"))
    found = gradients(model, log_p)
    model.options = {"backend": "torch", "precision": "medium", "order": "rank"}
    expected = model.log_prob(words, lengths)
    assert not bool(lost.any())
    torch.testing.assert_close(log_p, expected, rtol=0, atol=3e-2, check_dtype=False)
    assert relative_errors(found, gradients(model, expected)) < 5e-2


@pytest.mark.parametrize(
    ("states", "rank", "length", "precision", "tolerance"),
    [
        (20, 7, 3, "highest", 1e-5),
        pytest.param(1003, 515, 31, "highest", 1e-4, marks=pytest.mark.gpu),
        pytest.param(1003, 515, 31, "high", 1e-2, marks=pytest.mark.gpu),
        pytest.param(1003, 515, 31, "medium", 2e-2, marks=pytest.mark.gpu),
    ],
)
def test_an_impossible_sentence_has_minus_infinity_and_gradient_zero(
    states: int, rank: int, length: int, precision: Precision, tolerance: float
) -> None:
    model, lengths = new_model("ranks", states, rank, scale=0.7), (length, length, 2)
    log_words = torch.randn(sum(lengths), rank, generator=torch.Generator().manual_seed(0)).to(DEVICE)
    log_words[ragged(lengths, DEVICE).token_place == 1] = -math.inf
    inputs = [model.from_states, model.to_states, model.ranks, log_words.requires_grad_()]

    def run(lengths: tuple[int, ...], log_words: Tensor) -> tuple[Tensor, Tensor]:
        return rank_chain_log_prob(*inputs[:3], None, log_words, batch_of(lengths, precision), 0.0)

    log_p, lost = run(lengths, log_words)
    assert (log_p == -math.inf).tolist() == [False, True, False]
    assert not bool(lost.any())
    found = torch.autograd.grad(log_p[[0, 2]].sum() + 0 * log_p[1].nan_to_num(neginf=0), inputs)
    others = log_words.detach()[ragged(lengths, DEVICE).token_place != 1].requires_grad_()
    alone, _ = run((length, 2), others)
    expected = torch.autograd.grad(alone.sum(), [*inputs[:3], others])
    for one, other in zip(found[:3], expected[:3], strict=True):
        assert float((one - other).norm() / other.norm()) < tolerance
    assert not bool(found[3][ragged(lengths, DEVICE).token_place == 1].any())


def test_residual_network() -> None:
    torch.manual_seed(0)
    network, rows = ResidualNetwork(9).to(DEVICE), torch.randn(31, 9, device=DEVICE, requires_grad=True)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    inputs, slopes = [rows, *network.parameters()], torch.randn(31, 9, device=DEVICE)
    found, expected = residual_network(network, rows, "highest"), network(rows)
    torch.testing.assert_close(found, expected)
    for one, other in zip(
        torch.autograd.grad(found, inputs, slopes), torch.autograd.grad(expected, inputs, slopes), strict=True
    ):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.gpu
@pytest.mark.parametrize("start", ["states", "ranks"])
@pytest.mark.parametrize(
    ("precision", "of_log_p", "of_gradients"), [("highest", 2e-4, 1e-4), ("high", 1e-2, 5e-2), ("medium", 1e-2, 5e-2)]
)
@pytest.mark.parametrize("lengths", [(40,) * 4, (40, 1, 17, 2, 33) * 20])
def test_precisions_at_some_size(
    start: Start, precision: Precision, of_log_p: float, of_gradients: float, lengths: tuple[int, ...]
) -> None:
    model = new_model(start, 2003, 1021, scale=0.25, size=256)
    words = random_words(lengths)
    log_p, lost = rank_hmm_log_prob(model, words, batch_of(lengths, precision))
    found = gradients(model, log_p)
    double = new_model(start, 2003, 1021, scale=0.25, size=256).double()
    double.options = {"backend": "torch", "order": "rank"}
    expected = double.log_prob(words, lengths)
    assert not bool(lost.any())
    assert float((log_p - expected).detach().abs().max()) < of_log_p
    assert relative_errors(found, gradients(double, expected)) < of_gradients


@pytest.mark.gpu
@pytest.mark.parametrize("scale", [1.5, 2.5, 6.0])
def test_peaked_parameters_at_some_size(scale: float) -> None:
    """Logits have a standard deviation of 2.8 times the square of the scale."""
    lengths = (33, 1, 2, 40, 17)
    model, words = new_model("ranks", 1003, 515, scale=scale), random_words(lengths)
    log_p, lost = rank_hmm_log_prob(model, words, batch_of(lengths))
    expected = new_model("ranks", 1003, 515, scale=scale).double().log_prob(words, lengths)
    limit = (1e-6 * expected.abs() * (scale**2)).clamp(min=1e-4)  # logits themselves are rounded in float32
    assert bool((lost | ((log_p - expected).abs() <= limit)).all())
    assert all(bool(each.isfinite().all()) for each in gradients(model, log_p).values())


@pytest.mark.gpu
@pytest.mark.parametrize("precision", ["highest", "medium"])
def test_the_same_bits_twice_and_in_a_graph_with_the_seed_of_the_moment(precision: Precision) -> None:
    model, lengths, seed = new_model("states", 500, 130, dropout=0.2), (9, 4, 9, 1), seed_of(1)
    words, batch = random_words(lengths), Batch(ragged(lengths, DEVICE), precision, seed)
    with torch.no_grad():
        model.starts.zero_()  # dropout of the start embeddings has a seed of its own

    def run() -> list[Tensor]:
        log_p, _ = rank_hmm_log_prob(model, words, batch)
        found = gradients(model, log_p)
        del found["starts"]  # dropped by a seed of their own
        return [log_p.detach(), *found.values()]

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        first, second = ([each.clone() for each in run()] for _ in range(2))
    torch.cuda.current_stream().wait_stream(stream)
    assert all(torch.equal(one, other) for one, other in zip(first, second, strict=True))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = run()
    seed.fill_(2)
    graph.replay()
    assert not torch.equal(captured[0], first[0])
    seed.fill_(1)
    graph.replay()
    assert all(torch.equal(one, other) for one, other in zip(first, captured, strict=True))
