"""Tables of conditional probabilities from two tables of embeddings: p = softmax over columns of row . column.

Logits and slopes exist for a portion of the rows at a time; only p is kept.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from rankspace.inference.differentiation import first_derivatives_only, tell_of_lacks, without_autocast
from rankspace.inference.gradient_products import Factor
from rankspace.inference.links import Precision, operand
from rankspace.models.fast_products import aligned, product

PORTION = 2**27  # logits computed at a time


def table(
    rows: Float[Tensor, "row size"],
    columns: Float[Tensor, "column size"],
    precision: Precision,
    dropout: float,
    seed: Int[Tensor, ""],
    number: int,
    bias: Float[Tensor, "column"] | None = None,
) -> Float[Tensor, "row column"]:
    """Probabilities in the dtype of the embeddings, which are operands of the precision. Entries are left out with
    probability `dropout`, chosen by the seed and the number of the table; a bias, in float32, is added to the logits.
    2 * row * column * size flops."""
    from rankspace.kernels.table_softmax import softmax_rows

    found = aligned(len(rows), len(columns), rows)
    for part in portions(len(rows), len(columns)):
        logits = product(rows[part], columns.T, precision)
        if bias is not None:
            logits += bias
        softmax_rows(logits, found[part], seed, dropout, number, part.start)
    return found


def embedding_gradients(
    slopes: Callable[[slice], Float[Tensor, "_ column"]],
    probabilities: Float[Tensor, "row column"],
    rows: Float[Tensor, "row size"],
    columns: Float[Tensor, "column size"],
    precision: Precision,
    last: Float[Tensor, "1 column"] | None = None,
) -> tuple[Float[Tensor, "row size"], Float[Tensor, "column size"]]:
    """Derivatives with respect to both embeddings; see `logit_gradients`."""
    of_logits = logit_gradients(slopes, probabilities, last)
    return product(of_logits, columns, precision), product(of_logits.T, rows, precision)


def logit_gradients(
    slopes: Callable[[slice], Float[Tensor, "_ column"]],
    probabilities: Float[Tensor, "row column"],
    last: Float[Tensor, "1 column"] | None = None,
) -> Float[Tensor, "row column"]:
    """Derivatives with respect to the logits, in the dtype of p; `slopes` gives those with respect to some rows of p,
    but for the last one if that is given apart: a row more would leave products without the alignment they are fast
    with."""
    from rankspace.kernels.table_softmax import softmax_rows_backward

    num_rows, num_columns = probabilities.shape
    of_logits = aligned(num_rows, num_columns, probabilities)
    for part in portions(num_rows - (last is not None), num_columns):
        softmax_rows_backward(slopes(part), probabilities[part], of_logits[part])
    if last is not None:
        softmax_rows_backward(last, probabilities[-1:], of_logits[-1:])
    return of_logits


def portions(num_rows: int, num_columns: int) -> list[slice]:
    """Rows, a portion at a time; all but the last a multiple of 128, which fills the tiles of products."""
    step = max(128, PORTION // max(1, num_columns) // 128 * 128)
    return [slice(first, min(first + step, num_rows)) for first in range(0, num_rows, step)]


class Conditional(NamedTuple):
    """Probabilities, and what their rows sum to as they are rounded: before a border and from it on. The latter are
    constants to gradients."""

    probabilities: Float[Tensor, "row column"]
    masses: Float[Tensor, "row 2"]


def conditional(
    rows: Float[Tensor, "row size"],
    columns: Float[Tensor, "column size"],
    precision: Precision,
    padding: int = 0,
    border: int = 0,
) -> Conditional:
    """softmax over columns of row . column, in the dtype of operands of the precision; differentiable. The last columns
    of all, as many as `padding` says, have no probability: products are fast at some multiples."""
    apply: Callable[..., tuple[Tensor, Tensor]] = _Conditional.apply
    return Conditional(*apply(rows, columns, precision, padding, border))


@tell_of_lacks
class _Conditional(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, rows: Tensor, columns: Tensor, precision: Precision, padding: int, border: int
    ) -> tuple[Tensor, Tensor]:
        from rankspace.kernels.table_softmax import softmax_rows

        sources, targets = operand(rows, precision), operand(columns, precision)
        nothing, count = torch.zeros((), dtype=torch.int64, device=rows.device), len(columns) - padding
        found = aligned(len(rows), len(columns), sources)
        found[:, count:] = 0
        masses = torch.empty(len(rows), 2, device=rows.device)
        with without_autocast(rows.device):
            for part in portions(len(rows), len(columns)):
                logits = product(sources[part], targets.T, precision)
                softmax_rows(logits[:, :count], found[part, :count], nothing, masses=masses[part], border=border)
        ctx.save_for_backward(sources, targets, found)
        ctx.precision, ctx.count = precision, count
        ctx.mark_non_differentiable(masses)
        return found, masses

    @staticmethod
    @first_derivatives_only
    def backward(ctx: Any, slopes: Tensor, _: Tensor | None) -> tuple[Tensor | None, ...]:
        from rankspace.kernels.table_softmax import softmax_rows_backward

        sources, targets, found = ctx.saved_tensors
        count, slopes = ctx.count, slopes.contiguous()
        of_logits = aligned(len(found), found.shape[1], found)
        of_logits[:, count:] = 0
        softmax_rows_backward(slopes[:, :count], found[:, :count], of_logits[:, :count])
        given = Factor.of(of_logits, ctx.precision)
        return given.times(targets), given.T.times(sources), None, None, None
