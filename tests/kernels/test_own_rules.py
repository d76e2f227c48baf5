"""Trees with rules of each sentence's own by Triton kernels, against the torch engine in float64; `c-pcfg` by them."""

import math
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton", reason="needs triton")

from kernels.dense_cases import Outcome, Tables, compare, outcome, random_words
from kernels.dense_charts import DEVICE
from kernels.test_dense_engine import on_cpu, same_slopes
from rankspace.distributions import PCFG
from rankspace.errors import RankspaceError
from rankspace.inference.links import Precision
from rankspace.models import c_pcfg, create
from rankspace.models.contract import Posed
from rankspace.models.dense_trees import log_prob_of_each

VOCABULARY = 20


def own_tables(batch: int, nonterminals: int, preterminals: int, words: int, peak: float = 1.0) -> Tables:
    """Logarithms, in float64, of each sentence."""
    generator, symbols = torch.Generator().manual_seed(0), nonterminals + preterminals

    def rows(*shape: int) -> Tensor:
        logits = torch.randn((batch, *shape), generator=generator, dtype=torch.float64) * peak
        return logits.log_softmax(-1).to(DEVICE)

    rule = rows(nonterminals, symbols**2).unflatten(2, (symbols, symbols))
    return Tables(rows(nonterminals), rule, rows(preterminals, words))


def by_kernels(tables: Tables, words: Tensor, lengths: Sequence[int], precision: Precision = "highest") -> Outcome:
    leaves = [table.float().requires_grad_() for table in tables]
    posed = Posed(PCFG(*leaves, validate=False), words, tuple(lengths), words)
    return outcome(*log_prob_of_each(posed, precision), leaves)


def by_torch(tables: Tables, words: Tensor, lengths: Sequence[int]) -> Outcome:
    leaves = [table.clone().requires_grad_() for table in tables]
    log_z = PCFG(*leaves, validate=False).log_prob(words, lengths)
    return outcome(log_z, torch.zeros_like(log_z, dtype=torch.bool), leaves)


def words_of(batch: int, length: int) -> Tensor:
    """Some of them more than once in a sentence."""
    return random_words(batch, length) % 7


@pytest.mark.parametrize(
    ("nonterminals", "preterminals", "lengths"),
    [
        (1, 1, (4, 3)),
        (3, 5, (2, 5, 3)),
        (3, 5, (1, 4, 0)),
        (7, 2, (2, 2)),
        (2, 17, (4, 2)),
        (17, 3, (4,)),
        (3, 2, (5,)),
    ],
)
def test_values_and_gradients(nonterminals: int, preterminals: int, lengths: Sequence[int]) -> None:
    tables = own_tables(len(lengths), nonterminals, preterminals, 7)
    words = words_of(len(lengths), max(lengths))
    compare(by_kernels(tables, words, lengths), by_torch(tables, words, lengths))


@pytest.mark.parametrize("length", [0, 1])
def test_sentences_of_one_word_are_impossible(length: int) -> None:
    tables, words = own_tables(2, 3, 2, 7), words_of(2, length)
    found = by_kernels(tables, words, (length, 0))
    assert found.log_z.tolist() == [-math.inf] * 2
    assert not any(bool(gradient.any()) for gradient in found.gradients)


def test_each_sentence_has_what_it_has_alone() -> None:
    tables, words, lengths = own_tables(3, 3, 5, 7), words_of(3, 5), (3, 5, 2)
    found = by_kernels(tables, words, lengths)
    for sentence, length in enumerate(lengths):
        alone = by_kernels(
            Tables(*(table[sentence, None] for table in tables)), words[sentence, None, :length], (length,)
        )
        torch.testing.assert_close(alone.log_z[0], found.log_z[sentence], rtol=1e-6, atol=1e-6)


def test_padding_is_not_read() -> None:
    tables, words, lengths = own_tables(3, 3, 5, 7), words_of(3, 5), (3, 5, 1)
    others = words.clone()
    for sentence, length in enumerate(lengths):
        others[sentence, length:] = 6 - others[sentence, length:]
    one, other = (by_kernels(tables, each, lengths) for each in (words, others))
    assert torch.equal(one.log_z, other.log_z)
    assert all(torch.equal(x, y) for x, y in zip(one.gradients, other.gradients, strict=True))


def test_the_same_bits_twice() -> None:
    tables, words = own_tables(2, 3, 5, 7), words_of(2, 5)
    one, other = (by_kernels(tables, words, (5, 4)) for _ in range(2))
    assert torch.equal(one.log_z, other.log_z)
    assert all(torch.equal(x, y) for x, y in zip(one.gradients, other.gradients, strict=True))


def test_a_sentence_that_is_lost_takes_nothing_from_others() -> None:
    tables, words = own_tables(2, 3, 2, 7), words_of(2, 4)
    tables.rule[0, 1, :, 3:] = tables.rule[0, 1, 3:] = -math.inf  # a nonterminal with nothing below it
    found, expected = by_kernels(tables, words, (4, 4)), by_torch(tables, words, (4, 4))
    assert found.lost.tolist() == [True, False]
    torch.testing.assert_close(found.log_z[1], expected.log_z[1], rtol=1e-6, atol=1e-5)
    for one, other in zip(found.gradients, expected.gradients, strict=True):
        assert not bool(one[0].any())
        torch.testing.assert_close(one[1].double(), other[1], rtol=1e-4, atol=1e-6)


@pytest.mark.gpu
@pytest.mark.parametrize(("precision", "tolerance"), [("highest", 1e-4), ("high", 2e-2), ("medium", 2e-2)])
def test_accuracy_at_size(precision: Precision, tolerance: float) -> None:
    lengths = (40, 2, 17, 1, 33, 9, 3, 40)
    tables, words = own_tables(8, 30, 60, 7), words_of(8, 40)
    found, again = (by_kernels(tables, words, lengths, precision) for _ in range(2))
    expected = by_torch(tables, words, lengths)
    possible = expected.log_z.isfinite()
    assert torch.equal(found.log_z.isfinite(), possible)
    assert not bool(found.lost.any())
    assert float((found.log_z - expected.log_z)[possible].abs().max()) <= tolerance
    for one, same, other in zip(found.gradients, again.gradients, expected.gradients, strict=True):
        assert torch.equal(one, same)
        assert float((one - other).norm() / other.norm()) <= tolerance


def small_model(**options: Any) -> Any:
    torch.manual_seed(0)
    model: Any = create("c-pcfg", vocabulary=VOCABULARY, nonterminals=3, preterminals=4, size=8, latent=3).to(DEVICE)
    model.options = options
    return model.eval()


def slopes_of(model: Any, log_p: Tensor) -> dict[str, Tensor]:
    """Of what is possible."""
    model.zero_grad()
    log_p[log_p.isfinite()].mean().backward()
    return {name: weight.grad.clone() for name, weight in model.named_parameters()}


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> list[Tensor]:
    """Which sentences the kernels lost, batch by batch."""
    found: list[Tensor] = []

    def noted(*given: Any) -> Any:
        log_p, lost = log_prob_of_each(*given)
        found.append(lost)
        return log_p, lost

    monkeypatch.setattr(c_pcfg, "log_prob_of_each", noted)
    return found


@pytest.mark.parametrize("peak", [1, 300])
def test_the_model_by_kernels(launched: list[Tensor], peak: float) -> None:
    """With emissions that are peaked, some sentences are lost and done again."""
    words, lengths = random_words(5, 6) % VOCABULARY, [2, 6, 1, 4, 3]
    model = small_model(backend="triton")
    with torch.no_grad():
        model.grammar.emission.words.weight.mul_(peak)
    found = model.log_prob(words, lengths)
    slopes = slopes_of(model, found)
    assert [bool(lost.any()) for lost in launched] == [peak > 1]
    model.options = {"backend": "torch"}
    expected = model.double().log_prob(words, lengths)
    assert len(launched) == 1
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, expected, rtol=1e-6 if peak == 1 else 1e-5, atol=1e-5, check_dtype=False)
    same_slopes(slopes, slopes_of(model, expected), 1e-5 if peak == 1 else 1e-3)


def test_training_draws_what_it_draws_without_kernels(launched: list[Tensor]) -> None:
    words, lengths, losses = random_words(3, 5) % VOCABULARY, [5, 3, 2], []
    for backend in ("triton", "torch"):
        torch.manual_seed(3)
        losses.append(small_model(backend=backend).train().loss(words, lengths))
    assert len(launched) == 1
    torch.testing.assert_close(*losses, rtol=1e-5, atol=1e-5)


def test_queries_without_kernels_run_as_with_auto() -> None:
    words = random_words(2, 4) % VOCABULARY
    found, expected = (small_model(**options).pose(words) for options in ({"backend": "triton"}, {}))
    assert found.distribution.backend == "auto"
    assert found.distribution.mbr(found.words) == expected.distribution.mbr(expected.words)


def test_a_step_is_not_captured() -> None:
    """Its inference network is told lengths on the host."""
    assert not small_model().can_be_captured(DEVICE)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"order": "rank"}, "its kernels run in state order and order is 'rank'; give order='auto' or backend='auto'."),
        ({}, "the weights are torch.float64 and it needs float32; give backend='auto'."),
    ],
)
def test_kernels_of_another_order_or_dtype_are_refused(options: dict[str, Any], why: str) -> None:
    model = small_model(backend="triton", **options)
    with pytest.raises(RankspaceError) as caught:
        (model if options else model.double()).log_prob(random_words(1, 3) % VOCABULARY)
    assert str(caught.value) == f"c-pcfg: backend is 'triton', but {why}"


@on_cpu
def test_without_a_gpu_kernels_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRITON_INTERPRET")
    with pytest.raises(RankspaceError) as caught:
        small_model(backend="triton").log_prob(random_words(1, 3) % VOCABULARY)
    assert str(caught.value) == (
        "c-pcfg: backend is 'triton', but the parameters are on cpu and it needs a GPU; give backend='auto'."
    )
