"""Every way a hidden semi-Markov model can produce a sentence, one by one: what its tests compare with."""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from distributions.chain_enumeration import Parameters, Paths, Sentence, emitted, grid, safe_logsumexp


def parameters(
    num_states: int, num_durations: int, num_words: int, seed: int = 0, peak: float = 1.0
) -> dict[str, Tensor]:
    """Random ones in float64; logits multiplied by `peak`."""
    generator = torch.Generator().manual_seed(seed)
    shapes = {
        "log_start": (num_states,),
        "log_transition": (num_states, num_states),
        "log_emission": (num_states, num_words),
        "log_duration": (num_states, num_durations),
    }
    return {
        name: (peak * torch.randn(shape, generator=generator, dtype=torch.float64)).log_softmax(-1)
        for name, shape in shapes.items()
    }


def all_durations(length: int, longest: int) -> Iterator[tuple[int, ...]]:
    """All sequences of durations that sum to a length."""
    if length == 0:
        yield ()
    for first in range(1, min(length, longest) + 1):
        for others in all_durations(length - first, longest):
            yield (first, *others)


def segment_paths(model: Parameters, sentence: Sentence) -> Paths:
    """All segments of a sentence: states by word, and in place of `ranks` whether a segment ends with the word."""
    parts = [
        _paths_with(model, sentence, durations)
        for durations in all_durations(len(sentence), model["log_duration"].shape[1])
    ]
    weights, states, ends = (torch.cat(column) for column in zip(*parts, strict=True))
    return Paths(weights, states, ends)


def _paths_with(model: Parameters, sentence: Sentence, durations: Sequence[int]) -> tuple[Tensor, Tensor, Tensor]:
    segments = grid(*[len(model["log_start"])] * len(durations))
    states = segments.repeat_interleave(torch.tensor(durations, dtype=torch.int64), 1)
    weights = emitted(model["log_emission"], states, sentence)
    if durations:
        weights = weights + model["log_start"][segments[:, 0]]
    for before, after in zip(segments.T[:-1], segments.T[1:], strict=True):
        weights = weights + model["log_transition"][before, after]
    for segment, duration in zip(segments.T, durations, strict=True):
        weights = weights + model["log_duration"][segment, duration - 1]
    ends = torch.tensor([last for d in durations for last in [0] * (d - 1) + [1]], dtype=torch.int64)
    return weights, states, ends.expand(states.shape)


def log_prob(model: Parameters, sentence: Sentence) -> Tensor:
    return segment_paths(model, sentence).log_z


def prefix_paths(model: Parameters, sentence: Sentence) -> Paths:
    """All ways for a sentence to begin with some words: the last segment may go on, for words that are not observed."""
    found = []
    for more in range(model["log_duration"].shape[1]):
        longer = segment_paths(model, [*sentence, *[None] * more])
        assert longer.ranks is not None
        last = len(sentence) - 1
        kept = (longer.ranks[:, last:-1] == 0).all(1) if more else torch.ones(len(longer.states), dtype=torch.bool)
        found.append((longer.log_weights[kept], longer.states[kept, : last + 1]))
    weights, states = (torch.cat(column) for column in zip(*found, strict=True))
    return Paths(weights, states)


def prefix_log_prob(model: Parameters, sentence: Sentence) -> Tensor:
    return safe_logsumexp(prefix_paths(model, sentence).log_weights)
