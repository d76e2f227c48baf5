"""Definitions 1, 3, 4 and 5: what is admitted, what is refused, and how a refusal reads."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from rankspace.errors import GrammarError, RankspaceError, ShapeError
from rankspace.fgg import FGG, Domain, Edge, Fragment, Grammar, Hypergraph, Indicator, Node, Rule, sum_product
from rankspace.fgg.grammar import named


def complaint(make: Callable[[], object], kind: type[RankspaceError] = GrammarError) -> str:
    with pytest.raises(kind) as caught:
        make()
    assert type(caught.value) is kind
    return str(caught.value)


def numbers(*shape: int) -> Tensor:
    return torch.ones(shape, dtype=torch.float64)


# --- hypergraphs and fragments ----------------------------------------------------------------------------------------


def test_a_fragment_as_one_writes_it_down() -> None:
    fragment = Fragment.build({"a": "T", "b": "N"}, [("f", "a", "b"), ("X", "b"), ("g",)], external=["b"])
    assert fragment == Fragment(
        (Node("a", "T"), Node("b", "N")),
        (Edge("e0", "f", ("a", "b")), Edge("e1", "X", ("b",)), Edge("e2", "g", ())),
        ("b",),
    )
    assert fragment.label_of == {"a": "T", "b": "N"}


def test_edges_at_a_node_stand_in_order_and_once() -> None:
    graph = Fragment.build({"a": "T", "b": "T", "c": "T"}, [("f", "a", "a"), ("g", "b"), ("h", "b", "a")])
    assert {node: [edge.label for edge in edges] for node, edges in graph.edges_at.items()} == {
        "a": ["f", "h"],
        "b": ["g", "h"],
        "c": [],
    }


A, B = Node("a", "T"), Node("b", "T")
GRAPHS: dict[str, tuple[Callable[[], object], str]] = {
    "repeated node": (
        lambda: Hypergraph((A, B, Node("a", "N")), ()),
        "node 'a' occurs twice; each may occur once.",
    ),
    "repeated edge": (
        lambda: Hypergraph((A,), (Edge("e", "f", ("a",)), Edge("e", "g", ("a",)))),
        "edge 'e' occurs twice; each may occur once.",
    ),
    "edge to an unknown node": (
        lambda: Hypergraph((A, B), (Edge("e", "f", ("a", "c")),)),
        "edge 'e' with label 'f' joins node 'c', which does not exist; the nodes are 'a', 'b'.",
    ),
    "edge where there is no node": (
        lambda: Hypergraph((), (Edge("e", "f", ("a",)),)),
        "edge 'e' with label 'f' joins node 'a', which does not exist; the nodes are (none).",
    ),
    "unknown external node": (
        lambda: Fragment((A,), (), ("b",)),
        "external node 'b' does not exist; list it among the nodes.",
    ),
    "repeated external node": (
        lambda: Fragment((A, B), (), ("a", "b", "a")),
        "external node 'a' occurs twice; each may occur once.",
    ),
    "a fragment is checked as a hypergraph": (
        lambda: Fragment((A, A), (), ("a",)),
        "node 'a' occurs twice; each may occur once.",
    ),
    "a rule's name is told": (
        lambda: Rule.build("X", {"a": "T"}, [("f", "b")], name="pi"),
        "rule pi of X: edge 'e0' with label 'f' joins node 'b', which does not exist; the nodes are 'a'.",
    ),
    "an edge that is a string": (
        lambda: Rule.build("X", {"a": "T"}, ["fa"], name="pi"),
        "rule pi of X: 'fa' is one string where a list of names belongs; write ['fa'].",
    ),
    "external nodes that are a string": (
        lambda: Rule.build("X", {"a": "T"}, external="a", name="pi"),
        "rule pi of X: 'a' is one string where a list of names belongs; write ['a'].",
    ),
    "a rule without a name": (
        lambda: Rule.build("X", {"a": "T"}, external=["a", "a"]),
        "rule ? of X: external node 'a' occurs twice; each may occur once.",
    ),
}


@pytest.mark.parametrize("case", GRAPHS)
def test_graphs_that_break_their_definition(case: str) -> None:
    make, message = GRAPHS[case]
    assert complaint(make) == message


# --- grammars ---------------------------------------------------------------------------------------------------------


START = Rule.build("S", {"t": "T"}, [("start", "t"), ("X", "t")], name="begin")
STEP = Rule.build("X", {"t": "T", "u": "T"}, [("move", "t", "u"), ("X", "u")], ["t"], name="step")
STOP = Rule.build("X", {"t": "T"}, [("end", "t")], ["t"], name="stop")
TERMINALS = {"start": ("T",), "move": ("T", "T"), "end": ("T",)}
NONTERMINALS: dict[str, tuple[str, ...]] = {"S": (), "X": ("T",)}


def grammar(*extra: Rule, start: str = "S", **changes: Any) -> Grammar:
    return Grammar(
        start,
        (START, STEP, STOP, *extra),
        changes.get("terminals", TERMINALS),
        changes.get("nonterminals", NONTERMINALS),
    )


def test_a_sound_grammar() -> None:
    sound = grammar()
    assert dict(sound.rules_of) == {"S": (START,), "X": (STEP, STOP)}
    assert sound.uses == {"S": ("X",), "X": ("X",)}
    assert [edge.label for edge in sound.terminal_edges(STEP)] == ["move"]
    assert [edge.label for edge in sound.nonterminal_edges(STEP)] == ["X"]
    assert (sound.type_of("move"), sound.type_of("X"), sound.type_of("x")) == (("T", "T"), ("T",), None)
    assert str(STEP) == "rule step of X"


def test_rules_without_a_name_are_called_by_their_place() -> None:
    rules = named([Rule.build("S", {}), START, Rule.build("S", {})])
    assert [rule.name for rule in rules] == ["#1", "begin", "#3"]


def rule(lhs: str, nodes: dict[str, str], *edges: tuple[str, ...], external: tuple[str, ...] = ()) -> Rule:
    return Rule.build(lhs, nodes, edges, external, name="odd")


GRAMMARS: dict[str, tuple[Callable[[], object], str]] = {
    "unknown label": (
        lambda: grammar(rule("X", {"t": "T"}, ("end", "t"), ("stop", "t"), external=("t",))),
        "rule odd of X: edge 'e1' has the unknown label 'stop'; give it a factor or a rule.",
    ),
    "terminal of another arity": (
        lambda: grammar(rule("X", {"t": "T"}, ("move", "t"), external=("t",))),
        "rule odd of X: edge 'e0' joins 1 node(s) but its label 'move' takes 2 (T, T).",
    ),
    "nonterminal of another arity": (
        lambda: grammar(rule("X", {"t": "T", "u": "T"}, ("X", "t", "u"), external=("t",))),
        "rule odd of X: edge 'e0' joins 2 node(s) but its label 'X' takes 1 (T).",
    ),
    "endpoint of another label": (
        lambda: grammar(rule("X", {"t": "T", "n": "N"}, ("end", "t"), ("move", "t", "n"), external=("t",))),
        "rule odd of X: edge 'e1' with label 'move' joins node 'n' of label 'N' where it takes 'T'.",
    ),
    "nonterminal at another label": (
        lambda: grammar(rule("S", {"n": "N"}, ("X", "n"))),
        "rule odd of S: edge 'e0' with label 'X' joins node 'n' of label 'N' where it takes 'T'.",
    ),
    "external nodes of another label": (
        lambda: grammar(rule("X", {"n": "N"}, external=("n",))),
        "rule odd of X: external nodes have labels (N) but 'X' has endpoints (T); make them agree.",
    ),
    "too few external nodes": (
        lambda: grammar(rule("X", {"t": "T"}, ("end", "t"))),
        "rule odd of X: external nodes have labels () but 'X' has endpoints (T); make them agree.",
    ),
    "left-hand side that is not a nonterminal": (
        lambda: grammar(rule("Y", {})),
        "rule odd of Y: left-hand side 'Y' is not a nonterminal; declare it as one.",
    ),
    "start symbol that is not a nonterminal": (
        lambda: grammar(start="Y"),
        "start symbol 'Y' is not a nonterminal; give it a rule.",
    ),
    "start symbol without a rule": (
        lambda: grammar(start="Y", nonterminals={**NONTERMINALS, "Y": ()}),
        "nonterminal 'Y' has no rule; give it one or remove it.",
    ),
    "start symbol with endpoints": (
        lambda: grammar(start="X"),
        "start symbol 'X' has 1 endpoint(s) (T; rule step of X) but takes none; add a rule that sums them out, or pass "
        "open_start=True for a tensor over them.",
    ),
    "start symbol with endpoints and no rule": (
        lambda: grammar(start="Y", nonterminals={**NONTERMINALS, "Y": ("T", "N")}),
        "start symbol 'Y' has 2 endpoint(s) (T, N; no rule) but takes none; add a rule that sums them out, or pass "
        "open_start=True for a tensor over them.",
    ),
    "nonterminal without a rule": (
        lambda: grammar(nonterminals={**NONTERMINALS, "Y": ("T",)}),
        "nonterminal 'Y' has no rule; give it one or remove it.",
    ),
    "nonterminal that is used and has no rule": (
        lambda: grammar(rule("S", {"t": "T"}, ("Y", "t")), nonterminals={**NONTERMINALS, "Y": ("T",)}),
        "nonterminal 'Y' (rule odd of S) has no rule; give it one or remove it.",
    ),
    "both terminal and nonterminal": (
        lambda: grammar(terminals={**TERMINALS, "X": ("T",)}),
        "label 'X' (rule begin of S) is both a terminal and a nonterminal; rename one of them.",
    ),
    "both terminal and nonterminal, without a rule": (
        lambda: grammar(terminals={**TERMINALS, "Y": ()}, nonterminals={**NONTERMINALS, "Y": ()}),
        "label 'Y' is both a terminal and a nonterminal; rename one of them.",
    ),
}


@pytest.mark.parametrize("case", GRAMMARS)
def test_grammars_that_break_their_definition(case: str) -> None:
    make, message = GRAMMARS[case]
    assert complaint(make) == message


def test_useless_nonterminals_are_named() -> None:
    rules = [
        Rule.build("S", {}, [("a",)]),
        Rule.build("S", {}, [("Loop",), ("Fine",)]),
        Rule.build("Fine", {}, [("a",)]),
        Rule.build("Loop", {}, [("Loop",)]),
        Rule.build("Island", {}, [("Fine",), ("Island2",)]),
        Rule.build("Island2", {}, [("a",)]),
        Rule.build("Ping", {}, [("Pong",)]),
        Rule.build("Pong", {}, [("Ping",), ("a",)]),
    ]
    fgg = FGG.build("S", rules, {}, {"a": numbers()})
    assert fgg.useless().unreachable == ("Island", "Island2", "Ping", "Pong")
    assert fgg.useless().unproductive == ("Loop", "Ping", "Pong")
    # "Fine" is reachable and productive, but only beside a symbol that never ends: no derivation uses its rule.
    assert [rule.name for rule in fgg.grammar.useful_rules] == ["#1"]


def test_a_nonterminal_that_ends_by_way_of_a_later_one_is_productive() -> None:
    rules = [
        Rule.build("S", {}, [("A",)]),
        Rule.build("A", {}, [("B",), ("B",)]),
        Rule.build("B", {}, [("A",)]),
        Rule.build("B", {}, [("C",)]),
        Rule.build("C", {}, [("a",)]),
    ]
    fgg = FGG.build("S", rules, {}, {"a": numbers()})
    assert fgg.useless() == ((), ())
    assert fgg.grammar.useful_rules == fgg.rules


# --- factor graph grammars --------------------------------------------------------------------------------------------


def fgg(**changes: Any) -> FGG:
    """Two states; `factors` and `domains` are changed entry by entry, None removes one."""
    domains: dict[str, Any] = {"T": 2, **changes.pop("domains", {})}
    factors: dict[str, Any] = {
        "start": numbers(2),
        "move": 0.25 * numbers(2, 2),
        "end": numbers(2),
        **changes.pop("factors", {}),
    }
    return FGG.build(
        changes.pop("start", "S"),
        [START, STEP, STOP, *changes.pop("rules", [])],
        {label: values for label, values in domains.items() if values is not None},
        {label: factor for label, factor in factors.items() if factor is not None},
        **changes,
    )


def changed(place: tuple[int, ...], value: float) -> Tensor:
    result = 0.25 * numbers(2, 2)
    result[place] = value
    return result


FGGS: dict[str, tuple[Callable[[], object], type[RankspaceError], str]] = {
    "factor of another shape": (
        lambda: fgg(factors={"move": numbers(2, 3)}),
        ShapeError,
        "factor 'move' (rule step of X) has shape (2, 3) but its endpoints (T, T) have domains of sizes (2, 2); make "
        "them agree.",
    ),
    "factor of another order": (
        lambda: fgg(factors={"end": numbers()}),
        ShapeError,
        "factor 'end' (rule stop of X) has shape () but its endpoints (T) have domains of sizes (2,); make them agree.",
    ),
    "indicator of another size": (
        lambda: fgg(factors={"end": Indicator(0, 3)}),
        ShapeError,
        "factor 'end' (rule stop of X) has shape (3,) but its endpoints (T) have domains of sizes (2,); make them "
        "agree.",
    ),
    "negative entry": (
        lambda: fgg(factors={"move": changed((1, 0), -0.5)}),
        GrammarError,
        "factor 'move' (rule step of X) is negative at (1, 0) (-0.5); weights are finite and >= 0.",
    ),
    "NaN": (
        lambda: fgg(factors={"move": changed((0, 1), torch.nan)}),
        GrammarError,
        "factor 'move' (rule step of X) is NaN at (0, 1) (nan); weights are finite and >= 0.",
    ),
    "infinite entry": (
        lambda: fgg(factors={"move": changed((1, 1), torch.inf)}),
        GrammarError,
        "factor 'move' (rule step of X) is infinite at (1, 1) (inf); weights are finite and >= 0.",
    ),
    "entry of minus infinity": (
        lambda: fgg(factors={"move": changed((1, 1), -torch.inf)}),
        GrammarError,
        "factor 'move' (rule step of X) is infinite at (1, 1) (-inf); weights are finite and >= 0.",
    ),
    "whole numbers": (
        lambda: fgg(factors={"end": torch.ones(2, dtype=torch.int64)}),
        GrammarError,
        "factor 'end' (rule stop of X) has dtype torch.int64; give it a floating-point dtype.",
    ),
    "truth values": (
        lambda: fgg(factors={"end": torch.ones(2, dtype=torch.bool)}),
        GrammarError,
        "factor 'end' (rule stop of X) has dtype torch.bool; give it a floating-point dtype.",
    ),
    "missing domain": (
        lambda: fgg(domains={"T": None}),
        GrammarError,
        "rule begin of S: node 't' has label 'T', which has no domain; add domains['T'].",
    ),
    "missing domain of a terminal that no rule uses": (
        lambda: fgg(terminals={"colour": ("C",)}),
        GrammarError,
        "terminal 'colour': node label 'C' has no domain; add domains['C'].",
    ),
    "missing factor": (
        lambda: fgg(factors={"move": None}, terminals={"move": ("T", "T")}),
        GrammarError,
        "terminal 'move' (rule step of X) has no factor; add factors['move'].",
    ),
    "missing factor of an undeclared terminal": (
        lambda: fgg(factors={"move": None}),
        GrammarError,
        "rule step of X: edge 'e0' has the unknown label 'move'; give it a factor or a rule.",
    ),
    "factor that no edge carries": (
        lambda: fgg(factors={"mvoe": numbers(2, 2)}),
        GrammarError,
        "factor 'mvoe' belongs to no terminal: no edge carries it; remove it or use it.",
    ),
    "repeated domain value": (
        lambda: fgg(domains={"T": ["noun", "verb", "noun"]}),
        GrammarError,
        "domain 'T': the value 'noun' occurs twice; values are distinct.",
    ),
    "domain values that cannot be told apart": (
        lambda: fgg(domains={"T": [["noun"], ["verb"]]}),
        GrammarError,
        "domain 'T' has values that cannot be told apart; use strings or numbers.",
    ),
    "negative number of domain values": (
        lambda: fgg(domains={"T": -2}),
        GrammarError,
        "domain 'T' has -2 values; give at least 0.",
    ),
    "label with both a factor and a rule": (
        lambda: fgg(factors={"X": numbers(2)}),
        GrammarError,
        "label 'X' (rule begin of S) is both a terminal and a nonterminal; rename one of them.",
    ),
    "nonterminal declared without a rule": (
        lambda: fgg(nonterminals={"Y": ("T",)}),
        GrammarError,
        "nonterminal 'Y' has no rule; give it one or remove it.",
    ),
    "nonterminal declared and used without a rule": (
        lambda: fgg(nonterminals={"Y": ()}, rules=[rule("S", {}, ("Y",))]),
        GrammarError,
        "nonterminal 'Y' (rule odd of S) has no rule; give it one or remove it.",
    ),
    "declared type that disagrees with the rules": (
        lambda: fgg(nonterminals={"X": ("T", "T")}),
        GrammarError,
        "rule begin of S: edge 'e1' joins 1 node(s) but its label 'X' takes 2 (T, T).",
    ),
    "start symbol without a rule": (
        lambda: fgg(start="Z"),
        GrammarError,
        "start symbol 'Z' is not a nonterminal; give it a rule.",
    ),
    "start symbol with endpoints": (
        lambda: fgg(start="X"),
        GrammarError,
        "start symbol 'X' has 1 endpoint(s) (T; rule step of X) but takes none; add a rule that sums them out, or pass "
        "open_start=True for a tensor over them.",
    ),
    "replacing an unknown factor": (
        lambda: fgg().with_factors({"mvoe": numbers(2, 2)}),
        GrammarError,
        "with_factors: there is no factor 'mvoe' to replace.",
    ),
    "replacing by a factor that does not fit": (
        lambda: fgg().with_factors({"end": numbers(3)}),
        ShapeError,
        "factor 'end' (rule stop of X) has shape (3,) but its endpoints (T) have domains of sizes (2,); make them "
        "agree.",
    ),
    "shape of an unknown label": (
        lambda: fgg().shape_of("mvoe"),
        GrammarError,
        "FGG: label 'mvoe' is unknown.",
    ),
    "a domain on its own": (
        lambda: Domain(["a", "b", "a"]),
        GrammarError,
        "the value 'a' occurs twice; values are distinct.",
    ),
}


@pytest.mark.parametrize("case", FGGS)
def test_fggs_that_break_their_definition(case: str) -> None:
    make, kind, message = FGGS[case]
    assert complaint(make, kind) == message


def test_an_open_start_symbol_gives_a_tensor_over_its_endpoints() -> None:
    end = torch.tensor([1.0, 3.0], dtype=torch.float64)
    rules = [START, STEP, STOP]
    closed = fgg(factors={"end": end})
    opened = FGG.build(
        "X", rules, {"T": 2}, {"start": numbers(2), "move": 0.25 * numbers(2, 2), "end": end}, open_start=True
    )
    # x = M x + end with M = 1/4 everywhere: the sum of x is twice that of end, so x = 1/4 * 8 + end.
    expected = torch.tensor([3.0, 5.0], dtype=torch.float64)
    # Rounding of a 2 x 2 solve in float64, no more.
    torch.testing.assert_close(sum_product(opened), expected, rtol=1e-13, atol=0)
    torch.testing.assert_close(sum_product(opened, "log"), expected.log(), rtol=1e-13, atol=0)
    torch.testing.assert_close(sum_product(closed), expected.sum(), rtol=1e-13, atol=0)
    assert complaint(lambda: sum_product(opened, "max"), RankspaceError) == (
        "sum_product: the best derivation needs a start symbol without endpoints."
    )


def test_the_order_of_two_endpoints_is_that_of_the_external_nodes() -> None:
    table = torch.arange(6, dtype=torch.float64).reshape(2, 3)
    crossed = Rule.build("X", {"t": "T", "n": "N"}, [("f", "t", "n")], external=["n", "t"])
    fgg = FGG.build("X", [crossed], {"T": 2, "N": 3}, {"f": table}, open_start=True)
    assert fgg.shape_of("X") == (3, 2)
    assert torch.equal(sum_product(fgg), table.T)


def test_domains_are_given_by_values_or_by_number() -> None:
    counted = fgg(domains={"T": 2}).domains["T"]
    listed = fgg(domains={"T": ["noun", "verb"]}).domains["T"]
    assert list(counted.values) == [0, 1]
    assert list(listed.values) == ["noun", "verb"]
    assert (listed.index("verb"), listed.index("noun"), listed.index("adverb")) == (1, 0, None)
    assert len(listed) == 2


def test_factors_of_several_dtypes_are_promoted() -> None:
    mixed = fgg(factors={"start": torch.ones(2, dtype=torch.float16), "end": Indicator(1, 2)})
    assert mixed.dtype == torch.float64
    assert {tensor.dtype for tensor in mixed.tensors.values()} == {torch.float64}
    assert torch.equal(mixed.tensors["end"], torch.tensor([0.0, 1.0], dtype=torch.float64))
    assert mixed.to(torch.float32).dtype == torch.float32


def test_detached_and_replaced_factors_leave_the_original_alone() -> None:
    end = numbers(2).requires_grad_()
    original = fgg(factors={"end": end})
    assert original.tensors["end"].requires_grad
    assert not original.detached().tensors["end"].requires_grad
    replaced = original.with_factors({"end": 2 * numbers(2)})
    assert torch.equal(replaced.tensors["end"], 2 * numbers(2))
    assert torch.equal(original.tensors["end"], numbers(2))
    assert replaced.grammar == original.grammar
