"""The paper's HMM (section 5, Appendix B)."""

from collections.abc import Iterator
from typing import ClassVar, Literal, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from rankspace.distributions import RankSpaceHMM
from rankspace.models.emission import log_emission
from rankspace.models.fast_batch import Batch
from rankspace.models.fast_model import FastChain
from rankspace.models.fast_rank_hmm import rank_hmm_log_prob
from rankspace.models.networks import Initial, ResidualNetwork, embedding, kept_numbers, log_softmax_dropped
from rankspace.models.parts import Choice, surely_last


class Kept(NamedTuple):
    """The embeddings of the ranks and states that a step has."""

    from_states: Float[Tensor, "state size"]  # w_u, of a start that is a state the last
    to_states: Float[Tensor, "reached size"]  # w_v
    ranks: Float[Tensor, "rank size"]  # u_H
    emitters: Float[Tensor, "rank size"]  # u_W
    starts: Float[Tensor, "reached size"] | None  # w_s


class RankHMM(FastChain):
    """Two state embeddings meet one projection to ranks, u_H; words and start come from residual networks.

    `dropout` acts on the start embeddings and on the entries of U and V (`log_softmax_dropped`). `rank_dropout` and
    `state_dropout` leave out whole ranks and states: a step of training has a random choice of the others, over which
    U and V are normalised. `word_dropout` acts on what the network gives for each word. `start="ranks"` has no
    start vector over states: the start is a state of its own, the last one, which nothing leads to, and the first rank
    is drawn from its row of U. Under the paper's form ("states") the softmax over thousands of states grows one-hot
    within a few steps and its gradient dies. `initial` is how state embeddings begin: with "xavier" those of thousands
    of states are all but zero, and U and V all but uniform.
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
        rank_dropout: float = 0.0,
        state_dropout: float = 0.0,
        word_dropout: float = 0.0,
        initial: Initial = "xavier",
        eos: int | None = None,
    ) -> None:
        super().__init__(
            vocabulary=vocabulary,
            states=states,
            rank=rank,
            size=size,
            dropout=dropout,
            start=start,
            rank_dropout=rank_dropout,
            state_dropout=state_dropout,
            word_dropout=word_dropout,
            initial=initial,
            eos=eos,
        )
        num_states = states + (start == "ranks")
        self.from_states, self.to_states = (embedding(num, size, initial) for num in (num_states, states))  # w_u, w_v
        self.ranks = embedding(rank, size)  # u_H
        self.words, self.word_network = embedding(vocabulary, size, "normal"), ResidualNetwork(size)  # w_w, h_2
        self.emitters = embedding(rank, size)  # u_W
        if start == "states":
            self.starts, self.start = embedding(states, size, "normal"), Choice(size)  # w_s; h_1, u_P

    def forward(self, words: Int[Tensor, "word"] | None = None) -> RankSpaceHMM:
        dropout, kept = self.settings["dropout"], self.kept()
        to_rank = log_softmax_dropped(kept.from_states @ kept.ranks.T, dropout, self.training)
        to_state = log_softmax_dropped(self._to_state_logits(kept), dropout, self.training)
        emission = log_emission(kept.emitters, self.dropped(self.word_network(self.words)), words=words)
        return RankSpaceHMM(self._log_start(kept), to_rank, to_state, emission, **self.chain_options(words))

    def kept(self) -> Kept:
        """All embeddings; in training those of the ranks and states that are not left out, drawn at each call."""
        starts = self.starts if self.settings["start"] == "states" else None
        found = Kept(self.from_states, self.to_states, self.ranks, self.emitters, starts)
        if self.training and self.settings["rank_dropout"]:
            chosen = kept_numbers(len(self.ranks), self.settings["rank_dropout"], self.ranks.device)
            found = found._replace(ranks=self.ranks[chosen], emitters=self.emitters[chosen])
        if self.training and self.settings["state_dropout"]:
            found = self._with_some_states(found)
        return found

    def _with_some_states(self, found: Kept) -> Kept:
        """The start stays, if it is a state."""
        num = len(self.to_states)
        chosen = kept_numbers(num, self.settings["state_dropout"], self.ranks.device)
        of_start = torch.arange(num, len(self.from_states), device=chosen.device)
        return found._replace(
            from_states=self.from_states[torch.cat([chosen, of_start])],
            to_states=self.to_states[chosen],
            starts=None if found.starts is None else found.starts[chosen],
        )

    def dropped(self, vocabulary: Float[Tensor, "vocab size"]) -> Float[Tensor, "vocab size"]:
        """What the network gives for words, with `word_dropout` in training."""
        return nn.functional.dropout(vocabulary, self.settings["word_dropout"], self.training)

    def log_prob_by_kernels(
        self, words: Int[Tensor, "batch length"], batch: Batch
    ) -> tuple[Float[Tensor, "batch"], Bool[Tensor, "batch"]]:
        return rank_hmm_log_prob(self, words, batch)

    def through_networks(self) -> Iterator[tuple[nn.Module, int]]:
        yield self.word_network, self.vocabulary
        if self.settings["start"] == "states":
            yield self.start.network, len(self.starts)

    def _to_state_logits(self, kept: Kept) -> Float[Tensor, "rank state"]:
        logits: Tensor = kept.ranks @ kept.to_states.T
        if kept.starts is None:
            logits = nn.functional.pad(logits, (0, 1), value=-torch.inf)  # nothing leads to the start
        return logits

    def _log_start(self, kept: Kept) -> Float[Tensor, "state"]:
        if kept.starts is None:
            return surely_last(len(kept.from_states), kept.from_states)
        starts = nn.functional.dropout(kept.starts, self.settings["dropout"], self.training)
        found: Tensor = self.start(starts)
        return found
