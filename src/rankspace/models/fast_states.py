"""log p of a chain over states whose transition goes through ranks, as one function of few launches.

    A = softmax(from_states ranks^T + c)        B = softmax(ranks to_states^T)
    h_t = x_{t-1} A        y_t = h_t B        x_t = y_t * e_t

The start is a state of its own, whose row of A is h_1. c is zero, or the logarithm of the sums that B was divided by
(`tables_of_features`). Every time of a batch reads both tables, which no cache holds: that is the time this takes, and
why both directions run at once where tables are in bfloat16 (`fast_sides`). Derivatives of the tables come from all
words at once: dA = X^T dH and dB = H^T dY, one row for each word but the first of a sentence; h_1 is one more row of H,
with the sum of what all sentences give back to it.

Nothing waits for the device, and every size is known on the host from the layout, as in `fast_chain`.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from rankspace.inference.differentiation import first_derivatives_only, tell_of_lacks, without_autocast
from rankspace.inference.links import Precision, operand
from rankspace.models.fast_batch import Batch
from rankspace.models.fast_products import aligned, product
from rankspace.models.fast_sides import Side, both_sides, derivatives, is_worth_it, lost_beside
from rankspace.models.fast_tables import logit_gradients, portions, table
from rankspace.models.fast_tall import meet, meet_into
from rankspace.models.fast_vectors import begun, begun_back, doubted, possible, rows_of, settled, tensors_of


class Tables(NamedTuple):
    """Operands of products."""

    from_states: Float[Tensor, "state_and_start size"]
    to_states: Float[Tensor, "state size"]
    ranks: Float[Tensor, "rank size"]
    leading: Float[Tensor, "state_and_start rank"]  # A, and h_1 as its last row
    to_state: Float[Tensor, "rank state"]  # B

    @property
    def to_rank(self) -> Float[Tensor, "state rank"]:
        """A without the row of the start."""
        return self.leading[:-1]


def state_chain_log_prob(
    from_states: Float[Tensor, "state_and_start size"],
    to_states: Float[Tensor, "state size"],
    ranks: Float[Tensor, "rank size"],
    log_words: Float[Tensor, "token state"],
    batch: Batch,
    has_features: bool,
) -> tuple[Float[Tensor, "batch"], Bool[Tensor, "batch"]]:
    """log p of each sentence in float64, and which sentences lost more than rounding; these have gradient zero. With
    true lengths, and gradients, nothing waits for the device, and the backward pass may mark more
    (`Model.padded_log_prob`).

    The start is the last row of `from_states`; nothing leads to it. `log_words` are log-probabilities of the tokens in
    the order of the layout. With features A has the sums of B. Takes 4 tokens m r flops forward, twice that backward;
    keeps A, B and three numbers for each token and state.
    """
    apply: Callable[..., tuple[Tensor, Tensor]] = _StateChain.apply
    batch = batch.with_doubt()
    found, lost = apply(from_states, to_states, ranks, log_words, batch, has_features, torch.is_grad_enabled())
    return found, lost if batch.doubt is None else batch.doubt


@tell_of_lacks
class _StateChain(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        from_states: Tensor,
        to_states: Tensor,
        ranks: Tensor,
        log_words: Tensor,
        batch: Batch,
        has_features: bool,
        has_gradients: bool,
    ) -> tuple[Tensor, Tensor]:
        from rankspace.kernels.chain_ends import ends

        with without_autocast(ranks.device):
            tables = _tables(from_states, to_states, ranks, batch, has_features)
            rows = rows_of(batch.layout, batch.true_lengths)
            chain = begun(rows, _start(tables, batch.precision), log_words, tables.to_rank.dtype)
            side = None
            if has_gradients and is_worth_it(chain, tables.to_rank):
                between, side = both_sides(chain, tables.to_rank, tables.to_state, batch.precision)
            else:
                between = _forward(chain, tables, batch)
            found = ends(chain)
            if side is not None:
                found = found._replace(lost=found.lost | lost_beside(chain, side, found, batch.layout))

            def differentiate(ends: Any, slopes: Tensor) -> Any:
                return _differentiated(chain, ends, slopes, tables, between, side, batch)[0]

            found = settled(found, batch.doubt, chain, batch.layout, differentiate)
        ctx.save_for_backward(*tables, between, *tensors_of(chain), *found, *(side or ()))
        ctx.batch, ctx.has_features, ctx.rows = batch, has_features, rows
        ctx.mark_non_differentiable(found.lost)
        return found.log_z, found.lost

    @staticmethod
    @first_derivatives_only
    def backward(ctx: Any, slopes: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        from rankspace.kernels.chain_table import Chain, Ends

        tensors, layout = ctx.saved_tensors, ctx.batch.layout
        tables, between = Tables(*tensors[:5]), tensors[5]
        chain, ends = Chain(ctx.rows, *tensors[6:12]), Ends(*tensors[12:16])
        side = Side(*tensors[16:]) if len(tensors) > 16 else None
        back, of_between = _differentiated(chain, ends, slopes, tables, between, side, ctx.batch)
        if ctx.batch.doubt is not None:
            ctx.batch.doubt.logical_or_(doubted(chain, ends, back, slopes, layout))
        first = layout.alive[1] if layout.longest else 0
        of_start = back.of_sums[:first].sum(0, keepdim=True, dtype=torch.float32)
        before = chain.vectors.index_select(0, layout.previous)  # X
        later = Rows(_with_row(between, tables.leading[-1:]), _with_row(back.of_sums[first:], of_start))
        found = _embedding_gradients(
            tables, Rows(before, of_between), later, of_start, ctx.batch.precision, ctx.has_features
        )
        return (*found, back.of_words, None, None, None)


class Rows(NamedTuple):
    """What entered a table, and the derivatives of what came out: of each word but the first of a sentence."""

    entered: Float[Tensor, "row _"]
    of_result: Float[Tensor, "row _"]

    def slopes(self, precision: Precision) -> Callable[[slice], Tensor]:
        """Derivatives with respect to the table, by rows."""
        return lambda part: product(self.entered[:, part].T, self.of_result, precision)


def _tables(from_states: Tensor, to_states: Tensor, ranks: Tensor, batch: Batch, has_features: bool) -> Tables:
    precision = batch.precision
    from_states, to_states, ranks = (operand(each.detach(), precision) for each in (from_states, to_states, ranks))
    bias = _log_mass(ranks, to_states, precision) if has_features else None
    leading = table(from_states, ranks, precision, 0.0, batch.seed, number=0, bias=bias)
    to_state = table(ranks, to_states, precision, 0.0, batch.seed, number=1)
    return Tables(from_states, to_states, ranks, leading, to_state)


def _start(tables: Tables, precision: Precision) -> Float[Tensor, "state"]:
    """h_1 B."""
    return possible(product(tables.leading[-1:], tables.to_state, precision)[0])


def _log_mass(ranks: Tensor, to_states: Tensor, precision: Precision) -> Float[Tensor, "rank"]:
    """Logarithm of the sum over states of exp(rank . state)."""
    from rankspace.kernels.vocabulary_softmax import Sums, normalisers, sum_portion

    sums = [
        sum_portion(product(to_states[part], ranks.T, precision), None) for part in portions(len(to_states), len(ranks))
    ]
    return normalisers(Sums(*(torch.cat(each) for each in zip(*sums, strict=True))))


def _forward(chain: Any, tables: Tables, batch: Batch) -> Float[Tensor, "later rank"]:
    """The chain, time by time; gives the vectors over ranks, H."""
    from rankspace.kernels.chain_steps import step

    rows, first = chain.rows, chain.rows.alive(0)
    between = aligned(rows.num_tokens - first, len(tables.ranks), tables.to_rank)
    for time in range(1, rows.longest):
        before, later = rows.first(time - 1), rows.first(time) - first
        own = between[later : later + rows.alive(time)]
        meet_into(own, chain.vectors[before : before + len(own)], tables.to_rank, batch.precision)
        step(chain, time, meet(own, tables.to_state, batch.precision))
    return between


def _differentiated(
    chain: Any,
    ends: Any,
    slopes: Float[Tensor, "batch"],
    tables: Tables,
    between: Tensor,
    side: Side | None,
    batch: Batch,
) -> tuple[Any, Float[Tensor, "later rank"]]:
    """All derivatives for slopes, and those of the vectors over ranks: from the other side where it is known."""
    if side is not None:
        return derivatives(chain, side, ends, slopes, batch.layout)
    back = begun_back(chain, ends, slopes, batch.layout)
    return back, _backward(chain, back, tables, between, batch)


def _backward(chain: Any, back: Any, tables: Tables, between: Tensor, batch: Batch) -> Float[Tensor, "later rank"]:
    """Fills what is left of the derivatives; gives those of the vectors over ranks."""
    from rankspace.kernels.chain_steps_back import step_back

    rows, first = chain.rows, chain.rows.alive(0)
    found = aligned(len(between), between.shape[1], between)
    for time in range(rows.longest - 2, -1, -1):
        after, later = rows.first(time + 1), rows.first(time + 1) - first
        own = found[later : later + rows.alive(time + 1)]
        meet_into(own, back.of_sums[after : after + len(own)], tables.to_state.T, batch.precision)
        step_back(chain, back, time, meet(own, tables.to_rank.T, batch.precision))
    return found


def _with_row(rows: Float[Tensor, "row column"], last: Float[Tensor, "1 column"]) -> Float[Tensor, "longer column"]:
    found = aligned(len(rows) + 1, rows.shape[1], rows)
    found[:-1], found[-1:] = rows, last
    return found


def _embedding_gradients(
    tables: Tables,
    of_to_rank: Rows,
    of_to_state: Rows,
    of_start: Float[Tensor, "1 state"],
    precision: Precision,
    has_features: bool,
) -> tuple[Float[Tensor, "state_and_start size"], Float[Tensor, "state size"], Float[Tensor, "rank size"]]:
    """Of from_states, to_states and ranks, in float32. `of_start` are derivatives of the first y, of all sentences."""
    of_first = product(operand(of_start, precision), tables.to_state.T, precision)  # of h_1
    of_logits = logit_gradients(of_to_rank.slopes(precision), tables.leading, of_first)
    of_from, of_ranks = product(of_logits, tables.ranks, precision), product(of_logits.T, tables.from_states, precision)
    of_mass = of_logits.sum(0, dtype=torch.float32)[:, None] if has_features else None
    del of_logits  # as large as a table
    of_logits = logit_gradients(of_to_state.slopes(precision), tables.to_state)
    of_ranks += product(of_logits, tables.to_states, precision)
    of_to = product(of_logits.T, tables.ranks, precision)
    if of_mass is not None:  # the derivative of the logarithm of a sum is B
        of_ranks += of_mass * product(tables.to_state, tables.to_states, precision)
        of_to += product(tables.to_state.T, operand(of_mass * tables.ranks, precision), precision)
    return of_from, of_to, of_ranks
