"""The PCFG whose rule tensor has a low-rank head (figure 3b)."""

from collections.abc import Iterator
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from rankspace.distributions import LPCFG
from rankspace.models.arithmetic import ByKernels
from rankspace.models.dense_trees import DenseTables, DenseTreeModel
from rankspace.models.fast_products import meeting
from rankspace.models.networks import ResidualNetwork, embedding
from rankspace.models.parts import Emission, Pairs, Root


class NeuralLPCFG(DenseTreeModel):
    """p(A -> B C) = sum_q head[A, q] pair[q, B, C]: head = softmax over ranks of w_q . f(w_A), pair = softmax over all
    pairs of u_BC . w_q + b_BC, with one embedding w_q of each rank; root and words as in `n-pcfg`."""

    NAME: ClassVar = "l-pcfg"
    ABOUT: ClassVar = "PCFG whose rule tensor has a low-rank head (LPCFG of Yang, Liu, Tu 2022)"

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
        pair, emission = self.pairs(self.ranks), self.emission(self.preterminals, words)
        return LPCFG(self.root(), self._log_head(), pair, emission, validate=False, **self.distribution_options())

    def dense_tables(self, tokens: Int[Tensor, "token"], by: ByKernels) -> DenseTables:
        """The head multiplied out, over nonterminals or over ranks, whichever are fewer: the rules are no more numbers
        than the pairs are, and the chart has the shorter vectors."""
        root, head, pair = self.root().exp(), self._log_head().exp(), self.pairs(self.ranks).exp()
        multiplied = over_ranks if len(self.ranks) < len(self.nonterminals) else over_symbols
        return DenseTables(*multiplied(root, head, pair), by.log_words(self.emission, self.preterminals, tokens))

    def through_networks(self) -> Iterator[tuple[nn.Module, int]]:
        yield self.head_network, len(self.nonterminals)
        yield self.emission.network, len(self.preterminals)

    def _log_head(self) -> Float[Tensor, "nonterminal rank"]:
        logits: Tensor = self.head_network(self.nonterminals) @ self.ranks.T
        return logits.log_softmax(1)


def over_symbols(
    root: Float[Tensor, "nonterminal"],
    head: Float[Tensor, "nonterminal rank"],
    pair: Float[Tensor, "rank symbol symbol"],
) -> tuple[Float[Tensor, "nonterminal"], Float[Tensor, "nonterminal symbol symbol"]]:
    """Root and rules, sum_q head[A, q] pair[q, B, C], of a PCFG with the same nonterminals."""
    rule = meeting(head, pair.flatten(1).T, "highest")  # its rows sum to one as computed
    return root, rule.unflatten(1, pair.shape[1:])


def over_ranks(
    root: Float[Tensor, "nonterminal"],
    head: Float[Tensor, "nonterminal rank"],
    pair: Float[Tensor, "rank symbol symbol"],
) -> tuple[Float[Tensor, "rank"], Float[Tensor, "rank child child"]]:
    """Root and rules of a PCFG whose nonterminals are the ranks: root and children go through the head, as in
    `LPCFG.collapse`."""
    num = len(root)
    of_left = torch.cat([_through(pair[:, :num].mT, head).mT, pair[:, num:]], 1)
    of_both = torch.cat([_through(of_left[..., :num], head), of_left[..., num:]], 2)
    return meeting(root[None], head.T, "highest")[0], of_both


def _through(
    table: Float[Tensor, "rank child nonterminal"], head: Float[Tensor, "nonterminal to_rank"]
) -> Float[Tensor, "rank child to_rank"]:
    found = meeting(table.flatten(0, 1), head.T, "highest")
    return found.view(*table.shape[:2], -1)
