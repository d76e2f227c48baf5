"""Posterior probabilities of spans, times the slopes of their sentences: numbers times their derivatives."""

from typing import no_type_check

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

from rankspace.kernels.tree_chart import Chart
from rankspace.kernels.tree_outside import Above

BLOCK = 1024


def span_marginals(chart: Chart, above: Above) -> Float[Tensor, "span"]:
    """alpha . derivative of each span, or children . derivative of a word. Spans of the largest width, which are whole
    sentences, are left at zero. Reads both charts once: 8R bytes for each span."""
    found = torch.zeros_like(chart.exponent, dtype=torch.float32)
    _span_marginals[(chart.rows.num_parts,)](
        chart.children,
        above.children,
        chart.alpha,
        above.alpha,
        found,
        chart.rows.num_tokens,
        chart.padded,
        BLOCK=min(BLOCK, triton.next_power_of_2(chart.padded)),
    )
    return found


@triton.jit(do_not_specialize=["num_tokens"])
@no_type_check
def _span_marginals(children, of_children, alpha, of_alpha, found, num_tokens, padded, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    total = tl.zeros([BLOCK], tl.float32)
    if row < num_tokens:
        at = row.to(tl.int64) * (2 * padded)
        for first in range(0, 2 * padded, BLOCK):
            ranks = first + tl.arange(0, BLOCK)
            one = tl.load(children + at + ranks, mask=ranks < 2 * padded, other=0.0).to(tl.float32)
            total += one * tl.load(of_children + at + ranks, mask=ranks < 2 * padded, other=0.0)
    else:
        at = (row - num_tokens).to(tl.int64) * padded
        for first in range(0, padded, BLOCK):
            ranks = first + tl.arange(0, BLOCK)
            one = tl.load(alpha + at + ranks, mask=ranks < padded, other=0.0).to(tl.float32)
            total += one * tl.load(of_alpha + at + ranks, mask=ranks < padded, other=0.0)
    tl.store(found + row, tl.sum(total, 0))


def span_marginals_by_torch(chart: Chart, above: Above) -> Float[Tensor, "span"]:
    """What `span_marginals` must equal."""
    count, parts = chart.rows.num_tokens, chart.rows.num_parts
    found = torch.zeros_like(chart.exponent, dtype=torch.float32)
    found[:count] = (chart.children[:count].float() * above.children[:count]).flatten(1).sum(1)
    found[count:parts] = (chart.alpha[: parts - count].float() * above.alpha).sum(1)
    return found
