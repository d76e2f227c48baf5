"""Recursive components of an FGG: what to solve for, the slopes of their equations, and gradients through them."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from rankspace.errors import RankspaceError
from rankspace.fgg.components import is_recursive, strong_components
from rankspace.fgg.contraction import Operand, contract
from rankspace.fgg.evaluation import Evaluator
from rankspace.fgg.factor_graph_grammar import FGG
from rankspace.fgg.fixpoint import ROUNDING, Layout, Method, Solution, solve_log
from rankspace.fgg.grammar import Rule
from rankspace.fgg.hypergraph import Edge
from rankspace.fgg.semirings import Array, Boolean, Log

Values = Mapping[str, Tensor]


def solve_components(
    fgg: FGG, support: Values, method: Method, tolerance: float, everywhere: bool = False
) -> list[tuple[list[str], Solution | None]]:
    """Components in order of evaluation; the recursive ones solved without gradients, in float64.

    `support` says which entries of each nonterminal are positive. Of those, only the ones that a derivation of the
    start symbol can use are solved for, unless `everywhere`: what others sum to, perhaps infinity, does not matter.
    """
    uses = fgg.grammar.uses
    components = strong_components(uses)
    if not any(is_recursive(component, uses) for component in components):
        return [(component, None) for component in components]
    if not everywhere:
        support = _needed(fgg, support)
    plain = Evaluator(fgg.to(torch.float64).detached(), Log())
    values: dict[str, Tensor] = {}
    result: list[tuple[list[str], Solution | None]] = []
    for component in components:
        if is_recursive(component, uses):
            solution = _solve(plain, component, values, support, method, tolerance)
            values |= Layout({label: fgg.shape_of(label) for label in component}).split(solution.log_values)
            result.append((component, solution))
        else:
            values[component[0]] = plain.nonterminal(component[0], values)
            result.append((component, None))
    return result


def attach(
    evaluator: Evaluator[Tensor], component: Sequence[str], values: Values, solution: Solution, tolerance: float
) -> dict[str, Tensor]:
    """Puts a solved component into the graph of gradients: psi = F(psi) gives d psi = (I - J)^-1 dF.

    In "real" this also holds for entries that are zero, unless a cycle of weight one or more among them makes their
    derivatives infinite; then, and in "log", these have none. Nor have entries that were not solved for. The backward
    pass raises RankspaceError where the component is so near critical that rounding shows in the gradient, and on
    second derivatives.
    """
    layout = Layout({label: evaluator.fgg.shape_of(label) for label in component})
    log_space = isinstance(evaluator.semiring, Log)
    fixed = solution.log_values if log_space else solution.log_values.exp()
    known = {**values, **layout.split(fixed.to(evaluator.fgg.dtype))}
    result = layout.join({label: evaluator.nonterminal(label, known) for label in component})
    zero = -torch.inf if log_space else 0.0
    result = torch.where(solution.support | (result == zero), result, zero)
    if not result.requires_grad:
        return {label: known[label] for label in component}
    precise = Evaluator(evaluator.fgg.to(torch.float64).detached(), evaluator.semiring)
    exact = {**{label: value.detach().double() for label, value in values.items()}, **layout.split(fixed)}
    slope = slopes(precise, component, exact)
    scale = torch.ones_like(fixed) if log_space else torch.where(fixed > 0, fixed, 1)
    slope = slope * scale / scale[:, None]  # relative to the values, so that their units do not matter
    kept = solution.support if log_space else torch.ones_like(solution.support)
    inverse = _inverse(slope, kept)
    if inverse is None:
        kept = solution.support
        inverse = _inverse(slope, kept)
    name = component[0]

    def through_recursion(gradient: Tensor | None) -> Tensor | None:
        if gradient is None:
            return None
        if torch.is_grad_enabled():
            raise RankspaceError("sum_product: second derivatives through a recursive component are not available.")
        if inverse is None or _near_critical(inverse, solution, kept, tolerance):
            raise RankspaceError(
                f"sum_product: {name!r} is too near critical for a gradient; detach the factors or scale them down."
            )
        adjoint = torch.zeros_like(gradient)
        adjoint[kept] = ((gradient.double() * scale)[kept] @ inverse / scale[kept]).to(gradient.dtype)
        return adjoint

    result.register_hook(through_recursion)
    return layout.split(result)


def slopes(evaluator: Evaluator[Tensor], component: Sequence[str], values: Values) -> Tensor:
    """The derivatives of F (in "log": of log F by log psi) over all entries of a component, from one contraction per
    rule and nonterminal edge in which that edge is left open."""
    layout = Layout({label: evaluator.fgg.shape_of(label) for label in component})
    begin = dict(zip(layout.shapes, [0, *torch.tensor(layout.sizes).cumsum(0).tolist()], strict=False))
    total = sum(layout.sizes)
    matrix = torch.zeros(total, total, dtype=torch.float64, device=evaluator.fgg.device)
    log_space = isinstance(evaluator.semiring, Log)
    for label in component:
        value = evaluator.nonterminal(label, values).reshape(-1) if log_space else None
        for rule in evaluator.fgg.grammar.rules_of[label]:
            for edge in evaluator.fgg.grammar.nonterminal_edges(rule):
                if edge.label in component:
                    block = open_edge(evaluator, rule, edge, values)
                    other = values[edge.label].reshape(-1)
                    block = block.reshape(-1, len(other))
                    if value is not None:
                        exponent = block + other - torch.where(value.isinf(), 0, value)[:, None]
                        block = torch.where(value.isinf()[:, None], 0, exponent.exp())
                    rows = slice(begin[label], begin[label] + len(block))
                    matrix[rows, begin[edge.label] : begin[edge.label] + len(other)] += block
    return matrix


def open_edge(
    evaluator: Evaluator[Array],
    rule: Rule,
    edge: Edge,
    values: Mapping[str, Array],
    outside: Array | None = None,
) -> Array:
    """A right-hand side without one nonterminal edge, over its external nodes and the endpoints of that edge.

    With `outside`, an array over the external nodes, these are multiplied by it and summed over.
    """
    semiring, fgg = evaluator.semiring, evaluator.fgg
    operands: list[Operand[Array]] = [
        operand
        for operand, other in zip(evaluator.operands(rule, values), rule.rhs.edges, strict=True)
        if other is not edge
    ]
    sizes = {node.id: fgg.size(node.label) for node in rule.rhs.nodes}
    external = list(rule.rhs.external)
    if outside is not None:
        operands.append((outside, tuple(external)))
        external = []
    ends: list[str] = []
    for place, node in enumerate(edge.nodes):
        if node in external or node in ends:  # its own axis, tied to the node by an identity
            axis = f"{node}/{place}"
            identity = torch.eye(sizes[node], dtype=fgg.dtype, device=fgg.device)
            operands.append((semiring.lift(identity), (node, axis)))
            sizes[axis] = sizes[node]
            ends.append(axis)
        else:
            ends.append(node)
    return contract(semiring, operands, [*external, *ends], sizes, fgg.like)


def _needed(fgg: FGG, support: Values) -> dict[str, Tensor]:
    """Positive entries that some derivation of the start symbol with positive weight uses."""
    evaluator = Evaluator(fgg.detached(), Boolean())
    needed = {label: torch.zeros_like(entries) for label, entries in support.items()}
    needed[fgg.start] = support[fgg.start].clone()
    changed = True
    while changed:
        changed = False
        for rule in fgg.rules:
            for edge in fgg.grammar.nonterminal_edges(rule):
                used = open_edge(evaluator, rule, edge, support, outside=needed[rule.lhs]) & support[edge.label]
                if bool((used & ~needed[edge.label]).any()):
                    needed[edge.label] = needed[edge.label] | used
                    changed = True
    return needed


def _solve(
    plain: Evaluator[Tensor],
    component: Sequence[str],
    values: Values,
    support: Values,
    method: Method,
    tolerance: float,
) -> Solution:
    layout = Layout({label: plain.fgg.shape_of(label) for label in component})
    grammar = plain.fgg.grammar
    linear = all(
        sum(edge.label in component for edge in grammar.nonterminal_edges(rule)) <= 1
        for label in component
        for rule in grammar.rules_of[label]
    )

    def function(log_values: Tensor) -> Tensor:
        known = {**values, **layout.split(log_values)}
        return layout.join({label: plain.nonterminal(label, known) for label in component})

    def slope(log_values: Tensor) -> Tensor:
        return slopes(plain, component, {**values, **layout.split(log_values)})

    name = " and ".join(repr(label) for label in component[:3]) + (" ..." if len(component) > 3 else "")
    return solve_log(function, slope, layout.join(support), name, linear, method, tolerance)


def _inverse(slope: Tensor, kept: Tensor) -> Tensor | None:
    """(I - J)^-1 over the kept entries where it is a nonnegative matrix, as it is below criticality."""
    part = slope[kept][:, kept]
    inverse, info = torch.linalg.inv_ex(torch.eye(len(part), dtype=part.dtype, device=part.device) - part)
    if not bool(inverse.isfinite().all()) or int(info) != 0:
        return None
    largest = inverse.abs().max() if inverse.numel() else 0
    return inverse if bool((inverse >= -1e-6 * largest).all()) else None


def _near_critical(inverse: Tensor, solution: Solution, kept: Tensor, tolerance: float) -> bool:
    """Whether rounding moves gradients by more than a relative tolerance: as the norm of the inverse, or as its square
    where the slopes depend on the solution."""
    support = solution.support[kept]
    norm = float(inverse[support][:, support].abs().sum(1).max()) if bool(support.any()) else 0.0
    return ROUNDING * norm * (1 if solution.linear else norm) > tolerance
