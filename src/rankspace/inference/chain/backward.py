"""The backward algorithm: derivatives of log Z with respect to all that a chain is made of, and along a direction.

One loop over the steps in reverse passes adjoints through the transposed link; the gradients of the link, of the words
and of the start then come from all rows at once.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from rankspace.inference.chain.forward import Chart, Recursion, steps


@dataclass(frozen=True)
class Adjoints:
    """Vectors of the chain, and derivatives of sum(seeds * log Z) with respect to them and to what the link gave."""

    vectors: Float[Tensor, "token size"]
    of_vectors: Float[Tensor, "token size"]
    of_outputs: Float[Tensor, "token size"]


def run_backward(recursion: Recursion, chart: Chart, seeds: Float[Tensor, "batch"]) -> Adjoints:
    """Sentences (by place) with seed 0 get zeros, whatever their chart holds. |tokens| times the cost of the link.

    Adjoints are at most size / lowest: those of what cannot be reached, which could grow without bound, are left out.
    """
    layout = recursion.layout
    vectors = chart.vectors(recursion)
    factor = chart.words.index_select(0, recursion.index) * chart.powers
    if bool(chart.outputs.amin() == 0):  # an output of zero has nothing to pass on
        factor.masked_fill_(chart.outputs == 0, 0)
    rates = torch.where((seeds != 0) & (layout.length_at > 0), seeds / chart.totals, 0).to(vectors.dtype)[:, None]
    of_vectors, of_outputs = torch.empty_like(vectors), torch.empty_like(vectors)
    of_vectors[layout.last_token[: layout.alive[1]]] = rates[: layout.alive[1]]
    blocks = steps(layout, of_vectors, of_outputs, factor)
    for time in range(layout.longest - 1, -1, -1):
        adjoint, of_output, rate = blocks[time]
        torch.mul(adjoint, rate, out=of_output)
        if time:
            blocks[time - 1][0][: len(adjoint)] = recursion.link_into(time).transposed(of_output)
    return Adjoints(vectors, of_vectors, of_outputs)


def gradients(recursion: Recursion, chart: Chart, seeds: Float[Tensor, "batch"]) -> tuple[Tensor, ...]:
    """Derivatives of sum(seeds * log Z) with respect to `recursion.tensors`, seeds by place."""
    if not recursion.layout.num_tokens:
        return tuple(torch.zeros_like(tensor) for tensor in recursion.tensors)
    adjoints = run_backward(recursion, chart, seeds)
    first = recursion.layout.alive[1]
    of_words = summed_by(adjoints.vectors * adjoints.of_vectors, recursion.index, len(recursion.log_words))
    of_link = recursion.link.gradients(_before(recursion, adjoints.vectors), adjoints.of_outputs[first:])
    return (adjoints.of_outputs[:first].sum(0), of_words, *of_link)


def slopes(recursion: Recursion, chart: Chart, direction: Recursion, possible: Tensor) -> Float[Tensor, "batch"]:
    """Derivative of each sentence's log Z when `recursion.tensors` move along those of another; zero if not possible.

    `possible` is by place, the result, in float64, in the order of the caller.
    """
    layout = recursion.layout
    if not layout.num_tokens:
        return torch.zeros(len(layout.lengths), dtype=torch.float64, device=layout.device)
    adjoints = run_backward(recursion, chart, possible.double())
    used = adjoints.vectors * adjoints.of_vectors
    rows = torch.where(used > 0, used * direction.log_words.index_select(0, recursion.index), 0)
    first = layout.alive[1]
    rows[:first] += adjoints.of_outputs[:first] * direction.start
    moved = recursion.link.tangent(direction.link, _before(recursion, adjoints.vectors))
    rows[first:] += adjoints.of_outputs[first:] * moved
    return layout.unpack(rows.sum(1, dtype=torch.float64)).sum(1)


def _before(recursion: Recursion, vectors: Float[Tensor, "token size"]) -> Float[Tensor, "later size"]:
    """What came into the link, for each word that it led to."""
    return vectors.index_select(0, recursion.layout.previous)


def summed_by(rows: Float[Tensor, "token size"], index: Tensor, count: int) -> Float[Tensor, "word size"]:
    """Sums of the rows that have the same index, added in a fixed order on every device."""
    sums = rows.new_zeros(count, rows.shape[1])
    if rows.device.type == "cpu":
        return sums.index_add_(0, index, rows)
    return sums.index_put_((index,), rows, accumulate=True)  # sorts; index_add_ would use atomic additions
