"""Semirings for sum-products over arrays: what "plus" and "times" mean in each query.

A semiring says how factors are lifted to its elements and gives four array operations; `contraction` builds
everything else from them. Weights that are zero stay exactly zero in each of them: no epsilon, no NaN.
"""

import string
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import lru_cache
from typing import Generic, TypeVar

import numpy as np
import torch
from torch import Tensor

Array = TypeVar("Array")


class Semiring(ABC, Generic[Array]):
    """Elements stand in arrays whose axes are the endpoints of an edge."""

    @abstractmethod
    def lift(self, weights: Tensor) -> Array:
        """Elements that stand for nonnegative weights."""

    @abstractmethod
    def zeros(self, shape: Sequence[int], like: Tensor) -> Array:
        """An array of additive identities."""

    @abstractmethod
    def ones(self, shape: Sequence[int], like: Tensor) -> Array:
        """An array of multiplicative identities."""

    @abstractmethod
    def multiply(self, left: Array, right: Array) -> Array:
        """Elementwise product with broadcasting."""

    @abstractmethod
    def add(self, left: Array, right: Array) -> Array:
        """Elementwise sum of two arrays of one shape."""

    @abstractmethod
    def sum(self, array: Array, axes: tuple[int, ...]) -> Array:
        """Sum over some (at least one) axes."""

    @abstractmethod
    def arrange(self, array: Array, axes: Sequence[int | None]) -> Array:
        """Axes in another order; None inserts an axis of length one."""

    @abstractmethod
    def diagonal(self, array: Array, first: int, second: int) -> Array:
        """Entries whose two axes agree; the common axis comes last."""

    def contract_pair(
        self, left: Array, left_axes: Sequence[str], right: Array, right_axes: Sequence[str], output: Sequence[str]
    ) -> Array:
        """Product of two arrays summed over the axes that are not in the output."""
        every = [*output, *(a for a in dict.fromkeys([*left_axes, *right_axes]) if a not in output)]
        product = self.multiply(
            self.arrange(left, [left_axes.index(a) if a in left_axes else None for a in every]),
            self.arrange(right, [right_axes.index(a) if a in right_axes else None for a in every]),
        )
        extra = tuple(range(len(output), len(every)))
        return self.sum(product, extra) if extra else product


class _TensorSemiring(Semiring[Tensor]):
    """Shared by the semirings whose elements are numbers in one tensor."""

    zero: float
    one: float

    def zeros(self, shape: Sequence[int], like: Tensor) -> Tensor:
        return torch.full(tuple(shape), self.zero, dtype=like.dtype, device=like.device)

    def ones(self, shape: Sequence[int], like: Tensor) -> Tensor:
        return torch.full(tuple(shape), self.one, dtype=like.dtype, device=like.device)

    def arrange(self, array: Tensor, axes: Sequence[int | None]) -> Tensor:
        array = array.permute([axis for axis in axes if axis is not None])
        for place, axis in enumerate(axes):
            if axis is None:
                array = array.unsqueeze(place)
        return array

    def diagonal(self, array: Tensor, first: int, second: int) -> Tensor:
        return array.diagonal(dim1=first, dim2=second)


class Real(_TensorSemiring):
    """(+, *) on nonnegative numbers: Z itself."""

    zero, one = 0.0, 1.0

    def lift(self, weights: Tensor) -> Tensor:
        return weights

    def multiply(self, left: Tensor, right: Tensor) -> Tensor:
        return left * right

    def add(self, left: Tensor, right: Tensor) -> Tensor:
        return left + right

    def sum(self, array: Tensor, axes: tuple[int, ...]) -> Tensor:
        return array.sum(axes)

    def contract_pair(
        self, left: Tensor, left_axes: Sequence[str], right: Tensor, right_axes: Sequence[str], output: Sequence[str]
    ) -> Tensor:
        if set(left_axes) == set(right_axes):  # nothing for a matrix product to do
            return super().contract_pair(left, left_axes, right, right_axes, output)
        return torch.einsum(_equation(tuple(left_axes), tuple(right_axes), tuple(output)), left, right)


@lru_cache(maxsize=4096)
def _equation(left: tuple[str, ...], right: tuple[str, ...], output: tuple[str, ...]) -> str:
    letter = {axis: string.ascii_letters[i] for i, axis in enumerate(dict.fromkeys(left + right))}
    terms = ["".join(letter[axis] for axis in axes) for axes in (left, right, output)]
    return f"{terms[0]},{terms[1]}->{terms[2]}"


class Support(Real):
    """Zeros and ones: Boolean in the arithmetic of matrix products, for large arrays."""

    def lift(self, weights: Tensor) -> Tensor:
        return (weights > 0).to(weights.dtype)

    def add(self, left: Tensor, right: Tensor) -> Tensor:
        return self.lift(left + right)

    def sum(self, array: Tensor, axes: tuple[int, ...]) -> Tensor:
        return self.lift(array.sum(axes))

    def contract_pair(
        self, left: Tensor, left_axes: Sequence[str], right: Tensor, right_axes: Sequence[str], output: Sequence[str]
    ) -> Tensor:
        return self.lift(super().contract_pair(left, left_axes, right, right_axes, output))


class Log(_TensorSemiring):
    """(logaddexp, +): log Z, with -inf for impossible. Weights that are exactly zero get gradient zero."""

    zero, one = -torch.inf, 0.0

    def lift(self, weights: Tensor) -> Tensor:
        possible = weights > 0
        return torch.where(possible, torch.where(possible, weights, 1).log(), -torch.inf)

    def multiply(self, left: Tensor, right: Tensor) -> Tensor:
        return left + right

    def add(self, left: Tensor, right: Tensor) -> Tensor:
        return self.sum(torch.stack([left, right]), (0,))

    def sum(self, array: Tensor, axes: tuple[int, ...]) -> Tensor:
        """logsumexp whose gradient is zero, not NaN, where every term is -inf (or there is none)."""
        if array.numel() == 0:
            return array.sum(axes) + self.zero  # a maximum over nothing does not exist
        top = array.detach().amax(axes, keepdim=True)
        top = torch.where(top.isinf(), 0, top)
        total = (array - top).exp().sum(axes)
        possible = total > 0
        return torch.where(possible, torch.where(possible, total, 1).log() + top.squeeze(axes), -torch.inf)


class Max(_TensorSemiring):
    """(max, +) on log-weights: the log-weight of the best derivation and assignment."""

    zero, one = -torch.inf, 0.0

    def lift(self, weights: Tensor) -> Tensor:
        return Log().lift(weights)

    def multiply(self, left: Tensor, right: Tensor) -> Tensor:
        return left + right

    def add(self, left: Tensor, right: Tensor) -> Tensor:
        return torch.maximum(left, right)

    def sum(self, array: Tensor, axes: tuple[int, ...]) -> Tensor:
        return array.amax(axes) if array.numel() else array.sum(axes) + self.zero


class Boolean(_TensorSemiring):
    """(or, and): whether anything of positive weight exists."""

    zero, one = False, True

    def lift(self, weights: Tensor) -> Tensor:
        return weights > 0

    def zeros(self, shape: Sequence[int], like: Tensor) -> Tensor:
        return torch.zeros(tuple(shape), dtype=torch.bool, device=like.device)

    def ones(self, shape: Sequence[int], like: Tensor) -> Tensor:
        return torch.ones(tuple(shape), dtype=torch.bool, device=like.device)

    def multiply(self, left: Tensor, right: Tensor) -> Tensor:
        return left & right

    def add(self, left: Tensor, right: Tensor) -> Tensor:
        return left | right

    def sum(self, array: Tensor, axes: tuple[int, ...]) -> Tensor:
        for axis in sorted(axes, reverse=True):
            array = array.any(axis)
        return array


class Counting(Semiring[np.ndarray]):
    """(+, *) on exact integers of any size: the number of derivations with assignments of positive weight."""

    def lift(self, weights: Tensor) -> np.ndarray:
        return self._exact((weights > 0).cpu().numpy())

    def zeros(self, shape: Sequence[int], like: Tensor) -> np.ndarray:
        return self._exact(np.zeros(tuple(shape), dtype=np.int64))

    def ones(self, shape: Sequence[int], like: Tensor) -> np.ndarray:
        return self._exact(np.ones(tuple(shape), dtype=np.int64))

    def multiply(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        return np.asarray(np.multiply(left, right), dtype=object)

    def add(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        return np.asarray(np.add(left, right), dtype=object)

    def sum(self, array: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
        return np.asarray(np.sum(array, axis=axes), dtype=object)

    def arrange(self, array: np.ndarray, axes: Sequence[int | None]) -> np.ndarray:
        array = array.transpose([axis for axis in axes if axis is not None])
        return np.expand_dims(array, tuple(place for place, axis in enumerate(axes) if axis is None))

    def diagonal(self, array: np.ndarray, first: int, second: int) -> np.ndarray:
        return np.diagonal(array, axis1=first, axis2=second)

    @staticmethod
    def _exact(numbers: np.ndarray) -> np.ndarray:
        return np.vectorize(int, otypes=[object])(numbers) if numbers.size else numbers.astype(object)


class Expectation(Semiring[tuple[Tensor, Tensor]]):
    """Pairs (log p, mean log-weight): the expectation semiring in a form that neither under- nor overflows.

    The second component is the mean of the log-weight under the distribution proportional to the weights, so that
    the entropy over derivations and assignments is log Z - mean. It is zero by convention where p = 0.
    """

    def lift(self, weights: Tensor) -> tuple[Tensor, Tensor]:
        log = Log().lift(weights)
        return log, _finite(log)

    def zeros(self, shape: Sequence[int], like: Tensor) -> tuple[Tensor, Tensor]:
        return Log().zeros(shape, like), Real().zeros(shape, like)

    def ones(self, shape: Sequence[int], like: Tensor) -> tuple[Tensor, Tensor]:
        return Log().ones(shape, like), Real().zeros(shape, like)

    def multiply(self, left: tuple[Tensor, Tensor], right: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        log = left[0] + right[0]
        return log, torch.where(log.isinf(), 0, left[1] + right[1])

    def add(self, left: tuple[Tensor, Tensor], right: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        return self.sum((torch.stack([left[0], right[0]]), torch.stack([left[1], right[1]])), (0,))

    def sum(self, array: tuple[Tensor, Tensor], axes: tuple[int, ...]) -> tuple[Tensor, Tensor]:
        log, mean = array
        total = Log().sum(log, axes)
        whole = total
        for axis in sorted(axes):
            whole = whole.unsqueeze(axis)
        share = (log - _finite(whole)).exp()
        return total, (share * mean).sum(axes)

    def arrange(self, array: tuple[Tensor, Tensor], axes: Sequence[int | None]) -> tuple[Tensor, Tensor]:
        return Log().arrange(array[0], axes), Log().arrange(array[1], axes)

    def diagonal(self, array: tuple[Tensor, Tensor], first: int, second: int) -> tuple[Tensor, Tensor]:
        return Log().diagonal(array[0], first, second), Log().diagonal(array[1], first, second)


def _finite(log: Tensor) -> Tensor:
    """Zero in place of -inf; the gradient there is zero."""
    return torch.where(log.isinf(), 0, log)
