"""A program evaluated in a semiring without scaling: log space for what linear space cannot hold, and supports."""

from collections.abc import Callable, Mapping

from torch import Tensor

from rankspace.inference.generic.layout import Sizes
from rankspace.inference.generic.program import Group, Program
from rankspace.inference.generic.stages import TensorSemiring, conclude, gather, look_up, meet, send


def run_semiring(
    program: Program,
    semiring: TensorSemiring,
    factors: Mapping[str, Tensor],
    words: Tensor,
    see: Callable[[Group, Tensor], None] = lambda group, values: None,
) -> dict[Sizes, Tensor]:
    """Every row of every table of a program; gradients by autograd. `see` is shown the values of each group.

    `factors` are lifted already; `words` [place] are the words of the batch one after the other. Time and memory are
    those of the pairwise contractions with every product formed: this is the careful path, not the fast one.
    """
    like = next(iter(factors.values()))
    tables = {table: semiring.zeros(program.shape(table), like) for table in program.owners}
    for lookup in program.lookups:
        lookup.rows.put(tables[lookup.table], look_up(semiring, lookup, words, factors, like))
    for level in program.levels:
        for group in level.groups:
            operands = [rows for block in group.operands for rows in gather(tables[block.table], block).unbind()]
            met = meet(semiring, group, operands, factors, like)
            values = conclude(semiring, group, met, factors).reshape(group.rows.length, -1)
            see(group, values)
            table, numbers = tables[group.table], group.rows.numbers
            whole = values if group.first else semiring.add(table.index_select(0, numbers), values)
            table.index_copy_(0, numbers, whole)
        for passing in level.passing:
            values = tables[passing.items].index_select(0, passing.senders.numbers)
            sent = send(semiring, passing, values, factors).reshape(passing.rows.length, -1)
            tables[passing.table].index_copy_(0, passing.rows.numbers, sent)
    return tables
