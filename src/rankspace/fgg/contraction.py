"""Contraction of a small network of arrays in any semiring, by a good pairwise order."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from math import prod
from typing import NamedTuple

import opt_einsum
from torch import Tensor

from rankspace.fgg.semirings import Array, Semiring

Operand = tuple[Array, tuple[str, ...]]  # an array and the name of each of its axes


def contract(
    semiring: Semiring[Array],
    operands: Sequence[Operand[Array]],
    output: Sequence[str],
    sizes: Mapping[str, int],
    like: Tensor,
) -> Array:
    """Product of all operands, summed over every axis in `sizes` that is not in the output.

    Axes may repeat within an operand (then its diagonal counts) and an axis that no operand has counts with its size.
    Arrays are multiplied two at a time in the order `opt_einsum` finds, so the joint table is never formed: time and
    memory are those of the largest pair, O(product of the sizes of the axes alive at once).
    """
    waiting = [_without_repeats(semiring, array, axes) for array, axes in operands]
    covered = {axis for _, axes in waiting for axis in axes}
    waiting += [(semiring.ones((size,), like), (axis,)) for axis, size in sizes.items() if axis not in covered]
    if not waiting:
        return semiring.ones((), like)
    for step in _order(tuple(axes for _, axes in waiting), tuple(output), tuple(sizes.items())):
        right, left = waiting.pop(step.second), waiting.pop(step.first)
        waiting.append((semiring.contract_pair(*left, *right, step.kept), step.kept))
    [(array, axes)] = waiting
    gone = tuple(i for i, axis in enumerate(axes) if axis not in output)
    if gone:
        array, axes = semiring.sum(array, gone), tuple(axis for axis in axes if axis in output)
    return semiring.arrange(array, [axes.index(axis) for axis in output])


def contraction_flops(operands: Sequence[tuple[str, ...]], output: Sequence[str], sizes: Mapping[str, int]) -> int:
    """Multiplications and additions `contract` performs: two per point of each pair's joint index space."""
    waiting = [tuple(dict.fromkeys(axes)) for axes in operands]
    covered = {axis for axes in waiting for axis in axes}
    waiting += [(axis,) for axis in sizes if axis not in covered]
    steps = _order(tuple(waiting), tuple(output), tuple(sizes.items()))
    return sum(2 * prod(sizes[axis] for axis in step.joint) for step in steps)


class _Step(NamedTuple):
    """One pair to contract: places in the shrinking list of operands (its newest member stands last), and axes."""

    first: int
    second: int
    joint: tuple[str, ...]
    kept: tuple[str, ...]


@lru_cache(maxsize=4096)
def _order(
    operands: tuple[tuple[str, ...], ...], output: tuple[str, ...], sizes: tuple[tuple[str, int], ...]
) -> tuple[_Step, ...]:
    if len(operands) < 2:
        return ()
    symbol = {axis: opt_einsum.get_symbol(i) for i, (axis, _) in enumerate(sizes)}
    size = dict(sizes)
    terms = ",".join("".join(symbol[axis] for axis in axes) for axes in operands)
    shapes = [tuple(size[axis] for axis in axes) for axes in operands]
    path, _ = opt_einsum.contract_path(f"{terms}->{''.join(symbol[a] for a in output)}", *shapes, shapes=True)
    waiting = list(operands)
    steps: list[_Step] = []
    for places in path:
        chosen = sorted(places)
        while len(chosen) > 1:  # opt_einsum may leave several operands to its last step
            second, first = chosen.pop(), chosen.pop()
            joint = tuple(dict.fromkeys(waiting.pop(second) + waiting.pop(first)))
            needed = {axis for axes in waiting for axis in axes}.union(output)
            steps.append(_Step(first, second, joint, tuple(axis for axis in joint if axis in needed)))
            waiting.append(steps[-1].kept)
            chosen.append(len(waiting) - 1)
    return tuple(steps)


def _without_repeats(semiring: Semiring[Array], array: Array, axes: tuple[str, ...]) -> Operand[Array]:
    for axis in axes:
        if axes.count(axis) > 1:
            first = axes.index(axis)
            second = axes.index(axis, first + 1)
            rest = tuple(name for i, name in enumerate(axes) if i not in (first, second))
            return _without_repeats(semiring, semiring.diagonal(array, first, second), (*rest, axis))
    return array, axes
