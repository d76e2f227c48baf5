"""A program evaluated in a semiring without scaling: log space for what linear space cannot hold, and supports."""

from collections.abc import Mapping
from functools import reduce
from typing import NamedTuple

from torch import Tensor

from rankspace.inference.generic.contraction_plan import Message
from rankspace.inference.generic.program import Ends, Program
from rankspace.inference.generic.stages import TensorSemiring, conclude, meet, send


class Tables(NamedTuple):
    """Values of all items by type, and of all messages that are not the item itself."""

    items: dict[Ends, Tensor]
    messages: dict[Message, Tensor]

    def rows(self, message: Message, rows: Tensor) -> Tensor:
        """Rows of a message's table."""
        return (self.items[message.ends] if message.is_identity else self.messages[message])[rows]


def run_semiring(program: Program, semiring: TensorSemiring, factors: Mapping[str, Tensor], words: Tensor) -> Tables:
    """Every item and message of a program; gradients by autograd.

    `factors` are lifted already; `words` [place] are the words of the batch one after the other. Time and memory are
    those of the pairwise contractions with every product formed: this is the careful path, not the fast one.
    """
    like = next(iter(factors.values()))
    tables = Tables({ends: semiring.zeros(program.item_shape(ends), like) for ends in program.num_rows}, {})
    for level in program.levels:
        found: dict[Ends, list[tuple[Tensor, Tensor]]] = {}
        for group in level.groups:
            messages = [
                tables.rows(message, rows) for message, rows in zip(group.plan.messages, group.children, strict=True)
            ]
            met = meet(semiring, group, messages, words, factors, like)
            found.setdefault(group.ends, []).append((group.rows.numbers, conclude(semiring, group, met, factors)))
        for ends, parts in found.items():
            table = tables.items[ends]
            spread = [semiring.zeros(table.shape, like).index_copy(0, rows, values) for rows, values in parts]
            tables.items[ends] = reduce(semiring.add, spread, table)
        for passing in level.passing:
            message, rows, _ = passing
            sent = send(semiring, passing, rows.take(tables.items[message.ends]), factors)
            if message not in tables.messages:
                tables.messages[message] = semiring.zeros((program.num_rows[message.ends], *sent.shape[1:]), like)
            tables.messages[message] = tables.messages[message].index_copy(0, rows.numbers, sent)
    return tables
