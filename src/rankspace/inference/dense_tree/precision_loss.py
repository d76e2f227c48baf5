"""Which sentences lost more than rounding because numbers left the range of their dtype.

Write tiny for the smallest normal number and eps for the spacing of numbers at one. All factors of the inside pass are
at most one on the scale they are stored: mantissas, powers of two of the splits, rules, heads, word vectors on their
own scale. Whatever is dropped on the way to a span's vector, be it an exponential, a power of two, a product, an entry
of a pair or of rho, is therefore below tiny for each term of the sum, at the scale 2^base at which the span's splits
were added; rules and heads do not amplify it, for their rows sum to one. So an entry of

    head . rho   at the scale 2^base

is right up to eps for each term of its sum if it is at least `lowest` = tiny / eps. Pairs and rho need no check of
their own, and neither does the vector after it is normalised. The vector of a whole sentence is used in root . x alone:
that sum takes the place of its entries. The entries of the word vectors must be at least `lowest` likewise. If all are,
nothing was dropped that a later step could have needed, and the result is right up to rounding. Weights of spans come
after the check and are exact but for rounding.

Where a weight is exactly zero, an entry may rightly be. Then the same recursion over zeros and ones tells which entries
are possible at all, and only these are judged.
"""

from collections.abc import Callable

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from rankspace.inference.dense_tree.inside import Chart, SpanScale, inside, span_scale
from rankspace.inference.dense_tree.weights import DenseWeights, root_rows
from rankspace.inference.ragged import Ragged
from rankspace.inference.scaled import ZERO, lowest, power_of_two

SupportOf = Callable[[], DenseWeights | None]  # ones where weights are not exactly zero; None if no weight is


def lost_sentences(
    weights: DenseWeights,
    layout: Ragged,
    chart: Chart,
    z: Float[Tensor, "long"],
    support_of: SupportOf,
) -> Bool[Tensor, "places"]:
    """By place. `z`: root . x of the sentences of two words or more, which come first.

    One look at the chart; where entries are low and weights zero, one further inside pass.
    """
    whole = layout.whole[: len(z)] - layout.num_tokens
    threshold = _thresholds(chart, span_scale(weights, layout))
    low_words = weights.words < lowest(weights.dtype)
    low_spans = chart.spans < threshold[:, None]
    low_spans[whole] = False
    low_root = z < threshold[whole].clamp(min=lowest(z.dtype))
    found = bool(low_words.any() | low_spans.any() | low_root.any())
    possible = support_of() if found else None
    if possible is not None:
        support = inside(possible, layout, support=True)
        low_words &= support.words > 0
        low_spans &= support.spans > 0
        low_root &= (support.spans[whole] * root_rows(possible, len(z))).sum(1) > 0
    return _by_place(layout, torch.cat([low_words.any(1), low_spans.any(1)]), low_root)


def _thresholds(chart: Chart, scale: SpanScale | None) -> Float[Tensor, "span"]:
    """`lowest` at the scale of each span's splits, as mantissas of the span; infinite where the span is zero."""
    exponent = chart.exponent[len(chart.words) :]
    shift = chart.base - exponent
    if scale is None:
        factor = power_of_two(shift, chart.spans.dtype)
    else:
        factor = power_of_two(shift + scale.exponent[len(chart.words) :], chart.spans.dtype)
        factor = factor * scale.mantissa[len(chart.words) :]
    return (lowest(chart.spans.dtype) * factor).masked_fill(exponent == ZERO, torch.inf)


def _by_place(layout: Ragged, rows: Bool[Tensor, "rows"], roots: Bool[Tensor, "long"]) -> Bool[Tensor, "places"]:
    found = layout.to_chart(rows.to(torch.float32)).flatten(1).any(1).index_select(0, layout.sentence_at)
    found[len(roots) :] = False  # of one word or none: impossible, and nothing was computed
    found[: len(roots)] |= roots
    return found
