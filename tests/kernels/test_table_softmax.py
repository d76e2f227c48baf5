"""Tables of probabilities from logits against the plain-torch functions beside the kernels."""

import math

import pytest
import torch

pytest.importorskip("triton", reason="needs triton")

from kernels.charts import DEVICE, rounding
from kernels.test_unwritten_memory import poisoned_memory
from rankspace.kernels import table_softmax
from rankspace.kernels.dropping import kept_by_torch, lots_by_torch
from rankspace.kernels.halves import halves
from rankspace.kernels.link_rows import normalised, normalised_by_torch
from rankspace.kernels.multiples import multiple_of
from rankspace.kernels.rectifying import (
    new_sums,
    passed_back,
    passed_back_by_torch,
    plus_rectified,
    plus_rectified_by_torch,
)
from rankspace.kernels.table_softmax import (
    TINY,
    softmax_rows,
    softmax_rows_backward,
    softmax_rows_backward_by_torch,
    softmax_rows_by_torch,
)

CLOSE = {"rtol": 3e-6, "atol": 0.0}  # exp of differences up to about 20
SIZES = [(1, 1), (3, 7), (5, 64), (2, 131), (3, 140)]
UNITS = [1, 1, 16, 1, 4]  # that divide their rows and the gaps of `poisoned`
DTYPES = [torch.float32, torch.bfloat16]


def random(*shape: int, scale: float = 1.0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(sum(shape))
    return (scale * torch.randn(shape, generator=generator)).to(DEVICE)


def seed_of(number: int) -> torch.Tensor:
    return torch.tensor(number, dtype=torch.int64, device=DEVICE)


def poisoned(num_rows: int, num_columns: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """A table whose rows have gaps between them; where their length is a multiple of something, they too."""
    gap = 3 if num_columns % 4 else multiple_of(num_columns)
    return torch.full((num_rows, num_columns + gap), math.nan, dtype=dtype, device=DEVICE)[:, :num_columns]


@pytest.fixture(params=[2**15, 32])
def widest(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that are held whole, and rows that are not."""
    monkeypatch.setattr(table_softmax, "WIDEST", request.param)


@pytest.mark.usefixtures("widest")
@pytest.mark.parametrize("dropout", [0.0, 0.3, 0.95])
@pytest.mark.parametrize("sizes", SIZES)
def test_softmax(sizes: tuple[int, int], dropout: float) -> None:
    logits, seed = random(*sizes, scale=3), seed_of(2**40 + 7)
    found, expected = poisoned(*sizes), poisoned(*sizes)
    softmax_rows(logits, found, seed, dropout, table=1, first_row=4)
    softmax_rows_by_torch(logits, expected, seed, dropout, table=1, first_row=4)
    torch.testing.assert_close(found, expected, **CLOSE)
    torch.testing.assert_close(found.sum(1), torch.ones_like(found[:, 0]))


@pytest.mark.usefixtures("widest")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("border", [0, 1, 33, 40])
def test_what_rows_sum_to_as_they_are_rounded(border: int, dtype: torch.dtype) -> None:
    logits, found = random(5, 40, scale=3), poisoned(5, 40).to(dtype)
    masses = torch.full((5, 2), math.nan, device=DEVICE)
    softmax_rows(logits, found, seed_of(0), masses=masses, border=border)
    expected = torch.stack([part.double().sum(1) for part in (found[:, :border], found[:, border:])], 1)
    torch.testing.assert_close(masses.double(), expected, rtol=1e-6, atol=1e-7)
    by_torch = torch.empty_like(masses)
    softmax_rows_by_torch(logits, torch.empty_like(found), seed_of(0), masses=by_torch, border=border)
    torch.testing.assert_close(masses, by_torch, rtol=1e-2, atol=1e-6)  # the interpreter cuts off where torch rounds


@pytest.mark.usefixtures("widest")
def test_a_row_that_would_lose_everything_keeps_all() -> None:
    logits, seed = random(64, 2), seed_of(5)
    lost = ~(lots_by_torch(seed, 0, 64, 2) >= round(0.9 * 2**16)).any(1)
    assert bool(lost.any())
    found = poisoned(64, 2)
    softmax_rows(logits, found, seed, 0.9)
    torch.testing.assert_close(found[lost], logits[lost].softmax(1), **CLOSE)
    assert bool((found[~lost] == 0).any())


@pytest.mark.usefixtures("widest")
def test_what_float32_cannot_hold_is_not_zero() -> None:
    logits = torch.zeros(2, 40, device=DEVICE)
    logits[0, 3], logits[1, 5] = -300.0, -math.inf
    found = poisoned(2, 40)
    softmax_rows(logits, found, seed_of(0))
    assert float(found[0, 3]) == TINY
    assert float(found[1, 5]) == 0


def test_entries_are_left_out_as_often_as_asked_and_by_seed_table_and_place() -> None:
    kept = kept_by_torch(seed_of(1), 0, 200, 500, 0.1)
    assert abs(float(kept.float().mean()) - 0.9) < 0.005  # five standard deviations
    for other in (kept_by_torch(seed_of(2), 0, 200, 500, 0.1), kept_by_torch(seed_of(1), 1, 200, 500, 0.1)):
        assert abs(float((kept ^ other).float().mean()) - 0.18) < 0.01
    assert torch.equal(kept_by_torch(seed_of(1), 0, 3, 500, 0.1, first_row=10), kept[10:13])


@pytest.mark.usefixtures("widest")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("peak", [1.0, 20.0])
@pytest.mark.parametrize("sizes", SIZES)
def test_softmax_backward(sizes: tuple[int, int], peak: float, dtype: torch.dtype) -> None:
    logits, slopes = random(*sizes, scale=peak).requires_grad_(), random(*sizes, scale=2).to(dtype)
    probabilities = poisoned(*sizes, dtype)
    probabilities.copy_(logits.detach().softmax(1))
    found, expected = poisoned(*sizes, dtype), poisoned(*sizes, dtype)
    softmax_rows_backward(slopes, probabilities, found)
    softmax_rows_backward_by_torch(slopes.float(), probabilities, expected)
    off = max(1e-5, rounding(dtype))
    torch.testing.assert_close(found, expected, rtol=off, atol=0.1 * off)
    (by_torch,) = torch.autograd.grad(logits.softmax(1), logits, slopes.float())
    torch.testing.assert_close(found.float(), by_torch, rtol=off, atol=off)


@pytest.mark.usefixtures("widest")
def test_what_is_alike_in_a_row_moves_no_logit() -> None:
    """Though rounded rows sum to more or less than one: counts over p are alike but for a hundredth."""
    alike, apart = 100.0, random(30, 70)
    probabilities = random(30, 70, scale=3).softmax(1).bfloat16()
    assert float((probabilities.sum(1, dtype=torch.float32) - 1).abs().max()) > 2**-10
    found = poisoned(30, 70)
    softmax_rows_backward(torch.full_like(apart, alike), probabilities, found)
    assert float(found.abs().max()) < 1e-6 * alike
    softmax_rows_backward(apart + alike, probabilities, found)
    expected = poisoned(30, 70)
    softmax_rows_backward(apart, probabilities, expected)
    assert float((found - expected).abs().max()) < 1e-6 * alike


@pytest.mark.parametrize("both", [False, True])
@pytest.mark.parametrize("sizes", [(1, 1), (3, 7), (65, 130)])
@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_of_a_link_sum_to_one(sizes: tuple[int, int], both: bool, dtype: torch.dtype) -> None:
    table, off = random(*sizes).exp(), rounding(dtype)
    found, turned = normalised(table, dtype, both)
    expected, expected_turned = normalised_by_torch(table, dtype, both)
    torch.testing.assert_close(found, expected, rtol=off, atol=0.0)
    torch.testing.assert_close(found.float().sum(1), torch.ones_like(table[:, 0]), rtol=off, atol=0.0)
    if both:
        torch.testing.assert_close(turned, expected_turned, rtol=off, atol=0.0)
    else:
        assert turned is None


@pytest.mark.parametrize("sizes", [(3, 7), (70, 65)])
def test_rows_of_a_link_are_written_everywhere(sizes: tuple[int, int]) -> None:
    table = random(*sizes).exp()
    with poisoned_memory():
        found = normalised(table, torch.float32, both=True)
    for one, other in zip(found, normalised_by_torch(table, torch.float32, both=True), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=0.0)


def test_units_of_lengths() -> None:
    assert [multiple_of(size) for size in (1, 2, 12, 13500, 1000, 48, 4096, 0)] == [1, 2, 4, 4, 8, 16, 16, 16]
    assert multiple_of(13500, 13504, 13504) == 4
    assert multiple_of(64, 7) == 1
    assert [multiple_of(sizes[1], poisoned(*sizes).stride(0)) for sizes in SIZES] == UNITS


@pytest.mark.parametrize("sizes", [(1, 1), (3, 7), (300, 33), (40, 24)])
@pytest.mark.parametrize("dtype", DTYPES)
def test_residual_sums(sizes: tuple[int, int], dtype: torch.dtype) -> None:
    y, x = random(*sizes).to(dtype), random(*sizes).roll(1).to(dtype)
    torch.testing.assert_close(plus_rectified(y, x), plus_rectified_by_torch(y, x), rtol=rounding(dtype), atol=0.0)
    for second, source in ((None, None), (x, None), (None, x), (x, y)):
        sums = new_sums(y, 2).fill_(torch.nan)
        found = passed_back(y, second, source, sums[0], dtype)
        expected = passed_back_by_torch(y, second, source, sums[1], dtype)
        for one, other in zip(found, expected, strict=True):
            if other is not None:
                torch.testing.assert_close(one, other, rtol=rounding(other.dtype), atol=1e-5)
        torch.testing.assert_close(sums[0], sums[1], rtol=1e-5, atol=1e-5)  # of numbers of either sign
        torch.testing.assert_close(sums[1].sum(0), expected.passed.sum(0, dtype=torch.float32), rtol=0.02, atol=0.05)


@pytest.mark.parametrize("sizes", [(1, 1), (3, 7), (300, 33)])
def test_residual_sums_in_halves(sizes: tuple[int, int]) -> None:
    y, x = random(*sizes), random(*sizes).roll(1)
    for second, source in ((None, None), (x, None), (None, x), (x, y)):
        sums = new_sums(y, 2).fill_(torch.nan)
        expected = passed_back_by_torch(y, second, source, sums[0], torch.float32)
        halved = passed_back(y, second, source, sums[1], torch.float32, halved=True)
        assert halved.low is not None
        whole = halved.passed.double() + halved.low.double()
        torch.testing.assert_close(whole, expected.passed.double(), rtol=2.0**-14, atol=0.0)
        torch.testing.assert_close(sums[1], sums[0], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_same_bits_twice(dtype: torch.dtype) -> None:
    """Whatever memory held: of sums over rows in parts, and of halves."""
    y, x = random(300, 33).to(dtype), random(300, 33).roll(1).to(dtype)

    def run() -> list[torch.Tensor]:
        sums = new_sums(y, 2)
        passed = [*passed_back(y, x, y, sums[0], dtype), *passed_back(y, x, x, sums[1], dtype, halved=True)]
        return [plus_rectified(y, x), *(each for each in passed if each is not None), sums, *halves(y.float())]

    once = run()
    with poisoned_memory():
        again = run()
    assert len(once) == 9
    for one, other in zip(once, again, strict=True):
        assert not bool(one.isnan().any())
        assert torch.equal(one, other)


@pytest.mark.gpu
def test_wide_tables_in_bfloat16() -> None:
    logits, seed = random(7, 32771, scale=3), seed_of(3)
    found, expected = (torch.empty(7, 32776, dtype=torch.bfloat16, device=DEVICE)[:, :32771] for _ in range(2))
    softmax_rows(logits, found, seed, 0.1)
    softmax_rows_by_torch(logits, expected, seed, 0.1)
    torch.testing.assert_close(found.float(), expected.float(), rtol=2**-6, atol=0.0)  # one place of bfloat16
    of_found, of_expected = torch.empty_like(logits), torch.empty_like(logits)
    softmax_rows_backward(logits, expected, of_found)
    softmax_rows_backward_by_torch(logits, expected, of_expected)
    assert float((of_found - of_expected).norm() / of_expected.norm()) < 1e-5
