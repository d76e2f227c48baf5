"""log Z of low-rank trees in scaled linear space, with an explicit outside pass as its derivative.

Memory: the inside pass keeps 2R numbers for each span (its vectors as a left and as a right child) and temporaries of
one width. If a gradient is wanted, R further numbers for each span hold the sums over splits; the outside pass
overwrites them, width by width, with derivatives, so it needs no chart of its own.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from rankspace.inference.differentiation import first_derivatives_only, tell_of_lacks, with_large_slopes
from rankspace.inference.tree.inputs import Sentences, TreeInputs
from rankspace.inference.tree.inside import Inside, SpanWeights, inside
from rankspace.inference.tree.outside import gradients
from rankspace.inference.tree.range_check import Support, lost_sentences
from rankspace.inference.tree.triton_engine import log_z_by_kernels


def log_z(
    inputs: TreeInputs,
    sentences: Sentences,
    support: Support,
    log_weights: Float[Tensor, "span"] | None = None,
    kernels: bool = False,
) -> tuple[Float[Tensor, "batch"], Bool[Tensor, "batch"]]:
    """log Z of each sentence, float64, in the caller's order; and which sentences lost more than rounding on the way.

    Differentiable once, in the tensors of the inputs and in `log_weights`, which are added to the log weight of each
    span (-inf forbids it); the latter gradient is the posterior probability of the span. -inf, with zero gradients, for
    sentences that are impossible; gradients of lost ones are zero as well. For `support` see `lost_sentences`.
    With `kernels` by Triton, which does not ask for supports: a sentence may then be lost for a true zero.
    """
    if kernels:
        return log_z_by_kernels(inputs, sentences, log_weights)
    apply: Callable[..., tuple[Tensor, Tensor]] = _LogZ.apply
    return apply(inputs.detach(), sentences, support, log_weights, *inputs.tensors)


@tell_of_lacks
class _LogZ(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        inputs: TreeInputs,
        sentences: Sentences,
        support: Support,
        log_weights: Tensor | None,
        *tensors: Tensor,
    ) -> tuple[Tensor, Tensor]:
        weights = None if log_weights is None else SpanWeights.split(log_weights.detach())
        chart = inside(inputs, sentences, weights, keep_alpha=any(ctx.needs_input_grad))
        lost, has_zeros = lost_sentences(inputs, sentences, chart, weights, support)
        ctx.inputs, ctx.sentences, ctx.weights, ctx.has_zeros = inputs, sentences, weights, has_zeros
        ctx.alpha, ctx.weighted = chart.alpha, chart.weighted
        ctx.save_for_backward(chart.token_power, chart.children, chart.exponent, chart.top, chart.log_z, lost)
        ctx.mark_non_differentiable(lost)
        ctx.set_materialize_grads(False)
        return chart.log_z, lost

    @staticmethod
    @first_derivatives_only
    @with_large_slopes
    def backward(ctx: Any, slopes: Tensor | None, _: Tensor | None) -> tuple[Tensor | None, ...]:
        nothing = (None,) * 4
        if slopes is None:
            return (*nothing, *(None for _ in ctx.inputs.tensors))
        token_power, children, exponent, top, log_z, lost = ctx.saved_tensors
        alpha, ctx.alpha = ctx.alpha, None
        if alpha is None:  # used up by an earlier backward pass through the same graph
            alpha = inside(ctx.inputs, ctx.sentences, ctx.weights, keep_alpha=True).alpha
        layout = ctx.sentences.layout
        chart = Inside(layout, token_power, children, exponent, exponent, ctx.weighted, alpha, top, log_z)
        slopes = slopes.where(~lost & (log_z > -math.inf), 0)
        unit = slopes.abs().amax().clamp(min=torch.finfo(torch.float64).tiny) if len(slopes) else 1
        by_place = (slopes / unit).to(top.dtype)[layout.sentence_at]
        found = gradients(ctx.inputs, ctx.sentences, chart, ctx.weights, by_place, ctx.has_zeros)
        of_weights = None if found.weights is None else found.weights * unit
        return (None, None, None, of_weights, *(tensor * unit for tensor in found.tensors))
