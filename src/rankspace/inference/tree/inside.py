"""The inside pass in scaled linear space: width by width over all spans of all sentences (section 4.2)."""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from rankspace.inference.ragged import Ragged, ragged
from rankspace.inference.scaled import ZERO, lowest, power_of_two
from rankspace.inference.tree.inputs import Sentences, TreeInputs
from rankspace.inference.tree.splits import Splits, splits_of

QUANTUM = 32  # exponents are multiples of it: coarse, so that most are zero; fine against the range of float32
STEEPEST = 12.0  # bits per word that mantissas of single words make up for
LARGEST_WEIGHT = 2.0**21  # log weights of spans that exponents can make up for
PILOT = 6  # words and sentences that the growth of numbers is estimated from


@dataclass(frozen=True)
class SpanWeights:
    """exp(log weight) of each span as factor * 2^power, the factor near one or zero."""

    factor: Float[Tensor, "span"]
    power: Int[Tensor, "span"]

    @classmethod
    def split(cls, log_weights: Float[Tensor, "span"]) -> "SpanWeights":
        """Finite weights beyond LARGEST_WEIGHT count as one; whoever gives them must not use what comes of them."""
        finite = log_weights.where(log_weights.abs() <= LARGEST_WEIGHT, 0).double()
        power = (finite / math.log(2)).round()
        factor = (finite - power * math.log(2)).exp().to(log_weights.dtype)
        return cls(factor.where(log_weights > -math.inf, 0), power.int())


@dataclass(frozen=True)
class Inside:
    """The charts of a batch. A span's vector is its mantissas times 2^exponent times 2^(sum of its words' powers).

    children [side, span, R]: each span as a left and as a right child (whole sentences: not used);
    alpha [span of two words or more, R]: what came of its splits, largest mantissa near one; None if not kept;
    shift [span]: exponent of alpha relative to that of the sums it was computed as;
    weighted: whether there are exponents other than zero.
    """

    layout: Ragged
    token_power: Int[Tensor, "token"]
    children: Float[Tensor, "2 span rank"]
    exponent: Int[Tensor, "span"]
    shift: Int[Tensor, "span"]
    weighted: bool
    alpha: Float[Tensor, "wide rank"] | None
    top: Float[Tensor, "batch"]  # [place]: root . alpha of the whole sentence, a mantissa; 0 below two words
    log_z: Float[Tensor, "batch"]  # [sentence], float64

    @property
    def splits(self) -> Splits:
        return splits_of(self.layout, self.children, self.exponent)

    def both(self, rows: slice) -> Float[Tensor, "row both"]:
        """Some spans as children, left and right ranks in one row."""
        return joined(self.children[:, rows])


def inside(inputs: TreeInputs, sentences: Sentences, weights: SpanWeights | None, keep_alpha: bool) -> Inside:
    """All charts of a batch and log Z.

    Takes O(n^3 R) for the splits and n^2 / 2 applications of the link for a sentence of n words. Memory: the children,
    2R numbers for each span, and temporaries of one width; with `keep_alpha` R further numbers for each span.
    """
    layout, rank = sentences.layout, inputs.rank
    children = inputs.words.new_empty(2, layout.total_spans, rank)
    exponent, shift = torch.zeros(2, layout.total_spans, dtype=torch.int32, device=children.device)
    alpha = children.new_empty(layout.num_wide, rank) if keep_alpha else None
    top = children.new_zeros(len(layout.lengths))
    token_power = token_powers(inputs, sentences)
    weighted = _write_words(children, exponent, token_power, inputs, sentences, weights)
    splits = splits_of(layout, children, exponent)
    for width in range(2, layout.longest + 1):
        rows = layout.spans(width)
        sums = children.new_empty(rows.stop - rows.start, rank) if alpha is None else alpha[layout.wide(width)]
        base = splits.inside(width, weighted, sums)
        if weights is not None:
            sums *= weights.factor[rows, None]
            base += weights.power[rows]
        power = normalise_rows(sums, QUANTUM)
        if power is not None:
            shift[rows] = power
            base = (base + power).where(power > ZERO, ZERO)
        if power is not None or weighted:
            exponent[rows] = base
            weighted = True
        if width < layout.longest:
            children[:, rows] = parted(inputs.link.at(rows).apply(sums))
        whole = layout.whole_of(width)
        if whole.start < whole.stop:
            top[whole] = inputs.top(sums[whole], whole)
    log_z = _log_z(top, exponent, token_power, sentences)
    return Inside(layout, token_power, children, exponent, shift, weighted, alpha, top, log_z)


def parted(both: Float[Tensor, "row both"]) -> Float[Tensor, "2 row rank"]:
    """Left and right ranks apart; a view."""
    return both.view(len(both), 2, both.shape[1] // 2).transpose(0, 1)


def joined(sides: Float[Tensor, "2 row rank"]) -> Float[Tensor, "row both"]:
    """Left and right ranks in one row; a copy."""
    return sides.transpose(0, 1).reshape(sides.shape[1], 2 * sides.shape[2])


def normalise_rows(sums: Float[Tensor, "row rank"], quantum: int) -> Int[Tensor, "row"] | None:
    """Divides each row by a power of two, in place, and returns the powers; None if all are zero, and nothing was done.

    Powers are multiples of the quantum (even, or one), the nearest to that which brings the largest entry into [1/2,
    1). Below `lowest` a row is not brought up all the way: what it lost on the way there is more than rounding, and it
    will be found out. Rows of zeros have the power ZERO.
    """
    top = sums.amax(1)
    if top.device.type == "cpu" and quantum > 1 and _near_one(top, quantum):
        return None
    least = math.frexp(lowest(sums.dtype))[1]
    power = torch.frexp(top)[1].clamp(min=least)
    power = (power + quantum // 2).div(quantum, rounding_mode="floor") * quantum
    sums *= power_of_two(-power, sums.dtype)[:, None]
    return power.where(top > 0, ZERO)


def _near_one(top: Float[Tensor, "row"], quantum: int) -> bool:
    if not len(top):
        return True
    low, high = (value.item() for value in torch.aminmax(top))
    return 2.0 ** (-quantum // 2) <= low and high < 2.0 ** (quantum // 2 - 1)


def token_powers(inputs: TreeInputs, sentences: Sentences) -> Int[Tensor, "token"]:
    """The power of two that each token's row is divided by: what brings its largest entry near one, and as much more as
    spans change, on the average, with each word.

    The powers of a span's words add up, however it is split. So mantissas of all widths stay near one, and most batches
    need no exponents at all.
    """
    layout = sentences.layout
    each = normalise_rows(inputs.words.clone(), 1)
    assert each is not None
    each = each.where(each > ZERO, 0)[sentences.token_word]
    slope = _bits_per_word(inputs, sentences, each) if layout.longest > 2 * PILOT else 0
    if not slope:
        return each
    steps = (torch.arange(layout.longest + 1) * slope).floor().to(each)
    return each + (steps[1:] - steps[:-1])[layout.token_time]


def _bits_per_word(inputs: TreeInputs, sentences: Sentences, powers: Int[Tensor, "token"]) -> float:
    """How much log2 of a span's largest entry grows with each word: from the first few words of a few sentences.

    Entries of spans of n words go with n^(-3/2) c^n, as in every context-free grammar; this is log2 c.
    """
    layout = sentences.layout
    few = min(PILOT, layout.alive[PILOT])
    tokens = torch.cat([torch.arange(few) + layout.step(time).start for time in range(PILOT)]).to(powers.device)
    children = inputs.words.new_empty(2, few * PILOT * (PILOT + 1) // 2, inputs.rank)
    pilot = ragged((PILOT,) * few, powers.device)
    words = inputs.words[sentences.token_word[tokens]] * power_of_two(-powers[tokens], inputs.dtype)[:, None]
    children[:, : len(tokens)] = parted(words)
    splits = splits_of(pilot, children, torch.zeros_like(children[0, :, 0], dtype=torch.int32))
    tops = []
    for width in range(2, PILOT + 1):
        sums = children.new_empty(pilot.num_spans(width), inputs.rank)
        splits.inside(width, False, sums)
        tops.append(sums.amax(1).log2().mean())
        rows = layout.row(pilot.span_place(width), pilot.span_begin(width), width)
        children[:, pilot.spans(width)] = parted(inputs.link.at(rows).apply(sums))
    slope = float(tops[-1] - tops[-2]) + 1.5 * math.log2(PILOT / (PILOT - 1))
    return max(-STEEPEST, min(STEEPEST, slope)) if math.isfinite(slope) else 0.0


def _write_words(
    children: Tensor,
    exponent: Tensor,
    token_power: Tensor,
    inputs: TreeInputs,
    sentences: Sentences,
    weights: SpanWeights | None,
) -> bool:
    """Spans of one word: the rows of their words, scaled, times their weights. Whether there are exponents."""
    count = sentences.layout.num_tokens
    scale = power_of_two(-token_power, children.dtype)[:, None]
    for side, rows in zip(children, parted(inputs.words), strict=True):
        torch.mul(rows.index_select(0, sentences.token_word), scale, out=side[:count])
    nothing = inputs.words.amax(1)[sentences.token_word] == 0
    exponent[:count].masked_fill_(nothing, ZERO)
    if weights is None:
        return bool(nothing.any())
    children[:, :count] *= weights.factor[:count, None]
    exponent[:count] = (exponent[:count] + weights.power[:count]).clamp(min=ZERO)
    return bool((exponent[:count] != 0).any() | (weights.power != 0).any())


def _log_z(top: Tensor, exponent: Tensor, token_power: Tensor, sentences: Sentences) -> Float[Tensor, "batch"]:
    """In the caller's order: log top, plus exponent and powers of the sentence, plus what was taken out of words."""
    layout = sentences.layout
    if not layout.total_spans:
        return torch.full((len(layout.lengths),), -math.inf, dtype=torch.float64, device=top.device)
    scales = layout.unpack(sentences.log_scale[sentences.token_word] + token_power.double() * math.log(2)).sum(1)
    found = top.double().log() + exponent[layout.whole].double() * math.log(2)
    return layout.in_callers_order(found) + scales
