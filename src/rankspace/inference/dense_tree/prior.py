"""The grammar without a sentence: how symbols branch, and how long sentences are."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from rankspace.inference.dense_tree.groups import BUDGET
from rankspace.inference.dense_tree.traces import Choose
from rankspace.inference.logarithms import SPACING


def branch(
    log_rule: Float[Tensor, "row symbol symbol"],
    log_head: Float[Tensor, "nonterminal row"] | None,
    parents: Int[Tensor, "node"],
    choose: Choose,
) -> tuple[Int[Tensor, "node"], Int[Tensor, "node"]]:
    """Draws the children of nonterminals, by `choose` of `traces.drawn`. A rank is drawn on the way under a head."""
    rows = parents if log_head is None else choose_by_row(log_head, parents, choose)
    pair = choose_by_row(log_rule.flatten(1), rows, choose)
    return pair // log_rule.shape[2], pair % log_rule.shape[2]


def choose_by_row(log: Float[Tensor, "row way"], rows: Int[Tensor, "node"], choose: Choose) -> Int[Tensor, "node"]:
    """A way for every node by the weights of its row, a few rows at a time."""
    found = torch.zeros_like(rows)
    distinct, group = torch.unique(rows, return_inverse=True)
    step = max(1, BUDGET // max(1, log.shape[1]))
    for start in range(0, len(distinct), step):
        part = distinct[start : start + step]
        members = ((group >= start) & (group < start + step)).nonzero()[:, 0]
        found[members] = choose(log[part], group[members] - start)
    return found


def length_probabilities(
    rule: Float[Tensor, "row symbol symbol"],
    head: Float[Tensor, "nonterminal row"] | None,
    root: Float[Tensor, "nonterminal"],
    max_length: int,
) -> Float[Tensor, "length"]:
    """p(a sentence has n words), n = 0 .. max_length: the inside recursion when every word counts as any other. Ends
    sooner where no longer sentence adds anything in float64 to all of the shorter ones.

    All spans of a width are alike then, so this takes O(N^2 m^2 + N m^2 R) for N = max_length. In float64; lengths too
    rare for it count zero. `levels` are nonterminals with trees of so many levels: if one level more adds nothing to
    any of them, they have all trees, and at the root is all that sentences of any length have.
    """
    n = root.shape[0]
    rule, root = rule.double(), root.double()
    blocks = (rule[:, :n, :n].flatten(1), rule[:, :n, n:].sum(2), rule[:, n:, :n].sum(1), rule[:, n:, n:].sum((1, 2)))

    def headed(rows: Float[Tensor, "row"]) -> Float[Tensor, "nonterminal"]:
        return rows if head is None else head.double() @ rows

    spans = [root.new_zeros(n), root.new_zeros(n)]  # [width]: p(a nonterminal yields that many words)
    levels, total = root.new_zeros(n), 0.0
    for width in range(2, max_length + 1):
        ranks = blocks[3] if width == 2 else blocks[1] @ spans[-1] + blocks[2] @ spans[-1]
        if width > 3:
            left = torch.stack(spans[2 : width - 1])
            ranks = ranks + blocks[0] @ (left.T @ left.flip(0)).flatten()
        spans.append(headed(ranks))
        pairs = torch.outer(levels, levels).flatten()
        more = headed(blocks[3] + (blocks[1] + blocks[2]) @ levels + blocks[0] @ pairs)
        has_all_trees, levels = torch.equal(more, levels), more
        last, total = total, total + float(spans[-1] @ root)
        if has_all_trees and total == last and float(levels @ root) - total <= width * SPACING:
            break
    return torch.stack(spans[: max_length + 1]) @ root
