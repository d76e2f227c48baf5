"""Charts of full rule tensors to try kernels on: filled by the plain-torch twins, poisoned where a kernel writes."""

import math
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from rankspace.inference.ragged import ragged
from rankspace.inference.tree.triton_engine import span_rows
from rankspace.kernels.dense_chart import DenseAbove, DenseChart, new_dense_above, new_dense_chart
from rankspace.kernels.dense_pairs import pair_sums_by_torch
from rankspace.kernels.dense_spans import span_vectors_by_torch

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def random_tensor(*shape: int, seed: int = 0) -> Tensor:
    """Positive, of several orders of magnitude, as products of probabilities are."""
    generator = torch.Generator().manual_seed(seed)
    return (3 * torch.randn(shape, generator=generator)).exp().to(DEVICE)


def begun_chart(size: int, lengths: Sequence[int], true_lengths: Sequence[int] | None = None) -> DenseChart:
    """Words and their links; NaN and nonsense elsewhere."""
    rows = span_rows(ragged(tuple(lengths), DEVICE))
    if true_lengths is not None:
        rows = replace(rows, length=torch.tensor(true_lengths, dtype=torch.int32, device=DEVICE))
    chart = new_dense_chart(rows, random_tensor(rows.num_tokens, 2), size)
    chart.links[:] = random_tensor(*chart.links.shape, seed=1)
    chart.spans.fill_(math.nan)
    chart.pairs.fill_(math.nan)
    chart.exponent.fill_(12345)
    chart.base.fill_(54321)
    chart.exponent[: rows.num_tokens] = torch.arange(rows.num_tokens, device=DEVICE) % 3
    return chart


def random_rho(chart: DenseChart, width: int) -> Tensor:
    """What pairs come to, as long as there are any; of two words, anything."""
    count = chart.rows.num_spans(width)
    if width == 2:
        chart.base[chart.rows.wide(2)] = 3
        return random_tensor(count, chart.size, seed=2)
    rule = random_tensor(chart.size**2, chart.size, seed=3)
    return chart.pairs[chart.wider(width)].flatten(1) @ rule


def filled_chart(size: int, lengths: Sequence[int], true_lengths: Sequence[int] | None = None) -> DenseChart:
    """The inside pass by the twins."""
    chart = begun_chart(size, lengths, true_lengths)
    for width in range(2, chart.rows.longest + 1):
        if width > 2:
            pair_sums_by_torch(chart, width)
        span_vectors_by_torch(chart, random_rho(chart, width), width)
    return chart


def up_to(chart: DenseChart, width: int) -> DenseChart:
    """A copy in which nothing is known of a width and wider ones."""
    names = ("spans", "pairs", "exponent", "base", "lost")
    copy = replace(chart, **{name: getattr(chart, name).clone() for name in names})
    first = chart.rows.offsets[width]
    copy.spans[first - chart.rows.num_tokens :] = math.nan
    copy.base[first - chart.rows.num_tokens :] = 54321
    copy.pairs[max(first - chart.rows.offsets[3], 0) :] = math.nan
    copy.exponent[first:] = 12345
    copy.lost.zero_()
    return copy


def random_above(chart: DenseChart) -> DenseAbove:
    """Derivatives of both signs, as slopes may have."""
    generator = torch.Generator().manual_seed(5)

    def rows(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator).to(DEVICE)

    above = new_dense_above(chart, rows(chart.rows.num_sentences, chart.size))
    above.rho[:], above.pairs[:] = rows(*above.rho.shape), rows(*above.pairs.shape)
    return above
