"""Tables of conditional probabilities from two tables of embeddings: p = softmax over columns of row . column.

Logits and slopes exist for a portion of the rows at a time; only p is kept.
"""

from collections.abc import Callable

from jaxtyping import Float, Int
from torch import Tensor

from rankspace.inference.links import Precision
from rankspace.models.fast_products import aligned, product

PORTION = 2**27  # logits computed at a time


def table(
    rows: Float[Tensor, "row size"],
    columns: Float[Tensor, "column size"],
    precision: Precision,
    dropout: float,
    seed: Int[Tensor, ""],
    number: int,
) -> Float[Tensor, "row column"]:
    """Probabilities in the dtype of the embeddings, which are operands of the precision. Entries are left out with
    probability `dropout`, chosen by the seed and the number of the table. 2 * row * column * size flops."""
    from rankspace.kernels.table_softmax import softmax_rows

    found = aligned(len(rows), len(columns), rows)
    for part in portions(len(rows), len(columns)):
        logits = product(rows[part], columns.T, precision)
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
    """Derivatives with respect to both embeddings; `slopes` gives those with respect to some rows of p, but for the
    last one if that is given apart: a row more would leave products without the alignment they are fast with."""
    from rankspace.kernels.table_softmax import softmax_rows_backward

    of_logits = aligned(len(rows), len(columns), probabilities)
    for part in portions(len(rows) - (last is not None), len(columns)):
        softmax_rows_backward(slopes(part), probabilities[part], of_logits[part])
    if last is not None:
        softmax_rows_backward(last, probabilities[-1:], of_logits[-1:])
    return product(of_logits, columns, precision), product(of_logits.T, rows, precision)


def portions(num_rows: int, num_columns: int) -> list[slice]:
    """Rows, a portion at a time; all but the last a multiple of 128, which fills the tiles of products."""
    step = max(128, PORTION // max(1, num_columns) // 128 * 128)
    return [slice(first, min(first + step, num_rows)) for first in range(0, num_rows, step)]
