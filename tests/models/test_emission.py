"""Emissions in portions against one softmax over the whole vocabulary."""

from typing import Any

import pytest
import torch
from torch import Tensor

from rankspace.errors import RankspaceError
from rankspace.models.emission import log_emission

SYMBOLS, SIZE, VOCABULARY, BATCH = 3, 4, 10, 2
PORTIONS = [1, 9, 21, 12, 10**6]  # 1, 1, 3, 2 words or all of them at a time: 3 does not divide 10


def normal(*shape: int) -> Tensor:
    return torch.randn(shape, dtype=torch.float64).requires_grad_()


def one_vocabulary() -> tuple[Tensor, ...]:
    torch.manual_seed(0)
    words = torch.tensor([0, 2, 3, 9])
    return normal(SYMBOLS, SIZE), normal(VOCABULARY, SIZE), normal(VOCABULARY), words


def words_of_each() -> tuple[Tensor, ...]:
    torch.manual_seed(1)
    words = torch.tensor([[8, 2, 3], [9, 2, 0]])
    return normal(BATCH, SYMBOLS, SIZE), normal(VOCABULARY, SIZE), normal(VOCABULARY), words


def vocabulary_of_each() -> tuple[Tensor, ...]:
    torch.manual_seed(2)
    words = torch.tensor([[8, 2, 3], [9, 2, 0]])
    return normal(BATCH, SYMBOLS, SIZE), normal(BATCH, VOCABULARY, SIZE), normal(BATCH, VOCABULARY), words


def plain(hidden: Tensor, vocabulary: Tensor, bias: Tensor, words: Tensor) -> Tensor:
    whole = (hidden @ vocabulary.mT + bias.unsqueeze(-2)).log_softmax(-1)
    return whole.gather(-1, words.unsqueeze(-2).expand(*whole.shape[:-1], -1))


@pytest.mark.parametrize("make", [one_vocabulary, words_of_each, vocabulary_of_each])
@pytest.mark.parametrize("portion", PORTIONS)
def test_portions_give_values_and_gradients_of_the_softmax(make: Any, portion: int) -> None:
    *weights, words = make()
    found, expected = log_emission(*weights, words, portion), plain(*weights, words)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    slopes = torch.randn_like(found)
    for one, other in zip(
        torch.autograd.grad(found, weights, slopes), torch.autograd.grad(expected, weights, slopes), strict=True
    ):
        torch.testing.assert_close(one, other, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("make", [one_vocabulary, words_of_each, vocabulary_of_each])
@pytest.mark.parametrize("portion", [21, 10**6])
def test_gradcheck(make: Any, portion: int) -> None:
    *weights, words = make()
    assert torch.autograd.gradcheck(lambda *each: log_emission(*each, words, portion), weights)


@pytest.mark.parametrize("portion", [21, 10**6])
def test_a_second_backward_pass_finds_what_the_first_did(portion: int) -> None:
    *weights, words = words_of_each()
    found = log_emission(*weights, words, portion)
    slopes = torch.randn_like(found)
    first, second = (torch.autograd.grad(found, weights, slopes, retain_graph=True) for _ in range(2))
    assert all(one.equal(other) for one, other in zip(first, second, strict=True))


@pytest.mark.parametrize("make", [one_vocabulary, words_of_each, vocabulary_of_each])
def test_all_words(make: Any) -> None:
    hidden, vocabulary, bias, _ = make()
    every = torch.arange(VOCABULARY).expand(*hidden.shape[:-2], VOCABULARY)
    expected = plain(hidden, vocabulary, bias, every)
    torch.testing.assert_close(log_emission(hidden, vocabulary, bias), expected)
    torch.testing.assert_close(log_emission(hidden, vocabulary, bias, every, 7), expected)
    torch.testing.assert_close(log_emission(hidden, vocabulary), plain(hidden, vocabulary, 0 * bias, every))


def test_no_words() -> None:
    hidden, vocabulary, bias, words = one_vocabulary()
    assert log_emission(hidden, vocabulary, bias, words[:0]).shape == (SYMBOLS, 0)


def test_a_bias_of_minus_infinity_leaves_a_word_out() -> None:
    hidden, vocabulary, bias, words = vocabulary_of_each()
    bias = bias.detach().clone()
    bias[0, 4:8] = bias[1, :3] = -torch.inf
    bias.requires_grad_()
    found, expected = log_emission(hidden, vocabulary, bias, words, 12), plain(hidden, vocabulary, bias, words)
    torch.testing.assert_close(found, expected)
    assert (found[1, :, 1:] == -torch.inf).all()
    used = found.isfinite()
    slopes = torch.randn_like(found).where(used, 0)
    weights = [hidden, vocabulary, bias]
    for one, other in zip(
        torch.autograd.grad(found, weights, slopes), torch.autograd.grad(expected, weights, slopes), strict=True
    ):
        torch.testing.assert_close(one, other)


def test_probabilities_of_all_words_sum_to_one_in_float32_in_portions() -> None:
    torch.manual_seed(0)
    hidden, vocabulary = torch.randn(20, 16), torch.randn(5000, 16)
    found = log_emission(hidden, vocabulary, None, torch.arange(5000), 20 * 333)
    torch.testing.assert_close(found.exp().sum(1), torch.ones(20), rtol=0, atol=1e-5)  # float32, 5000 terms


@pytest.mark.parametrize(("portion", "expected"), [(50 * 2999, 3000 * 4), (50 * 3000, 50 * 3000)])
def test_a_table_over_the_vocabulary_is_kept_if_it_is_one_portion(portion: int, expected: int) -> None:
    kept: list[int] = []
    torch.manual_seed(0)
    hidden, vocabulary = (torch.randn(size, 4, requires_grad=True) for size in (50, 3000))
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: kept.append(tensor.numel()) or tensor, lambda x: x):
        found = log_emission(hidden, vocabulary, None, torch.tensor([5, 7]), portion)
    assert max(kept) == expected
    found.sum().backward()


def test_autocast_does_not_change_what_is_normalised() -> None:
    hidden, vocabulary, bias, words = (tensor.detach() for tensor in one_vocabulary())
    hidden, vocabulary, bias = (tensor.float().requires_grad_() for tensor in (hidden, vocabulary, bias))
    expected = torch.autograd.grad(log_emission(hidden, vocabulary, bias, words).sum(), (hidden, vocabulary, bias))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = log_emission(hidden, vocabulary, bias, words, 9)
        again = torch.autograd.grad(found.sum(), (hidden, vocabulary, bias))
    assert found.dtype == torch.float32
    for one, other in zip(again, expected, strict=True):
        torch.testing.assert_close(one, other)


def test_second_derivatives_are_refused() -> None:
    hidden, vocabulary, bias, words = one_vocabulary()
    with pytest.raises(RankspaceError) as caught:
        torch.autograd.grad(log_emission(hidden, vocabulary, bias, words).sum(), hidden, create_graph=True)
    assert str(caught.value) == "log_prob: second derivatives need plain operations; give backend='autograd'."
