"""The paper's HMM (section 5, Appendix B)."""

from typing import ClassVar, Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from rankspace.distributions import RankSpaceHMM
from rankspace.inference.ragged import Ragged
from rankspace.models.emission import log_emission
from rankspace.models.fast_model import FastChain
from rankspace.models.fast_rank_hmm import rank_hmm_log_prob
from rankspace.models.networks import ResidualNetwork, embedding, log_softmax_dropped
from rankspace.models.parts import Choice, surely_last


class RankHMM(FastChain):
    """Two state embeddings meet one projection to ranks, u_H; words and start come from residual networks.

    `dropout` acts on the start embeddings and on the entries of U and V (`log_softmax_dropped`). `start="ranks"` has no
    start vector over states: the start is a state of its own, the last one, which nothing leads to, and the first rank
    is drawn from its row of U. Under the paper's form ("states") the softmax over thousands of states grows one-hot
    within a few steps and its gradient dies.
    """

    NAME: ClassVar = "rank-hmm"
    ABOUT: ClassVar = "low-rank HMM in rank space (Yang, Liu, Tu 2022)"
    ORDER: ClassVar = "rank"

    def __init__(
        self,
        vocabulary: int,
        states: int = 16384,
        rank: int = 4096,
        size: int = 256,
        dropout: float = 0.1,
        start: Literal["states", "ranks"] = "states",
        eos: int | None = None,
    ) -> None:
        super().__init__(
            vocabulary=vocabulary, states=states, rank=rank, size=size, dropout=dropout, start=start, eos=eos
        )
        num_states = states + (start == "ranks")
        self.from_states, self.to_states = embedding(num_states, size), embedding(states, size)  # w_u, w_v
        self.ranks = embedding(rank, size)  # u_H
        self.words, self.word_network = embedding(vocabulary, size, "normal"), ResidualNetwork(size)  # w_w, h_2
        self.emitters = embedding(rank, size)  # u_W
        if start == "states":
            self.starts, self.start = embedding(states, size, "normal"), Choice(size)  # w_s; h_1, u_P

    def forward(self, words: Int[Tensor, "word"] | None = None) -> RankSpaceHMM:
        dropout, training = self.settings["dropout"], self.training
        to_rank = log_softmax_dropped(self.from_states @ self.ranks.T, dropout, training)
        to_state = log_softmax_dropped(self._to_state_logits(), dropout, training)
        emission = log_emission(self.emitters, self.word_network(self.words), words=words)
        return RankSpaceHMM(self._log_start(), to_rank, to_state, emission, **self.chain_options(words))

    def log_prob_by_kernels(
        self,
        words: Int[Tensor, "batch length"],
        layout: Ragged,
        seed: Int[Tensor, ""],
        true_lengths: Int[Tensor, "batch"] | None = None,
    ) -> tuple[Float[Tensor, "batch"], Bool[Tensor, "batch"]]:
        return rank_hmm_log_prob(self, words, layout, self.precision, seed, true_lengths)

    def _to_state_logits(self) -> Float[Tensor, "rank state"]:
        logits: Tensor = self.ranks @ self.to_states.T
        if self.settings["start"] == "ranks":
            logits = nn.functional.pad(logits, (0, 1), value=-torch.inf)  # nothing leads to the start
        return logits

    def _log_start(self) -> Float[Tensor, "state"]:
        if self.settings["start"] == "states":
            starts = nn.functional.dropout(self.starts, self.settings["dropout"], self.training)
            found: Tensor = self.start(starts)
            return found
        return surely_last(len(self.from_states), self.from_states)
