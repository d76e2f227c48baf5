"""Log-probabilities of some words under a softmax over the whole vocabulary, without a table over the vocabulary.

The normaliser is summed over portions of the vocabulary, and each wanted logit is taken from the very portion that its
normaliser summed: the probabilities of all words sum to one as computed, in every precision. The backward pass computes
the portions again instead of keeping them.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from rankspace.inference.differentiation import first_derivatives_only

PORTION = 2**24  # logits computed at a time


def log_emission(
    hidden: Float[Tensor, "symbol size"],
    vocabulary: Float[Tensor, "vocab size"],
    bias: Float[Tensor, "vocab"] | None = None,
    words: Int[Tensor, "word"] | None = None,
    portion: int = PORTION,
) -> Float[Tensor, "symbol word"]:
    """log softmax(hidden vocabulary^T + bias) over the vocabulary, at some words, or at all.

    Takes 2 * symbol * vocab * size flops forward, three times that backward, and `portion` numbers of working memory
    besides the result; does not wait for the device. Differentiable once (any number of times for all words).
    """
    if bias is None:
        bias = vocabulary.new_zeros(len(vocabulary))
    if words is None:
        return torch.addmm(bias, hidden, vocabulary.T).log_softmax(-1)
    apply: Callable[..., Tensor] = _LogEmission.apply
    return apply(hidden, vocabulary, bias, words, portion)


class _LogEmission(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, vocabulary: Tensor, bias: Tensor, words: Tensor, portion: int
    ) -> Float[Tensor, "symbol word"]:
        found = hidden.new_zeros(len(hidden), len(words))
        normaliser = hidden.new_full((len(hidden),), -math.inf)
        for rows in _portions(hidden, vocabulary, portion):
            logits = torch.addmm(bias[rows], hidden, vocabulary[rows].T)
            normaliser = torch.logaddexp(normaliser, logits.logsumexp(1))
            place, here = _places(words, rows)
            found = torch.where(here, logits.index_select(1, place), found)
        ctx.save_for_backward(hidden, vocabulary, bias, words, normaliser)
        ctx.portion = portion
        return found - normaliser[:, None]

    @staticmethod
    @first_derivatives_only
    def backward(ctx: Any, slopes: Tensor) -> tuple[Tensor | None, ...]:
        hidden, vocabulary, bias, words, normaliser = ctx.saved_tensors
        of_hidden, of_vocabulary, of_bias = (torch.zeros_like(tensor) for tensor in (hidden, vocabulary, bias))
        total = slopes.sum(1, keepdim=True)
        for rows in _portions(hidden, vocabulary, ctx.portion):
            logits = torch.addmm(bias[rows], hidden, vocabulary[rows].T)
            of_logits = logits.sub_(normaliser[:, None]).exp_().mul_(-total)
            place, here = _places(words, rows)
            of_logits.index_add_(1, place, slopes.where(here, 0))  # one number and zeros to a place: any order will do
            of_hidden.addmm_(of_logits, vocabulary[rows])
            torch.mm(of_logits.T, hidden, out=of_vocabulary[rows])
            torch.sum(of_logits, 0, out=of_bias[rows])
        return of_hidden, of_vocabulary, of_bias, None, None


def _portions(hidden: Tensor, vocabulary: Tensor, portion: int) -> list[slice]:
    """Rows of the vocabulary, a portion at a time."""
    step = max(1, portion // max(1, len(hidden)))
    return [slice(start, min(start + step, len(vocabulary))) for start in range(0, len(vocabulary), step)]


def _places(words: Int[Tensor, "word"], rows: slice) -> tuple[Int[Tensor, "word"], Tensor]:
    """The place of each word among some rows, and whether it is there at all."""
    here = (words >= rows.start) & (words < rows.stop)
    return (words - rows.start).clamp(0, rows.stop - rows.start - 1), here
