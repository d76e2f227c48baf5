"""log p of the HMM with a full transition matrix by kernels, against the torch engine."""

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton", reason="needs triton")

from kernels.charts import DEVICE
from kernels.test_chain_model import VOCABULARY, batch_of, gradients, random_words, relative_errors, seed_of
from kernels.test_padded_chains import on_device, padded
from rankspace.errors import RankspaceError
from rankspace.inference.links import Precision
from rankspace.models.fast_hmm import dense_chain_log_prob
from rankspace.models.hmm import NeuralHMM


def new_hmm(
    states: int, size: int = 8, dropout: float = 0.0, scale: float = 1.0, vocabulary: int = VOCABULARY
) -> NeuralHMM:
    torch.manual_seed(states)
    model = NeuralHMM(vocabulary, states, size, dropout)
    with torch.no_grad():
        model.transition.to_state[0].weight.mul_(scale)
        model.emission.words.weight.mul_(scale)
        model.emission.words.bias.normal_()
    return model.to(DEVICE)


def by_torch(model: NeuralHMM, words: Tensor, lengths: tuple[int, ...]) -> Tensor:
    model.options = {**model.options, "backend": "torch"}
    return model.log_prob(words, lengths)


@pytest.mark.parametrize(
    ("lengths", "states"), [((5, 3, 1, 2), 37), ((4, 0, 7), 16), ((1, 1), 37), ((2, 3), 1), ((2,), 5), ((70, 3), 5)]
)
def test_equals_the_torch_engine(lengths: tuple[int, ...], states: int) -> None:
    model, words = new_hmm(states), random_words(lengths)
    log_p, lost = model.log_prob_by_kernels(words, batch_of(lengths, model.precision))
    found = gradients(model, log_p)
    double = new_hmm(states).double()
    expected = by_torch(double, words, lengths)
    torch.testing.assert_close(log_p, expected, rtol=1e-6, atol=1e-4)
    assert not bool(lost.any())
    assert relative_errors(found, gradients(double, expected)) < 1e-4


def test_products_of_bfloat16() -> None:
    """As the torch engine has them, but vectors are rounded as well, and Triton's interpreter cuts bits off. Of weights
    before a rectifier one whose input rounds to the other side of zero has another gradient."""
    model, lengths = new_hmm(37), (4, 1, 3)
    words = random_words(lengths)
    model.options = {"precision": "medium"}
    log_p, lost = model.log_prob_by_kernels(words, batch_of(lengths, model.precision))
    found = gradients(model, log_p)
    expected = by_torch(model, words, lengths)
    assert not bool(lost.any())
    torch.testing.assert_close(log_p, expected, rtol=0, atol=3e-2, check_dtype=False)
    slopes = gradients(model, expected)
    for name in ("emission.words.weight", "emission.words.bias"):
        assert float((found[name] - slopes[name]).norm() / slopes[name].norm()) < 5e-2, name


@pytest.mark.parametrize("precision", ["highest", "medium"])
def test_all_sentences_have_probability_one(precision: Precision) -> None:
    model = new_hmm(11, vocabulary=3).eval()
    sentences = torch.cartesian_prod(*[torch.arange(3, device=DEVICE)] * 3)
    model.options = {"precision": precision}
    log_p, lost = model.log_prob_by_kernels(sentences, batch_of((3,) * len(sentences), precision))
    assert not bool(lost.any())
    assert float(log_p.detach().exp().sum()) == pytest.approx(1, abs=3e-6)


def test_what_lies_behind_the_end_changes_nothing() -> None:
    lengths = (4, 1, 2, 1)
    model, words = new_hmm(37), random_words(lengths)
    log_p, _ = model.log_prob_by_kernels(words, batch_of(lengths, model.precision))
    expected = gradients(model, log_p)
    for other in (0, 1):
        found, lost = model.padded_log_prob(padded(words, lengths, 4 + other, other), on_device(lengths), seed_of(0))
        torch.testing.assert_close(found, log_p, rtol=1e-6, atol=1e-6)
        assert not bool(lost.any())
        assert relative_errors(gradients(model, found), expected) < 1e-5


def test_the_same_bits_twice() -> None:
    lengths = (4, 2, 3)
    model, words = new_hmm(37), random_words(lengths)
    runs = [model.log_prob_by_kernels(words, batch_of(lengths, model.precision))[0] for _ in range(2)]
    assert torch.equal(*runs)
    first, second = (gradients(model, log_p) for log_p in runs)
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_states_are_left_out_in_training() -> None:
    """By torch's generator, as in the torch engine."""
    lengths = (4, 2)
    model, words = new_hmm(20, dropout=0.5), random_words(lengths)
    torch.manual_seed(5)
    found, _ = model.log_prob_by_kernels(words, batch_of(lengths, model.precision))
    torch.manual_seed(5)
    expected = by_torch(model, words, lengths)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-4, check_dtype=False)
    slopes = gradients(model, found)["states"]
    assert int((slopes != 0).any(1).sum()) == 10
    torch.testing.assert_close(slopes, gradients(model, expected)["states"], rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize(("scale", "loses"), [(8.0, False), (60.0, True)])
def test_peaked_parameters_are_right_or_redone(scale: float, loses: bool) -> None:
    lengths = (6, 3, 12)
    model, words = new_hmm(30, scale=scale), random_words(lengths)
    log_p, lost = model.log_prob_by_kernels(words, batch_of(lengths, model.precision))
    assert bool(lost.any()) == loses
    model.options = {"backend": "triton"}
    expected = new_hmm(30, scale=scale).double().log_prob(words, lengths)
    torch.testing.assert_close(model.log_prob(words, lengths), expected, rtol=1e-3, atol=1e-3, check_dtype=False)
    assert all(bool(each.isfinite().all()) for each in gradients(model, log_p).values())


@pytest.mark.parametrize("is_padded", [False, True])
def test_a_start_that_has_what_the_first_word_has_not_is_lost(is_padded: bool) -> None:
    start = torch.tensor([0.0, -160.0], device=DEVICE).softmax(0)
    log_words = torch.tensor([[-150.0, 0.0], [0.0, 0.0]], device=DEVICE, requires_grad=True)
    states, true_lengths = torch.zeros(2, 1, device=DEVICE), torch.tensor([2], device=DEVICE)
    batch = batch_of((2,), true_lengths=true_lengths if is_padded else None)
    log_p, lost = dense_chain_log_prob(states, states, start, log_words, batch)
    log_p.sum().backward()
    assert lost.tolist() == [True]


def test_an_impossible_word_is_minus_infinity_and_has_no_gradient() -> None:
    lengths = (3, 2)
    model, words = new_hmm(9), random_words(lengths)
    impossible = int(words[0, 1])
    words[1] = (impossible + 1) % VOCABULARY
    with torch.no_grad():
        model.emission.words.bias[impossible] = -torch.inf
    log_p, lost = model.log_prob_by_kernels(words, batch_of(lengths, model.precision))
    assert log_p.isfinite().tolist() == [False, True]
    assert not bool(lost.any())
    assert all(bool(each.isfinite().all()) for each in gradients(model, log_p[1:]).values())


def test_when_kernels_run() -> None:
    model = new_hmm(9)
    assert model.can_be_captured(DEVICE)
    model.options = {"backend": "torch"}
    assert not model.can_be_captured(DEVICE)
    model.options = {"backend": "triton", "order": "rank"}
    with pytest.raises(RankspaceError, match=r"^hmm: backend is 'triton', but its kernels run in state order "):
        model.log_prob(random_words((2,)), (2,))


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("precision", "of_log_p", "of_gradients"), [("highest", 2e-4, 1e-3), ("high", 2e-2, 5e-2), ("medium", 5e-2, 1e-1)]
)
def test_precisions_at_some_size(precision: Precision, of_log_p: float, of_gradients: float) -> None:
    """Networks among the weights: a rectifier whose input rounds to the other side of zero has another gradient."""
    lengths = (40, 1, 17, 2, 33) * 3
    model, words = new_hmm(1003, 64), random_words(lengths)
    model.options = {"precision": precision}
    found, lost = model.padded_log_prob(padded(words, lengths, 41, 0), on_device(lengths), seed_of(0))
    slopes = gradients(model, found)
    double = new_hmm(1003, 64).double()
    expected = by_torch(double, words, lengths)
    assert not bool(lost.any())
    assert float((found - expected).detach().abs().max()) < of_log_p
    assert relative_errors(slopes, gradients(double, expected)) < of_gradients
