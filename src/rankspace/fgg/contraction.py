"""Contraction of a small network of arrays in any semiring, by a good pairwise order."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from math import prod
from typing import NamedTuple

import opt_einsum
from torch import Tensor

from rankspace.fgg.semirings import Array, Semiring

Axes = tuple[str, ...]
Operand = tuple[Array, Axes]  # an array and the name of each of its axes


class _Step(NamedTuple):
    """One pair to contract: places in the shrinking list of operands (its newest member stands last), and axes."""

    first: int
    second: int
    left: Axes
    right: Axes
    kept: Axes


class Contraction(NamedTuple):
    """A way to contract operands with given axes: the product of all, summed over every axis not in the output.

    Axes may repeat within an operand (then its diagonal counts), and an axis that no operand has counts with its size.
    Arrays are multiplied two at a time in the order `opt_einsum` finds, so the joint table is never formed: time and
    memory are those of the largest pair, O(product of the sizes of the axes alive at once).
    """

    operands: tuple[Axes, ...]
    missing: tuple[tuple[str, int], ...]  # axes that no operand has, with their sizes
    steps: tuple[_Step, ...]
    last: Axes  # axes of what the steps leave
    output: Axes
    diagonal: bool  # whether an axis stands twice in some operand
    flops: int  # two per point of the joint index space of each pair

    def run(self, semiring: Semiring[Array], arrays: Sequence[Array], like: Tensor) -> Array:
        """The result for arrays in the order of the operands; `like` gives dtype and device of constants."""
        waiting = list(arrays)
        if self.diagonal:
            waiting = [_without_repeats(semiring, *operand) for operand in zip(arrays, self.operands, strict=True)]
        waiting += [semiring.ones((size,), like) for _, size in self.missing]
        if not waiting:
            return semiring.ones((), like)
        for first, second, left, right, kept in self.steps:
            y, x = waiting.pop(second), waiting.pop(first)
            waiting.append(semiring.contract_pair(x, left, y, right, kept))
        [array] = waiting
        gone = tuple(i for i, axis in enumerate(self.last) if axis not in self.output)
        kept = tuple(axis for axis in self.last if axis in self.output)
        if gone:
            array = semiring.sum(array, gone)
        return array if kept == self.output else semiring.arrange(array, [kept.index(axis) for axis in self.output])


@lru_cache(maxsize=4096)
def plan_contraction(operands: tuple[Axes, ...], output: Axes, sizes: tuple[tuple[str, int], ...]) -> Contraction:
    """The order in which to contract operands with these axes over all axes in `sizes` (each with its length)."""
    size = dict(sizes)
    waiting = [_distinct(axes) for axes in operands]
    covered = {axis for axes in waiting for axis in axes}
    missing = tuple((axis, length) for axis, length in sizes if axis not in covered)
    waiting += [(axis,) for axis, _ in missing]
    diagonal = waiting[: len(operands)] != list(operands)
    steps: list[_Step] = []
    flops = 0
    for places in _path(waiting, output, size):
        chosen = sorted(places)
        while len(chosen) > 1:  # opt_einsum may leave several operands to its last step
            second, first = chosen.pop(), chosen.pop()
            right, left = waiting.pop(second), waiting.pop(first)
            needed = {axis for axes in waiting for axis in axes}.union(output)
            joint = tuple(dict.fromkeys(left + right))
            final = not waiting and set(output) <= set(joint)
            kept = output if final else tuple(axis for axis in joint if axis in needed)
            steps.append(_Step(first, second, left, right, kept))
            flops += 2 * prod(size[axis] for axis in joint)
            waiting.append(kept)
            chosen.append(len(waiting) - 1)
    return Contraction(operands, missing, tuple(steps), waiting[0] if waiting else (), output, diagonal, flops)


def contract(
    semiring: Semiring[Array],
    operands: Sequence[Operand[Array]],
    output: Sequence[str],
    sizes: Mapping[str, int],
    like: Tensor,
) -> Array:
    """Product of all operands, summed over every axis in `sizes` that is not in the output; see `Contraction`."""
    plan = plan_contraction(tuple(axes for _, axes in operands), tuple(output), tuple(sizes.items()))
    return plan.run(semiring, [array for array, _ in operands], like)


def _path(operands: Sequence[Axes], output: Axes, size: Mapping[str, int]) -> Sequence[tuple[int, ...]]:
    if len(operands) < 2:
        return ()
    symbol = {axis: opt_einsum.get_symbol(i) for i, axis in enumerate(size)}
    terms = ",".join("".join(symbol[axis] for axis in axes) for axes in operands)
    shapes = [tuple(size[axis] for axis in axes) for axes in operands]
    path, _ = opt_einsum.contract_path(f"{terms}->{''.join(symbol[a] for a in output)}", *shapes, shapes=True)
    return [tuple(places) for places in path]


def _repeat(axes: Axes) -> tuple[int, int] | None:
    """Places of the first axis that stands twice."""
    for first, axis in enumerate(axes):
        if axis in axes[first + 1 :]:
            return first, axes.index(axis, first + 1)
    return None


def _distinct(axes: Axes) -> Axes:
    """The axes of an operand once its diagonals are taken: a repeated axis comes last."""
    while places := _repeat(axes):
        axes = (*(axis for i, axis in enumerate(axes) if i not in places), axes[places[0]])
    return axes


def _without_repeats(semiring: Semiring[Array], array: Array, axes: Axes) -> Array:
    while places := _repeat(axes):
        array = semiring.diagonal(array, *places)
        axes = (*(axis for i, axis in enumerate(axes) if i not in places), axes[places[0]])
    return array
