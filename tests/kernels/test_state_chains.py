"""log p of the low-rank HMM with words on states by kernels, against the torch engine."""

from typing import Any, Literal

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton", reason="needs triton")

from kernels.charts import DEVICE, in_dtypes, rounding
from kernels.test_chain_kernels import padded_chain, random_link
from kernels.test_chain_model import VOCABULARY, batch_of, gradients, random_words, relative_errors, seed_of
from kernels.test_padded_chains import on_device, padded
from rankspace.inference.links import Precision
from rankspace.inference.ragged import Ragged, ragged
from rankspace.kernels.chain_sides import (
    beside,
    both_products,
    both_products_by_torch,
    finish,
    finish_by_torch,
    masses,
    masses_by_torch,
    step_beside,
    step_beside_by_torch,
)
from rankspace.kernels.chain_tall import add_up, add_up_by_torch, product_in_shares, product_in_shares_by_torch
from rankspace.models import fast_sides, fast_states, fast_tall
from rankspace.models.fast_batch import Batch
from rankspace.models.fast_tables import logit_gradients, table
from rankspace.models.lhmm import NeuralLHMM

Form = Literal["features", "tables"]
FORMS: list[Form] = ["features", "tables"]


def new_lhmm(
    form: Form,
    states: int,
    rank: int,
    size: int = 8,
    dropout: float = 0.0,
    scale: float = 1.0,
    of_words: float = 1.0,
) -> NeuralLHMM:
    torch.manual_seed(states + rank)
    model = NeuralLHMM(VOCABULARY, states, rank, size, form, dropout, dropout)
    with torch.no_grad():
        for table in (model.from_states, model.to_states):
            table.normal_()
        model.ranks.mul_(scale)
        model.emission.words.weight.mul_(of_words)
        model.emission.words.bias.normal_().mul_(of_words)
    return model.to(DEVICE)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("lengths", "states", "rank"),
    [((5, 3, 1, 2), 37, 13), ((4, 0, 7), 16, 40), ((1, 1), 37, 13), ((2, 3), 1, 1), ((70, 3), 9, 4)],
)
def test_equals_the_torch_engine(form: Form, lengths: tuple[int, ...], states: int, rank: int) -> None:
    model, words = new_lhmm(form, states, rank), random_words(lengths)
    log_p, lost = model.log_prob_by_kernels(words, batch_of(lengths, model.precision))
    found = gradients(model, log_p)
    double = new_lhmm(form, states, rank).double()
    double.options = {"backend": "torch"}
    expected = double.log_prob(words, lengths)
    torch.testing.assert_close(log_p, expected, rtol=1e-6, atol=1e-4)
    assert not bool(lost.any())
    assert relative_errors(found, gradients(double, expected)) < 1e-4


def test_products_of_bfloat16() -> None:
    """As the torch engine has them, but vectors are rounded as well, and Triton's interpreter cuts bits off. Weights
    before a rectifier are left out: one whose input rounds to the other side of zero has another gradient."""
    model, lengths = new_lhmm("tables", 37, 13), (4, 1, 3)
    words = random_words(lengths)
    model.options = {"precision": "medium"}
    log_p, lost = model.log_prob_by_kernels(words, batch_of(lengths, model.precision))
    found = gradients(model, log_p)
    model.options = {"backend": "torch", "precision": "medium"}
    expected = model.log_prob(words, lengths)
    assert not bool(lost.any())
    torch.testing.assert_close(log_p, expected, rtol=0, atol=3e-2, check_dtype=False)
    slopes = gradients(model, expected)
    for name in ("ranks", "emission.words.weight", "emission.words.bias"):
        assert float((found[name] - slopes[name]).norm() / slopes[name].norm()) < 5e-2, name


@pytest.mark.parametrize("form", FORMS)
def test_what_lies_behind_the_end_changes_nothing(form: Form) -> None:
    lengths = (4, 1, 2, 1)
    model, words = new_lhmm(form, 37, 13), random_words(lengths)
    log_p, _ = model.log_prob_by_kernels(words, batch_of(lengths, model.precision))
    expected = gradients(model, log_p)
    for other in (0, 1):
        found, lost = model.padded_log_prob(padded(words, lengths, 4 + other, other), on_device(lengths), seed_of(0))
        torch.testing.assert_close(found, log_p, rtol=1e-6, atol=1e-6)
        assert not bool(lost.any())
        assert relative_errors(gradients(model, found), expected) < 1e-5


@pytest.mark.parametrize("form", FORMS)
def test_ranks_and_states_are_left_out_in_training(form: Form) -> None:
    """By torch's generator, as in the torch engine."""
    lengths = (4, 2)
    model, words = new_lhmm(form, 20, 12, dropout=0.5), random_words(lengths)
    torch.manual_seed(5)
    found, _ = model.log_prob_by_kernels(words, batch_of(lengths, model.precision))
    torch.manual_seed(5)
    model.options = {"backend": "torch"}
    expected = model.log_prob(words, lengths)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-4, check_dtype=False)
    slopes, others = gradients(model, found), gradients(model, expected)
    for name, kept in (("ranks", 6), ("from_states", 11), ("to_states", 10), ("emitters", 10)):
        assert int((slopes[name] != 0).any(1).sum()) == kept, name
        torch.testing.assert_close(slopes[name], others[name], rtol=1e-3, atol=1e-5)


def test_peaked_parameters_are_right_or_redone() -> None:
    lengths = (6, 3, 12)
    model, words = new_lhmm("features", 30, 12, scale=40.0, of_words=40.0), random_words(lengths)
    log_p, lost = model.log_prob_by_kernels(words, batch_of(lengths, model.precision))
    assert bool(lost.any())
    model.options = {"backend": "triton"}
    expected = new_lhmm("features", 30, 12, scale=40.0, of_words=40.0).double().log_prob(words, lengths)
    torch.testing.assert_close(model.log_prob(words, lengths), expected, rtol=1e-3, atol=1e-3, check_dtype=False)
    assert all(bool(each.isfinite().all()) for each in gradients(model, log_p).values())


def test_when_kernels_run() -> None:
    model = new_lhmm("features", 9, 4)
    assert model.can_be_captured(DEVICE)
    model.options = {"order": "state"}
    assert model.can_be_captured(DEVICE)
    model.options = {"backend": "torch"}
    assert not model.can_be_captured(DEVICE)


def test_tables_with_a_bias() -> None:
    torch.manual_seed(0)
    rows, columns, bias = torch.randn(7, 3), torch.randn(5, 3), torch.randn(5)
    rows, columns, bias = (each.to(DEVICE).requires_grad_() for each in (rows, columns, bias))
    slopes: Tensor = torch.randn(7, 5).to(DEVICE)
    expected = (rows @ columns.T + bias).softmax(1)
    found = table(rows.detach(), columns.detach(), "highest", 0.0, seed_of(0), 0, bias.detach())
    torch.testing.assert_close(found, expected.detach())
    of_logits = logit_gradients(lambda part: slopes[part], found)
    torch.testing.assert_close(of_logits.sum(0), torch.autograd.grad(expected, bias, slopes)[0], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(("num_rows", "num_middle", "num_columns"), [(3, 300, 140), (17, 5, 1), (70, 1, 130)])
def test_products_in_shares(num_rows: int, num_middle: int, num_columns: int, turned: bool) -> None:
    torch.manual_seed(0)
    rows = torch.randn(num_rows, num_middle + 3).to(DEVICE)[:, :num_middle]
    table = torch.randn(num_middle, num_columns).to(DEVICE)
    table = table.T.contiguous().T if turned else table
    found = product_in_shares(rows, table)
    torch.testing.assert_close(found, product_in_shares_by_torch(rows, table), rtol=1e-4, atol=1e-4)
    for dtype in (torch.float32, torch.bfloat16):
        total, expected = torch.full((2, num_rows, num_columns + 5), torch.nan, dtype=dtype, device=DEVICE)
        add_up(found, total[:, :num_columns])
        add_up_by_torch(found, expected[:, :num_columns])
        off = 1e-5 if dtype == torch.float32 else 2**-7
        torch.testing.assert_close(total, expected, rtol=off, atol=1e-5, equal_nan=True)
    torch.testing.assert_close(found.sum(0), rows @ table, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("is_padded", [False, True])
@pytest.mark.parametrize("is_tall", [False, True])
def test_an_impossible_sentence_has_minus_infinity_and_gradient_zero(
    monkeypatch: pytest.MonkeyPatch, is_tall: bool, is_padded: bool
) -> None:
    """By a word that no state has, at the beginning, within, or at the end; in each direction alone, and in both at
    once. Others have what they have alone."""
    for module in (fast_sides, fast_tall):
        monkeypatch.setattr(module, "is_tall", lambda *_: is_tall)
    lengths, possible = (3, 4, 3, 2, 3), [0, 3]
    model, layout = new_lhmm("features", 20, 7), ragged((4,) * 5 if is_padded else lengths, DEVICE)
    sentence, time = layout.sentence_at[layout.token_place], layout.token_time
    by_sentence = torch.randn(5, 4, 20, generator=torch.Generator().manual_seed(0)).to(DEVICE)
    by_sentence[[1, 2, 4], [1, 0, 2]] = -torch.inf
    log_words = by_sentence[sentence, time].requires_grad_()
    log_p, lost = chain_of(model, log_words, layout, on_device(lengths) if is_padded else None)
    assert (log_p == -torch.inf).tolist() == [False, True, True, False, True]
    found = torch.autograd.grad(
        log_p[possible].sum() + 0 * log_p.nan_to_num(neginf=0).sum(), [*tables_of(model), log_words]
    )
    assert not bool(lost.any())
    short = ragged((3, 2), DEVICE)
    rows = by_sentence[possible][short.sentence_at[short.token_place], short.token_time].requires_grad_()
    alone, _ = chain_of(model, rows, short, None)
    torch.testing.assert_close(log_p[possible], alone, rtol=1e-6, atol=1e-6)
    for one, other in zip(found[:3], torch.autograd.grad(alone.sum(), tables_of(model)), strict=True):
        assert float((one - other).norm() / other.norm()) < 1e-5
    assert not bool(found[3][torch.isin(sentence, torch.tensor([1, 2, 4], device=DEVICE))].any())


def tables_of(model: NeuralLHMM) -> list[Tensor]:
    return [model.from_states, model.to_states, model.ranks]


def chain_of(
    model: NeuralLHMM, log_words: Tensor, layout: Ragged, true_lengths: Tensor | None
) -> tuple[Tensor, Tensor]:
    batch = Batch(layout, "highest", seed_of(0), true_lengths)
    return fast_states.state_chain_log_prob(*tables_of(model), log_words, batch, True)


@pytest.mark.parametrize("lengths", [(4, 1, 3), (5, 5), (1, 1), (2, 0)])
def test_both_sides_at_once(monkeypatch: pytest.MonkeyPatch, lengths: tuple[int, ...]) -> None:
    """As for tables in bfloat16, and with products in shares."""
    model, words = new_lhmm("features", 37, 13), random_words(lengths)
    outcomes = []
    for is_tall in (False, True):
        for module in (fast_sides, fast_tall):
            monkeypatch.setattr(module, "is_tall", lambda *_, is_tall=is_tall: is_tall)
        log_p, lost = model.log_prob_by_kernels(words, batch_of(lengths, model.precision))
        assert not bool(lost.any())
        outcomes.append((log_p.detach(), gradients(model, log_p)))
    with torch.no_grad():
        monkeypatch.setattr(fast_states, "both_sides", None)  # not asked where nothing is to come back
        alone, _ = model.log_prob_by_kernels(words, batch_of(lengths, model.precision))
    torch.testing.assert_close(outcomes[0][0], alone, rtol=1e-6, atol=1e-5)
    torch.testing.assert_close(outcomes[0][0], outcomes[1][0], rtol=1e-6, atol=1e-5)
    assert relative_errors(outcomes[1][1], outcomes[0][1]) < 1e-5


def test_both_sides_of_a_padded_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (fast_sides, fast_tall):
        monkeypatch.setattr(module, "is_tall", lambda *_: True)
    lengths = (4, 1, 2, 1)
    model, words = new_lhmm("tables", 37, 13), random_words(lengths)
    log_p, _ = model.log_prob_by_kernels(words, batch_of(lengths, model.precision))
    found, lost = model.padded_log_prob(padded(words, lengths, 5, 0), on_device(lengths), seed_of(0))
    assert not bool(lost.any())
    torch.testing.assert_close(found, log_p, rtol=1e-6, atol=1e-6)
    assert relative_errors(gradients(model, found), gradients(model, log_p)) < 1e-5


@pytest.mark.parametrize("scale", [8.0, 20.0])
def test_peaked_parameters_from_both_sides_are_right_or_lost(monkeypatch: pytest.MonkeyPatch, scale: float) -> None:
    for module in (fast_sides, fast_tall):
        monkeypatch.setattr(module, "is_tall", lambda *_: True)
    lengths = (6, 3, 9, 1)
    model, words = new_lhmm("features", 30, 12, scale=scale, of_words=scale), random_words(lengths)
    log_p, lost = model.log_prob_by_kernels(words, batch_of(lengths, model.precision))
    assert bool(lost.any()) == (scale > 10)
    double = new_lhmm("features", 30, 12, scale=scale, of_words=scale).double()
    expected = double.log_prob(words, lengths)
    limit = 1e-6 * scale**2 * expected.abs()  # logits themselves are rounded in float32
    assert bool((lost | ((log_p - expected).abs() <= limit)).all())
    found = gradients(model, log_p)
    assert relative_errors(found, gradients(double, expected.where(~lost, 0))) < 1e-5 * scale**2


def test_a_sentence_is_lost_for_too_low_a_mass(monkeypatch: pytest.MonkeyPatch) -> None:
    """And only for that of a word before its end."""
    for module in (fast_sides, fast_tall):
        monkeypatch.setattr(module, "is_tall", lambda *_: True)
    monkeypatch.setattr(fast_states, "both_sides", _with_low_masses)
    model, lengths = new_lhmm("tables", 9, 4), (3, 2, 3, 1)
    words = padded(random_words(lengths), lengths, 3, 0)
    log_p, lost = model.padded_log_prob(words, on_device(lengths), seed_of(0))
    assert lost.tolist() == [False, True, False, False]
    assert bool(log_p.isfinite().all())
    assert all(bool(each.isfinite().all()) for each in gradients(model, log_p).values())


def _with_low_masses(chain: Any, *others: Any) -> Any:
    """At the second word of the second sentence, and behind the end of the last."""
    between, side = fast_sides.both_sides(chain, *others)
    side.mass[[4 + 1, 4 + 3]] = 1e-40
    return between, side


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(("num_states", "num_ranks", "one", "other"), [(300, 70, 3, 17), (1, 1, 1, 1), (256, 64, 2, 1)])
@pytest.mark.parametrize("dtype", [torch.float32, pytest.param(torch.bfloat16, marks=pytest.mark.gpu)])
def test_both_products(num_states: int, num_ranks: int, one: int, other: int, turned: bool, dtype: torch.dtype) -> None:
    """In float32 whatever the operands are, whose products it holds."""
    torch.manual_seed(0)
    table = torch.randn(num_states, num_ranks).to(DEVICE, dtype)
    table = table.T.contiguous().T if turned else table
    over_states, over_ranks = (torch.randn(*size).to(DEVICE, dtype) for size in ((one, num_states), (other, num_ranks)))
    found = both_products(table, over_states, over_ranks)
    for mine, expected in zip(found, both_products_by_torch(table, over_states, over_ranks), strict=True):
        torch.testing.assert_close(mine, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("size", "dtype"), in_dtypes([3, 515]))
def test_steps_beside_masses_and_finish(size: int, dtype: torch.dtype) -> None:
    chain = padded_chain(size, dtype)
    mine, expected = beside(chain), beside(chain)
    for time in range(chain.rows.longest - 1, -1, -1):
        sums = None
        if time < chain.rows.longest - 1:
            first = chain.rows.first(time + 1)
            sums = expected.vectors[first : first + chain.rows.alive(time + 1)].float() @ random_link(size).T
        step_beside(mine, time, sums)
        step_beside_by_torch(expected, time, sums)
    torch.testing.assert_close(mine.outputs, expected.outputs, rtol=1e-5, atol=0.0)
    torch.testing.assert_close(mine.vectors, expected.vectors, rtol=rounding(dtype), atol=0.0)
    assert bool(((mine.top - expected.top).abs() < 256).all())  # units in the last place
    torch.testing.assert_close(masses(chain, mine), masses_by_torch(chain, mine), rtol=1e-6, atol=0.0)
    numbers = [torch.randn(chain.rows.num_tokens, dtype=torch.float64).to(DEVICE) for _ in range(2)]
    found, wanted = finish(chain, mine, *numbers), finish_by_torch(chain, mine, *numbers)
    for each, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(each, other, rtol=rounding(each.dtype), atol=0.0)


@pytest.mark.gpu
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(("num_rows", "num_middle", "num_columns"), [(16, 4096, 1000), (5, 515, 4096), (64, 9000, 130)])
def test_products_in_shares_in_bfloat16(num_rows: int, num_middle: int, num_columns: int, turned: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    rows = torch.rand(num_rows, num_middle, generator=generator).bfloat16().to(DEVICE)
    table = torch.rand(num_middle, num_columns, generator=generator).bfloat16().to(DEVICE)
    table = table.T.contiguous().T if turned else table
    expected = rows.double() @ table.double()
    torch.testing.assert_close(product_in_shares(rows, table).sum(0), expected, rtol=1e-4, atol=0.0, check_dtype=False)


@pytest.mark.gpu
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("precision", "of_log_p", "of_gradients"), [("highest", 2e-4, 1e-3), ("high", 2e-2, 5e-2), ("medium", 5e-2, 1e-1)]
)
def test_precisions_at_some_size(form: Form, precision: Precision, of_log_p: float, of_gradients: float) -> None:
    """Networks among the weights: a rectifier whose input rounds to the other side of zero has another gradient."""
    lengths = (40, 1, 17, 2, 33) * 3
    model, words = new_lhmm(form, 2003, 509, 64, scale=0.2), random_words(lengths)
    model.options = {"precision": precision}
    found, lost = model.padded_log_prob(padded(words, lengths, 41, 0), on_device(lengths), seed_of(0))
    slopes = gradients(model, found)
    double = new_lhmm(form, 2003, 509, 64, scale=0.2).double()
    double.options = {"backend": "torch"}
    expected = double.log_prob(words, lengths)
    assert not bool(lost.any())
    assert float((found - expected).detach().abs().max()) < of_log_p
    assert relative_errors(slopes, gradients(double, expected)) < of_gradients


@pytest.mark.gpu
@pytest.mark.parametrize("precision", ["highest", "medium"])
@pytest.mark.parametrize("width", [1, 9])
def test_one_graph_serves_all_lengths(precision: Precision, width: int) -> None:
    model, lengths = new_lhmm("features", 500, 130), torch.ones(4, dtype=torch.int64, device=DEVICE)
    model.options = {"precision": precision}
    words, seed = random_words((width,) * 4), seed_of(0)

    def run() -> list[Tensor]:
        log_p, _ = model.padded_log_prob(words, lengths, seed)
        return [log_p.detach(), *gradients(model, log_p).values()]

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        run()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = run()
    lengths.copy_(torch.tensor([width, 1, (width + 1) // 2, width]))
    words.copy_(words.flip(0))
    graph.replay()
    kept = [each.clone() for each in captured]
    assert all(torch.equal(one, other) for one, other in zip(kept, run(), strict=True))
