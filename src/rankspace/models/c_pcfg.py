"""The compound PCFG of Kim, Dyer and Rush (2019)."""

from typing import ClassVar

from jaxtyping import Float, Int
from torch import Tensor

from rankspace.distributions import PCFG
from rankspace.models.compound import CompoundModel
from rankspace.models.contract import Lengths
from rankspace.models.dense_trees import log_prob_of_each
from rankspace.models.fast_model import KernelModel, with_lost
from rankspace.models.n_pcfg import FullGrammar


class CPCFG(KernelModel, CompoundModel):
    """`n-pcfg` whose embeddings are joined with a latent vector z of the sentence: p(A -> B C | z) is in proportion to
    exp(u_BC . [w_A; z] + b_BC), likewise root and words."""

    NAME: ClassVar = "c-pcfg"
    ABOUT: ClassVar = "compound PCFG: n-pcfg with a latent vector per sentence (Kim, Dyer, Rush 2019)"
    GRAMMAR: ClassVar = FullGrammar
    DISTRIBUTION: ClassVar = PCFG
    ORDER: ClassVar = "state"

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

    def _log_likelihood(
        self, words: Int[Tensor, "batch length"], lengths: Lengths, z: Float[Tensor, "batch latent"]
    ) -> Float[Tensor, "batch"]:
        if not self.by_kernels(words.device):
            return super()._log_likelihood(words, lengths, z)
        posed, again = self._posed(words, lengths, z), super()._log_likelihood
        found, lost = log_prob_of_each(posed, self.precision)
        return with_lost(
            found.float(), lost, lambda rows: again(words[rows], [posed.lengths[row] for row in rows.tolist()], z[rows])
        )
