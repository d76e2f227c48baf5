"""A program evaluated in a semiring without scaling: log space for what linear space cannot hold, and supports."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from torch import Tensor

from rankspace.inference.generic.contraction_plan import Message
from rankspace.inference.generic.program import Ends, Group, Program
from rankspace.inference.generic.stages import TensorSemiring, conclude, meet, send


class Tables(NamedTuple):
    """Values of all items by type, and of all messages that are not the item itself."""

    items: dict[Ends, Tensor]
    messages: dict[Message, Tensor]

    def rows(self, message: Message, rows: Tensor) -> Tensor:
        """Rows of a message's table."""
        table = self.items[message.ends] if message.is_identity else self.messages[message]
        return table.index_select(0, rows.reshape(-1)).reshape((*rows.shape, *table.shape[1:]))


def run_semiring(
    program: Program,
    semiring: TensorSemiring,
    factors: Mapping[str, Tensor],
    words: Tensor,
    see: Callable[[Group, Tensor], None] = lambda group, values: None,
) -> Tables:
    """Every item and message of a program; gradients by autograd. `see` is shown the values of each group.

    `factors` are lifted already; `words` [place] are the words of the batch one after the other. Time and memory are
    those of the pairwise contractions with every product formed: this is the careful path, not the fast one.
    """
    like = next(iter(factors.values()))
    tables = Tables({ends: semiring.zeros(program.item_shape(ends), like) for ends in program.num_rows}, {})
    for level in program.levels:
        for group in level.groups:
            messages = [
                tables.rows(message, children)
                for message, children in zip(group.plan.messages, group.children, strict=True)
            ]
            met = meet(semiring, group, messages, words, factors, like)
            values = conclude(semiring, group, met, factors)
            see(group, values)
            table, numbers = tables.items[group.ends], group.rows.numbers
            whole = values if group.first else semiring.add(table.index_select(0, numbers), values)
            table.index_copy_(0, numbers, whole)
        for passing in level.passing:
            message, rows, _ = passing
            sent = send(semiring, passing, tables.items[message.ends].index_select(0, rows.numbers), factors)
            if message not in tables.messages:
                tables.messages[message] = semiring.zeros((program.num_rows[message.ends], *sent.shape[1:]), like)
            tables.messages[message].index_copy_(0, rows.numbers, sent)
    return tables
