"""The compound version of the PCFG with independent children (Liu, Yang, Kim, Tu 2023)."""

from typing import ClassVar

from rankspace.distributions import SimplePCFG
from rankspace.models.compound import CompoundModel
from rankspace.models.simple_pcfg import SimpleGrammar


class SimpleCPCFG(CompoundModel):
    """`simple-pcfg` whose embeddings are joined with a latent vector z of the sentence."""

    NAME: ClassVar = "simple-cpcfg"
    ABOUT: ClassVar = "simple-pcfg with a latent vector per sentence, SC-PCFG (Liu, Yang, Kim, Tu 2023)"
    GRAMMAR: ClassVar = SimpleGrammar
    DISTRIBUTION: ClassVar = SimplePCFG

    def __init__(
        self,
        vocabulary: int,
        nonterminals: int = 512,
        preterminals: int = 1024,
        size: int = 256,
        latent: int = 64,
        samples: int | None = None,
    ) -> None:
        super().__init__(
            vocabulary=vocabulary,
            nonterminals=nonterminals,
            preterminals=preterminals,
            size=size,
            latent=latent,
            samples=samples,
        )
