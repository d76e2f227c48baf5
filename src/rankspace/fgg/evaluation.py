"""The two inference equations of section 2.1.3, in any semiring."""

from collections.abc import Mapping
from functools import reduce
from typing import Generic

from rankspace.fgg.contraction import Operand, contract
from rankspace.fgg.factor_graph_grammar import FGG
from rankspace.fgg.grammar import Rule
from rankspace.fgg.semirings import Array, Semiring


class Evaluator(Generic[Array]):
    """Applies the rules of an FGG to given values of its nonterminals; lifts each factor once."""

    def __init__(self, fgg: FGG, semiring: Semiring[Array]) -> None:
        self.fgg = fgg
        self.semiring = semiring
        self.factors = {label: semiring.lift(weights) for label, weights in fgg.tensors.items()}

    def operands(self, rule: Rule, values: Mapping[str, Array]) -> list[Operand[Array]]:
        """The arrays of a rule's edges with the nodes they join."""
        return [
            (self.factors[edge.label] if edge.label in self.factors else values[edge.label], edge.nodes)
            for edge in rule.rhs.edges
        ]

    def rule(self, rule: Rule, values: Mapping[str, Array]) -> Array:
        """tau_R: the product of a right-hand side's edges, summed over its internal nodes."""
        sizes = {node.id: self.fgg.size(node.label) for node in rule.rhs.nodes}
        return contract(self.semiring, self.operands(rule, values), rule.rhs.external, sizes, self.fgg.like)

    def nonterminal(self, label: str, values: Mapping[str, Array]) -> Array:
        """psi_X: the sum of tau_R over the rules of X."""
        return reduce(self.semiring.add, [self.rule(rule, values) for rule in self.fgg.grammar.rules_of[label]])

    def zeros(self, label: str) -> Array:
        return self.semiring.zeros(self.fgg.shape_of(label), self.fgg.like)
