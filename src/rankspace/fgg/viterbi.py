"""The best derivation, traced back through the values of the max semiring."""

from collections.abc import Mapping
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from rankspace.fgg.components import strong_components
from rankspace.fgg.contraction import Operand, contract
from rankspace.fgg.derivations import Derivation
from rankspace.fgg.evaluation import Evaluator
from rankspace.fgg.factor_graph_grammar import FGG
from rankspace.fgg.grammar import Rule
from rankspace.fgg.semirings import Max

History = Mapping[str, list[Tensor]]  # log-weights of each nonterminal after every round; one round if not recursive


def best_derivation(fgg: FGG, history: History) -> Derivation | None:
    """A derivation of the start symbol, with the assignment of its nodes, that attains the best log-weight.

    A recursive value is traced to the round in which it was reached, whose parts were reached in earlier rounds, so
    the trace ends also where a cycle of weight one offers itself. Ties go to the first rule and the lowest value.
    None when nothing has positive weight.
    """
    if history[fgg.start][-1] == -torch.inf:
        return None
    tracer = _Tracer(fgg, {label: [values.detach() for values in rounds] for label, rounds in history.items()})
    root: dict[str, Derivation] = {}
    waiting = [_Task(root, "", fgg.start, (), len(history[fgg.start]) - 1)]
    while waiting:  # a stack, since derivations of long sentences are deep
        waiting.extend(tracer.expand(waiting.pop()))
    return root[""]


class _Task(NamedTuple):
    """Derive `label` with its endpoints at `ends`, as it stood after `last` rounds, into `siblings[edge]`."""

    siblings: dict[str, Derivation]
    edge: str
    label: str
    ends: tuple[int, ...]
    last: int


class _Tracer:
    def __init__(self, fgg: FGG, history: History) -> None:
        self.fgg = fgg
        self.history = history
        self.evaluator = Evaluator(fgg.detached(), Max())
        self.component = {name: part for part in strong_components(fgg.grammar.uses) for name in part}

    def expand(self, task: _Task) -> list[_Task]:
        """Chooses rule and assignment of one entry; the entries it is made of are the next tasks."""
        rounds = self.history[task.label]
        value = rounds[task.last][task.ends]
        reached = next(i for i, values in enumerate(rounds) if values[task.ends] == value)
        here = self.component[task.label] if len(rounds) > 1 else []
        rules = self.fgg.grammar.rules_of[task.label]
        below = {edge.label for rule in rules for edge in self.fgg.grammar.nonterminal_edges(rule)}
        known = {name: self.history[name][reached - 1 if name in here else -1] for name in below}
        rule = max(rules, key=partial(self._value, ends=task.ends, known=known))
        chosen = dict(zip(rule.rhs.external, task.ends, strict=True))
        for node in rule.rhs.nodes:
            if node.id not in chosen:
                chosen[node.id] = int(self._restricted(rule, chosen, known, node.id).argmax())
        children: dict[str, Derivation] = {}
        task.siblings[task.edge] = Derivation(rule, children, chosen)
        return [
            _Task(
                children,
                edge.id,
                edge.label,
                tuple(chosen[node] for node in edge.nodes),
                reached - 1 if edge.label in here else len(self.history[edge.label]) - 1,
            )
            for edge in self.fgg.grammar.nonterminal_edges(rule)
        ]

    def _value(self, rule: Rule, ends: tuple[int, ...], known: Mapping[str, Tensor]) -> float:
        return float(self._restricted(rule, dict(zip(rule.rhs.external, ends, strict=True)), known, None))

    def _restricted(
        self, rule: Rule, chosen: Mapping[str, int], known: Mapping[str, Tensor], output: str | None
    ) -> Tensor:
        """Best log-weight of a right-hand side with some nodes fixed, for each value of the output node."""
        operands: list[Operand[Tensor]] = []
        for array, nodes in self.evaluator.operands(rule, known):
            place = tuple(chosen.get(node, slice(None)) for node in nodes)
            operands.append((array[place], tuple(node for node in nodes if node not in chosen)))
        sizes = {node.id: self.fgg.size(node.label) for node in rule.rhs.nodes if node.id not in chosen}
        return contract(self.evaluator.semiring, operands, [output] if output else [], sizes, self.fgg.like)
