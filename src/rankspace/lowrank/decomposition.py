"""Putting rank decompositions into a grammar: a factor becomes matrices that meet in a rank node (figure 2)."""

from collections.abc import Container, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import NamedTuple

from torch import Tensor

from rankspace.errors import DecompositionError, GrammarError, ShapeError
from rankspace.fgg import FGG, Domain, Edge, Fragment, Grammar, Node, Rule
from rankspace.fgg.contraction import contract
from rankspace.fgg.semirings import Real
from rankspace.lowrank.cpd import CPD, Fit

LARGEST_CHECKED = 10**8  # entries of a merged factor that is formed to compare it with its decomposition


class Merged(NamedTuple):
    """All terminal factors of a rule as one: the nodes it joins, in the rule's order, and the edges it stands for."""

    nodes: tuple[str, ...]
    edges: tuple[Edge, ...]


class Decomposition(NamedTuple):
    """What was decomposed: where, into which matrices (labels of the new factors), over which rank label."""

    key: str
    source: str
    nodes: tuple[str, ...]
    matrices: tuple[str, ...]
    rank_label: str


class Factored(NamedTuple):
    """A grammar with rank nodes, and what was done to get it."""

    fgg: FGG
    decompositions: tuple[Decomposition, ...]


def state_labels(fgg: FGG) -> set[str]:
    """Node labels at the endpoints of nonterminals: the states that inference runs over."""
    return {end for ends in fgg.grammar.nonterminals.values() for end in ends}


def merge_factors(fgg: FGG, rule: Rule) -> Merged:
    """Step (1) of section 4.1: which nodes the product of a rule's terminal factors joins.

    States that neither a nonterminal edge nor the outside can see are summed out; words stay.
    """
    edges = fgg.grammar.terminal_edges(rule)
    states = state_labels(fgg)
    seen = {node for edge in fgg.grammar.nonterminal_edges(rule) for node in edge.nodes}.union(rule.rhs.external)
    nodes = tuple(
        node.id
        for node in rule.rhs.nodes
        if any(node.id in edge.nodes for edge in edges) and (node.id in seen or node.label not in states)
    )
    return Merged(nodes, edges)


def merged_factor(fgg: FGG, rule: Rule) -> Tensor:
    """The product of a rule's terminal factors as one tensor over `merge_factors(fgg, rule).nodes`."""
    merged = merge_factors(fgg, rule)
    touched = {node for edge in merged.edges for node in edge.nodes}
    sizes = {node.id: fgg.size(node.label) for node in rule.rhs.nodes if node.id in touched}
    operands = [(fgg.tensors[edge.label], edge.nodes) for edge in merged.edges]
    return contract(Real(), operands, merged.nodes, sizes, fgg.like)


def fit_cpds(fgg: FGG, rank: int, *, seed: int = 0, restarts: int = 10) -> dict[str, Fit]:
    """A fitted decomposition of the merged factor of every rule that has nonterminal edges, by the rule's name.

    Rules whose merged factor joins fewer than two nodes need none. A rank beyond the one that always suffices (the
    product of all sizes but the largest) is lowered to it. Raises what `CPD.fit` raises.
    """
    fits: dict[str, Fit] = {}
    for rule in fgg.rules:
        if fgg.grammar.nonterminal_edges(rule) and len(merge_factors(fgg, rule).nodes) > 1:
            factor = merged_factor(fgg, rule)
            enough = factor.numel() // max(factor.shape)
            fits[rule.name] = CPD.fit(factor, min(rank, enough), seed=seed, restarts=restarts)
    return fits


def decompose(fgg: FGG, cpds: Mapping[str, CPD], tolerance: float | None = 1e-6) -> Factored:
    """The same grammar with the given factors replaced by matrices around rank nodes (figures 2, 3a and 5a).

    A key is the name of a rule, whose terminal factors are merged first (`merge_factors` gives the order of the
    matrices), or a terminal label, which is replaced wherever it stands. Each decomposition must reconstruct its factor
    within `tolerance` (relative, Frobenius); None skips that check. Gradients flow to the matrices of the CPDs.
    Raises DecompositionError, ShapeError or GrammarError with the key.
    """
    done: list[Decomposition] = []
    for key, cpd in cpds.items():
        named = [rule for rule in fgg.rules if rule.name == key]
        if len(named) + (key in fgg.grammar.terminals) != 1:
            raise GrammarError(_bad_key(fgg, key, len(named)))
        rank_label = _fresh("R" if len(cpds) == 1 else f"R_{key}", fgg.domains)
        suffix = "" if len(cpds) == 1 else f"_{key}"
        labels = tuple(_fresh(f"{_letter(i)}{suffix}", fgg.factors) for i in range(cpd.order))
        if named:
            fgg, step = _decompose_rule(fgg, named[0], cpd, labels, rank_label, tolerance)
        else:
            fgg, step = _decompose_label(fgg, key, cpd, labels, rank_label, tolerance)
        done.append(step)
    return Factored(fgg, tuple(done))


def _decompose_rule(
    fgg: FGG, rule: Rule, cpd: CPD, labels: tuple[str, ...], rank_label: str, tolerance: float | None
) -> tuple[FGG, Decomposition]:
    merged = merge_factors(fgg, rule)
    sizes = tuple(fgg.size(rule.rhs.label_of[node]) for node in merged.nodes)
    _check_shape(rule.name, cpd, sizes, merged.nodes)
    if tolerance is not None:
        if prod(sizes) > LARGEST_CHECKED:
            raise DecompositionError(
                f"decompose: the merged factor of {rule.name!r} has {prod(sizes):,} entries, too many to compare with "
                f"its decomposition; pass tolerance=None if you trust it."
            )
        _check_fit(rule.name, cpd, merged_factor(fgg, rule), tolerance)
    touched = {node for edge in merged.edges for node in edge.nodes}
    gone = touched.difference(merged.nodes)
    rhs = _around_rank_node(rule.rhs, merged.edges, merged.nodes, labels, rank_label, gone)
    replaced = Rule(rule.lhs, rhs, rule.name)
    rules = tuple(replaced if other is rule else other for other in fgg.rules)
    types = {label: (rank_label, rule.rhs.label_of[node]) for label, node in zip(labels, merged.nodes, strict=True)}
    source = " * ".join(edge.label for edge in merged.edges)
    step = Decomposition(rule.name, source, merged.nodes, labels, rank_label)
    return _with(fgg, rules, types, dict(zip(labels, cpd.absorbed().matrices, strict=True)), rank_label, cpd.rank), step


def _decompose_label(
    fgg: FGG, label: str, cpd: CPD, labels: tuple[str, ...], rank_label: str, tolerance: float | None
) -> tuple[FGG, Decomposition]:
    ends = fgg.grammar.terminals[label]
    _check_shape(label, cpd, fgg.shape_of(label), ends)
    if tolerance is not None:
        _check_fit(label, cpd, fgg.tensors[label], tolerance)
    rules: list[Rule] = []
    for rule in fgg.rules:
        rhs = rule.rhs
        for edge in rhs.edges:
            if edge.label == label:
                rhs = _around_rank_node(rhs, (edge,), edge.nodes, labels, rank_label, set())
        rules.append(Rule(rule.lhs, rhs, rule.name))
    types = {matrix: (rank_label, end) for matrix, end in zip(labels, ends, strict=True)}
    step = Decomposition(label, label, ends, labels, rank_label)
    matrices = dict(zip(labels, cpd.absorbed().matrices, strict=True))
    return _with(fgg, tuple(rules), types, matrices, rank_label, cpd.rank), step


def _around_rank_node(
    rhs: Fragment,
    old: Sequence[Edge],
    nodes: Sequence[str],
    labels: Sequence[str],
    rank_label: str,
    gone: set[str],
) -> Fragment:
    """A fragment with some edges replaced by one matrix per node, all of which meet in a rank node.

    A matrix stands where the first of those edges that touches its node stood, so that words are read in their order.
    """
    rank_node = _fresh(f"r{len(rhs.nodes) + 1}", rhs.label_of)
    taken = {edge.id for edge in rhs.edges}
    waiting = list(zip(labels, nodes, strict=True))
    edges: list[Edge] = []
    for edge in rhs.edges:
        if edge not in old:
            edges.append(edge)
            continue
        for label, node in sorted(
            (pair for pair in waiting if pair[1] in edge.nodes), key=lambda p: edge.nodes.index(p[1])
        ):
            edges.append(Edge(_fresh(f"{label}.{node}", taken), label, (rank_node, node)))
            taken.add(edges[-1].id)
        waiting = [pair for pair in waiting if pair[1] not in edge.nodes]
    kept = tuple(node for node in rhs.nodes if node.id not in gone)
    return Fragment((*kept, Node(rank_node, rank_label)), tuple(edges), rhs.external)


def _with(
    fgg: FGG,
    rules: tuple[Rule, ...],
    types: Mapping[str, tuple[str, ...]],
    matrices: Mapping[str, Tensor],
    rank_label: str,
    rank: int,
) -> FGG:
    used = {edge.label for rule in rules for edge in rule.rhs.edges}
    terminals = {label: ends for label, ends in {**fgg.grammar.terminals, **types}.items() if label in used}
    factors = {label: factor for label, factor in {**fgg.factors, **matrices}.items() if label in used}
    grammar = Grammar(fgg.start, rules, terminals, fgg.grammar.nonterminals, fgg.grammar.open_start)
    return replace(fgg, grammar=grammar, factors=factors, domains={**fgg.domains, rank_label: Domain(range(rank))})


def _check_shape(key: str, cpd: CPD, sizes: tuple[int, ...], nodes: Sequence[str]) -> None:
    if cpd.shape != sizes:
        raise ShapeError(
            f"decompose: the decomposition of {key!r} has shape {cpd.shape} but its factor joins "
            f"({', '.join(nodes)}) of sizes {sizes}; give one matrix per node, in that order."
        )


def _check_fit(key: str, cpd: CPD, factor: Tensor, tolerance: float) -> None:
    try:
        cpd.check(factor.detach(), tolerance)
    except DecompositionError as error:
        raise DecompositionError(f"decompose: {key!r}: {error}") from None


def _bad_key(fgg: FGG, key: str, named: int) -> str:
    if named > 1:
        return f"decompose: {named} rules are called {key!r}; give each rule its own name."
    if named:
        return f"decompose: {key!r} is both a rule and a terminal; rename one of them."
    names = ", ".join([rule.name for rule in fgg.rules] + list(fgg.grammar.terminals))
    return f"decompose: there is no rule or terminal {key!r}; the names are {names}."


def _letter(place: int) -> str:
    """U for the first matrix, then V, W, and W4, W5, ... where there are more."""
    return "UVW"[place] if place < 3 else f"W{place + 1}"


def _fresh(name: str, taken: Container[str]) -> str:
    while name in taken:
        name += "'"
    return name
