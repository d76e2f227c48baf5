"""What chains over ranks and chains over states share on their way through kernels."""

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from rankspace.devices import is_gpu
from rankspace.inference.ragged import Ragged


def rows_of(layout: Ragged, true_lengths: Int[Tensor, "batch"] | None = None) -> Any:
    """Where the rows of words lie. True lengths, of at most the layout's, are in the order of the caller."""
    from rankspace.kernels.chain_table import TokenRows

    before, _, _, _, length, sentence = layout.row_arithmetic
    if true_lengths is not None:
        length = true_lengths.index_select(0, layout.sentence_at).to(torch.int32)
    return TokenRows(before, length, sentence, layout.before)


def possible(start: Float[Tensor, "size"]) -> Float[Tensor, "size"]:
    """Probabilities of a sum or a softmax, none of whose numbers is zero but by underflow: none is, and they sum to one
    as computed."""
    from rankspace.kernels.chain_table import FLOOR

    raised = start.float().clamp(min=FLOOR.value)
    return raised / raised.sum()


def begun(rows: Any, start: Float[Tensor, "size"], log_words: Float[Tensor, "token size"], dtype: torch.dtype) -> Any:
    """A chain with its words and the vectors of the first of them."""
    from rankspace.kernels.chain_ends import lay_words
    from rankspace.kernels.chain_steps import first_step
    from rankspace.kernels.chain_table import new_chain

    chain = new_chain(rows, start, dtype)
    if rows.num_tokens:
        lay_words(chain, log_words.detach())
        first_step(chain)
    return chain


def begun_back(chain: Any, ends: Any, slopes: Float[Tensor, "batch"], layout: Ragged) -> Any:
    """Derivatives, those of the last words of all filled in; none of sentences that are lost or impossible."""
    from rankspace.kernels.chain_steps_back import step_back
    from rankspace.kernels.chain_table import new_slopes

    counted = counted_slopes(ends, slopes, layout)
    found = new_slopes(chain, (counted / ends.total).where(counted != 0, 0).float())
    if chain.rows.longest:
        step_back(chain, found, chain.rows.longest - 1, None)
    return found


def settled(
    ends: Any,
    doubt: Bool[Tensor, "batch"] | None,
    chain: Any,
    layout: Ragged,
    differentiate: Callable[[Any, Tensor], Any],
) -> Any:
    """The ends with the sentences among the lost whose low outputs matter. `doubt`, where it is given, begins with
    those that are lost already: the rest is for the backward pass to add, and nothing waits for the device. Otherwise
    `differentiate`, which gives derivatives for slopes, is asked at once if there is need."""
    if doubt is not None:
        doubt.copy_(ends.lost)
        return ends
    if is_gpu(ends.low.device) and torch.cuda.is_current_stream_capturing():  # nothing can be asked there
        return ends._replace(lost=ends.lost | layout.in_callers_order(ends.low))
    if not bool(ends.low.any()):
        return ends
    slopes = torch.ones_like(ends.log_z)
    return ends._replace(lost=ends.lost | doubted(chain, ends, differentiate(ends, slopes), slopes, layout))


def doubted(chain: Any, ends: Any, back: Any, slopes: Float[Tensor, "batch"], layout: Ragged) -> Bool[Tensor, "batch"]:
    """Sentences of whose probability too much passes through low outputs, by the derivatives for slopes."""
    from rankspace.kernels.chain_doubt import doubts
    from rankspace.kernels.scales import TOLERANCE

    found = doubts(chain, back.of_sums, ends.low, layout.token_place, layout.previous)
    fine = found <= TOLERANCE.value * counted_slopes(ends, slopes, layout).abs()
    return layout.in_callers_order(~fine)  # nor is what is NaN


def counted_slopes(ends: Any, slopes: Float[Tensor, "batch"], layout: Ragged) -> Float[Tensor, "batch"]:
    """By place; zero for sentences that are lost or impossible."""
    counted = slopes.where(~ends.lost & (ends.log_z > -torch.inf), 0)
    return counted.index_select(0, layout.sentence_at)


def tensors_of(chain: Any) -> tuple[Tensor, ...]:
    """What a chain has besides its rows."""
    return (chain.start, chain.words, chain.log_scale, chain.outputs, chain.vectors, chain.top)
