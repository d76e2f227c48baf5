"""Canonical polyadic decomposition (CPD): a nonnegative tensor as a sum of `rank` outer products.

    F[x_0, ..., x_k] = sum_q  weights[q] * matrices[0][q, x_0] * ... * matrices[k][q, x_k]

It is what rank space starts from: the factor of a rule becomes one matrix per endpoint, and they meet in a rank node.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from rankspace.errors import DecompositionError, ShapeError
from rankspace.lowrank.fitting import multiply_out, one_hot, search

# A row of probabilities sums to one within this: a float32 softmax over 10,000 words is off by up to 3e-6, while a
# row normalised over the wrong axis is off by far more.
SUM_TOLERANCE = 1e-5


@dataclass(frozen=True, eq=False)
class CPD:
    """Matrices [rank, dimension_i], one for each endpoint, and optional weights [rank] (left out: all ones).

    Every entry must be finite and at least 0, and all tensors must share one rank, dtype and device; otherwise
    `ShapeError` or `DecompositionError` is raised.
    """

    matrices: tuple[Tensor, ...]
    weights: Tensor | None = None

    def __post_init__(self) -> None:
        if not self.matrices:
            raise ShapeError("CPD: there are no matrices; give one [rank, dimension] for each endpoint.")
        _check_ranks("CPD", [(f"matrix {i}", matrix, 0) for i, matrix in enumerate(self.matrices)])
        named = [(f"matrix {i}", matrix) for i, matrix in enumerate(self.matrices)]
        if self.weights is not None:
            if self.weights.shape != (self.rank,):
                raise ShapeError(
                    f"CPD: weights have shape {tuple(self.weights.shape)} but the matrices have rank {self.rank}; "
                    f"give one weight for each rank."
                )
            named.append(("weights", self.weights))
        for name, tensor in named:
            _check_kind(name, tensor, self.matrices[0])
            _check_entries("CPD", name, tensor)

    @classmethod
    def conditional(
        cls,
        state_to_rank: Float[Tensor, "state _rank"],
        *rank_to: Float[Tensor, "_rank _dimension"],
        tolerance: float = SUM_TOLERANCE,
    ) -> "CPD":
        """The CPD of p(x_1, ..., x_k | x_0) = sum_q p(q | x_0) prod_i p(x_i | q).

        The last axis of every argument sums to one, within `tolerance`. The matrices are `state_to_rank`
        transposed, then `rank_to` as they stand.
        """
        tables = [("state_to_rank", state_to_rank, 1), *((f"rank_to {i}", table, 0) for i, table in enumerate(rank_to))]
        _check_ranks("CPD.conditional", tables)
        for name, table, _ in tables:
            _check_entries("CPD.conditional", name, table)
            _check_sums(name, table, tolerance)
        return cls((state_to_rank.T, *rank_to))

    @classmethod
    def fit(
        cls,
        tensor: Float[Tensor, "..."],
        rank: int,
        *,
        seed: int = 0,
        restarts: int = 10,
        max_iterations: int = 2000,
        tolerance: float = 1e-7,
    ) -> "Fit":
        """The best nonnegative CPD of `tensor` found from up to `restarts` starts, each of up to `max_iterations`.

        Stops at the first start that reaches the relative error `tolerance` (the default lies just above the rounding
        of a float32 tensor); `check` tells whether the result is good enough. Computed on the CPU in float64, returned
        in the dtype and on the device of `tensor`; not differentiable; the same seed gives the same result.

        How: the first start is HALS (tensorly). Alone it creeps, and it loses components of small norm. So up to
        `MAX_POLISHED` numbers, projected Levenberg-Marquardt follows, and runs from the other starts as well: in turn
        the best so far with one component drawn afresh at the size of what is missing, and random matrices. Beyond
        `MAX_POLISHED`, HALS runs from every start.
        """
        for name, number in (("rank", rank), ("restarts", restarts), ("max_iterations", max_iterations)):
            if number < 1:
                raise DecompositionError(f"CPD.fit: {name} is {number}; give at least 1.")
        if tensor.dim() == 0 or tensor.numel() == 0:
            raise ShapeError(
                f"CPD.fit: tensor has shape {tuple(tensor.shape)}; give at least one dimension, and none of size 0."
            )
        _check_entries("CPD.fit", "tensor", tensor)
        target = tensor.detach().to("cpu", torch.float64)
        if rank >= target.numel() // max(target.shape):
            matrices, used, iterations = one_hot(target, rank), 0, 0
        elif not target.any():
            matrices, used, iterations = [target.new_zeros(rank, size) for size in target.shape], 0, 0
        else:
            matrices, used, iterations = search(target, rank, seed, restarts, max_iterations, tolerance)
        cpd = cls(tuple(matrix.to(tensor) for matrix in matrices))
        return Fit(cpd, cpd.relative_error(tensor), used, iterations)

    @property
    def rank(self) -> int:
        return self.matrices[0].shape[0]

    @property
    def order(self) -> int:
        return len(self.matrices)

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(matrix.shape[1] for matrix in self.matrices)

    def to(self, *args: Any, **kwargs: Any) -> "CPD":
        """As `torch.Tensor.to`, for every matrix and the weights."""
        weights = None if self.weights is None else self.weights.to(*args, **kwargs)
        return CPD(tuple(matrix.to(*args, **kwargs) for matrix in self.matrices), weights)

    def absorbed(self) -> "CPD":
        """The same tensor without weights: they are multiplied into the first matrix. Differentiable."""
        if self.weights is None:
            return self
        first, *others = self.matrices
        return CPD((first * self.weights[:, None], *others))

    def reconstruct(self) -> Float[Tensor, "..."]:
        """The tensor itself, of shape `shape`. Differentiable; rank times the tensor's size in time."""
        return multiply_out(self.absorbed().matrices)

    def relative_error(self, tensor: Float[Tensor, "..."]) -> float:
        """||reconstruct() - tensor|| / ||tensor|| (Frobenius), in float64; for a zero tensor 0 if exact, else inf."""
        if tuple(tensor.shape) != self.shape:
            raise ShapeError(
                f"CPD.relative_error: tensor has shape {tuple(tensor.shape)} but the decomposition has {self.shape}; "
                f"give the matrices in the order of the tensor's dimensions."
            )
        with torch.no_grad():
            target = tensor.to(torch.float64)
            missing, size = (self.to(torch.float64).reconstruct() - target).norm().item(), target.norm().item()
        return missing / size if size > 0 else (0.0 if missing == 0 else float("inf"))

    def check(self, tensor: Float[Tensor, "..."], tolerance: float = 1e-6) -> None:
        """Raises `DecompositionError` if the relative error is above `tolerance`; float32 rounding stays below 1e-6."""
        error = self.relative_error(tensor)
        if not error <= tolerance:
            raise DecompositionError(
                f"CPD.check: the relative error is {error:.3g} at rank {self.rank}, above the tolerance {tolerance:g}; "
                f"use a higher rank or more restarts."
            )

    def normal_form(self, given: int | None = 0) -> "CPD":
        """The same tensor with rows that sum to one, as probabilities need it. Differentiable.

        given = g: rows of every matrix but g sum to one and there are no weights. If the tensor is a distribution of
        its other endpoints given endpoint g, the columns of matrix g sum to one over ranks: p(rank | x_g).
        given = None: rows of every matrix sum to one; weights[q] is the mass of component q, and their sum that of the
        tensor: for a joint distribution the weights are p(rank).

        A component is zero where one of its rows is. Its mass (row of matrix g, or weight) then is zero, and a row
        that cannot be normalised becomes uniform.
        """
        self._check_endpoint("CPD.normal_form", given)
        carrier = self.matrices[0].new_ones(self.rank, 1) if given is None else self.matrices[given]
        carrier = carrier if self.weights is None else carrier * self.weights[:, None]
        matrices = list(self.matrices)
        for i, matrix in enumerate(self.matrices):
            if i != given:
                total = matrix.sum(1, keepdim=True)
                divisor = torch.where(total > 0, total, 1.0)  # keeps the unused branch, and its gradient, finite
                matrices[i] = torch.where(total > 0, matrix / divisor, 1.0 / matrix.shape[1])
                carrier = carrier * total
        if given is None:
            return CPD(tuple(matrices), carrier[:, 0])
        matrices[given] = carrier
        return CPD(tuple(matrices))

    def is_conditional(self, given: int = 0, tolerance: float = SUM_TOLERANCE) -> bool:
        """Whether the tensor sums to one over all other endpoints, for every value of endpoint `given`."""
        self._check_endpoint("CPD.is_conditional", given)
        with torch.no_grad():
            sums = self.to(torch.float64).normal_form(given).matrices[given].sum(0)
        return bool(((sums - 1).abs() <= tolerance).all())

    def _check_endpoint(self, operation: str, given: int | None) -> None:
        if given is not None and not 0 <= given < self.order:
            raise ShapeError(
                f"{operation}: given is {given} but the decomposition has {self.order} endpoints; "
                f"count them from 0 to {self.order - 1}."
            )


class Fit(NamedTuple):
    """What `CPD.fit` found."""

    cpd: CPD
    relative_error: float  # ||cpd - tensor|| / ||tensor||, of the matrices as returned
    restarts: int  # starts used; 0 where an exact decomposition is known beforehand
    iterations: int  # steps of HALS and of the polish, over all starts


def _check_ranks(operation: str, named: Sequence[tuple[str, Tensor, int]]) -> None:
    """`named`: (name, table, axis of the rank)."""
    for name, table, axis in named:
        if table.dim() != 2 or table.numel() == 0:
            raise ShapeError(
                f"{operation}: {name} has shape {tuple(table.shape)}; give two dimensions, both of at least 1."
            )
        first_name, first, first_axis = named[0]
        if table.shape[axis] != first.shape[first_axis]:
            raise ShapeError(
                f"{operation}: rank is {table.shape[axis]} in {name} {tuple(table.shape)} but "
                f"{first.shape[first_axis]} in {first_name} {tuple(first.shape)}; build both from one decomposition."
            )


def _check_kind(name: str, tensor: Tensor, first: Tensor) -> None:
    if not tensor.is_floating_point():
        raise DecompositionError(f"CPD: {name} is {tensor.dtype}; give floating-point numbers.")
    if (tensor.dtype, tensor.device) != (first.dtype, first.device):
        raise DecompositionError(
            f"CPD: {name} is {tensor.dtype} on {tensor.device} but matrix 0 is {first.dtype} on {first.device}; "
            f"bring them together with .to()."
        )


def _check_entries(operation: str, name: str, tensor: Tensor) -> None:
    wrong = ~(torch.isfinite(tensor) & (tensor >= 0))
    if wrong.any():
        place = tuple(wrong.nonzero()[0].tolist())
        raise DecompositionError(
            f"{operation}: {name} {tuple(tensor.shape)} holds {tensor[place].item():g} at {place}; "
            f"every entry must be finite and at least 0."
        )


def _check_sums(name: str, table: Tensor, tolerance: float) -> None:
    sums = table.detach().to(torch.float64).sum(-1)
    wrong = (sums - 1).abs() > tolerance
    if wrong.any():
        row = int(wrong.nonzero()[0])
        raise DecompositionError(
            f"CPD.conditional: row {row} of {name} {tuple(table.shape)} sums to {sums[row]:.6g}, not to one within "
            f"{tolerance:g}; normalise the last axis."
        )
