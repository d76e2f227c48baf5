"""Charts to try kernels on: random, filled by the plain-torch twins, and poisoned where a kernel must write."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from rankspace.inference.links import DenseLink
from rankspace.inference.ragged import ragged
from rankspace.inference.tree.inputs import Sentences, TreeInputs
from rankspace.inference.tree.inside import SpanWeights
from rankspace.inference.tree.triton_engine import span_rows
from rankspace.kernels.tree_chart import Chart, Weights, new_chart, padded
from rankspace.kernels.tree_splits import split_sums_by_torch
from rankspace.kernels.tree_words import lay_words_by_torch

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
NUM_WORDS = 6
SMALL = 3  # a rank that Python runs kernels of soon


def in_dtypes(ranks: Sequence[int]) -> list[Any]:
    """Ranks in float32, and in bfloat16: without a GPU the small one alone."""
    here = [(rank, torch.float32) for rank in ranks] + [(SMALL, torch.bfloat16)]
    there = [pytest.param(rank, torch.bfloat16, marks=pytest.mark.gpu) for rank in ranks if rank != SMALL]
    return [*here, *there]


def rounding(dtype: torch.dtype) -> float:
    """How far apart two sums may be, relative to them, that were computed in float32, in another order, and rounded to
    a dtype: one place of bfloat16, of which Triton's interpreter cuts off where a GPU rounds."""
    return 2.0**-7 if dtype == torch.bfloat16 else 1e-5


def random_inputs(rank: int, peak: float = 1.0, seed: int = 0) -> TreeInputs:
    """Rows of a softmax of logits times `peak`."""
    generator = torch.Generator().manual_seed(seed)

    def rows(*shape: int) -> Tensor:
        logits = torch.randn(shape, generator=generator, dtype=torch.float64) * peak
        return logits.softmax(-1).float().to(DEVICE)

    link = torch.cat([rows(rank, rank), rows(rank, rank)])
    return TreeInputs(DenseLink(link), torch.cat([rows(NUM_WORDS, rank), rows(NUM_WORDS, rank)], 1), rows(rank))


def random_sentences(lengths: Sequence[int], seed: int = 0) -> Sentences:
    generator = torch.Generator().manual_seed(seed)
    token_word = torch.randint(NUM_WORDS, (sum(lengths),), generator=generator).to(DEVICE)
    log_scale = torch.randn(NUM_WORDS, generator=generator, dtype=torch.float64).to(DEVICE)
    return Sentences(ragged(tuple(lengths), DEVICE), token_word, log_scale)


def random_log_weights(sentences: Sentences, seed: int = 0) -> Tensor:
    """Some spans are forbidden, some favoured beyond the range of float32; whole sentences and words are allowed."""
    layout, generator = sentences.layout, torch.Generator().manual_seed(seed)
    weights = 60 * torch.randn(layout.total_spans, generator=generator)
    weights[torch.rand(layout.total_spans, generator=generator) < 0.2] = -math.inf
    weights[: layout.num_tokens] = 0
    weights[layout.whole.cpu()] = 1.0
    return weights.to(DEVICE)


def with_mass(inputs: TreeInputs, seed: int = 0) -> TreeInputs:
    """Sums over splits are divided by numbers about one."""
    generator = torch.Generator().manual_seed(seed)
    return replace(inputs, mass=(0.8 + 0.4 * torch.rand(inputs.rank, generator=generator)).to(DEVICE))


def empty_chart(
    rank: int,
    sentences: Sentences,
    log_weights: Tensor | None,
    mass: Tensor | None = None,
    dtype: torch.dtype = torch.float32,
) -> Chart:
    """Nothing is written to it but NaN."""
    split = None if log_weights is None else SpanWeights.split(log_weights)
    weights = None if split is None else Weights(split.factor, split.power)
    inverse_mass = None if mass is None else torch.nn.functional.pad(1 / mass, (0, padded(rank) - rank))
    chart = new_chart(span_rows(sentences.layout), rank, weights, dtype, inverse_mass)
    chart.children.fill_(math.nan)
    chart.alpha.fill_(math.nan)
    chart.partial_base.fill_(12345)
    return chart


def filled_chart(
    inputs: TreeInputs,
    sentences: Sentences,
    log_weights: Tensor | None = None,
    dtype: torch.dtype = torch.float32,
) -> Chart:
    """The inside pass by the twins."""
    chart, rank = empty_chart(inputs.rank, sentences, log_weights, inputs.mass, dtype), inputs.rank
    lay_words_by_torch(chart, inputs.words, sentences.token_word)
    for width in range(2, chart.rows.longest + 1):
        split_sums_by_torch(chart, width)
        found = inputs.link.apply(chart.alpha[chart.rows.wide(width)][:, :rank].float()).unflatten(1, (2, rank))
        chart.children[chart.rows.spans(width)] = 0
        chart.children[chart.rows.spans(width), :, :rank] = found.to(dtype)
    return chart


def up_to(chart: Chart, width: int) -> Chart:
    """A copy in which nothing is known of a width and wider ones."""
    first = chart.rows.offsets[width]
    names = ("children", "alpha", "exponent", "power", "partial_base", "lost")
    copy = replace(chart, **{name: getattr(chart, name).clone() for name in names})
    copy.children[first:] = math.nan
    copy.alpha[max(first - chart.rows.num_tokens, 0) :] = math.nan
    copy.exponent[first:] = 12345
    copy.power[first:] = 12345
    copy.lost.zero_()
    return copy
