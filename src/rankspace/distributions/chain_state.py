"""A chain read one word at a time."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from jaxtyping import Float, Int
from torch import Tensor

from rankspace.distributions.parameters import is_integral
from rankspace.errors import RankspaceError, ShapeError
from rankspace.inference.chain.incremental import Stepper
from rankspace.inference.logarithms import log_sum_exp


@dataclass(frozen=True)
class ChainState:
    """What is known of some sentences after equally many words of each; `step` gives the state after one more.

    A step costs one application of the link. Nothing here has derivatives.
    """

    stepper: Stepper
    states_of: Callable[[Float[Tensor, "batch size"]], Float[Tensor, "batch state"]]
    start: Float[Tensor, "batch state"]  # p(state) before all words
    log_predicted: Float[Tensor, "batch size"]  # log p(words so far, next vector), float64
    log_vectors: Float[Tensor, "batch size"] | None = None  # log p(words so far, vector of the last), float64

    def step(self, words: Int[Tensor, "batch"] | None) -> "ChainState":
        """The state after one more word of each sentence; None for a word that was not observed."""
        if words is None:
            vectors = self.log_predicted
        else:
            self._check(words)
            vectors = self.stepper.stepped(self.log_predicted, words.to(self.log_predicted.device, torch.int64))
        return replace(self, log_vectors=vectors, log_predicted=self.stepper.predicted(vectors))

    def _check(self, words: Tensor) -> None:
        vocabulary = self.stepper.vocabulary
        if not is_integral(words):
            raise ShapeError(
                f"step: words are {words.dtype} {tuple(words.shape)}; give integers, one for each sentence."
            )
        if words.shape != self.log_predicted.shape[:1]:
            raise ShapeError(
                f"step: words are {tuple(words.shape)} but there are {len(self.log_predicted)} sentences; give one "
                f"word for each."
            )
        unknown = words[(words < 0) | (words >= vocabulary)]
        if len(unknown):
            raise RankspaceError(
                f"step: word {int(unknown[0])} is outside the vocabulary of {vocabulary}; words are numbered from 0."
            )

    @cached_property
    def log_prob(self) -> Float[Tensor, "batch"]:
        """log p(words so far), 0 before the first."""
        if self.log_vectors is None:
            return self.start.new_zeros(len(self.start))
        return log_sum_exp(self.log_vectors).to(self.start.dtype)

    def next_word(self) -> Float[Tensor, "batch vocab"]:
        """log p(next word | words so far); -inf throughout after impossible words."""
        return self.stepper.next_word(self.log_predicted).to(self.start.dtype)

    def filter(self) -> Float[Tensor, "batch state"]:
        """p(state | words so far), as `filter` of the distribution; the start distribution before the first word."""
        return self.start if self.log_vectors is None else self.states_of(self.log_vectors).to(self.start.dtype)

    def __len__(self) -> int:
        return len(self.start)


def empty_state(
    stepper: Stepper, states_of: Callable[[Tensor], Tensor], start: Float[Tensor, "state"], batch: int
) -> ChainState:
    """Before all words."""
    predicted = stepper.log_start.expand(batch, -1)
    return ChainState(stepper, states_of, start.expand(batch, -1), predicted, None)
