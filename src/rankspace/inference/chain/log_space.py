"""The same recursion in log space and plain operations: slower, but nothing is out of range, and all derivatives exist.

Matrices are lists: a vector passes through one after the other. So the spaces in between, which a factored link only
passes through, can be asked about too.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from rankspace.inference.logarithms import LogMap, LogProduct, log_sum_exp
from rankspace.inference.ragged import Ragged

NUMBERS_KEPT = 2**16  # of one table; what is larger is made again in the backward pass
NUMBERS_TOGETHER = 2**22


@dataclass(frozen=True)
class LogRecursion:
    """A `Recursion` whose numbers are logarithms, and whose link is a list of matrices."""

    log_start: Float[Tensor, "size"]
    log_words: Float[Tensor, "word size"]
    log_links: tuple[Float[Tensor, "_ _"], ...]  # [out, in] each, in the order in which a vector passes them
    index: Int[Tensor, "token"]
    layout: Ragged

    def map(self, function: Callable[[Tensor], Tensor]) -> "LogRecursion":
        """The same chains, a function applied to all tensors of logarithms."""
        return replace(
            self,
            log_start=function(self.log_start),
            log_words=function(self.log_words),
            log_links=tuple(function(link) for link in self.log_links),
        )

    def words_at(self, time: int) -> Float[Tensor, "row size"]:
        """log e of the words of one step."""
        return self.log_words[self.index[self.layout.step(time)]]  # its derivative is summed in a fixed order on a GPU


def log_product(log_matrix: Float[Tensor, "out in"]) -> LogMap:
    """rows -> log(exp(rows) exp(matrix)^T), through tables [row, out, in], a few rows at a time."""

    def apply(log_rows: Float[Tensor, "row in"]) -> Float[Tensor, "row out"]:
        if len(log_rows) * log_matrix.numel() <= NUMBERS_KEPT:
            return _product(log_rows, log_matrix)
        parts = log_rows.split(max(1, NUMBERS_TOGETHER // log_matrix.numel()))
        return torch.cat([_economical_product(part, log_matrix) for part in parts])

    return apply


def _economical_product(log_rows: Float[Tensor, "row in"], log_matrix: Float[Tensor, "out in"]) -> Tensor:
    if not (torch.is_grad_enabled() and (log_rows.requires_grad or log_matrix.requires_grad)):
        return _product(log_rows, log_matrix)
    found: Tensor = checkpoint(_product, log_rows, log_matrix, use_reentrant=False, preserve_rng_state=False)
    return found


def _product(log_rows: Float[Tensor, "row in"], log_matrix: Float[Tensor, "out in"]) -> Float[Tensor, "row out"]:
    return log_sum_exp(log_rows[:, None] + log_matrix)


def log_z_in_log_space(recursion: LogRecursion) -> Float[Tensor, "batch"]:
    """log Z in the order of the caller, differentiable any number of times.

    Keeps |tokens| * (size + NUMBERS_KEPT) numbers at most; tables of size^2 numbers, one for each word, are made again.
    """
    layout = recursion.layout
    forward = forward_table(recursion, log_product)
    if not layout.num_tokens:
        return recursion.log_start.new_zeros(len(layout.lengths))
    totals = log_sum_exp(forward.index_select(0, layout.last_token))
    return layout.in_callers_order(torch.where(layout.length_at > 0, totals, 0))


def forward_table(recursion: LogRecursion, product: LogProduct) -> Float[Tensor, "token size"]:
    """log v_t: the probability of the words up to t and of what the vector is about there."""
    layout, maps = recursion.layout, [product(link) for link in recursion.log_links]
    blocks: list[Tensor] = []
    for time in range(layout.longest):
        vectors = through(maps, blocks[-1][: layout.alive[time + 1]]) if time else recursion.log_start[None]
        blocks.append(vectors + recursion.words_at(time))
    return torch.cat(blocks) if blocks else recursion.log_start.new_zeros(0, len(recursion.log_start))


def through(maps: Iterable[LogMap], vectors: Tensor) -> Tensor:
    for move in maps:
        vectors = move(vectors)
    return vectors


def backward_table(recursion: LogRecursion, product: LogProduct) -> Float[Tensor, "token size"]:
    """log of the derivative of Z with respect to v_t: the probability of the words after t."""
    layout, maps = recursion.layout, [product(link.T) for link in reversed(recursion.log_links)]
    blocks: list[Tensor] = []  # from the last step to the first
    for time in range(layout.longest - 1, -1, -1):
        ending = recursion.log_start.new_zeros(
            layout.alive[time + 1] - layout.alive[time + 2], len(recursion.log_start)
        )
        if not blocks:
            blocks.append(ending)
            continue
        blocks.append(torch.cat([through(maps, recursion.words_at(time + 1) + blocks[-1]), ending]))
    return torch.cat(blocks[::-1]) if blocks else recursion.log_start.new_zeros(0, len(recursion.log_start))
