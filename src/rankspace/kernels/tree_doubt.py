"""How much of a sentence's probability passes through numbers that are too low to be trusted.

Numbers below the range of float32 are raised to FLOOR, at the scale at which they were summed, before anything reads
them (`tree_words`, `tree_splits`, and the link): what is computed is an upper bound x >= y of what is true, entry by
entry. log Z is the logarithm of a polynomial with positive coefficients, linear in each entry, so

    Z(x) - Z(y) <= sum over entries e with x_e > y_e of dZ/dx_e (x_e - y_e) <= FLOOR * sum over low e of dZ/dx_e

for the derivatives only grow with the entries, and none is wrong by more than FLOOR. The outside pass has the
derivatives of log Z anyway: one more pass over both charts proves that nothing was lost, or shows where.
"""

from typing import no_type_check

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Int
from torch import Tensor

from rankspace.kernels.scales import DOUBTFUL, FLOOR, power_of_two
from rankspace.kernels.tree_chart import Chart
from rankspace.kernels.tree_outside import Above

BLOCK = 1024


def doubts(chart: Chart, above: Above, places: Int[Tensor, "span"]) -> Float[Tensor, "batch"]:
    """[place]: the largest sum over the low entries of a span of FLOOR * derivative, in magnitude. `places` are those
    of all spans. Reads both charts once, but for sentences without a mark: those have no low entries."""
    count = chart.rows.num_parts
    found = torch.empty_like(chart.exponent[:count], dtype=torch.float32)
    _doubts[(count,)](
        chart.children,
        above.children,
        chart.alpha,
        above.alpha,
        chart.power,
        chart.lost,
        places,
        found,
        chart.rows.num_tokens,
        chart.padded,
        BLOCK=min(BLOCK, triton.next_power_of_2(chart.padded)),
    )
    return _largest(found, chart, places)


@triton.jit(do_not_specialize=["num_tokens"])
@no_type_check
def _doubts(
    children, of_children, alpha, of_alpha, power, lost, places, found, num_tokens, padded, BLOCK: tl.constexpr
):
    row = tl.program_id(0)
    if tl.load(lost + tl.load(places + row)) == 0:
        tl.store(found + row, 0.0)
        return
    lowest = DOUBTFUL * power_of_two(-tl.load(power + row))
    of_parts = tl.where(row < num_tokens, lowest, DOUBTFUL)
    share = FLOOR / DOUBTFUL
    total = tl.zeros([BLOCK], tl.float32)
    at = row.to(tl.int64) * (2 * padded)
    for first in range(0, 2 * padded, BLOCK):
        ranks = first + tl.arange(0, BLOCK)
        one = tl.load(children + at + ranks, mask=ranks < 2 * padded, other=0.0).to(tl.float32)
        other = tl.load(of_children + at + ranks, mask=ranks < 2 * padded, other=0.0).to(tl.float32)
        total += tl.where(one < of_parts, share * of_parts * tl.abs(other), 0.0)
    if row >= num_tokens:
        at = (row - num_tokens).to(tl.int64) * padded
        for first in range(0, padded, BLOCK):
            ranks = first + tl.arange(0, BLOCK)
            one = tl.load(alpha + at + ranks, mask=ranks < padded, other=0.0).to(tl.float32)
            other = tl.load(of_alpha + at + ranks, mask=ranks < padded, other=0.0).to(tl.float32)
            total += tl.where(one < lowest, share * lowest * tl.abs(other), 0.0)
    tl.store(found + row, tl.sum(total, 0))


def doubts_by_torch(chart: Chart, above: Above, places: Int[Tensor, "span"]) -> Float[Tensor, "batch"]:
    """What `doubts` must equal."""
    count, parts = chart.rows.num_tokens, chart.rows.num_parts
    lowest = DOUBTFUL.value * torch.exp2(-chart.power[:parts].float())
    of_parts = torch.full_like(lowest, DOUBTFUL.value)
    of_parts[:count] = lowest[:count]
    children, of_children = chart.children[:parts].flatten(1).float(), above.children.flatten(1).float()
    share = FLOOR.value / DOUBTFUL.value
    found = share * of_parts * of_children.abs().where(children < of_parts[:, None], 0).sum(1)
    alpha = chart.alpha[: parts - count].float()
    of_alpha = above.alpha.float().abs().where(alpha < lowest[count:, None], 0)
    found[count:] += share * lowest[count:] * of_alpha.sum(1)
    found = found.where(chart.lost[places[:parts]] > 0, 0)
    return _largest(found, chart, places)


def _largest(found: Float[Tensor, "part"], chart: Chart, places: Int[Tensor, "span"]) -> Float[Tensor, "batch"]:
    largest = found.new_zeros(chart.rows.num_sentences)
    return largest.scatter_reduce_(0, places[: len(found)], found, "amax")
