"""Outputs of chains that are too low for float32: proven not to matter, or found to."""

import math

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton", reason="needs triton")

from kernels.charts import DEVICE
from kernels.test_chain_kernels import filled_chain, random_link
from kernels.test_chain_model import batch_of, gradients, new_model, random_words, relative_errors, seed_of
from kernels.test_padded_chains import on_device, padded
from kernels.test_state_chains import new_lhmm
from rankspace.inference.ragged import ragged
from rankspace.kernels.chain_steps import linked_step, linked_step_by_torch, scales_by_torch
from rankspace.kernels.chain_table import FLOOR
from rankspace.models import fast_sides, fast_tall
from rankspace.models.contract import Model
from rankspace.models.fast_chain import _factors, rank_chain_log_prob
from rankspace.models.fast_states import state_chain_log_prob

LENGTHS = (5, 3, 1, 4)
LOW = 3  # a rank that hardly any state leads to


def with_a_low_rank() -> Model:
    """Every state has a probability of e^-150 for that rank: far below the range of float32."""
    model = new_model("ranks", 30, 12)
    with torch.no_grad():
        model.from_states[:, 0], model.to_states[:, 0] = 10.0, 0.0
        model.ranks[:, 0] = 0.0
        model.ranks[LOW, 0] = -15.0
    return model


def with_a_low_state() -> Model:
    """Every rank has such a probability for one state."""
    model = new_lhmm("tables", 30, 12)
    with torch.no_grad():
        model.ranks[:, 0] = 10.0
        model.to_states[:, 0] = 0.0
        model.to_states[LOW, 0] = -15.0
    return model


MODELS = {"ranks": with_a_low_rank, "states": with_a_low_state}


@pytest.mark.parametrize("kind", MODELS)
def test_what_is_low_and_does_not_matter_is_not_lost(kind: str) -> None:
    """At once where the caller may wait, after the backward pass in a padded batch."""
    model, words = MODELS[kind](), random_words(LENGTHS)
    double = MODELS[kind]().double()
    double.options = {"backend": "torch"}
    expected = double.log_prob(words, LENGTHS)
    log_p, lost = model.log_prob_by_kernels(words, batch_of(LENGTHS, model.precision))  # type: ignore[attr-defined]
    later, later_lost = model.padded_log_prob(padded(words, LENGTHS, 6, 0), on_device(LENGTHS), seed_of(0))
    with torch.no_grad():
        alone, alone_lost = model.log_prob_by_kernels(words, batch_of(LENGTHS, model.precision))  # type: ignore[attr-defined]
    for found in (log_p, later, alone):
        torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-4)
    slopes = gradients(double, expected)
    for found in (log_p, later):
        assert relative_errors(gradients(model, found), slopes) < 1e-4
    for each in (lost, later_lost, alone_lost):
        assert not bool(each.any())


def chain_of(model: Model, log_words: Tensor, true_lengths: Tensor | None) -> tuple[Tensor, Tensor]:
    lengths = LENGTHS if true_lengths is None else (5,) * 4
    return rank_chain_log_prob(
        model.from_states,  # type: ignore[arg-type]
        model.to_states,  # type: ignore[arg-type]
        model.ranks,  # type: ignore[arg-type]
        None,
        log_words,
        batch_of(lengths, true_lengths=true_lengths),
        0.0,
    )


@pytest.mark.parametrize(
    ("time", "kept", "when"), [(2, -20.0, "never"), (3, -44.0, "never"), (3, -50.0, "late"), (2, -90.0, "early")]
)
def test_what_is_low_and_matters_is_lost(time: int, kept: float, when: str) -> None:
    """A word of a sentence is one that no other rank has with more than e^kept. These matter more than the low rank,
    whose output is raised to e^-66, down to e^-46; at e^-50 derivatives show that they do not, at e^-90 the next word's
    outputs sum to too little."""
    model = with_a_low_rank()
    layout, waiting = ragged(LENGTHS, DEVICE), ragged((5,) * 4, DEVICE)
    log_words = torch.randn(layout.num_tokens, 12, generator=torch.Generator().manual_seed(0)).to(DEVICE) - 5
    row = int(((layout.token_time == time) & (layout.sentence_at[layout.token_place] == 3)).nonzero())
    log_words[row] = kept
    log_words[row, LOW] = 0
    expected = [False, False, False, when != "never"]
    _, lost = chain_of(model, log_words, None)
    assert lost.tolist() == expected
    rows = waiting.pack(layout.unpack(torch.arange(layout.num_tokens, device=DEVICE)))
    log_p, lost = chain_of(model, log_words[rows], on_device(LENGTHS))
    assert lost.tolist() == [False, False, False, when == "early"]
    log_p.sum().backward()
    assert lost.tolist() == expected
    with torch.no_grad():  # no backward pass will mark any
        assert chain_of(model, log_words[rows], on_device(LENGTHS))[1].tolist() == expected


def state_chain(
    start: Tensor, log_words: Tensor, logits: Tensor | None = None, true_lengths: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Of one sentence of two words. All states lead to one rank, which leads to each with the probability of its logit;
    the start leads to another."""
    size, batch = len(start), batch_of((2,), true_lengths=true_lengths)
    from_states = torch.zeros(size + 1, 2, device=DEVICE)
    from_states[:-1, 1] = from_states[-1, 0] = -300
    links = torch.zeros_like(start) if logits is None else logits
    to_states = torch.stack([links, start.log().clamp(min=-300)], 1)
    return state_chain_log_prob(from_states, to_states, torch.eye(2, device=DEVICE), log_words, batch, False)


@pytest.mark.parametrize("is_padded", [False, True])
@pytest.mark.parametrize("is_tall", [False, True])
def test_a_word_that_nothing_is_left_for_is_lost(
    monkeypatch: pytest.MonkeyPatch, is_tall: bool, is_padded: bool
) -> None:
    """Where the start is, the first word is below the range of float32, and where the word is, the start is: outputs
    after it are all raised, and derivatives are zero."""
    for module in (fast_sides, fast_tall):
        monkeypatch.setattr(module, "is_tall", lambda *_: is_tall)
    start = torch.tensor([0.0, -160.0], device=DEVICE).softmax(0)
    log_words = torch.tensor([[-150.0, 0.0], [0.0, 0.0]], device=DEVICE, requires_grad=True)
    true_lengths = torch.tensor([2], device=DEVICE) if is_padded else None
    log_p, lost = state_chain(start, log_words, true_lengths=true_lengths)
    log_p.sum().backward()
    assert lost.tolist() == [True]


def test_a_first_word_that_only_ranks_have_which_were_left_out_is_lost() -> None:
    model, batch = new_model("ranks", 30, 12), batch_of((2,))
    left_out = _factors(model.from_states, model.to_states, model.ranks, None, batch, 0.4).to_rank[-1] == 0
    assert 0 < int(left_out.sum()) < 12
    log_words = torch.full((2, 12), -150.0, device=DEVICE)
    log_words[0, left_out] = 0
    tables = model.from_states, model.to_states, model.ranks
    _, lost = rank_chain_log_prob(*tables, None, log_words, batch, 0.4)
    assert lost.tolist() == [True]


@pytest.mark.parametrize("power", [-74, -66, -40])
def test_what_was_raised_does_not_show_in_the_sum_below_the_line(power: int) -> None:
    """The first word makes the vector low, the next one is where none of the raised outputs is: derivatives with
    respect to them are zero, but they count in what the probability of the word is divided by."""
    size, low = 512, power * math.log(2)
    start, logits = torch.zeros(size, device=DEVICE), torch.full((size,), -200.0, device=DEVICE)
    start[0], start[1], logits[0] = 1, 2.0**power, 0
    log_words = torch.full((2, size), -200.0, device=DEVICE)
    log_words[0, 1], log_words[1, 0] = 0, 0
    log_p, lost = state_chain(start, log_words, logits)
    assert bool(lost) or abs(float(log_p) - low) < 1e-4
    assert bool(lost) == (power < -50)


@pytest.mark.parametrize("is_tall", [False, True])
def test_a_state_that_is_low_and_matters_is_lost(monkeypatch: pytest.MonkeyPatch, is_tall: bool) -> None:
    for module in (fast_sides, fast_tall):
        monkeypatch.setattr(module, "is_tall", lambda *_: is_tall)
    start, logits = torch.full((4,), 0.25, device=DEVICE), torch.tensor([0.0, 0, 0, -150], device=DEVICE)
    log_words = torch.zeros(2, 4, device=DEVICE)
    for others, expected in ((-20.0, False), (-90.0, True)):
        log_words[1] = torch.tensor([others, others, others, 0])
        _, lost = state_chain(start, log_words, logits)
        assert lost.tolist() == [expected]


def test_a_step_with_the_product_in_it_raises_too() -> None:
    link = random_link(37)
    link[:, 5] = 0
    found, expected = filled_chain(37, (2, 2)), filled_chain(37, (2, 2))
    linked_step(found, 1, link.T.contiguous())
    linked_step_by_torch(expected, 1, link.T)
    scale = scales_by_torch(found, 1)[:, 0].clamp(min=1)
    torch.testing.assert_close(found.outputs[2:], expected.outputs[2:], rtol=1e-5, atol=0.0)
    assert torch.equal(found.outputs[2:, 5], FLOOR.value * scale)


def test_a_start_that_all_but_one_state_has_left() -> None:
    """Other states then lead to ranks that were left out for the first, with next to no probability."""
    model = new_model("states", 30, 12)
    log_words = torch.randn(sum(LENGTHS), 12, generator=torch.Generator().manual_seed(0)).to(DEVICE)
    found = []
    for others in (0.0, 1e-36, 1e-44):
        start = torch.full((30,), others, device=DEVICE)
        start[0] = 1
        log_p, lost = rank_chain_log_prob(
            model.from_states,
            model.to_states,
            model.ranks,
            start,
            log_words,
            batch_of(LENGTHS),
            0.4,
        )
        assert not bool(lost.any())
        found.append(log_p)
    for each in found[1:]:
        torch.testing.assert_close(each, found[0], rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("which", [slice(None), slice(2, 3)], ids=["all", "some"])
def test_a_word_that_is_no_number_is_lost_and_not_impossible(which: slice) -> None:
    model, layout = new_model("ranks", 30, 12), ragged(LENGTHS, DEVICE)
    log_words = torch.randn(layout.num_tokens, 12, generator=torch.Generator().manual_seed(0)).to(DEVICE)
    row = int(((layout.token_time == 1) & (layout.sentence_at[layout.token_place] == 1)).nonzero())
    log_words[row, which] = math.nan
    _, lost = chain_of(model, log_words, None)
    assert lost.tolist() == [False, True, False, False]
