"""What comes next after the words so far, under a full rule tensor. As in `tree.prefixes`, with rows of rules in place
of ranks and a table [row, left child] in place of a vector: x_i[q] and y_j[C] are the probabilities of the words so far
and of a row q that begins at i, or of a symbol C at j that is the right child of one that waits.

    x_0 = C^T root      y_j[C] = sum_i sum_{q,B} x_i[q] inside_ij[B] rule[q, B, C]      x_j = C^T y_j

where nonterminals pass through the head, if there is one, and C is the closure of leftmost children. The word at j
hangs on y_j's preterminals, or on one that is the left child of a row that began there.

Cost, besides the inside pass: O(R^3) for the closure, once, then O(n^2 R m + n R (m + p)^2) a sentence, for m
nonterminals, p preterminals and R rows. In float64 logarithms, exact in every entry if the chart is.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from rankspace.inference.dense_tree.log_space import LogChart, LogWeights
from rankspace.inference.left_corners import LeftToRight, log_closure
from rankspace.inference.logarithms import CHUNK, LogMap, exact_log_product, log_sum_exp
from rankspace.inference.ragged import Ragged


def left_to_right(weights: LogWeights, layout: Ragged, chart: LogChart) -> LeftToRight:
    """All sentences at once, under one grammar, without derivatives. What words were divided by in the chart, what is
    found is divided by as well."""
    (m, p, num_rows), rule = weights.sizes, weights.rule[0]
    leftmost = log_sum_exp(rule, 2)
    begin = _beginning(weights, leftmost)
    complete = exact_log_product(rule.permute(2, 0, 1).flatten(1))  # what a left child leaves to be found
    to_words = exact_log_product(leftmost[:, m:].T)
    begun = chart.words.new_empty(layout.num_tokens, num_rows)
    found = chart.words.new_empty(layout.num_tokens, p)
    for time in range(layout.longest):
        rows = layout.step(time)
        if time == 0:
            begun[rows] = begin(weights.root)
            found[rows] = to_words(begun[rows])
            continue
        places = torch.arange(layout.alive[time + 1], device=layout.device)
        before = layout.row(places, time - 1, 1)
        pairs = begun.new_full((len(places), num_rows, m + p), -torch.inf)
        pairs[:, :, m:] = begun[before][:, :, None] + chart.words[before][:, None, :]
        if time > 1:
            earlier = torch.arange(time - 1, device=layout.device)[:, None]
            spans = chart.spans[layout.row(places, earlier, time - earlier) - layout.num_tokens]
            pairs[:, :, :m] = _met(begun[layout.row(places, earlier, 1)], spans)
        waiting = complete(pairs.flatten(1))
        begun[rows] = begin(waiting[:, :m])
        found[rows] = to_words(begun[rows]).logaddexp(waiting[:, m:])
    return LeftToRight(found, chart.log_z)


def _beginning(weights: LogWeights, leftmost: Float[Tensor, "row symbol"]) -> LogMap:
    """From nonterminals that begin somewhere to the rows that begin there, theirs and those of what they begin with."""
    m, head = weights.sizes[0], None if weights.head is None else weights.head[0]
    to_nonterminals, words = leftmost[:, :m], leftmost[:, m:]
    if head is None:
        return exact_log_product(log_closure(to_nonterminals, words).T)
    closure = log_closure(exact_log_product(head.T)(to_nonterminals), words)
    return exact_log_product(exact_log_product(closure.T)(head).T)


def _met(
    begun: Float[Tensor, "time sentence row"], spans: Float[Tensor, "time sentence nonterminal"]
) -> Float[Tensor, "sentence row nonterminal"]:
    """Rows that began at each time with the left children that reach from there, summed over times; some sentences at a
    time."""
    together = max(1, CHUNK // (len(begun) * begun.shape[2] * spans.shape[2]))
    parts = zip(begun.split(together, 1), spans.split(together, 1), strict=True)
    return torch.cat([log_sum_exp(rows[..., :, None] + left[..., None, :], 0) for rows, left in parts])
