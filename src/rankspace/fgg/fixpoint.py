"""Least solutions of recursive components: psi = F(psi), where F is a polynomial with nonnegative coefficients.

Newton's method from below (Etessami & Yannakakis, 2009) runs on logarithms of the unknowns that are not zero, so that
no scale is too large or too small for it. With s = log psi, the relative system is G_i(u) = F_i(e^s u) / e^s_i and its
Jacobian at u = 1 is J. The solution is finite exactly when J has spectral radius below one, that is when
(I - J) y = 1 has a solution y >= 1; then max y is the norm of (I - J)^-1, which bounds every error made.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from rankspace.errors import DivergenceError
from rankspace.fgg.evaluation import Evaluator
from rankspace.fgg.semirings import Array

Method = Literal["auto", "newton", "fixed-point"]

LARGEST_NEWTON = 4096  # unknowns: the Jacobian is dense, so this many take 128 MiB in float64
ROUNDING = 8 * torch.finfo(torch.float64).eps  # relative rounding of a short sum of products


class Layout:
    """Where the entries of each nonterminal of a component stand in one long vector."""

    def __init__(self, shapes: Mapping[str, tuple[int, ...]]) -> None:
        self.shapes = dict(shapes)
        self.sizes = [torch.Size(shape).numel() for shape in shapes.values()]

    def join(self, values: Mapping[str, Tensor]) -> Tensor:
        return torch.cat([values[label].reshape(-1) for label in self.shapes])

    def split(self, vector: Tensor) -> dict[str, Tensor]:
        parts = vector.split(self.sizes)
        return {label: part.reshape(shape) for (label, shape), part in zip(self.shapes.items(), parts, strict=True)}


class Solution(NamedTuple):
    """log psi of a component, -inf off its support, and whether no rule uses the component twice."""

    log_values: Tensor
    support: Tensor
    linear: bool


def solve_log(
    function: Callable[[Tensor], Tensor],
    slopes: Callable[[Tensor], Tensor],
    support: Tensor,
    name: str,
    linear: bool,
    method: Method,
    tolerance: float,
) -> Solution:
    """The least solution of log psi = function(log psi), in float64, without gradients.

    `slopes` are the derivatives of the function; `support` says which entries are positive and wanted; `linear` whether
    no rule uses the component twice. Raises DivergenceError when the solution is infinite, near critical (an error
    bound above `tolerance`), or not reached.
    """
    count = int(support.sum())
    full = torch.full(support.shape, -torch.inf, dtype=torch.float64, device=support.device)
    if count == 0:
        return Solution(full, support, linear)

    def reduced(log_values: Tensor) -> Tensor:
        return function(full.masked_scatter(support, log_values))[support]

    def reduced_slopes(log_values: Tensor) -> Tensor:
        return slopes(full.masked_scatter(support, log_values))[support][:, support]

    start = full[support]
    for _ in range(count):
        if bool((start > -torch.inf).all()):
            break
        start = reduced(start)
    if method == "fixed-point" or (method == "auto" and len(support) > LARGEST_NEWTON):
        solved = _iterate(reduced, start, name, tolerance)
    else:
        solved = _newton(reduced, reduced_slopes, start, name, linear, tolerance)
    return Solution(full.masked_scatter(support, solved), support, linear)


def _newton(
    function: Callable[[Tensor], Tensor],
    slopes: Callable[[Tensor], Tensor],
    log_values: Tensor,
    name: str,
    linear: bool,
    tolerance: float,
) -> Tensor:
    identity = torch.eye(len(log_values), dtype=log_values.dtype, device=log_values.device)
    for _ in range(200):
        ratio = (function(log_values) - log_values).exp()
        slope = slopes(log_values)
        condition = _condition(identity - ratio[:, None] * slope)
        if condition is None:
            raise DivergenceError(
                f"sum_product: the sum over derivations of {name} is infinite (or too close to it to tell in float64); "
                f"scale its factors down, or observe a sentence first."
            )
        residual = ratio - 1
        noise = ROUNDING * (1 + float(log_values.abs().max()))  # rounding of a logarithm grows with its size
        if float(residual.abs().max()) <= noise:
            _refuse_near_critical(name, condition, noise, linear, tolerance)
            return log_values
        step = torch.linalg.solve(identity - ratio[:, None] * slope, residual)
        log_values = log_values + step.clamp(min=-0.5).log1p()
    raise DivergenceError(
        f"sum_product: Newton's method did not converge on {name} in 200 steps (relative residual "
        f"{float(residual.abs().max()):.1e}); scale its factors down, or observe a sentence first."
    )


def _condition(matrix: Tensor) -> float | None:
    """The norm of the inverse of I - J, or None when J has spectral radius one or more."""
    ones = torch.ones(len(matrix), dtype=matrix.dtype, device=matrix.device)
    if not bool(matrix.isfinite().all()):
        return None
    solution, info = torch.linalg.solve_ex(matrix, ones)
    healthy = int(info) == 0 and bool(solution.isfinite().all()) and bool((solution >= 1 - 1e-6).all())
    return float(solution.max()) if healthy else None


def _refuse_near_critical(name: str, condition: float, noise: float, linear: bool, tolerance: float) -> None:
    """Refuses what rounding of the coefficients could move by more than `tolerance`, or make infinite.

    A relative change of size `noise` in the coefficients moves the solution by noise * condition. Where the system has
    curvature it also removes the solution once noise * condition^2 comes near one half.
    """
    if noise * condition > tolerance or (not linear and noise * condition**2 > 1e-2):
        raise DivergenceError(
            f"sum_product: {name} is within {1 / condition:.1e} of critical, where its sum over derivations becomes "
            f"infinite; float64 cannot give it to {tolerance:.0e}. Scale its factors down, or observe a sentence first."
        )


def _iterate(function: Callable[[Tensor], Tensor], log_values: Tensor, name: str, tolerance: float) -> Tensor:
    """Plain iteration, which needs no Jacobian. Stops when the geometric tail of the changes is below 1e-12.

    Gives up after 100,000 rounds, or 1,000 in a row in which the changes do not shrink.
    """
    change = previous = torch.inf
    steady = 0
    for _ in range(100_000):
        following = function(log_values)
        previous, change = change, float((following - log_values).abs().max())
        log_values = following
        steady = steady + 1 if change >= previous else 0
        if not change < torch.inf or steady >= 1000:
            break
        rate = change / previous if previous < torch.inf else 1.0  # one change alone tells no rate
        noise = ROUNDING * (1 + float(log_values.abs().max()))
        if change <= noise or (rate < 1 and change * rate / (1 - rate) < min(tolerance, 1e-12)):
            return log_values
    raise DivergenceError(
        f"sum_product: fixed-point iteration did not converge on {name} (last relative change {change:.1e}); its sum "
        f"over derivations is infinite or near critical. Scale its factors down, or observe a sentence first."
    )


def iterate_exactly(
    evaluator: Evaluator[Array],
    component: Sequence[str],
    values: Mapping[str, Array],
    settle: Callable[[Array, Array], tuple[Array, bool]],
    limit: int,
    name: str,
) -> list[dict[str, Array]]:
    """Values after 0, 1, 2, ... rounds until nothing changes, for semirings in which that is exact.

    A derivation worth keeping repeats no (nonterminal, assignment) on a path, so `limit` rounds (the number of those)
    suffice; a value that still changes grows for ever. `settle` takes an old and a following value and gives the one
    to go on with and whether nothing changed.
    """
    history = [{label: evaluator.zeros(label) for label in component}]
    for _ in range(limit + 1):
        known = {**values, **history[-1]}
        settled = {label: settle(history[-1][label], evaluator.nonterminal(label, known)) for label in component}
        history.append({label: value for label, (value, _) in settled.items()})
        if all(same for _, same in settled.values()):
            return history
    raise DivergenceError(
        f"sum_product: the value of {name} grows without end around its cycle; observe a sentence first, or in "
        f'"max" scale its factors down.'
    )
