"""B-FGGs: definition 6 of the paper, the grammars whose inference can be carried out in rank space."""

from typing import NamedTuple

from rankspace.fgg import FGG, Rule


class Verdict(NamedTuple):
    """Whether an FGG is a B-FGG (the truth value of the verdict), and the first reason why not."""

    is_b_fgg: bool
    reason: str = ""

    def __bool__(self) -> bool:
        return self.is_b_fgg


def is_b_fgg(fgg: FGG) -> Verdict:
    """Whether every right-hand side has exactly one external node, untouched by nonterminal edges.

    Rules of the start symbol have no external node. The reason names rule and node.
    """
    for rule in fgg.rules:
        reason = _fault(fgg, rule)
        if reason:
            return Verdict(False, f"{rule}: {reason}")
    return Verdict(True)


def _fault(fgg: FGG, rule: Rule) -> str:
    external = rule.rhs.external
    if rule.lhs == fgg.start:
        return f"the start symbol has external node {external[0]!r}; it takes none." if external else ""
    if not external:
        return "there is no external node; it takes exactly one."
    if len(external) > 1:
        names = ", ".join(repr(node) for node in external)
        return f"there are {len(external)} external nodes ({names}); put them into one product node."
    for edge in fgg.grammar.nonterminal_edges(rule):
        if external[0] in edge.nodes:
            return f"nonterminal edge {edge.id!r} with label {edge.label!r} touches the external node {external[0]!r}."
    return ""
