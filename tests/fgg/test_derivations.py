"""The generative story: which derivations there are, the factor graphs they make, and Z by counting them out."""

from itertools import islice, permutations, product
from math import comb, prod

import pytest
import torch
from torch import Tensor

from rankspace.errors import GrammarError
from rankspace.fgg import (
    FGG,
    Derivation,
    FactorGraph,
    Rule,
    enumerate_derivations,
    observe,
    sum_product,
    z_by_enumeration,
    zoo,
)

INFINITE = "enumerate_derivations: the grammar has infinitely many derivations; give limit or max_size."


def weights(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed + 10 * len(shape) + sum(shape))
    return torch.rand(*shape, generator=generator, dtype=torch.float64)


def one() -> Tensor:
    return torch.ones((), dtype=torch.float64)


def hmm(states: int = 2, words: int = 2) -> FGG:
    return zoo.hmm(weights(states), 0.4 * weights(states, states), weights(states, words), weights(states, seed=1))


def pcfg(symbols: int = 1, words: int = 1) -> FGG:
    return zoo.pcfg(weights(symbols), 0.1 * weights(symbols, symbols, symbols), weights(symbols, words))


def plain(*rules: tuple[str, str], start: str = "S") -> FGG:
    """A grammar without nodes: ("S", "a X X") is S -> a X X; small letters are factors of weight one."""
    built = [
        Rule.build(lhs, {}, [(label,) for label in rhs.split()], name=f"{lhs}->{rhs.replace(' ', '')}")
        for lhs, rhs in rules
    ]
    terminals = {label for _, rhs in rules for label in rhs.split() if label.islower()}
    return FGG.build(start, built, {}, {label: one() for label in sorted(terminals)})


# --- which derivations there are --------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", range(1, 7))
def test_trees_over_one_symbol_are_counted_by_catalan_numbers(length: int) -> None:
    found = list(enumerate_derivations(observe(pcfg(), [0] * length)))
    assert len(found) == comb(2 * length - 2, length - 1) // length
    # A tree over n words has n - 1 binary rules, n words and the root.
    assert {derivation.size for derivation in found} == {2 * length}
    assert len({shape(derivation) for derivation in found}) == len(found)


def shape(derivation: Derivation) -> tuple[object, ...]:
    """All of a derivation in a form that can be compared: the left-hand sides tell the spans."""
    return (derivation.rule.lhs, derivation.rule.name, *(shape(child) for child in derivation.ordered_children()))


def test_an_hmm_has_one_derivation_of_every_length() -> None:
    for length in range(6):
        [derivation] = enumerate_derivations(observe(hmm(), [0] * length))
        assert str(derivation) == "pi_1(" + "pi_2(" * length + "pi_3" + ")" * (length + 1)
    unobserved = enumerate_derivations(hmm(), limit=4)
    assert [str(derivation) for derivation in unobserved] == [
        "pi_1(pi_3)",
        "pi_1(pi_2(pi_3))",
        "pi_1(pi_2(pi_2(pi_3)))",
        "pi_1(pi_2(pi_2(pi_2(pi_3))))",
    ]


def test_derivations_come_in_order_of_size_and_then_of_rules() -> None:
    fgg = plain(("S", "X S"), ("S", "X"), ("X", "a"), ("X", "b"))
    assert [str(derivation) for derivation in enumerate_derivations(fgg, limit=7)] == [
        "S->X(X->a)",
        "S->X(X->b)",
        "S->XS(X->a, S->X(X->a))",
        "S->XS(X->a, S->X(X->b))",
        "S->XS(X->b, S->X(X->a))",
        "S->XS(X->b, S->X(X->b))",
        "S->XS(X->a, S->XS(X->a, S->X(X->a)))",
    ]


def test_symbols_whose_derivations_differ_in_size() -> None:
    fgg = plain(("S", "X X"), ("X", "Y"), ("X", "a"), ("Y", "Z"), ("Z", "b"))
    assert [(d.size, str(d)) for d in enumerate_derivations(fgg)] == [
        (3, "S->XX(X->a, X->a)"),
        (5, "S->XX(X->a, X->Y(Y->Z(Z->b)))"),
        (5, "S->XX(X->Y(Y->Z(Z->b)), X->a)"),
        (7, "S->XX(X->Y(Y->Z(Z->b)), X->Y(Y->Z(Z->b)))"),
    ]


def test_symbols_that_need_each_other() -> None:
    fgg = plain(("S", "A"), ("A", "B"), ("B", "C"), ("C", "A"), ("C", "c"))
    assert [d.size for d in enumerate_derivations(fgg, limit=3)] == [4, 7, 10]
    assert str(next(enumerate_derivations(fgg, limit=1))) == "S->A(A->B(B->C(C->c)))"


def test_limit_and_max_size() -> None:
    fgg = plain(("S", "S S"), ("S", "a"))
    # A binary tree with k leaves uses 2 k - 1 rules: 1 + 1 + 2 + 5 trees have at most 4 leaves.
    assert [d.size for d in enumerate_derivations(fgg, max_size=7)] == [1] + [3] + 2 * [5] + 5 * [7]
    assert [d.size for d in enumerate_derivations(fgg, max_size=8)] == [1] + [3] + 2 * [5] + 5 * [7]
    assert [d.size for d in enumerate_derivations(fgg, limit=3)] == [1, 3, 5]
    assert [d.size for d in enumerate_derivations(fgg, limit=3, max_size=3)] == [1, 3]
    assert [d.size for d in enumerate_derivations(fgg, limit=1, max_size=9)] == [1]
    assert list(enumerate_derivations(fgg, limit=0)) == []
    assert list(enumerate_derivations(fgg, max_size=0)) == []


def test_infinite_grammars_need_a_bound_before_anything_is_asked_of_them() -> None:
    for call in (enumerate_derivations, z_by_enumeration):
        with pytest.raises(GrammarError) as caught:
            call(hmm())
        assert str(caught.value) == INFINITE


def test_bounds_below_zero_are_errors() -> None:
    for bounds in ({"limit": -1}, {"max_size": -1}):
        with pytest.raises(GrammarError) as caught:
            enumerate_derivations(hmm(), **bounds)
        assert str(caught.value) == "enumerate_derivations: limit and max_size are numbers from 0 on."


FINITE = {
    "a cycle that never ends": (plain(("S", "a"), ("S", "L"), ("L", "L")), ["S->a"]),
    "a cycle in a symbol beside one that never ends": (
        plain(("S", "a"), ("S", "X L"), ("X", "X a"), ("X", "a"), ("L", "L L")),
        ["S->a"],
    ),
    "a cycle out of reach": (plain(("S", "a"), ("X", "X a"), ("X", "a")), ["S->a"]),
    "a start symbol that never ends": (plain(("S", "X S"), ("X", "X a"), ("X", "a")), []),
}


@pytest.mark.parametrize("case", FINITE)
def test_cycles_in_useless_symbols_do_not_count(case: str) -> None:
    fgg, expected = FINITE[case]
    assert [str(derivation) for derivation in enumerate_derivations(fgg)] == expected
    assert [str(derivation) for derivation in enumerate_derivations(fgg, limit=5)] == expected
    assert z_by_enumeration(fgg) == (len(expected), len(expected), True)


def test_derivations_as_terms() -> None:
    leaf = Derivation(Rule.build("X", {}, name="leaf"))
    node = Rule.build("X", {}, [("X",), ("a",), ("X",)])
    # Children stand in the order of the rule's edges, whatever the order of the mapping; no name: the left-hand side.
    assert str(Derivation(node, {"e2": leaf, "e0": Derivation(node, {"e0": leaf, "e2": leaf})})) == (
        "X(X(leaf, leaf), leaf)"
    )
    assert str(leaf) == "leaf"


def test_walking_meets_parents_first_and_children_in_order() -> None:
    fgg = plain(("S", "X Y"), ("X", "Y Y"), ("Y", "a"))
    [derivation] = enumerate_derivations(fgg)
    assert [here.rule.lhs for here in derivation.walk()] == ["S", "X", "Y", "Y", "Y"]
    assert derivation.size == 5


# --- their factor graphs ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", range(5))
def test_factor_graph_of_a_chain(length: int) -> None:
    fgg = observe(hmm(3, 2), [1] * length)
    [derivation] = enumerate_derivations(fgg)
    graph = derivation.factor_graph(fgg)
    # A state before each word, after the last and at the end, and a word for each: T1 .. T(n+2), O1 .. On.
    assert sorted(graph.sizes.values()) == [2] * length + [3] * (length + 2)
    # start and end, transitions between n + 2 states, n emissions and n observations
    assert len(graph.factors) == 2 + (length + 1) + length + length
    assert graph.assignment == {}
    path = "e1/" + "e2/" * length
    assert set(graph.sizes) == {
        "t1",
        *(path[: 3 + 3 * i] + node for i in range(length) for node in ("t2", "o3")),
        path + "t2",
    }


@pytest.mark.parametrize("length", range(1, 5))
def test_factor_graph_of_a_tree(length: int) -> None:
    fgg = observe(pcfg(3, 2), [1] * length)
    for derivation in enumerate_derivations(fgg):
        graph = derivation.factor_graph(fgg)
        # 2 n - 1 symbols and n words; the root, n - 1 rules, n emissions, n observations
        assert sorted(graph.sizes.values()) == [2] * length + [3] * (2 * length - 1)
        assert len(graph.factors) == 1 + (length - 1) + length + length


def test_identifiers_with_slashes_do_not_run_together() -> None:
    rules = [
        Rule.build("S", {"e0/t": "T", "e0~1t": "T"}, [("X",), ("f", "e0/t"), ("f", "e0~1t")]),
        Rule.build("X", {"t": "T"}, [("f", "t")]),
    ]
    fgg = FGG.build("S", rules, {"T": 2}, {"f": torch.tensor([1.0, 2.0], dtype=torch.float64)})
    assert z_by_enumeration(fgg).z.item() == 27
    [derivation] = enumerate_derivations(fgg)
    assert set(derivation.factor_graph(fgg).sizes) == {"e0~1t", "e0~01t", "e0/t"}


def brute_force(graph: FactorGraph) -> float:
    """The definition: product of factors, summed over assignments, in plain Python."""
    names = list(graph.sizes)
    total = 0.0
    for values in product(*(range(size) for size in graph.sizes.values())):
        at = dict(zip(names, values, strict=True))
        total += prod(factor[tuple(at[end] for end in ends)].item() for factor, ends in graph.factors)
    return total


LOOP = FactorGraph(
    sizes={"a": 2, "b": 3, "c": 2, "alone": 4},
    factors=[
        (weights(2, 3), ("a", "b")),
        (weights(3, 2), ("b", "c")),
        (torch.tensor([[0.0, 0.75], [0.5, 0.25]], dtype=torch.float64), ("c", "a")),
        (weights(2, 2, 3, seed=1), ("a", "a", "b")),  # "a" twice: the diagonal counts
        (weights(3, 3, 3), ("b", "b", "b")),
        (torch.tensor(0.5, dtype=torch.float64), ()),
    ],
    assignment={},
)


@pytest.mark.parametrize("order", [None, (), ("c",), *permutations(["a", "b", "c", "alone"])])
def test_variable_elimination_in_any_order(order: tuple[str, ...] | None) -> None:
    # Sums of 12 products in another order: a few units in the last place of float64.
    assert LOOP.sum_product(order).item() == pytest.approx(brute_force(LOOP), rel=1e-13)
    assert LOOP.sum_by_enumeration().item() == pytest.approx(brute_force(LOOP), rel=1e-13)


def test_variable_elimination_on_derivations() -> None:
    for fgg in (observe(hmm(), [0, 1]), observe(pcfg(2, 2), [1, 0, 1])):
        for derivation in enumerate_derivations(fgg):
            graph = derivation.factor_graph(fgg)
            assert graph.sum_product().item() == pytest.approx(brute_force(graph), rel=1e-13)  # rounding of float64


def test_isolated_variables_count_with_their_size() -> None:
    assert FactorGraph({"a": 3, "b": 5}, [], {}).sum_product().item() == 15
    assert FactorGraph({}, [], {}).sum_product().item() == 1
    fgg = FGG.build("S", [Rule.build("S", {"a": "T", "b": "T"}, [("f", "b")])], {"T": 3}, {"f": weights(3)})
    expected = 3 * weights(3).sum().item()
    assert z_by_enumeration(fgg).z.item() == pytest.approx(expected, rel=1e-15)
    assert sum_product(fgg).item() == pytest.approx(expected, rel=1e-15)


def test_weight_at_an_assignment() -> None:
    at = {"a": 1, "b": 2, "c": 0, "alone": 3}
    tables = [factor for factor, _ in LOOP.factors]
    expected = tables[0][1, 2] * tables[1][2, 0] * tables[2][0, 1] * tables[3][1, 1, 2] * tables[4][2, 2, 2] * tables[5]
    assert expected > 0
    assert LOOP.weight(at).item() == pytest.approx(expected.item(), rel=1e-15)  # six factors, six roundings at most
    assert FactorGraph(LOOP.sizes, LOOP.factors, at).weight().item() == LOOP.weight(at).item()


def test_elimination_is_differentiable() -> None:
    tables = [weights(2, 3).requires_grad_(), weights(2, 2).requires_grad_()]

    def z(left: Tensor, right: Tensor) -> Tensor:
        return FactorGraph({"a": 2, "b": 3}, [(left, ("a", "b")), (right, ("a", "a"))], {}).sum_product()

    assert torch.autograd.gradcheck(z, tables)


# --- Z by enumeration -------------------------------------------------------------------------------------------------


def test_z_of_a_finite_grammar_is_complete() -> None:
    fgg = observe(pcfg(2, 2), [0, 1, 1, 0])
    enumerated = z_by_enumeration(fgg)
    assert (enumerated.num_derivations, enumerated.complete) == (5, True)
    # Both sum the same few hundred positive products in float64, in another order.
    assert enumerated.z.item() == pytest.approx(sum_product(fgg).item(), rel=1e-13)


def test_z_says_whether_derivations_are_missing() -> None:
    fgg = observe(pcfg(2, 2), [0, 1, 1, 0])  # five derivations of eight rules each
    parts = [d.factor_graph(fgg).sum_product().item() for d in enumerate_derivations(fgg)]
    for limit in range(7):
        enumerated = z_by_enumeration(fgg, limit=limit)
        assert (enumerated.num_derivations, enumerated.complete) == (min(limit, 5), limit >= 5)
        assert enumerated.z.item() == pytest.approx(sum(parts[:limit]), rel=1e-14)
    for max_size, expected in ((7, (0, False)), (8, (5, True)), (9, (5, True))):
        enumerated = z_by_enumeration(fgg, max_size=max_size)
        assert (enumerated.num_derivations, enumerated.complete) == expected
    unobserved = z_by_enumeration(hmm(), max_size=5)  # of pi_1, pi_2 * k, pi_3 with k = 0 .. 3
    assert (unobserved.num_derivations, unobserved.complete) == (4, False)
    assert z_by_enumeration(hmm(), limit=3)[1:] == (3, False)


def test_partial_sums_grow_towards_z() -> None:
    fgg = hmm()
    z = sum_product(fgg).item()
    partial = [z_by_enumeration(fgg, limit=limit).z.item() for limit in (1, 2, 5, 60)]
    assert partial == sorted(partial)
    assert partial[2] < 0.99 * z
    # Each step multiplies what is left by at most 0.4 * 2 * 2 * (largest weight), here about a half: 2^-60 is nothing.
    assert partial[3] == pytest.approx(z, rel=1e-12)


# --- deep derivations -------------------------------------------------------------------------------------------------


def test_a_chain_of_three_thousand_words() -> None:
    """Three times Python's recursion limit."""
    length = 3000
    half = torch.full((2,), 0.5, dtype=torch.float64)
    # Two states that are one: each step multiplies by 2 * 1/2 * 1, so that Z = (1/2 + 1/2) * 1.
    fgg = zoo.hmm(half, half.expand(2, 2), torch.ones(2, 1, dtype=torch.float64), torch.ones(2, dtype=torch.float64))
    begin, step, stop = fgg.rules
    derivation = Derivation(stop)
    for _ in range(length):
        derivation = Derivation(step, {"e2": derivation})
    derivation = Derivation(begin, {"e1": derivation})
    assert derivation.size == length + 2
    assert str(derivation) == "pi_1(" + "pi_2(" * length + "pi_3" + ")" * (length + 1)
    graph = derivation.factor_graph(fgg)
    assert len(graph.sizes) == 2 * length + 2
    assert len(graph.factors) == 2 + (length + 1) + length
    assert graph.sum_product().item() == 1  # sums of halves, exact


def test_a_grammar_of_many_levels() -> None:
    depth = 1200  # more than the recursion limit
    fgg = plain(("S", "X0"), *((f"X{i}", f"a X{i + 1}") for i in range(depth)), (f"X{depth}", "a"))
    [derivation] = enumerate_derivations(fgg)
    best = sum_product(fgg, "max").derivation
    assert best is not None
    for found in (derivation, best):
        assert [here.rule.lhs for here in found.walk()] == ["S", *(f"X{i}" for i in range(depth + 1))]


def test_an_unobserved_chain_can_be_followed_far() -> None:
    fgg = plain(("S", "a S"), ("S", "a"))
    last = next(islice(enumerate_derivations(fgg, limit=2000), 1999, None))
    assert last.size == 2000
