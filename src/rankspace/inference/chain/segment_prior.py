"""A semi-Markov chain without a sentence: read one word at a time, or sentences drawn from it."""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from rankspace.inference.chain.incremental import Stepper
from rankspace.inference.chain.log_space import through
from rankspace.inference.chain.messages import filtered
from rankspace.inference.chain.paths import Draw
from rankspace.inference.chain.semi_markov_log import log_survival
from rankspace.inference.logarithms import SPACING, log_sum_exp


@dataclass(frozen=True)
class SegmentStepper(Stepper):
    """Vectors are over (age, state), age by age: the words that the segment under way has before the last one.

    `log_start`, `log_links` and `log_emission` are over states.
    """

    log_duration: Float[Tensor, "size duration"]

    @cached_property
    def _reaches(self) -> Float[Tensor, "age size"]:
        return log_survival(self.log_duration).T

    @cached_property
    def ending(self) -> Float[Tensor, "age size"]:
        """log p(a segment ends | it has got so far)."""
        return _ratio(self.log_duration.T, self._reaches)

    @cached_property
    def _going_on(self) -> Float[Tensor, "younger size"]:
        return _ratio(self._reaches[1:], self._reaches[:-1])

    @cached_property
    def first(self) -> Float[Tensor, "vector"]:
        """Before the first word: a state is entered."""
        older = torch.full_like(self._reaches[1:], -torch.inf)
        return torch.cat([self.log_start[None], older]).flatten()

    def by_age(self, log_vectors: Float[Tensor, "row vector"]) -> Float[Tensor, "row age size"]:
        return log_vectors.reshape(len(log_vectors), *self._reaches.shape)

    def states(self, log_vectors: Float[Tensor, "row vector"]) -> Float[Tensor, "row size"]:
        """Ages summed out."""
        return log_sum_exp(self.by_age(log_vectors), 1)

    def filtered(self, log_vectors: Float[Tensor, "row vector"]) -> Float[Tensor, "row size"]:
        """p(state | words so far); zeros if the words are impossible."""
        return filtered(self.states(log_vectors))

    def predicted(self, log_vectors: Float[Tensor, "row vector"]) -> Float[Tensor, "row vector"]:
        ages = self.by_age(log_vectors)
        entered = through(self.maps, log_sum_exp(ages + self.ending, 1))
        return torch.cat([entered[:, None], ages[:, :-1] + self._going_on], 1).flatten(1)

    def next_word(self, log_predicted: Float[Tensor, "row vector"]) -> Float[Tensor, "row vocab"]:
        return super().next_word(self.states(log_predicted))

    def stepped(self, log_predicted: Float[Tensor, "row vector"], words: Int[Tensor, "row"]) -> Tensor:
        return (self.by_age(log_predicted) + self.log_emission.T[words][:, None]).flatten(1)


def _ratio(log_part: Tensor, log_whole: Tensor) -> Tensor:
    return torch.where(log_part != -torch.inf, log_part - log_whole, -torch.inf)


class GeneratedSegments(NamedTuple):
    """Beyond a sentence's length words and states mean nothing."""

    words: Int[Tensor, "num time"]
    states: Int[Tensor, "num time"]
    ends: Bool[Tensor, "num time"]  # whether a segment ends with the word
    lengths: Int[Tensor, "num"]
    whole: Bool[Tensor, "num"]  # the sentence ended with eos, and a segment with it


def generate_segments(chain: SegmentStepper, num: int, max_length: int, eos: int, draw: Draw) -> GeneratedSegments:
    """`num` sentences, word by word, up to the first `eos` or the limit."""
    alive = torch.ones(num, dtype=torch.bool, device=chain.log_start.device)
    lengths, whole = torch.zeros(num, dtype=torch.int64, device=alive.device), ~alive
    state = draw(chain.log_start.expand(num, -1))
    left = draw(chain.log_duration[state])
    rows: list[tuple[Tensor, Tensor, Tensor]] = []
    for _ in range(max_length):
        word = draw(chain.log_emission[state])
        rows.append((word, state, left == 0))
        lengths += alive
        whole = whole | (alive & (word == eos) & (left == 0))
        alive = alive & (word != eos)
        if not bool(alive.any()):
            break
        moved = state
        for link in chain.log_links:
            moved = draw(link.T[moved])
        state, left = (
            torch.where(left == 0, moved, state),
            torch.where(left == 0, draw(chain.log_duration[moved]), left - 1),
        )
    words, states, ends = (torch.stack(column, 1) for column in zip(*rows, strict=True))
    return GeneratedSegments(words, states, ends, lengths, whole)


def log_mass_ended(chain: SegmentStepper, eos: int, length: int) -> Float[Tensor, ""]:
    """log p(one of the first `length` words is the first eos, and a segment ends with it). Later words are looked at as
    long as any but rounding is left for them."""
    other = chain.log_other_words(eos)
    predicted, ended = chain.first[None], []
    for _ in range(length):
        finishing = chain.by_age(predicted) + chain.ending + chain.log_emission[:, eos]
        ended.append(log_sum_exp(finishing.flatten()))
        predicted = chain.predicted((chain.by_age(predicted) + other).flatten(1))
        if log_sum_exp(predicted.flatten()).exp() < SPACING:
            break
    return log_sum_exp(torch.stack(ended))
