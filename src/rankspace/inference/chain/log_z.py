"""log Z of a batch of chains as one differentiable function."""

from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from rankspace.inference.chain.backward import gradients, slopes
from rankspace.inference.chain.forward import Chart, Recursion, log_totals, run_forward
from rankspace.inference.chain.range_check import Support, lost_sentences
from rankspace.inference.differentiation import first_derivatives_only, tell_of_lacks, with_large_slopes


def log_z(recursion: Recursion, support: Support) -> tuple[Float[Tensor, "batch"], Bool[Tensor, "batch"]]:
    """log Z in float64, -inf for the impossible, and which sentences lost more than rounding (see `lost_sentences`).

    Differentiable once in `recursion.tensors`; lost and impossible sentences have gradient zero. An empty sentence has
    log Z = 0. Keeps |tokens| * size numbers for the backward pass.
    """
    result: tuple[Tensor, Tensor] = _LogZ.apply(recursion, support, *recursion.tensors)  # type: ignore[no-untyped-call]
    return result


@torch.no_grad()
def log_z_slopes(
    recursion: Recursion, direction: Recursion, support: Support
) -> tuple[Float[Tensor, "batch"], Bool[Tensor, "batch"]]:
    """Derivative of each sentence's log Z along a direction, zero for the impossible, and which sentences are lost."""
    chart = run_forward(recursion)
    lost = lost_sentences(recursion, chart, support)
    found = slopes(recursion, chart, direction, (chart.totals > 0) & ~lost)
    return found, recursion.layout.in_callers_order(lost)


@tell_of_lacks
class _LogZ(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, recursion: Recursion, support: Support, *tensors: Tensor) -> tuple[Tensor, Tensor]:
        chart = run_forward(recursion)
        lost = lost_sentences(recursion, chart, support)
        ctx.save_for_backward(*tensors, chart.outputs, chart.powers, chart.words, chart.log_scale, chart.totals, lost)
        ctx.recursion = recursion.like(tuple(tensor.detach() for tensor in tensors))
        in_order = recursion.layout.in_callers_order(lost)
        ctx.mark_non_differentiable(in_order)
        return log_totals(recursion, chart), in_order

    @staticmethod
    @first_derivatives_only
    @with_large_slopes
    def backward(ctx: Any, gradient: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        *tensors, outputs, powers, words, log_scale, totals, lost = ctx.saved_tensors
        recursion = ctx.recursion.like(tuple(tensors))
        chart = Chart(outputs, powers, words, log_scale, totals)
        seeds = gradient.index_select(0, recursion.layout.sentence_at)
        seeds = torch.where((totals > 0) & ~lost, seeds, 0)
        return (None, None, *gradients(recursion, chart, seeds))
