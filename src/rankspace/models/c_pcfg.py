"""The compound PCFG of Kim, Dyer and Rush (2019)."""

from typing import ClassVar

from rankspace.distributions import PCFG
from rankspace.models.compound import CompoundModel
from rankspace.models.n_pcfg import FullGrammar


class CPCFG(CompoundModel):
    """`n-pcfg` whose embeddings are joined with a latent vector z of the sentence: p(A -> B C | z) is in proportion to
    exp(u_BC . [w_A; z] + b_BC), likewise root and words."""

    NAME: ClassVar = "c-pcfg"
    ABOUT: ClassVar = "compound PCFG: n-pcfg with a latent vector per sentence (Kim, Dyer, Rush 2019)"
    GRAMMAR: ClassVar = FullGrammar
    DISTRIBUTION: ClassVar = PCFG

    def __init__(
        self,
        vocabulary: int,
        nonterminals: int = 30,
        preterminals: int = 60,
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
