"""From parsed JSON to a factor graph grammar; the layouts are described in `json_format`."""

import math
import sys
from collections.abc import Mapping, Sequence
from json import dumps

import torch
from torch import Tensor

from rankspace.errors import FormatError, GrammarError, ShapeError
from rankspace.fgg.factor_graph_grammar import FGG, Domain
from rankspace.fgg.grammar import Grammar, Rule
from rankspace.fgg.hypergraph import Edge, Fragment, Node
from rankspace.fgg.json_places import Place, described


def read(top: Place, open_start: bool) -> FGG:
    """The FGG of a file of any of the three layouts, with float64 factors. Raises FormatError alone."""
    rules: list[Rule] = []
    entries: list[Place] = []
    try:
        grammar, interpretation = _sections(top)
        domains = _domains(interpretation)
        terminals = _terminals(grammar, interpretation)
        factors = {
            label: _factor(entry, terminals[label], domains) for label, entry in interpretation["factors"].items()
        }
        nonterminals = {label: entry["type"].texts() for label, entry in grammar["nonterminals"].items()}
        entries = grammar["rules"].elements()
        rules = [_rule(entry, number) for number, entry in enumerate(entries, start=1)]
        start = grammar["start"].text()
        names = top.get("table_names")
        return FGG(
            Grammar(start, tuple(rules), terminals, nonterminals, open_start),
            domains,
            factors,
            {} if names is None else {key: name.text() for key, name in names.items()},
        )
    except (GrammarError, ShapeError) as error:
        at_fault = [place for place, rule in zip(entries, rules, strict=False) if str(error).startswith(f"{rule}: ")]
        raise at_fault[0].error(str(error)) if at_fault else FormatError(str(error)) from None
    except RecursionError:
        raise FormatError("lists are nested too deeply.") from None


def _sections(top: Place) -> tuple[Place, Place]:
    """The object that holds the rules and the one that holds domains and factors, in any of the three layouts."""
    if top.get("grammar") is None and top.get("rules") is not None:
        return top, top
    grammar = top["grammar"]
    older = top.get("interpretation") is None and top.get("domains") is not None
    return grammar, top if older else top["interpretation"]


def _domains(interpretation: Place) -> dict[str, Domain]:
    unused = interpretation.get("unused_domains")
    entries = [*interpretation["domains"].items(), *(unused.items() if unused else ())]
    return {label: _domain(entry) for label, entry in entries}


def _domain(entry: Place) -> Domain:
    _refuse_unless(entry["class"], ("finite",))
    places = entry["values"].elements()
    tuples = entry.get("tuples")
    if tuples is not None:
        if len(tuples.elements()) != len(places):
            raise tuples.error(f"has {len(tuples.elements())} entries but values has {len(places)}; make them agree.")
        places = tuples.elements()
    values = [_value(place) for place in places]
    seen: set[object] = set()
    for place, value in zip(places, values, strict=True):
        if value in seen:
            raise place.error(f"{described(place.value)} occurs twice; values are distinct.")
        seen.add(value)
    counted = all(type(value) is int and value == i for i, value in enumerate(values))
    return Domain(range(len(values)) if counted else tuple(values))


def _value(place: Place) -> object:
    if isinstance(place.value, list):
        return tuple(_value(element) for element in place.elements())
    if isinstance(place.value, dict) or (isinstance(place.value, float) and not math.isfinite(place.value)):
        raise place.error(
            f"expected a string, a finite number, true, false, null or a list of these, found {described(place.value)}."
        )
    return place.value


def _terminals(grammar: Place, interpretation: Place) -> dict[str, tuple[str, ...]]:
    """Types of the terminals: from their own list, or where that is missing from the factors."""
    listed = grammar.get("terminals")
    types = {} if listed is None else {label: entry["type"].texts() for label, entry in listed.items()}
    for label, entry in interpretation["factors"].items():
        own = entry.get("type")
        if own is None and label not in types:
            raise entry.error(f'the key "type" is missing, and grammar.terminals does not list {label!r}; add either.')
        if own is not None and types.setdefault(label, own.texts()) != own.texts():
            raise own.error(f"grammar.terminals has the type ({', '.join(types[label])}); make them agree.")
    return types


def _factor(entry: Place, ends: Sequence[str], domains: Mapping[str, Domain]) -> Tensor:
    _refuse_unless(entry["function"], ("finite", "categorical"))
    for end in ends:
        if end not in domains:
            raise entry.error(f"its type has the node label {end!r}, which has no domain; add one.")
    weights = entry["weights"]
    _check_weights(weights, [(end, len(domains[end])) for end in ends])
    return torch.tensor(weights.value, dtype=torch.float64).reshape([len(domains[end]) for end in ends])


def _check_weights(place: Place, axes: Sequence[tuple[str, int]]) -> None:
    if not axes:
        _check_weight(place)
        return
    end, size = axes[0]
    elements = place.value
    if isinstance(elements, list) and len(elements) != size:
        raise place.error(f"expected as many entries as {end!r} has values, which is {size}, found {len(elements)}.")
    if isinstance(elements, list) and len(axes) == 1 and all(map(_is_weight, elements)):
        return  # the common case without a Place for each number
    for element in place.elements():
        _check_weights(element, axes[1:])


def _check_weight(place: Place) -> None:
    if type(place.value) not in (int, float):
        raise place.error(f"expected a number, found {described(place.value)}.")
    if not _is_weight(place.value):
        raise place.error(f"{described(place.value)} is no weight; weights are finite and >= 0.")


def _is_weight(value: object) -> bool:
    return type(value) in (int, float) and 0 <= value <= sys.float_info.max  # type: ignore[operator]


def _rule(entry: Place, number: int) -> Rule:
    lhs, rhs, name = entry["lhs"].text(), entry["rhs"], entry.get("name")
    nodes, edges, externals = rhs["nodes"].elements(), rhs["edges"].elements(), rhs.get("externals")
    node_ids, edge_ids = _identifiers(nodes, "n"), _identifiers(edges, "e")
    called = f"#{number}" if name is None else name.text()
    try:
        fragment = Fragment(
            tuple(Node(own, node["label"].text()) for own, node in zip(node_ids, nodes, strict=True)),
            tuple(
                Edge(own, edge["label"].text(), _attached(edge["attachments"], node_ids))
                for own, edge in zip(edge_ids, edges, strict=True)
            ),
            () if externals is None else _attached(externals, node_ids),
        )
    except GrammarError as error:
        raise rhs.error(f"rule {called} of {lhs}: {error}") from None
    return Rule(lhs, fragment, called)


def _identifiers(places: Sequence[Place], letter: str) -> list[str]:
    """The "id" of each node or edge; one without is called by its place, with a prime where that is taken."""
    given = [place.get("id") for place in places]
    taken = {own.text() for own in given if own is not None}
    names: list[str] = []
    for i, own in enumerate(given):
        name = f"{letter}{i}" if own is None else own.text()
        while own is None and name in taken:
            name += "'"
        names.append(name)
    return names


def _attached(numbers: Place, node_ids: Sequence[str]) -> tuple[str, ...]:
    for place in numbers.elements():
        if not 0 <= place.integer() < len(node_ids):
            count = f"{len(node_ids)} node{'' if len(node_ids) == 1 else 's'}"
            raise place.error(f"node number {place.value} is out of range; the rule has {count}.")
    return tuple(node_ids[place.integer()] for place in numbers.elements())


def _refuse_unless(place: Place, known: Sequence[str]) -> None:
    if place.text() not in known:
        kind = place.path.rpartition(".")[2]
        raise place.error(f"unknown {kind} {dumps(place.value)}; known is {' or '.join(map(dumps, known))}.")
