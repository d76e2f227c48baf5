"""The stages of a group and of a message as functions of tensors, in any semiring on tensors."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from rankspace.fgg.semirings import Log, Real
from rankspace.inference.generic.layout import Lookup
from rankspace.inference.generic.program import Block, Group, Passing

TensorSemiring = Real | Log


def look_up(
    semiring: TensorSemiring, lookup: Lookup, words: Tensor, factors: Mapping[str, Tensor], like: Tensor
) -> Tensor:
    """Entries of a factor at the words of a batch, `words` [place]: [row, entry]."""
    observed = words[lookup.places]
    if lookup.label is None:
        return semiring.lift(torch.nn.functional.one_hot(observed[0], *lookup.table).to(like.dtype))
    return words_first(factors[lookup.label], lookup)[tuple(observed)].reshape(lookup.rows.length, -1)


def words_first(factor: Tensor, lookup: Lookup) -> Tensor:
    """A view of a factor whose first axes are those that words index."""
    return factor.movedim(lookup.picked, tuple(range(len(lookup.picked))))


def gather(table: Tensor, block: Block) -> Tensor:
    """Rows of a table: [operand, item, application, ...]."""
    return table.index_select(0, block.rows).view(block.shape + table.shape[1:])


def send(semiring: TensorSemiring, passing: Passing, values: Tensor, factors: Mapping[str, Tensor]) -> Tensor:
    """The messages [sender, message and entry] from the values [sender, entry] of items."""
    items = values.reshape(-1, *passing.items)
    sent = [
        contraction.run(semiring, [items, *(factors[label] for label in message.labels)], values)
        for message, contraction in zip(passing.messages, passing.contractions, strict=True)
    ]
    return torch.stack(sent, 1).reshape(passing.senders.length, -1)


def meet(
    semiring: TensorSemiring, group: Group, operands: Sequence[Tensor], factors: Mapping[str, Tensor], like: Tensor
) -> Tensor:
    """The meeting [item, *met]: operands [item, application, entry] multiplied, applications summed."""
    arrays = [
        operand.reshape(*operand.shape[:2], *sizes) for operand, sizes in zip(operands, group.shapes, strict=True)
    ]
    return group.meeting.run(semiring, [*arrays, *(factors[label] for label, _ in group.plan.meeting)], like)


def conclude(semiring: TensorSemiring, group: Group, met: Tensor, factors: Mapping[str, Tensor]) -> Tensor:
    """What comes after the meeting, once per item: [item, *endpoints]."""
    if group.last is None:
        return met
    return group.last.run(semiring, [met, *(factors[label] for label, _ in group.plan.after)], met)
