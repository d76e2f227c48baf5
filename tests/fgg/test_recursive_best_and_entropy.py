"""Entropies and best derivations of recursive grammars."""

import math

import pytest
import torch

from fgg.small_grammars import EXACT, RECURSIVE, clock, entropy_of, equations, every_weight
from rankspace.errors import DivergenceError, RankspaceError
from rankspace.fgg import (
    FGG,
    Rule,
    sum_product,
    zoo,
)

# Entropy of recursive grammars.


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


# The best derivation of recursive grammars.


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
