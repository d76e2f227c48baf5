"""The PCFG with a full rule tensor as Kim, Dyer and Rush (2019) parameterise it."""

from typing import ClassVar, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from rankspace.distributions import PCFG
from rankspace.inference.backends import can_run_kernels, launching_on, runs_kernels
from rankspace.inference.links import Precision
from rankspace.inference.ragged import equal_lengths
from rankspace.inference.tree.dense_triton import Setting, dense_log_z_by_kernels
from rankspace.models.arithmetic import ByKernels
from rankspace.models.contract import Model
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
    PRECISION: ClassVar = "high"

    def __init__(self, vocabulary: int, nonterminals: int = 30, preterminals: int = 60, size: int = 256) -> None:
        super().__init__(vocabulary=vocabulary, nonterminals=nonterminals, preterminals=preterminals, size=size)
        self.grammar = FullGrammar(**self.settings)

    def forward(self, words: Int[Tensor, "word"] | None = None) -> PCFG:
        """The kernels are the model's, in training: its distribution runs as with "auto"."""
        options = self.options
        if options.get("backend") == "triton":
            runs_kernels(self.NAME, options, self.parameters(), self.grammar.nonterminals.device)
            options = {**options, "backend": "auto"}
        return PCFG(*self.grammar(words), validate=False, **options)

    def can_be_captured(self, device: torch.device) -> bool:
        return can_run_kernels(self.options, self.parameters(), device)

    def padded_log_prob(
        self, words: Int[Tensor, "batch length"], lengths: Int[Tensor, "batch"], seed: Int[Tensor, ""]
    ) -> tuple[Float[Tensor, "batch"], Bool[Tensor, "batch"]]:
        """Emissions are those of the tokens of the batch, each with a row of its own. Nothing is dropped."""
        batch, length = words.shape
        layout = equal_lengths(batch, length, words.device)
        precision: Precision = self.options.get("precision", "highest")
        grammar = self.grammar
        with launching_on(words.device):
            log_emitted = ByKernels(precision).log_words(grammar.emission, grammar.preterminals, layout.pack(words))
            rule, root = grammar.rules(grammar.nonterminals).exp(), grammar.root().exp()
            return dense_log_z_by_kernels(rule, root, log_emitted, Setting(layout, lengths, precision))
