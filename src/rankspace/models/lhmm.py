"""The HMM with a low-rank transition matrix and words on states (Chiu, Deng, Rush 2021)."""

from typing import ClassVar, Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from rankspace.distributions import LHMM
from rankspace.inference.ragged import Ragged
from rankspace.models.fast_lhmm import lhmm_log_prob
from rankspace.models.fast_model import FastChain
from rankspace.models.networks import ResidualNetwork, embedding, kept_rows
from rankspace.models.parts import Choice, Emission


class NeuralLHMM(FastChain):
    """A state leads to ranks by one residual network and is led to by another: with x_iq = u_q . f_1(w_i) and y_qj =
    u_q . f_2(w_j),

        form "features":  p(j | i) = sum_q exp(x_iq + y_qj) / sum_qj' exp(x_iq + y_qj')
        form "tables":    p(j | i) = sum_q softmax_q(x_iq) softmax_j(y_qj)

    the first as Chiu et al. have it: exp(x_i) and exp(y_j) are nonnegative features, their products the transition.
    There a rank that more leads away from draws more to it, p(q | i) being in proportion to exp(x_iq) sum_j exp(y_qj):
    ranks begin nearly alike, for among unlike ones a few soon take all, and nothing is learned of what follows what.
    `dropout` leaves out ranks: a step of training has a random choice of 1 - `dropout` of them.
    """

    NAME: ClassVar = "lhmm"
    ABOUT: ClassVar = "HMM with a low-rank transition, words on states (Chiu, Deng, Rush 2021)"
    ORDER: ClassVar = "state"

    def __init__(
        self,
        vocabulary: int,
        states: int = 16384,
        rank: int = 2048,
        size: int = 256,
        form: Literal["features", "tables"] = "features",
        dropout: float = 0.0,
        eos: int | None = None,
    ) -> None:
        super().__init__(
            vocabulary=vocabulary, states=states, rank=rank, size=size, form=form, dropout=dropout, eos=eos
        )
        self.states = embedding(states, size, "normal")
        self.ranks = embedding(rank, size) if form == "tables" else _nearly_alike(rank, size)
        self.from_state, self.to_state = ResidualNetwork(size), ResidualNetwork(size)
        self.start, self.emission = Choice(size), Emission(size, vocabulary)

    def forward(self, words: Int[Tensor, "word"] | None = None) -> LHMM:
        ranks = kept_rows(self.ranks, self.settings["dropout"], self.training)
        to_rank, to_state = self.from_state(self.states) @ ranks.T, ranks @ self.to_state(self.states).T
        start, emission, options = self.start(self.states), self.emission(self.states, words), self.chain_options(words)
        if self.settings["form"] == "features":
            return LHMM.from_features(start, to_rank, to_state, emission, **options)
        return LHMM(start, to_rank.log_softmax(1), to_state.log_softmax(1), emission, **options)

    def log_prob_by_kernels(
        self,
        words: Int[Tensor, "batch length"],
        layout: Ragged,
        seed: Int[Tensor, ""],
        true_lengths: Int[Tensor, "batch"] | None = None,
    ) -> tuple[Float[Tensor, "batch"], Bool[Tensor, "batch"]]:
        return lhmm_log_prob(self, words, layout, self.precision, seed, true_lengths)


def _nearly_alike(num_rows: int, size: int) -> nn.Parameter:
    """Embeddings whose products with what a network gives begin far below one."""
    return nn.Parameter(nn.init.normal_(torch.empty(num_rows, size), std=1 / size))
