"""log p of a batch under `NeuralHMM` by kernels, from its weights to the batch in few launches.

    M = softmax(from_states to_states^T)        x_1 = s * e_1        x_t = (x_{t-1} M) * e_t

With X the vectors before the link and G the derivatives after it, one row for each word but the first of a sentence,
the gradient of the link is X^T G. Nothing waits for the device, and every size is known on the host from the layout, as
in `fast_chain`.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from rankspace.inference.differentiation import first_derivatives_only, tell_of_lacks, without_autocast
from rankspace.inference.links import Precision, operand
from rankspace.models.fast_batch import Batch
from rankspace.models.fast_emission import log_words, precision_of_words
from rankspace.models.fast_linked import Link, linked, linked_back
from rankspace.models.fast_networks import chosen, residual_network
from rankspace.models.fast_products import product
from rankspace.models.fast_tables import embedding_gradients, table
from rankspace.models.fast_vectors import doubted, possible, rows_of, settled, tensors_of
from rankspace.models.networks import kept_rows


def hmm_log_prob(
    model: Any, words: Int[Tensor, "batch length"], batch: Batch
) -> tuple[Float[Tensor, "batch"], Bool[Tensor, "batch"]]:
    """log p of each sentence in float64, and which sentences lost more than rounding: these have gradient zero.

    Does what `NeuralHMM.log_prob` does, without a look at the distinct words of the batch. Words and networks have
    a precision of their own (`precision_of_words`). Which states are left out torch's generator chooses.
    """
    finer = precision_of_words(batch.precision)
    states = kept_rows(model.states, model.settings["dropout"], model.training)
    transition, emission = model.transition, model.emission
    hidden = residual_network(emission.network, states, finer)
    found = log_words(hidden, emission.words.weight, emission.words.bias, batch.layout.pack(words), finer)
    return dense_chain_log_prob(
        residual_network(transition.from_state, states, finer) / math.sqrt(states.shape[1]),
        residual_network(transition.to_state, states, finer),
        chosen(model.start, states, finer),
        found,
        batch,
    )


def dense_chain_log_prob(
    from_states: Float[Tensor, "state size"],
    to_states: Float[Tensor, "state size"],
    start: Float[Tensor, "state"],
    log_words: Float[Tensor, "token state"],
    batch: Batch,
) -> tuple[Float[Tensor, "batch"], Bool[Tensor, "batch"]]:
    """log p of each sentence in float64, and which sentences lost more than rounding; these have gradient zero. With
    true lengths, and gradients, nothing waits for the device, and the backward pass may mark more
    (`Model.padded_log_prob`).

    `start` are probabilities, `log_words` log-probabilities of the tokens in the order of the layout. Takes 2 tokens
    m^2 flops forward and twice that backward besides the products of embeddings; keeps M.
    """
    apply: Callable[..., tuple[Tensor, Tensor]] = _DenseChain.apply
    batch = batch.with_doubt()
    found, lost = apply(from_states, to_states, start, log_words, batch)
    return found, lost if batch.doubt is None else batch.doubt


@tell_of_lacks
class _DenseChain(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        from_states: Tensor,
        to_states: Tensor,
        start: Tensor,
        log_words: Tensor,
        batch: Batch,
    ) -> tuple[Tensor, Tensor]:
        with without_autocast(start.device):
            sources, targets = (operand(each.detach(), batch.precision) for each in (from_states, to_states))
            link = _link(table(sources, targets, batch.precision, 0.0, batch.seed, number=0), batch.precision)
            rows = rows_of(batch.layout, batch.true_lengths)
            chain, ends = linked(rows, possible(start.detach()), link, log_words)

            def differentiate(ends: Any, slopes: Tensor) -> Any:
                return linked_back(chain, ends, slopes, link, batch.layout)

            ends = settled(ends, batch.doubt, chain, batch.layout, differentiate)
        ctx.save_for_backward(sources, targets, link.matrix, *tensors_of(chain), *ends)
        ctx.batch, ctx.rows = batch, rows
        ctx.mark_non_differentiable(ends.lost)
        return ends.log_z, ends.lost

    @staticmethod
    @first_derivatives_only
    def backward(ctx: Any, slopes: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        from rankspace.kernels.chain_table import Chain, Ends

        sources, targets, matrix, *others = ctx.saved_tensors
        chain, ends = Chain(ctx.rows, *others[:6]), Ends(*others[6:])
        layout, precision = ctx.batch.layout, ctx.batch.precision
        back = linked_back(chain, ends, slopes, Link(matrix, None, precision), layout)
        if ctx.batch.doubt is not None:
            ctx.batch.doubt.logical_or_(doubted(chain, ends, back, slopes, layout))
        first = layout.alive[1] if layout.longest else 0
        of_start = back.of_sums[:first].sum(0, dtype=torch.float32)
        before, after = chain.vectors.index_select(0, layout.previous), back.of_sums[first:]  # X and G
        of_from, of_to = embedding_gradients(
            lambda part: product(before[:, part].T, after, precision), matrix, sources, targets, precision
        )
        return of_from, of_to, of_start, back.of_words, None


def _link(matrix: Float[Tensor, "state state"], precision: Precision) -> Link:
    return Link(matrix, matrix.T.contiguous() if matrix.dtype == torch.bfloat16 else None, precision)
