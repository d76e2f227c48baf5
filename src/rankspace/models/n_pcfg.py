"""The PCFG with a full rule tensor as Kim, Dyer and Rush (2019) parameterise it."""

from typing import ClassVar, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from rankspace.distributions import PCFG
from rankspace.inference.backends import missing
from rankspace.inference.links import Precision
from rankspace.inference.ragged import equal_lengths
from rankspace.inference.tree.dense_triton import Setting, dense_log_z_by_kernels
from rankspace.models.contract import Model
from rankspace.models.fast_emission import log_words
from rankspace.models.fast_networks import residual_network
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


class NPCFG(Model):
    """p(A -> B C) = softmax over all pairs of u_BC . w_A + b_BC; root and words by residual networks."""

    NAME: ClassVar = "n-pcfg"
    ABOUT: ClassVar = "PCFG with a full rule tensor (Kim, Dyer, Rush 2019)"
    KIND = "tree"

    def __init__(self, vocabulary: int, nonterminals: int = 30, preterminals: int = 60, size: int = 256) -> None:
        super().__init__(vocabulary=vocabulary, nonterminals=nonterminals, preterminals=preterminals, size=size)
        self.grammar = FullGrammar(**self.settings)

    def forward(self, words: Int[Tensor, "word"] | None = None) -> PCFG:
        return PCFG(*self.grammar(words), validate=False, **self.options)

    def can_be_captured(self, device: torch.device) -> bool:
        plain = self.options.get("backend", "auto") in ("auto", "triton")
        return plain and not missing(device) and all(each.dtype == torch.float32 for each in self.parameters())

    def padded_log_prob(
        self, words: Int[Tensor, "batch length"], lengths: Int[Tensor, "batch"], seed: Int[Tensor, ""]
    ) -> tuple[Float[Tensor, "batch"], Bool[Tensor, "batch"]]:
        """Emissions are those of the tokens of the batch, each with a row of its own. Nothing is dropped."""
        batch, length = words.shape
        layout = equal_lengths(batch, length, words.device)
        precision: Precision = self.options.get("precision", "highest")
        log_emitted = self._log_words(layout.pack(words), precision)
        grammar = self.grammar
        rule, root = grammar.rules(grammar.nonterminals).exp(), grammar.root().exp()
        return dense_log_z_by_kernels(rule, root, log_emitted, Setting(layout, lengths, precision))

    def _log_words(self, tokens: Int[Tensor, "token"], precision: Precision) -> Float[Tensor, "token preterminal"]:
        """As `Emission`. Precision is "high" where "medium" is asked for: what a logit is off by, log p is for each
        word."""
        precision = "high" if precision == "medium" else precision
        network, vocabulary = self.grammar.emission.network, self.grammar.emission.words
        hidden = residual_network(network, self.grammar.preterminals, precision)
        return log_words(hidden, vocabulary.weight, vocabulary.bias, tokens, precision)
