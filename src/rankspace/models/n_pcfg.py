"""The PCFG with a full rule tensor as Kim, Dyer and Rush (2019) parameterise it."""

from collections.abc import Iterator
from typing import ClassVar, NamedTuple

from jaxtyping import Float, Int
from torch import Tensor, nn

from rankspace.distributions import PCFG
from rankspace.models.arithmetic import ByKernels
from rankspace.models.dense_trees import DenseTables, DenseTreeModel
from rankspace.models.networks import embedding
from rankspace.models.parts import Emission, Pairs, Root


class Tables(NamedTuple):
    """Parameters of a PCFG."""

    root: Float[Tensor, "*batch nonterminal"]
    rule: Float[Tensor, "*batch nonterminal symbol symbol"]
    emission: Float[Tensor, "*batch preterminal word"]


class FullGrammar(nn.Module):
    """Root, rules and words from embeddings of symbols, each joined with a latent vector if there are any."""

    def __init__(
        self, vocabulary: int, nonterminals: int, preterminals: int, size: int, latent: int | None = None
    ) -> None:
        super().__init__()
        self.nonterminals = embedding(nonterminals, size, "normal")
        self.preterminals = embedding(preterminals, size, "normal")
        self.root = Root(size, nonterminals, latent)
        self.rules = Pairs(size, nonterminals + preterminals, latent)
        self.emission = Emission(size, vocabulary, latent)

    def forward(
        self, words: Int[Tensor, "*batch word"] | None = None, z: Float[Tensor, "*batch latent"] | None = None
    ) -> Tables:
        rule, emission = self.rules(self.nonterminals, z), self.emission(self.preterminals, words, z)
        return Tables(self.root(z), rule, emission)

    def through_networks(self) -> Iterator[tuple[nn.Module, int]]:
        """As `Model.through_networks`, of one sentence."""
        yield self.emission.network, len(self.preterminals)


class NPCFG(DenseTreeModel):
    """p(A -> B C) = softmax over all pairs of u_BC . w_A + b_BC; root and words by residual networks."""

    NAME: ClassVar = "n-pcfg"
    ABOUT: ClassVar = "PCFG with a full rule tensor (Kim, Dyer, Rush 2019)"

    def __init__(self, vocabulary: int, nonterminals: int = 30, preterminals: int = 60, size: int = 256) -> None:
        super().__init__(vocabulary=vocabulary, nonterminals=nonterminals, preterminals=preterminals, size=size)
        self.grammar = FullGrammar(**self.settings)

    def forward(self, words: Int[Tensor, "word"] | None = None) -> PCFG:
        return PCFG(*self.grammar(words), validate=False, **self.distribution_options())

    def dense_tables(self, tokens: Int[Tensor, "token"], by: ByKernels) -> DenseTables:
        grammar = self.grammar
        rule, root = grammar.rules(grammar.nonterminals).exp(), grammar.root().exp()
        return DenseTables(root, rule, by.log_words(grammar.emission, grammar.preterminals, tokens))

    def through_networks(self) -> Iterator[tuple[nn.Module, int]]:
        return self.grammar.through_networks()
