"""Trees with a full rule tensor by Triton kernels against the torch engine in float64; `n-pcfg` and `l-pcfg` by
them."""

import math
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton", reason="needs triton")

from kernels.dense_cases import Tables, by_kernels, by_torch, compare, random_tables, random_words
from kernels.dense_charts import DEVICE
from kernels.test_chain_model import batch_of
from rankspace.distributions import LPCFG, PCFG
from rankspace.distributions.memory import Work
from rankspace.errors import RankspaceError
from rankspace.inference.ragged import ragged
from rankspace.inference.tree.dense_triton import Setting, dense_log_z_by_kernels
from rankspace.kernels import dense_chart, dense_links
from rankspace.models import create
from rankspace.models.l_pcfg import over_ranks, over_symbols

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


MODELS: dict[str, tuple[str, dict[str, int]]] = {
    "n-pcfg": ("n-pcfg", {}),
    "l-pcfg, over ranks": ("l-pcfg", {"rank": 2}),
    "l-pcfg, over symbols": ("l-pcfg", {"rank": 5}),
}
every_model = pytest.mark.parametrize("case", MODELS)


def small_model(case: str = "n-pcfg", **options: Any) -> Any:
    torch.manual_seed(0)
    name, sizes = MODELS[case]
    model: Any = create(name, vocabulary=20, nonterminals=3, preterminals=4, size=8, **sizes).to(DEVICE)
    model.options = options
    return model


def slopes_of(model: Any, log_p: Tensor) -> dict[str, Tensor]:
    model.zero_grad()
    (-log_p.mean()).backward()
    return {name: weight.grad.clone() for name, weight in model.named_parameters()}


def same_slopes(found: dict[str, Tensor], expected: dict[str, Tensor], tolerance: float = 1e-5) -> None:
    """Those near zero are differences of large numbers."""
    largest = max(float(each.norm()) for each in expected.values())
    for name, each in expected.items():
        assert float((found[name] - each).norm()) <= tolerance * largest, name


@every_model
def test_the_model_by_kernels(case: str) -> None:
    words, lengths, seed = random_words(3, 5) % 20, [5, 3, 2], torch.zeros((), dtype=torch.int64, device=DEVICE)
    model = small_model(case)
    found, lost = model.padded_log_prob(words, torch.tensor(lengths, device=DEVICE), seed)
    slopes = slopes_of(model, found)
    expected = model.double().log_prob(words, lengths)
    assert not bool(lost.any())
    assert found.dtype == torch.float64
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-5)
    same_slopes(slopes, slopes_of(model, expected))


@every_model
def test_log_prob_runs_by_kernels(monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    """On a ragged batch, a sentence of one word among them."""
    words, lengths, launched = random_words(4, 5) % 20, [2, 5, 1, 3], []
    model = small_model(case, backend="triton")
    by_itself = model.log_prob_by_kernels
    monkeypatch.setattr(model, "log_prob_by_kernels", lambda *given: launched.append(given[1]) or by_itself(*given))
    found = model.log_prob(words, lengths)
    assert [batch.layout.lengths for batch in launched] == [(2, 5, 1, 3)]
    assert found.dtype == torch.float32
    assert float(found[2].detach()) == -math.inf
    possible = [0, 1, 3]
    slopes = slopes_of(model, found[possible])
    model.options = {"backend": "torch"}
    expected = model.double().log_prob(words, lengths)
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-5, check_dtype=False)
    same_slopes(slopes, slopes_of(model, expected[possible]))


@every_model
def test_log_prob_redoes_what_kernels_lose(case: str) -> None:
    words, lengths = random_words(3, 6) % 20, [6, 4, 5]
    model = small_model(case, backend="triton")
    emission = (model.grammar if case == "n-pcfg" else model).emission
    with torch.no_grad():
        emission.words.weight.mul_(200)
    _, lost = model.log_prob_by_kernels(words, batch_of(lengths))
    assert bool(lost.any())
    found = model.log_prob(words, lengths)
    slopes, model.options = slopes_of(model, found), {}
    expected = model.double().log_prob(words, lengths)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-2, check_dtype=False)  # logits of hundreds
    same_slopes(slopes, slopes_of(model, expected), 1e-4)


@every_model
def test_when_the_model_can_be_captured(case: str) -> None:
    assert small_model(case).can_be_captured(DEVICE)
    assert small_model(case, backend="triton", precision="high").can_be_captured(DEVICE)
    assert small_model(case, order="state").can_be_captured(DEVICE)
    assert not small_model(case, order="rank").can_be_captured(DEVICE)
    assert not small_model(case, backend="torch").can_be_captured(DEVICE)
    assert not small_model(case).double().can_be_captured(DEVICE)


@every_model
def test_queries_without_kernels_run_as_with_auto(case: str) -> None:
    words = random_words(2, 4) % 20
    forced, free = small_model(case, backend="triton"), small_model(case)
    assert forced().backend == forced.pose(words).distribution.backend == "auto"
    found, expected = (model.pose(words) for model in (forced, free))
    assert found.distribution.mbr(found.words) == expected.distribution.mbr(expected.words)


def test_kernels_of_another_order_or_dtype_are_refused() -> None:
    words = random_words(1, 3) % 20
    with pytest.raises(RankspaceError) as caught:
        small_model(backend="triton", order="rank").log_prob(words)
    assert str(caught.value) == (
        "n-pcfg: backend is 'triton', but its kernels run in state order and order is 'rank'; give order='auto' or "
        "backend='auto'."
    )
    for query in ("log_prob", "pose"):
        with pytest.raises(RankspaceError) as caught:
            getattr(small_model("l-pcfg, over ranks", backend="triton").double(), query)(words)
        assert str(caught.value) == (
            "l-pcfg: backend is 'triton', but the weights are torch.float64 and it needs float32; give backend='auto'."
        )


@pytest.mark.parametrize("multiplied", [over_ranks, over_symbols])
def test_a_head_that_is_multiplied_out(multiplied: Any) -> None:
    """As `LPCFG.collapse` does it in log space; rules sum to one."""
    torch.manual_seed(0)
    sizes = ((3,), (3, 2), (2, 49), (4, 5))
    root, head, pair, emission = (torch.randn(*size, dtype=torch.float64).log_softmax(-1) for size in sizes)
    pair = pair.view(2, 7, 7)
    collapsed = LPCFG(root, head, pair, emission).collapse("ranks" if multiplied is over_ranks else "symbols")
    found = multiplied(*(table.exp().float().to(DEVICE) for table in (root, head, pair)))
    for one, name in zip(found, ("log_root", "log_rule"), strict=True):
        torch.testing.assert_close(one.double().cpu(), collapsed.parameters[name].exp(), rtol=1e-5, atol=0)
    torch.testing.assert_close(found[1].sum((1, 2)), torch.ones(len(found[1]), device=DEVICE))


@pytest.mark.parametrize(("rank", "numbers"), [(30, 30), (90, 60)])
def test_memory_is_that_of_the_fewer(rank: int, numbers: int) -> None:
    work = Work((40,) * 16, gradients=True, kernels=True)
    sizes = {"preterminal": 120, "vocab": 100}
    found = LPCFG.numbers_kept({"nonterminal": 60, "rank": rank, **sizes}, work)
    assert found == PCFG.numbers_kept({"nonterminal": numbers, **sizes}, work)


@on_cpu
@every_model
def test_without_a_gpu_there_is_no_capture(monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    monkeypatch.delenv("TRITON_INTERPRET")
    assert not small_model(case).can_be_captured(DEVICE)
    for query in ("log_prob", "pose"):
        with pytest.raises(RankspaceError) as caught:
            getattr(small_model(case, backend="triton"), query)(random_words(1, 3) % 20)
        assert str(caught.value) == (
            f"{MODELS[case][0]}: backend is 'triton', but the parameters are on cpu and it needs a GPU; give "
            "backend='auto'."
        )
