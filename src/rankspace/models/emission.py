"""Log-probabilities of some words under a softmax over the whole vocabulary, without a table over the vocabulary.

The normaliser is summed over portions of the vocabulary, and each wanted logit is taken from the very portion that its
normaliser summed: the probabilities of all words sum to one as computed, in every precision. The backward pass computes
the portions again instead of keeping them, unless there is but one: its logits are kept, which is a quarter less work.
Both passes leave autocast: the second must find the logits of the first.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from rankspace.inference.differentiation import first_derivatives_only, tell_of_lacks, without_autocast

PORTION = 2**24  # logits computed at a time


def log_emission(
    hidden: Float[Tensor, "*batch symbol size"],
    vocabulary: Float[Tensor, "*own vocab size"],
    bias: Float[Tensor, "*own vocab"] | None = None,
    words: Int[Tensor, "*batch word"] | None = None,
    portion: int = PORTION,
) -> Float[Tensor, "*batch symbol word"]:
    """log softmax(hidden vocabulary^T + bias) over the vocabulary, at some words, or at all.

    With a leading axis, `batch`, each batch of symbols is asked about its own words; the vocabulary is that of all, or
    has the same leading axis. A bias of -inf leaves a word out. Of equal words in a row one at most may be used: the
    others must get gradients of zero, or the order in which a device adds them could be seen.

    Takes 2 * symbol * vocab * size flops forward for each batch, three times that backward (twice if all logits are one
    portion), and `portion` numbers of working memory besides the result, or all logits if they are fewer, which are
    kept for the backward pass, where as many come beside them; does not wait for the device. Differentiable once (any
    number of times for all words).
    """
    if bias is None:
        bias = vocabulary.new_zeros(vocabulary.shape[:-1])
    if words is None:
        return (hidden @ vocabulary.mT + bias.unsqueeze(-2)).log_softmax(-1)
    rows = hidden.to(vocabulary.dtype)
    if vocabulary.dim() == 2:
        rows, vocabulary, bias = rows.reshape(1, -1, rows.shape[-1]), vocabulary[None], bias[None]
    apply: Callable[..., Tensor] = _LogEmission.apply
    of_sentence = words[None] if words.dim() == 1 else words
    found = apply(rows, vocabulary, bias, of_sentence, hidden.shape[-2], portion)
    return found.view(*hidden.shape[:-1], words.shape[-1])


@tell_of_lacks
class _LogEmission(torch.autograd.Function):
    """Rows [group, row, size] meet the vocabulary [group, vocab, size]. Divided otherwise, the rows are the symbols
    [sentence, symbol] of the words [sentence, word]; the result is [sentence, symbol, word]."""

    @staticmethod
    def forward(
        ctx: Any, rows: Tensor, vocabulary: Tensor, bias: Tensor, words: Tensor, num_symbols: int, portion: int
    ) -> Float[Tensor, "sentence symbol word"]:
        num_sentences, num_words = words.shape
        found = rows.new_zeros(num_sentences, num_symbols, num_words)
        normaliser = rows.new_full(rows.shape[:2], -math.inf)
        parts = _portions(rows, vocabulary, portion)
        with without_autocast(rows.device):
            for part in parts:
                logits = _logits(rows, vocabulary, bias, part)
                normaliser = torch.logaddexp(normaliser, logits.logsumexp(2))
                place, here = _places(words, part, num_symbols)
                found = torch.where(here, logits.view(num_sentences, num_symbols, -1).gather(2, place), found)
        ctx.save_for_backward(rows, vocabulary, bias, words, normaliser, *([logits] if len(parts) == 1 else []))
        ctx.parts = parts
        return found - normaliser.view(num_sentences, num_symbols, 1)

    @staticmethod
    @first_derivatives_only
    def backward(ctx: Any, slopes: Tensor) -> tuple[Tensor | None, ...]:
        rows, vocabulary, bias, words, normaliser, *kept = ctx.saved_tensors
        of_rows, of_vocabulary, of_bias = (torch.zeros_like(tensor) for tensor in (rows, vocabulary, bias))
        total = slopes.sum(2).view_as(normaliser)[..., None]
        for part in ctx.parts:
            if kept:
                of_logits = kept[0] - normaliser[..., None]
            else:
                of_logits = _logits(rows, vocabulary, bias, part).sub_(normaliser[..., None])
            of_logits.exp_().mul_(-total)
            place, here = _places(words, part, slopes.shape[1])
            added = slopes.where(here, 0)  # one number and zeros to a place: any order will do
            of_logits.view(*slopes.shape[:2], -1).scatter_add_(2, place, added)
            of_rows.baddbmm_(of_logits, vocabulary[:, part])
            torch.bmm(of_logits.mT, rows, out=of_vocabulary[:, part])
            torch.sum(of_logits, 1, out=of_bias[:, part])
        return of_rows, of_vocabulary, of_bias, None, None, None


def _logits(rows: Tensor, vocabulary: Tensor, bias: Tensor, part: slice) -> Float[Tensor, "group row word"]:
    if len(rows) == 1:  # a product of two matrices adds the bias on its way
        return torch.addmm(bias[0, part], rows[0], vocabulary[0, part].T)[None]
    return torch.baddbmm(bias[:, None, part], rows, vocabulary[:, part].mT)


def _portions(rows: Tensor, vocabulary: Tensor, portion: int) -> list[slice]:
    """Words of the vocabulary, a portion at a time."""
    step, num_words = max(1, portion // max(1, rows.shape[0] * rows.shape[1])), vocabulary.shape[1]
    return [slice(start, min(start + step, num_words)) for start in range(0, num_words, step)]


def _places(words: Int[Tensor, "sentence word"], part: slice, num_symbols: int) -> tuple[Tensor, Tensor]:
    """The place of each word among some, the same for each symbol, and whether it is there at all."""
    here = (words >= part.start) & (words < part.stop)
    place = (words - part.start).clamp(0, part.stop - part.start - 1)
    return place[:, None].expand(-1, num_symbols, -1), here[:, None]
