"""The inside pass in scaled linear space: width by width over all spans of all sentences (section 4.2)."""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from rankspace.inference.generic.scaled import ZERO, lowest, power_of_two
from rankspace.inference.ragged import Ragged
from rankspace.inference.tree.inputs import Sentences, TreeInputs
from rankspace.inference.tree.splits import Splits


@dataclass(frozen=True)
class SpanWeights:
    """exp(log weight) of each span as factor * 2^power, the factor near one or zero."""

    factor: Float[Tensor, "span"]
    power: Int[Tensor, "span"]

    @classmethod
    def split(cls, log_weights: Float[Tensor, "span"]) -> "SpanWeights":
        finite = log_weights.where(log_weights > -math.inf, 0).double()
        power = (finite / math.log(2)).round().clamp(-(2**24), 2**24)
        factor = (finite - power * math.log(2)).exp().to(log_weights.dtype)
        return cls(factor.where(log_weights > -math.inf, 0), power.int())


@dataclass(frozen=True)
class Inside:
    """The charts of a batch. A span's vector is its mantissas times 2^exponent.

    children [span, 2R]: each span as a left and as a right child (whole sentences: not used);
    alpha [span of two words or more, R]: what came of its splits, largest mantissa in [1/2, 1); None if not kept;
    shift [span]: exponent of the sums before they were normalised, relative to `exponent`.
    """

    layout: Ragged
    children: Float[Tensor, "span both"]
    exponent: Int[Tensor, "span"]
    shift: Int[Tensor, "span"]
    alpha: Float[Tensor, "wide rank"] | None
    top: Float[Tensor, "batch"]  # [place]: root . alpha of the whole sentence, a mantissa; 0 below two words
    log_z: Float[Tensor, "batch"]  # [sentence], float64

    @property
    def splits(self) -> Splits:
        return Splits(self.layout, self.children, self.exponent)


def inside(inputs: TreeInputs, sentences: Sentences, weights: SpanWeights | None, keep_alpha: bool) -> Inside:
    """All charts of a batch and log Z.

    Takes O(n^3 R) for the splits and n^2 / 2 applications of the link for a sentence of n words. Memory: the children,
    2R numbers for each span, and temporaries of one width; with `keep_alpha` R further numbers for each span.
    """
    layout, rank = sentences.layout, len(inputs.root)
    children = inputs.words.new_empty(layout.total_spans, 2 * rank)
    exponent, shift = torch.zeros(2, layout.total_spans, dtype=torch.int32, device=children.device)
    alpha = children.new_empty(layout.num_wide, rank) if keep_alpha else None
    top = children.new_zeros(len(layout.lengths))
    _write_words(children, exponent, inputs, sentences, weights)
    splits = Splits(layout, children, exponent)
    for width in range(2, layout.longest + 1):
        rows = layout.spans(width)
        sums, base = splits.inside(width)
        if weights is not None:
            sums *= weights.factor[rows, None]
            base += weights.power[rows]
        shift[rows] = power = normalise_rows(sums)
        exponent[rows] = (base + power).where(power > ZERO, ZERO)
        if width < layout.longest:
            children[rows] = inputs.link.apply(sums)
        whole = layout.whole_of(width)
        top[whole] = sums[whole] @ inputs.root
        if alpha is not None:
            alpha[layout.wide(width)] = sums
    return Inside(layout, children, exponent, shift, alpha, top, _log_z(top, exponent, sentences))


def normalise_rows(sums: Float[Tensor, "row rank"]) -> Int[Tensor, "row"]:
    """Divides each row by the power of two that brings its largest entry into [1/2, 1), in place; returns the powers.

    Below `lowest` a row is not brought up all the way: what it lost on the way there is more than rounding, and it will
    be found out. Rows of zeros have the power ZERO.
    """
    top = sums.amax(1)
    least = math.frexp(lowest(sums.dtype))[1]
    power = torch.frexp(top)[1].clamp(min=least)
    sums *= power_of_two(-power, sums.dtype)[:, None]
    return power.where(top > 0, ZERO)


def word_powers(words: Float[Tensor, "word both"]) -> Int[Tensor, "word"]:
    """The power of two that each word's row is divided by, so that its largest entry lies in [1/2, 1)."""
    return normalise_rows(words.clone())


def _write_words(
    children: Tensor,
    exponent: Tensor,
    inputs: TreeInputs,
    sentences: Sentences,
    weights: SpanWeights | None,
) -> None:
    """Spans of one word: the rows of their words, normalised, times their weights."""
    words = inputs.words.clone()
    power = normalise_rows(words)
    num_tokens = sentences.layout.num_tokens
    torch.index_select(words, 0, sentences.token_word, out=children[:num_tokens])
    exponent[:num_tokens] = power[sentences.token_word]
    if weights is not None:
        children[:num_tokens] *= weights.factor[:num_tokens, None]
        exponent[:num_tokens] = (exponent[:num_tokens] + weights.power[:num_tokens]).clamp(min=ZERO)


def _log_z(top: Tensor, exponent: Tensor, sentences: Sentences) -> Float[Tensor, "batch"]:
    """In the caller's order: log top, plus the exponent of the whole sentence, plus what was taken out of its words."""
    layout = sentences.layout
    if not layout.total_spans:
        return torch.full((len(layout.lengths),), -math.inf, dtype=torch.float64, device=top.device)
    scales = layout.unpack(sentences.log_scale[sentences.token_word]).sum(1)
    found = top.double().log() + exponent[layout.whole].double() * math.log(2)
    return layout.in_callers_order(found) + scales
