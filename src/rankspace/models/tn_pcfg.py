"""The PCFG with a decomposed rule tensor as Yang, Zhao and Tu (2021) parameterise it."""

from typing import ClassVar

from jaxtyping import Float, Int
from torch import Tensor, nn

from rankspace.distributions import RankSpacePCFG
from rankspace.models.contract import Model
from rankspace.models.networks import embedding, initialise_matrices
from rankspace.models.parts import Emission, Root


class ToRanks(nn.Module):
    """u_q . ReLU(A w_l + b) for every rank q and symbol l, [rank, symbol]."""

    def __init__(self, size: int, rank: int) -> None:
        super().__init__()
        self.first, self.ranks = nn.Linear(size, size), embedding(rank, size)
        initialise_matrices(self.first)

    def forward(self, symbols: Float[Tensor, "symbol size"]) -> Float[Tensor, "rank symbol"]:
        hidden: Tensor = self.first(symbols).relu()
        return self.ranks @ hidden.T


class TNPCFG(Model):
    """As `rank-pcfg` in what it distributes, with a projection to ranks of its own for head, left and right.

    The root is chosen by a residual network of one embedding. With `options["order"] = "state"` it also computes in
    the order of its authors; the default is what is cheaper.
    """

    NAME: ClassVar = "tn-pcfg"
    ABOUT: ClassVar = "PCFG with a decomposed rule tensor (Yang, Zhao, Tu 2021)"
    KIND = "tree"

    def __init__(
        self, vocabulary: int, nonterminals: int = 250, preterminals: int = 500, rank: int = 200, size: int = 256
    ) -> None:
        super().__init__(
            vocabulary=vocabulary, nonterminals=nonterminals, preterminals=preterminals, rank=rank, size=size
        )
        self.symbols = embedding(nonterminals + preterminals, size, "normal")
        self.head, self.left, self.right = (ToRanks(size, rank) for _ in range(3))
        self.root, self.emission = Root(size, nonterminals), Emission(size, vocabulary)

    def forward(self, words: Int[Tensor, "word"] | None = None) -> RankSpacePCFG:
        nonterminals, preterminals = self.symbols.tensor_split([self.settings["nonterminals"]])
        head = self.head(nonterminals).T.contiguous().log_softmax(1)
        left, right = (project(self.symbols).log_softmax(1) for project in (self.left, self.right))
        emission = self.emission(preterminals, words)
        return RankSpacePCFG(self.root(), head, left, right, emission, validate=False, **self.options)
