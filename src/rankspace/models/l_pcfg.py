"""The PCFG whose rule tensor has a low-rank head (figure 3b)."""

from typing import ClassVar

from jaxtyping import Int
from torch import Tensor

from rankspace.distributions import LPCFG
from rankspace.models.contract import Model
from rankspace.models.networks import ResidualNetwork, embedding
from rankspace.models.parts import Emission, Pairs, Root


class NeuralLPCFG(Model):
    """p(A -> B C) = sum_q head[A, q] pair[q, B, C]: head = softmax over ranks of w_q . f(w_A), pair = softmax over all
    pairs of u_BC . w_q + b_BC, with one embedding w_q of each rank; root and words as in `n-pcfg`."""

    NAME: ClassVar = "l-pcfg"
    ABOUT: ClassVar = "PCFG whose rule tensor has a low-rank head (LPCFG of Yang, Liu, Tu 2022)"
    KIND = "tree"

    def __init__(
        self, vocabulary: int, nonterminals: int = 60, preterminals: int = 120, rank: int = 30, size: int = 256
    ) -> None:
        super().__init__(
            vocabulary=vocabulary, nonterminals=nonterminals, preterminals=preterminals, rank=rank, size=size
        )
        self.nonterminals = embedding(nonterminals, size, "normal")
        self.preterminals = embedding(preterminals, size, "normal")
        self.ranks, self.head_network = embedding(rank, size), ResidualNetwork(size)
        self.root, self.emission = Root(size, nonterminals), Emission(size, vocabulary)
        self.pairs = Pairs(size, nonterminals + preterminals)

    def forward(self, words: Int[Tensor, "word"] | None = None) -> LPCFG:
        head = (self.head_network(self.nonterminals) @ self.ranks.T).log_softmax(1)
        pair, emission = self.pairs(self.ranks), self.emission(self.preterminals, words)
        return LPCFG(self.root(), head, pair, emission, validate=False, **self.options)
