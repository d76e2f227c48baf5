"""The stages of a group and of a message as functions of tensors, in any semiring on tensors."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from rankspace.fgg.contraction import Operand, contract
from rankspace.fgg.semirings import Log, Real
from rankspace.inference.generic.contraction_plan import ContractionPlan, Gathered, Message
from rankspace.inference.generic.program import Group

TensorSemiring = Real | Log
ITEM, APPLICATION = "item", "application"


def send(semiring: TensorSemiring, message: Message, values: Tensor, factors: Mapping[str, Tensor]) -> Tensor:
    """A message [row, *output] from the values [row, *endpoints] of its items."""
    operands = [(values, (ITEM, *message.own)), *((factors[label], axes) for label, axes in message.factors)]
    return contract(semiring, operands, (ITEM, *message.output), _sizes(operands), values)


def meet(
    semiring: TensorSemiring,
    group: Group,
    messages: Sequence[Tensor],
    words: Sequence[Tensor],
    factors: Mapping[str, Tensor],
    like: Tensor,
) -> Tensor:
    """The meeting [item, *met]: messages and words of each application multiplied, applications summed.

    `messages` [item, application, ...] are the rows of the children, `words` [item, application] the observed words.
    """
    plan = group.plan
    operands: list[Operand[Tensor]] = [
        *((m, (ITEM, APPLICATION, *axes)) for m, axes in zip(messages, plan.message_axes, strict=True)),
        *((_pick(factors[part.label], part, words), (ITEM, APPLICATION, *part.axes)) for part in plan.gathered),
        *((_one_hot(semiring, words[i], size, like), (ITEM, APPLICATION, axis)) for axis, i, size in plan.one_hot),
        *((factors[label], axes) for label, axes in plan.meeting),
    ]
    sizes = {ITEM: len(group.rows), APPLICATION: group.repeats, **_sizes(operands)}
    return contract(semiring, operands, (ITEM, *plan.met), sizes, like)


def conclude(semiring: TensorSemiring, plan: ContractionPlan, met: Tensor, factors: Mapping[str, Tensor]) -> Tensor:
    """What comes after the meeting, once per item: [item, *endpoints]."""
    operands = [(met, (ITEM, *plan.met)), *((factors[label], axes) for label, axes in plan.after)]
    return contract(semiring, operands, (ITEM, *plan.output), {ITEM: len(met), **plan.sizes}, met)


def _pick(factor: Tensor, part: Gathered, words: Sequence[Tensor]) -> Tensor:
    """Entries of a factor at observed words: [item, application, *remaining axes]."""
    axes = [axis for axis, _ in part.picked]
    return factor.movedim(axes, list(range(len(axes))))[tuple(words[place] for _, place in part.picked)]


def _one_hot(semiring: TensorSemiring, words: Tensor, size: int, like: Tensor) -> Tensor:
    return semiring.lift(torch.nn.functional.one_hot(words, size).to(like.dtype))


def _sizes(operands: Sequence[Operand[Tensor]]) -> dict[str, int]:
    return {axis: size for array, axes in operands for axis, size in zip(axes, array.shape, strict=True)}
