"""The HMM with a low-rank transition matrix and words on states (Chiu, Deng, Rush 2021)."""

from collections.abc import Iterator
from typing import ClassVar, Literal, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from rankspace.distributions import LHMM
from rankspace.distributions.lhmm import tables_of_features
from rankspace.inference.logarithms import log_matrix_product
from rankspace.models.fast_batch import Batch
from rankspace.models.fast_lhmm import lhmm_log_prob
from rankspace.models.fast_model import FastChain
from rankspace.models.networks import embedding, kept_numbers, kept_rows
from rankspace.models.parts import Emission


class Kept(NamedTuple):
    """The embeddings of the ranks and states that a step has."""

    from_states: Float[Tensor, "state_and_start size"]  # v, the start last
    to_states: Float[Tensor, "state size"]  # w
    ranks: Float[Tensor, "rank size"]  # u
    emitters: Float[Tensor, "state size"]


class NeuralLHMM(FastChain):
    """Each state has an embedding v_i to lead to ranks by, and another, w_i, to be led to: with x_iq = u_q . v_i and
    y_qj = u_q . w_j,

        form "features":  p(j | i) = sum_q exp(x_iq + y_qj) / sum_qj' exp(x_iq + y_qj')
        form "tables":    p(j | i) = sum_q softmax_q(x_iq) softmax_j(y_qj)

    the first as Chiu et al. have it: exp(x_i) and exp(y_j) are nonnegative features, their products the transition.
    The start is a state of its own, the last of the v, which nothing leads to and which emits nothing.

    No network stands between embeddings and features. The outputs of a network with rectifiers for all states share a
    large mean, which gives x and y a large part that depends on the rank alone. In p(q | i), in proportion to exp(x_iq)
    sum_j exp(y_qj), that part counts twice: a few ranks take all within a hundred steps, and nothing is learned of what
    follows what. x and y begin standard normal: ranks are unlike, and about equally likely.

    `dropout` leaves out ranks, `state_dropout` states: a step of training has a random choice of the others.
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
        state_dropout: float = 0.0,
        eos: int | None = None,
    ) -> None:
        super().__init__(
            vocabulary=vocabulary,
            states=states,
            rank=rank,
            size=size,
            form=form,
            dropout=dropout,
            state_dropout=state_dropout,
            eos=eos,
        )
        self.from_states, self.to_states = _unit_products(states + 1, size), _unit_products(states, size)
        self.ranks, self.emitters = embedding(rank, size, "normal"), embedding(states, size, "normal")
        self.emission = Emission(size, vocabulary)

    def forward(self, words: Int[Tensor, "word"] | None = None) -> LHMM:
        kept = self.kept()
        left, right = kept.from_states @ kept.ranks.T, kept.ranks @ kept.to_states.T
        if self.settings["form"] == "features":
            to_rank, to_state = tables_of_features(left, right)
        else:
            to_rank, to_state = left.log_softmax(1), right.log_softmax(1)
        start = log_matrix_product(to_rank[-1:], to_state)[0]
        emission = self.emission(kept.emitters, words)
        return LHMM(start, to_rank[:-1], to_state, emission, **self.chain_options(words))

    def kept(self) -> Kept:
        """All embeddings; in training those of the ranks and states that are not left out, drawn at each call."""
        ranks = kept_rows(self.ranks, self.settings["dropout"], self.training)
        if not self.training or not self.settings["state_dropout"]:
            return Kept(self.from_states, self.to_states, ranks, self.emitters)
        chosen = kept_numbers(len(self.to_states), self.settings["state_dropout"], ranks.device)
        start = torch.full_like(chosen[:1], len(self.to_states))
        leading = self.from_states[torch.cat([chosen, start])]
        return Kept(leading, self.to_states[chosen], ranks, self.emitters[chosen])

    def log_prob_by_kernels(
        self, words: Int[Tensor, "batch length"], batch: Batch
    ) -> tuple[Float[Tensor, "batch"], Bool[Tensor, "batch"]]:
        return lhmm_log_prob(self, words, batch)

    def through_networks(self) -> Iterator[tuple[nn.Module, int]]:
        yield self.emission.network, len(self.emitters)


def _unit_products(num_rows: int, size: int) -> nn.Parameter:
    """Embeddings whose products with standard normal ones begin standard normal."""
    return nn.Parameter(nn.init.normal_(torch.empty(num_rows, size), std=size**-0.5))
