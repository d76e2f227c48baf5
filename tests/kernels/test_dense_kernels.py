"""Each kernel of trees with a full rule tensor against the plain-torch function beside it."""

import math
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton", reason="needs triton")

from kernels.dense_charts import DEVICE, filled_chart, random_above, random_rho, up_to
from rankspace.kernels.dense_chart import DenseChart, row_of, spans_of
from rankspace.kernels.dense_links import link_slopes, link_slopes_by_torch
from rankspace.kernels.dense_outside import dense_outside_sums, dense_outside_sums_by_torch
from rankspace.kernels.dense_pairs import pair_sums, pair_sums_by_torch
from rankspace.kernels.dense_spans import span_vectors, span_vectors_by_torch
from rankspace.kernels.scales import ZERO

CLOSE = {"rtol": 1e-5, "atol": 0.0}  # sums of positive terms: rounding alone, in another order
# Nonterminals below, at and above the size of a tile; ragged layouts, and padded ones with true lengths beside them.
CASES: list[tuple[int, Sequence[int], Sequence[int] | None]] = [
    (1, (4, 3), None),
    (3, (5, 1, 2, 4), None),
    (3, (5, 5, 5, 5), (5, 4, 2, 1)),
    (16, (4,), None),
    (35, (4,), None),
]
cases = pytest.mark.parametrize(("size", "lengths", "true_lengths"), CASES)


@cases
def test_pair_sums(size: int, lengths: Sequence[int], true_lengths: Sequence[int] | None) -> None:
    expected = filled_chart(size, lengths, true_lengths)
    for width in range(3, expected.rows.longest + 1):
        found = up_to(expected, width)
        pair_sums(found, width)
        torch.testing.assert_close(found.pairs[found.wider(width)], expected.pairs[found.wider(width)], **CLOSE)
        rows = found.rows.wide(width)
        assert torch.equal(found.base[rows], expected.base[rows])


def test_more_splits_than_a_program_takes_at_a_time() -> None:
    length = 20
    expected = filled_chart(1, (length,))
    found = up_to(expected, length)
    pair_sums(found, length)
    torch.testing.assert_close(found.pairs[-1], expected.pairs[-1], **CLOSE)
    assert torch.equal(found.base, expected.base)


@cases
def test_span_vectors(size: int, lengths: Sequence[int], true_lengths: Sequence[int] | None) -> None:
    expected = filled_chart(size, lengths, true_lengths)
    for width in range(2, expected.rows.longest + 1):
        found = up_to(expected, width)
        if width > 2:
            pair_sums_by_torch(found, width)
        span_vectors(found, random_rho(found, width), width)
        wide, rows = found.rows.wide(width), found.rows.spans(width)
        torch.testing.assert_close(found.spans[wide], expected.spans[wide], **CLOSE)
        assert torch.equal(found.exponent[rows], expected.exponent[rows])
        assert not bool(found.lost.any())


def test_behind_the_end_of_a_sentence_is_nothing() -> None:
    chart = filled_chart(3, (4, 4), (2, 4))
    found = up_to(chart, 3)
    found.spans[:] = found.spans.nan_to_num(1.0)
    for width in (3, 4):
        pair_sums(found, width)
        span_vectors(found, random_rho(found, width), width)
    for width in (2, 3, 4):
        for span in spans_of(chart.rows, width):
            if span.place == 0 and span.end > 2:
                row = row_of(chart.rows, span)
                assert int(found.exponent[row]) == ZERO.value
                assert not bool(found.spans[row - chart.rows.num_tokens].any())
                assert width < 3 or not bool(found.pairs[row - chart.rows.offsets[3]].any())
    assert not bool(found.lost.any())


def low_rho(chart: DenseChart, power: int, width: int = 2) -> Tensor:
    """An entry of one number, in the first span of the sentence at place 1."""
    rho = torch.ones(chart.rows.num_spans(width), chart.size, device=DEVICE)
    rho[1, 2] = 2.0**power
    return rho


@pytest.mark.parametrize(("power", "lost"), [(-102, 0), (-104, 1)])
@pytest.mark.parametrize("kernel", [span_vectors, span_vectors_by_torch])
def test_entries_that_are_too_low_mark_their_sentence(kernel: object, power: int, lost: int) -> None:
    chart = up_to(filled_chart(3, (3, 3, 3)), 2)
    chart.base[:] = 3
    assert callable(kernel)
    kernel(chart, low_rho(chart, power), 2)
    assert chart.lost.tolist() == [0, lost, 0]


@pytest.mark.parametrize("kernel", [span_vectors, span_vectors_by_torch])
def test_of_a_whole_sentence_no_entry_is_judged(kernel: object) -> None:
    chart = up_to(filled_chart(3, (3, 3, 3), (3, 2, 3)), 2)
    chart.base[:] = 3
    assert callable(kernel)
    kernel(chart, low_rho(chart, -120), 2)
    assert not bool(chart.lost.any())
    kernel(chart, 0 * low_rho(chart, 0), 2)  # zero where something is possible, whole or not
    assert chart.lost.tolist() == [1, 1, 1]


def test_what_has_parts_of_nothing_is_nothing_and_not_lost() -> None:
    chart = up_to(filled_chart(3, (3, 3)), 2)
    chart.exponent[: chart.rows.num_tokens] = ZERO.value
    chart.links.zero_()
    chart.base[chart.rows.wide(2)] = 2 * ZERO.value
    span_vectors(chart, torch.zeros(chart.rows.num_spans(2), 3, device=DEVICE), 2)
    pair_sums(chart, 3)
    span_vectors(chart, torch.zeros(2, 3, device=DEVICE), 3)
    assert bool((chart.exponent == ZERO.value).all())
    assert not bool(chart.lost.any())
    assert not bool(chart.spans.any())


@cases
def test_outside_sums(size: int, lengths: Sequence[int], true_lengths: Sequence[int] | None) -> None:
    """Up to cancellation, for there are both signs."""
    chart = filled_chart(size, lengths, true_lengths)
    for width in range(2, chart.rows.longest + 1):
        found, expected = random_above(chart), random_above(chart)
        rows = chart.rows.wide(width)
        found.rho[rows] = math.nan
        dense_outside_sums(chart, found, width)
        dense_outside_sums_by_torch(chart, expected, width)
        largest = expected.rho[rows].abs().amax(1, keepdim=True)
        assert bool(((found.rho[rows] - expected.rho[rows]).abs() <= 1e-5 * largest).all())


def test_more_parents_than_a_program_takes_at_a_time() -> None:
    chart = filled_chart(2, (11,))
    found, expected = random_above(chart), random_above(chart)
    dense_outside_sums(chart, found, 2)
    dense_outside_sums_by_torch(chart, expected, 2)
    largest = expected.rho.abs().amax(1, keepdim=True)
    assert bool(((found.rho - expected.rho).abs() <= 1e-5 * largest).all())


def test_derivatives_of_what_is_zero_are_left_out() -> None:
    chart = filled_chart(3, (4,))
    chart.spans[:, 1] = 0
    above = random_above(chart)
    dense_outside_sums(chart, above, 2)
    of_two = above.rho[chart.rows.wide(2)]
    assert not bool(of_two[:, 1].any())
    assert bool((of_two[:, [0, 2]] != 0).all())


@cases
def test_link_slopes(size: int, lengths: Sequence[int], true_lengths: Sequence[int] | None) -> None:
    chart = filled_chart(size, lengths, true_lengths)
    above = random_above(chart)
    found, expected = link_slopes(chart, above), link_slopes_by_torch(chart, above)
    largest = expected.abs().amax((2, 3), keepdim=True)
    assert bool(((found - expected).abs() <= 1e-5 * largest).all())


def test_more_siblings_than_a_program_takes_at_a_time() -> None:
    chart = filled_chart(1, (20,))
    above = random_above(chart)
    torch.testing.assert_close(link_slopes(chart, above), link_slopes_by_torch(chart, above), rtol=1e-4, atol=1e-4)
