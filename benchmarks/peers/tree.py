"""Two ways to write the rank-space PCFG in plain torch with autograd: what `rankspace bench tree` compares with.

Both run the inside algorithm over ranks, O(n^3 r + n^2 r^2) after the links are multiplied out, all spans of a width at
once, for sentences of equal length. They take the parameters of `rankspace.distributions.RankSpacePCFG` and return
log p(words), [batch].
"""

import torch
from torch import Tensor


def log_sum_exp(
    words: Tensor, log_root: Tensor, log_head: Tensor, log_left: Tensor, log_right: Tensor, log_emission: Tensor
) -> Tensor:
    """Each sum of products is a log-sum-exp over a broadcast sum."""
    length, nonterminals = words.shape[1], len(log_root)
    log_head = log_head.T.contiguous()  # [rank, nonterminal]
    log_sides = torch.cat([log_left, log_right])  # [left and right rank, symbol]
    log_links = (log_sides[:, None, :nonterminals] + log_head).logsumexp(-1)  # [left and right rank, rank]
    log_word = log_emission.T[words]  # [batch, length, preterminal]
    chart = [(log_word[:, :, None] + log_sides[:, nonterminals:]).logsumexp(-1)]
    for width in range(2, length):
        log_inside = _log_splits(chart, width).logsumexp(2)
        chart.append((log_inside[:, :, None] + log_links).logsumexp(-1))
    log_whole = _log_splits(chart, length)[:, 0].logsumexp(1)
    return (log_whole + (log_head + log_root).logsumexp(-1)).logsumexp(-1)


def log_einsum_exp(
    words: Tensor, log_root: Tensor, log_head: Tensor, log_left: Tensor, log_right: Tensor, log_emission: Tensor
) -> Tensor:
    """Charts are kept as logarithms; each sum takes a maximum out, exponentiates, adds up and puts the maximum back."""
    length, nonterminals = words.shape[1], len(log_root)
    head = log_head.exp()
    sides = torch.cat([log_left, log_right]).exp().T  # [symbol, left and right rank]
    links = head.T @ sides[:nonterminals]  # [rank, left and right rank]
    chart = [_log_product(log_emission.T[words], sides[nonterminals:])]
    for width in range(2, length):
        chart.append(_log_product(_log_sum(_log_splits(chart, width)), links))
    log_whole = _log_sum(_log_splits(chart, length))[:, 0]
    return (log_whole + (log_root.exp() @ head).log()).logsumexp(-1)


def _log_splits(chart: list[Tensor], width: int) -> Tensor:
    """The weight of each split of each span of a width, [batch, begin, split, rank].

    `chart[w - 1]` has the spans of width w as children, [batch, begin, left and right rank].
    """
    count, rank = chart[0].shape[1] - width + 1, chart[0].shape[2] // 2
    left = torch.stack([chart[k - 1][:, :count, :rank] for k in range(1, width)], 2)
    right = torch.stack([chart[width - k - 1][:, k : k + count, rank:] for k in range(1, width)], 2)
    return left + right


def _log_sum(log_splits: Tensor) -> Tensor:
    """Over the splits. Spelt out, for `logsumexp` exponentiates again in its backward pass."""
    top = log_splits.detach().amax(2, keepdim=True)
    return (log_splits - top).exp().sum(2).log() + top[:, :, 0]


def _log_product(log_vectors: Tensor, matrix: Tensor) -> Tensor:
    top = log_vectors.detach().amax(-1, keepdim=True)  # one number for each span
    return ((log_vectors - top).exp() @ matrix).log() + top
