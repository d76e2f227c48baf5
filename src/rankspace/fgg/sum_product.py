"""The sum-product of any FGG in any of six semirings: the reference that everything faster is checked against."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, NamedTuple, get_args, overload

import numpy as np
import torch
from torch import Tensor

from rankspace.errors import RankspaceError
from rankspace.fgg.components import is_recursive, strong_components
from rankspace.fgg.conjunction import impossible
from rankspace.fgg.derivations import Derivation
from rankspace.fgg.evaluation import Evaluator
from rankspace.fgg.factor_graph_grammar import FGG
from rankspace.fgg.fixpoint import Layout, Method, Solution, iterate_exactly, solve_log
from rankspace.fgg.semirings import Array, Boolean, Counting, Expectation, Log, Max, Real, Semiring
from rankspace.fgg.viterbi import History, best_derivation

SemiringName = Literal["real", "log", "max", "boolean", "counting", "entropy"]


class Best(NamedTuple):
    """log max over derivations and assignments of the weight, and a derivation that attains it (None if none can)."""

    log_weight: Tensor
    derivation: Derivation | None


class Entropy(NamedTuple):
    """log Z, and -sum p log p over derivations and assignments with p = weight / Z (zero where Z is zero)."""

    log_z: Tensor
    entropy: Tensor


@overload
def sum_product(
    fgg: FGG, semiring: Literal["real", "log", "boolean"] = ..., *, method: Method = ..., tolerance: float = ...
) -> Tensor: ...
@overload
def sum_product(fgg: FGG, semiring: Literal["max"], *, method: Method = ..., tolerance: float = ...) -> Best: ...
@overload
def sum_product(
    fgg: FGG, semiring: Literal["counting"], *, method: Method = ..., tolerance: float = ...
) -> int | np.ndarray: ...
@overload
def sum_product(fgg: FGG, semiring: Literal["entropy"], *, method: Method = ..., tolerance: float = ...) -> Entropy: ...
def sum_product(
    fgg: FGG, semiring: SemiringName = "real", *, method: Method = "auto", tolerance: float = 1e-6
) -> Tensor | Best | int | np.ndarray | Entropy:
    """Sum over all derivations D and assignments xi of the weight w(D, xi) (section 2.1.3).

    | semiring | result |
    | --- | --- |
    | "real" | Z |
    | "log" | log Z; -inf if nothing has positive weight |
    | "max" | `Best`: log-weight of the best (D, xi), and the derivation with its assignment |
    | "boolean" | whether any (D, xi) has positive weight |
    | "counting" | how many (D, xi) have positive weight, an exact integer |
    | "entropy" | `Entropy`: log Z and the entropy of the distribution over (D, xi) |

    Nonterminals are evaluated in topological order; a recursive component is solved in float64 by Newton's method
    (`method="auto"` turns to fixed-point iteration above 4,096 unknowns). Each rule is contracted pairwise, so the
    joint table of a right-hand side is never formed. "real" and "log" are differentiable in the factors, also through
    recursion (implicitly; first derivatives). In "log", weights that are exactly zero get gradient zero; "real" gives
    the true derivative there too. With an open start symbol the result is an array over its endpoints.

    Raises DivergenceError when Z is infinite, when a component is so near critical that float64 cannot give it to a
    relative error of `tolerance`, or when the iteration does not converge.
    """
    solver = _SOLVERS.get(semiring)
    if solver is None:
        raise RankspaceError(f"sum_product: unknown semiring {semiring!r}; choose one of {', '.join(_SOLVERS)}.")
    if method not in get_args(Method):
        raise RankspaceError(f"sum_product: unknown method {method!r}; choose one of {', '.join(get_args(Method))}.")
    result: Tensor | Best | int | np.ndarray | Entropy = solver(_useful_part(fgg), method, tolerance)
    return result


def nonterminal_values(fgg: FGG, *, method: Method = "auto", tolerance: float = 1e-6) -> dict[str, Tensor]:
    """log psi_X of every nonterminal, as `sum_product(fgg, "log")` computes them."""
    return _differentiable_values(fgg, Log(), method, tolerance)


def _useful_part(fgg: FGG) -> FGG:
    """The FGG without rules that no derivation of the start symbol uses: what they sum to does not matter."""
    rules = fgg.grammar.useful_rules
    if len(rules) == len(fgg.rules):
        return fgg
    if not rules:
        return impossible(fgg, fgg.start)
    left = {rule.lhs for rule in rules}
    nonterminals = {label: ends for label, ends in fgg.grammar.nonterminals.items() if label in left}
    return replace(fgg, grammar=replace(fgg.grammar, rules=rules, nonterminals=nonterminals))


def _real(fgg: FGG, method: Method, tolerance: float) -> Tensor:
    return _differentiable_values(fgg, Real(), method, tolerance)[fgg.start]


def _log(fgg: FGG, method: Method, tolerance: float) -> Tensor:
    return _differentiable_values(fgg, Log(), method, tolerance)[fgg.start]


def _boolean(fgg: FGG, method: Method, tolerance: float) -> Tensor:
    return _exact_values(fgg, Boolean())[fgg.start][-1]


def _counting(fgg: FGG, method: Method, tolerance: float) -> int | np.ndarray:
    result = _exact_values(fgg, Counting())[fgg.start][-1]
    return int(result.item()) if result.ndim == 0 else result


def _max(fgg: FGG, method: Method, tolerance: float) -> Best:
    if fgg.grammar.nonterminals[fgg.start]:
        raise RankspaceError("sum_product: the best derivation needs a start symbol without endpoints.")
    precise = fgg.to(torch.float64)  # so that rounding around a cycle is told from growth
    history: History = _exact_values(precise, Max())
    return Best(history[fgg.start][-1].to(fgg.dtype), best_derivation(precise, history))


def _entropy(fgg: FGG, method: Method, tolerance: float) -> Entropy:
    evaluator = Evaluator(fgg, Expectation())
    values: dict[str, tuple[Tensor, Tensor]] = {}
    for component, solution in _components(fgg, method, tolerance):
        if solution is None:
            values[component[0]] = evaluator.nonterminal(component[0], values)
            continue
        if any(factor.requires_grad for factor in fgg.tensors.values()):
            raise RankspaceError(
                "sum_product: the entropy of a recursive grammar has no gradient here; detach the factors."
            )
        values |= _recursive_means(evaluator, component, values, solution)
    log_z, mean = values[fgg.start]
    return Entropy(log_z, torch.where(log_z.isinf(), 0, log_z - mean))


def _recursive_means(
    evaluator: Evaluator[tuple[Tensor, Tensor]],
    component: Sequence[str],
    values: Mapping[str, tuple[Tensor, Tensor]],
    solution: Solution,
) -> dict[str, tuple[Tensor, Tensor]]:
    """Mean log-weights m solve m = A m + c: A weighs the component's own symbols, c is the mean of all the rest."""
    layout = Layout({label: evaluator.fgg.shape_of(label) for label in component})
    log_values = layout.split(solution.log_values.to(evaluator.fgg.dtype))
    known = dict(values) | {label: (log, torch.zeros_like(log)) for label, log in log_values.items()}
    rest = layout.join({label: evaluator.nonterminal(label, known)[1] for label in component})
    if solution.jacobian is None:
        raise RankspaceError("sum_product: the entropy of a recursive grammar needs method='newton'.")
    mean = torch.zeros_like(rest, dtype=torch.float64)
    identity = torch.eye(len(solution.jacobian), dtype=torch.float64, device=mean.device)
    mean[solution.support] = torch.linalg.solve(identity - solution.jacobian, rest[solution.support].double())
    means = layout.split(mean.to(rest.dtype))
    return {label: (log_values[label], means[label]) for label in component}


def _components(fgg: FGG, method: Method, tolerance: float) -> list[tuple[list[str], Solution | None]]:
    """Components in order, the recursive ones solved without gradients in float64."""
    uses = fgg.grammar.uses
    components = strong_components(uses)
    if not any(is_recursive(component, uses) for component in components):
        return [(component, None) for component in components]
    support = {label: history[-1] for label, history in _exact_values(fgg, Boolean()).items()}
    plain = Evaluator(fgg.to(torch.float64).detached(), Log())
    values: dict[str, Tensor] = {}
    result: list[tuple[list[str], Solution | None]] = []
    for component in components:
        if not is_recursive(component, uses):
            values[component[0]] = plain.nonterminal(component[0], values)
            result.append((component, None))
            continue
        solution = _solve(plain, component, values, support, method, tolerance)
        values |= Layout({label: fgg.shape_of(label) for label in component}).split(solution.log_values)
        result.append((component, solution))
    return result


def _solve(
    plain: Evaluator[Tensor],
    component: Sequence[str],
    values: Mapping[str, Tensor],
    support: Mapping[str, Tensor],
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

    name = " and ".join(repr(label) for label in component[:3]) + (" ..." if len(component) > 3 else "")
    return solve_log(function, layout.join(support), name, linear, method, tolerance)


def _differentiable_values(fgg: FGG, semiring: Real | Log, method: Method, tolerance: float) -> dict[str, Tensor]:
    evaluator = Evaluator(fgg, semiring)
    values: dict[str, Tensor] = {}
    for component, solution in _components(fgg, method, tolerance):
        if solution is None:
            values[component[0]] = evaluator.nonterminal(component[0], values)
        else:
            values |= _attach(evaluator, component, values, solution, tolerance)
    return values


def _attach(
    evaluator: Evaluator[Tensor],
    component: Sequence[str],
    values: Mapping[str, Tensor],
    solution: Solution,
    tolerance: float,
) -> dict[str, Tensor]:
    """Puts a solved component into the graph of gradients: psi = F(psi) gives d psi = (I - J)^-1 dF."""
    layout = Layout({label: evaluator.fgg.shape_of(label) for label in component})
    log_space = isinstance(evaluator.semiring, Log)
    fixed = solution.log_values if log_space else solution.log_values.exp()
    fixed = fixed.to(evaluator.fgg.dtype)

    def function(vector: Tensor) -> Tensor:
        known = {**values, **layout.split(vector)}
        return layout.join({label: evaluator.nonterminal(label, known) for label in component})

    result = function(fixed)
    if not result.requires_grad:
        return layout.split(fixed)
    slope = torch.autograd.functional.jacobian(function, fixed, vectorize=True).double()
    scale = torch.ones_like(slope[0]) if log_space else torch.where(fixed > 0, fixed, 1).double()
    slope = slope * scale / scale[:, None]  # relative to the values, so that their units do not matter
    kept = solution.support if log_space else torch.ones_like(solution.support)
    inverse = _inverse(slope, kept)
    if inverse is None:
        kept = solution.support
        inverse = _inverse(slope, kept)
    if inverse is None or _near_critical(inverse, solution.support[kept], tolerance):
        raise _no_gradient(component)

    def through_recursion(gradient: Tensor | None) -> Tensor | None:
        if gradient is None:
            return None
        if torch.is_grad_enabled():
            raise RankspaceError("sum_product: second derivatives through a recursive component are not available.")
        adjoint = torch.zeros_like(gradient)
        adjoint[kept] = ((gradient.double() * scale)[kept] @ inverse / scale[kept]).to(gradient.dtype)
        return adjoint

    result.register_hook(through_recursion)
    return layout.split(result)


def _inverse(slope: Tensor, kept: Tensor) -> Tensor | None:
    """(I - J)^-1 over the kept entries where it is a nonnegative matrix, as it is below criticality."""
    part = slope[kept][:, kept]
    inverse, info = torch.linalg.inv_ex(torch.eye(len(part), dtype=part.dtype, device=part.device) - part)
    if not bool(inverse.isfinite().all()) or int(info) != 0:
        return None
    largest = inverse.abs().max() if inverse.numel() else 0
    return inverse if bool((inverse >= -1e-6 * largest).all()) else None


def _near_critical(inverse: Tensor, support: Tensor, tolerance: float) -> bool:
    """Whether rounding in the slopes of the positive values moves gradients by more than a relative tolerance."""
    norm = float(inverse[support][:, support].abs().sum(1).max()) if bool(support.any()) else 0.0
    return 1e-15 * norm**2 > tolerance


def _no_gradient(component: Sequence[str]) -> RankspaceError:
    return RankspaceError(
        f"sum_product: {component[0]!r} is too near critical for a gradient; detach the factors or scale them down."
    )


def _exact_values(fgg: FGG, semiring: Semiring[Array]) -> dict[str, list[Array]]:
    """Values after each round (one round where there is no recursion), in semirings where iteration ends."""
    evaluator = Evaluator(fgg, semiring)
    uses = fgg.grammar.uses
    values: dict[str, Array] = {}
    history: dict[str, list[Array]] = {}
    for component in strong_components(uses):
        if is_recursive(component, uses):
            limit = sum(torch.Size(fgg.shape_of(label)).numel() for label in component)
            settle = _settle_max(evaluator, limit) if isinstance(semiring, Max) else _settle
            rounds = iterate_exactly(evaluator, component, values, settle, limit, repr(component[0]))
        else:
            rounds = [{component[0]: evaluator.nonterminal(component[0], values)}]
        for label in component:
            history[label] = [values_then[label] for values_then in rounds]
            values[label] = history[label][-1]
    return history


def _settle(old: Any, following: Any) -> tuple[Any, bool]:
    same = torch.equal(old, following) if isinstance(old, Tensor) else bool(np.array_equal(old, following))
    return following, same


def _settle_max(evaluator: Evaluator[Any], length: int) -> Callable[[Any, Any], tuple[Any, bool]]:
    """Keeps what grew by no more than the rounding of a cycle of that length: cycles of weight one come to rest."""
    weights = torch.cat([torch.zeros(1), *(f.detach().flatten().cpu() for f in evaluator.factors.values())])
    largest = float(weights[weights.isfinite()].abs().max())

    def settle(old: Tensor, following: Tensor) -> tuple[Tensor, bool]:
        scale = 1 + largest + torch.where(old.isfinite(), old, 0).abs()
        grown = following > old + 4 * torch.finfo(old.dtype).eps * length * scale
        return torch.where(grown, following, old), not bool(grown.any())

    return settle


_SOLVERS: dict[str, Callable[[FGG, Method, float], Any]] = {
    "real": _real,
    "log": _log,
    "max": _max,
    "boolean": _boolean,
    "counting": _counting,
    "entropy": _entropy,
}
