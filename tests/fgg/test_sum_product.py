"""The sum-product in every semiring: acyclic grammars against enumeration, and the fggs library."""

import math
import warnings
from typing import Any

import pytest
import torch
from torch import Tensor

from fgg.small_grammars import EXACT, RECURSIVE, SEMIRINGS, entropy_of, every_weight, weights
from rankspace.fgg import (
    FGG,
    Rule,
    enumerate_derivations,
    observe,
    sum_product,
    z_by_enumeration,
    zoo,
)

# Acyclic grammars against enumeration.


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


# The fggs library.


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
