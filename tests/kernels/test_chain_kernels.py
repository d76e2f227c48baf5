"""Each kernel of the chain against the plain-torch function beside it."""

import math
from dataclasses import replace

import pytest
import torch

pytest.importorskip("triton", reason="needs triton")

from kernels.charts import DEVICE, in_dtypes, rounding
from rankspace.inference.ragged import ragged
from rankspace.kernels.chain_doubt import doubts, doubts_by_torch
from rankspace.kernels.chain_ends import (
    ends,
    ends_by_torch,
    lay_words,
    lay_words_by_torch,
    predictions,
    predictions_by_torch,
)
from rankspace.kernels.chain_steps import first_step, linked_step, linked_step_by_torch, step, step_by_torch
from rankspace.kernels.chain_steps_back import (
    linked_step_back,
    linked_step_back_by_torch,
    step_back,
    step_back_by_torch,
)
from rankspace.kernels.chain_table import FLOOR, Chain, Slopes, new_chain, new_slopes
from rankspace.models.fast_vectors import rows_of

CLOSE = {"rtol": 1e-5, "atol": 0.0}
RANKS = [1, 3, 37, 515]
LENGTHS = {1: (1, 2), 3: (3, 0, 4, 1), 37: (4, 2, 4), 515: (3,) * 17}
TRUE_LENGTHS = {1: (1, 1), 3: (4, 1, 3, 0), 37: (4, 2, 1), 515: (3, 1, 2) * 5 + (0, 3)}  # of equally many rows each


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed + sum(shape))
    return torch.randn(shape, generator=generator).to(DEVICE)


def random_link(rank: int) -> torch.Tensor:
    return random(rank, rank).softmax(1)


def empty_chain(rank: int, lengths: tuple[int, ...], dtype: torch.dtype = torch.float32) -> Chain:
    """Nothing is written to it but NaN."""
    chain = new_chain(rows_of(ragged(lengths, DEVICE)), random(rank).softmax(0), dtype)
    for table in (chain.words, chain.log_scale, chain.outputs, chain.vectors):
        table.fill_(math.nan)
    return chain


def filled_chain(rank: int, lengths: tuple[int, ...], dtype: torch.dtype = torch.float32, peak: float = 1.0) -> Chain:
    chain = empty_chain(rank, lengths, dtype)
    lay_words_by_torch(chain, peak * random(chain.rows.num_tokens, rank, seed=1))
    step_by_torch(chain, 0)
    for time in range(1, chain.rows.longest):
        linked_step_by_torch(chain, time, random_link(rank).T.to(dtype))
    return chain


def shortened(chain: Chain, lengths: tuple[int, ...]) -> Chain:
    """The same where the device alone knows how long sentences are."""
    length = torch.tensor(lengths, dtype=torch.int32, device=DEVICE)
    return replace(chain, rows=replace(chain.rows, length=length))


def padded_chain(rank: int, dtype: torch.dtype = torch.float32) -> Chain:
    lengths = TRUE_LENGTHS[rank]
    return shortened(filled_chain(rank, (max(lengths),) * len(lengths), dtype), lengths)


def up_to(chain: Chain, time: int) -> Chain:
    """A copy that knows nothing of a time and what follows."""
    copy = empty_chain(len(chain.start), tuple(chain.rows.length.tolist()), chain.vectors.dtype)
    first = chain.rows.first(time)
    copy.words.copy_(chain.words)
    copy.log_scale.copy_(chain.log_scale)
    for name in ("outputs", "vectors", "top"):
        getattr(copy, name)[:first] = getattr(chain, name)[:first]
    return copy


def same_time(found: Chain, expected: Chain, time: int) -> None:
    rows = slice(expected.rows.first(time), expected.rows.first(time) + expected.rows.alive(time))
    off = rounding(found.vectors.dtype)
    torch.testing.assert_close(found.outputs[rows], expected.outputs[rows], **CLOSE)
    torch.testing.assert_close(found.vectors[rows], expected.vectors[rows], rtol=off, atol=0.0)
    assert bool(((found.top[rows] - expected.top[rows]).abs() < 256).all())  # units in the last place


@pytest.mark.parametrize("rank", RANKS)
def test_words(rank: int) -> None:
    found, expected = (empty_chain(rank, LENGTHS[rank]) for _ in range(2))
    log_words = 30 * random(found.rows.num_tokens, rank)
    log_words[1] = -math.inf
    lay_words(found, log_words)
    lay_words_by_torch(expected, log_words)
    torch.testing.assert_close(found.words, expected.words, rtol=1e-5, atol=1e-37)
    assert torch.equal(found.log_scale, expected.log_scale)
    assert float(found.log_scale[1]) == -math.inf
    assert not bool(found.words[1].any())


@pytest.mark.parametrize(("rank", "dtype"), in_dtypes(RANKS))
def test_steps(rank: int, dtype: torch.dtype) -> None:
    expected, link = filled_chain(rank, LENGTHS[rank], dtype), random_link(rank).to(dtype)
    for time in range(expected.rows.longest):
        found, linked = up_to(expected, time), up_to(expected, time)
        if time == 0:
            first_step(found)
        else:
            first = found.rows.first(time - 1)
            step(found, time, found.vectors[first : first + found.rows.alive(time)].float() @ link.float())
            linked_step(linked, time, link.T.contiguous())
            same_time(linked, expected, time)
        same_time(found, expected, time)


@pytest.mark.parametrize("rank", RANKS)
def test_predictions(rank: int) -> None:
    """Zeros of the start are not the smallest; a word that nothing leads to has no share."""
    chain = filled_chain(rank, LENGTHS[rank])
    chain.outputs[0, rank // 2] = 0
    chain.outputs[-1, rank // 2] = 1e-38
    chain.words[-2] = 0
    found, expected = predictions(chain), predictions_by_torch(chain)
    assert torch.equal(found.smallest, expected.smallest)
    torch.testing.assert_close(found.log_share, expected.log_share, rtol=1e-6, atol=1e-7)
    assert float(found.smallest[-1]) == float(chain.outputs[-1, rank // 2])
    assert float(found.smallest[0]) > 1e-38
    assert float(found.log_share[-2]) == -math.inf


def slopes_of(chain: Chain) -> Slopes:
    slopes = new_slopes(chain, random(chain.rows.num_sentences))
    slopes.of_sums.fill_(math.nan)
    slopes.of_words.fill_(math.nan)
    return slopes


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize(("rank", "dtype"), in_dtypes(RANKS))
def test_steps_back(rank: int, dtype: torch.dtype, padded: bool) -> None:
    chain = padded_chain(rank, dtype) if padded else filled_chain(rank, LENGTHS[rank], dtype)
    link = random_link(rank).to(dtype)
    chain.outputs[0, rank // 2] = 0
    expected = slopes_of(chain)
    for time in range(chain.rows.longest - 1, -1, -1):
        first, later = chain.rows.first(time + 1), chain.rows.alive(time + 1)
        sums = expected.of_sums[first : first + later].float() @ link.float().T if later else None
        found, linked = (Slopes(*(each.clone() for each in expected)) for _ in range(2))
        step_back(chain, found, time, sums)
        if later:
            linked_step_back(chain, linked, time, link)
            linked_step_back_by_torch(chain, expected, time, link)
        else:
            step_back_by_torch(chain, expected, time, None)
        for each in (found, linked) if later else (found,):
            rows = slice(chain.rows.first(time), chain.rows.first(time) + chain.rows.alive(time))
            for one, other in zip(each[1:], expected[1:], strict=True):
                off = 1e-4 if one.dtype == torch.float32 else rounding(dtype)
                torch.testing.assert_close(one[rows], other[rows], rtol=off, atol=1e-5)  # of either sign


@pytest.mark.parametrize("rank", RANKS)
def test_nothing_comes_back_from_behind_the_end(rank: int) -> None:
    chain, link = padded_chain(rank), random_link(rank)
    slopes = slopes_of(chain)
    slopes.of_total[chain.rows.length == 0] = math.inf
    step_back(chain, slopes, chain.rows.longest - 1, None)
    for time in range(chain.rows.longest - 2, -1, -1):
        linked_step_back(chain, slopes, time, link)
    for time in range(chain.rows.longest):
        rows = slice(chain.rows.first(time), chain.rows.first(time) + chain.rows.alive(time))
        for each in (slopes.of_sums[rows], slopes.of_words[rows]):
            assert bool(each.isfinite().all())
            assert not bool(each[chain.rows.length <= time].any())
            assert bool(each[chain.rows.length == time + 1].any(1).all())


@pytest.mark.parametrize("rank", RANKS)
def test_ends_before_the_last_row(rank: int) -> None:
    """A word that no rank can have and low numbers, behind the end, are nothing to lose."""
    chain = padded_chain(rank)
    expected = ends(chain)
    for place, num_words in enumerate(TRUE_LENGTHS[rank]):
        for time in range(num_words, chain.rows.longest):
            row = chain.rows.first(time) + place
            chain.outputs[row], chain.words[row], chain.log_scale[row], chain.top[row] = 1e-38, 0, -math.inf, 0
    for found in (ends(chain), ends_by_torch(chain)):
        torch.testing.assert_close(found.log_z, expected.log_z, rtol=1e-12, atol=1e-6)
        torch.testing.assert_close(found.total, expected.total, rtol=1e-6, atol=0.0)
        assert not bool(found.lost.any())
        assert not bool(found.low.any())


@pytest.mark.parametrize("peak", [1.0, 12.0])
@pytest.mark.parametrize("rank", RANKS)
def test_ends(rank: int, peak: float) -> None:
    chain = filled_chain(rank, LENGTHS[rank], peak=peak)
    found, expected = ends(chain), ends_by_torch(chain)
    torch.testing.assert_close(found.total, expected.total, rtol=1e-6, atol=0.0)
    torch.testing.assert_close(found.log_z, expected.log_z, rtol=1e-12, atol=1e-6)
    for one, other in ((found.lost, expected.lost), (found.low, expected.low)):
        assert torch.equal(one, other)
        assert not bool(one.any())


def test_sentences_that_are_low_lost_impossible_or_empty() -> None:
    chain = filled_chain(3, (3, 3, 2, 3, 0, 1))
    places = {sentence: place for place, sentence in enumerate(chain.rows.sentence.tolist())}
    chain.outputs[chain.rows.first(2) + places[0], 1] = 1e-26  # low on the way
    chain.log_scale[chain.rows.first(1) + places[1]] = -math.inf  # a word that no rank can have
    chain.outputs[chain.rows.first(1) + places[2]] = 1e-25  # a low Z
    chain.outputs[chain.rows.first(0) + places[5], 1] = 0  # a rank that the start leaves out
    for found in (ends(chain), ends_by_torch(chain)):
        assert found.low[[places[sentence] for sentence in range(6)]].tolist() == [True, False, True] + [False] * 3
        assert found.lost.tolist() == [False, False, True, False, False, False]
        assert (found.log_z == -math.inf).tolist() == [False, True, False, False, False, False]
        assert float(found.log_z[4]) == 0


def test_ends_of_sentences_of_many_words() -> None:
    """More than a program looks at in one go: a word counts wherever it stands."""
    lengths, time = (67, 65, 67, 64, 67), 66
    chain, layout = filled_chain(3, lengths), ragged(lengths, DEVICE)
    for found in (ends(chain), ends_by_torch(chain)):
        assert not bool((found.low | layout.in_callers_order(found.lost)).any())
    first = chain.rows.first(time)
    chain.outputs[first, 1] = 1e-26  # low on the way
    chain.log_scale[first + 1] = -math.inf  # a word that no rank can have
    chain.outputs[first + 2] = math.nan
    found, expected = ends(chain), ends_by_torch(chain)
    torch.testing.assert_close(found.log_z, expected.log_z, rtol=1e-12, atol=1e-6, equal_nan=True)
    by_place = layout.sentence_at.tolist()
    for each in (found, expected):
        assert each.low[0]
        assert float(each.log_z[by_place[1]]) == -math.inf
        assert each.lost.tolist() == [sentence == by_place[2] for sentence in range(5)]


def test_doubts_of_sentences_of_many_words() -> None:
    lengths = (70, 3)
    chain, layout = filled_chain(3, lengths), ragged(lengths, DEVICE)
    chain.outputs[chain.rows.first(68), 1] *= 2.0**-80
    of_sums = 2.0**60 * random(*chain.outputs.shape)
    given = chain, of_sums, torch.ones(2, dtype=torch.bool, device=DEVICE), layout.token_place, layout.previous
    found, expected = doubts(*given), doubts_by_torch(*given)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=0.0)
    assert (found > 0).tolist() == [True, False]


def test_low_outputs_are_raised() -> None:
    """Each to the floor at the scale of its step; what is no number stays none, and zeros of the start stay."""
    floor = FLOOR.value
    for one, other in ((first_step, step_by_torch), (step, step_by_torch)):
        found, expected = (filled_chain(4, (2, 2)) for _ in range(2))
        for chain in (found, expected):
            chain.start.copy_(torch.tensor([0, 1e-38, 0.5, math.nan], device=DEVICE))
            chain.top[:2] = torch.tensor([2.0**-20, 4.0]).view(torch.int32)
        sums = torch.tensor([[0, 1e-38, 0.5, math.nan]] * 2, device=DEVICE)
        given = ((0,), (1, sums))[one is step]
        one(found, *given[: 2 * (one is step)])
        other(expected, *given)
        rows = slice(2, 4) if one is step else slice(0, 2)
        torch.testing.assert_close(found.outputs[rows], expected.outputs[rows], equal_nan=True, **CLOSE)
        least = [floor * 2**19, floor] if one is step else [floor] * 2
        for row, lowest in zip(found.outputs[rows].tolist(), least, strict=True):
            assert row[:2] == ([lowest, lowest] if one is step else [0, lowest])
            assert row[2] > 0.01
            assert math.isnan(row[3])


@pytest.mark.parametrize(("rank", "dtype"), in_dtypes(RANKS))
def test_doubts(rank: int, dtype: torch.dtype) -> None:
    lengths = LENGTHS[rank]
    chain, layout = filled_chain(rank, lengths, dtype), ragged(lengths, DEVICE)
    chain.outputs[:, : (rank + 1) // 2] *= 2.0**-80
    chain.top[0] = torch.tensor(2.0**-30).view(torch.int32)
    of_sums = 2.0**60 * random(*chain.outputs.shape).to(dtype)
    low = torch.arange(len(lengths), device=DEVICE) != 1
    given = chain, of_sums, low, layout.token_place, layout.previous
    found, expected = doubts(*given), doubts_by_torch(*given)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=0.0)
    assert (found > 0).tolist() == [bool(low[place]) and bool(layout.length_at[place]) for place in range(len(lengths))]
    of_sums[-1, 0] = math.nan
    assert bool(doubts(*given).isnan().any()) == bool(low[layout.token_place[-1]])


@pytest.mark.gpu
@pytest.mark.parametrize("rank", [37, 515, 1024])
@pytest.mark.parametrize("num_sentences", [3, 17, 40, 70])
def test_steps_in_bfloat16(rank: int, num_sentences: int) -> None:
    expected = filled_chain(rank, (3,) * num_sentences, torch.bfloat16)
    link, slopes = random_link(rank).bfloat16(), slopes_of(expected)
    for time in (1, 2):
        found = up_to(expected, time)
        linked_step(found, time, link.T.contiguous())
        rows = slice(expected.rows.first(time), expected.rows.first(time) + num_sentences)
        torch.testing.assert_close(found.outputs[rows], expected.outputs[rows], rtol=1e-4, atol=0.0)
    step_back_by_torch(expected, slopes, 2, None)
    found_slopes = Slopes(*(each.clone() for each in slopes))
    linked_step_back(expected, found_slopes, 1, link)
    linked_step_back_by_torch(expected, slopes, 1, link)
    rows = slice(num_sentences, 2 * num_sentences)
    torch.testing.assert_close(found_slopes.of_words[rows], slopes.of_words[rows], rtol=1e-3, atol=1e-6)
    torch.testing.assert_close(found_slopes.of_sums[rows], slopes.of_sums[rows], rtol=2e-2, atol=1e-6)
