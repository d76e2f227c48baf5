"""Chains whose words say which block of states is alive, in log space: vectors over the states of one block.

The twin of a `Recursion` with a `BlockLink`; each function here is that of the same name (without "block") in
`log_space` or `paths` with a block of the transition for each pair of words. A step costs k^2 for k states in a block.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float, Int
from torch import Tensor

from rankspace.inference.chain.log_space import LogRecursion
from rankspace.inference.chain.messages import Messages, at_the_end
from rankspace.inference.chain.paths import Choose, Trace
from rankspace.inference.logarithms import log_sum_exp

LogSum = Callable[[Tensor, int], Tensor]  # over one axis


@dataclass(frozen=True)
class LogBlockRecursion(LogRecursion):
    """`log_links` is empty: the link is told the words."""

    log_blocks: Float[Tensor, "pair size size"]  # [from, to]
    pairs: Int[Tensor, "later"]  # the block into each word but the first ones of their sentences
    block_of_token: Int[Tensor, "token"]

    def map(self, function: Callable[[Tensor], Tensor]) -> "LogBlockRecursion":
        chains = super().map(function)
        return LogBlockRecursion(**{**vars(chains), "log_blocks": function(self.log_blocks)})

    def blocks_into(self, time: int) -> Float[Tensor, "row size size"]:
        """A block for each sentence that has a word at a time, which is not the first."""
        rows, first = self.layout.step(time), self.layout.alive[1]
        return self.log_blocks.index_select(0, self.pairs[rows.start - first : rows.stop - first])


def block_log_z(recursion: LogBlockRecursion) -> Float[Tensor, "batch"]:
    """log Z in the order of the caller, differentiable any number of times. Keeps |tokens| * k^2 numbers."""
    totals = log_sum_exp(block_forward_table(recursion))
    return recursion.layout.in_callers_order(at_the_end(recursion.layout, totals))


def block_forward_table(recursion: LogBlockRecursion, add: LogSum = log_sum_exp) -> Float[Tensor, "token size"]:
    layout = recursion.layout
    rows: list[Tensor] = []
    for time in range(layout.longest):
        vectors = recursion.log_start[None]
        if time:
            before = rows[-1][: layout.alive[time + 1]]
            vectors = add(before[:, :, None] + recursion.blocks_into(time), 1)
        rows.append(vectors + recursion.words_at(time))
    return torch.cat(rows) if rows else recursion.log_start.new_zeros(0, len(recursion.log_start))


def block_backward_table(recursion: LogBlockRecursion) -> Float[Tensor, "token size"]:
    layout, size = recursion.layout, len(recursion.log_start)
    rows: list[Tensor] = []  # from the last step to the first
    for time in range(layout.longest - 1, -1, -1):
        ending = recursion.log_start.new_zeros(layout.alive[time + 1] - layout.alive[time + 2], size)
        if not rows:
            rows.append(ending)
            continue
        after = recursion.words_at(time + 1) + rows[-1]
        rows.append(torch.cat([log_sum_exp(recursion.blocks_into(time + 1) + after[:, None]), ending]))
    return torch.cat(rows[::-1]) if rows else recursion.log_start.new_zeros(0, size)


@dataclass(frozen=True)
class BlockMessages(Messages):
    """Of a recursion in float64. Vectors are over the states of each word's block."""

    recursion: LogBlockRecursion

    @cached_property
    def forward(self) -> Float[Tensor, "token size"]:
        return block_forward_table(self.recursion)

    @cached_property
    def backward(self) -> Float[Tensor, "token size"]:
        return block_backward_table(self.recursion)


def block_trace(
    recursion: LogBlockRecursion, forward: Float[Tensor, "token size"], choose: Choose, num: int = 1
) -> Trace:
    """`num` paths through each sentence, by place in the block of each word."""
    layout = recursion.layout
    found = torch.empty(layout.num_tokens, num, dtype=torch.int64, device=layout.device)
    for time in range(layout.longest - 1, -1, -1):
        rows, going_on = layout.step(time), layout.alive[time + 2]
        weights = forward[rows][:, None].expand(-1, num, -1)
        found[rows][going_on:] = choose(weights[going_on:])
        if going_on:
            after = found[layout.step(time + 1)]
            into = recursion.blocks_into(time + 1).transpose(1, 2)  # [row, to, from]
            moved = into.gather(1, after[:, :, None].expand(-1, -1, into.shape[2]))
            found[rows][:going_on] = choose(weights[:going_on] + moved)
    return Trace(found, ())


def block_log_weight(recursion: LogBlockRecursion, trace: Trace) -> Float[Tensor, "batch num"]:
    """Log-weight of each path with its sentence's words, by place; 0 for an empty one."""
    layout, first = recursion.layout, recursion.layout.alive[1]
    rows = recursion.log_words[recursion.index].gather(1, trace.vectors)
    rows[:first] += recursion.log_start[trace.vectors[:first]]
    before, after = trace.vectors[layout.previous], trace.vectors[first:]
    rows[first:] += recursion.log_blocks[recursion.pairs[:, None], before, after]
    return layout.unpack(rows).sum(1)[layout.sentence_at]
