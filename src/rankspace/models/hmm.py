"""The HMM with a full transition matrix from embeddings."""

import math
from collections.abc import Iterator
from typing import ClassVar

from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from rankspace.distributions import HMM
from rankspace.inference.links import Precision
from rankspace.models.fast_batch import Batch
from rankspace.models.fast_hmm import hmm_log_prob
from rankspace.models.fast_model import FastChain
from rankspace.models.networks import ResidualNetwork, embedding, kept_rows
from rankspace.models.parts import Choice, Emission


class Transition(nn.Module):
    """p(next | state) = softmax over states of f_1(state) . f_2(next) / sqrt(size).

    Both factors begin with numbers near one: without the square root the first distributions would be all but certain.
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        self.from_state, self.to_state = ResidualNetwork(size), ResidualNetwork(size)

    def forward(self, states: Float[Tensor, "state size"]) -> Float[Tensor, "state state"]:
        before = self.from_state(states) / math.sqrt(states.shape[1])
        logits: Tensor = before @ self.to_state(states).T
        return logits.log_softmax(1)


class NeuralHMM(FastChain):
    """One embedding for each state; start, transition and words by residual networks.

    `dropout` leaves out states: a step of training has a random choice of 1 - `dropout` of them, and every
    distribution is over these alone.
    """

    NAME: ClassVar = "hmm"
    ABOUT: ClassVar = "HMM with a full transition matrix from embeddings"
    ORDER: ClassVar = "state"
    PRECISION: ClassVar[Precision] = "high"

    def __init__(
        self, vocabulary: int, states: int = 1024, size: int = 256, dropout: float = 0.0, eos: int | None = None
    ) -> None:
        super().__init__(vocabulary=vocabulary, states=states, size=size, dropout=dropout, eos=eos)
        self.states = embedding(states, size, "normal")
        self.start, self.transition, self.emission = Choice(size), Transition(size), Emission(size, vocabulary)

    def forward(self, words: Int[Tensor, "word"] | None = None) -> HMM:
        states = kept_rows(self.states, self.settings["dropout"], self.training)
        tables = self.start(states), self.transition(states), self.emission(states, words)
        return HMM(*tables, **self.chain_options(words))

    def log_prob_by_kernels(
        self, words: Int[Tensor, "batch length"], batch: Batch
    ) -> tuple[Float[Tensor, "batch"], Bool[Tensor, "batch"]]:
        return hmm_log_prob(self, words, batch)

    def through_networks(self) -> Iterator[tuple[nn.Module, int]]:
        networks = self.start.network, self.transition.from_state, self.transition.to_state, self.emission.network
        return ((network, len(self.states)) for network in networks)
