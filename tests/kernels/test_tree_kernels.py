"""Each kernel of the tree engine against the plain-torch function beside it."""

import math

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton", reason="needs triton")

from kernels.charts import (
    DEVICE,
    NUM_WORDS,
    empty_chart,
    filled_chart,
    in_dtypes,
    random_inputs,
    random_log_weights,
    random_sentences,
    rounding,
    up_to,
    with_mass,
)
from kernels.test_unwritten_memory import poisoned_memory
from rankspace.kernels.scales import DOUBTFUL
from rankspace.kernels.tree_chart import Chart
from rankspace.kernels.tree_doubt import doubts, doubts_by_torch
from rankspace.kernels.tree_marginals import span_marginals, span_marginals_by_torch
from rankspace.kernels.tree_outside import Above, begin_outside_sums, new_above, outside_sums, outside_sums_by_torch
from rankspace.kernels.tree_splits import LOST, LOW, begin_sums, split_sums
from rankspace.kernels.tree_tiles import LAG, WIDTHS, inside_steps, outside_steps
from rankspace.kernels.tree_tops import (
    root_gradient,
    root_gradient_by_torch,
    top_slopes,
    top_slopes_by_torch,
    tops,
    tops_by_torch,
)
from rankspace.kernels.tree_words import lay_words, lay_words_by_torch, sum_by_word, sum_by_word_by_torch

CLOSE = {"rtol": 1e-5, "atol": 0.0}  # sums of positive terms: rounding alone, in another order
RANKS = [1, 3, 37, 130, 515]
LENGTHS = {1: (1, 2), 3: (3, 0, 4, 1), 37: (3, 2), 130: (3,), 515: (2,) * 17}
BEGUN = [
    (3, False, torch.float32),
    (3, True, torch.float32),
    (259, True, torch.float32),  # more than one program has of a row
    pytest.param(3, False, torch.bfloat16, marks=pytest.mark.gpu),
    pytest.param(3, True, torch.bfloat16, marks=pytest.mark.gpu),
    pytest.param(259, True, torch.bfloat16, marks=pytest.mark.gpu),
]


def same_width(found: Chart, expected: Chart, width: int) -> None:
    rows, wide = expected.rows.spans(width), expected.rows.wide(width)
    close = {"rtol": rounding(found.alpha.dtype), "atol": 0.0}
    torch.testing.assert_close(found.alpha[wide], expected.alpha[wide], **close)
    assert torch.equal(found.exponent[rows], expected.exponent[rows])
    assert torch.equal(found.power[rows], expected.power[rows])


def same_values(found: Chart, expected: Chart, width: int) -> None:
    """Where sums were rounded twice: another power of two may be the one above the largest."""
    rows, wide = expected.rows.spans(width), expected.rows.wide(width)
    moved = torch.exp2((found.exponent[rows] - expected.exponent[rows]).float())[:, None]
    assert bool(((moved == 1) | (moved == 2) | (moved == 0.5)).all())
    close = {"rtol": 2 * rounding(found.alpha.dtype), "atol": 0.0}
    torch.testing.assert_close(found.alpha[wide].float() * moved, expected.alpha[wide].float(), **close)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(("rank", "dtype"), in_dtypes(RANKS))
def test_words(rank: int, dtype: torch.dtype, weighted: bool) -> None:
    sentences, inputs = random_sentences(LENGTHS[rank]), random_inputs(rank)
    weights = random_log_weights(sentences) if weighted else None
    if weights is not None:
        weights[0] = -math.inf
    found, expected = (empty_chart(rank, sentences, weights, dtype=dtype) for _ in range(2))
    lay_words(found, inputs.words, sentences.token_word)
    lay_words_by_torch(expected, inputs.words, sentences.token_word)
    count, off = found.rows.num_tokens, 0.0 if dtype == torch.float32 else rounding(dtype)
    torch.testing.assert_close(found.children[:count], expected.children[:count], rtol=off, atol=0.0)
    assert torch.equal(found.exponent[:count], expected.exponent[:count])
    assert torch.equal(found.power[:count], expected.power[:count])


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(("rank", "dtype"), in_dtypes(RANKS))
def test_split_sums(rank: int, dtype: torch.dtype, weighted: bool) -> None:
    sentences, inputs = random_sentences(LENGTHS[rank]), random_inputs(rank)
    inputs = with_mass(inputs) if weighted else inputs
    expected = filled_chart(inputs, sentences, random_log_weights(sentences) if weighted else None, dtype)
    for width in range(2, expected.rows.longest + 1):
        found = up_to(expected, width)
        split_sums(found, width)
        same_width(found, expected, width)
        assert not bool(found.lost.any())


@pytest.mark.parametrize(("rank", "weighted", "dtype"), BEGUN)
def test_sums_that_are_begun_together(rank: int, weighted: bool, dtype: torch.dtype) -> None:
    sentences = random_sentences((7, 6))
    inputs = with_mass(random_inputs(rank)) if weighted else random_inputs(rank)
    expected = filled_chart(inputs, sentences, random_log_weights(sentences) if weighted else None, dtype)
    width, known = 6, 4
    begun = up_to(expected, width)
    begin_sums(begun, width, known)
    for each in range(width, expected.rows.longest + 1):
        found = up_to(expected, each)
        found.alpha[found.rows.wide(each)] = begun.alpha[begun.rows.wide(each)]
        found.partial_base[:] = begun.partial_base
        split_sums(found, each, known)
        (same_width if dtype == torch.float32 else same_values)(found, expected, each)


@pytest.mark.parametrize("low", [False, True])
@pytest.mark.parametrize("width", [2, 3])
def test_entries_that_are_too_low_mark_their_sentence(low: bool, width: int) -> None:
    """Of words at the scale they had before they were divided, of others as they are."""
    sentences = random_sentences((3, 4, 3))
    chart = up_to(filled_chart(random_inputs(3), sentences), width)
    place, side = 1, 1
    chart.children[:] = chart.children.nan_to_num(1.0)
    row = int(chart.rows.shift[width - 1] + chart.rows.before[width]) + place  # [1, width)
    power = int(chart.power[row]) if width == 2 else 0
    chart.children[row, side, 2] = DOUBTFUL.value * 2.0 ** (-power - (1 if low else -10))
    split_sums(chart, width)
    assert chart.lost.tolist() == [0, LOW if low else 0, 0]


def test_what_is_too_low_is_raised() -> None:
    sentences = random_sentences((3, 2))
    inputs = random_inputs(3)
    inputs.words[:, 1] = 0.0
    found, expected = (empty_chart(3, sentences, None) for _ in range(2))
    lay_words(found, inputs.words, sentences.token_word)
    lay_words_by_torch(expected, inputs.words, sentences.token_word)
    count = found.rows.num_tokens
    assert torch.equal(found.children[:count], expected.children[:count])
    assert bool((found.children[:count, :, :3] > 0).all())
    assert not bool(found.children[:count, :, 3:].any())
    split_sums(found, 2)
    assert bool((found.alpha[found.rows.wide(2)][:, :3] > 0).all())
    assert found.lost.tolist() == [LOW, LOW]


@pytest.mark.parametrize(("rank", "dtype"), in_dtypes([37]))
def test_doubts(rank: int, dtype: torch.dtype) -> None:
    sentences = random_sentences((5, 3, 4))
    chart = filled_chart(random_inputs(rank), sentences, dtype=dtype)
    above, places = above_of(chart), sentences.layout.places
    above.children.normal_()
    assert not bool(doubts(chart, above, places).any())
    for table in (chart.children, chart.alpha):
        table[torch.rand(table.shape, generator=torch.Generator().manual_seed(1)).to(DEVICE) < 0.3] *= 2.0**-98
    chart.lost[:] = torch.tensor([LOW, 0, LOST])  # as `split_sums` marks sentences with low entries
    found, expected = doubts(chart, above, places), doubts_by_torch(chart, above, places)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=0.0)
    assert (found > 0).tolist() == [True, False, True]


def above_of(chart: Chart, seed: int = 0) -> Above:
    generator = torch.Generator().manual_seed(seed)
    of_top = torch.randn(chart.rows.num_sentences, generator=generator).to(DEVICE)
    root = torch.rand(chart.padded, generator=generator).to(DEVICE)
    root[chart.rank :] = 0
    above = new_above(chart, of_top, root)
    above.alpha[:] = torch.randn(above.alpha.shape, generator=generator).to(DEVICE)
    above.children.fill_(math.nan)
    return above


def same_sums(found: Above, expected: Above, rows: slice, begun: Tensor | None = None) -> None:
    """Up to cancellation, for there are both signs; a weight below the normal numbers is none. Sums that were begun
    have been rounded as they were then."""
    one, other = found.children[rows].float(), expected.children[rows].float()
    largest = other.abs().amax(2, keepdim=True)
    if begun is not None and begun.dtype == torch.bfloat16:
        largest = 2 * torch.maximum(largest, begun[rows].float().abs().amax(2, keepdim=True))
    assert bool(((one - other).abs() <= rounding(found.children.dtype) * largest + 1e-30).all())


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(("rank", "dtype"), in_dtypes(RANKS))
def test_outside_sums(rank: int, dtype: torch.dtype, weighted: bool) -> None:
    sentences, inputs = random_sentences(LENGTHS[rank]), random_inputs(rank)
    inputs = with_mass(inputs) if weighted else inputs
    chart = filled_chart(inputs, sentences, random_log_weights(sentences) if weighted else None, dtype)
    found, expected = above_of(chart), above_of(chart)
    for width in range(1, chart.rows.longest):
        outside_sums(chart, found, width)
        outside_sums_by_torch(chart, expected, width)
        same_sums(found, expected, chart.rows.spans(width))


@pytest.mark.parametrize(("rank", "weighted", "dtype"), BEGUN)
def test_outside_sums_that_are_begun_together(rank: int, weighted: bool, dtype: torch.dtype) -> None:
    sentences = random_sentences((7, 3))
    inputs = with_mass(random_inputs(rank)) if weighted else random_inputs(rank)
    chart = filled_chart(inputs, sentences, random_log_weights(sentences) if weighted else None, dtype)
    found, expected = above_of(chart), above_of(chart)
    begin_outside_sums(chart, found, WIDTHS, WIDTHS + 2)
    begun = found.children.clone()
    for width in range(WIDTHS, 0, -1):
        outside_sums(chart, found, width, WIDTHS + 2)
        outside_sums_by_torch(chart, expected, width)
        same_sums(found, expected, chart.rows.spans(width), begun)


@pytest.mark.parametrize(("rank", "dtype"), in_dtypes(RANKS))
def test_tops_and_their_slopes(rank: int, dtype: torch.dtype) -> None:
    sentences, inputs = random_sentences(LENGTHS[rank]), random_inputs(rank)
    chart = filled_chart(inputs, sentences, dtype=dtype)
    chart.lost[0] = LOST
    chart.lost[-1] = max(int(chart.lost[-1]), LOW)
    root = torch.nn.functional.pad(inputs.root, (0, chart.padded - rank))
    found, expected = (make(chart, root, sentences.token_word, sentences.log_scale) for make in (tops, tops_by_torch))
    torch.testing.assert_close(found.top, expected.top, **CLOSE)
    torch.testing.assert_close(found.log_z, expected.log_z, rtol=1e-6, atol=1e-6)
    assert torch.equal(found.lost, expected.lost)
    slopes = torch.linspace(-3, 2, len(found.log_z), dtype=torch.float64, device=DEVICE)
    mine, theirs = top_slopes(chart, expected, slopes), top_slopes_by_torch(chart, expected, slopes)
    for one, other in zip(mine, theirs, strict=True):
        torch.testing.assert_close(one, other, **CLOSE)
    assert math.frexp(float(mine.unit))[0] == 0.5  # a power of two
    one, other = root_gradient(chart, theirs), root_gradient_by_torch(chart, theirs)
    assert bool(((one - other).abs() <= 1e-5 * other.abs().max()).all())  # of both signs


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(("rank", "dtype"), in_dtypes([3, 37]))
def test_sums_by_word_and_marginals(rank: int, dtype: torch.dtype, weighted: bool) -> None:
    sentences, inputs = random_sentences((11, 4)), random_inputs(rank)
    if rank > 3:
        sentences = random_sentences((3, 2))
    chart = filled_chart(inputs, sentences, random_log_weights(sentences) if weighted else None, dtype)
    above = above_of(chart)
    above.children.normal_()
    unit = torch.tensor(0.3, dtype=torch.float64, device=DEVICE)
    given = (chart, above.children, sentences.token_word, NUM_WORDS, unit)
    torch.testing.assert_close(sum_by_word(*given), sum_by_word_by_torch(*given), rtol=1e-5, atol=1e-5)
    given = (chart, above.children, None, chart.rows.num_tokens, unit)
    torch.testing.assert_close(sum_by_word(*given), sum_by_word_by_torch(*given), rtol=1e-5, atol=1e-5)
    found, expected = span_marginals(chart, above), span_marginals_by_torch(chart, above)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5 * float(expected.abs().max()))


@pytest.mark.parametrize("rank", [3, 130])
def test_sums_by_word_and_marginals_do_not_read_what_was_not_written(rank: int) -> None:
    """Nor do they leave anything unwritten: a word that does not occur has zeros, and so have the widest spans."""
    sentences = random_sentences((3, 2))
    chart = filled_chart(random_inputs(rank), sentences)
    above, count = above_of(chart), chart.rows.num_tokens
    above.children[:count, :, :rank].normal_()
    above.children[:count, :, rank:] = 0
    chart.children[chart.rows.num_parts :] = math.nan
    chart.alpha[chart.rows.num_parts - count :] = math.nan
    unit = torch.ones((), dtype=torch.float64, device=DEVICE)
    for given in ((sentences.token_word, NUM_WORDS + 2), (None, count)):
        with poisoned_memory():
            found = sum_by_word(chart, above.children, *given, unit)
        torch.testing.assert_close(
            found, sum_by_word_by_torch(chart, above.children, *given, unit), rtol=1e-5, atol=1e-5
        )
    with poisoned_memory():
        found = span_marginals(chart, above)
    torch.testing.assert_close(found, span_marginals_by_torch(chart, above), rtol=1e-5, atol=1e-5)
    assert not bool(found[chart.rows.num_parts :].any())


def test_sums_are_begun_before_they_are_needed_and_completed_once() -> None:
    for longest in range(2, 70):
        check_steps(longest)


def check_steps(longest: int) -> None:
    """Every split (parent) of a width is summed once: ahead or at the end; what is ahead rests on what is there."""
    begun = 0
    for step in inside_steps(longest):
        assert (begun == step.width) == step.is_first
        if step.known:
            assert 2 * (step.width - 1 - step.known) <= step.width - 1
            assert step.known + LAG <= step.width < step.known + LAG + WIDTHS
        begun = step.ahead or begun
        assert step.ahead in (0, step.width + LAG)
    begun = 0
    for step in outside_steps(longest):
        assert (begun == step.width) == step.is_first
        if step.known:
            assert step.known - LAG - WIDTHS < step.width <= step.known - LAG
        begun = step.ahead or begun
        assert step.ahead in (0, step.width - LAG)
