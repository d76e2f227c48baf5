"""Two ways to write the rank-space HMM in plain torch with autograd: what `rankspace bench chain` compares with.

Both run the forward algorithm over ranks, O(n r^2) after the link is multiplied out, for sentences of equal length.
They take the parameters of `rankspace.distributions.RankSpaceHMM` and return log p(words), [batch].
"""

from torch import Tensor


def log_sum_exp(
    words: Tensor, log_start: Tensor, log_state_to_rank: Tensor, log_rank_to_state: Tensor, log_emission: Tensor
) -> Tensor:
    """Each sum of products is a log-sum-exp over a broadcast sum."""
    log_u = log_state_to_rank.T.contiguous()  # [rank, state]: sums run over the last axis, which is the fastest
    log_link = (log_u[:, None] + log_rank_to_state).logsumexp(-1)  # [next, rank, state] -> [next, rank]
    log_word = log_emission.T[words]  # [batch, length, rank]
    log_alpha = (log_u + log_start).logsumexp(-1) + log_word[:, 0]
    for step in range(1, words.shape[1]):
        log_alpha = (log_alpha[:, None] + log_link).logsumexp(-1) + log_word[:, step]
    return log_alpha.logsumexp(-1)


def log_einsum_exp(
    words: Tensor, log_start: Tensor, log_state_to_rank: Tensor, log_rank_to_state: Tensor, log_emission: Tensor
) -> Tensor:
    """Vectors are kept as logarithms; for each product the maximum is taken out, and comes back after the logarithm."""
    u = log_state_to_rank.exp()
    link = log_rank_to_state.exp() @ u  # [rank, next]
    log_word = log_emission.T[words]  # [batch, length, rank]
    log_alpha = (log_start.exp() @ u).log() + log_word[:, 0]
    for step in range(1, words.shape[1]):
        log_alpha = _log_product(log_alpha, link) + log_word[:, step]
    return log_alpha.logsumexp(-1)


def _log_product(log_vectors: Tensor, matrix: Tensor) -> Tensor:
    top = log_vectors.detach().amax(-1, keepdim=True)  # one number for each sentence
    return ((log_vectors - top).exp() @ matrix).log() + top
