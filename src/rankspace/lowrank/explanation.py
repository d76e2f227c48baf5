"""What the rank-space compiler did, for people: merged factors, summed states, and costs before and after."""

from collections import Counter
from collections.abc import Collection, Iterable
from math import prod

from rankspace.fgg import FGG, Rule
from rankspace.fgg.contraction import Contraction, plan_contraction
from rankspace.lowrank.decomposition import state_labels
from rankspace.lowrank.rank_space import RankSpace


def explain(grammar: RankSpace) -> str:
    """The derivation of a rank-space grammar, line by line."""
    words = set(grammar.domains) - state_labels(grammar.original) - grammar.rank_labels
    return "\n".join(
        [
            "1. Merge the factors of each rule and decompose them",
            *_indent(_decompositions(grammar) or ["nothing to do: the grammar has rank nodes already"]),
            "2. Sum the states out, once",
            *_indent(_tables(grammar) or ["no state could be summed out"]),
            "3. The grammar over ranks",
            *_indent(f"{rule.name}: {spell(rule)}" for rule in grammar.rules),
            "Per application of a rule, words observed: largest product, and operations (two per multiply-add)",
            *_indent(_costs("original", grammar.original, words)),
            *_indent(_costs("factored", grammar.factored, words)),
            *_indent(_costs("rank space", grammar, words)),
        ]
    )


def spell(rule: Rule) -> str:
    """A rule on one line: X(r1) -> H(r1, r2) I(r1, r3) X(r2) X(r3)."""
    right = " ".join(f"{edge.label}({', '.join(edge.nodes)})" for edge in rule.rhs.edges)
    return f"{rule.lhs}({', '.join(rule.rhs.external)}) -> {right or '1'}"


def rule_flops(rule: Rule, fgg: FGG, observed: Collection[str] = ()) -> int:
    """Operations of one contraction of a right-hand side, in the order `sum_product` uses.

    Nodes with an `observed` label have one value each.
    """
    return _contraction(rule, fgg, observed).flops


def _contraction(rule: Rule, fgg: FGG, observed: Collection[str]) -> Contraction:
    sizes = tuple((node.id, 1 if node.label in observed else fgg.size(node.label)) for node in rule.rhs.nodes)
    return plan_contraction(tuple(edge.nodes for edge in rule.rhs.edges), rule.rhs.external, sizes)


def _decompositions(grammar: RankSpace) -> list[str]:
    lines: list[str] = []
    for step in grammar.decompositions:
        matrices = ", ".join(f"{m} ({', '.join(grammar.factored.grammar.terminals[m])})" for m in step.matrices)
        rank = grammar.factored.size(step.rank_label)
        lines.append(f"{step.key}: {step.source} over ({', '.join(step.nodes)}) = {matrices}, rank {rank}")
    return lines


def _tables(grammar: RankSpace) -> list[str]:
    lines: list[str] = []
    for table in grammar.steps:
        sizes = [grammar.size(axis) for axis in table.axes]
        states = grammar.factored.size(table.summed)
        count = 2 * prod(sizes) * states
        lines.append(
            f"{table.name} ({', '.join(table.axes)}) = {' * '.join(table.factors)}, "
            f"summed over {table.summed} ({states} states): {count:,} operations, once"
        )
    return lines


def _costs(title: str, fgg: FGG, words: Collection[str]) -> list[str]:
    rows = [(rule.name, _largest_pair(rule, fgg, words), f"{rule_flops(rule, fgg, words):,}") for rule in fgg.rules]
    widths = [max(len(row[i]) for row in rows) for i in range(3)]
    return [f"{title:<10} {name:<{widths[0]}}  {pair:<{widths[1]}}  {flops:>{widths[2]}}" for name, pair, flops in rows]


def _largest_pair(rule: Rule, fgg: FGG, words: Collection[str]) -> str:
    """The costliest product of a contraction, as its node labels: "N^3" for a dense binary rule."""
    joints = [tuple(dict.fromkeys(step.left + step.right)) for step in _contraction(rule, fgg, words).steps]
    labels = [[rule.rhs.label_of[node] for node in joint if rule.rhs.label_of[node] not in words] for joint in joints]
    largest = Counter(max(labels, key=lambda names: prod(fgg.size(name) for name in names), default=[]))
    return " ".join(name if power == 1 else f"{name}^{power}" for name, power in largest.items()) or "1"


def _indent(lines: Iterable[str]) -> list[str]:
    return [f"   {line}" for line in lines]
