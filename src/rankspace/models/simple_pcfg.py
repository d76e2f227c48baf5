"""The PCFG whose children are independent given their parent (Liu, Yang, Kim, Tu 2023)."""

import math
from collections.abc import Iterator
from typing import ClassVar, NamedTuple

from jaxtyping import Float, Int
from torch import Tensor, nn

from rankspace.models.arithmetic import Arithmetic
from rankspace.models.low_rank_trees import LowRankTreeModel, Table, TreeTables
from rankspace.models.networks import JoinedLinear, JoinedNetwork, embedding
from rankspace.models.parts import Emission, Root


class Tables(NamedTuple):
    """Parameters of a SimplePCFG."""

    root: Float[Tensor, "*batch nonterminal"]
    left: Float[Tensor, "*batch nonterminal symbol"]
    right: Float[Tensor, "*batch nonterminal symbol"]
    emission: Float[Tensor, "*batch preterminal word"]


class Child(nn.Module):
    """p(B | A) = softmax over symbols of (P w_A + b) . f(w_B) / sqrt(size); with latent vectors, of [w_A; z], [w_B; z].

    Both factors begin with numbers near one: without the square root the first distributions would be all but certain.
    """

    def __init__(self, size: int, latent: int | None = None) -> None:
        super().__init__()
        self.parent, self.network = JoinedLinear(size, size, latent), JoinedNetwork(size, latent)

    def forward(
        self,
        nonterminals: Float[Tensor, "nonterminal size"],
        symbols: Float[Tensor, "symbol size"],
        z: Float[Tensor, "*batch latent"] | None = None,
    ) -> Float[Tensor, "*batch nonterminal symbol"]:
        parents = self.parent(nonterminals, z) / math.sqrt(symbols.shape[1])
        logits: Tensor = parents @ self.network(symbols, z).mT
        return logits.log_softmax(-1)

    def table(
        self, nonterminals: Float[Tensor, "nonterminal size"], symbols: Float[Tensor, "symbol size"], by: Arithmetic
    ) -> Table:
        """The same without latent vectors."""
        parents = by.meeting(nonterminals, self.parent.of_row.weight) + self.parent.of_row.bias
        return Table(parents / math.sqrt(symbols.shape[1]), by.network(self.network, symbols))


class SimpleGrammar(nn.Module):
    """Root, children and words from embeddings of symbols, each joined with a latent vector if there are any."""

    def __init__(
        self, vocabulary: int, nonterminals: int, preterminals: int, size: int, latent: int | None = None
    ) -> None:
        super().__init__()
        self.num_nonterminals = nonterminals
        self.symbols = embedding(nonterminals + preterminals, size, "normal")
        self.left, self.right = Child(size, latent), Child(size, latent)
        self.root, self.emission = Root(size, nonterminals, latent), Emission(size, vocabulary, latent)

    def forward(
        self, words: Int[Tensor, "*batch word"] | None = None, z: Float[Tensor, "*batch latent"] | None = None
    ) -> Tables:
        nonterminals, preterminals = self.symbols.tensor_split([self.num_nonterminals])
        left, right = (child(nonterminals, self.symbols, z) for child in (self.left, self.right))
        return Tables(self.root(z), left, right, self.emission(preterminals, words, z))

    def through_networks(self) -> Iterator[tuple[nn.Module, int]]:
        """As `Model.through_networks`, of one sentence."""
        for child in (self.left, self.right):
            yield child.parent, self.num_nonterminals
            yield child.network, len(self.symbols)
        yield self.emission.network, len(self.symbols) - self.num_nonterminals


class SimpleNPCFG(LowRankTreeModel):
    """p(A -> B C) = left[A, B] right[A, C], each by a projection of w_A and a residual network of the child."""

    NAME: ClassVar = "simple-pcfg"
    ABOUT: ClassVar = "PCFG with independent children, SN-PCFG (Liu, Yang, Kim, Tu 2023)"

    def __init__(self, vocabulary: int, nonterminals: int = 4096, preterminals: int = 8192, size: int = 512) -> None:
        super().__init__(vocabulary=vocabulary, nonterminals=nonterminals, preterminals=preterminals, size=size)
        self.grammar = SimpleGrammar(**self.settings)

    def tables(self, words: Int[Tensor, "word"] | None, by: Arithmetic) -> TreeTables:
        grammar, symbols = self.grammar, self.grammar.symbols
        nonterminals, preterminals = symbols.tensor_split([grammar.num_nonterminals])
        left, right = (child.table(nonterminals, symbols, by) for child in (grammar.left, grammar.right))
        return TreeTables(grammar.root(), None, left, right, by.log_words(grammar.emission, preterminals, words))

    def through_networks(self) -> Iterator[tuple[nn.Module, int]]:
        return self.grammar.through_networks()
