"""The rank-space compiler: figures 4 and 5 to the letter, and what general B-FGGs need besides."""

import pytest
import torch
from torch import Tensor

from grammars import ZOO, exact_cpd
from rankspace.errors import DecompositionError, GrammarError, ShapeError
from rankspace.fgg import FGG, Rule, observe, sum_product, zoo
from rankspace.fgg.contraction import Contraction
from rankspace.lowrank import CPD, RankSpace, decompose, fit_cpds, merged_factor, to_rank_space
from rankspace.lowrank.explanation import spell

SEED = torch.Generator().manual_seed(1)


def random(*shape: int) -> Tensor:
    return 0.1 + torch.rand(shape, generator=SEED, dtype=torch.float64)


def spelled(grammar: FGG) -> dict[str, str]:
    return {rule.name: spell(rule) for rule in grammar.rules}


def check_same_z(fgg: FGG, ranked: FGG, *sentences: list[int]) -> None:
    for sentence in sentences:
        expected = sum_product(observe(fgg, sentence, "O"))
        # float64, a few hundred products: rounding is 1e-14
        torch.testing.assert_close(sum_product(observe(ranked, sentence, "O")), expected, rtol=1e-12, atol=0)


class TestPCFG:
    root, emission = random(5), random(5, 4)
    cpd = CPD((random(3, 5), random(3, 5), random(3, 5)))
    fgg = zoo.pcfg(root, cpd.reconstruct(), emission)
    ranked = to_rank_space(fgg, {"rule": cpd})

    def test_tables_of_figure_4(self) -> None:
        head, left, right = self.cpd.matrices
        expected = {
            "H": left @ head.T,
            "I": right @ head.T,
            "J": left @ self.emission,
            "K": right @ self.emission,
            "L": head @ self.root,
        }
        assert list(self.ranked.tables) == list(expected)
        for name, table in expected.items():
            torch.testing.assert_close(self.ranked.tables[name], table)

    def test_rules_of_figure_4(self) -> None:
        assert spelled(self.ranked) == {
            "pi_1": "X(r1) -> H(r1, r2) X(r2) I(r1, r3) X(r3)",
            "pi_2": "X(r1) -> J(r1, o2) I(r1, r3) X(r3)",
            "pi_3": "X(r1) -> H(r1, r2) X(r2) K(r1, o3)",
            "pi_4": "X(r1) -> J(r1, o2) K(r1, o3)",
            "pi_5": "S() -> L(r1) X(r1)",
            "pi_6": "S() -> root*emission(o1)",
        }

    def test_key_by_rule_is_the_same(self) -> None:
        by_rule = to_rank_space(self.fgg, {"pi_6": self.cpd})
        assert spelled(by_rule) == spelled(self.ranked)

    def test_grammar_with_rank_nodes_needs_no_decomposition(self) -> None:
        head, left, right = self.cpd.matrices
        factored = to_rank_space(zoo.factored_pcfg(self.root, head.T, left, right, self.emission))
        assert spelled(factored) == spelled(self.ranked)
        for name, table in self.ranked.tables.items():
            torch.testing.assert_close(factored.tables[name], table)

    def test_same_z(self) -> None:
        check_same_z(self.fgg, self.ranked, [0], [1, 2], [3, 0, 1], [0, 1, 2, 3, 0])

    def test_split_symbols_use_their_own_axes(self) -> None:
        cpd = CPD((random(3, 2), random(3, 5), random(3, 5)))
        root, emission = random(2), random(3, 4)
        ranked = to_rank_space(zoo.split_factored_pcfg(root, cpd.matrices[0].T, *cpd.matrices[1:], emission))
        torch.testing.assert_close(ranked.tables["H"], cpd.matrices[1][:, :2] @ cpd.matrices[0].T)
        torch.testing.assert_close(ranked.tables["J"], cpd.matrices[1][:, 2:] @ emission)

    def test_weights_are_absorbed(self) -> None:
        weighted = CPD(self.cpd.matrices, random(3))
        fgg = zoo.pcfg(self.root, weighted.reconstruct(), self.emission)
        check_same_z(fgg, to_rank_space(fgg, {"rule": weighted}), [0, 1, 2])

    def test_each_table_is_computed_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        runs: list[Contraction] = []
        original = Contraction.run
        monkeypatch.setattr(Contraction, "run", lambda plan, *rest: runs.append(plan) or original(plan, *rest))
        ranked = to_rank_space(self.fgg, {"rule": self.cpd})
        assert len(runs) == len(ranked.steps) == 6  # H, I, J, K, L and the words of one-word sentences

    def test_explanation(self) -> None:
        assert self.ranked.explain().splitlines()[:10] == [
            "1. Merge the factors of each rule and decompose them",
            "   rule: rule over (N, N, N) = U (R, N), V (R, N), W (R, N), rank 3",
            "2. Sum the states out, once",
            "   H (R, R) = V * U, summed over N (5 states): 90 operations, once",
            "   I (R, R) = W * U, summed over N (5 states): 90 operations, once",
            "   J (R, O) = V * emission, summed over N (5 states): 120 operations, once",
            "   K (R, O) = W * emission, summed over N (5 states): 120 operations, once",
            "   L (R) = root * U, summed over N (5 states): 30 operations, once",
            "   root*emission (O) = root * emission, summed over N (5 states): 40 operations, once",
            "3. The grammar over ranks",
        ]
        costs = [line.split() for line in self.ranked.explain().splitlines()[-12:]]
        assert ["original", "pi_6", "N^3", "300"] in costs  # 2 * 5^3 for one child, 2 * 5^2 for the other
        assert ["rank", "space", "pi_1", "R^2", "42"] in costs  # 2 * 3^2 twice, and 2 * 3 to multiply


class TestHMM:
    def test_tables_of_figure_5c(self) -> None:
        start, end = random(4), random(4)
        cpd = CPD((random(3, 4), random(3, 4), random(3, 5)))
        fgg = zoo.factored_hmm(start, cpd.matrices[0].T, cpd.matrices[1], cpd.matrices[2], end)
        ranked = to_rank_space(fgg)
        expected = {
            "emission": cpd.matrices[2],
            "link": cpd.matrices[1] @ cpd.matrices[0].T,
            "end": cpd.matrices[1] @ end,
            "start": cpd.matrices[0] @ start,
        }
        assert set(ranked.tables) == set(expected)
        for name, table in expected.items():
            torch.testing.assert_close(ranked.tables[name], table)
        assert spelled(ranked) == {
            "pi_1": "X(r1) -> emission(r1, o2) link(r1, r3) X(r3)",
            "pi_2": "X(r1) -> emission(r1, o2) end(r1)",
            "pi_3": "S() -> start(r1) X(r1)",
            "pi_4": "S() -> start*end()",
        }
        check_same_z(fgg, ranked, [], [0], [4, 3, 2, 1])

    def test_transition_and_emission_are_merged(self) -> None:
        fgg = zoo.hmm(random(3), random(3, 3), random(3, 4), random(3))
        merged = merged_factor(fgg, fgg.rules[1])
        torch.testing.assert_close(
            merged, torch.einsum("ab,bo->abo", fgg.tensors["transition"], fgg.tensors["emission"])
        )
        ranked = to_rank_space(fgg, {"pi_2": exact_cpd(merged)})
        assert set(ranked.tables) == {"start", "link", "emission", "end"}
        assert ranked.decompositions[0].source == "transition * emission"
        check_same_z(fgg, ranked, [], [1], [0, 1, 2])

    def test_lhmm_keeps_its_states(self) -> None:
        """Emissions hang on states, so summing them out would take a link for every word."""
        fgg = zoo.lhmm(random(4), random(4, 2), random(2, 4), random(4, 3), random(4))
        ranked = to_rank_space(fgg)
        assert spelled(ranked)["pi_1"] == "X(r1) -> V(r1, t2) emission(t2, o3) X:state(t2)"
        check_same_z(fgg, ranked, [], [0], [2, 1, 0])


class TestGeneralBFGGs:
    def test_several_rules_with_different_ranks(self) -> None:
        cpds = {
            "f": CPD((random(2, 3), random(2, 3), random(2, 2))),
            "g": CPD((random(4, 3), random(4, 3), random(4, 2))),
        }
        rules = [
            Rule.build("S", {"x": "A"}, [("s", "x"), ("X", "x")], name="top"),
            Rule.build("X", {"x": "A", "y": "A", "o": "O"}, [("f", "x", "y", "o"), ("X", "y")], ["x"], name="one"),
            Rule.build("X", {"x": "A", "y": "A", "o": "O"}, [("g", "x", "y", "o"), ("X", "y")], ["x"], name="two"),
            Rule.build("X", {"x": "A"}, [("end", "x")], ["x"], name="end"),
        ]
        factors = {"s": random(3), "end": random(3)} | {name: cpd.reconstruct() for name, cpd in cpds.items()}
        fgg = FGG.build("S", rules, {"A": 3, "O": 2}, factors)
        ranked = to_rank_space(fgg, cpds)
        assert set(ranked.grammar.nonterminals) == {"S", "X:one", "X:two"}
        assert {name: tuple(table.shape) for name, table in ranked.tables.items()} == {
            "W_f": (2, 2),
            "W_g": (4, 2),
            "V_f*U_f": (2, 2),
            "V_f*U_g": (2, 4),
            "V_g*U_f": (4, 2),
            "V_g*U_g": (4, 4),
            "V_f*end": (2,),
            "V_g*end": (4,),
            "s*U_f": (2,),
            "s*U_g": (4,),
        }
        check_same_z(fgg, ranked, [], [0], [1, 0], [0, 1, 1])

    def test_shared_state_gives_a_table_of_higher_order(self) -> None:
        cpd = CPD((random(2, 3), random(2, 3)))
        rules = [
            Rule.build("S", {"x": "A"}, [("s", "x"), ("X", "x")], name="top"),
            Rule.build(
                "X", {"x": "A", "y": "A"}, [("f", "x", "y"), ("X", "y"), ("X", "y"), ("X", "y")], ["x"], name="three"
            ),
            Rule.build("X", {"x": "A", "o": "O"}, [("e", "x", "o")], ["x"], name="word"),
        ]
        fgg = FGG.build("S", rules, {"A": 3, "O": 2}, {"s": random(3), "f": cpd.reconstruct(), "e": random(3, 2)})
        ranked = to_rank_space(fgg, {"f": cpd})
        head, child = cpd.matrices
        torch.testing.assert_close(ranked.tables["V*U*U*U"], torch.einsum("qa,ra,sa,ta->qrst", child, head, head, head))
        # words below one state keep their order also where a nonterminal stands between them
        assert "X(r1) -> any O(o2) X(r3) any O(o4) V*e*U*e(r1, o2, r3, o4)" in spelled(ranked).values()
        check_same_z(fgg, ranked, [0], [0, 1, 1], [0, 1, 1, 0, 1], [1, 0, 0, 0, 1])

    def test_undecomposed_factor_keeps_its_nodes(self) -> None:
        rules = [
            Rule.build("S", {"x": "A"}, [("s", "x"), ("X", "x")], name="top"),
            Rule.build(
                "X", {"x": "A", "y": "A", "o": "O"}, [("f", "x", "y"), ("w", "y", "o"), ("X", "y")], ["x"], name="go"
            ),
            Rule.build("X", {"x": "A"}, [("end", "x")], ["x"], name="end"),
        ]
        fgg = FGG.build(
            "S", rules, {"A": 3, "O": 2}, {"s": random(3), "f": random(3, 3), "w": random(3, 2), "end": random(3)}
        )
        ranked = to_rank_space(fgg)
        assert ranked.tables == {}
        assert spelled(ranked)["pi_1"] == "X(a1) -> f(a1, a2) w(a2, o3) X(a2)"
        check_same_z(fgg, ranked, [], [0], [1, 0])

    def test_decomposed_terminal_rules_and_rules_without_states(self) -> None:
        cpds = {"pair": CPD((random(2, 3), random(2, 2), random(2, 2))), "f": CPD((random(3, 3), random(3, 3)))}
        rules = [
            Rule.build("S", {"x": "A"}, [("s", "x"), ("X", "x")], name="top"),
            Rule.build("S", {"o": "O"}, [("only", "o")], name="words"),
            Rule.build("S", {}, [("nothing",)], name="empty"),
            Rule.build("X", {"x": "A", "y": "A"}, [("f", "x", "y"), ("X", "y"), ("X", "y")], ["x"], name="twice"),
            Rule.build("X", {"x": "A", "o": "O", "p": "O"}, [("pair", "x", "o", "p")], ["x"], name="two words"),
        ]
        factors = {"s": random(3), "only": random(2), "nothing": random()}
        factors |= {name: cpd.reconstruct() for name, cpd in cpds.items()}
        fgg = FGG.build("S", rules, {"A": 3, "O": 2}, factors)
        ranked = to_rank_space(fgg, cpds)
        assert {"S() -> only(o1)", "S() -> nothing()"} <= set(spelled(ranked).values())
        assert set(ranked.grammar.nonterminals) == {"S", "X:twice", "X:two words"}
        check_same_z(fgg, ranked, [], [1], [0, 1], [0, 1, 1, 0])

    def test_recursive_grammar_has_the_same_z(self) -> None:
        """Z over all sentences, by Newton's method in both grammars."""
        cpd = CPD((random(2, 3), random(2, 3), random(2, 3)))
        fgg = zoo.pcfg(random(3), cpd.reconstruct() / 40, random(3, 2) / 4)
        ranked = to_rank_space(fgg, {"rule": CPD((cpd.matrices[0] / 40, *cpd.matrices[1:]))})
        # Newton stops at a relative residual of some 1e-15; the system is far from critical
        torch.testing.assert_close(sum_product(ranked), sum_product(fgg), rtol=1e-12, atol=0)


class TestNamesAndNodes:
    def test_rank_space_of_an_observed_grammar(self) -> None:
        """Its rules share their names; the new nonterminals must not."""
        fgg = zoo.factored_pcfg(random(3), random(3, 2), random(2, 3), random(2, 3), random(3, 4))
        seen = observe(fgg, [0, 1, 2, 0])
        torch.testing.assert_close(sum_product(to_rank_space(seen)), sum_product(seen), rtol=1e-12, atol=0)

    def test_names_that_are_taken(self) -> None:
        cpds = {
            "f": CPD((random(2, 3), random(2, 3), random(2, 2))),
            "g": CPD((random(4, 3), random(4, 3), random(4, 2))),
        }
        rules = [
            Rule.build("S", {"x": "A"}, [("s", "x"), ("X", "x")], name="top"),
            Rule.build("S", {"x": "A"}, [("s", "x"), ("X:one", "x")], name="other top"),
            Rule.build("X", {"x": "A", "y": "A", "o": "O"}, [("f", "x", "y", "o"), ("X:one", "y")], ["x"], name="one"),
            Rule.build("X", {"x": "A", "y": "A", "o": "O"}, [("g", "x", "y", "o"), ("X", "y")], ["x"], name="one"),
            Rule.build("X", {"x": "A"}, [("end", "x")], ["x"], name="end"),
            Rule.build("X:one", {"x": "A", "y": "A"}, [("h", "x", "y"), ("X", "y")], ["x"], name="step"),
            Rule.build("X:one", {"x": "A"}, [("end", "x")], ["x"], name="end too"),
        ]
        factors = {"s": random(3), "end": random(3), "h": random(3, 3)} | {k: c.reconstruct() for k, c in cpds.items()}
        fgg = FGG.build("S", rules, {"A": 3, "O": 2}, factors)
        check_same_z(fgg, to_rank_space(fgg, cpds), [], [0], [1, 0], [0, 1, 1])

    def test_nodes_that_nothing_touches(self) -> None:
        rules = [
            Rule.build("S", {"n": "N"}, [("X", "n")], name="top"),
            Rule.build("X", {"n": "N"}, [], ["n"], name="nothing"),
            Rule.build("X", {"n": "N", "m": "N"}, [("f", "n")], ["n"], name="spare"),
        ]
        fgg = FGG.build("S", rules, {"N": 3}, {"f": random(3)})
        expected = 3 + 3 * fgg.tensors["f"].sum()
        torch.testing.assert_close(sum_product(fgg), expected)
        torch.testing.assert_close(sum_product(to_rank_space(fgg)), expected)

    @pytest.mark.parametrize(
        "edges",
        [
            [("T", "t1", "t2"), ("X", "t2"), ("E", "t2", "o")],
            [("E", "t2", "o"), ("X", "t2"), ("T", "t1", "t2")],
            [("T", "t1", "t2"), ("E", "t2", "p"), ("X", "t2"), ("E", "t2", "o")],
            [("E", "t2", "p"), ("E", "t2", "o"), ("T", "t1", "t2"), ("X", "t2")],
        ],
    )
    def test_merged_factors_keep_the_order_of_words(self, edges: list[tuple[str, ...]]) -> None:
        nodes = {"t1": "A", "t2": "A", "o": "O"} | ({"p": "O"} if any("p" in edge for edge in edges) else {})
        rules = [
            Rule.build("S", {"t1": "A"}, [("s", "t1"), ("X", "t1")], name="top"),
            Rule.build("X", nodes, edges, ["t1"], name="go"),
            Rule.build("X", {"t1": "A", "o": "O"}, [("E", "t1", "o")], ["t1"], name="end"),
        ]
        fgg = FGG.build("S", rules, {"A": 2, "O": 3}, {"s": random(2), "T": random(2, 2), "E": random(2, 3)})
        ranked = to_rank_space(fgg, {"go": exact_cpd(merged_factor(fgg, fgg.rules[1]))})
        check_same_z(fgg, ranked, [0], [0, 1], [0, 1, 2], [2, 1, 0, 0, 1])


def test_low_rank_messages() -> None:
    """Section 2.2: m_ei = W_i^T (prod_{j != i} W_j n_j), the case of one fragment."""
    cpd = CPD((random(3, 4), random(3, 5), random(3, 2), random(3, 6)))
    messages = [random(5), random(2), random(6)]
    rules = [
        Rule.build("S", {"v1": "A"}, [("s", "v1"), ("X", "v1")], name="top"),
        Rule.build(
            "X",
            {"v1": "A", "v2": "B", "v3": "C", "v4": "D"},
            [("f", "v1", "v2", "v3", "v4"), ("Y2", "v2"), ("Y3", "v3"), ("Y4", "v4")],
            ["v1"],
            name="fragment",
        ),
        *(
            Rule.build(f"Y{i}", {"v": label}, [(f"n{i}", "v")], ["v"], name=f"leaf{i}")
            for i, label in ((2, "B"), (3, "C"), (4, "D"))
        ),
    ]
    factors = {"s": random(4), "f": cpd.reconstruct()} | {f"n{i}": n for i, n in zip((2, 3, 4), messages, strict=True)}
    fgg = FGG.build("S", rules, {"A": 4, "B": 5, "C": 2, "D": 6}, factors)
    incoming = torch.ones(3, dtype=torch.float64)
    for matrix, message in zip(cpd.matrices[1:], messages, strict=True):
        incoming = incoming * (matrix @ message)
    expected = cpd.matrices[0].T @ incoming
    for grammar in (fgg, decompose(fgg, {"f": cpd}).fgg, to_rank_space(fgg, {"f": cpd})):
        torch.testing.assert_close(sum_product(grammar), factors["s"] @ expected)
    # every state is gone: what is left of the fragment is one vector over ranks for each neighbour
    ranked = to_rank_space(fgg, {"f": cpd})
    assert spelled(ranked)["pi_1"] == "X(r1) -> V*n2(r1) W*n3(r1) W4*n4(r1)"


def test_fitted_decompositions() -> None:
    pytest.importorskip("tensorly")
    cpd = CPD((random(2, 4), random(2, 4), random(2, 4)))
    fgg = zoo.pcfg(random(4), cpd.reconstruct(), random(4, 3))
    fits = fit_cpds(fgg, 2)
    assert list(fits) == ["pi_6"]
    assert fits["pi_6"].relative_error <= 1e-6
    ranked = to_rank_space(fgg, {name: fit.cpd for name, fit in fits.items()})
    for sentence in ([0], [1, 2], [0, 1, 2]):
        # the decomposition is good to 1e-6, and a sentence of three words uses it twice
        torch.testing.assert_close(
            sum_product(observe(ranked, sentence)), sum_product(observe(fgg, sentence)), rtol=1e-5, atol=0
        )


def test_result_is_an_fgg() -> None:
    assert isinstance(TestPCFG.ranked, RankSpace)
    assert isinstance(TestPCFG.ranked, FGG)
    assert isinstance(to_rank_space(TestPCFG.ranked), RankSpace)  # itself a B-FGG


ERRORS = [
    (
        lambda: to_rank_space(ZOO["qcfg"].build(**ZOO["qcfg"].parameters())),
        GrammarError,
        "to_rank_space: not a B-FGG: rule binary of X: there are 2 external nodes ('n1', 's1'); "
        "put them into one product node.",
    ),
    (
        lambda: to_rank_space(TestPCFG.fgg, {"rules": TestPCFG.cpd}),
        GrammarError,
        "decompose: there is no rule or terminal 'rules'; the names are pi_4, pi_5, pi_6, root, emission, rule.",
    ),
    (
        lambda: to_rank_space(TestPCFG.fgg, {"rule": CPD(TestPCFG.cpd.matrices[:2])}),
        ShapeError,
        "decompose: the decomposition of 'rule' has shape (5, 5) but its factor joins (N, N, N) of sizes (5, 5, 5); "
        "give one matrix per node, in that order.",
    ),
    (
        lambda: decompose(
            zoo.hmm(random(500), random(500, 500), random(500, 500), random(500)), {"pi_2": TestPCFG.cpd}
        ),
        ShapeError,
        "decompose: the decomposition of 'pi_2' has shape (5, 5, 5) but its factor joins (t1, t2, o3) of sizes "
        "(500, 500, 500); give one matrix per node, in that order.",
    ),
]


@pytest.mark.parametrize(("call", "kind", "message"), ERRORS)
def test_errors(call: object, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind) as caught:
        call()  # type: ignore[operator]
    assert str(caught.value) == message


def test_wrong_decomposition_is_refused_unless_told_otherwise() -> None:
    wrong = CPD((random(3, 5), random(3, 5), random(3, 5)))
    with pytest.raises(DecompositionError, match=r"^decompose: 'rule': "):
        to_rank_space(TestPCFG.fgg, {"rule": wrong})
    assert to_rank_space(TestPCFG.fgg, {"rule": wrong}, tolerance=None).tables["H"].shape == (3, 3)


def test_rules_of_one_name_are_ambiguous() -> None:
    rules = [Rule(rule.lhs, rule.rhs, "same") for rule in TestPCFG.fgg.rules]
    fgg = FGG.build("S", rules, {"N": 5, "O": 4}, TestPCFG.fgg.factors)
    with pytest.raises(GrammarError) as caught:
        to_rank_space(fgg, {"same": TestPCFG.cpd})
    assert str(caught.value) == "decompose: 3 rules are called 'same'; give each rule its own name."


def test_merged_factor_too_large_to_check() -> None:
    fgg = zoo.hmm(random(500), random(500, 500), random(500, 500), random(500))
    cpd = CPD((random(1, 500), random(1, 500), random(1, 500)))
    with pytest.raises(DecompositionError) as caught:
        decompose(fgg, {"pi_2": cpd})
    assert str(caught.value) == (
        "decompose: the merged factor of 'pi_2' has 125,000,000 entries, too many to compare with its decomposition; "
        "pass tolerance=None if you trust it."
    )
