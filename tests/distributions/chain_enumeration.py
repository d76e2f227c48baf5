"""Every hidden path of a sentence, one by one: what chains are tested against. Plain sums over index tables."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

Sentence = Sequence[int | None]  # None: a word that was not observed
Parameters = Mapping[str, Tensor]


@dataclass(frozen=True)
class Paths:
    """All hidden paths with their log-weights. `log_weights` has derivatives; see `ChainPath` for the fields."""

    log_weights: Tensor  # [path]
    states: Tensor  # [path, length]
    ranks: Tensor | None = None
    first: Tensor | None = None

    @property
    def log_z(self) -> Tensor:
        return safe_logsumexp(self.log_weights)

    @property
    def posterior(self) -> Tensor:
        return (self.log_weights - self.log_z).exp()

    def keys(self) -> list[tuple[int, ...]]:
        """Each path as numbers."""
        columns = [self.states, *([] if self.ranks is None else [self.ranks])]
        columns += [] if self.first is None else [self.first[:, None]]
        return [tuple(row) for row in torch.cat(columns, 1).tolist()]


def safe_logsumexp(values: Tensor) -> Tensor:
    """Without NaN in the derivatives of what is -inf."""
    possible = values[values > -math.inf]
    return possible.logsumexp(0) if len(possible) else values.new_tensor(-math.inf)


def grid(*sizes: int) -> Tensor:
    """All assignments of variables with these sizes, [assignment, variable]."""
    if not sizes:
        return torch.zeros(1, 0, dtype=torch.int64)
    return torch.cartesian_prod(*map(torch.arange, sizes)).reshape(-1, len(sizes))


def emitted(log_emission: Tensor, places: Tensor, sentence: Sentence) -> Tensor:
    """Log-probability of the words, each from its place in a path; 0 for words that were not observed."""
    total = log_emission.new_zeros(len(places))
    for time, word in enumerate(sentence):
        if word is not None:
            total = total + log_emission[places[:, time], word]
    return total


def hmm_paths(parameters: Parameters, sentence: Sentence) -> Paths:
    num = len(parameters["log_start"])
    states = grid(*[num] * len(sentence))
    weights = emitted(parameters["log_emission"], states, sentence)
    if sentence:
        weights = weights + parameters["log_start"][states[:, 0]]
    for before, after in zip(states.T[:-1], states.T[1:], strict=True):
        weights = weights + parameters["log_transition"][before, after]
    return Paths(weights, states)


def lhmm_paths(parameters: Parameters, sentence: Sentence) -> Paths:
    num_states, num_ranks = parameters["log_state_to_rank"].shape
    length = len(sentence)
    paths = grid(*[num_states] * length, *[num_ranks] * max(0, length - 1))
    states, ranks = paths[:, :length], paths[:, length:]
    weights = emitted(parameters["log_emission"], states, sentence)
    if sentence:
        weights = weights + parameters["log_start"][states[:, 0]]
    for time in range(length - 1):
        weights = weights + parameters["log_state_to_rank"][states[:, time], ranks[:, time]]
        weights = weights + parameters["log_rank_to_state"][ranks[:, time], states[:, time + 1]]
    return Paths(weights, states, ranks)


def rank_space_paths(parameters: Parameters, sentence: Sentence, last_state: bool) -> Paths:
    """T_0, T_1 .. T_n and q_1 .. q_n; without T_n, which is then 0 in `states`, if asked."""
    num_states, num_ranks = parameters["log_state_to_rank"].shape
    length = len(sentence)
    free = length if last_state or not sentence else length - 1
    paths = grid(num_states, *[num_states] * free, *[num_ranks] * length)
    states, ranks = paths[:, : 1 + free], paths[:, 1 + free :]
    weights = emitted(parameters["log_emission"], ranks, sentence) + parameters["log_start"][states[:, 0]]
    for time in range(length):
        weights = weights + parameters["log_state_to_rank"][states[:, time], ranks[:, time]]
        if time < free:
            weights = weights + parameters["log_rank_to_state"][ranks[:, time], states[:, time + 1]]
    filled = torch.cat([states[:, 1:], torch.zeros(len(paths), length - free, dtype=torch.int64)], 1)
    return Paths(weights, filled, ranks, states[:, 0])
