"""Conjunction of two FGGs: section 2.1.2 of the paper, section 4 of Chiang & Riley (2020).

A model and a query are written as two grammars over the same nodes; their conjunction derives the pairs of derivations
that agree and multiplies their factors.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping

import torch
from torch import Tensor

from rankspace.errors import GrammarError
from rankspace.fgg.factor_graph_grammar import FGG, Factor
from rankspace.fgg.grammar import Grammar, Rule
from rankspace.fgg.hypergraph import Edge, Fragment

Pair = tuple[str, str]
Structure = tuple[object, ...]


def conjoin(model: FGG, query: FGG, name: Callable[[Pair], str] | None = None) -> FGG:
    """The FGG whose derivations are pairs of a derivation of each that agree, with the factors of both.

    Two rules are conjoinable when their right-hand sides have the same nodes with the same labels, the same external
    nodes and the same nonterminal edges at the same nodes (all by identifier; the labels of those edges may differ).
    A pair of nonterminals (X, Y) is called `name((X, Y))`, by default "X,Y". Pairs that cannot be reached or cannot be
    finished are left out, except for the start symbol: if nothing agrees, its one rule has weight zero.
    Terminals and node labels with one name in both must mean the same. Raises GrammarError otherwise.
    """
    _check_names(model, query)
    matching = _index(query)
    rules: dict[Pair, list[tuple[Rule, Rule]]] = {}
    waiting = [(model.start, query.start)]
    while waiting:
        pair = waiting.pop()
        if pair in rules:
            continue
        rules[pair] = [
            (left, right)
            for left in model.grammar.rules_of[pair[0]]
            for right in matching.get((pair[1], _structure(model.grammar, left)), [])
        ]
        waiting.extend(child for left, right in rules[pair] for child in _children(model.grammar, left, right))
    return assemble(model, query, _prune(model.grammar, rules), name or ",".join)


def impossible(fgg: FGG, start: str) -> FGG:
    """An FGG over the same domains that derives nothing of positive weight from a start symbol of that name.

    Its Z is zero, and so are the gradients of the given FGG's factors.
    """
    ends = {f"x{i}": end for i, end in enumerate(fgg.grammar.nonterminals[fgg.start])}
    rule = Rule.build(start, ends, [("0",)], external=list(ends), name="impossible")
    zero = torch.zeros((), dtype=fgg.dtype, device=fgg.device)
    for factor in fgg.tensors.values():
        if factor.requires_grad:
            zero = zero + factor.reshape(-1)[:0].sum()  # none of its entries: the gradient is zero and not missing
    domains = {label: domain.values for label, domain in fgg.domains.items()}
    return FGG.build(start, [rule], domains, {"0": zero}, open_start=fgg.grammar.open_start)


def assemble(model: FGG, query: FGG, rules: dict[Pair, list[tuple[Rule, Rule]]], name: Callable[[Pair], str]) -> FGG:
    """The FGG made of given pairs of conjoinable rules, by their pair of left-hand sides."""
    start = (model.start, query.start)
    if start not in rules:
        return impossible(model, name(start))
    names = _names(rules, name)
    merged = [
        Rule(names[pair], _merge(model.grammar, left, right, names), ",".join(filter(None, (left.name, right.name))))
        for pair, chosen in rules.items()
        for left, right in chosen
    ]
    used = {edge.label for rule in merged for edge in rule.rhs.edges}
    terminals = {**model.grammar.terminals, **query.grammar.terminals}
    factors: dict[str, Factor] = {**model.factors, **query.factors}
    grammar = Grammar(
        names[start],
        tuple(merged),
        {label: ends for label, ends in terminals.items() if label in used},
        {names[pair]: model.grammar.nonterminals[pair[0]] for pair in names},
        model.grammar.open_start,
    )
    kept = {label: factor for label, factor in factors.items() if label in used}
    return FGG(grammar, {**query.domains, **model.domains}, kept, model.table_names)


def _merge(grammar: Grammar, left: Rule, right: Rule, names: dict[Pair, str]) -> Fragment:
    """The model's right-hand side with paired nonterminals, followed by the query's terminal edges."""
    partner = {edge.id: edge for edge in right.rhs.edges}
    edges = [
        Edge(e.id, names[e.label, partner[e.id].label], e.nodes) if e.label in grammar.nonterminals else e
        for e in left.rhs.edges
    ]
    taken = {edge.id for edge in left.rhs.edges}
    shared = {edge.id for edge in grammar.nonterminal_edges(left)}
    for edge in right.rhs.edges:
        if edge.id not in shared:
            fresh = edge.id
            while fresh in taken:
                fresh += "'"
            taken.add(fresh)
            edges.append(Edge(fresh, edge.label, edge.nodes))
    return Fragment(left.rhs.nodes, tuple(edges), left.rhs.external)


def _structure(grammar: Grammar, rule: Rule) -> Structure:
    """What two conjoinable rules have in common."""
    return (
        frozenset(rule.rhs.nodes),
        rule.rhs.external,
        frozenset((edge.id, edge.nodes) for edge in grammar.nonterminal_edges(rule)),
    )


def _index(query: FGG) -> dict[tuple[str, Structure], list[Rule]]:
    found: dict[tuple[str, Structure], list[Rule]] = {}
    for rule in query.rules:
        found.setdefault((rule.lhs, _structure(query.grammar, rule)), []).append(rule)
    return found


def _children(grammar: Grammar, left: Rule, right: Rule) -> list[Pair]:
    partner = {edge.id: edge.label for edge in right.rhs.edges}
    return [(edge.label, partner[edge.id]) for edge in grammar.nonterminal_edges(left)]


def _prune(grammar: Grammar, rules: dict[Pair, list[tuple[Rule, Rule]]]) -> dict[Pair, list[tuple[Rule, Rule]]]:
    """Only pairs that can be finished, and of those the ones still reached from the first, the start."""
    users: dict[Pair, list[Pair]] = {pair: [] for pair in rules}
    missing: dict[tuple[Pair, int], set[Pair]] = {}
    finished: list[Pair] = []
    for pair, chosen in rules.items():
        for i, (left, right) in enumerate(chosen):
            needs = set(_children(grammar, left, right))
            missing[pair, i] = needs
            for child in needs:
                users[child].append(pair)
            if not needs:
                finished.append(pair)
    productive: set[Pair] = set()
    while finished:
        pair = finished.pop()
        if pair in productive:
            continue
        productive.add(pair)
        for user in users[pair]:
            if any(missing[user, i] <= productive for i in range(len(rules[user]))):
                finished.append(user)
    start = next(iter(rules))
    kept: dict[Pair, list[tuple[Rule, Rule]]] = {}
    waiting = [start]
    while waiting:
        pair = waiting.pop(0)
        if pair in kept or pair not in productive:
            continue
        kept[pair] = [both for i, both in enumerate(rules[pair]) if missing[pair, i] <= productive]
        waiting.extend(child for left, right in kept[pair] for child in _children(grammar, left, right))
    return kept


def _names(pairs: Iterable[Pair], name: Callable[[Pair], str]) -> dict[Pair, str]:
    """One name per pair; where commas in the names make two pairs look alike, both are quoted."""
    plain = {pair: name(pair) for pair in pairs}
    counts = Counter(plain.values())
    return {pair: text if counts[text] == 1 else repr(pair) for pair, text in plain.items()}


def _check_names(model: FGG, query: FGG) -> None:
    for label in _common(model.domains, query.domains):
        if list(model.domains[label].values) != list(query.domains[label].values):
            raise GrammarError(f"conjoin: node label {label!r} has different domains in the two grammars; rename one.")
    for label in _common(model.grammar.terminals, query.grammar.terminals):
        types = [fgg.grammar.terminals[label] for fgg in (model, query)]
        if types[0] != types[1]:
            raise GrammarError(
                f"conjoin: terminal {label!r} has endpoints ({', '.join(types[0])}) in one grammar and "
                f"({', '.join(types[1])}) in the other; rename one."
            )
        if not same_factor(model.factors[label], query.factors[label]):
            raise GrammarError(f"conjoin: terminal {label!r} has different factors in the two grammars; rename one.")
    for left, right in ((model, query), (query, model)):
        for label in _common(left.grammar.terminals, right.grammar.nonterminals):
            raise GrammarError(f"conjoin: {label!r} is a terminal in one grammar and a nonterminal in the other.")
    if model.grammar.nonterminals[model.start] != query.grammar.nonterminals[query.start]:
        raise GrammarError(
            f"conjoin: start symbols {model.start!r} and {query.start!r} have different endpoints; make them agree."
        )


def _common(left: Mapping[str, object], right: Mapping[str, object]) -> list[str]:
    """Names in both, in a fixed order, so that the same mistake is reported every time."""
    return [label for label in left if label in right]


def same_factor(left: Factor, right: Factor) -> bool:
    if isinstance(left, Tensor) and isinstance(right, Tensor):
        return left is right or torch.equal(left, right)
    return type(left) is type(right) and left == right
