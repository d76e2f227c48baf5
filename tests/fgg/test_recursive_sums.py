"""Sums of recursive grammars: closed forms, what is impossible, what is infinite, and how they are solved."""

import inspect
import math
from typing import Any

import pytest
import torch

from fgg.small_grammars import EXACT, RECURSIVE, SEMIRINGS, clock, equations, weights
from rankspace.errors import DivergenceError, RankspaceError
from rankspace.fgg import (
    FGG,
    nonterminal_values,
    sum_product,
    zoo,
)

# Recursive grammars: closed forms.


@pytest.mark.parametrize("ratio", [0.0, 1e-3, 0.5, 0.9, 0.999])
def test_geometric_series(ratio: float) -> None:
    fgg = equations("X = a X + b", a=ratio, b=3)
    condition = 1 / (1 - ratio)  # rounding of the ratio is multiplied by this
    assert sum_product(fgg).item() == pytest.approx(3 / (1 - ratio), rel=1e-14 * condition)
    assert sum_product(fgg, "log").item() == pytest.approx(math.log(3 / (1 - ratio)), abs=1e-14 * condition)


@pytest.mark.parametrize("p", [0.0, 0.1, 0.4, 0.49, 0.499, 0.501, 0.6, 0.9])
def test_extinction_of_a_branching_process(p: float) -> None:
    """x = p x^2 + q has the solutions 1 and q/p; the least of them counts."""
    fgg = equations("X = p X X + q", p=p, q=1 - p)
    expected = min(1.0, (1 - p) / p if p else 1.0)
    # The solution moves by 1 / |1 - 2p| <= 500 times the rounding of p and q.
    assert sum_product(fgg).item() == pytest.approx(expected, rel=1e-12)
    assert sum_product(fgg, "log").item() == pytest.approx(math.log(expected), abs=1e-12)


def test_a_cubic() -> None:
    fgg = equations("X = a X X X + b X + c", a=0.1, b=0.2, c=0.3)
    # The least positive root of 0.1 x^3 - 0.8 x + 0.3, by Cardano's trigonometric form.
    root = 2 * math.sqrt(8 / 3) * math.cos((math.acos(-1.5 * 3 / 8 * math.sqrt(3 / 8)) - 2 * math.pi) / 3)
    assert 0.1 * root**3 - 0.8 * root + 0.3 == pytest.approx(0, abs=1e-15)
    assert sum_product(fgg).item() == pytest.approx(root, rel=EXACT)


def test_two_symbols_that_need_each_other() -> None:
    fgg = equations("S = X Y; X = a Y + b; Y = c X + d", a=0.5, b=0.25, c=0.8, d=0.1)
    x = (0.25 + 0.5 * 0.1) / (1 - 0.4)
    y = 0.8 * x + 0.1
    assert sum_product(fgg).item() == pytest.approx(x * y, rel=EXACT)
    values = nonterminal_values(fgg)
    assert set(values) == {"S", "X", "Y"}
    assert values["X"].item() == pytest.approx(math.log(x), rel=EXACT)
    assert values["Y"].item() == pytest.approx(math.log(y), rel=EXACT)


def test_two_symbols_in_a_quadratic_system() -> None:
    fgg = equations("X = p Y Y + q; Y = X", p=0.3, q=0.7)
    assert sum_product(fgg).item() == pytest.approx(1, rel=EXACT)
    fgg = equations("X = p Y Y + q; Y = r X", p=0.5, q=0.25, r=0.5)
    # x = x^2 / 8 + 1/4
    assert sum_product(fgg).item() == pytest.approx(4 - math.sqrt(14), rel=EXACT)


def test_unit_cycles() -> None:
    assert sum_product(equations("S = a X; X = u X + b", a=2, u=0.75, b=1)).item() == pytest.approx(8, rel=EXACT)
    cycle = equations("X = u Y + b; Y = u Z; Z = u X", u=0.5, b=1)
    assert sum_product(cycle).item() == pytest.approx(8 / 7, rel=EXACT)


@pytest.mark.parametrize("states", [1, 2, 30])
def test_an_hmm_is_a_linear_system(states: int) -> None:
    transition = 0.9 * weights(states, states) / states
    emission = weights(states, 3).softmax(1)
    start, end = weights(states), weights(states, seed=1)
    fgg = zoo.hmm(start, transition, emission, end)
    matrix = torch.eye(states, dtype=torch.float64) - transition * emission.sum(1)
    expected = start @ torch.linalg.solve(matrix, transition @ end)
    # The rows of the transitions sum to 0.9 at most, so the condition is below ten.
    assert sum_product(fgg).item() == pytest.approx(expected.item(), rel=1e-12)
    assert sum_product(fgg, "log").item() == pytest.approx(expected.log().item(), rel=1e-12)


@pytest.mark.parametrize("scale", [1, 6, 20])
def test_proper_pcfgs_sum_to_one_also_when_peaked(scale: int) -> None:
    generator = torch.Generator().manual_seed(scale)
    rule = 0.45 * torch.randn(12, 144, generator=generator, dtype=torch.float64).mul(scale).softmax(1)
    emission = 0.55 * torch.randn(12, 5, generator=generator, dtype=torch.float64).mul(scale).softmax(1)
    fgg = zoo.pcfg(torch.full((12,), 1 / 12, dtype=torch.float64), rule.reshape(12, 12, 12), emission)
    # Rounding of 144 terms, multiplied by the condition 1 / (1 - 0.9).
    assert sum_product(fgg).item() == pytest.approx(1, rel=1e-12)


def test_components_of_components() -> None:
    """A recursive symbol whose coefficients come from another one, and a start symbol above both."""
    fgg = equations("S = X X + b; X = p X Y + q; Y = p Y + q", p=0.25, q=0.5, b=1)
    y = 0.5 / 0.75
    x = 0.5 / (1 - 0.25 * y)
    assert sum_product(fgg).item() == pytest.approx(x * x + 1, rel=EXACT)


# Symbols that derive nothing, or that nothing derives.


@pytest.mark.parametrize("equation", ["X = X", "X = X X", "X = a X X + X", "X = a Y; Y = b X X", "X = a X Y; Y = X"])
@pytest.mark.parametrize("semiring", SEMIRINGS)
def test_unproductive_recursion_gives_exactly_zero(equation: str, semiring: Any) -> None:
    coefficients = {name: 3.0 for name in ("a", "b") if f" {name} " in equation}
    expected = {"real": 0.0, "log": -math.inf, "max": -math.inf, "boolean": False, "counting": 0, "entropy": -math.inf}
    alone = sum_product(equations(equation, **coefficients), semiring)
    assert (alone[0] if isinstance(alone, tuple) else alone) == expected[semiring]
    beside = sum_product(equations(f"S = X + X c + c; {equation}", c=0.25, **coefficients), semiring)
    wanted = {"real": 0.25, "boolean": True, "counting": 1}.get(semiring, math.log(0.25))
    assert (beside[0] if isinstance(beside, tuple) else beside) == wanted


@pytest.mark.parametrize("semiring", SEMIRINGS)
def test_what_no_derivation_uses_may_be_infinite(semiring: Any) -> None:
    wanted = {"real": 0.25, "boolean": True, "counting": 1}.get(semiring, math.log(0.25))
    unreachable = equations("S = c; X = a X + a", a=1, c=0.25)
    unfinished = equations("S = c + X Y; X = a X + a; Y = Y", a=1, c=0.25)
    for fgg in (unreachable, unfinished):
        found = sum_product(fgg, semiring)
        assert (found[0] if isinstance(found, tuple) else found) == wanted
    never = sum_product(equations("S = X Y; X = a X + a; Y = Y", a=1), semiring)
    assert not (never[0] if isinstance(never, tuple) else never) > (-math.inf if semiring in ("log", "max") else 0)


@pytest.mark.parametrize("semiring", ["real", "log", "max", "boolean", "entropy"])
def test_what_has_weight_zero_may_be_infinite(semiring: Any) -> None:
    wanted = {"real": 0.25, "boolean": True}.get(semiring, math.log(0.25))
    found = sum_product(equations("S = c + z X; X = a X + a", a=1, c=0.25, z=0), semiring)
    assert (found[0] if isinstance(found, tuple) else found) == wanted


def test_infinite_derivatives_are_left_out() -> None:
    """Z = c + z X with z = 0 and X infinite: the derivative by z does not exist, the others do."""
    for semiring, scale in (("real", 1), ("log", 4)):
        c, z = (torch.tensor(x, dtype=torch.float64, requires_grad=True) for x in (0.25, 0.0))
        found = torch.autograd.grad(sum_product(equations("S = c + z X; X = a X + a", a=1, c=c, z=z), semiring), [c, z])
        assert [gradient.item() for gradient in found] == [scale, 0]


def test_states_that_lead_nowhere_are_exactly_zero() -> None:
    start = torch.tensor([0.5, 0.5], dtype=torch.float64)
    transition = torch.tensor([[0.5, 0.5], [0.0, 1.0]], dtype=torch.float64)  # the second state is a trap
    end = torch.tensor([0.5, 0.0], dtype=torch.float64)
    fgg = zoo.factored_hmm(start, transition, torch.eye(2, dtype=torch.float64), torch.ones(2, 1).double(), end)
    assert sum_product(fgg).item() == pytest.approx(0.5, rel=EXACT)  # 0.5 * (0.5 / (1 - 0.5))
    assert nonterminal_values(fgg)["X"].tolist() == pytest.approx([0.0, -math.inf], abs=EXACT)
    assert sum_product(fgg, "entropy").log_z.item() == pytest.approx(math.log(0.5), rel=EXACT)


# Infinite sums.


INFINITE = (
    "sum_product: the sum over derivations of {} is infinite (or too close to it to tell in float64); scale its "
    "factors down, or observe a sentence first."
)
DIVERGING: dict[str, tuple[FGG, str]] = {
    "x = 1 + x": (equations("X = a + X", a=1), "'X'"),
    "x = 1 + 2 x": (equations("X = a + b X", a=1, b=2), "'X'"),
    "x = 0.9 + 0.9 x^2": (equations("X = a + a X X", a=0.9), "'X'"),
    "x = 1/2 + 0.5001 x^2": (equations("X = a + b X X", a=0.5, b=0.5001), "'X'"),
    "x = 1/2 + (1/2 + 1e-9) x^2": (equations("X = a + b X X", a=0.5, b=0.5 + 1e-9), "'X'"),
    "x = y + 1, y = x": (equations("X = Y + a; Y = X", a=1), "'X' and 'Y'"),
    "below others": (equations("S = c X; X = a + b X; Y = X", c=0.5, a=1e-9, b=1), "'X'"),
    "four symbols": (equations("A = B + a; B = C; C = D; D = A", a=1), "'A' and 'B' and 'C' ..."),
}


@pytest.mark.parametrize("semiring", ["real", "log", "entropy"])
@pytest.mark.parametrize("name", DIVERGING)
def test_infinite_sums_are_refused(name: str, semiring: Any) -> None:
    fgg, symbols = DIVERGING[name]
    with pytest.raises(DivergenceError) as caught:
        sum_product(fgg, semiring)
    assert str(caught.value) == INFINITE.format(symbols)


def test_at_criticality_the_answer_is_right_or_refused() -> None:
    for p, q in ((0.5, 0.5), (0.5 + 1e-9, 0.5 - 1e-9), (0.5 - 1e-9, 0.5 + 1e-9)):
        try:
            found = sum_product(equations("X = p X X + q", p=p, q=q)).item()
        except DivergenceError:
            continue
        assert found == pytest.approx(min(1, q / p), rel=1e-6)  # the promised tolerance


@pytest.mark.parametrize("excess", [1e-3, 1e-9, 1e-12, 1e-14, 2**-50, 2**-52])
def test_slightly_supercritical_sums_are_refused(excess: float) -> None:
    """x = 1/2 + (1/2 + excess) x^2 has no solution, though 1 solves it to within rounding at last."""
    for semiring in ("real", "log", "entropy"):
        with pytest.raises(DivergenceError, match=r"^sum_product: .*'X' is (infinite|within .* of critical)"):
            sum_product(equations("X = p X X + q", p=0.5 + excess, q=0.5), semiring)


def test_how_a_refusal_near_criticality_reads() -> None:
    with pytest.raises(DivergenceError) as caught:
        sum_product(equations("X = a X + b", a=1 - 2**-40, b=1))
    assert str(caught.value) == (
        "sum_product: 'X' is within 9.1e-13 of critical, where its sum over derivations becomes infinite; float64 "
        "cannot give it to 1e-06. Scale its factors down, or observe a sentence first."
    )
    # A looser tolerance admits what rounding can still give: the true value is 2^40.
    loose = sum_product(equations("X = a X + b", a=1 - 2**-40, b=1), tolerance=0.1).item()
    assert loose == pytest.approx(2.0**40, rel=0.1)


@pytest.mark.parametrize("p", [0.4, 0.49, 0.499, 0.4999, 0.49999])
def test_near_critical_sums_are_accurate(p: float) -> None:
    condition = 1 / (1 - 2 * p)
    # Rounding of the coefficients (2e-16 relative) moves the solution by the condition; ten times that is allowed.
    found = sum_product(equations("X = p X X + q", p=p, q=1 - p)).item()
    assert found == pytest.approx(1, rel=2e-15 * condition)


def test_iteration_refuses_what_grows() -> None:
    with pytest.raises(DivergenceError) as caught:
        sum_product(equations("X = a + a X X", a=0.9), method="fixed-point")
    before, _, after = str(caught.value).partition(" (last relative change ")
    assert before == "sum_product: fixed-point iteration did not converge on 'X'"
    assert after.endswith(
        "); its sum over derivations is infinite or near critical. Scale its factors down, or observe a sentence first."
    )
    assert not float(after.partition(")")[0]) < 1


def test_counting_refuses_endless_cycles_and_counts_what_ends() -> None:
    with pytest.raises(DivergenceError) as caught:
        sum_product(equations("X = a X + b", a=0.5, b=1), "counting")
    assert str(caught.value) == (
        "sum_product: the value of 'X' grows without end around its cycle; observe a sentence first, or in "
        '"max" scale its factors down.'
    )
    assert sum_product(equations("X = a X + b", a=0, b=1), "counting") == 1
    # The time left of an HSMM counts down, so its recursive nonterminal Y comes to an end.
    assert sum_product(clock(), "counting") == 1 + 2 + 3


# Newton's method and iteration.


@pytest.mark.parametrize("name", RECURSIVE)
def test_methods_agree(name: str) -> None:
    newton, fixed, auto = (
        sum_product(RECURSIVE[name], "log", method=method).item() for method in ("newton", "fixed-point", "auto")
    )
    assert sum_product(RECURSIVE[name]).item() == pytest.approx(math.exp(newton), rel=1e-12)  # rounding of a logarithm
    assert fixed == pytest.approx(newton, rel=1e-11, abs=1e-11)  # iteration stops at a tail of 1e-12
    assert auto == newton


@pytest.mark.parametrize("name", RECURSIVE)
def test_solutions_solve_their_equations(name: str) -> None:
    """psi = F(psi), with F from the enumeration of single rules rather than from the library's contraction."""
    fgg = RECURSIVE[name]
    values = {label: value.exp() for label, value in nonterminal_values(fgg).items()}
    for label in fgg.grammar.nonterminals:
        total = torch.zeros(fgg.shape_of(label), dtype=torch.float64)
        for rule in fgg.grammar.rules_of[label]:
            letters = {node.id: i for i, node in enumerate(rule.rhs.nodes)}
            operands: list[Any] = []
            for edge in rule.rhs.edges:
                operands += [values.get(edge.label, fgg.tensors.get(edge.label)), [letters[n] for n in edge.nodes]]
            for node in rule.rhs.nodes:
                operands += [torch.ones(fgg.size(node.label), dtype=torch.float64), [letters[node.id]]]
            total = total + torch.einsum(*operands, [letters[node] for node in rule.rhs.external])
        # One evaluation of the equations, and exp(log psi), each to a few units in the last place.
        torch.testing.assert_close(values[label], total, rtol=1e-12, atol=0)


def test_unknown_names_are_errors() -> None:
    fgg = RECURSIVE["line"]
    plain = inspect.unwrap(sum_product)  # the check of types that runs in tests would be faster than ours
    for arguments, message in (
        (
            ("tropical", "auto"),
            "sum_product: unknown semiring 'tropical'; choose one of real, log, max, boolean, counting, entropy.",
        ),
        (
            ("real", "bisection"),
            "sum_product: unknown method 'bisection'; choose one of auto, newton, fixed-point.",
        ),
    ):
        with pytest.raises(RankspaceError) as caught:
            plain(fgg, arguments[0], method=arguments[1])
        assert str(caught.value) == message
