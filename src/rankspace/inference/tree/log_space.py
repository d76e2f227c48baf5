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

from rankspace.inference.logarithms import SPACING, exact_log_product, log_matrix_product, log_sum_exp
from rankspace.inference.ragged import Ragged
from rankspace.inference.tree.pairs import inside_pairs

NUMBERS_TOGETHER = 2**22

Total = Callable[[Tensor, int], Tensor]  # what a sum over an axis of logarithms is


@dataclass(frozen=True)
class LogInputs:
    """Logarithms of what a tree recursion is made of. States are those of the grammar, or the ranks themselves.

    The root may be each sentence's own, by places; so may the matrices, all of them, and then the root is, too.
    """

    root: Float[Tensor, "*place state"]
    first: Float[Tensor, "*stack state rank"] | None  # ranks to states; None if states are ranks
    second: Float[Tensor, "*stack both state"]  # states to ranks, as a left and as a right child
    sides: Float[Tensor, "*stack both preterminal"]  # preterminals to ranks, likewise
    emission: Float[Tensor, "word preterminal"]  # of the distinct words; of all tokens where sentences differ

    @property
    def rank(self) -> int:
        return self.second.shape[-2] // 2

    @property
    def num_states(self) -> int:
        return self.root.shape[-1]

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
        if self.first.dim() == 3:
            parts = [_multiplied(*matrices, total) for matrices in zip(self.root, self.second, self.first, strict=True)]
            root, second = (torch.stack(part) for part in zip(*parts, strict=True))
        else:
            root, second = _multiplied(self.root, self.second, self.first, total)
        return LogInputs(root, None, second, self.sides, self.emission)


def _multiplied(root: Tensor, second: Tensor, first: Tensor, total: Total) -> tuple[Tensor, Tensor]:
    at_root = log_product(root.reshape(-1, root.shape[-1]), first.T, total).view(*root.shape[:-1], first.shape[1])
    multiply = log_matrix_product(second, first) if total is log_sum_exp else log_product(second, first.T, total)
    return at_root, multiply


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
            make(layout.num_wide, inputs.num_states).requires_grad_(),
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
    children = [_words(inputs, layout, token_word, total, offsets)]
    if log_weights is not None:
        children[0] = children[0] + log_weights[: layout.num_tokens, None]
    alphas, states = [], []
    log_z = [inputs.root.new_full((len(layout.lengths) - layout.alive[min(2, layout.longest + 1)],), -math.inf)]
    for width in range(2, layout.longest + 1):
        alpha = _split_sum(children, layout, width, total)
        alpha = alpha if log_weights is None else alpha + log_weights[layout.spans(width), None]
        place, whole = layout.span_place(width), layout.whole_of(width)
        state = alpha if inputs.first is None else log_product(alpha, inputs.first, total, place)
        state = state if offsets is None else state + offsets.states[layout.wide(width)]
        log_z.append(total(state[whole] + (inputs.root if inputs.root.dim() == 1 else inputs.root[whole]), 1))
        alphas.append(alpha)
        states.append(state)
        if width < layout.longest:
            children.append(log_product(state, inputs.second, total, place))
    return LogChart(children, alphas, states, torch.cat(log_z[::-1]))


def log_product(
    rows: Float[Tensor, "row in"],
    matrix: Float[Tensor, "*place out in"],
    total: Total,
    place: Int[Tensor, "_"] | None = None,
) -> Float[Tensor, "row out"]:
    """log(exp(rows) exp(matrix)^T), a few rows at a time. Of a stack of matrices each row meets that at its `place`.

    Sums in float64 of which no derivative is wanted are matrix products, as exact as these.
    """
    place = None if matrix.dim() == 2 else place
    keep_little = torch.is_grad_enabled() and (rows.requires_grad or matrix.requires_grad)
    if total is log_sum_exp and place is None and matrix.dtype == torch.float64 and not keep_little:
        return exact_log_product(matrix)(rows)
    size = max(1, NUMBERS_TOGETHER // max(1, matrix.shape[-2] * matrix.shape[-1]))
    if len(rows) <= size:
        return _product(rows, matrix, total, place)
    parts = []
    for start in range(0, len(rows), size):
        some = slice(start, start + size)
        given = (rows[some], matrix, total, None if place is None else place[some])
        parts.append(checkpoint(_product, *given, use_reentrant=False) if keep_little else _product(*given))
    return torch.cat(parts)


def _product(rows: Tensor, matrix: Tensor, total: Total, place: Tensor | None) -> Tensor:
    return total(rows[:, None] + (matrix if place is None else matrix[place]), 2)


def _words(
    inputs: LogInputs, layout: Ragged, token_word: Tensor, total: Total, offsets: Offsets | None
) -> Float[Tensor, "token both"]:
    if offsets is not None:
        return log_product(inputs.emission[token_word] + offsets.tokens, inputs.sides, total, layout.token_place)
    return log_product(inputs.emission, inputs.sides, total, layout.token_place)[token_word]


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
    """log p(n words), n = 0 .. max_length, of inputs whose only word stands for all: every emission sums to one. Ends
    sooner where no longer sentence adds anything in float64 to all of the shorter ones.

    Spans of one width are all alike: O(n^2 r + n r^2). `levels` are children with trees of so many levels: if one level
    more adds nothing to any of them, they have all trees, and at the root is all that sentences of any length have.
    """
    inputs = inputs.multiplied()
    rank, total, is_all = inputs.rank, 0.0, False
    children = log_product(inputs.emission[:1], inputs.sides, log_sum_exp)
    found = [inputs.root.new_tensor(-math.inf)] * 2
    word, link, root = children[0].exp(), inputs.second.exp(), inputs.root.exp()
    levels = word
    while len(found) <= max_length and not is_all:
        alpha = log_sum_exp(children[:, :rank] + children.flip(0)[:, rank:], 0)
        found.append(log_sum_exp(alpha + inputs.root, 0))
        children = torch.cat([children, log_product(alpha[None], inputs.second, log_sum_exp)])
        more = word + link @ (levels[:rank] * levels[rank:])
        has_all_trees, levels = torch.equal(more, levels), more
        last, total = total, total + float(found[-1].exp())
        of_any_length = float((levels[:rank] * levels[rank:]) @ root)
        is_all = has_all_trees and total == last and of_any_length - total <= len(found) * SPACING
    return torch.stack(found[: max_length + 1])
