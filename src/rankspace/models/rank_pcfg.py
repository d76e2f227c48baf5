"""The paper's PCFG (section 4, Appendix A)."""

from collections.abc import Iterator
from typing import ClassVar, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from rankspace.models.arithmetic import Arithmetic
from rankspace.models.low_rank_trees import LowRankTreeModel, Rectified, Table, TreeTables
from rankspace.models.networks import Initial, ResidualNetwork, embedding, make_biases_uniform
from rankspace.models.parts import Choice, Emission, Root


class RankPCFG(LowRankTreeModel):
    """All factors from symbol embeddings; one projection to ranks, u_H, is shared by head, left and right.

    Preterminal embeddings are shared by the emissions and the children. f_1, f_2, f_3 are residual networks like h_1
    and h_2; with `networks="rectified"`, as in the authors' published code, each is one linear map and a rectifier.
    `start="embedding"`, also as there, chooses the root by a network of one embedding; `start="ranks"` has no start
    vector over nonterminals: the root is a symbol of its own, the last nonterminal, which nothing rewrites to, and the
    first rank is drawn from its head. `biases="uniform"`: those of all networks begin as torch has them, as there too.

    `dropout` leaves out numbers of the embeddings of symbols: a step of training has a random choice of the others, the
    same wherever a symbol stands.
    """

    NAME: ClassVar = "rank-pcfg"
    ABOUT: ClassVar = "low-rank PCFG in rank space (Yang, Liu, Tu 2022)"

    def __init__(
        self,
        vocabulary: int,
        nonterminals: int = 4500,
        preterminals: int = 9000,
        rank: int = 1000,
        size: int = 256,
        start: Literal["states", "ranks", "embedding"] = "states",
        initial: Initial = "normal",
        networks: Literal["residual", "rectified"] = "residual",
        biases: Literal["zero", "uniform"] = "zero",
        dropout: float = 0.0,
    ) -> None:
        super().__init__(
            vocabulary=vocabulary,
            nonterminals=nonterminals,
            preterminals=preterminals,
            rank=rank,
            size=size,
            start=start,
            initial=initial,
            networks=networks,
            biases=biases,
            dropout=dropout,
        )
        self.num_nonterminals = nonterminals + (start == "ranks")
        self.symbols = embedding(self.num_nonterminals + preterminals, size, initial)  # w_l = [w_n; w_t]
        self.ranks = embedding(rank, size)  # u_H
        network: type[nn.Module] = ResidualNetwork if networks == "residual" else Rectified
        self.head_network, self.left_network, self.right_network = (network(size) for _ in range(3))  # f_1, f_2, f_3
        self.emission = Emission(size, vocabulary)  # h_2, u_E
        if start == "states":
            self.root = Choice(size)  # h_1, u_S
        elif start == "embedding":
            self.root_network = Root(size, nonterminals)
        if biases == "uniform":
            make_biases_uniform(self)

    def tables(self, words: Int[Tensor, "word"] | None, by: Arithmetic) -> TreeTables:
        symbols = nn.functional.dropout(self.symbols, self.settings["dropout"], self.training)
        nonterminals, preterminals = symbols.tensor_split([self.num_nonterminals])
        head = Table(self._led(self.head_network, nonterminals, by), self.ranks)
        left, right = (
            Table(self.ranks, self._led(network, self._children(symbols), by))
            for network in (self.left_network, self.right_network)
        )
        log_words = by.log_words(self.emission, preterminals, words)
        return TreeTables(self._root(nonterminals, by), head, left, right, log_words)

    def through_networks(self) -> Iterator[tuple[nn.Module, int]]:
        nonterminals, symbols = self.num_nonterminals, len(self.symbols)
        yield self.head_network, nonterminals
        yield self.left_network, symbols
        yield self.right_network, symbols
        yield self.emission.network, symbols - nonterminals
        if self.settings["start"] == "states":
            yield self.root.network, nonterminals

    def _led(self, network: nn.Module, rows: Float[Tensor, "row size"], by: Arithmetic) -> Float[Tensor, "row size"]:
        return network(rows, by) if isinstance(network, Rectified) else by.network(network, rows)

    def _root(
        self, nonterminals: Float[Tensor, "nonterminal size"], by: Arithmetic
    ) -> Float[Tensor, "nonterminal"] | None:
        """Logits."""
        if self.settings["start"] == "ranks":
            return None
        if self.settings["start"] == "embedding":
            found: Tensor = self.root_network()
            return found
        return by.meeting(by.network(self.root.network, nonterminals), self.root.start)[:, 0]

    def _children(self, symbols: Float[Tensor, "symbol size"]) -> Float[Tensor, "child size"]:
        """All symbols but a root that nothing rewrites to."""
        if self.settings["start"] != "ranks":
            return symbols
        root = self.num_nonterminals - 1
        return torch.cat([symbols[:root], symbols[root + 1 :]])
