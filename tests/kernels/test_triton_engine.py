"""The tree engine by Triton kernels against the torch engine in float64, and where it runs."""

import gc
import math
import sys
import weakref
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton", reason="needs triton")

from kernels.charts import DEVICE, random_inputs, random_log_weights, random_sentences, with_mass
from rankspace.distributions import HMM, RankSpacePCFG, SimplePCFG
from rankspace.errors import RankspaceError
from rankspace.inference.links import DenseLink, FactoredLink
from rankspace.inference.tree import linear_inputs
from rankspace.inference.tree.engine import log_z
from rankspace.inference.tree.inputs import Sentences, TreeInputs
from rankspace.inference.tree.triton_engine import log_z_by_kernels

on_cpu = pytest.mark.skipif(torch.cuda.is_available(), reason="is about what happens without a GPU")


class Outcome:
    """log Z, lost, and gradients of a weighted sum of log Z."""

    def __init__(self, inputs: TreeInputs, sentences: Sentences, weights: Tensor | None, kernels: bool) -> None:
        leaves = [tensor.detach().requires_grad_() for tensor in inputs.tensors]
        if weights is not None:
            weights = weights.to(inputs.dtype).requires_grad_()
        found, self.lost = log_z(inputs.like(tuple(leaves)), sentences, lambda: None, weights, kernels)
        self.log_z = found.detach()
        slopes = torch.linspace(-1, 2, len(found), dtype=torch.float64, device=DEVICE)
        total = (found.where(found > -math.inf, 0) * slopes).sum()
        self.gradients = torch.autograd.grad(total, [*leaves, *([] if weights is None else [weights])])


def compare(inputs: TreeInputs, sentences: Sentences, weights: Tensor | None = None) -> None:
    """float32 rounding: a few units for each of at most a few hundred terms."""
    wide = inputs.like(tuple(tensor.double() for tensor in inputs.tensors))
    found, expected = Outcome(inputs, sentences, weights, True), Outcome(wide, sentences, weights, False)
    assert not bool(found.lost.any())
    torch.testing.assert_close(found.log_z, expected.log_z, rtol=1e-6, atol=1e-5)
    for one, other in zip(found.gradients, expected.gradients, strict=True):
        assert one.dtype == torch.float32
        assert bool(((one - other).norm() <= 1e-5 * other.norm() + 1e-30).all())


@pytest.mark.parametrize(
    ("rank", "lengths"),
    [(1, (3, 2)), (3, (2,)), (3, (1, 4, 0, 3)), (37, (3, 2)), (130, (3,)), (16, (1, 3))],
)
@pytest.mark.parametrize("weighted", [False, True])
def test_values_and_gradients(rank: int, lengths: Sequence[int], weighted: bool) -> None:
    sentences = random_sentences(lengths)
    compare(random_inputs(rank), sentences, random_log_weights(sentences) if weighted else None)


@pytest.mark.parametrize("rank", [257, 515, 1025])
def test_many_ranks_and_sentences(rank: int) -> None:
    """More than programs take of either at a time."""
    compare(random_inputs(rank), random_sentences((3, *(2,) * 16)))


@pytest.mark.parametrize("lengths", [(3, 2, 4), (8,)])
def test_sums_over_splits_are_divided_by_a_mass(lengths: Sequence[int]) -> None:
    """As if root and link had been divided, whose derivatives are then those of what was divided."""
    inputs, sentences = with_mass(random_inputs(5)), random_sentences(lengths)
    assert inputs.mass is not None
    mass = inputs.mass.double()
    link, root = DenseLink(inputs.link.tensors[0].double() / mass), inputs.root.double() / mass
    divided = TreeInputs(link, inputs.words.double(), root)
    found, expected = Outcome(inputs, sentences, None, True), Outcome(divided, sentences, None, False)
    torch.testing.assert_close(found.log_z, expected.log_z, rtol=1e-6, atol=1e-5)
    of_words, of_root, of_link = expected.gradients
    for one, other in zip(found.gradients, (of_words, of_root / mass, of_link / mass), strict=True):
        assert float((one - other).norm()) <= 1e-5 * float(other.norm())


def test_sums_begun_ahead() -> None:
    compare(random_inputs(2), random_sentences((8,)))


def test_a_factored_link() -> None:
    inputs = random_inputs(5)
    generator = torch.Generator().manual_seed(3)
    second, first = (torch.rand(shape, generator=generator).to(DEVICE) / 5 for shape in ((10, 7), (7, 5)))
    compare(TreeInputs(FactoredLink(second, first), inputs.words, inputs.root), random_sentences((4, 3)))


@pytest.mark.parametrize(("peak", "num_kept"), [(20.0, 4), (150.0, 2)])
def test_peaked_parameters_are_right_or_lost(peak: float, num_kept: int) -> None:
    inputs, sentences = random_inputs(4, peak), random_sentences((4, 3, 2, 2))
    wide = inputs.like(tuple(tensor.double().clamp(min=1e-200) for tensor in inputs.tensors))
    found, expected = Outcome(inputs, sentences, None, True), Outcome(wide, sentences, None, False)
    kept = ~found.lost
    assert int(kept.sum()) == num_kept
    torch.testing.assert_close(found.log_z[kept], expected.log_z[kept], rtol=1e-6, atol=1e-5)
    assert all(bool(gradient.isfinite().all()) for gradient in found.gradients)


def test_numbers_far_from_one_need_no_redo() -> None:
    """A word of 2^-40 in every place: Z of 2^-160, gradients of 2^40."""
    inputs = random_inputs(3)
    inputs = inputs.like((inputs.words * 2.0**-40, *inputs.tensors[1:]))
    compare(inputs, random_sentences((4,)))


def test_a_sentence_whose_spans_are_all_forbidden_is_impossible() -> None:
    sentences = random_sentences((4, 3))
    layout = sentences.layout
    weights = torch.zeros(layout.total_spans, device=DEVICE)
    weights[layout.num_tokens :][layout.places[layout.num_tokens :] == 0] = -math.inf  # those of the longer one
    found = Outcome(random_inputs(3), sentences, weights, True)
    assert found.lost.tolist() == [False, False]
    assert found.log_z[0] == -math.inf
    assert found.log_z[1] > -math.inf
    assert all(bool(gradient.isfinite().all()) for gradient in found.gradients)
    assert bool((found.gradients[-1][layout.places == 0] == 0).all())


def test_zeros_of_the_grammar_that_do_not_matter_are_not_lost() -> None:
    inputs, sentences = random_inputs(3), random_sentences((4, 2))
    matrix = inputs.link.tensors[0].clone()
    matrix[1] = 0  # no span is a left child of rank 1, unless it is a word
    low = matrix.double().clamp(min=1e-60)
    found = Outcome(TreeInputs(DenseLink(matrix), inputs.words, inputs.root), sentences, None, True)
    wide = TreeInputs(DenseLink(low), inputs.words.double(), inputs.root.double())
    expected = Outcome(wide, sentences, None, False)
    assert not bool(found.lost.any())
    torch.testing.assert_close(found.log_z, expected.log_z, rtol=1e-6, atol=1e-5)
    for one, other in zip(found.gradients, expected.gradients, strict=True):
        assert float((one - other).norm()) <= 1e-5 * float(other.norm())


@pytest.mark.parametrize(("power", "is_lost"), [(-40, False), (-80, False), (-86, True), (-100, True)])
def test_what_a_raised_number_could_add_is_told_from_what_it_is(power: int, is_lost: bool) -> None:
    """The root nearly always takes rank 0, which no word is the right child of; all that there is passes through rank
    1. The number that stands for the impossible word adds 2^-109 to Z."""
    inputs, sentences = random_inputs(2), random_sentences((2,))
    words = torch.tensor([1.0, 1.0, 0.0, 1.0], device=DEVICE).repeat(len(inputs.words), 1)
    found = Outcome(
        inputs.like((words, torch.tensor([1.0, 2.0**power], device=DEVICE), inputs.link.tensors[0])),
        sentences,
        None,
        True,
    )
    assert found.lost.tolist() == [is_lost]
    if not is_lost:
        expected = sentences.log_scale[sentences.token_word].sum() + power * math.log(2)
        torch.testing.assert_close(found.log_z[0], expected, rtol=0, atol=1e-6)


def test_what_hangs_on_zeros_of_the_grammar_is_lost() -> None:
    """Impossible sentences are: the numbers that zeros are raised to give them a probability that is not theirs."""
    inputs = random_inputs(3)
    nothing = TreeInputs(DenseLink(torch.zeros_like(inputs.link.tensors[0])), inputs.words, inputs.root)
    found = Outcome(nothing, random_sentences((4, 2)), None, True)
    assert found.lost.tolist() == [True, False]
    assert all(bool(gradient.isfinite().all()) for gradient in found.gradients)


@pytest.mark.parametrize("matters", [False, True])
def test_doubt_may_be_told_by_the_backward_pass(matters: bool) -> None:
    inputs, sentences = random_inputs(3), random_sentences((4, 3))
    matrix = inputs.link.tensors[0] * (0 if matters else 1)
    matrix[1] = 0
    doubt = torch.ones(2, dtype=torch.bool, device=DEVICE)
    leaves = [tensor.clone().requires_grad_() for tensor in (inputs.words, inputs.root, matrix)]
    found, lost = log_z_by_kernels(inputs.like(tuple(leaves)), replace(sentences, doubt=doubt), None)
    assert doubt.tolist() == lost.tolist()
    torch.autograd.grad(found.sum(), leaves)
    assert doubt.tolist() == [matters, matters]


@pytest.mark.parametrize("lengths", [(), (0,), (1, 0, 1)])
def test_nothing_to_sum(lengths: tuple[int, ...]) -> None:
    found = Outcome(random_inputs(3), random_sentences(lengths), None, True)
    assert found.log_z.tolist() == [-math.inf] * len(lengths)
    assert not bool(found.lost.any())
    assert all(bool((gradient == 0).all()) for gradient in found.gradients)


def test_the_chart_goes_with_the_result() -> None:
    inputs = random_inputs(3)
    leaves = [tensor.requires_grad_() for tensor in inputs.tensors]
    gc.disable()
    try:
        found, _ = log_z(inputs.like(tuple(leaves)), random_sentences((3,)), lambda: None, None, True)
        chart = weakref.ref(found.grad_fn.chart)
        assert chart() is not None
        del found
        assert chart() is None
    finally:
        gc.enable()


def parameters(dtype: torch.dtype = torch.float32) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(0)

    def rows(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64).log_softmax(-1).to(dtype).to(DEVICE)

    return {
        "log_root": rows(3),
        "log_head": rows(3, 2),
        "log_left": rows(2, 7),
        "log_right": rows(2, 7),
        "log_emission": rows(4, 5),
    }


WORDS = torch.tensor([[0, 1, 3], [4, 0, 0], [2, 1, 0]])
LENGTHS = [3, 2, 2]


@pytest.mark.parametrize("order", ["rank", "state"])
def test_a_distribution_by_kernels(order: str) -> None:
    given = parameters()
    mine, theirs = (RankSpacePCFG(**given, order=order, backend=backend) for backend in ("triton", "torch"))
    words = WORDS.to(DEVICE)
    torch.testing.assert_close(mine.log_prob(words, LENGTHS), theirs.log_prob(words, LENGTHS), rtol=1e-6, atol=1e-5)
    torch.testing.assert_close(
        mine.span_marginals(words, LENGTHS), theirs.span_marginals(words, LENGTHS), rtol=1e-5, atol=1e-6
    )
    found, expected = mine.expected_counts(words, LENGTHS), theirs.expected_counts(words, LENGTHS)
    for label in found:
        torch.testing.assert_close(found[label], expected[label], rtol=1e-5, atol=1e-6)
    assert mine.posterior_entropy(words, LENGTHS).shape == (3,)  # which is computed in float64


@pytest.mark.parametrize("order", ["rank", "state"])
def test_what_rounding_adds_to_rules_is_taken_out_again(order: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In "medium", where the link is rounded to operands. Uniform tables: all entries of a row are rounded the same
    way. What the parameters themselves sum to is left as it is."""
    seen: list[TreeInputs] = []

    def spying(inputs: TreeInputs, *others: Any) -> Any:
        seen.append(inputs)
        return log_z_by_kernels(inputs, *others)

    monkeypatch.setattr("rankspace.inference.tree.engine.log_z_by_kernels", spying)
    given = {name: torch.zeros_like(table).log_softmax(-1) for name, table in parameters().items()}
    given["log_left"] += 0.3
    words = WORDS.to(DEVICE)
    exact = RankSpacePCFG(**given, order=order, backend="torch", validate=False).log_prob(words, LENGTHS)
    for precision, has_mass in (("highest", False), ("medium", True)):
        rounded = RankSpacePCFG(**given, order=order, backend="triton", precision=precision, validate=False)
        found = rounded.log_prob(words, LENGTHS)
        torch.testing.assert_close(found, exact, rtol=0.0, atol=0.02 if has_mass else 1e-5)
        inputs = seen.pop()
        assert (inputs.mass is not None) == has_mass
    left, right = (table.exp().double() for table in (given["log_left"], given["log_right"]))
    matrices = [matrix.bfloat16().double() for matrix in inputs.link.tensors]
    of_link = matrices[0].sum(1) if order == "rank" else matrices[0] @ matrices[1].sum(1)
    of_words = torch.cat([left[:, 3:].sum(1), right[:, 3:].sum(1)])
    share = (of_words + of_link) / torch.cat([left.sum(1), right.sum(1)])
    assert inputs.mass is not None
    torch.testing.assert_close(inputs.mass.double(), share[:2] * share[2:], rtol=1e-6, atol=0.0)
    assert float((inputs.mass - 1).abs().min()) > 1e-4
    twice = linear_inputs.gained_by_rounding
    monkeypatch.setattr(linear_inputs, "gained_by_rounding", lambda *its: 2 * twice(*its))
    halved = RankSpacePCFG(**given, order=order, backend="triton", precision="medium", validate=False)
    rules = torch.tensor(LENGTHS, device=DEVICE) - 1
    torch.testing.assert_close(found - halved.log_prob(words, LENGTHS), rules * math.log(2), rtol=0.0, atol=1e-5)


def test_a_distribution_with_zeros_goes_on_in_torch() -> None:
    given = parameters()
    given["log_emission"] = torch.full_like(given["log_emission"], -math.inf)
    given["log_emission"][:, :3] = -math.log(3)
    grammar = RankSpacePCFG(**given, backend="triton")
    found = grammar.log_prob(WORDS.to(DEVICE), LENGTHS)
    assert found.tolist()[:2] == [-math.inf, -math.inf]
    expected = RankSpacePCFG(**given, backend="torch").log_prob(WORDS.to(DEVICE), LENGTHS)
    torch.testing.assert_close(found, expected)


def message(make: type, backend: str, given: dict[str, Tensor]) -> str:
    with pytest.raises(RankspaceError) as error:
        make(**given, backend=backend).log_prob(WORDS.to(DEVICE), LENGTHS)
    return str(error.value)


def test_float64_has_no_kernels() -> None:
    assert message(RankSpacePCFG, "triton", parameters(torch.float64)) == (
        "RankSpacePCFG: backend is 'triton', but the parameters are torch.float64 and it needs float32; "
        "give backend='auto'."
    )
    RankSpacePCFG(**parameters(), backend="triton").to(torch.float64).log_prob(WORDS.to(DEVICE), LENGTHS)


def test_chains_have_no_kernels() -> None:
    given = {"log_start": torch.zeros(1), "log_transition": torch.zeros(1, 1), "log_emission": torch.zeros(1, 1)}
    assert message(HMM, "triton", given) == (
        "HMM: backend is 'triton', but of distributions RankSpacePCFG and SimplePCFG alone have kernels (others belong "
        "to models); give one of 'auto', 'torch', 'autograd'."
    )


@on_cpu
def test_without_interpreter_or_gpu_triton_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRITON_INTERPRET")
    given = {name: parameters()[name] for name in ("log_root", "log_emission")}
    given |= {name: torch.full((3, 7), -math.log(7)) for name in ("log_left", "log_right")}
    assert message(SimplePCFG, "triton", given) == (
        "SimplePCFG: backend is 'triton', but the parameters are on cpu and it needs a GPU; give backend='auto'."
    )


QUERIES = {
    **{
        name: lambda grammar, words, name=name: getattr(grammar, name)(words, LENGTHS)
        for name in (
            *("log_prob", "expected_counts", "posterior_entropy", "span_marginals", "labelled_marginals", "mbr"),
            *("viterbi_joint", "log_prefix", "surprisal", "next_word"),
        )
    },
    "posterior_kl": lambda grammar, words: grammar.posterior_kl(grammar, words, LENGTHS),
    "posterior_cross_entropy": lambda grammar, words: grammar.posterior_cross_entropy(grammar, words, LENGTHS),
    "sample_posterior": lambda grammar, words: grammar.sample_posterior(words, LENGTHS, num=1),
    "mbr_kbest": lambda grammar, words: grammar.mbr_kbest(words, LENGTHS, k=2),
}


@on_cpu
@pytest.mark.parametrize("query", QUERIES)
def test_no_query_is_answered_without_what_was_asked_for(query: str, monkeypatch: pytest.MonkeyPatch) -> None:
    grammar = RankSpacePCFG(**parameters(), backend="triton")
    QUERIES[query](grammar, WORDS)
    monkeypatch.delenv("TRITON_INTERPRET")
    with pytest.raises(
        RankspaceError, match=r"^RankSpacePCFG: backend is 'triton', but the parameters are on cpu and "
    ):
        QUERIES[query](grammar, WORDS)


@on_cpu
def test_without_the_package_triton_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "triton", None)
    assert message(RankSpacePCFG, "triton", parameters()) == (
        "RankSpacePCFG: backend is 'triton', but triton is not installed; give backend='auto'."
    )


@on_cpu
def test_by_itself_a_cpu_runs_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr("rankspace.inference.tree.engine.log_z_by_kernels", refuse)
    RankSpacePCFG(**parameters()).log_prob(WORDS, LENGTHS)
