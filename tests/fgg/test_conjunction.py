"""Conjunction and observation: the red part of figure 1 to the letter, queries of one's own, and refusals."""

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor

from rankspace.errors import GrammarError
from rankspace.fgg import (
    FGG,
    Domain,
    Edge,
    Fragment,
    Indicator,
    Node,
    Rule,
    conjoin,
    enumerate_derivations,
    observe,
    sum_product,
    zoo,
)

EXACT = 1e-13  # relative: rounding of a few hundred float64 operations on positive numbers
TAGS = ("DT", "NN", "VBD")


def weights(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(1000 * seed + 10 * len(shape) + sum(shape))
    return torch.rand(*shape, generator=generator, dtype=torch.float64)


def hmm(words: Sequence[object] = ("a", "b")) -> FGG:
    states = len(TAGS)
    plain = zoo.hmm(weights(states), weights(states, states) / 4, weights(states, len(words)), weights(states, seed=1))
    return FGG(plain.grammar, {"T": Domain(TAGS), "O": Domain(tuple(words))}, plain.factors)


def pcfg(symbols: int = 2, words: Sequence[object] = ("a", "b")) -> FGG:
    plain = zoo.pcfg(weights(symbols), weights(symbols, symbols, symbols) / 8, weights(symbols, len(words)))
    return FGG(plain.grammar, {**plain.domains, "O": Domain(tuple(words))}, plain.factors)


def complaint(make: Callable[[], object]) -> str:
    with pytest.raises(GrammarError) as caught:
        make()
    return str(caught.value)


# --- figure 1 ---------------------------------------------------------------------------------------------------------


def written(rule: Rule) -> tuple[Any, ...]:
    """All of a rule but the identifiers of its edges."""
    nodes = {node.id: node.label for node in rule.rhs.nodes}
    edges = tuple((edge.label, *edge.nodes) for edge in rule.rhs.edges)
    return (rule.lhs, rule.name, tuple(nodes.items()), edges, rule.rhs.external)


def chain_of_the_figure(words: Sequence[str]) -> list[tuple[Any, ...]]:
    """Figure 1a with its red part."""
    steps = [
        (
            f"X,({i})",
            "pi_2",
            (("t1", "T"), ("t2", "T"), ("o3", "O")),
            (("transition", "t1", "t2"), ("emission", "t2", "o3"), (f"X,({i + 1})", "t2"), (f"O={word}", "o3")),
            ("t1",),
        )
        for i, word in enumerate(words)
    ]
    return [
        ("S", "pi_1", (("t1", "T"),), (("start", "t1"), ("X,(0)", "t1")), ()),
        *steps,
        (
            f"X,({len(words)})",
            "pi_3",
            (("t1", "T"), ("t2", "T")),
            (("transition", "t1", "t2"), ("end", "t2")),
            ("t1",),
        ),
    ]


def spans_of_the_figure(words: Sequence[str]) -> list[tuple[Any, ...]]:
    """Figure 1b with its red part."""
    length = len(words)
    leaves = [
        (
            f"X,({i},{i + 1})",
            "pi_5",
            (("n1", "N"), ("o2", "O")),
            (("emission", "n1", "o2"), (f"O={word}", "o2")),
            ("n1",),
        )
        for i, word in enumerate(words)
    ]
    splits = [
        (
            f"X,({i},{j})",
            "pi_6",
            (("n1", "N"), ("n2", "N"), ("n3", "N")),
            (("rule", "n1", "n2", "n3"), (f"X,({i},{k})", "n2"), (f"X,({k},{j})", "n3")),
            ("n1",),
        )
        for i in range(length)
        for j in range(i + 2, length + 1)
        for k in range(i + 1, j)
    ]
    root = ("S", "pi_4", (("n1", "N"),), (("root", "n1"), (f"X,(0,{length})", "n1")), ())
    return [root, *leaves, *splits]


@pytest.mark.parametrize("length", [1, 2, 3, 4])
def test_an_observed_hmm_is_figure_1a(length: int) -> None:
    words = list("abba"[:length])
    fgg = observe(hmm(), words)
    assert fgg.start == "S"
    assert set(fgg.grammar.nonterminals) == {"S", *(f"X,({i})" for i in range(length + 1))}
    assert fgg.grammar.nonterminals["X,(0)"] == ("T",)
    assert sorted(map(written, fgg.rules)) == sorted(chain_of_the_figure(words))
    observed = {name: factor for name, factor in fgg.factors.items() if name.startswith("O=")}
    assert observed == {f"O={word}": Indicator("ab".index(word), 2) for word in words}


@pytest.mark.parametrize("length", [1, 2, 3, 4])
def test_an_observed_pcfg_is_figure_1b(length: int) -> None:
    words = list("abba"[:length])
    fgg = observe(pcfg(), words)
    spans = {f"X,({i},{j})" for i in range(length) for j in range(i + 1, length + 1)}
    assert fgg.start == "S"
    assert set(fgg.grammar.nonterminals) == {"S", *spans}
    assert sorted(map(written, fgg.rules)) == sorted(spans_of_the_figure(words))
    observed = {name: factor for name, factor in fgg.factors.items() if name.startswith("O=")}
    assert observed == {f"O={word}": Indicator("ab".index(word), 2) for word in words}


def sentence_query(words: Sequence[str]) -> FGG:
    """The red part of figure 1a written by hand, as a grammar of its own over the nodes of the HMM."""
    rules = [Rule("Q", Fragment(nodes(t1="T"), (Edge("e1", "Q0", ("t1",)),), ()))]
    for i, word in enumerate(words):
        edges = (Edge("e2", f"Q{i + 1}", ("t2",)), Edge("red", f"O={word}", ("o3",)))
        rules.append(Rule(f"Q{i}", Fragment(nodes(t1="T", t2="T", o3="O"), edges, ("t1",))))
    rules.append(Rule(f"Q{len(words)}", Fragment(nodes(t1="T", t2="T"), (), ("t1",))))
    factors = {f"O={word}": Indicator("ab".index(word), 2) for word in words}
    return FGG.build("Q", rules, {"T": TAGS, "O": ("a", "b")}, factors)


def nodes(**labels: str) -> tuple[Node, ...]:
    return tuple(Node(name, label) for name, label in labels.items())


@pytest.mark.parametrize("words", ["", "a", "ab", "bba"])
def test_observing_is_conjoining_with_the_red_part(words: str) -> None:
    names = {("S", "Q"): "S", **{("X", f"Q{i}"): f"X,({i})" for i in range(len(words) + 1)}}
    query = sentence_query(words)
    conjoined = conjoin(hmm(), query, name=names.__getitem__)
    observed = observe(hmm(), list(words))
    strip = [(lhs, *rest) for lhs, _, *rest in map(written, conjoined.rules)]  # the query's rules have names too
    assert sorted(strip) == sorted((lhs, *rest) for lhs, _, *rest in map(written, observed.rules))
    assert conjoined.rules[0].name == "pi_1,#1"
    assert sum_product(conjoined).item() == sum_product(observed).item()
    plain = conjoin(hmm(), query)
    assert set(plain.grammar.nonterminals) == {"S,Q", *(f"X,Q{i}" for i in range(len(words) + 1))}


# --- queries of one's own ---------------------------------------------------------------------------------------------


def exactly_one(tag: str) -> FGG:
    """One word has the tag: Q0 has not seen it yet, Q1 has."""
    step = nodes(t1="T", t2="T", o3="O")
    rules = [Rule("Q", Fragment(nodes(t1="T"), (Edge("e1", "Q0", ("t1",)),), ()))]
    for here, there, factor in (("Q0", "Q0", "other"), ("Q0", "Q1", "this"), ("Q1", "Q1", "other")):
        edges = (Edge("e2", there, ("t2",)), Edge("e0", factor, ("t2",)))  # "e0" is the model's transition
        rules.append(Rule(here, Fragment(step, edges, ("t1",)), f"{here}{there}"))
    rules.append(Rule("Q1", Fragment(nodes(t1="T", t2="T"), (), ("t1",)), "stop"))
    this = torch.tensor([float(value == tag) for value in TAGS], dtype=torch.float64)
    return FGG.build("Q", rules, {"T": TAGS, "O": ("a", "b")}, {"this": this, "other": 1 - this})


def filtered(fgg: FGG, keep: Callable[[list[str]], bool]) -> float:
    """Sum of the weights of those derivations and assignments whose tags (of words) are kept."""
    total = 0.0
    for derivation in enumerate_derivations(fgg):
        graph = derivation.factor_graph(fgg)
        tagged = [name for name in graph.sizes if name.endswith("t2") and name[:-2] + "o3" in graph.sizes]
        for values in product(*map(range, graph.sizes.values())):
            at = dict(zip(graph.sizes, values, strict=True))
            if keep([TAGS[at[name]] for name in tagged]):
                total += graph.weight(at).item()
    return total


@pytest.mark.parametrize("words", [["a"], ["a", "b"], ["b", "b", "a"]])
def test_a_tag_that_occurs_exactly_once(words: list[str]) -> None:
    observed = observe(hmm(), words)
    conjoined = conjoin(observed, exactly_one("VBD"))
    expected = filtered(observed, lambda tags: tags.count("VBD") == 1)
    assert 0 < expected < sum_product(observed).item()
    assert sum_product(conjoined).item() == pytest.approx(expected, rel=EXACT)
    length = len(words)
    # Not seen is impossible at the end, seen is impossible at the beginning.
    assert set(conjoined.grammar.nonterminals) == {
        "S,Q",
        *(f"X,({i}),Q0" for i in range(length)),
        *(f"X,({i}),Q1" for i in range(1, length + 1)),
    }


def test_a_tag_that_occurs_exactly_once_in_any_sentence() -> None:
    model = hmm()
    conjoined = conjoin(model, exactly_one("VBD"))
    assert set(conjoined.grammar.nonterminals) == {"S,Q", "X,Q0", "X,Q1"}
    assert [rule.name for rule in conjoined.rules] == ["pi_1,#1", "pi_2,Q0Q0", "pi_2,Q0Q1", "pi_2,Q1Q1", "pi_3,stop"]
    start, transition, emission, end = (model.tensors[name] for name in ("start", "transition", "emission", "end"))
    step = transition * emission.sum(1)
    this = step * torch.tensor([0.0, 0.0, 1.0], dtype=torch.float64)
    resolvent = torch.linalg.inv(torch.eye(3, dtype=torch.float64) - (step - this))
    expected = start @ resolvent @ this @ resolvent @ transition @ end
    assert sum_product(conjoined).item() == pytest.approx(expected.item(), rel=1e-12)  # two inverses of size 3


def test_conjunction_is_symmetric_in_its_sum() -> None:
    query = exactly_one("NN")
    for model in (hmm(), observe(hmm(), ["a", "b", "b"])):
        left, right = conjoin(model, query), conjoin(query, model)
        for semiring in ("real", "log"):
            assert sum_product(left, semiring).item() == pytest.approx(sum_product(right, semiring).item(), rel=EXACT)
        assert len(left.rules) == len(right.rules)
        assert (left.start, right.start) == ("S,Q", "Q,S")


def test_conjoining_twice_filters_twice() -> None:
    observed = observe(hmm(), ["a", "b", "b"])
    both = conjoin(conjoin(observed, exactly_one("VBD")), renamed(exactly_one("NN")))
    expected = filtered(observed, lambda tags: tags.count("VBD") == tags.count("NN") == 1)
    assert sum_product(both).item() == pytest.approx(expected, rel=EXACT)


def renamed(query: FGG) -> FGG:
    """The same query with other names for its factors, which mean something else in the first."""
    swap = {"this": "these", "other": "others"}
    rules = [
        Rule(
            rule.lhs,
            Fragment(
                rule.rhs.nodes,
                tuple(Edge(edge.id, swap.get(edge.label, edge.label), edge.nodes) for edge in rule.rhs.edges),
                rule.rhs.external,
            ),
        )
        for rule in query.rules
    ]
    domains = {label: domain.values for label, domain in query.domains.items()}
    return FGG.build("Q", rules, domains, {swap[name]: factor for name, factor in query.factors.items()})


MODEL = FGG.build(
    "S",
    [
        Rule.build("S", {"a": "T", "b": "T"}, [("f", "a"), ("X", "a"), ("X", "b")], name="top"),
        Rule.build("X", {"a": "T"}, [("f", "a")], ["a"], name="leaf"),
    ],
    {"T": 2},
    {"f": torch.tensor([0.5, 2.0], dtype=torch.float64)},
)
LEAF = Rule.build("Y", {"a": "T"}, external=["a"], name="leaf")


def top(labels: dict[str, str], *edges: tuple[str, str, str]) -> Rule:
    made = tuple(Edge(edge, label, (node,)) for edge, label, node in edges)
    return Rule("Q", Fragment(nodes(**labels), made, ()), "top")


SAME = ({"a": "T", "b": "T"}, ("e1", "Y", "a"), ("e2", "Y", "b"))
RULES: dict[str, tuple[Rule, bool]] = {
    "the same": (top(*SAME), True),
    "nodes in another order": (top({"b": "T", "a": "T"}, *SAME[1:]), True),
    "edges in another order": (top(SAME[0], SAME[2], SAME[1]), True),
    "a node more": (top({**SAME[0], "c": "T"}, *SAME[1:]), False),
    "another identifier of a node": (top({"a": "T", "c": "T"}, SAME[1], ("e2", "Y", "c")), False),
    "another label of a node": (top({"a": "T", "b": "U"}, SAME[1], ("e2", "U", "b")), False),
    "an edge less": (top(*SAME[:2]), False),
    "an edge more": (top(*SAME, ("e3", "Y", "b")), False),
    "another identifier of an edge": (top(*SAME[:2], ("e3", "Y", "b")), False),
    "an edge at another node": (top(*SAME[:2], ("e2", "Y", "a")), False),
    "edges exchanged": (top(SAME[0], ("e1", "Y", "b"), ("e2", "Y", "a")), False),
}


@pytest.mark.parametrize("case", RULES)
def test_which_rules_are_conjoinable(case: str) -> None:
    rule, fits = RULES[case]
    other = Rule.build("U", {"a": "U"}, external=["a"])
    rules = [rule, LEAF, other] if any(edge.label == "U" for edge in rule.rhs.edges) else [rule, LEAF]
    query = FGG.build("Q", rules, {"T": 2, "U": 2}, {})
    conjoined = conjoin(MODEL, query)
    if fits:
        assert [rule.name for rule in conjoined.rules] == ["top,top", "leaf,leaf"]
        assert sum_product(conjoined).item() == sum_product(MODEL).item() == (0.25 + 4) * 2.5
    else:
        assert [rule.name for rule in conjoined.rules] == ["impossible"]
        assert sum_product(conjoined).item() == 0


def test_external_nodes_must_agree_in_order() -> None:
    def grammar(name: str, *external: str) -> FGG:
        rules = [
            Rule.build(f"S{name}", {"a": "T", "b": "T"}, [(f"X{name}", "a", "b")]),
            Rule.build(f"X{name}", {"a": "T", "b": "T"}, external=external),
        ]
        return FGG.build(f"S{name}", rules, {"T": 2}, {})

    assert sum_product(conjoin(grammar("", "a", "b"), grammar("'", "a", "b"))).item() == 4
    assert sum_product(conjoin(grammar("", "a", "b"), grammar("'", "b", "a"))).item() == 0


def test_pairs_that_cannot_be_finished_are_left_out() -> None:
    query = FGG.build("Q", [top(*SAME), top(SAME[0], SAME[1], ("e2", "Z", "b")), LEAF, endless()], {"T": 2}, {})
    conjoined = conjoin(MODEL, query)
    assert set(conjoined.grammar.nonterminals) == {"S,Q", "X,Y"}
    assert len(conjoined.rules) == 2


def endless() -> Rule:
    return Rule.build("Z", {"a": "T"}, [("Z", "a")], external=["a"])


def test_edges_of_both_are_kept_under_names_of_their_own() -> None:
    twice = Rule("Y", Fragment(nodes(a="T"), (Edge("e0", "g", ("a",)), Edge("e0'", "g", ("a",))), ("a",)))
    query = FGG.build("Q", [top(*SAME), twice], {"T": 2}, {"g": torch.tensor([3.0, 1.0], dtype=torch.float64)})
    conjoined = conjoin(MODEL, query)
    [leaf] = conjoined.grammar.rules_of["X,Y"]
    assert [(edge.id, edge.label) for edge in leaf.rhs.edges] == [("e0", "f"), ("e0'", "g"), ("e0''", "g")]
    # X(t) = f(t) g(t)^2 = (4.5, 2), and Z = sum_a f(a) X(a) * sum_b X(b).
    assert sum_product(conjoined).item() == (0.5 * 4.5 + 2 * 2) * 6.5


def test_names_with_commas_stay_unique() -> None:
    def rules(*labels: str) -> list[Rule]:
        start, *others = labels
        made = tuple(Edge(f"e{i}", label, ("a",)) for i, label in enumerate(others))
        first = Rule(start, Fragment(nodes(a="T"), made, ()))
        return [first, *(Rule.build(label, {"a": "T"}, external=["a"]) for label in others)]

    model = FGG.build("S", rules("S", "A", "A,B"), {"T": 2}, {})
    query = FGG.build("Q", rules("Q", "B,C", "C"), {"T": 2}, {})
    conjoined = conjoin(model, query)
    assert list(conjoined.grammar.nonterminals) == ["S,Q", "('A', 'B,C')", "('A,B', 'C')"]
    assert [edge.label for edge in conjoined.rules[0].rhs.edges] == ["('A', 'B,C')", "('A,B', 'C')"]
    assert sum_product(conjoined).item() == 2


# --- nothing agrees ---------------------------------------------------------------------------------------------------


def test_a_query_that_nothing_matches() -> None:
    words = ["a", "b"]
    conjoined = conjoin(observe(hmm(), words), conjoin(sentence_query("a"), exactly_one("NN")))  # one word only
    assert conjoined.start == "S,Q,Q"
    assert sum_product(conjoined).item() == 0
    assert sum_product(conjoined, "log").item() == -torch.inf
    assert sum_product(conjoined, "boolean").item() is False
    assert sum_product(conjoined, "counting") == 0
    assert sum_product(conjoined, "max").derivation is None
    assert sum_product(conjoined, "entropy").entropy.item() == 0
    assert sum_product(conjoined).dtype == torch.float64


def test_nothing_agrees_with_an_open_start() -> None:
    model = FGG.build("X", [Rule.build("X", {"a": "T"}, [("f", "a")], ["a"])], {"T": 2}, MODEL.factors, open_start=True)
    query = FGG.build("Y", [Rule.build("Y", {"b": "T"}, [], ["b"])], {"T": 2}, {}, open_start=True)
    assert sum_product(conjoin(model, query)).tolist() == [0, 0]
    assert sum_product(conjoin(model, query), "log").tolist() == [-torch.inf, -torch.inf]


# --- names that clash -------------------------------------------------------------------------------------------------


def query_with(**changes: Any) -> FGG:
    leaf = Rule.build("Y", {"a": "T"}, [(changes.get("label", "g"), "a")], ["a"])
    factors = {changes.get("label", "g"): changes.get("factor", torch.ones(2, dtype=torch.float64))}
    return FGG.build("Q", [top(*SAME), leaf], {"T": changes.get("domain", 2)}, factors)


CLASHES: dict[str, tuple[Callable[[], object], str]] = {
    "domains": (
        lambda: conjoin(MODEL, query_with(domain=("a", "b"))),
        "conjoin: node label 'T' has different domains in the two grammars; rename one.",
    ),
    "factors": (
        lambda: conjoin(MODEL, query_with(label="f")),
        "conjoin: terminal 'f' has different factors in the two grammars; rename one.",
    ),
    "a tensor and an indicator": (
        lambda: conjoin(MODEL, query_with(label="f", factor=Indicator(0, 2))),
        "conjoin: terminal 'f' has different factors in the two grammars; rename one.",
    ),
    "types": (
        lambda: conjoin(
            MODEL,
            FGG.build("Q", [Rule.build("Q", {"u": "U"}, [("f", "u")])], {"U": 2}, MODEL.factors),
        ),
        "conjoin: terminal 'f' has endpoints (T) in one grammar and (U) in the other; rename one.",
    ),
    "the model's nonterminal is the query's terminal": (
        lambda: conjoin(MODEL, query_with(label="X")),
        "conjoin: 'X' is a terminal in one grammar and a nonterminal in the other.",
    ),
    "the model's terminal is the query's nonterminal": (
        lambda: conjoin(query_with(label="X"), MODEL),
        "conjoin: 'X' is a terminal in one grammar and a nonterminal in the other.",
    ),
    "start symbols": (
        lambda: conjoin(MODEL, FGG.build("Q", [Rule.build("Q", {"a": "T"}, [], ["a"])], {"T": 2}, {}, open_start=True)),
        "conjoin: start symbols 'S' and 'Q' have different endpoints; make them agree.",
    ),
}


@pytest.mark.parametrize("case", CLASHES)
def test_names_that_clash_are_errors(case: str) -> None:
    make, message = CLASHES[case]
    assert complaint(make) == message


def test_names_that_mean_the_same_may_be_shared() -> None:
    shared = query_with(label="f", factor=MODEL.tensors["f"].clone())
    # X(t) = f(t)^2 = (1/4, 4)
    assert sum_product(conjoin(MODEL, shared)).item() == (0.5 * 0.25 + 2 * 4) * 4.25
    same_nonterminals = FGG.build("S", [*MODEL.rules], {"T": 2}, MODEL.factors)
    assert sum_product(conjoin(MODEL, same_nonterminals)).item() == (0.25 * 0.25 + 4 * 4) * 4.25


# --- observation ------------------------------------------------------------------------------------------------------


def test_words_that_are_unknown() -> None:
    assert complaint(lambda: observe(hmm(), ["a", "c"])) == (
        "observe: word 2 is 'c', which is not among the 2 values of 'O': 'a', 'b'."
    )
    assert complaint(lambda: observe(zoo.pcfg(weights(2), weights(2, 2, 2), weights(2, 5)), [4, 5])) == (
        "observe: word 2 is 5, which is not among the 5 values of 'O': 0, 1, 2, 3, 4."
    )
    many = zoo.pcfg(weights(2), weights(2, 2, 2), weights(2, 11))
    assert complaint(lambda: observe(many, [11])) == ("observe: word 1 is 11, which is not among the 11 values of 'O'.")
    assert complaint(lambda: observe(hmm(), ["a"], label="W")) == (
        "observe: there is no node label 'W'; the labels are T, O."
    )


@pytest.mark.parametrize("model", [hmm(), pcfg()], ids=["hmm", "pcfg"])
def test_open_words_are_summed_over(model: FGG) -> None:
    def z(*words: str | None) -> float:
        return sum_product(observe(model, words)).item()

    assert z("a", None) == pytest.approx(z("a", "a") + z("a", "b"), rel=EXACT)
    assert z(None, "b", None) == pytest.approx(sum(z(v, "b", w) for v in "ab" for w in "ab"), rel=EXACT)
    fgg = observe(model, [None, "b"])
    assert [name for name in fgg.factors if name.startswith("O=")] == ["O=b"]


def test_lengths_that_the_grammar_cannot_produce() -> None:
    f = torch.tensor([0.5, 0.25], dtype=torch.float64, requires_grad=True)
    rules = [
        Rule.build("S", {"t": "T"}, [("start", "t"), ("X", "t")]),
        Rule.build("X", {"t": "T", "o": "O", "p": "O"}, [("f", "o"), ("f", "p"), ("X", "t")], ["t"], name="two words"),
        Rule.build("X", {"t": "T"}, [("start", "t")], ["t"], name="stop"),
    ]
    even = FGG.build("S", rules, {"T": 2, "O": 2}, {"f": f, "start": torch.ones(2, dtype=torch.float64)})
    for length in (2, 4):
        z = sum_product(observe(even, [0] * length))
        assert z.item() == 2 * 0.5**length
        assert torch.autograd.grad(z, [f])[0].tolist() == [2 * length * 0.5 ** (length - 1), 0]
    for length in (1, 3):
        fgg = observe(even, [0] * length)
        assert (fgg.start, [rule.name for rule in fgg.rules]) == ("S", ["impossible"])
        assert sum_product(fgg).item() == 0
        assert sum_product(fgg, "log").item() == -torch.inf
        assert sum_product(fgg, "max") == (-torch.inf, None)
        for semiring in ("real", "log"):  # a gradient of zero, not one that is missing
            assert torch.autograd.grad(sum_product(fgg, semiring), [f])[0].tolist() == [0, 0]
    assert sum_product(observe(even, [])).item() == 2
    assert (
        complaint(lambda: observe(even, [7])) == "observe: word 1 is 7, which is not among the 2 values of 'O': 0, 1."
    )


def test_a_start_symbol_that_rules_use_is_told_apart_by_its_span() -> None:
    rules = [
        Rule.build("S", {}, [("S",), ("S",)], name="two"),
        Rule.build("S", {"o": "O"}, [("f", "o")], name="word"),
    ]
    fgg = observe(FGG.build("S", rules, {"O": ("a", "b")}, {"f": weights(2)}), ["a", "b", "a"])
    assert fgg.start == "S,(0,3)"
    assert set(fgg.grammar.nonterminals) == {f"S,({i},{j})" for i in range(3) for j in range(i + 1, 4)}
    f = weights(2)
    assert sum_product(fgg).item() == pytest.approx((2 * f[0] * f[1] * f[0]).item(), rel=EXACT)


def test_which_label_carries_the_words() -> None:
    """Figure 1's "O", the only label off the nonterminals, or the only one whose values fit."""

    def fgg(**domains: Any) -> FGG:
        rule = Rule.build("S", {label.lower(): label for label in domains}, [(f"f{x}", x.lower()) for x in domains])
        return FGG.build("S", [rule], domains, {f"f{x}": weights(len(domains[x]), seed=ord(x)) for x in domains})

    words = weights(2, seed=ord("W"))
    assert sum_product(observe(fgg(W=("a", "b")), ["b"])).item() == words[1].item()
    two = fgg(W=("a", "b"), C=("red", "blue"))
    colours = weights(2, seed=ord("C"))
    # Rounding of one sum and one product.
    assert sum_product(observe(two, ["b"])).item() == pytest.approx((words[1] * colours.sum()).item(), rel=1e-15)
    assert sum_product(observe(two, ["red"])).item() == pytest.approx((words.sum() * colours[0]).item(), rel=1e-15)
    assert sum_product(observe(two, [None], label="C")).item() == pytest.approx(sum_product(two).item(), rel=1e-15)
    assert complaint(lambda: observe(two, [None])) == (
        "observe: cannot tell which node label carries the words (W, C would do); give its name."
    )
    assert complaint(lambda: observe(two, ["green"])) == (
        "observe: cannot tell which node label carries the words (W, C would do); give its name."
    )
    numbers = fgg(O=(0, 1), C=("red", "blue"))
    assert complaint(lambda: observe(numbers, ["red"])) == (
        "observe: word 1 is 'red', which is not among the 2 values of 'O': 0, 1."
    )
    assert complaint(lambda: observe(without_nodes(), [0])) == (
        "observe: cannot tell which node label carries the words (none would do); give its name."
    )


def without_nodes() -> FGG:
    return FGG.build("S", [Rule.build("S", {}, [("f",)])], {}, {"f": torch.ones((), dtype=torch.float64)})


def test_words_that_read_alike_are_told_apart() -> None:
    rule = Rule.build("S", {"o": "O", "p": "O"}, [("f", "o"), ("g", "p")])
    f, g = weights(2), weights(2, seed=1)
    fgg = FGG.build("S", [rule], {"O": (1, "1")}, {"f": f, "g": g})
    for words in product((1, "1"), repeat=2):
        expected = f[(1, "1").index(words[0])] * g[(1, "1").index(words[1])]
        assert sum_product(observe(fgg, words)).item() == expected.item()
    assert {"O=1", "O=1'"} <= set(observe(fgg, [1, "1"]).factors)


def test_a_factor_of_the_model_that_is_called_like_a_word_is_kept() -> None:
    rule = Rule.build("S", {"o": "O"}, [("O=a", "o")])
    fgg = FGG.build("S", [rule], {"O": ("a", "b")}, {"O=a": torch.tensor([0.25, 0.5], dtype=torch.float64)})
    assert [sum_product(observe(fgg, [word])).item() for word in "ab"] == [0.25, 0.5]


def test_a_sentence_may_be_a_tensor_of_numbers() -> None:
    model = zoo.pcfg(weights(2), weights(2, 2, 2), weights(2, 5))
    listed, tensor = observe(model, [4, 0, 1]), observe(model, torch.tensor([4, 0, 1]))
    assert tensor.rules == listed.rules
    assert sum_product(tensor).item() == sum_product(listed).item() > 0


def test_observing_twice() -> None:
    first = observe(hmm(), ["a", None, "b"])
    second = observe(first, [None, "b", "b"])
    assert sum_product(second).item() == pytest.approx(sum_product(observe(hmm(), ["a", "b", "b"])).item(), rel=EXACT)
    assert sum_product(observe(first, ["b", "b", "b"])).item() == 0


def test_words_stand_in_the_order_of_edges() -> None:
    """S -> o X p: a word, a nonterminal, a word; the node of the last word is listed first."""
    rules = [
        Rule.build("S", {"p": "O", "o": "O"}, [("f", "o"), ("X",), ("g", "p")]),
        Rule.build("X", {"o": "O"}, [("h", "o")]),
        Rule.build("X", {}),
    ]
    tables = {name: weights(3, seed=i) for i, name in enumerate("fgh")}
    fgg = FGG.build("S", rules, {"O": 3}, tables)
    f, g, h = (tables[name] for name in "fgh")
    assert sum_product(observe(fgg, [0, 2])).item() == pytest.approx((f[0] * g[2]).item(), rel=EXACT)
    assert sum_product(observe(fgg, [0, 1, 2])).item() == pytest.approx((f[0] * h[1] * g[2]).item(), rel=EXACT)
    assert set(observe(fgg, [0, 1, 2]).grammar.nonterminals) == {"S", "X,(1,2)"}
    assert sum_product(observe(fgg, [0])).item() == 0


def test_words_without_an_edge_come_last() -> None:
    rules = [Rule.build("S", {"free": "O", "o": "O"}, [("f", "o"), ("X",)]), Rule.build("X", {"o": "O"}, [("g", "o")])]
    f, g = weights(3), weights(3, seed=1)
    fgg = FGG.build("S", rules, {"O": 3}, {"f": f, "g": g})
    # o, the word of X, and the free one, which any word fits
    assert sum_product(observe(fgg, [0, 1, 2])).item() == pytest.approx((f[0] * g[1]).item(), rel=EXACT)


def test_a_word_is_said_by_the_rule_that_makes_its_node() -> None:
    """X looks at the word of S through its external node, and says none of its own."""
    rules = [
        Rule.build("S", {"o": "O", "p": "O"}, [("f", "o"), ("X", "o"), ("X", "p")]),
        Rule.build("X", {"o": "O"}, [("g", "o")], ["o"]),
    ]
    f, g = weights(3), weights(3, seed=1)
    fgg = FGG.build("S", rules, {"O": 3}, {"f": f, "g": g})
    found = observe(fgg, [0, 2], label="O")
    assert sum_product(found).item() == pytest.approx((f[0] * g[0] * g[2]).item(), rel=EXACT)
    assert set(found.grammar.nonterminals) == {"S", "X,(1,1)", "X,(2,2)"}


@pytest.mark.parametrize("semiring", ["real", "log"])
@pytest.mark.parametrize("model", [hmm(), pcfg()], ids=["hmm", "pcfg"])
def test_gradients_flow_through_observation(model: FGG, semiring: Any) -> None:
    names = list(model.factors)

    def function(*tables: Tensor) -> Tensor:
        fgg = model.with_factors(dict(zip(names, tables, strict=True)))
        return sum_product(observe(fgg, ["a", None, "a"]), semiring)

    tables = [model.tensors[name].clone().requires_grad_() for name in names]
    assert torch.autograd.gradcheck(function, tables)


def test_gradients_count_observed_words() -> None:
    model = hmm()
    emission = model.tensors["emission"].clone().requires_grad_()
    log_z = sum_product(observe(model.with_factors({"emission": emission}), ["a", "b", "a"]), "log")
    [gradient] = torch.autograd.grad(log_z, [emission])
    # sum over states of E * d log Z / d E is the expected number of each word, and the words are known.
    assert (emission * gradient).sum(0).tolist() == pytest.approx([2, 1], rel=EXACT)
