"""Sums whose weights, products or results are too small or too large for their dtype."""

import math

import pytest
import torch

from fgg.small_grammars import EXACT, equations
from rankspace.errors import DivergenceError
from rankspace.fgg import (
    FGG,
    Rule,
    sum_product,
    zoo,
)

# No scale is too small or too large.


def test_tiny_weights_in_log_space() -> None:
    fgg = equations("S = a a X; X = a b", a=1e-300, b=2)
    assert sum_product(fgg, "log").item() == pytest.approx(3 * math.log(1e-300) + math.log(2), rel=EXACT)
    assert sum_product(fgg).item() == 0  # it underflows, as it must


def test_tiny_weights_in_recursive_grammars() -> None:
    # X = (1e-300)^2 (3/2): the recursive part is far below the rest.
    fgg = equations("X = a a X + a a b", a=1e-300, b=1.5)
    expected = 2 * math.log(1e-300) + math.log(1.5)
    for method in ("newton", "fixed-point"):
        assert sum_product(fgg, "log", method=method).item() == pytest.approx(expected, rel=EXACT)
    # x = u / s with s = 1e500: u = 0.3 u^2 + 0.3, so that neither part can be neglected.
    fgg = equations("X = a a X X + b b", a=math.sqrt(0.3) * 1e250, b=math.sqrt(0.3) * 1e-250)
    expected = math.log((1 - math.sqrt(1 - 0.36)) / 0.6) - 500 * math.log(10)
    # A logarithm of 1151 is rounded to 2e-13; that is the size of an error of the answer.
    for method in ("newton", "fixed-point"):
        assert sum_product(fgg, "log", method=method).item() == pytest.approx(expected, abs=5e-12)
    best = sum_product(fgg, "max")
    assert best.log_weight.item() == pytest.approx(math.log(0.3) - 500 * math.log(10), rel=EXACT)
    assert str(best.derivation) == "X2"


def test_products_may_leave_the_range_on_the_way() -> None:
    for a in (1e200, 1e-200):
        left, right = (torch.tensor(x, dtype=torch.float64, requires_grad=True) for x in (a, 1 / a))
        z = sum_product(equations("S = a a b b", a=left, b=right))
        # By way of logarithms of 460, each known to 1e-13.
        assert z.item() == pytest.approx(1, rel=1e-12)
        gradients = torch.autograd.grad(z, [left, right])
        assert [gradient.item() for gradient in gradients] == pytest.approx([2 / a, 2 * a], rel=1e-12)


def test_a_sum_that_is_too_large_for_its_dtype() -> None:
    fgg = equations("S = a a", a=1e200)
    with pytest.raises(DivergenceError) as caught:
        sum_product(fgg)
    assert str(caught.value) == 'sum_product: Z is finite but too large for torch.float64; ask for it in "log".'
    assert sum_product(fgg, "log").item() == pytest.approx(400 * math.log(10), rel=EXACT)


def test_single_precision_grammars_are_solved_in_double_precision() -> None:
    fgg = equations("X = p X X + q", p=0.499, q=0.501).to(torch.float32)
    single = {name: factor.double() for name, factor in fgg.tensors.items()}
    expected = sum_product(fgg.with_factors(single)).item()
    found = sum_product(fgg)
    assert found.dtype == torch.float32
    assert found.item() == pytest.approx(expected, rel=1e-7)  # one rounding of the answer to float32


# The ends of the range, and what does not matter.


def weights_in_a_row(*weights: float, dtype: torch.dtype = torch.float64) -> FGG:
    labels = [f"w{i}" for i in range(len(weights))]
    factors = {label: torch.tensor(w, dtype=dtype) for label, w in zip(labels, weights, strict=True)}
    return FGG.build("S", [Rule.build("S", {}, [(label,) for label in labels])], {}, factors)


@pytest.mark.parametrize(
    ("weights", "expected"),
    [((1e200, 1e200, 0.0), 0.0), ((1e200, 1e200, 1e-300), 1e100), ((1e-200, 1e-200, 1e300), 1e-100)],
)
def test_products_that_leave_the_range_on_the_way(weights: tuple[float, ...], expected: float) -> None:
    assert sum_product(weights_in_a_row(*weights)).item() == pytest.approx(expected, rel=1e-12)


def test_z_too_large_for_the_dtype() -> None:
    with pytest.raises(DivergenceError) as caught:
        sum_product(weights_in_a_row(1e200, 1e200))
    assert str(caught.value) == ('sum_product: Z is finite but too large for torch.float64; ask for it in "log".')
    assert sum_product(weights_in_a_row(1e200, 1e200), "log").item() == pytest.approx(400 * math.log(10))


def test_impossible_has_no_gradient_in_log() -> None:
    possible = torch.tensor(0.5, dtype=torch.float64, requires_grad=True)
    rule = Rule.build("S", {}, [("a",), ("b",)])
    fgg = FGG.build("S", [rule], {}, {"a": possible, "b": torch.tensor(0.0, dtype=torch.float64)})
    result = sum_product(fgg, "log")
    assert result == -math.inf
    assert torch.autograd.grad(result, possible)[0] == 0


def test_states_nothing_reaches_may_diverge() -> None:
    start, end = torch.tensor([1.0, 0.0]), torch.tensor([0.5, 0.5])
    move = torch.diag(torch.tensor([0.5, 1.0]))  # the second state never stops, and never starts
    rules = [
        Rule.build("S", {"x": "T"}, [("start", "x"), ("X", "x")]),
        Rule.build("X", {"x": "T", "y": "T"}, [("move", "x", "y"), ("X", "y")], ["x"]),
        Rule.build("X", {"x": "T"}, [("end", "x")], ["x"]),
    ]
    factors = {"start": start.double(), "move": move.double(), "end": end.double()}
    fgg = FGG.build("S", rules, {"T": 2}, factors)
    assert sum_product(fgg).item() == pytest.approx(1)
    assert sum_product(fgg, "entropy").entropy.item() == pytest.approx(2 * math.log(2))  # a fair coin until it stops


def test_float32_gradients_through_recursion() -> None:
    """Slopes are taken in float64, whatever the factors are."""
    generator = torch.Generator().manual_seed(0)
    move = torch.rand(20, 20, generator=generator, dtype=torch.float64)
    move *= (1 - 1e-4) / torch.linalg.eigvals(move).abs().max()
    ones = torch.ones(20, dtype=torch.float64)
    gradients = {}
    for dtype in (torch.float64, torch.float32):
        leaf = move.float().to(dtype).requires_grad_()
        rules = [
            Rule.build("S", {"x": "T"}, [("start", "x"), ("X", "x")]),
            Rule.build("X", {"x": "T", "y": "T"}, [("move", "x", "y"), ("X", "y")], ["x"]),
            Rule.build("X", {"x": "T"}, [("end", "x")], ["x"]),
        ]
        fgg = FGG.build("S", rules, {"T": 20}, {"start": ones.to(dtype), "move": leaf, "end": ones.to(dtype)})
        gradients[dtype] = torch.autograd.grad(sum_product(fgg, "log"), leaf)[0].double()
    # float32 values and adjoints, with nothing amplified by the condition number of 1e4
    torch.testing.assert_close(gradients[torch.float32], gradients[torch.float64], rtol=1e-5, atol=0)


def test_many_unknowns_by_newton() -> None:
    """A PCFG of 120 symbols: the slopes come from contractions, not from differentiating each unknown."""
    generator = torch.Generator().manual_seed(0)
    rule = torch.rand(120, 120 * 120, generator=generator, dtype=torch.float64).softmax(-1).reshape(120, 120, 120)
    root = torch.full((120,), 1 / 120, dtype=torch.float64)
    fgg = zoo.pcfg(root, 0.4 * rule, torch.full((120, 3), 0.2, dtype=torch.float64))
    # each symbol branches with probability 0.4 and emits with 0.6, so all derivations together have probability 1
    assert sum_product(fgg, method="newton").item() == pytest.approx(1, rel=1e-12)
