"""Sentences that float64 loses: by raising what is too low, or in log space, and how that is told."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from rankspace.distributions import RankSpacePCFG, SimplePCFG
from rankspace.inference.tree.inputs import TreeInputs
from rankspace.inference.tree.raised import RAISED, raised_log_z

WORDS, LENGTHS = torch.tensor([[0, 1, 2, 3, 0, 2], [3, 3, 1, 0, 0, 0], [1, 2, 0, 0, 0, 0]]), (6, 4, 2)


def rows(generator: torch.Generator, *shape: int, peak: float) -> Tensor:
    logits = torch.randn(shape, generator=generator, dtype=torch.float64) * peak
    return logits.log_softmax(-1).requires_grad_()


def peaked(kind: Any, peak: float, **options: Any) -> Any:
    """Rules whose probabilities lie hundreds of nats apart, and words that every preterminal can emit."""
    generator = torch.Generator().manual_seed(3)
    shapes = [(4,), (4, 10), (4, 10)] if kind is SimplePCFG else [(4,), (4, 5), (5, 10), (5, 10)]
    return kind(*(rows(generator, *shape, peak=peak) for shape in shapes), rows(generator, 6, 4, peak=1.0), **options)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many sentences went to log space, call by call."""
    calls: list[int] = []
    for kind in (SimplePCFG, RankSpacePCFG):
        plain = kind._log_space

        def counted(self: Any, parameters: Any, batch: Any, plain: Any = plain) -> Tensor:
            calls.append(len(batch.lengths))
            return plain(self, parameters, batch)

        monkeypatch.setattr(kind, "_log_space", counted)
    return calls


@pytest.mark.parametrize(
    ("kind", "peak", "options"),
    [(SimplePCFG, 200, {}), (RankSpacePCFG, 500, {"order": "rank"}), (RankSpacePCFG, 700, {"order": "state"})],
)
def test_what_matters_not_is_raised(kind: Any, peak: float, options: dict[str, Any], asked: list[int]) -> None:
    made, plain = peaked(kind, peak, **options), peaked(kind, peak, backend="autograd")
    batch = made._batch(WORDS, LENGTHS)
    assert bool(made._linear(made.parameters, batch)[1].any())  # float64 alone loses some
    found, expected = made.log_prob(WORDS, LENGTHS), plain.log_prob(WORDS, LENGTHS)
    assert asked == [len(LENGTHS)]  # that of `expected`
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-10)
    pairs = (found, made), (expected, plain)
    gradients = [torch.autograd.grad(one.sum(), list(which.parameters.values())) for one, which in pairs]
    for mine, theirs in zip(*gradients, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-9, atol=1e-11)


def test_without_gradients(asked: list[int]) -> None:
    made = peaked(RankSpacePCFG, 500)
    expected = made.log_prob(WORDS, LENGTHS).detach()
    with torch.no_grad():
        assert torch.equal(made.log_prob(WORDS, LENGTHS), expected)
    with torch.inference_mode():
        assert torch.equal(made.detach().log_prob(WORDS, LENGTHS), expected)
    assert asked == []


def test_what_matters_goes_to_log_space(asked: list[int]) -> None:
    made, plain = peaked(SimplePCFG, 300), peaked(SimplePCFG, 300, backend="autograd")
    found = made.log_prob(WORDS, LENGTHS)
    assert asked == [2]  # the third sentence is not lost
    torch.testing.assert_close(found, plain.log_prob(WORDS, LENGTHS), rtol=1e-12, atol=1e-10)


def test_impossible_sentences_stay_impossible() -> None:
    """A word that nothing emits, beside sentences that are lost."""
    tables = [value.detach() for value in peaked(SimplePCFG, 200).parameters.values()]
    tables[-1][:, 1] = -math.inf
    words = torch.tensor([[0, 1, 2, 3, 0, 2], [0, 3, 2, 3, 0, 2]])
    made, plain = (SimplePCFG(*tables, validate=False, backend=backend) for backend in ("auto", "autograd"))
    assert bool(made._linear(made.parameters, made._batch(words, None))[1].any())
    found = made.log_prob(words)
    assert found[0] == -math.inf
    torch.testing.assert_close(found, plain.log_prob(words), rtol=1e-12, atol=1e-10)


def test_weights_beyond_what_is_raised_are_not_trusted() -> None:
    """All that there is passes through a link far below."""
    made = peaked(SimplePCFG, peak=1.0)
    batch = made._batch(WORDS[:1], LENGTHS[:1])
    inputs, sentences = made._prepared(made.parameters, batch)
    fine, right = raised_log_z(inputs, sentences, None)
    assert bool(right.all())
    torch.testing.assert_close(fine, made.log_prob(WORDS[:1], LENGTHS[:1]))
    low: TreeInputs = inputs.like((inputs.words * RAISED * 2.0**-60, *inputs.tensors[1:]))
    assert not bool(raised_log_z(low, sentences, None)[1].any())
