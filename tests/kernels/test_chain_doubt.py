"""Outputs of chains that are too low for float32: proven not to matter, or found to."""

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton", reason="needs triton")

from kernels.charts import DEVICE
from kernels.test_chain_model import gradients, new_model, random_words, relative_errors, seed_of
from kernels.test_padded_chains import on_device, padded
from kernels.test_state_chains import new_lhmm
from rankspace.inference.ragged import ragged
from rankspace.models.contract import Model
from rankspace.models.fast_chain import rank_chain_log_prob

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
        for network in (model.from_state, model.to_state):
            for weight in network.parameters():
                weight.zero_()
        model.states[:, 0] = 0.0
        model.states[LOW, 0] = -15.0
    return model


MODELS = {"ranks": with_a_low_rank, "states": with_a_low_state}


@pytest.mark.parametrize("kind", MODELS)
def test_what_is_low_and_does_not_matter_is_not_lost(kind: str) -> None:
    """At once where the caller may wait, after the backward pass in a padded batch."""
    model, words = MODELS[kind](), random_words(LENGTHS)
    double = MODELS[kind]().double()
    double.options = {"backend": "torch"}
    expected = double.log_prob(words, LENGTHS)
    log_p, lost = model.log_prob_by_kernels(words, ragged(LENGTHS, DEVICE), seed_of(0))  # type: ignore[attr-defined]
    later, later_lost = model.padded_log_prob(padded(words, LENGTHS, 6, 0), on_device(LENGTHS), seed_of(0))
    with torch.no_grad():
        alone, alone_lost = model.log_prob_by_kernels(words, ragged(LENGTHS, DEVICE), seed_of(0))  # type: ignore[attr-defined]
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
        ragged(lengths, DEVICE),
        "highest",
        0.0,
        seed_of(0),
        true_lengths,
    )


@pytest.mark.parametrize("kept", [-20.0, -90.0])
def test_what_is_low_and_matters_is_lost(kept: float) -> None:
    """The third word of a sentence is one that no other rank has with more than e^kept: at e^-20 these matter more than
    the low rank, whose output is e^-150."""
    model = with_a_low_rank()
    layout, waiting = ragged(LENGTHS, DEVICE), ragged((5,) * 4, DEVICE)
    log_words = torch.randn(layout.num_tokens, 12, generator=torch.Generator().manual_seed(0)).to(DEVICE) - 5
    row = int(((layout.token_time == 2) & (layout.sentence_at[layout.token_place] == 3)).nonzero())
    log_words[row] = kept
    log_words[row, LOW] = 0
    expected = [False, False, False, kept < -50]
    _, lost = chain_of(model, log_words, None)
    assert lost.tolist() == expected
    rows = waiting.pack(layout.unpack(torch.arange(layout.num_tokens, device=DEVICE)))
    log_p, lost = chain_of(model, log_words[rows], on_device(LENGTHS))
    assert not bool(lost.any())
    log_p.sum().backward()
    assert lost.tolist() == expected


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
            ragged(LENGTHS, DEVICE),
            "highest",
            0.4,
            seed_of(0),
        )
        assert not bool(lost.any())
        found.append(log_p)
    for each in found[1:]:
        torch.testing.assert_close(each, found[0], rtol=1e-7, atol=1e-7)
