"""log p of the rank-space HMM from its embeddings, forward and backward as one function of few launches.

    U = softmax(from_states ranks^T)    V = softmax(ranks to_states^T)    link = V U    start = s U

With X the vectors before the link and G the derivatives after it, one row for each word but the first of a sentence,
the gradient of the link is X^T G. While the rows are few it is never formed:

    Q = X V, R = G U^T        dV = X^T R        dU = Q^T G

Nothing waits for the device, and every size is known on the host from the layout: all launches can be captured in a
CUDA graph, one for each tuple of lengths, or for each shape of a padded batch whose true lengths the device knows.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from rankspace.inference.differentiation import first_derivatives_only, tell_of_lacks, without_autocast
from rankspace.inference.links import Precision, operand
from rankspace.models.fast_batch import Batch
from rankspace.models.fast_linked import Link, linked, linked_back
from rankspace.models.fast_products import aligned, product, product_into
from rankspace.models.fast_tables import embedding_gradients, table
from rankspace.models.fast_vectors import doubted, possible, rows_of, settled, tensors_of


class Factors(NamedTuple):
    """Operands of products. Without a start vector the start is the last of the states, which nothing leads to."""

    from_states: Float[Tensor, "state size"]
    to_states: Float[Tensor, "reached size"]
    ranks: Float[Tensor, "rank size"]
    to_rank: Float[Tensor, "state rank"]  # U
    to_state: Float[Tensor, "rank reached"]  # V
    start: Float[Tensor, "reached"] | None  # s

    @property
    def to_rank_reached(self) -> Float[Tensor, "reached rank"]:
        """U without the row of a start that is a state."""
        return self.to_rank[: len(self.to_states)]


def rank_chain_log_prob(
    from_states: Float[Tensor, "state size"],
    to_states: Float[Tensor, "reached size"],
    ranks: Float[Tensor, "rank size"],
    start: Float[Tensor, "reached"] | None,
    log_words: Float[Tensor, "token rank"],
    batch: Batch,
    dropout: float,
) -> tuple[Float[Tensor, "batch"], Bool[Tensor, "batch"]]:
    """log p of each sentence in float64, and which sentences lost more than rounding; these have gradient zero. With
    true lengths, and gradients, nothing waits for the device, and the backward pass may mark more
    (`Model.padded_log_prob`).

    `start` are probabilities; without them the first rank is drawn from the last state's row of U, and nothing leads to
    that state. `log_words` are log-probabilities of the tokens in the order of the layout. Entries of U and V are left
    out with probability `dropout`, chosen by the seed. True lengths, at most those of the layout, say where sentences
    end; whatever words lie behind, they change nothing.

    Takes 2 r^2 m flops forward and 8 tokens r m backward, or 4 r^2 m if that is less; keeps U and V.
    """
    apply: Callable[..., tuple[Tensor, Tensor]] = _RankChain.apply
    batch = batch.with_doubt()
    found, lost = apply(from_states, to_states, ranks, start, log_words, batch, dropout)
    return found, lost if batch.doubt is None else batch.doubt


@tell_of_lacks
class _RankChain(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        from_states: Tensor,
        to_states: Tensor,
        ranks: Tensor,
        start: Tensor | None,
        log_words: Tensor,
        batch: Batch,
        dropout: float,
    ) -> tuple[Tensor, Tensor]:
        with without_autocast(ranks.device):
            factors = _factors(from_states, to_states, ranks, start, batch, dropout)
            link, transposed = _link(factors, batch.precision)
            start_ranks = _start(factors, batch.precision)
            rows = rows_of(batch.layout, batch.true_lengths)
            chain, ends = linked(rows, start_ranks, Link(link, transposed, batch.precision), log_words)

            def differentiate(ends: Any, slopes: Tensor) -> Any:
                return linked_back(chain, ends, slopes, Link(link, None, batch.precision), batch.layout)

            ends = settled(ends, batch.doubt, chain, batch.layout, differentiate)
        ctx.save_for_backward(*factors, link, *tensors_of(chain), *ends)
        ctx.batch, ctx.rows = batch, chain.rows
        ctx.mark_non_differentiable(ends.lost)
        return ends.log_z, ends.lost

    @staticmethod
    @first_derivatives_only
    def backward(ctx: Any, slopes: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        from rankspace.kernels.chain_table import Chain, Ends

        tensors = ctx.saved_tensors
        factors, link = Factors(*tensors[:6]), tensors[6]
        chain, ends = Chain(ctx.rows, *tensors[7:13]), Ends(*tensors[13:])
        back = linked_back(chain, ends, slopes, Link(link, None, ctx.batch.precision), ctx.batch.layout)
        if ctx.batch.doubt is not None:
            ctx.batch.doubt.logical_or_(doubted(chain, ends, back, slopes, ctx.batch.layout))
        found = _factor_gradients(factors, chain, back, ctx.batch)
        return (*found, back.of_words, None, None)


def _factors(
    from_states: Tensor, to_states: Tensor, ranks: Tensor, start: Tensor | None, batch: Batch, dropout: float
) -> Factors:
    precision, seed = batch.precision, batch.seed
    sources, targets, middle = (operand(each.detach(), precision) for each in (from_states, to_states, ranks))
    to_rank = table(sources, middle, precision, dropout, seed, number=0)
    to_state = table(middle, targets, precision, dropout, seed, number=1)
    starts = None if start is None else operand(start.detach(), precision)
    return Factors(sources, targets, middle, to_rank, to_state, starts)


def _link(factors: Factors, precision: Precision) -> tuple[Float[Tensor, "from to"], Float[Tensor, "to from"] | None]:
    """V U as an operand of products, and transposed for the kernels that have the product in them."""
    from rankspace.kernels.link_rows import normalised

    found = product(factors.to_state, factors.to_rank_reached, precision)
    return normalised(found, factors.to_rank.dtype, both=factors.to_rank.dtype == torch.bfloat16)


def _start(factors: Factors, precision: Precision) -> Float[Tensor, "rank"]:
    """s U, summing to one as computed. What is left out of the row of a start that is a state stays out."""
    if factors.start is None:
        row = factors.to_rank[-1].float()
        return row / row.sum()
    return possible(product(factors.start[None], factors.to_rank, precision)[0])


def _factor_gradients(factors: Factors, chain: Any, back: Any, batch: Batch) -> tuple[Tensor | None, ...]:
    """Of from_states, to_states, ranks and the start, in float32."""
    layout, precision = batch.layout, batch.precision
    first = layout.alive[1] if layout.longest else 0
    before = chain.vectors.index_select(0, layout.previous)  # X
    of_start = back.of_sums[:first].sum(0, keepdim=True, dtype=torch.float32)
    through = _through_tokens if 2 * layout.num_tokens < len(factors.ranks) else _through_link
    of_to_rank, of_to_state = through(factors, before, back.of_sums[first:], of_start, precision)
    last = of_start if factors.start is None else None
    of_from, of_ranks = embedding_gradients(
        of_to_rank, factors.to_rank, factors.from_states, factors.ranks, precision, last
    )
    of_others, of_to = embedding_gradients(of_to_state, factors.to_state, factors.ranks, factors.to_states, precision)
    of_probabilities = None
    if factors.start is not None:
        of_probabilities = product(operand(of_start, precision), factors.to_rank.T, precision)[0]
    return of_from, of_to, of_ranks.add_(of_others), of_probabilities


Rows = Callable[[slice], Tensor]


def _through_tokens(
    factors: Factors, before: Tensor, of_sums: Tensor, of_start: Tensor, precision: Precision
) -> tuple[Rows, Rows]:
    """Derivatives of U and V, by rows: four products of 2 * tokens * rank * states flops."""
    passed, after = _with_start(factors, len(before), of_sums, of_start)  # Q and G, each with one of the start
    product_into(passed[: len(before)], before, factors.to_state, precision)
    returned = aligned(len(of_sums), len(factors.to_states), after)  # R
    product_into(returned, of_sums, factors.to_rank_reached.T, precision)
    return (
        lambda part: product(passed[:, part].T, after, precision),
        lambda part: product(before[:, part].T, returned, precision),
    )


def _through_link(
    factors: Factors, before: Tensor, of_sums: Tensor, of_start: Tensor, precision: Precision
) -> tuple[Rows, Rows]:
    """The same by the gradient of the link: two products of 2 * rank^2 * states flops."""
    of_link = operand(product(before.T, of_sums, precision), precision)
    passed, after = _with_start(factors, len(of_link), of_link, of_start)
    passed[: len(of_link)] = factors.to_state
    to_rank = factors.to_rank_reached.T
    return (
        lambda part: product(passed[:, part].T, after, precision),
        lambda part: product(of_link[part], to_rank, precision),
    )


def _with_start(
    factors: Factors, num_rows: int, after: Tensor, of_start: Tensor
) -> tuple[Float[Tensor, "row reached"], Float[Tensor, "row rank"]]:
    """Room for rows of what reaches each state, and the derivatives after them; then those of the start, if it is over
    states: it passes through U as they do."""
    if factors.start is None:
        return aligned(num_rows, len(factors.to_states), after), after
    found = aligned(num_rows + 1, len(factors.to_states), after)
    found[-1] = factors.start
    return found, torch.cat([after, of_start.to(after.dtype)])
