"""The outside pass, wide spans first: derivatives of log Z with respect to every vector of the inside pass.

Derivatives are those with respect to mantissas; exponents are constants. Each is a posterior probability over a
mantissa, hence at most one over the smallest mantissa that is trusted: no scaling is needed.
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from rankspace.devices import is_gpu
from rankspace.inference.scaled import power_of_two
from rankspace.inference.tree.inputs import Sentences, TreeInputs
from rankspace.inference.tree.inside import Inside, SpanWeights


class Step(NamedTuple):
    """All spans of a width. Valid until the next step is asked for."""

    width: int
    rows: slice  # in the table of spans
    of_children: Float[Tensor, "row both"]  # derivatives with respect to the children rows
    alpha: Float[Tensor, "row rank"] | None  # None for single words
    of_alpha: Float[Tensor, "row rank"] | None
    whole: slice  # rows, within the width, that are whole sentences
    of_top: Float[Tensor, "whole"]  # derivatives of these sentences' log Z with respect to root . alpha


def outside(
    inputs: TreeInputs,
    chart: Inside,
    weights: SpanWeights | None,
    slopes: Float[Tensor, "place"],
    has_zeros: bool,
) -> Iterator[Step]:
    """Steps from the widest spans down to single words, of sum over sentences of slopes * log Z.

    Uses the alpha of the chart up: it is overwritten by derivatives. Gather form, no atomics: a span asks all spans it
    can be a part of. Beyond the chart, temporaries of one width. Sentences with slope zero, which those of Z = 0 must
    be, get zeros. `has_zeros`: whether a child can be zero. Derivatives there could be beyond all range, carry nothing
    to positive weights, and are left out.
    """
    layout, above = chart.layout, chart.alpha
    assert above is not None
    above_exponent = chart.exponent if weights is None else chart.exponent - weights.power
    splits = chart.splits
    of_top = (slopes / chart.top).where(slopes != 0, 0)
    for width in range(layout.longest, 0, -1):
        rows, whole = layout.spans(width), layout.whole_of(width)
        of_children = splits.outside(width, above, above_exponent, chart.weighted)
        if has_zeros and width < layout.longest:
            of_children.masked_fill_(chart.both(rows) == 0, 0)
        if width == 1:
            yield Step(width, rows, of_children, None, None, whole, of_top[whole])
            return
        alpha = above[layout.wide(width)]
        of_alpha = inputs.link.at(rows).transposed(of_children)
        if whole.start < whole.stop:
            of_alpha[whole] += of_top[whole, None] * inputs.root_at(whole)
        yield Step(width, rows, of_children, alpha, of_alpha, whole, of_top[whole])
        alpha.copy_(of_alpha if weights is None else of_alpha * weights.factor[rows, None])
        del of_children, of_alpha  # before those of the next width are made


class Gradients(NamedTuple):
    words: Float[Tensor, "word both"]
    root: Float[Tensor, "*place rank"]
    of_link: tuple[Tensor, ...]
    weights: Float[Tensor, "span"] | None  # posterior probabilities of spans, times the slopes

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return (self.words, self.root, *self.of_link)


def gradients(
    inputs: TreeInputs,
    sentences: Sentences,
    chart: Inside,
    weights: SpanWeights | None,
    slopes: Float[Tensor, "place"],
    has_zeros: bool,
) -> Gradients:
    """Everything from one outside pass. Marginals of spans are row sums of alpha * derivative, at no further cost."""
    of_root = torch.zeros_like(inputs.root)
    of_words = None
    of_link = tuple(torch.zeros_like(tensor) for tensor in inputs.link.tensors)
    marginals = None if weights is None else torch.zeros_like(weights.factor)
    for step in outside(inputs, chart, weights, slopes, has_zeros):
        if step.alpha is None or step.of_alpha is None:
            if marginals is not None:
                marginals[step.rows] = (chart.both(step.rows) * step.of_children).sum(1)
            of_words = _of_words(inputs, sentences, chart, weights, step.of_children)
            break
        for total, part in zip(of_link, inputs.link.at(step.rows).gradients(step.alpha, step.of_children), strict=True):
            total[: len(part)] += part  # of sentences' own matrices only the first have spans of this width
        if of_root.dim() > 1:
            of_root[step.whole] = step.of_top[:, None] * step.alpha[step.whole]
        elif len(step.of_top):
            of_root += step.of_top @ step.alpha[step.whole]
        if marginals is not None:
            marginals[step.rows] = (step.alpha * step.of_alpha).sum(1)
        del step, part  # so that its tables are gone while the next ones are made
    of_words = torch.zeros_like(inputs.words) if of_words is None else of_words
    return Gradients(of_words, of_root, of_link, marginals)


def _of_words(
    inputs: TreeInputs, sentences: Sentences, chart: Inside, weights: SpanWeights | None, of_tokens: Tensor
) -> Float[Tensor, "word both"]:
    """From tokens to distinct words: in a fixed order, on a GPU too. Overwrites the derivatives of tokens."""
    half = chart.token_power // 2
    for power in (half, chart.token_power - half):  # the whole can be out of range
        of_tokens *= power_of_two(-power, of_tokens.dtype)[:, None]
    if weights is not None:
        of_tokens *= weights.factor[: len(of_tokens), None]
    found = torch.zeros_like(inputs.words)
    if is_gpu(found.device):
        return found.index_put_((sentences.token_word,), of_tokens, accumulate=True)
    return found.index_add_(0, sentences.token_word, of_tokens)
