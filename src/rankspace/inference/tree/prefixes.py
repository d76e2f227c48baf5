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
every entry; the inside pass is linear where that loses nothing but rounding.
"""

import math
from functools import partial
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from rankspace.inference.left_corners import LeftToRight, log_closure
from rankspace.inference.logarithms import exact_log_product, log_sum_exp
from rankspace.inference.ragged import Ragged
from rankspace.inference.tree.inputs import Sentences
from rankspace.inference.tree.inside import inside
from rankspace.inference.tree.linear_inputs import linear_inputs, support_of, word_scale
from rankspace.inference.tree.log_space import LogInputs, log_chart
from rankspace.inference.tree.range_check import lost_sentences


def left_to_right(inputs: LogInputs, layout: Ragged, token_word: Int[Tensor, "token"]) -> LeftToRight:
    """All sentences at once, without derivatives."""
    inputs = inputs.multiplied()
    rank, below = inputs.rank, inputs.second.chunk(2)
    closure = log_closure(below[0], inputs.sides[:rank])
    begin, wait = exact_log_product(closure.T), exact_log_product(below[1].T)
    left, scale, log_z = _left_parts(inputs, layout, token_word)
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
    scales = layout.unpack(scale)
    before = layout.pack(scales.cumsum(1) - scales)  # of all words before each
    return LeftToRight(exact_log_product(inputs.sides.T)(torch.cat([begun, waiting], 1)) + before[:, None], log_z)


class _LeftParts(NamedTuple):
    """Spans as left children, in logarithms, over what was divided out of each of their words."""

    left: Float[Tensor, "span rank"]
    scale: Float[Tensor, "token"]
    log_z: Float[Tensor, "places"]


def _left_parts(inputs: LogInputs, layout: Ragged, token_word: Int[Tensor, "token"]) -> _LeftParts:
    """From the chart in linear space; from that in logarithms where a sentence loses more than rounding."""
    sentences = Sentences(layout, token_word, word_scale(inputs.emission))
    linear = linear_inputs(inputs, sentences.log_scale, False, "highest", layout)
    chart = inside(linear, sentences, None, keep_alpha=False)
    support = partial(support_of, inputs, False, "highest", layout)
    if bool(lost_sentences(linear, sentences, chart, None, support)[0].any()):
        in_logs = log_chart(inputs, layout, token_word)
        children = torch.cat(in_logs.children)[:, : inputs.rank]
        return _LeftParts(children, children.new_zeros(layout.num_tokens), in_logs.log_z)
    used = layout.offsets[layout.longest]  # wider ones are whole sentences
    left = chart.children[0, :used].log() + chart.exponent[:used, None].double() * math.log(2)
    scale = sentences.log_scale[token_word] + chart.token_power.double() * math.log(2)
    return _LeftParts(left, scale, chart.log_z[layout.sentence_at])
