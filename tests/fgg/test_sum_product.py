"""The sum-product in every semiring: against enumeration, closed forms, finite differences and the fggs library."""

import inspect
import math
import warnings
from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor

from rankspace.errors import DivergenceError, RankspaceError
from rankspace.fgg import (
    FGG,
    Rule,
    enumerate_derivations,
    nonterminal_values,
    observe,
    sum_product,
    z_by_enumeration,
    zoo,
)

EXACT = 1e-13  # relative: rounding of a few hundred float64 operations on positive numbers
SEMIRINGS = ("real", "log", "max", "boolean", "counting", "entropy")


def weights(*shape: int, seed: int = 0, zeros: float = 0.0) -> Tensor:
    """Weights in (0, 1), each replaced by zero with a given probability."""
    generator = torch.Generator().manual_seed(1000 * seed + 10 * len(shape) + sum(shape))
    table = torch.rand(*shape, generator=generator, dtype=torch.float64)
    return torch.where(torch.rand(*shape, generator=generator) < zeros, 0, table)


def numbers(**values: float) -> dict[str, Tensor]:
    return {name: torch.tensor(value, dtype=torch.float64) for name, value in values.items()}


def equations(text: str, **coefficients: Any) -> FGG:
    """A grammar without nodes from a system of polynomial equations, the first of which gives the start symbol.

    "S = a X X + b; X = c" has the rules S -> a X X, S -> b and X -> c.
    """
    rules = []
    for equation in text.split(";"):
        left, _, right = equation.partition("=")
        for i, term in enumerate(right.split("+"), start=1):
            rules.append(Rule.build(left.strip(), {}, [(label,) for label in term.split()], name=f"{left.strip()}{i}"))
    factors = {k: v if isinstance(v, Tensor) else numbers(_=v)["_"] for k, v in coefficients.items()}
    return FGG.build(rules[0].lhs, rules, {}, factors)


# --- acyclic grammars against enumeration -----------------------------------------------------------------------------


def zoo_grammars(zeros: float) -> dict[str, tuple[FGG, list[int]]]:
    def w(*shape: int, seed: int = 0) -> Tensor:
        return weights(*shape, seed=seed, zeros=zeros)

    chain = (w(2), w(2, 2), w(2, 2), w(2, seed=1))
    ranks = (w(2), w(2, 3), w(3, 2))
    timed = (w(2), w(2, 2), w(2, 2, seed=2), w(2, 2, seed=3), w(2, seed=4))
    lexical = (w(2, 2), w(2, 2, 2, 2, 2), w(2, 2, 2, 2, 2, seed=1), w(2, 2, seed=2))
    aligned = (w(2, 2), w(2, 2, 2, 2, 2, 2), w(2, 2, 2))
    return {
        "hmm": (zoo.hmm(*chain), [0, 1, 0]),
        "factored_hmm": (zoo.factored_hmm(*ranks, w(3, 2, seed=5), w(2, seed=1)), [0, 1]),
        "lhmm": (zoo.lhmm(*ranks, w(2, 2), w(2, seed=1)), [0, 1]),
        "hsmm": (zoo.hsmm(*timed), [0, 1, 1]),
        "hsmm product": (zoo.hsmm(*timed, product=True), [0, 1]),
        "pcfg": (zoo.pcfg(w(2), w(2, 2, 2), w(2, 2)), [0, 1, 0]),
        "split_pcfg": (zoo.split_pcfg(w(1), w(1, 3, 3), w(2, 2)), [0, 1, 0]),
        "factored_pcfg": (zoo.factored_pcfg(w(2), w(2, 2), w(2, 2, seed=1), w(2, 2, seed=2), w(2, 2)), [1, 1, 0]),
        "lpcfg": (zoo.lpcfg(w(2), w(2, 2), w(2, 2, 2), w(2, 2)), [1, 0, 0]),
        "lexicalised_pcfg": (zoo.lexicalised_pcfg(*lexical), [0, 1]),
        "lexicalised_pcfg product": (zoo.lexicalised_pcfg(*lexical, product=True), [0, 1]),
        "qcfg": (zoo.qcfg(*aligned), [0, 1]),
        "qcfg product": (zoo.qcfg(*aligned, product=True), [1, 0]),
    }


def every_weight(fgg: FGG, **bounds: int) -> Tensor:
    """Weights of all pairs of a derivation and an assignment, in one long vector."""
    found = [torch.zeros(0, dtype=torch.float64)]
    for derivation in enumerate_derivations(fgg, **bounds):
        graph = derivation.factor_graph(fgg)
        sizes = list(graph.sizes.values())
        axes = torch.meshgrid(*map(torch.arange, sizes), indexing="ij") if sizes else ()
        grid = dict(zip(graph.sizes, axes, strict=True))
        table = torch.ones(sizes, dtype=torch.float64)
        for factor, ends in graph.factors:
            table = table * factor[tuple(grid[end] for end in ends)]
        found.append(table.flatten())
    return torch.cat(found)


def entropy_of(table: Tensor) -> float:
    p = table[table > 0] / table.sum()
    return -(p * p.log()).sum().item()


GRAMMARS = {
    f"{name}, {kind}": case
    for kind, zeros in (("positive", 0.0), ("with zeros", 0.3))
    for name, case in zoo_grammars(zeros).items()
}


@pytest.mark.parametrize("name", GRAMMARS)
def test_observed_grammars_against_enumeration(name: str) -> None:
    model, sentence = GRAMMARS[name]
    fgg = observe(model, sentence)
    table = every_weight(fgg)
    z = table.sum().item()
    assert len(table) >= 8  # otherwise there is nothing to compare
    assert sum_product(fgg).item() == pytest.approx(z, rel=EXACT)
    assert z_by_enumeration(fgg).z.item() == pytest.approx(z, rel=EXACT)
    assert sum_product(fgg, "boolean").item() is (z > 0)
    assert sum_product(fgg, "counting") == int((table > 0).sum())
    log_z = sum_product(fgg, "log").item()
    entropy = sum_product(fgg, "entropy")
    best = sum_product(fgg, "max")
    if z == 0:
        assert (log_z, entropy.log_z.item(), entropy.entropy.item()) == (-math.inf, -math.inf, 0)
        assert (best.log_weight.item(), best.derivation) == (-math.inf, None)
        return
    assert log_z == pytest.approx(math.log(z), rel=EXACT)
    assert entropy.log_z.item() == pytest.approx(log_z, rel=EXACT)
    # The entropy is a difference of numbers of the size of log Z, about ten.
    assert entropy.entropy.item() == pytest.approx(entropy_of(table), abs=1e-12)
    assert best.log_weight.item() == pytest.approx(table.max().log().item(), rel=EXACT)
    assert best.derivation is not None
    graph = best.derivation.factor_graph(fgg)
    assert set(graph.assignment) == set(graph.sizes)
    assert graph.weight().item() == pytest.approx(table.max().item(), rel=EXACT)
    assert str(best.derivation) in {str(derivation) for derivation in enumerate_derivations(fgg)}


def test_the_grammars_above_cover_possible_and_impossible_sentences() -> None:
    possible = [bool(sum_product(observe(fgg, sentence), "boolean")) for fgg, sentence in GRAMMARS.values()]
    assert all(possible[: len(possible) // 2])
    assert 0 < sum(possible[len(possible) // 2 :]) < len(possible) // 2


def test_counts_are_integers_of_any_size() -> None:
    fgg = observe(zoo.pcfg(weights(3), weights(3, 3, 3), weights(3, 1)), [0] * 16)
    # A tree over 16 words has 31 symbols of three kinds; the words are given. The number needs 73 bits.
    assert sum_product(fgg, "counting") == math.comb(30, 15) // 16 * 3**31


def test_counting_with_an_open_start_gives_an_array() -> None:
    rules = [Rule.build("X", {"t": "T", "u": "T"}, [("f", "t", "u")], ["t"])]
    table = torch.tensor([[1.0, 0.0], [2.0, 0.5]], dtype=torch.float64)
    fgg = FGG.build("X", rules, {"T": 2}, {"f": table}, open_start=True)
    assert sum_product(fgg, "counting").tolist() == [1, 2]
    assert sum_product(fgg, "boolean").tolist() == [True, True]
    found = sum_product(fgg, "entropy")
    torch.testing.assert_close(found.log_z, table.sum(1).log(), rtol=EXACT, atol=0)
    expected = torch.tensor([0.0, entropy_of(table[1])], dtype=torch.float64)
    torch.testing.assert_close(found.entropy, expected, rtol=0, atol=1e-15)  # numbers below one, two operations


@pytest.mark.parametrize("semiring", SEMIRINGS)
def test_an_empty_domain_leaves_nothing_to_sum(semiring: Any) -> None:
    rule = Rule.build("S", {"t": "T"}, [("f", "t")])
    fgg = FGG.build("S", [rule], {"T": 0}, {"f": torch.zeros(0, dtype=torch.float64)})
    expected = {"real": 0.0, "log": -math.inf, "max": -math.inf, "boolean": False, "counting": 0, "entropy": -math.inf}
    found = sum_product(fgg, semiring)
    assert (found[0] if isinstance(found, tuple) else found) == expected[semiring]


# --- recursive grammars: closed forms ---------------------------------------------------------------------------------


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


# --- symbols that derive nothing, or that nothing derives -------------------------------------------------------------


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


# --- infinite sums ----------------------------------------------------------------------------------------------------


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


def clock() -> FGG:
    """Y(d) emits one of d + 1 numbers and stops, or passes to d - 1: recursive in the symbol, not in the value."""
    rules = [
        Rule.build("S", {"d": "D"}, [("top", "d"), ("Y", "d")]),
        Rule.build("Y", {"d": "D", "e": "D"}, [("tick", "d", "e"), ("Y", "e")], ["d"]),
        Rule.build("Y", {"d": "D", "n": "D"}, [("below", "d", "n")], ["d"]),
    ]
    factors = {
        "top": torch.tensor([0.0, 0.0, 1.0], dtype=torch.float64),
        "tick": torch.diag(torch.ones(2, dtype=torch.float64), -1),
        "below": torch.ones(3, 3, dtype=torch.float64).tril(),
    }
    return FGG.build("S", rules, {"D": 3}, factors)


# --- no scale is too small or too large -------------------------------------------------------------------------------


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


# --- Newton's method and iteration ------------------------------------------------------------------------------------


RECURSIVE: dict[str, FGG] = {
    "line": equations("X = a X + b", a=0.9, b=3),
    "parabola": equations("X = p X X + q", p=0.3, q=0.7),
    "parabola, other branch": equations("X = p X X + q", p=0.7, q=0.3),
    "pair": equations("S = X Y; X = a Y Y + b; Y = c X + d", a=0.5, b=0.25, c=0.8, d=0.1),
    "ring": equations("A = a B + b; B = a C; C = a D; D = a A", a=0.9, b=1),
    "hmm": zoo.hmm(weights(3), weights(3, 3) / 3, weights(3, 2), weights(3, seed=1)),
    "hmm with zeros": zoo.hmm(weights(4), weights(4, 4, zeros=0.5) / 4, weights(4, 2), weights(4, seed=1, zeros=0.5)),
    "hsmm": zoo.hsmm(weights(2), weights(2, 2) / 2, weights(2, 3) / 3, weights(2, 2), weights(2, seed=1)),
    "pcfg": zoo.pcfg(weights(3), 0.1 * weights(3, 3, 3), 0.5 * weights(3, 2)),
    "qcfg": zoo.qcfg(weights(2, 2), 0.05 * weights(2, 2, 2, 2, 2, 2), 0.5 * weights(2, 2, 2)),
}


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


# --- gradients --------------------------------------------------------------------------------------------------------


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


# --- entropy of recursive grammars ------------------------------------------------------------------------------------


def binary_entropy(p: float) -> float:
    return -p * math.log(p) - (1 - p) * math.log(1 - p)


@pytest.mark.parametrize("p", [0.1, 0.3, 0.45])
def test_entropies_in_closed_form(p: float) -> None:
    geometric = sum_product(equations("X = p X + q", p=p, q=1 - p), "entropy")
    assert geometric.entropy.item() == pytest.approx(binary_entropy(p) / (1 - p), rel=1e-12)
    tree = sum_product(equations("X = p X X + q", p=p, q=1 - p), "entropy")
    # One choice for each of 1 / (1 - 2p) nodes; that is also how rounding grows.
    assert tree.entropy.item() == pytest.approx(binary_entropy(p) / (1 - 2 * p), rel=1e-12)
    assert tree.log_z.item() == pytest.approx(0, abs=1e-13)


def test_entropy_of_a_recursive_grammar_against_a_long_enumeration() -> None:
    generator = torch.Generator().manual_seed(3)
    start, end = (torch.rand(2, generator=generator, dtype=torch.float64) for _ in range(2))
    transition = 0.01 * torch.rand(2, 2, generator=generator, dtype=torch.float64)
    fgg = zoo.hmm(start, transition, torch.rand(2, 2, generator=generator, dtype=torch.float64), end)
    table = every_weight(fgg, max_size=9)
    found = sum_product(fgg, "entropy")
    # Eight words or more weigh less than (0.01 * 2 * 2)^8 = 7e-12 of the whole.
    assert found.log_z.item() == pytest.approx(table.sum().log().item(), abs=1e-11)
    assert found.entropy.item() == pytest.approx(entropy_of(table), abs=1e-9)  # their logarithms are about 30 each


def test_entropy_of_an_ambiguous_grammar_against_a_long_enumeration() -> None:
    fgg = equations("S = X Y + c; X = a X X + b Y + c; Y = a X + b", a=0.001, b=0.002, c=0.5)
    table = every_weight(fgg, max_size=10)
    found = sum_product(fgg, "entropy")
    # What is left out uses a or b five times or more, in some hundred ways: less than 1e-11 of the whole.
    assert found.log_z.item() == pytest.approx(table.sum().log().item(), abs=1e-11)
    assert found.entropy.item() == pytest.approx(entropy_of(table), abs=1e-9)  # their logarithms are about 30 each


def test_what_entropy_cannot_do_is_said() -> None:
    entropies = [
        sum_product(RECURSIVE["line"], "entropy", method=method).entropy for method in ("newton", "fixed-point")
    ]
    torch.testing.assert_close(*entropies, rtol=1e-9, atol=0)  # the iteration stops at a relative change of 1e-12
    a = torch.tensor(0.5, dtype=torch.float64, requires_grad=True)
    with pytest.raises(RankspaceError) as caught:
        sum_product(equations("X = a X + b", a=a, b=1), "entropy")
    assert str(caught.value) == (
        "sum_product: the entropy of a recursive grammar has no gradient here; detach the factors."
    )


# --- the best derivation of recursive grammars ------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["hmm", "hmm with zeros", "hsmm", "pcfg", "pair"])
def test_best_derivation_of_recursive_grammars(name: str) -> None:
    fgg = RECURSIVE[name]
    best = sum_product(fgg, "max")
    # Every rule that adds a word or a branch multiplies by less than one here, so the best derivation is a small one.
    table = every_weight(fgg, max_size=6)
    assert best.log_weight.item() == pytest.approx(table.max().log().item(), rel=EXACT)
    assert best.derivation is not None
    assert best.derivation.factor_graph(fgg).weight().item() == pytest.approx(table.max().item(), rel=EXACT)


def test_a_long_way_may_be_the_best() -> None:
    states = 6
    transition = torch.diag(torch.full((states - 1,), 0.9, dtype=torch.float64), 1)  # one step at a time
    end = torch.full((states,), 1e-3, dtype=torch.float64)
    end[-1] = 1
    fgg = zoo.factored_hmm(
        torch.eye(states, dtype=torch.float64)[0],
        transition,
        torch.eye(states, dtype=torch.float64),
        torch.ones(states, 1, dtype=torch.float64),
        end,
    )
    best = sum_product(fgg, "max")
    assert best.log_weight.item() == pytest.approx(5 * math.log(0.9), rel=EXACT)
    assert str(best.derivation) == "pi_1(pi_2(pi_2(pi_2(pi_2(pi_2(pi_3))))))"
    graph = best.derivation.factor_graph(fgg)
    assert [graph.assignment["e1/" + "e3/" * i + "t3"] for i in range(5)] == [1, 2, 3, 4, 5]


def test_cycles_of_weight_one_end() -> None:
    assert str(sum_product(equations("X = X + a", a=0.5), "max").derivation) == "X2"
    assert str(sum_product(equations("X = u X + a; S = X", u=1, a=0.5), "max").derivation) == "X2"


@pytest.mark.parametrize("seed", range(20))
def test_cycles_of_weight_one_end_in_spite_of_rounding(seed: int) -> None:
    """Around a cycle of weight one, sums of logarithms come back a little larger or smaller than they were."""
    generator = torch.Generator().manual_seed(seed)
    states = 5
    # exp(h_i - h_j) multiplies to one around every cycle, but its logarithms are not exact.
    height = torch.randint(-4, 5, (states,), generator=generator).double()
    step = 2.0 ** (height[:, None] - height)
    ends = torch.rand(states, generator=generator, dtype=torch.float64)
    rules = [
        Rule.build("S", {"t": "T"}, [("X", "t")], name="S"),
        Rule.build("X", {"t": "T", "u": "T"}, [("step", "t", "u"), ("X", "u")], ["t"], name="step"),
        Rule.build("X", {"t": "T"}, [("end", "t")], ["t"], name="end"),
    ]
    fgg = FGG.build("S", rules, {"T": states}, {"step": step, "end": ends})
    best = sum_product(fgg, "max")
    expected = (step * ends).max()  # any number of steps is worth as much as one
    assert best.log_weight.item() == pytest.approx(expected.log().item(), abs=1e-14)
    assert best.derivation is not None
    assert best.derivation.size <= 3
    assert best.derivation.factor_graph(fgg).weight().item() == pytest.approx(expected.item(), rel=EXACT)


def test_growing_cycles_are_refused_in_max() -> None:
    for fgg in (
        equations("X = u X + a", u=1.0000001, a=0.5),
        equations("X = u Y + a; Y = v X", u=0.5, v=2.5, a=0.5),
        equations("X = u X X + a", u=1, a=2),
    ):
        with pytest.raises(DivergenceError) as caught:
            sum_product(fgg, "max")
        assert str(caught.value) == (
            "sum_product: the value of 'X' grows without end around its cycle; observe a sentence first, or in "
            '"max" scale its factors down.'
        )


def test_boolean_iteration_on_recursive_grammars() -> None:
    assert sum_product(clock(), "boolean").item() is True
    assert sum_product(equations("X = a X + b", a=5, b=0), "boolean").item() is False
    states = 7  # the only way from the first state to the last takes all of them
    fgg = zoo.factored_hmm(
        torch.eye(states, dtype=torch.float64)[0],
        torch.diag(torch.ones(states - 1, dtype=torch.float64), 1),
        torch.eye(states, dtype=torch.float64),
        torch.ones(states, 1, dtype=torch.float64),
        torch.eye(states, dtype=torch.float64)[-1],
    )
    assert sum_product(fgg, "boolean").item() is True
    assert sum_product(fgg, "counting") == 1


# --- the fggs library -------------------------------------------------------------------------------------------------


def fggs_of(fgg: FGG, log_space: bool) -> float:
    """(Log) Z of the same grammar, built rule by rule with the fggs library and solved by its Newton's method."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # theirs, on import and on weights given as tensors
        fggs = pytest.importorskip("fggs")
        theirs = fggs.FGG(fgg.start)
        for rule in fgg.rules:
            rhs = fggs.Graph()
            nodes = {node.id: rhs.new_node(node.label, id=node.id) for node in rule.rhs.nodes}
            for edge in rule.rhs.edges:
                kind = "is_nonterminal" if edge.label in fgg.grammar.nonterminals else "is_terminal"
                rhs.new_edge(edge.label, [nodes[node] for node in edge.nodes], id=edge.id, **{kind: True})
            rhs.ext = [nodes[node] for node in rule.rhs.external]
            theirs.new_rule(rule.lhs, rhs)
        for label, domain in fgg.domains.items():
            theirs.new_finite_domain(label, list(domain.values))
        for label, tensor in fgg.tensors.items():
            theirs.new_finite_factor(label, tensor.log() if log_space else tensor)
        semiring = (fggs.LogSemiring if log_space else fggs.RealSemiring)(dtype=torch.float64)
        return float(fggs.sum_product(theirs, method="newton", tol=1e-13, semiring=semiring))


@pytest.mark.parametrize("name", ["hmm", "pcfg", "qcfg"])
def test_the_fggs_library_agrees_on_recursive_grammars(name: str) -> None:
    fgg = RECURSIVE[name]
    # Their iteration stops at steps of 1e-13.
    assert sum_product(fgg).item() == pytest.approx(fggs_of(fgg, log_space=False), rel=1e-10)
    assert sum_product(fgg, "log").item() == pytest.approx(fggs_of(fgg, log_space=True), abs=1e-10)


# --- the ends of the range, and what does not matter ------------------------------------------------------------------


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
