"""As `emission`, by kernels: log-probabilities of some words under a softmax over the whole vocabulary.

The result lies word by word, and words may occur any number of times: a batch can give its tokens as they are.
"""

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from rankspace.inference.differentiation import first_derivatives_only, tell_of_lacks, without_autocast
from rankspace.inference.gradient_products import Factor
from rankspace.inference.links import Precision, operand
from rankspace.models.fast_products import product

PORTION = 2**26  # logits computed at a time


def precision_of_words(precision: Precision) -> Precision:
    """That of words where a model has another: not "medium", for what a logit of a word is off by, log p is off by for
    each word."""
    return "high" if precision == "medium" else precision


def log_words(
    hidden: Float[Tensor, "symbol size"],
    vocabulary: Float[Tensor, "vocab size"],
    bias: Float[Tensor, "vocab"] | None,
    words: Int[Tensor, "word"],
    precision: Precision,
) -> Float[Tensor, "word symbol"]:
    """log softmax(hidden vocabulary^T + bias) over the vocabulary, at some words. A bias of -inf leaves a word out.

    2 * symbol * vocab * size flops forward, three times that backward, two of these three in bfloat16 unless the
    precision is "highest". The backward pass computes the logits again, by
    the same products: probabilities of all words sum to one as computed. Does not wait for the device.
    """
    apply: Callable[..., Tensor] = _LogWords.apply
    return apply(hidden, vocabulary, bias, words, precision)


@tell_of_lacks
class _LogWords(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, vocabulary: Tensor, bias: Tensor | None, words: Tensor, precision: Precision
    ) -> Tensor:
        from rankspace.kernels.vocabulary_softmax import Sums, copy_rows, normalisers, sum_portion

        rows, columns = operand(vocabulary, precision), operand(hidden, precision)
        found = hidden.new_empty(len(words), len(hidden))
        sums = []
        with without_autocast(hidden.device):
            for part, logits in _portions(rows, columns, precision):
                own = None if bias is None else bias[part]
                sums.append(sum_portion(logits, own))
                copy_rows(logits, own, words, part.start, found)
            normaliser = normalisers(Sums(*(torch.cat(each) for each in zip(*sums, strict=True))))
        ctx.save_for_backward(rows, columns, bias, words, normaliser)
        ctx.precision = precision
        return found.sub_(normaliser)

    @staticmethod
    @first_derivatives_only
    def backward(ctx: Any, slopes: Tensor) -> tuple[Tensor | None, ...]:
        from rankspace.kernels.vocabulary_softmax import LogitSlopes, in_order, logit_slopes

        rows, columns, bias, words, normaliser = ctx.saved_tensors
        given = LogitSlopes(normaliser, slopes.contiguous(), slopes.sum(0), in_order(words))
        precision: Precision = "highest" if ctx.precision == "highest" else "medium"
        row_operands, column_operands = operand(rows, precision), operand(columns, precision)
        columns_once, of_hidden = Factor.of(column_operands, precision), slopes.new_zeros(columns.shape)
        of_vocabulary, of_bias = slopes.new_empty(rows.shape), None if bias is None else torch.empty_like(bias)
        for part, logits in _portions(rows, columns, ctx.precision):
            of_logits = torch.empty_like(logits, dtype=row_operands.dtype)
            own = None if bias is None else bias[part]
            sums = logit_slopes(logits, own, given, part.start, of_logits)
            given_back = Factor.of(of_logits, precision)
            of_hidden += given_back.T.times(row_operands[part])
            of_vocabulary[part] = given_back.times(columns_once)
            if of_bias is not None:
                of_bias[part] = sums
        return of_hidden, of_vocabulary, of_bias, None, None


def _portions(rows: Tensor, columns: Tensor, precision: Precision) -> Any:
    """Words of the vocabulary, a portion at a time, and their logits [word, symbol] without the bias."""
    step = max(128, PORTION // max(1, len(columns)) // 128 * 128)
    for first in range(0, len(rows), step):
        part = slice(first, min(first + step, len(rows)))
        yield part, product(rows[part], columns.T, precision)
