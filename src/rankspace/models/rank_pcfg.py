"""The paper's PCFG (section 4, Appendix A)."""

from typing import ClassVar, Literal

import torch
from jaxtyping import Int
from torch import Tensor, nn

from rankspace.distributions import RankSpacePCFG
from rankspace.models.contract import Model
from rankspace.models.networks import Initial, ResidualNetwork, embedding
from rankspace.models.parts import Choice, Emission, surely_last


class RankPCFG(Model):
    """All factors from symbol embeddings; one projection to ranks, u_H, is shared by head, left and right.

    Preterminal embeddings are shared by the emissions and the children. f_1, f_2, f_3 are residual networks like h_1
    and h_2. `start="ranks"` has no start vector over nonterminals: the root is a symbol of its own, the last
    nonterminal, which nothing rewrites to, and the first rank is drawn from its head. Every normalisation runs along
    the contiguous last axis.
    """

    NAME: ClassVar = "rank-pcfg"
    ABOUT: ClassVar = "low-rank PCFG in rank space (Yang, Liu, Tu 2022)"
    KIND = "tree"

    def __init__(
        self,
        vocabulary: int,
        nonterminals: int = 4500,
        preterminals: int = 9000,
        rank: int = 1000,
        size: int = 256,
        start: Literal["states", "ranks"] = "states",
        initial: Initial = "normal",
    ) -> None:
        super().__init__(
            vocabulary=vocabulary,
            nonterminals=nonterminals,
            preterminals=preterminals,
            rank=rank,
            size=size,
            start=start,
            initial=initial,
        )
        self.num_nonterminals = nonterminals + (start == "ranks")
        self.symbols = embedding(self.num_nonterminals + preterminals, size, initial)  # w_l = [w_n; w_t]
        self.ranks = embedding(rank, size)  # u_H
        self.head_network, self.left_network, self.right_network = (ResidualNetwork(size) for _ in range(3))
        self.emission = Emission(size, vocabulary)  # h_2, u_E
        if start == "states":
            self.root = Choice(size)  # h_1, u_S

    def forward(self, words: Int[Tensor, "word"] | None = None) -> RankSpacePCFG:
        nonterminals, preterminals = self.symbols.tensor_split([self.num_nonterminals])
        head = (self.head_network(nonterminals) @ self.ranks.T).log_softmax(1)
        left, right = (self._children(network) for network in (self.left_network, self.right_network))
        emission = self.emission(preterminals, words)
        return RankSpacePCFG(self._log_root(), head, left, right, emission, validate=False, **self.options)

    def _log_root(self) -> Tensor:
        if self.settings["start"] == "states":
            found: Tensor = self.root(self.symbols[: self.num_nonterminals])
            return found
        return surely_last(self.num_nonterminals, self.symbols)

    def _children(self, network: nn.Module) -> Tensor:
        logits: Tensor = self.ranks @ network(self.symbols).T
        if self.settings["start"] == "ranks":
            logits[:, self.num_nonterminals - 1] = -torch.inf  # nothing leads to the root
        return logits.log_softmax(1)
