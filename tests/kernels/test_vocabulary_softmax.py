"""Log-probabilities of words under a softmax over the vocabulary: kernels against their twins, and the whole function
against `emission.log_emission`."""

import math

import pytest
import torch

pytest.importorskip("triton", reason="needs triton")

from kernels.charts import DEVICE
from rankspace.kernels.vocabulary_softmax import (
    LogitSlopes,
    Sums,
    copy_rows,
    copy_rows_by_torch,
    in_order,
    logit_slopes,
    logit_slopes_by_torch,
    normalisers,
    sum_portion,
    sum_portion_by_torch,
)
from rankspace.models import fast_emission
from rankspace.models.emission import log_emission
from rankspace.models.fast_emission import log_words

CLOSE = {"rtol": 1e-5, "atol": 1e-5}
SIZES = [(1, 1), (70, 3), (9, 131), (11, 24)]  # words, symbols


def random(*shape: int, scale: float = 1.0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(sum(shape))
    return (scale * torch.randn(shape, generator=generator)).to(DEVICE)


def random_words(num_words: int, count: int) -> torch.Tensor:
    return torch.randint(num_words, (count,), generator=torch.Generator().manual_seed(count)).to(DEVICE)


def random_bias(num_words: int, biased: bool) -> torch.Tensor | None:
    """The last word is left out, if there is another."""
    bias = random(num_words)
    if num_words > 1:
        bias[-1] = -math.inf
    return bias if biased else None


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("num_programs", [1, 16])
@pytest.mark.parametrize("sizes", SIZES)
def test_sums_of_a_portion(sizes: tuple[int, int], num_programs: int, biased: bool) -> None:
    logits, bias = random(*sizes, scale=20), random_bias(sizes[0], biased)
    found, expected = sum_portion(logits, bias, num_programs), sum_portion_by_torch(logits, bias)
    torch.testing.assert_close(normalisers(found), normalisers(expected), **CLOSE)
    whole = logits if bias is None else logits + bias[:, None]
    torch.testing.assert_close(normalisers(found), whole.logsumexp(0), **CLOSE)


def test_parts_in_which_nothing_is_possible() -> None:
    nothing = torch.full((2, 3), -math.inf, device=DEVICE)
    sums = [sum_portion(each, None) for each in (nothing, random(4, 3), nothing)]
    together = Sums(*(torch.cat(each) for each in zip(*sums, strict=True)))
    torch.testing.assert_close(normalisers(together), random(4, 3).logsumexp(0), **CLOSE)


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("sizes", SIZES)
def test_rows_of_wanted_words(sizes: tuple[int, int], biased: bool) -> None:
    logits, bias, words = random(*sizes), random_bias(sizes[0], biased), random_words(sizes[0] + 9, 30)
    found, expected = (torch.full((30, sizes[1]), math.nan, device=DEVICE) for _ in range(2))
    copy_rows(logits, bias, words, 5, found)
    copy_rows_by_torch(logits, bias, words, 5, expected)
    assert torch.equal(found.nan_to_num(99.0), expected.nan_to_num(99.0))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("peak", [1.0, 20.0])
@pytest.mark.parametrize("sizes", SIZES)
def test_slopes_of_logits(sizes: tuple[int, int], peak: float, biased: bool, dtype: torch.dtype) -> None:
    logits, bias, words = random(*sizes, scale=peak), random_bias(sizes[0], biased), random_words(sizes[0] + 9, 30)
    slopes = random(30, sizes[1])
    biases = 0 if bias is None else bias[:, None]
    given = LogitSlopes((logits + biases).logsumexp(0), slopes, slopes.sum(0), in_order(words))
    found, expected = (torch.full(sizes, math.nan, dtype=dtype, device=DEVICE) for _ in range(2))
    sums = logit_slopes(logits, bias, given, 5, found)
    expected_sums = logit_slopes_by_torch(logits, bias, given, 5, expected)
    torch.testing.assert_close(sums, expected_sums, rtol=1e-4, atol=1e-4)  # of either sign
    torch.testing.assert_close(found, expected, rtol=1e-5 if dtype == torch.float32 else 2**-7, atol=1e-5)


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("portion", [1, 2**27])
def test_the_whole_equals_log_emission(portion: int, biased: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fast_emission, "PORTION", portion)
    hidden, vocabulary = random(7, 5).requires_grad_(), random(301, 5).requires_grad_()
    bias = random_bias(301, biased)
    inputs = [hidden, vocabulary, *([] if bias is None else [bias.requires_grad_()])]
    words = random_words(300, 40)
    found = log_words(hidden, vocabulary, bias, words, "highest")
    expected = log_emission(hidden, vocabulary, bias)[:, words].T
    torch.testing.assert_close(found, expected, **CLOSE)
    slopes = random(40, 7)
    gradients = torch.autograd.grad(found, inputs, slopes)
    for one, other in zip(gradients, torch.autograd.grad(expected, inputs, slopes), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.gpu
@pytest.mark.parametrize("precision", ["highest", "high", "medium"])
def test_probabilities_sum_to_one_as_computed(precision: str) -> None:
    hidden, vocabulary = random(70, 64, scale=2), random(1000, 64)
    found = log_words(hidden, vocabulary, None, torch.arange(1000, device=DEVICE), precision)  # type: ignore[arg-type]
    total = found.double().exp().sum(0)
    torch.testing.assert_close(total, torch.ones_like(total), rtol=1e-5, atol=0.0)


@pytest.mark.gpu
@pytest.mark.parametrize(("precision", "error"), [("highest", 1e-4), ("high", 5e-3), ("medium", 2e-2)])
def test_precisions(precision: str, error: float) -> None:
    hidden, vocabulary = random(301, 128).requires_grad_(), random(2003, 128, scale=0.3).requires_grad_()
    words, slopes = random_words(2003, 99), random(99, 301)

    def run() -> list[torch.Tensor]:
        found = log_words(hidden, vocabulary, None, words, precision)  # type: ignore[arg-type]
        return [found.detach(), *torch.autograd.grad(found, (hidden, vocabulary), slopes)]

    double = [each.detach().double().requires_grad_() for each in (hidden, vocabulary)]
    exact = log_emission(*double)[:, words].T
    expected = [exact.detach(), *torch.autograd.grad(exact, double, slopes.double())]
    first, second = run(), run()
    for one, other, reference in zip(first, second, expected, strict=True):
        assert torch.equal(one, other)
        assert float((one - reference).norm() / reference.norm()) < error
