"""The same recursion in log space, in plain differentiable operations: for what leaves all range, and for checks.

Any number of derivatives, none of them NaN where weights are zero. The sums are log-sum-exp, or maxima: then the charts
are those of the best derivation. Large tables are made a portion at a time and, where gradients are wanted, made again
in the backward pass instead of being kept.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from rankspace.inference.logarithms import log_matrix_product, log_sum_exp
from rankspace.inference.ragged import Ragged
from rankspace.inference.tree.pairs import inside_pairs

NUMBERS_TOGETHER = 2**22

Total = Callable[[Tensor, int], Tensor]  # what a sum over an axis of logarithms is


@dataclass(frozen=True)
class LogInputs:
    """Logarithms of what a tree recursion is made of. States are those of the grammar, or the ranks themselves."""

    root: Float[Tensor, "state"]
    first: Float[Tensor, "state rank"] | None  # ranks to states; None if states are ranks
    second: Float[Tensor, "both state"]  # states to ranks, as a left and as a right child
    sides: Float[Tensor, "both preterminal"]  # preterminals to ranks, likewise
    emission: Float[Tensor, "word preterminal"]  # of the distinct words

    @property
    def rank(self) -> int:
        return self.second.shape[0] // 2

    def map(self, function: Callable[[Tensor], Tensor]) -> "LogInputs":
        """A function applied to all tensors."""
        first = None if self.first is None else function(self.first)
        others = (function(tensor) for tensor in (self.root, self.second, self.sides, self.emission))
        root, second, sides, emission = others
        return LogInputs(root, first, second, sides, emission)

    def multiplied(self, total: Total = log_sum_exp) -> "LogInputs":
        """The same with states summed out (H, I and L of figure 4): states are ranks."""
        if self.first is None:
            return self
        root = log_product(self.root[None], self.first.T, total)[0]
        if total is log_sum_exp:
            second = log_matrix_product(self.second, self.first)
        else:
            second = log_product(self.second, self.first.T, total)
        return LogInputs(root, None, second, self.sides, self.emission)


class LogChart(NamedTuple):
    """By widths, from 1 (alpha and states: from 2): [span of the width, ...]. Rows are those of the layout."""

    children: list[Float[Tensor, "span both"]]
    alpha: list[Float[Tensor, "span rank"]]
    states: list[Float[Tensor, "span state"]]
    log_z: Float[Tensor, "place"]


class Offsets(NamedTuple):
    """Zeros added to a chart's entries: log Z's derivatives there are posterior probabilities."""

    tokens: Float[Tensor, "token preterminal"]
    states: Float[Tensor, "wide state"]  # of spans of two words or more

    @classmethod
    def zeros(cls, inputs: LogInputs, layout: Ragged) -> "Offsets":
        make = inputs.root.new_zeros
        return cls(
            make(layout.num_tokens, inputs.emission.shape[1]).requires_grad_(),
            make(layout.num_wide, len(inputs.root)).requires_grad_(),
        )


def log_chart(
    inputs: LogInputs,
    layout: Ragged,
    token_word: Int[Tensor, "token"],
    log_weights: Float[Tensor, "span"] | None = None,
    total: Total = log_sum_exp,
    offsets: Offsets | None = None,
) -> LogChart:
    """The inside pass. log Z is -inf for an impossible sentence and for one of fewer than two words."""
    children = [_words(inputs, token_word, total, offsets)]
    if log_weights is not None:
        children[0] = children[0] + log_weights[layout.spans(1), None]
    alphas, states = [], []
    log_z = [inputs.root.new_full((len(layout.lengths) - layout.alive[min(2, layout.longest + 1)],), -math.inf)]
    for width in range(2, layout.longest + 1):
        alpha = _split_sum(children, layout, width, total)
        alpha = alpha if log_weights is None else alpha + log_weights[layout.spans(width), None]
        state = alpha if inputs.first is None else log_product(alpha, inputs.first, total)
        state = state if offsets is None else state + offsets.states[layout.wide(width)]
        log_z.append(total(state[layout.whole_of(width)] + inputs.root, 1))
        alphas.append(alpha)
        states.append(state)
        if width < layout.longest:
            children.append(log_product(state, inputs.second, total))
    return LogChart(children, alphas, states, torch.cat(log_z[::-1]))


def log_product(
    rows: Float[Tensor, "row in"], matrix: Float[Tensor, "out in"], total: Total
) -> Float[Tensor, "row out"]:
    """log(exp(rows) exp(matrix)^T), a few rows at a time."""
    size = max(1, NUMBERS_TOGETHER // max(1, matrix.numel()))
    if len(rows) <= size:
        return _product(rows, matrix, total)
    keep_little = torch.is_grad_enabled() and (rows.requires_grad or matrix.requires_grad)
    parts = [
        checkpoint(_product, part, matrix, total, use_reentrant=False) if keep_little else _product(part, matrix, total)
        for part in rows.split(size)
    ]
    return torch.cat(parts)


def _product(rows: Tensor, matrix: Tensor, total: Total) -> Tensor:
    return total(rows[:, None] + matrix, 2)


def _words(inputs: LogInputs, token_word: Tensor, total: Total, offsets: Offsets | None) -> Float[Tensor, "token both"]:
    if offsets is not None:
        return log_product(inputs.emission[token_word] + offsets.tokens, inputs.sides, total)
    return log_product(inputs.emission, inputs.sides, total)[token_word]


def _split_sum(children: list[Tensor], layout: Ragged, width: int, total: Total) -> Float[Tensor, "row rank"]:
    """Sums over the splits of all spans of a width."""
    pairs, rank = inside_pairs(layout, width), children[0].shape[1] // 2
    shape = (*pairs.first.shape, rank)

    def summed(*children: Tensor) -> Tensor:
        table = torch.cat(children)
        left = table[:, :rank][pairs.first.flatten()].view(shape)  # its derivative is summed in a fixed order on a GPU
        return total(left + table[:, rank:][pairs.second.flatten()].view(shape), 0)

    if math.prod(shape) > NUMBERS_TOGETHER and torch.is_grad_enabled() and children[0].requires_grad:
        found: Tensor = checkpoint(summed, *children, use_reentrant=False)
        return found
    return summed(*children)


def log_lengths(inputs: LogInputs, max_length: int) -> Float[Tensor, "length"]:
    """log p(n words), n = 0 .. max_length, of inputs whose only word stands for all: every emission sums to one.

    Spans of one width are all alike: O(n^2 r + n r^2).
    """
    inputs = inputs.multiplied()
    rank = inputs.rank
    children = log_product(inputs.emission[:1], inputs.sides, log_sum_exp)
    found = inputs.root.new_full((max_length + 1,), -math.inf)
    for width in range(2, max_length + 1):
        alpha = log_sum_exp(children[:, :rank] + children.flip(0)[:, rank:], 0)
        found[width] = log_sum_exp(alpha + inputs.root, 0)
        children = torch.cat([children, log_product(alpha[None], inputs.second, log_sum_exp)])
    return found
