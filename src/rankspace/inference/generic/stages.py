"""The stages of a group and of a message as functions of tensors, in any semiring on tensors."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from rankspace.fgg.semirings import Log, Real
from rankspace.inference.generic.contraction_plan import Gathered
from rankspace.inference.generic.program import Group, Passing

TensorSemiring = Real | Log


def send(semiring: TensorSemiring, passing: Passing, values: Tensor, factors: Mapping[str, Tensor]) -> Tensor:
    """A message [row, *output] from the values [row, *endpoints] of its items."""
    arrays = [values, *(factors[label] for label, _ in passing.message.factors)]
    return passing.contraction.run(semiring, arrays, values)


def meet(
    semiring: TensorSemiring,
    group: Group,
    messages: Sequence[Tensor],
    words: Tensor,
    factors: Mapping[str, Tensor],
    like: Tensor,
) -> Tensor:
    """The meeting [item, *met]: messages and words of each application multiplied, applications summed.

    `messages` [item, application, ...] are the rows of the children, `words` [place] those of the whole batch.
    """
    plan = group.plan
    arrays = [
        *batched(group, messages, words, factors),
        *(_one_hot(semiring, words[group.words[place]], size, like) for _, place, size in plan.one_hot),
        *(factors[label] for label, _ in plan.meeting),
    ]
    return group.meeting.run(semiring, arrays, like)


def batched(group: Group, messages: Sequence[Tensor], words: Tensor, factors: Mapping[str, Tensor]) -> list[Tensor]:
    """What differs between applications: messages, and factors at their words."""
    observed = [words[places] for places in group.words]
    return [*messages, *(_pick(factors[part.label], part, observed) for part in group.plan.gathered)]


def conclude(semiring: TensorSemiring, group: Group, met: Tensor, factors: Mapping[str, Tensor]) -> Tensor:
    """What comes after the meeting, once per item: [item, *endpoints]."""
    if group.last is None:
        return met
    return group.last.run(semiring, [met, *(factors[label] for label, _ in group.plan.after)], met)


def _pick(factor: Tensor, part: Gathered, words: Sequence[Tensor]) -> Tensor:
    """Entries of a factor at observed words: [item, application, *remaining axes]."""
    axes = [axis for axis, _ in part.picked]
    return factor.movedim(axes, list(range(len(axes))))[tuple(words[place] for _, place in part.picked)]


def _one_hot(semiring: TensorSemiring, words: Tensor, size: int, like: Tensor) -> Tensor:
    return semiring.lift(torch.nn.functional.one_hot(words, size).to(like.dtype))
