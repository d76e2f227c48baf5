"""The PCFG with a decomposed rule tensor as Yang, Zhao and Tu (2021) parameterise it."""

from collections.abc import Iterator
from typing import ClassVar

from jaxtyping import Int
from torch import Tensor, nn

from rankspace.models.arithmetic import Arithmetic
from rankspace.models.low_rank_trees import LowRankTreeModel, Rectified, Table, TreeTables
from rankspace.models.networks import embedding
from rankspace.models.parts import Emission, Root


class ToRanks(Rectified):
    """ReLU(A w_l + b), which meets the embedding u_q of every rank q."""

    def __init__(self, size: int, rank: int) -> None:
        super().__init__(size)
        self.ranks = embedding(rank, size)


class TNPCFG(LowRankTreeModel):
    """The same distribution as `rank-pcfg`, with a projection to ranks of its own for head, left and right.

    The root is chosen by a residual network of one embedding. With `options["order"] = "state"` it also computes in the
    order of its authors; the default is the cheaper order.
    """

    NAME: ClassVar = "tn-pcfg"
    ABOUT: ClassVar = "PCFG with a decomposed rule tensor (Yang, Zhao, Tu 2021)"

    def __init__(
        self, vocabulary: int, nonterminals: int = 250, preterminals: int = 500, rank: int = 200, size: int = 256
    ) -> None:
        super().__init__(
            vocabulary=vocabulary, nonterminals=nonterminals, preterminals=preterminals, rank=rank, size=size
        )
        self.symbols = embedding(nonterminals + preterminals, size, "normal")
        self.head, self.left, self.right = (ToRanks(size, rank) for _ in range(3))
        self.root, self.emission = Root(size, nonterminals), Emission(size, vocabulary)

    def tables(self, words: Int[Tensor, "word"] | None, by: Arithmetic) -> TreeTables:
        nonterminals, preterminals = self.symbols.tensor_split([self.settings["nonterminals"]])
        head = Table(self.head(nonterminals, by), self.head.ranks)
        left, right = (Table(project.ranks, project(self.symbols, by)) for project in (self.left, self.right))
        return TreeTables(self.root(), head, left, right, by.log_words(self.emission, preterminals, words))

    def through_networks(self) -> Iterator[tuple[nn.Module, int]]:
        nonterminals, symbols = self.settings["nonterminals"], len(self.symbols)
        yield self.head, nonterminals
        yield self.left, symbols
        yield self.right, symbols
        yield self.emission.network, symbols - nonterminals
