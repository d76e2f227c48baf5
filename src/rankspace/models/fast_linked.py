"""The recursion of a chain whose link is one matrix, over ranks or over states: x_t = (x_{t-1} M) * e_t."""

from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from rankspace.inference.links import Precision
from rankspace.inference.ragged import Ragged
from rankspace.models.fast_products import product
from rankspace.models.fast_vectors import begun, begun_back


class Link(NamedTuple):
    """M as an operand of products of the precision. In bfloat16 steps are kernels with the product in them: on the way
    there they read M^T, which is there for them alone, on the way back M."""

    matrix: Float[Tensor, "from to"]
    transposed: Float[Tensor, "to from"] | None
    precision: Precision


def linked(rows: Any, start: Float[Tensor, "size"], link: Link, log_words: Float[Tensor, "token size"]) -> Any:
    """The chain and its ends, time by time: one launch each with the product in it, or a product and a launch."""
    from rankspace.kernels.chain_ends import ends
    from rankspace.kernels.chain_steps import linked_step, step

    chain = begun(rows, start, log_words, link.matrix.dtype)
    for time in range(1, rows.longest):
        if link.transposed is not None:
            linked_step(chain, time, link.transposed)
        else:
            before = rows.first(time - 1)
            vectors = chain.vectors[before : before + rows.alive(time)]
            step(chain, time, product(vectors, link.matrix, link.precision))
    return chain, ends(chain)


def linked_back(chain: Any, ends: Any, slopes: Float[Tensor, "batch"], link: Link, layout: Ragged) -> Any:
    """Derivatives of all vectors and words for slopes of log p."""
    from rankspace.kernels.chain_steps_back import linked_step_back, step_back

    found = begun_back(chain, ends, slopes, layout)
    for time in range(chain.rows.longest - 2, -1, -1):
        if link.matrix.dtype == torch.bfloat16:
            linked_step_back(chain, found, time, link.matrix)
        else:
            after = chain.rows.first(time + 1)
            of_sums = found.of_sums[after : after + chain.rows.alive(time + 1)]
            step_back(chain, found, time, product(of_sums, link.matrix.T, link.precision))
    return found
