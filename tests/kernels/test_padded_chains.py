"""log p of padded batches whose true lengths the device alone knows, against the ragged ones."""

from typing import Any

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton", reason="needs triton")

from kernels.charts import DEVICE
from kernels.test_chain_model import (
    VOCABULARY,
    Start,
    batch_of,
    gradients,
    new_model,
    random_words,
    relative_errors,
    seed_of,
)
from rankspace.errors import RankspaceError
from rankspace.inference.ragged import ragged
from rankspace.kernels.chain_table import FLOOR
from rankspace.models import create, fast_model
from rankspace.models.contract import Model
from rankspace.models.fast_batch import Batch
from rankspace.models.fast_chain import rank_chain_log_prob

LENGTHS = (4, 1, 2, 1)


def padded(words: Tensor, lengths: tuple[int, ...], width: int, seed: int) -> Tensor:
    """The same sentences with other words behind them."""
    generator = torch.Generator().manual_seed(seed)
    found = torch.randint(VOCABULARY, (len(lengths), width), generator=generator).to(DEVICE)
    for sentence, length in enumerate(lengths):
        found[sentence, :length] = words[sentence, :length]
    return found


def on_device(lengths: tuple[int, ...]) -> Tensor:
    return torch.tensor(lengths, device=DEVICE)


def outcome(model: Model, words: Tensor, lengths: tuple[int, ...], seed: int = 3) -> tuple[Tensor, dict[str, Tensor]]:
    log_p, lost = model.padded_log_prob(words, on_device(lengths), seed_of(seed))
    assert not bool(lost.any())
    return log_p.detach(), gradients(model, log_p)  # type: ignore[arg-type]


@pytest.mark.parametrize(("start", "states", "rank"), [("states", 37, 13), ("ranks", 16, 40)])
def test_what_lies_behind_the_end_changes_nothing(start: Start, states: int, rank: int) -> None:
    """Both ways of the link's gradient; sentences of one word; more padding than the longest needs; dropout."""
    model, words = new_model(start, states, rank, dropout=0.2), random_words(LENGTHS)
    if start == "states":
        with torch.no_grad():
            model.starts.zero_()  # whose own dropout then changes nothing
    log_p, lost = model.log_prob_by_kernels(words, batch_of(LENGTHS, model.precision, 3))
    expected = gradients(model, log_p)
    expected.pop("starts", None)
    assert not bool(lost.any())
    for width, seed in ((4, 0), (6, 1)):
        found, slopes = outcome(model, padded(words, LENGTHS, width, seed), LENGTHS)
        slopes.pop("starts", None)
        torch.testing.assert_close(found, log_p.detach(), rtol=1e-6, atol=1e-6)
        assert relative_errors(slopes, expected) < 1e-5


def test_a_word_behind_the_end_that_no_rank_can_have() -> None:
    model, lengths = new_model("ranks", 20, 7), (1, 3, 2, 1)
    log_words = torch.randn(12, 7, generator=torch.Generator().manual_seed(0)).to(DEVICE)
    layout = ragged((3,) * 4, DEVICE)
    behind = layout.token_time >= on_device(lengths)[layout.token_place]
    log_words[behind] = -torch.inf
    inputs = [model.from_states, model.to_states, model.ranks]

    def run(log_words: Tensor, layout: Any, true_lengths: Tensor | None) -> tuple[Tensor, list[Tensor]]:
        leaf = log_words.detach().requires_grad_()
        batch = Batch(layout, "highest", seed_of(0), true_lengths)
        found, lost = rank_chain_log_prob(*inputs, None, leaf, batch, 0.0)
        assert not bool(lost.any())
        return found.detach(), list(torch.autograd.grad(found.sum(), [*inputs, leaf]))

    found, slopes = run(log_words, layout, on_device(lengths))
    short = ragged(lengths, DEVICE)
    rows = short.token_time * 4 + short.sentence_at[short.token_place]
    expected, own = run(log_words[rows], short, None)
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6)
    for one, other in zip(slopes[:3], own[:3], strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(slopes[3][rows], own[3], rtol=1e-4, atol=1e-6)
    assert not bool(slopes[3][behind].any())


def test_filler_sentences_have_the_gradient_they_are_given() -> None:
    """None, if their log p is not counted."""
    model, words = new_model("ranks", 20, 7), padded(random_words(LENGTHS), LENGTHS, 5, 0)
    log_p, _ = model.padded_log_prob(words, on_device(LENGTHS), seed_of(0))
    counted = torch.tensor([1.0, 0, 1, 0], device=DEVICE, dtype=torch.float64)
    found = torch.autograd.grad((log_p * counted).sum(), model.ranks)[0]
    alone, _ = model.log_prob_by_kernels(words[[0, 2]], batch_of((4, 2), model.precision))
    torch.testing.assert_close(found, torch.autograd.grad(alone.sum(), model.ranks)[0], rtol=1e-4, atol=1e-6)


def test_log_prob_by_kernels_redoes_what_is_lost() -> None:
    lengths = (6, 3, 12)
    model, words = new_model("ranks", 30, 12, scale=12.0), random_words(lengths)
    double = new_model("ranks", 30, 12, scale=12.0).double()
    model.options = {"backend": "triton"}
    _, lost = model.log_prob_by_kernels(words, batch_of(lengths, model.precision))
    assert bool(lost.any())
    found, expected = model.log_prob(words, lengths), double.log_prob(words, lengths)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-3, check_dtype=False)  # logits of 144 are rounded
    with torch.no_grad():
        assert torch.equal(model.log_prob(words, on_device(lengths)), found)
    for one, other in zip(gradients(model, found).values(), gradients(double, expected).values(), strict=True):
        assert bool(one.isfinite().all())
        assert float((one - other).norm()) <= 0.1 * float(other.norm()) + 1e-3


def test_when_kernels_run(monkeypatch: pytest.MonkeyPatch) -> None:
    model, words = new_model("ranks", 20, 7), random_words((3, 2))
    for options, expected in (
        ({}, True),
        ({"backend": "triton", "order": "rank"}, True),
        ({"backend": "torch"}, False),
        ({"backend": "autograd"}, False),
        ({"order": "state"}, False),
    ):
        model.options = dict(options)
        assert model.can_be_captured(DEVICE) == expected
    assert not new_model("ranks", 20, 7).double().can_be_captured(DEVICE)
    if DEVICE.type == "cpu":
        monkeypatch.delenv("TRITON_INTERPRET")
        model.options = {}
        assert not model.can_be_captured(DEVICE)
        assert bool(model.log_prob(words, (3, 2)).isfinite().all())
        model.options = {"backend": "triton"}
        with pytest.raises(RankspaceError) as caught:
            model.log_prob(words, (3, 2))
        assert str(caught.value) == (
            "rank-hmm: backend is 'triton', but the parameters are on cpu and it needs a GPU; give backend='auto'."
        )


def test_kernels_of_other_dtypes_are_refused() -> None:
    model = new_model("ranks", 20, 7).double()
    assert bool(model.log_prob(random_words((3, 2)), (3, 2)).isfinite().all())
    model.options = {"backend": "triton"}
    with pytest.raises(RankspaceError) as caught:
        model.log_prob(random_words((3, 2)), (3, 2))
    assert str(caught.value) == (
        "rank-hmm: backend is 'triton', but the weights are torch.float64 and it needs float32; give backend='auto'."
    )


def test_kernels_of_another_order_are_refused() -> None:
    model = new_model("ranks", 20, 7)
    model.options = {"backend": "triton", "order": "state"}
    with pytest.raises(RankspaceError) as caught:
        model.log_prob(random_words((3, 2)), (3, 2))
    assert str(caught.value) == (
        "rank-hmm: backend is 'triton', but its kernels run in rank order and order is 'state'; give order='auto' or "
        "backend='auto'."
    )


def test_kernels_are_for_sizes_that_the_proof_of_their_floor_holds_for(monkeypatch: pytest.MonkeyPatch) -> None:
    assert FLOOR.value >= 4 * fast_model.MOST_TERMS * 2.0**-126
    model, words = new_model("ranks", 20, 7).eval(), random_words((3, 2))
    expected = model.log_prob(words, (3, 2))
    for bound, fits in ((140, True), (139, False)):
        monkeypatch.setattr(fast_model, "MOST_TERMS", bound)
        model.options = {}
        assert model.can_be_captured(DEVICE) == fits
    assert not create("lhmm", vocabulary=3, states=20, rank=7, size=4).can_be_captured(DEVICE)
    assert create("hmm", vocabulary=3, states=139, size=4).can_be_captured(DEVICE)
    monkeypatch.setattr(model, "log_prob_by_kernels", None)
    torch.testing.assert_close(model.log_prob(words, (3, 2)), expected, rtol=1e-5, atol=1e-5)
    model.options = {"backend": "triton"}
    for query in (model.log_prob, model.pose):
        with pytest.raises(RankspaceError) as caught:
            query(words, (3, 2))
        assert str(caught.value) == (
            "rank-hmm: backend is 'triton', but its kernels are for rank times states of at most 139 and these are 140;"
            " give fewer of them or backend='auto'."
        )


def test_other_queries_have_a_distribution_as_before() -> None:
    model, words = new_model("ranks", 20, 7), random_words((3, 2))
    model.eval()
    model.options = {"backend": "triton"}
    assert model().backend == "auto"
    torch.testing.assert_close(model.log_prob(words, (3, 2)), model().log_prob(words, (3, 2)), rtol=1e-5, atol=1e-5)


def test_a_backend_that_there_is_not() -> None:
    """Those of the model are named, not those of its distribution alone."""
    model, words = new_model("ranks", 20, 7), random_words((3, 2))
    model.options = {"backend": "cuda"}
    with pytest.raises(RankspaceError) as error:
        model.log_prob(words, (3, 2))
    assert str(error.value) == "rank-hmm: backend is 'cuda'; give one of 'auto', 'torch', 'triton', 'autograd'."
