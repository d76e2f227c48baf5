"""Gradients of sums: finite differences, weights of zero, and components near criticality."""

import math
from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor

from fgg.small_grammars import EXACT, RECURSIVE, equations, weights
from rankspace.errors import RankspaceError
from rankspace.fgg import (
    FGG,
    observe,
    sum_product,
    zoo,
)


def differentiable(fgg: FGG, semiring: Any) -> tuple[Callable[..., Tensor], list[Tensor]]:
    """The sum-product as a function of all factors that are tensors."""
    names = [name for name, factor in fgg.factors.items() if isinstance(factor, Tensor)]

    def function(*tables: Tensor) -> Tensor:
        return sum_product(fgg.with_factors(dict(zip(names, tables, strict=True))), semiring)

    return function, [fgg.tensors[name].clone().requires_grad_() for name in names]


ACYCLIC = {
    "hmm": observe(zoo.hmm(weights(2), weights(2, 2), weights(2, 2), weights(2, seed=1)), [0, 1, 1]),
    "hsmm": observe(
        zoo.hsmm(weights(2), weights(2, 2), weights(2, 2, seed=2), weights(2, 2, seed=3), weights(2, seed=4)), [0, 1]
    ),
    "pcfg": observe(zoo.pcfg(weights(2), weights(2, 2, 2), weights(2, 2)), [0, 1, 0]),
    "lexicalised_pcfg": observe(
        zoo.lexicalised_pcfg(weights(1, 2), weights(1, 2, 1, 1, 2), weights(1, 2, 1, 1, 2), weights(1, 2)), [0, 1, 0]
    ),
}
SMALL_RECURSIVE = {
    "line": RECURSIVE["line"],
    "parabola": RECURSIVE["parabola"],
    "pair": RECURSIVE["pair"],
    "hmm": zoo.hmm(weights(2), weights(2, 2) / 2, weights(2, 2), weights(2, seed=1)),
    "hsmm": zoo.hsmm(weights(2), weights(2, 2) / 2, weights(2, 2) / 2, weights(2, 2), weights(2, seed=1)),
    "pcfg": zoo.pcfg(weights(2), 0.1 * weights(2, 2, 2), 0.5 * weights(2, 2)),
}


@pytest.mark.parametrize("semiring", ["real", "log"])
@pytest.mark.parametrize("name", ACYCLIC)
def test_gradients_of_acyclic_grammars(name: str, semiring: Any) -> None:
    # Fixed parts of the grammar, such as the clock of an HSMM, hold zeros, where a two-sided difference would need
    # negative weights; those are tested below.
    function, tables = differentiable(ACYCLIC[name], semiring)
    for table in tables:
        table.requires_grad_(bool((table > 0).all()))
    assert torch.autograd.gradcheck(function, tables)


@pytest.mark.parametrize("semiring", ["real", "log"])
@pytest.mark.parametrize("name", SMALL_RECURSIVE)
def test_gradients_through_recursion(name: str, semiring: Any) -> None:
    function, tables = differentiable(SMALL_RECURSIVE[name], semiring)
    for table in tables:
        table.requires_grad_(bool((table > 0).all()))
    # The fast mode compares the gradient along random directions.
    assert torch.autograd.gradcheck(function, tables, fast_mode=name in ("hsmm", "pcfg"))


def test_gradients_do_not_depend_on_the_method() -> None:
    fgg = RECURSIVE["pcfg"]
    found = []
    for method in ("newton", "fixed-point"):
        tables = {name: factor.clone().requires_grad_() for name, factor in fgg.tensors.items()}
        sum_product(fgg.with_factors(tables), "log", method=method).backward()
        found.append(tables)
    for name in fgg.factors:
        torch.testing.assert_close(found[0][name].grad, found[1][name].grad, rtol=1e-10, atol=0)  # iteration: 1e-12


def test_gradients_of_entropy() -> None:
    fgg = ACYCLIC["pcfg"]
    names = list(fgg.factors)[:3]
    tables = [fgg.tensors[name].clone().requires_grad_() for name in names]

    def function(*tables: Tensor) -> Tensor:
        return sum_product(fgg.with_factors(dict(zip(names, tables, strict=True))), "entropy").entropy

    assert [table.shape for table in tables] == [(2,), (2, 2), (2, 2, 2)]
    assert torch.autograd.gradcheck(function, tables)


def test_gradient_of_the_best_weight_counts_the_factors_it_uses() -> None:
    fgg = ACYCLIC["pcfg"]
    function, tables = differentiable(fgg, "max")
    best = function(*tables)
    gradients = torch.autograd.grad(best.log_weight, tables)
    # d log w / d f = (times f is used) / f; a tree over three words uses the root, two rules and three words.
    uses = [(table * gradient).sum().item() for table, gradient in zip(tables, gradients, strict=True)]
    assert uses == pytest.approx([1, 3, 2], rel=1e-14)


ZERO_WEIGHTS = {
    "acyclic": observe(
        zoo.pcfg(weights(3, zeros=0.4), weights(3, 3, 3, zeros=0.6), weights(3, 2, zeros=0.3, seed=3)), [0, 1, 0]
    ),
    "recursive": zoo.pcfg(
        weights(2), 0.1 * weights(2, 2, 2, zeros=0.4, seed=3), weights(2, 2, zeros=0.5, seed=3)
    ),  # the first symbol emits nothing
    "a state that cannot end": zoo.factored_hmm(
        weights(3),
        weights(3, 2, zeros=0.4) / 4,
        weights(2, 3, zeros=0.4),
        weights(2, 1),
        torch.tensor([0.7, 0.0, 0.2], dtype=torch.float64),
    ),
    "a state that nothing leaves": zoo.factored_hmm(
        weights(3),
        torch.tensor([[0.2, 0.3, 0.0], [0.0, 0.0, 0.0], [0.1, 0.2, 0.3]], dtype=torch.float64),
        torch.eye(3, dtype=torch.float64),
        weights(3, 1),
        torch.tensor([0.7, 0.0, 0.2], dtype=torch.float64),
    ),
    "a state that nothing enters": zoo.factored_hmm(
        torch.tensor([1.0, 0.0], dtype=torch.float64),
        torch.tensor([[0.5, 0.0], [0.25, 0.5]], dtype=torch.float64),
        torch.eye(2, dtype=torch.float64),
        torch.ones(2, 1, dtype=torch.float64),
        torch.tensor([1.0, 3.0], dtype=torch.float64),
    ),
    "a symbol with weight zero": equations("S = z X + c; X = a X + b", a=0.5, b=1, c=1, z=0),
    "a line through zero": equations("S = c X + c; X = a X + b", a=0.5, b=0, c=1),
    "a power of zero": equations("S = X X + c; X = a X + b", a=0.5, b=0, c=1),
    "nothing possible": equations("S = X Y; X = a X + b; Y = a Y + b", a=0.5, b=0),
}


@pytest.mark.parametrize("name", ZERO_WEIGHTS)
def test_gradients_at_zero_weights_are_one_sided_differences(name: str) -> None:
    fgg = ZERO_WEIGHTS[name]
    function, tables = differentiable(fgg, "real")
    assert any(bool((table == 0).any()) for table in tables)
    z = function(*tables)
    gradients = torch.autograd.grad(z, tables)
    step = 1e-7
    for i, table in enumerate(tables):
        expected = torch.zeros_like(table)
        for place in product(*map(range, table.shape)):
            moved = table.detach().clone()
            moved[place] += step
            following = [moved if j == i else other.detach() for j, other in enumerate(tables)]
            expected[place] = (function(*following) - z.detach()) / step
        # One-sided: step * curvature / 2 (below 100) and rounding 1e-16 / step, each below 1e-5.
        torch.testing.assert_close(gradients[i], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ZERO_WEIGHTS)
def test_gradients_in_log_space_are_finite_and_zero_at_zero_weights(name: str) -> None:
    fgg = ZERO_WEIGHTS[name]
    function, tables = differentiable(fgg, "log")
    real, _ = differentiable(fgg, "real")
    log_z = function(*tables)
    found = torch.autograd.grad(log_z, tables)
    if log_z == -math.inf:
        assert all(not bool(gradient.any()) for gradient in found)
        return
    expected = torch.autograd.grad(real(*tables).log(), tables)
    for table, gradient, wanted in zip(tables, found, expected, strict=True):
        wanted = torch.where(table > 0, wanted, 0)
        torch.testing.assert_close(gradient, wanted, rtol=1e-11, atol=1e-13)  # two solutions of one linear system


def test_a_trap_beside_a_living_state_does_not_spoil_gradients() -> None:
    """The trap's own equation x = x is singular; it is left out, and its value stays zero."""
    start = torch.tensor([0.5, 0.5], dtype=torch.float64, requires_grad=True)
    transition = torch.tensor([[0.5, 0.25], [0.0, 1.0]], dtype=torch.float64)
    end = torch.tensor([0.5, 0.0], dtype=torch.float64, requires_grad=True)
    fgg = zoo.factored_hmm(start, transition, torch.eye(2, dtype=torch.float64), torch.ones(2, 1).double(), end)
    for semiring, scale in (("real", 1.0), ("log", 2.0)):
        found = torch.autograd.grad(sum_product(fgg, semiring), [start, end])
        # Z = start[0] * end[0] / (1 - 0.5) = 0.5
        assert found[0].tolist() == pytest.approx([scale * 1, 0], abs=EXACT)
        assert found[1][0].item() == pytest.approx(scale * 1, abs=EXACT)


def test_gradients_do_not_depend_on_units() -> None:
    """X is 1e5 times Y: that is a choice of units and not a matter of criticality."""
    for unit in (1.0, 1e5, 1e-5, 1e100):
        a, b = (torch.tensor(x, dtype=torch.float64, requires_grad=True) for x in (0.2 * unit, 0.5 / unit))
        z = sum_product(equations("X = a Y; Y = b X + c", a=a, b=b, c=1))
        da, db = torch.autograd.grad(z, [a, b])
        # Z = a c / (1 - a b) with a b = 0.1
        assert da.item() == pytest.approx(1 / 0.81, rel=EXACT)
        assert db.item() == pytest.approx((0.2 * unit / 0.9) ** 2, rel=EXACT)


def test_no_gradient_near_criticality() -> None:
    for semiring in ("real", "log"):
        p = torch.tensor(0.499999, dtype=torch.float64, requires_grad=True)
        z = sum_product(equations("X = p X X + q", p=p, q=0.500001), semiring)  # the value is fine
        with pytest.raises(RankspaceError) as caught:
            z.backward()
        assert str(caught.value) == (
            "sum_product: 'X' is too near critical for a gradient; detach the factors or scale them down."
        )
        value = sum_product(equations("X = p X X + q", p=p.detach(), q=0.500001), semiring).item()
        assert value == pytest.approx({"real": 1, "log": 0}[semiring], abs=1e-8)  # condition 5e5 times rounding


def test_gradients_close_to_criticality_are_accurate() -> None:
    p = torch.tensor(0.499, dtype=torch.float64, requires_grad=True)
    q = torch.tensor(0.501, dtype=torch.float64, requires_grad=True)
    dp, dq = torch.autograd.grad(sum_product(equations("X = p X X + q", p=p, q=q)), [p, q])
    # dx = (x^2 dp + dq) / (1 - 2 p x) at x = 1; the denominator 0.002 is known to 1e-13 / 0.002 only.
    assert (dp.item(), dq.item()) == pytest.approx((500, 500), rel=1e-9)


def test_second_derivatives() -> None:
    function, tables = differentiable(ACYCLIC["hmm"], "log")
    assert torch.autograd.gradgradcheck(function, tables)
    a = torch.tensor(0.5, dtype=torch.float64, requires_grad=True)
    z = sum_product(equations("X = a X + b", a=a, b=1))
    with pytest.raises(RankspaceError) as caught:
        torch.autograd.grad(z, a, create_graph=True)
    assert str(caught.value) == "sum_product: second derivatives through a recursive component are not available."


def test_nothing_is_recorded_without_gradients() -> None:
    function, tables = differentiable(SMALL_RECURSIVE["pcfg"], "log")
    with torch.no_grad():
        assert not function(*tables).requires_grad
    assert function(*tables).requires_grad
    assert not sum_product(SMALL_RECURSIVE["pcfg"], "log").requires_grad
