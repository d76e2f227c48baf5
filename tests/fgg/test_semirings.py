"""Semirings and contraction: the axioms, every contraction against the definition, and no NaN at impossible entries."""

import math
import random
from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from rankspace.fgg.contraction import contract, plan_contraction
from rankspace.fgg.semirings import Boolean, Counting, Expectation, Log, Max, Real, Semiring, Support

SEMIRINGS: dict[str, Semiring[Any]] = {
    "real": Real(),
    "support": Support(),
    "log": Log(),
    "max": Max(),
    "boolean": Boolean(),
    "counting": Counting(),
    "expectation": Expectation(),
}
LIKE = torch.empty(0, dtype=torch.float64)


def weights(shape: Sequence[int], seed: int) -> Tensor:
    """Positive weights from e^-3 to e^3, a third of them replaced by zero."""
    generator = torch.Generator().manual_seed(seed)
    spread = torch.empty(tuple(shape), dtype=torch.float64).uniform_(-3, 3, generator=generator).exp()
    return torch.where(torch.rand(tuple(shape), generator=generator) < 1 / 3, 0, spread)


def plain(element: Any) -> Any:
    """An array of a semiring as numpy arrays, for comparing."""
    if isinstance(element, tuple):
        return [part.numpy() for part in element]
    return element.numpy() if isinstance(element, Tensor) else np.asarray(element, dtype=np.float64)


def assert_same(left: Any, right: Any) -> None:
    """Equal but for the rounding of a handful of operations on numbers below e^20, where they are not exact anyway."""
    np.testing.assert_allclose(plain(left), plain(right), rtol=1e-12, atol=1e-13)


# --- axioms -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", SEMIRINGS)
def test_axioms(name: str, seed: int) -> None:
    semiring = SEMIRINGS[name]
    a, b, c = (semiring.lift(weights((40,), 10 * seed + i)) for i in range(3))
    zero, one = semiring.zeros((40,), LIKE), semiring.ones((40,), LIKE)
    add, times = semiring.add, semiring.multiply
    assert_same(add(add(a, b), c), add(a, add(b, c)))
    assert_same(add(a, b), add(b, a))
    assert_same(add(a, zero), a)
    assert_same(add(zero, zero), zero)
    assert_same(times(times(a, b), c), times(a, times(b, c)))
    assert_same(times(a, b), times(b, a))
    assert_same(times(a, one), a)
    assert_same(times(a, zero), zero)
    assert_same(times(a, add(b, c)), add(times(a, b), times(a, c)))


@pytest.mark.parametrize("name", SEMIRINGS)
def test_lifting_keeps_zero_and_one(name: str) -> None:
    semiring = SEMIRINGS[name]
    assert_same(semiring.lift(torch.zeros(2, 3, dtype=torch.float64)), semiring.zeros((2, 3), LIKE))
    assert_same(semiring.lift(torch.ones(2, 3, dtype=torch.float64)), semiring.ones((2, 3), LIKE))


@pytest.mark.parametrize("name", ["real", "log", "expectation"])
def test_lifting_is_a_homomorphism_where_weights_are_kept(name: str) -> None:
    semiring = SEMIRINGS[name]
    a, b = weights((40,), 0), weights((40,), 1)
    product_then_lift, lift_then_product = semiring.lift(a * b), semiring.multiply(semiring.lift(a), semiring.lift(b))
    assert_same(product_then_lift, lift_then_product)
    left, right = semiring.lift(a + b), semiring.add(semiring.lift(a), semiring.lift(b))
    if name == "expectation":  # the mean of log-weights is not the logarithm of the sum
        left, right = left[0], right[0]
    assert_same(left, right)


@pytest.mark.parametrize("name", SEMIRINGS)
@pytest.mark.parametrize("axes", [(0,), (1,), (0, 2), (1, 2), (0, 1, 2)])
def test_sum_over_axes_is_repeated_addition(name: str, axes: tuple[int, ...]) -> None:
    semiring = SEMIRINGS[name]
    table = weights((2, 3, 2), 5)
    kept = [axis for axis in range(3) if axis not in axes]
    slices = table.permute(*axes, *kept).reshape(-1, *(table.shape[axis] for axis in kept))
    expected = semiring.zeros([table.shape[axis] for axis in kept], LIKE)
    for part in slices:
        expected = semiring.add(expected, semiring.lift(part))
    assert_same(semiring.sum(semiring.lift(table), axes), expected)


@pytest.mark.parametrize("name", SEMIRINGS)
def test_a_sum_over_nothing_is_zero(name: str) -> None:
    semiring = SEMIRINGS[name]
    empty = semiring.lift(torch.empty(3, 0, dtype=torch.float64))
    assert_same(semiring.sum(empty, (1,)), semiring.zeros((3,), LIKE))
    assert_same(semiring.sum(empty, (0, 1)), semiring.zeros((), LIKE))


@pytest.mark.parametrize("name", SEMIRINGS)
def test_arranging_and_diagonals(name: str) -> None:
    semiring = SEMIRINGS[name]
    table = weights((2, 3, 2), 6)
    assert_same(semiring.arrange(semiring.lift(table), [1, None, 0, 2]), semiring.lift(table.permute(1, 0, 2)[:, None]))
    expected = torch.stack([table[0, :, 0], table[1, :, 1]], dim=1)  # the common axis comes last
    assert_same(semiring.diagonal(semiring.lift(table), 0, 2), semiring.lift(expected))


def test_counts_are_exact_beyond_any_machine_number() -> None:
    counting = Counting()
    ones = counting.ones((1000,), LIKE)
    total = counting.sum(ones, (0,))
    power = total
    for _ in range(9):
        power = counting.multiply(power, total)
    assert int(power.item()) == 1000**10
    assert type(counting.lift(torch.ones(2)).tolist()[0]) is int


def test_expectation_is_the_mean_of_log_weights() -> None:
    table = weights((5, 4), 7)
    log_z, mean = Expectation().sum(Expectation().lift(table), (0, 1))
    positive = table[table > 0]
    # One sum of 20 terms, in another order.
    assert log_z.item() == pytest.approx(positive.sum().log().item(), rel=1e-13)
    assert mean.item() == pytest.approx((positive * positive.log()).sum().item() / positive.sum().item(), rel=1e-13)


# --- contraction ------------------------------------------------------------------------------------------------------


def reduced(name: str, terms: Sequence[float]) -> Any:
    """What a semiring makes of a list of weights, by its definition."""
    positive = [term for term in terms if term > 0]
    if name in ("real", "support"):
        return math.fsum(terms) if name == "real" else float(bool(positive))
    if name == "boolean":
        return bool(positive)
    if name == "counting":
        return len(positive)
    if not positive:
        return (-math.inf, 0.0) if name == "expectation" else -math.inf
    if name == "max":
        return math.log(max(positive))
    total = math.fsum(positive)
    if name == "log":
        return math.log(total)
    return math.log(total), math.fsum(term * math.log(term) for term in positive) / total


def by_definition(
    name: str, tables: Sequence[tuple[Tensor, tuple[str, ...]]], output: Sequence[str], sizes: dict[str, int]
) -> Any:
    """Every assignment of every axis, one by one."""
    terms: dict[tuple[int, ...], list[float]] = {
        place: [] for place in product(*(range(sizes[axis]) for axis in output))
    }
    for values in product(*(range(size) for size in sizes.values())):
        at = dict(zip(sizes, values, strict=True))
        weight = math.prod(table[tuple(at[axis] for axis in axes)].item() for table, axes in tables)
        terms[tuple(at[axis] for axis in output)].append(weight)
    shape = [sizes[axis] for axis in output]
    found = np.array([reduced(name, terms[place]) for place in terms], dtype=np.float64)
    return list(found.T.reshape(2, *shape)) if name == "expectation" else found.reshape(shape)


NETWORKS: dict[str, tuple[list[str], str]] = {
    # operands by their axes (one letter each), and the output; the sizes are those of SIZES
    "matrix product": (["ab", "bc"], "ac"),
    "matrix product, transposed": (["ab", "bc"], "ca"),
    "elementwise product": (["ab", "ba"], "ab"),
    "inner product": (["abc", "cab"], ""),
    "outer product": (["a", "b"], "ba"),
    "one operand": (["abc"], "b"),
    "one operand, rearranged": (["abc"], "cab"),
    "diagonal": (["aab"], "ab"),
    "trace": (["aa"], ""),
    "axis three times": (["aaab", "b"], "a"),
    "two pairs of repeated axes": (["abab"], "ab"),
    "repeated axis in two operands": (["aab", "bba", "ab"], "b"),
    "a rule of a PCFG": (["nml", "m", "l"], "n"),
    "a loop": (["ab", "bc", "ca"], ""),
    "a star": (["ab", "ac", "ad", "a"], "a"),
    "a scalar among others": (["", "ab", ""], "a"),
    "scalars": (["", ""], ""),
    "axes nobody has, summed": (["ab"], "a|c"),
    "axes nobody has, kept": (["ab"], "ca|c"),
    "nothing but axes": ([], "a|ab"),
    "nothing at all": ([], ""),
}
SIZES = {"a": 2, "b": 3, "c": 2, "d": 2, "n": 2, "m": 3, "l": 2}


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("name", SEMIRINGS)
def test_contraction_is_the_sum_over_all_assignments(name: str, network: str) -> None:
    terms, result = NETWORKS[network]
    output, _, extra = result.partition("|")
    sizes = {axis: SIZES[axis] for axis in dict.fromkeys("".join([*terms, output, extra]))}
    tables = [(weights([sizes[axis] for axis in axes], i), tuple(axes)) for i, axes in enumerate(terms)]
    check(name, tables, tuple(output), sizes)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("name", SEMIRINGS)
def test_random_networks(name: str, seed: int) -> None:
    chance = random.Random(seed)
    sizes = {axis: chance.randint(1, 3) for axis in "abcdef"}
    terms = ["".join(chance.choices("abcdef", k=chance.randint(0, 3))) for _ in range(chance.randint(1, 6))]
    output = tuple(chance.sample("abcdef", chance.randint(0, 3)))
    tables = [(weights([sizes[axis] for axis in axes], 10 * seed + i), tuple(axes)) for i, axes in enumerate(terms)]
    check(name, tables, output, sizes)


def check(
    name: str, tables: list[tuple[Tensor, tuple[str, ...]]], output: tuple[str, ...], sizes: dict[str, int]
) -> None:
    semiring = SEMIRINGS[name]
    operands = [(semiring.lift(table), axes) for table, axes in tables]
    found = plain(contract(semiring, operands, output, sizes, LIKE))
    expected = by_definition(name, tables, output, sizes)
    for part, wanted in zip(found, expected, strict=True) if name == "expectation" else [(found, expected)]:
        assert part.shape == np.shape(wanted)
        # Sums of at most 729 products of at most six weights, in float64; the terms of "expectation" have both signs.
        np.testing.assert_allclose(part, wanted, rtol=1e-12, atol=1e-12 if name == "expectation" else 0)


# --- the joint table is never formed ----------------------------------------------------------------------------------


CHAIN = [(f"x{i:02}", f"x{i + 1:02}") for i in range(29)]


@pytest.mark.parametrize("name", SEMIRINGS)
def test_a_chain_of_thirty_variables(name: str) -> None:
    """10^30 assignments: only a pairwise contraction comes back at all."""
    semiring = SEMIRINGS[name]
    sizes = {f"x{i:02}": 10 for i in range(30)}
    tables = [weights((10, 10), i) / 10 for i in range(29)]
    operands = [(semiring.lift(table), axes) for table, axes in zip(tables, CHAIN, strict=True)]
    found = contract(semiring, operands, ("x00", "x29"), sizes, LIKE)
    expected = semiring.lift(tables[0])
    for table in tables[1:]:
        following = semiring.lift(table)
        columns = [
            semiring.sum(semiring.multiply(expected, semiring.arrange(column(following, j), [None, 0])), (1,))
            for j in range(10)
        ]
        expected = stacked(columns)
    # 28 matrix products of positive numbers: the relative error is below 28 * 10 units in the last place.
    np.testing.assert_allclose(plain(found), plain(expected), rtol=1e-11)


def column(array: Any, j: int) -> Any:
    return tuple(part[:, j] for part in array) if isinstance(array, tuple) else array[:, j]


def stacked(columns: list[Any]) -> Any:
    if isinstance(columns[0], tuple):
        return tuple(torch.stack(parts, 1) for parts in zip(*columns, strict=True))
    return torch.stack(columns, 1) if isinstance(columns[0], Tensor) else np.stack(columns, 1)


def test_the_plan_of_a_chain_keeps_two_variables_at_most() -> None:
    sizes = tuple((f"x{i:02}", 10) for i in range(30))
    plan = plan_contraction(tuple(CHAIN), (), sizes)
    assert len(plan.steps) == 28
    assert max(len(step.kept) for step in plan.steps) <= 2
    assert max(len({*step.left, *step.right}) for step in plan.steps) <= 3
    # Two flops per point of at most 10^3 points in each of 28 steps; the joint table has 10^30.
    assert plan.flops <= 2 * 28 * 10**3
    assert plan.flops == sum(2 * 10 ** len({*step.left, *step.right}) for step in plan.steps)


def test_the_plan_of_a_caterpillar_keeps_its_spine_only() -> None:
    leaves = [(f"x{i:02}", f"y{i:02}") for i in range(30)]
    sizes = tuple((axis, 10) for axis in dict.fromkeys(axis for axes in [*CHAIN, *leaves] for axis in axes))
    plan = plan_contraction((*CHAIN, *leaves), ("x00",), sizes)
    assert max(len(step.kept) for step in plan.steps) <= 2
    assert plan.output == ("x00",)


# --- gradients at impossible entries ----------------------------------------------------------------------------------


DEAD = -torch.inf


def gradient(function: Callable[[Tensor], Tensor], values: Sequence[Any]) -> Tensor:
    leaf = torch.tensor(values, dtype=torch.float64, requires_grad=True)
    [result] = torch.autograd.grad(function(leaf).sum(), [leaf])
    return result


def test_gradient_of_log_sum_exp_is_the_softmax_and_zero_at_minus_infinity() -> None:
    log = Log()
    found = gradient(lambda x: log.sum(x, (1,)), [[0.0, 0.0], [DEAD, 1.0], [DEAD, DEAD]])
    assert found.tolist() == [[0.5, 0.5], [0, 1], [0, 0]]
    assert log.sum(torch.full((3,), DEAD, dtype=torch.float64), (0,)).item() == DEAD
    assert gradient(lambda x: log.add(x[0], x[1]), [[DEAD, 3.0], [DEAD, DEAD]]).tolist() == [[0, 1], [0, 0]]


def test_gradient_of_lifting_is_zero_at_zero_weights() -> None:
    assert gradient(Log().lift, [0.0, 0.5]).tolist() == [0, 2]
    assert gradient(Max().lift, [0.0, 0.5]).tolist() == [0, 2]
    for part in (0, 1):
        assert gradient(lambda x, part=part: Expectation().lift(x)[part], [0.0, 0.5]).tolist() == [0, 2]


def test_gradient_of_contraction_in_log_space() -> None:
    log = Log()

    def matrix_vector(x: Tensor) -> Tensor:
        return contract(log, [(x[:, :2], ("a", "b")), (x[:, 2], ("b",))], ("a",), {"a": 2, "b": 2}, LIKE)

    found = gradient(matrix_vector, [[DEAD, 0.0, 0.0], [DEAD, DEAD, 0.0]])
    assert found.tolist() == [[0, 1, 0], [0, 0, 1]]


def test_gradient_of_expectation_is_finite_where_everything_is_impossible() -> None:
    expectation = Expectation()

    def entropy(weights: Tensor) -> Tensor:
        log_z, mean = expectation.sum(expectation.lift(weights), (1,))
        return torch.where(log_z.isinf(), 0, log_z - mean)

    found = gradient(entropy, [[0.0, 0.0], [0.0, 2.0], [1.0, 1.0]])
    # The entropy of one possible value is zero whatever its weight; that of two equal ones is at its maximum. Weights
    # of zero are taken as impossible.
    torch.testing.assert_close(found, torch.zeros(3, 2, dtype=torch.float64), rtol=0, atol=1e-15)


def test_log_sum_exp_passes_gradcheck_beside_impossible_rows() -> None:
    possible = torch.randn(3, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64, requires_grad=True)

    def function(x: Tensor) -> Tensor:
        rows = torch.cat([x, torch.full((1, 4), DEAD, dtype=torch.float64)])
        total = Log().sum(rows, (1,))
        return torch.where(total.isinf(), 0, total)

    assert torch.autograd.gradcheck(function, [possible])
    assert torch.autograd.gradgradcheck(function, [possible])


def test_log_sums_neither_overflow_nor_underflow() -> None:
    large = torch.tensor([1e4, 1e4 - 1, DEAD], dtype=torch.float64)
    expected = math.log1p(math.exp(-1))
    assert Log().sum(large, (0,)).item() == pytest.approx(1e4 + expected, rel=1e-15)
    assert Log().sum(large - 2e4, (0,)).item() == pytest.approx(-1e4 + expected, rel=1e-15)
    log_z, mean = Expectation().sum((large - 2e4, torch.tensor([1.0, 3.0, 0.0], dtype=torch.float64)), (0,))
    assert log_z.item() == pytest.approx(-1e4 + expected, rel=1e-15)
    assert mean.item() == pytest.approx((1 + 3 * math.exp(-1)) / (1 + math.exp(-1)), rel=1e-12)  # e^x at x = 1e4: 1e-12
