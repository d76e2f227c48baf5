"""Trees with a full rule tensor by Triton kernels against the torch engine in float64; `n-pcfg` by them."""

import math
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton", reason="needs triton")

from kernels.dense_cases import Tables, by_kernels, by_torch, compare, random_tables, random_words
from kernels.dense_charts import DEVICE
from rankspace.errors import RankspaceError
from rankspace.inference.ragged import ragged
from rankspace.inference.tree.dense_triton import Setting, dense_log_z_by_kernels
from rankspace.kernels import dense_chart, dense_links
from rankspace.models import create

on_cpu = pytest.mark.skipif(torch.cuda.is_available(), reason="is about what happens without a GPU")


@pytest.mark.parametrize(
    ("nonterminals", "preterminals", "lengths"),
    [(1, 1, (4, 3)), (3, 5, (2, 5, 3)), (7, 2, (2,)), (2, 17, (4, 2)), (17, 3, (4,)), (33, 2, (4,))],
)
def test_values_and_gradients(nonterminals: int, preterminals: int, lengths: Sequence[int]) -> None:
    tables, words = random_tables(nonterminals, preterminals), random_words(len(lengths), max(lengths))
    compare(by_kernels(tables, words, lengths), by_torch(tables, words, lengths))


@pytest.mark.parametrize("true_lengths", [(6, 6), (6, 3), (2, 5), (1, 4), (0, 2)])
def test_true_lengths_below_those_of_the_layout(true_lengths: Sequence[int]) -> None:
    tables, words = random_tables(3, 5), random_words(2, 6)
    compare(by_kernels(tables, words, (6, 6), true_lengths), by_torch(tables, words, true_lengths))


@pytest.mark.parametrize("length", [1, 2])
def test_sentences_of_one_word_are_impossible(length: int) -> None:
    found = by_kernels(random_tables(3, 2), random_words(2, length), (length,) * 2, (1, 0))
    assert found.log_z.tolist() == [-math.inf] * 2
    assert not bool(found.lost.any())
    assert not any(bool(gradient.any()) for gradient in found.gradients)


def test_words_behind_the_end_do_not_matter() -> None:
    """Whatever they are: even such as nothing emits."""
    tables, words = random_tables(3, 5), random_words(3, 5)
    tables.emission[:, 0] = -math.inf
    others = words.clone()
    for sentence, length in enumerate((5, 3, 1)):
        words[sentence, :length] = words[sentence, :length].clamp(min=1)
        others[sentence, :length] = words[sentence, :length]
        others[sentence, length:] = 0
    one, other = (by_kernels(tables, each, (5,) * 3, (5, 3, 1)) for each in (words, others))
    assert torch.equal(one.log_z, other.log_z)
    assert not bool(one.lost.any() | other.lost.any())
    assert all(torch.equal(x, y) for x, y in zip(one.gradients, other.gradients, strict=True))


def test_the_same_bits_twice() -> None:
    tables, words = random_tables(3, 5), random_words(2, 5)
    one, other = (by_kernels(tables, words, (5, 5), (5, 4)) for _ in range(2))
    assert torch.equal(one.log_z, other.log_z)
    assert all(torch.equal(x, y) for x, y in zip(one.gradients, other.gradients, strict=True))


def test_nothing_is_read_before_it_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    def poisoned(make: Any) -> Any:
        def made(*given: Any, **options: Any) -> Tensor:
            found: Tensor = make(*given, **options)
            return found.fill_(math.nan) if found.is_floating_point() else found.fill_(12345)

        return made

    tables, words = random_tables(3, 5), random_words(2, 5)
    expected = by_torch(tables, words, (5, 3))
    for module in (dense_chart, dense_links):
        for name in ("empty", "empty_like"):
            monkeypatch.setattr(module.torch, name, poisoned(getattr(torch, name)))
    found = by_kernels(tables, words, (5, 5), (5, 3))
    monkeypatch.undo()
    compare(found, expected)


def test_peaked_parameters_are_right_or_lost() -> None:
    tables, words = random_tables(4, 3, peak=30.0), random_words(5, 4)
    lengths = (4, 3, 2, 2, 4)
    found, expected = by_kernels(tables, words, lengths), by_torch(tables, words, lengths)
    kept = ~found.lost
    assert 0 < int(kept.sum()) < 5
    torch.testing.assert_close(found.log_z[kept], expected.log_z[kept], rtol=1e-6, atol=1e-5)
    assert all(bool(gradient.isfinite().all()) for gradient in found.gradients)


def test_rather_peaked_parameters_need_no_redo() -> None:
    tables, words = random_tables(4, 3, peak=6.0), random_words(2, 6)
    compare(by_kernels(tables, words, (6, 4)), by_torch(tables, words, (6, 4)))


def test_a_word_that_nothing_emits_makes_its_sentence_impossible() -> None:
    tables, words = random_tables(3, 5), random_words(3, 4).clamp(min=1)
    tables.emission[:, 0] = -math.inf
    words[1, 2] = 0
    found, expected = by_kernels(tables, words, (4, 4, 3)), by_torch(tables, words, (4, 4, 3))
    assert float(found.log_z[1]) == -math.inf
    compare(found, expected)


def rules_without(tables: Tables, nonterminal: int) -> Tables:
    """A nonterminal that has no two words below it, nor anything else."""
    rule = tables.rule.clone()
    rule[nonterminal, :, 3:] = -math.inf
    rule[nonterminal, 3:, :] = -math.inf
    return tables._replace(rule=rule)


def test_zeros_of_the_grammar_count_as_lost_and_have_no_gradient() -> None:
    tables, words = rules_without(random_tables(3, 2), 1), random_words(2, 4)
    found = by_kernels(tables, words, (4, 2))
    assert found.lost.tolist() == [True, False]  # of a whole sentence only Z is asked
    expected = by_torch(tables, words, (4, 2))
    torch.testing.assert_close(found.log_z[1], expected.log_z[1], rtol=1e-6, atol=1e-5)
    alone = by_kernels(tables, words[1:], (2,))
    assert all(bool(gradient.isfinite().all()) for gradient in found.gradients)
    for one, other in zip(found.gradients, alone.gradients, strict=True):
        torch.testing.assert_close(one / 2, -other, rtol=1e-5, atol=1e-7)  # slopes 2 and -1


def test_weights_that_are_no_numbers_are_lost() -> None:
    tables, words = random_tables(3, 2), random_words(2, 3)
    tables.rule[0, 0, 0] = math.nan
    assert bool(by_kernels(tables, words, (3, 3)).lost[0])


@pytest.mark.parametrize("precision", ["high", "medium"])
def test_precisions(precision: Any) -> None:
    """Operands are rounded to 8 bits in "medium", on every device."""
    tables, words = random_tables(3, 5), random_words(2, 5)
    found, expected = by_kernels(tables, words, (5, 4), precision=precision), by_torch(tables, words, (5, 4))
    assert float((found.log_z - expected.log_z).abs().max()) <= 5e-2


def test_second_derivatives_are_refused() -> None:
    tables, layout = random_tables(2, 2), ragged((3,), DEVICE)
    root, rule, emission = (table.float().requires_grad_() for table in tables)
    log_words = emission.T[layout.pack(random_words(1, 3))]
    found, _ = dense_log_z_by_kernels(rule.exp(), root.exp(), log_words, Setting(layout, None, "highest"))
    message = "log_prob: second derivatives need plain operations; give backend='autograd'."
    with pytest.raises(RankspaceError, match=message):
        torch.autograd.grad(found.sum(), root, create_graph=True)


def small_model(**options: Any) -> Any:
    torch.manual_seed(0)
    model: Any = create("n-pcfg", vocabulary=20, nonterminals=3, preterminals=4, size=8).to(DEVICE)
    model.options = options
    return model


def test_the_model_by_kernels() -> None:
    words, lengths, seed = random_words(3, 5) % 20, [5, 3, 2], torch.zeros((), dtype=torch.int64, device=DEVICE)
    model = small_model()
    found, lost = model.padded_log_prob(words, torch.tensor(lengths, device=DEVICE), seed)
    (-found.mean()).backward()
    gradients = {name: weight.grad.clone() for name, weight in model.named_parameters()}
    model.zero_grad()
    expected = model.double().log_prob(words, lengths)
    (-expected.mean()).backward()
    assert not bool(lost.any())
    assert found.dtype == torch.float64
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-5)
    largest = max(float(weight.grad.norm()) for weight in model.parameters())
    for name, weight in model.named_parameters():  # those near zero are differences of large numbers
        assert float((gradients[name] - weight.grad).norm()) <= 1e-5 * largest, name


def test_when_the_model_can_be_captured() -> None:
    assert small_model().can_be_captured(DEVICE)
    assert small_model(backend="triton", precision="high").can_be_captured(DEVICE)
    assert not small_model(backend="torch").can_be_captured(DEVICE)
    assert not small_model().double().can_be_captured(DEVICE)


def test_its_distribution_runs_as_with_auto() -> None:
    words = torch.tensor([[0, 1, 0]], device=DEVICE)
    found, expected = (small_model(**options).log_prob(words) for options in ({"backend": "triton"}, {}))
    torch.testing.assert_close(found, expected)


@on_cpu
def test_without_a_gpu_there_is_no_capture(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRITON_INTERPRET")
    assert not small_model().can_be_captured(DEVICE)
