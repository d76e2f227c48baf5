"""CPDs: the tensor they stand for, their normal forms, and how well `CPD.fit` finds them."""

import itertools
import random
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from rankspace.errors import DecompositionError, MissingExtraError, RankspaceError, ShapeError
from rankspace.lowrank import CPD

ROUNDING = 1e-12  # a few hundred float64 operations on numbers near one stay far below


def table(seed: int, *shape: int, zeros: float = 0.0) -> Tensor:
    """Uniform entries, about the share `zeros` of them exactly zero."""
    generator = torch.Generator().manual_seed(seed)
    kept = torch.rand(shape, generator=generator) >= zeros
    return torch.rand(shape, generator=generator, dtype=torch.float64) * kept


def rows_of_one(seed: int, *shape: int) -> Tensor:
    positive = table(seed, *shape) + 0.01
    return positive / positive.sum(-1, keepdim=True)


def random_cpd(rank: int, *shape: int, seed: int = 0, zeros: float = 0.0, weighted: bool = True) -> CPD:
    matrices = tuple(table(100 * seed + i, rank, size, zeros=zeros) for i, size in enumerate(shape))
    return CPD(matrices, table(100 * seed + 99, rank) if weighted else None)


def assert_same(actual: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(actual, expected, rtol=ROUNDING, atol=ROUNDING)


def assert_says(error: type[RankspaceError], message: str, action: Callable[[], object]) -> None:
    with pytest.raises(error) as caught:
        action()
    assert str(caught.value) == message


# The tensor.


@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("shape", [(4,), (3, 5), (2, 4, 3), (2, 3, 1, 4)])
def test_reconstruct_is_the_sum_over_ranks(shape: tuple[int, ...], weighted: bool) -> None:
    cpd = random_cpd(3, *shape, weighted=weighted)
    expected = torch.zeros(shape, dtype=torch.float64)
    for place in itertools.product(*map(range, shape)):
        for q in range(3):
            term = 1.0 if cpd.weights is None else cpd.weights[q].item()
            for matrix, x in zip(cpd.matrices, place, strict=True):
                term *= matrix[q, x].item()
            expected[place] += term
    assert_same(cpd.reconstruct(), expected)
    assert (cpd.rank, cpd.order, cpd.shape) == (3, len(shape), shape)


def test_absorbed_has_no_weights_and_the_same_tensor() -> None:
    cpd = random_cpd(3, 2, 4)
    assert cpd.absorbed().weights is None
    assert_same(cpd.absorbed().reconstruct(), cpd.reconstruct())
    assert cpd.weights is not None
    assert_same(cpd.absorbed().matrices[0][1], cpd.matrices[0][1] * cpd.weights[1])
    plain = cpd.absorbed()
    assert plain.absorbed() is plain


def test_relative_error_is_frobenius() -> None:
    cpd = CPD((torch.ones(1, 3), torch.ones(1, 1)))
    tensor = torch.tensor([[1.0], [5.0], [4.0]])  # differences 0, 4, 3; norm sqrt(42)
    assert cpd.relative_error(tensor) == pytest.approx(5 / 42**0.5, rel=ROUNDING)
    zero = CPD((torch.zeros(1, 3), torch.ones(1, 1)))
    assert zero.relative_error(torch.zeros(3, 1)) == 0
    assert cpd.relative_error(torch.zeros(3, 1)) == float("inf")


def test_relative_error_does_not_round_to_float32() -> None:
    """In float32 the sum 4096 + 1e-4 would lose its small part: an error of 2e-8."""
    cpd = CPD((torch.tensor([[4096.0], [1e-4]]), torch.ones(2, 1)))
    tensor = torch.tensor([[4096.0 + 1e-4]], dtype=torch.float64)
    assert cpd.relative_error(tensor) < 1e-12  # 1e-4 itself is rounded to float32: 4e-12 / 4096


def test_check_names_error_and_tolerance() -> None:
    cpd = CPD((torch.ones(1, 3), torch.ones(1, 1)))
    tensor = torch.tensor([[1.0], [5.0], [4.0]])
    cpd.check(torch.ones(3, 1))
    cpd.check(tensor, tolerance=0.78)
    assert_says(
        DecompositionError,
        "CPD.check: the relative error is 0.772 at rank 1, above the tolerance 0.77; "
        "use a higher rank or more restarts.",
        lambda: cpd.check(tensor, tolerance=0.77),
    )
    assert_says(
        ShapeError,
        "CPD.relative_error: tensor has shape (1, 3) but the decomposition has (3, 1); "
        "give the matrices in the order of the tensor's dimensions.",
        lambda: cpd.check(tensor.T),
    )


def test_to_moves_matrices_and_weights() -> None:
    cpd = random_cpd(3, 2, 4).to(torch.float32)
    assert cpd.weights is not None
    assert {tensor.dtype for tensor in (*cpd.matrices, cpd.weights)} == {torch.float32}
    assert cpd.to(device="cpu", dtype=torch.float64).reconstruct().dtype == torch.float64
    assert random_cpd(3, 2, 4, weighted=False).to(torch.float32).weights is None


ONE = torch.ones(2, 3)


@pytest.mark.parametrize(
    ("error", "matrices", "weights", "message"),
    [
        (ShapeError, (), None, "CPD: there are no matrices; give one [rank, dimension] for each endpoint."),
        (
            ShapeError,
            (torch.ones(32, 30), torch.ones(64, 90)),
            None,
            "CPD: rank is 64 in matrix 1 (64, 90) but 32 in matrix 0 (32, 30); build both from one decomposition.",
        ),
        (
            ShapeError,
            (ONE, torch.ones(2)),
            None,
            "CPD: matrix 1 has shape (2,); give two dimensions, both of at least 1.",
        ),
        (
            ShapeError,
            (torch.ones(0, 3),),
            None,
            "CPD: matrix 0 has shape (0, 3); give two dimensions, both of at least 1.",
        ),
        (
            ShapeError,
            (ONE,),
            torch.ones(3),
            "CPD: weights have shape (3,) but the matrices have rank 2; give one weight for each rank.",
        ),
        (
            DecompositionError,
            (ONE, torch.tensor([[1.0, 1.0], [1.0, -0.5]])),
            None,
            "CPD: matrix 1 (2, 2) holds -0.5 at (1, 1); every entry must be finite and at least 0.",
        ),
        (
            DecompositionError,
            (torch.tensor([[1.0, float("nan")]]),),
            None,
            "CPD: matrix 0 (1, 2) holds nan at (0, 1); every entry must be finite and at least 0.",
        ),
        (
            DecompositionError,
            (ONE,),
            torch.tensor([1.0, float("inf")]),
            "CPD: weights (2,) holds inf at (1,); every entry must be finite and at least 0.",
        ),
        (
            DecompositionError,
            (ONE, ONE.double()),
            None,
            "CPD: matrix 1 is torch.float64 on cpu but matrix 0 is torch.float32 on cpu; "
            "bring them together with .to().",
        ),
        (
            DecompositionError,
            (ONE, ONE.to("meta")),
            None,
            "CPD: matrix 1 is torch.float32 on meta but matrix 0 is torch.float32 on cpu; "
            "bring them together with .to().",
        ),
        (DecompositionError, (ONE.long(),), None, "CPD: matrix 0 is torch.int64; give floating-point numbers."),
    ],
)
def test_mistakes_word_for_word(
    error: type[RankspaceError], matrices: tuple[Tensor, ...], weights: Tensor | None, message: str
) -> None:
    assert_says(error, message, lambda: CPD(matrices, weights))


# Normal forms.


def test_conditional_is_a_distribution_given_its_state() -> None:
    state_to_rank, first, second = rows_of_one(0, 5, 3), rows_of_one(1, 3, 4), rows_of_one(2, 3, 2)
    cpd = CPD.conditional(state_to_rank, first, second)
    assert_same(cpd.reconstruct(), torch.einsum("xq,qy,qz->xyz", state_to_rank, first, second))
    assert_same(cpd.reconstruct().sum((1, 2)), torch.ones(5, dtype=torch.float64))
    assert cpd.is_conditional()
    for given in (1, 2):
        assert not cpd.is_conditional(given)


def test_conditional_tolerates_float32_rows_of_a_large_vocabulary() -> None:
    logits = 6 * torch.randn(3, 10_000, generator=torch.Generator().manual_seed(0))
    cpd = CPD.conditional(rows_of_one(0, 5, 3).float(), logits.log_softmax(-1).exp())
    assert cpd.is_conditional()


@pytest.mark.parametrize(
    ("error", "tables", "message"),
    [
        (
            ShapeError,
            (rows_of_one(0, 30, 32), rows_of_one(1, 64, 90)),
            "CPD.conditional: rank is 64 in rank_to 0 (64, 90) but 32 in state_to_rank (30, 32); "
            "build both from one decomposition.",
        ),
        (
            DecompositionError,
            (torch.tensor([[0.5, 0.5], [0.5, 0.4]]), torch.eye(2)),
            "CPD.conditional: row 1 of state_to_rank (2, 2) sums to 0.9, not to one within 1e-05; "
            "normalise the last axis.",
        ),
        (
            DecompositionError,
            (torch.eye(2), torch.eye(2), torch.tensor([[0.7, 0.4], [0.5, 0.5]])),
            "CPD.conditional: row 0 of rank_to 1 (2, 2) sums to 1.1, not to one within 1e-05; normalise the last axis.",
        ),
        (
            DecompositionError,
            (torch.tensor([[1.5, -0.5]]), torch.eye(2)),
            "CPD.conditional: state_to_rank (1, 2) holds -0.5 at (0, 1); every entry must be finite and at least 0.",
        ),
    ],
)
def test_conditional_mistakes_word_for_word(
    error: type[RankspaceError], tables: tuple[Tensor, ...], message: str
) -> None:
    assert_says(error, message, lambda: CPD.conditional(*tables))


@pytest.mark.parametrize("zeros", [0.0, 0.6])
@pytest.mark.parametrize("shape", [(4,), (3, 5), (2, 4, 3), (2, 3, 1, 4)])
def test_normal_forms_keep_the_tensor(shape: tuple[int, ...], zeros: float) -> None:
    cpd = random_cpd(5, *shape, seed=3, zeros=zeros)
    for given in (None, *range(len(shape))):
        form = cpd.normal_form(given)
        assert_same(form.reconstruct(), cpd.reconstruct())
        assert (form.weights is None) == (given is not None)
        for i, matrix in enumerate(form.matrices):
            if i != given:
                assert_same(matrix.sum(1), torch.ones(5, dtype=torch.float64))
    mixture = cpd.normal_form(None)
    assert mixture.weights is not None
    assert_same(mixture.weights.sum(), cpd.reconstruct().sum())


def test_normal_form_of_a_conditional_recovers_its_tables() -> None:
    """Scales moved from matrix to matrix, and a conditional given another endpoint than the first."""
    state_to_rank, first, second = rows_of_one(0, 5, 3), rows_of_one(1, 3, 4), rows_of_one(2, 3, 2)
    scale = torch.tensor([[2.0], [0.3], [7.0]], dtype=torch.float64)
    cpd = CPD((first * scale, state_to_rank.T / scale**2, second), scale[:, 0])
    form = cpd.normal_form(given=1)
    for actual, expected in zip(form.matrices, (first, state_to_rank.T, second), strict=True):
        assert_same(actual, expected)
    assert cpd.is_conditional(given=1)
    assert not cpd.is_conditional(given=0)
    assert not CPD((*cpd.matrices[:2], second * 1.001), cpd.weights).is_conditional(given=1)


def test_components_that_are_zero_stay_zero_and_their_rows_uniform() -> None:
    first = torch.tensor([[1.0, 2.0], [3.0, 4.0], [0.0, 0.0]], requires_grad=True)
    second = torch.tensor([[1.0, 0.0, 1.0], [0.0, 0.0, 0.0], [2.0, 1.0, 1.0]], requires_grad=True)
    cpd = CPD((first, second))
    conditional, mixture = cpd.normal_form(0), cpd.normal_form(None)
    assert mixture.weights is not None
    assert conditional.matrices[0].tolist() == [[2.0, 4.0], [0.0, 0.0], [0.0, 0.0]]
    assert conditional.matrices[1][1].tolist() == pytest.approx([1 / 3] * 3)
    assert conditional.matrices[1][2].tolist() == [0.5, 0.25, 0.25]
    assert mixture.weights.tolist() == [6.0, 0.0, 0.0]
    assert mixture.matrices[0][2].tolist() == [0.5, 0.5]
    for form in (conditional, mixture):
        for gradient in torch.autograd.grad(form.reconstruct().square().sum(), (first, second), retain_graph=True):
            assert gradient.isfinite().all()
        rows = sum(matrix.square().sum() for matrix in form.matrices)
        assert isinstance(rows, Tensor)
        for gradient in torch.autograd.grad(rows, (first, second), materialize_grads=True):
            assert gradient.isfinite().all()


def test_gradients() -> None:
    inputs = tuple((table(i, 3, size) + 0.1).requires_grad_() for i, size in enumerate((2, 4, 3)))
    weights = (table(9, 3) + 0.1).requires_grad_()

    def tensors(*given: Tensor) -> tuple[Tensor, ...]:
        cpd = CPD(given[:-1], given[-1])
        mixture = cpd.normal_form(None)
        assert mixture.weights is not None
        return cpd.reconstruct(), *cpd.normal_form(1).matrices, *mixture.matrices, mixture.weights

    assert torch.autograd.gradcheck(tensors, (*inputs, weights))


def test_endpoint_mistakes_word_for_word() -> None:
    cpd = random_cpd(2, 3, 4)
    message = "given is {} but the decomposition has 2 endpoints; count them from 0 to 1."
    assert_says(ShapeError, "CPD.normal_form: " + message.format(2), lambda: cpd.normal_form(2))
    assert_says(ShapeError, "CPD.is_conditional: " + message.format(-1), lambda: cpd.is_conditional(-1))


# Fits.

RANK_AND_ZEROS = [(rank, zeros) for rank in range(1, 7) for zeros in (0.0, 0.4)]
FIT = 1e-6  # what `CPD.check` asks for


def needs_tensorly() -> Any:
    return pytest.importorskip("tensorly")


@pytest.mark.parametrize("order", [2, 3, 4])
@pytest.mark.parametrize(("rank", "zeros"), RANK_AND_ZEROS)
def test_fit_recovers_tensors_of_that_rank(order: int, rank: int, zeros: float) -> None:
    needs_tensorly()
    sizes = random.Random(f"{order} {rank} {zeros}")
    shape = [sizes.randint(2, 12) for _ in range(order)]
    tensor = random_cpd(rank, *shape, seed=rank, zeros=zeros, weighted=False).reconstruct()
    fit = CPD.fit(tensor, rank, seed=order)
    fit.cpd.check(tensor, tolerance=FIT)
    assert fit.relative_error == fit.cpd.relative_error(tensor)
    assert (fit.cpd.rank, fit.cpd.shape) == (rank, tuple(shape))


@pytest.mark.parametrize("seed", range(4))
def test_fit_finds_components_of_small_norm(seed: int) -> None:
    """One component of five is 10,000 times smaller than the others; descent from one start merges two large ones."""
    needs_tensorly()
    cpd = random_cpd(5, 7, 3, 5, seed=seed, weighted=False)
    tensor = CPD(cpd.matrices, torch.tensor([1.0, 1.0, 1.0, 1.0, 1e-4], dtype=torch.float64)).reconstruct()
    CPD.fit(tensor, 5, seed=seed, restarts=30).cpd.check(tensor, tolerance=FIT)


def test_fit_beats_the_noise() -> None:
    """The best fit is at least as close as the tensor the noise was added to."""
    needs_tensorly()
    clean = random_cpd(3, 6, 5, 4, weighted=False)
    tensor = clean.reconstruct() * (1 + 0.1 * table(7, 6, 5, 4))
    fit = CPD.fit(tensor, 3, restarts=3)
    assert 1e-3 < fit.relative_error < clean.relative_error(tensor)
    assert fit.restarts == 3


def test_fit_is_the_same_for_the_same_seed() -> None:
    needs_tensorly()
    tensor = random_cpd(3, 6, 5, 4, weighted=False).reconstruct()
    once, again, other = (CPD.fit(tensor, 3, seed=seed) for seed in (1, 1, 2))
    for a, b in zip(once.cpd.matrices, again.cpd.matrices, strict=True):
        assert torch.equal(a, b)
    assert once[1:] == again[1:]
    assert not torch.equal(once.cpd.matrices[0], other.cpd.matrices[0])


def test_fit_keeps_dtype_and_leaves_its_input_alone() -> None:
    needs_tensorly()
    tensor = random_cpd(3, 6, 5, 4, weighted=False).reconstruct().float().requires_grad_()
    before = tensor.detach().clone()
    fit = CPD.fit(tensor, 3)
    assert {matrix.dtype for matrix in fit.cpd.matrices} == {torch.float32}
    assert not any(matrix.requires_grad for matrix in fit.cpd.matrices)
    assert torch.equal(tensor.detach(), before)
    fit.cpd.check(tensor, tolerance=FIT)  # matrices rounded to float32, at 6e-8 each


@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_fit_does_not_depend_on_scale(scale: float) -> None:
    needs_tensorly()
    tensor = random_cpd(3, 6, 5, 4, weighted=False).reconstruct() * scale
    CPD.fit(tensor, 3).cpd.check(tensor, tolerance=FIT)


def test_fit_by_hals_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """What happens beyond `MAX_POLISHED`."""
    needs_tensorly()
    monkeypatch.setattr("rankspace.lowrank.fitting.MAX_POLISHED", 0)
    tensor = random_cpd(2, 5, 4, 3, weighted=False).reconstruct()
    one, three = (CPD.fit(tensor, 2, restarts=restarts, max_iterations=60) for restarts in (1, 3))
    three.cpd.check(tensor, tolerance=1e-3)  # a long way from the start, whose error is about 1; HALS needs its time
    assert three.relative_error <= one.relative_error
    assert (three.restarts, one.restarts) == (3, 1)
    assert one.iterations == 60


@pytest.mark.parametrize("backend", ["numpy", "pytorch"])
def test_fit_restores_the_backend_of_tensorly(backend: str) -> None:
    tensorly = needs_tensorly()
    with tensorly.backend_context(backend):
        CPD.fit(random_cpd(2, 3, 4, 5, weighted=False).reconstruct(), 2)
        assert tensorly.get_backend() == backend


@pytest.mark.parametrize(
    ("shape", "rank"), [((5,), 1), ((5,), 3), ((3, 8), 3), ((8, 3), 5), ((2, 9, 3), 6), ((1, 4), 1)]
)
def test_fit_is_exact_where_the_rank_covers_all_fibres(
    shape: tuple[int, ...], rank: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tensor of no low rank; and tensorly is not asked."""
    monkeypatch.setitem(sys.modules, "tensorly", None)
    tensor = table(0, *shape, zeros=0.3)
    fit = CPD.fit(tensor, rank)
    assert torch.equal(fit.cpd.reconstruct(), tensor)
    assert fit.cpd.rank == rank
    assert fit[1:] == (0.0, 0, 0)


def test_fit_of_zero_is_zero() -> None:
    fit = CPD.fit(torch.zeros(3, 4, 5), 2)
    assert torch.equal(fit.cpd.reconstruct(), torch.zeros(3, 4, 5))
    assert fit[1:] == (0.0, 0, 0)


def test_fit_without_tensorly_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorly", None)
    assert_says(
        MissingExtraError,
        "CPD.fit: tensorly is not installed; install it with pip install 'rankspace[cpd]'.",
        lambda: CPD.fit(torch.ones(3, 4, 5), 2),
    )


@pytest.mark.parametrize(
    ("error", "tensor", "options", "message"),
    [
        (
            DecompositionError,
            torch.tensor([[1.0, 2.0], [-1.0, 0.0]]),
            {},
            "CPD.fit: tensor (2, 2) holds -1 at (1, 0); every entry must be finite and at least 0.",
        ),
        (
            DecompositionError,
            torch.tensor([[1.0, float("nan")]]),
            {},
            "CPD.fit: tensor (1, 2) holds nan at (0, 1); every entry must be finite and at least 0.",
        ),
        (DecompositionError, torch.ones(2, 2), {"rank": 0}, "CPD.fit: rank is 0; give at least 1."),
        (DecompositionError, torch.ones(2, 2), {"restarts": 0}, "CPD.fit: restarts is 0; give at least 1."),
        (DecompositionError, torch.ones(2, 2), {"max_iterations": 0}, "CPD.fit: max_iterations is 0; give at least 1."),
        (
            ShapeError,
            torch.tensor(1.0),
            {},
            "CPD.fit: tensor has shape (); give at least one dimension, and none of size 0.",
        ),
        (
            ShapeError,
            torch.ones(2, 0),
            {},
            "CPD.fit: tensor has shape (2, 0); give at least one dimension, and none of size 0.",
        ),
    ],
)
def test_fit_mistakes_word_for_word(
    error: type[RankspaceError], tensor: Tensor, options: dict[str, int], message: str
) -> None:
    assert_says(error, message, lambda: CPD.fit(tensor, **({"rank": 1} | options)))
