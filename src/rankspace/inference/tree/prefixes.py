"""What comes next after the words so far, in rank space: the low-rank tree recursion read from left to right.

A node that began at word i is waiting for its left child or, once that reaches from i to j, for its right child, which
begins at j. With x_i[q] the probability of the words before i and of a node of rank q that begins there, y_j[q] that of
the words before j and of a node whose right child begins there, and left_ij the inside vector of [i, j) as a left
child,

    x_0 = C^T root      y_j = sum_i x_i * left_ij      x_j = C^T right^T y_j      C = I + left + left^2 + ...

where left and right are the links of a node to the nodes that its children are (H and I of figure 4), and C says how a
node begins with another, however deep (`left_corners`). The word at j hangs on a preterminal that is the left child of
a node that began there, or the right child of one that waits.

Cost, besides the inside pass: O(r^3) for C, once, then O(n^2 r + n r^2) a sentence. In float64 logarithms, exact in
every entry.
"""

import torch
from jaxtyping import Int
from torch import Tensor

from rankspace.inference.left_corners import LeftToRight, log_closure
from rankspace.inference.logarithms import exact_log_product, log_sum_exp
from rankspace.inference.ragged import Ragged
from rankspace.inference.tree.log_space import LogInputs, log_chart


def left_to_right(inputs: LogInputs, layout: Ragged, token_word: Int[Tensor, "token"]) -> LeftToRight:
    """All sentences at once, without derivatives."""
    inputs = inputs.multiplied()
    rank, below = inputs.rank, inputs.second.chunk(2)
    closure = log_closure(below[0], inputs.sides[:rank])
    begin, wait = exact_log_product(closure.T), exact_log_product(below[1].T)
    chart = log_chart(inputs, layout, token_word)
    left = torch.cat(chart.children)[:, :rank]
    begun = left.new_empty(layout.num_tokens, rank)
    waiting = torch.full_like(begun, -torch.inf)
    for time in range(layout.longest):
        rows = layout.step(time)
        if time == 0:
            begun[rows] = begin(inputs.root[None])
            continue
        places = torch.arange(layout.alive[time + 1], device=layout.device)
        earlier = torch.arange(time, device=layout.device)[:, None]
        nodes = begun[layout.row(places, earlier, 1)] + left[layout.row(places, earlier, time - earlier)]
        waiting[rows] = log_sum_exp(nodes, 0)
        begun[rows] = begin(wait(waiting[rows]))
    return LeftToRight(exact_log_product(inputs.sides.T)(torch.cat([begun, waiting], 1)), chart.log_z)
