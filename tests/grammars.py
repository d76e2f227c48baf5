"""Grammars that several tests share: the zoo with random weights, exact decompositions, and random B-FGGs."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod

import torch
from hypothesis import strategies as st
from torch import Tensor

from rankspace.fgg import FGG, Derivation, Edge, Fragment, Node, Rule, zoo
from rankspace.lowrank import CPD, merged_factor

Parameters = dict[str, Tensor]


@dataclass(frozen=True)
class Case:
    """A zoo grammar as a function of its parameters, and the rules or factors to decompose for rank space."""

    build: Callable[..., FGG]
    shapes: Mapping[str, tuple[int, ...]]
    decomposed: tuple[str, ...] = ()
    sentences: tuple[tuple[int, ...], ...] = ((0, 1, 2), (2,), (1, 1))

    def parameters(self, seed: int = 0, dtype: torch.dtype = torch.float64) -> Parameters:
        """Weights between 0.1 and 1, leaves that require gradients."""
        generator = torch.Generator().manual_seed(seed)
        return {
            name: (0.1 + 0.9 * torch.rand(shape, generator=generator, dtype=torch.float64)).to(dtype).requires_grad_()
            for name, shape in self.shapes.items()
        }


def _product(build: Callable[..., FGG]) -> Callable[..., FGG]:
    return lambda **parameters: build(**parameters, product=True)


HMM = {"start": (2,), "transition": (2, 2), "emission": (2, 3), "end": (2,)}
FACTORED_HMM = {"start": (3,), "state_to_rank": (3, 2), "rank_to_state": (2, 3), "end": (3,)}
HSMM = {"start": (2,), "transition": (2, 2), "duration": (2, 2), "emission": (2, 3), "end": (2,)}
LEXICALISED = {"root": (1, 3), "left_head": (1, 3, 1, 1, 3), "right_head": (1, 3, 1, 1, 3), "emission": (1, 3)}
QCFG = {"root": (2, 2), "rule": (2, 2, 2, 2, 2, 2), "emission": (2, 2, 3)}
FACTORED_PCFG = {"root": (3,), "head": (3, 2), "left": (2, 3), "right": (2, 3), "emission": (3, 3)}

ZOO = {
    "hmm": Case(zoo.hmm, HMM, ("pi_2",)),
    "factored_hmm": Case(zoo.factored_hmm, FACTORED_HMM | {"rank_emission": (2, 3)}),
    "lhmm": Case(zoo.lhmm, FACTORED_HMM | {"emission": (3, 3)}),
    "hsmm": Case(zoo.hsmm, HSMM),
    "hsmm_product": Case(_product(zoo.hsmm), HSMM, ("step",)),
    "pcfg": Case(zoo.pcfg, {"root": (2,), "rule": (2, 2, 2), "emission": (2, 3)}, ("rule",)),
    "split_pcfg": Case(zoo.split_pcfg, {"root": (2,), "rule": (2, 4, 4), "emission": (2, 3)}, ("pi_6",)),
    "factored_pcfg": Case(zoo.factored_pcfg, FACTORED_PCFG),
    "split_factored_pcfg": Case(
        zoo.split_factored_pcfg,
        {"root": (2,), "head": (2, 2), "left": (2, 3), "right": (2, 3), "emission": (1, 3)},
    ),
    "lpcfg": Case(zoo.lpcfg, {"root": (2,), "head": (2, 2), "pair": (2, 2, 2), "emission": (2, 3)}),
    "lexicalised": Case(zoo.lexicalised_pcfg, LEXICALISED),
    "lexicalised_product": Case(_product(zoo.lexicalised_pcfg), LEXICALISED, ("rule",)),
    "qcfg": Case(zoo.qcfg, QCFG),
    "qcfg_product": Case(_product(zoo.qcfg), QCFG, ("rule",)),
}


def exact_cpd(tensor: Tensor) -> CPD:
    """A decomposition of any tensor: one rank for each place of all axes but the first (differentiable)."""
    rest = tensor.shape[1:]
    if not rest:
        return CPD((tensor[None],))
    rank = prod(rest)
    places = torch.cartesian_prod(*(torch.arange(size) for size in rest)).reshape(rank, len(rest))
    selectors = [torch.eye(size, dtype=tensor.dtype)[places[:, i]] for i, size in enumerate(rest)]
    return CPD((tensor.reshape(tensor.shape[0], rank).T, *selectors))


def words_in_order(derivation: Derivation, nonterminals: Mapping[str, object], path: str = "") -> list[str]:
    """Names, in the factor graph of a derivation, of its word nodes from left to right."""
    rhs = derivation.rule.rhs
    waiting = [node.id for node in rhs.nodes if node.label == "O" and node.id not in rhs.external]
    found: list[str] = []
    for edge in rhs.edges:
        found += [path + node for node in dict.fromkeys(edge.nodes) if node in waiting]
        waiting = [node for node in waiting if node not in edge.nodes]
        if edge.label in nonterminals:
            found += words_in_order(derivation.children[edge.id], nonterminals, f"{path}{edge.id}/")
    return found + [path + node for node in waiting]


@dataclass(frozen=True)
class RandomGrammar:
    """A random B-FGG, its leaves that require gradients, and decompositions made of those leaves."""

    fgg: FGG
    cpds: dict[str, CPD]
    leaves: list[Tensor]


RuleRecipe = tuple[str, list[tuple[str, str]], list[tuple[str, str, tuple[str, ...]]]]


@dataclass(frozen=True)
class Recipe:
    """A random B-FGG as plain data: strategies must not run the library, whose shape checks draw random numbers."""

    seed: int
    domains: dict[str, int]
    rules: list[RuleRecipe]  # left-hand side, nodes (the first is external), edges
    ranks: dict[str, int]  # of the factors to decompose
    by_rule: list[int]  # rules whose factors are decomposed as one
    one_name: bool = False  # whether all rules that are not decomposed as one share their name

    def build(self) -> RandomGrammar:
        generator = torch.Generator().manual_seed(self.seed)
        leaves: list[Tensor] = []

        def leaf(*shape: int) -> Tensor:
            leaves.append((0.1 + torch.rand(shape, generator=generator, dtype=torch.float64)).requires_grad_())
            return leaves[-1]

        rules = [Rule.build("S", {"x": "A"}, [("top", "x"), ("X0", "x")], name="start")]
        factors = {"top": leaf(self.domains["A"])}
        cpds: dict[str, CPD] = {}
        for i, (lhs, nodes, edges) in enumerate(self.rules):
            graph = tuple(Node(*node) for node in nodes), tuple(Edge(*edge) for edge in edges)
            name = "same" if self.one_name and i not in self.by_rule else f"rule{i}"
            rules.append(Rule(lhs, Fragment(*graph, (nodes[0][0],)), name))
            for _, label, ends in edges:
                sizes = [self.domains[dict(nodes)[end]] for end in ends]
                if label in self.ranks:
                    cpds[label] = CPD(tuple(leaf(self.ranks[label], size) for size in sizes))
                    factors[label] = cpds[label].reconstruct()
                elif not label.startswith("X"):
                    factors[label] = leaf(*sizes)
        fgg = FGG.build("S", rules, self.domains, factors)
        for i in self.by_rule:
            merged = merged_factor(fgg, fgg.rules[i + 1])
            if merged.dim():
                cpds[f"rule{i}"] = exact_cpd(merged)
        return RandomGrammar(fgg, cpds, leaves)


@st.composite
def b_fggs(draw: st.DrawFn, recursive: bool) -> Recipe:
    """Random rules, ranks and sizes.

    Each nonterminal has up to three rules with any number of nonterminal edges (several may share a node), vectors and
    factors of higher order, decomposed or not, words, and states nobody looks at. Without recursion every nonterminal
    uses later ones only; with recursion every rule that has nonterminal edges has a word, so sentences stay finite.
    """
    domains = {"A": draw(st.integers(1, 3)), "B": draw(st.integers(1, 2)), "O": 2}
    count = draw(st.integers(1, 3))
    types = ["A", *(draw(st.sampled_from("AB")) for _ in range(count - 1))]
    rules: list[RuleRecipe] = []
    for i in range(count):
        below = list(range(count)) if recursive else list(range(i + 1, count))
        for _ in range(draw(st.integers(0, 2)) if below else 0):
            rules.append(_draw_rule(draw, i, types, below, len(rules), recursive))
        rules.append(_draw_rule(draw, i, types, [], len(rules), recursive))
    by_rule = [i for i in range(len(rules)) if draw(st.integers(0, 3)) == 0]
    rest = [edges for i, (_, _, edges) in enumerate(rules) if i not in by_rule]
    large = [label for edges in rest for _, label, ends in edges if len(ends) > 1]
    ranks = {label: draw(st.integers(1, 3)) for label in large if draw(st.booleans())}
    return Recipe(draw(st.integers(0, 2**31)), domains, rules, ranks, by_rule, draw(st.booleans()))


def _draw_rule(
    draw: st.DrawFn, number: int, types: list[str], below: list[int], serial: int, word_needed: bool
) -> RuleRecipe:
    """A rule of X<number> over nonterminals from `below`."""
    nodes = [("x", types[number])]
    edges: list[tuple[str, str, tuple[str, ...]]] = []
    for k in range(draw(st.integers(1, 3)) if below else 0):
        child = draw(st.sampled_from(below))
        shared = [name for name, label in nodes[1:] if label == types[child]]
        if not shared or draw(st.booleans()):
            nodes.append((f"y{k}", types[child]))
            shared = [f"y{k}"]
        edges.append((f"n{k}", f"X{child}", (draw(st.sampled_from(shared)),)))
    words = draw(st.integers(1 if below and word_needed else 0, 1 if below else 2))
    nodes += [(f"o{k}", "O") for k in range(words)]
    names = [name for name, _ in nodes]
    joined = draw(st.lists(st.lists(st.sampled_from(names), min_size=1, max_size=3, unique=True), max_size=3))
    for k, ends in enumerate([names[:3], *joined]):
        edges.insert(draw(st.integers(0, len(edges))), (f"f{k}", f"f{serial}.{k}", tuple(ends)))
    if draw(st.booleans()):
        nodes.append(("z", draw(st.sampled_from("AB"))))  # nobody looks at it
    return f"X{number}", nodes, edges
