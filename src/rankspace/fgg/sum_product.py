"""The sum-product of any FGG in any of six semirings: the reference that everything faster is checked against."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, NamedTuple, get_args, overload

import numpy as np
import torch
from torch import Tensor

from rankspace.errors import DivergenceError, RankspaceError
from rankspace.fgg.components import is_recursive, strong_components
from rankspace.fgg.conjunction import impossible
from rankspace.fgg.derivations import Derivation
from rankspace.fgg.evaluation import Evaluator
from rankspace.fgg.factor_graph_grammar import FGG
from rankspace.fgg.fixpoint import Layout, Method, Solution, iterate_exactly
from rankspace.fgg.recursion import attach, slopes, solve_components
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
    return _differentiable_values(fgg, Log(), method, tolerance, everywhere=True)


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
    """Z by plain arithmetic, or by way of its logarithm where a product on the way left the range of the dtype."""
    plain = _real_values(fgg, method, tolerance)[fgg.start]
    careful = _log(fgg, method, tolerance).exp()
    if bool((careful == torch.inf).any()):
        raise DivergenceError(f'sum_product: Z is finite but too large for {fgg.dtype}; ask for it in "log".')
    # both are good to a few hundred roundings: a larger difference means that something was lost
    same = torch.isclose(plain, careful, rtol=torch.finfo(plain.dtype).eps ** 0.5, atol=0)
    return plain if bool(same.all()) else careful


def _real_values(fgg: FGG, method: Method, tolerance: float) -> dict[str, Tensor]:
    if torch.is_grad_enabled() and any(factor.requires_grad for factor in fgg.tensors.values()):
        try:  # what nothing uses is the derivative by the zero weight that keeps it from being used
            return _differentiable_values(fgg, Real(), method, tolerance, everywhere=True)
        except DivergenceError:
            pass
    return _differentiable_values(fgg, Real(), method, tolerance)


def _log(fgg: FGG, method: Method, tolerance: float) -> Tensor:
    result = _differentiable_values(fgg, Log(), method, tolerance)[fgg.start]
    return torch.where(result == -torch.inf, -torch.inf, result)  # without a gradient where nothing is possible


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
    plain = Evaluator(evaluator.fgg.to(torch.float64).detached(), Log())
    exact = {label: log.double() for label, (log, _) in values.items()} | layout.split(solution.log_values)
    slope = slopes(plain, component, exact)[solution.support][:, solution.support]
    mean = torch.zeros_like(rest, dtype=torch.float64)
    identity = torch.eye(len(slope), dtype=torch.float64, device=mean.device)
    mean[solution.support] = torch.linalg.solve(identity - slope, rest[solution.support].double())
    means = layout.split(mean.to(rest.dtype))
    return {label: (log_values[label], means[label]) for label in component}


def _components(
    fgg: FGG, method: Method, tolerance: float, everywhere: bool = False
) -> list[tuple[list[str], Solution | None]]:
    support = {label: history[-1] for label, history in _exact_values(fgg, Boolean()).items()}
    return solve_components(fgg, support, method, tolerance, everywhere)


def _differentiable_values(
    fgg: FGG, semiring: Real | Log, method: Method, tolerance: float, everywhere: bool = False
) -> dict[str, Tensor]:
    evaluator = Evaluator(fgg, semiring)
    values: dict[str, Tensor] = {}
    for component, solution in _components(fgg, method, tolerance, everywhere):
        if solution is None:
            values[component[0]] = evaluator.nonterminal(component[0], values)
        else:
            values |= attach(evaluator, component, values, solution, tolerance)
    return values


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
