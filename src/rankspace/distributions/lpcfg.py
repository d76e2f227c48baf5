"""The PCFG whose rule tensor has a low-rank head: LPCFG (figure 3b)."""

from typing import Any, ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from rankspace.distributions.contract import Backend, Order
from rankspace.distributions.dense_parses import DenseTreeDistribution
from rankspace.distributions.memory import within_memory
from rankspace.distributions.parses import BestParses
from rankspace.distributions.pcfg import PCFG
from rankspace.distributions.spans import Lengths, SpanWeights
from rankspace.errors import RankspaceError
from rankspace.inference.links import Precision
from rankspace.inference.logarithms import log_sum_exp


class LPCFG(DenseTreeDistribution):
    """p(A -> B C) = sum_q head[A, q] pair[q, B, C], p(T -> word) = emission[T, word].

    `log_pair[q]` sums to one over both children. Each parameter may have a leading axis `batch`: then every sentence
    has its own. For n words, m nonterminals, p preterminals and rank r, log_prob takes O(n^3 m^2 + n^2 m^2 r + n m p r
    + n p^2 r) time and memory for n^2/2 vectors over the nonterminals and ranks; twice that with gradients.

    Spans carry vectors over nonterminals (order "state"). Vectors over ranks would need the head multiplied into both
    children of the pair tensor: a PCFG with r nonterminals, which `collapse("ranks")` gives.
    """

    AXES: ClassVar = {
        "log_root": ("nonterminal",),
        "log_head": ("nonterminal", "rank"),
        "log_pair": ("rank", "symbol", "symbol"),
        "log_emission": ("preterminal", "vocabulary"),
    }
    JOINT: ClassVar = {"log_pair": 2}
    ORDERS: ClassVar = ("auto", "state")

    def __init__(
        self,
        log_root: Float[Tensor, "*batch nonterminal"],
        log_head: Float[Tensor, "*own nonterminal rank"],
        log_pair: Float[Tensor, "*every rank symbol symbol"],
        log_emission: Float[Tensor, "*each preterminal vocabulary"],
        *,
        order: Order = "auto",
        precision: Precision = "highest",
        backend: Backend = "auto",
        validate: bool = True,
    ) -> None:
        if order == "rank":
            raise RankspaceError(
                "LPCFG: order is 'rank', but vectors over ranks need the head multiplied into both children of the "
                "pair tensor; give 'auto' or 'state', or use collapse('ranks')."
            )
        parameters = {"log_root": log_root, "log_head": log_head, "log_pair": log_pair, "log_emission": log_emission}
        super().__init__(parameters, order=order, precision=precision, backend=backend, validate=validate)

    def _rules(self) -> tuple[str, str | None]:
        return "log_pair", "log_head"

    @within_memory
    def viterbi(
        self, words: Int[Tensor, "batch length"], lengths: Lengths = None, span_weights: SpanWeights = None
    ) -> BestParses:
        """Not available: a maximum over symbols and a sum over ranks do not commute. Raises RankspaceError."""
        raise RankspaceError(
            "LPCFG.viterbi: the maximum over symbols does not commute with the sum over ranks; use viterbi_joint "
            "(ranks included), mbr, or collapse().viterbi, which multiplies the ranks out."
        )

    @within_memory
    def viterbi_joint(
        self, words: Int[Tensor, "batch length"], lengths: Lengths = None, span_weights: SpanWeights = None
    ) -> BestParses:
        """The most probable tree with its symbols and ranks, and the log-probability of all these with the words.

        With ranks summed out, other symbols may be the best: `collapse().viterbi` finds those. For `span_weights` see
        `viterbi` of a PCFG.
        """
        return self._best_parses("viterbi_joint", words, lengths, span_weights)

    def collapse(self, over: str = "symbols") -> PCFG:
        """The PCFG with the same log_prob, multiplied out in log space; differentiable.

        Over the symbols: the same nonterminals, rule[A, B, C] = sum_q head[A, q] pair[q, B, C]. Over the ranks: the
        ranks become the nonterminals, and root and children go through the head. This is what the rank order of other
        models does, and it pays off where there are fewer ranks than nonterminals. Raises RankspaceError for anything
        else.
        """
        if over not in ("symbols", "ranks"):
            raise RankspaceError(f"LPCFG.collapse: over is {over!r}; give one of 'symbols', 'ranks'.")
        make = self._over_ranks if over == "ranks" else self._over_symbols
        root, rule = make()
        options: dict[str, Any] = {"precision": self.precision, "backend": self.backend}
        return PCFG(root, rule, self.parameters["log_emission"], **options, validate=self.validate)

    def _over_symbols(self) -> tuple[Tensor, Tensor]:
        head, pair = self.parameters["log_head"], self.parameters["log_pair"]
        rules = [log_sum_exp(head[..., a, :, None, None] + pair, -3) for a in range(self.num_nonterminals)]
        return self.parameters["log_root"], torch.stack(rules, -3)

    def _over_ranks(self) -> tuple[Tensor, Tensor]:
        head, pair, n = self.parameters["log_head"], self.parameters["log_pair"], self.num_nonterminals
        batch = torch.broadcast_shapes(head.shape[:-2], pair.shape[:-3])  # one may be of each sentence, the other not
        head, pair = head.expand(*batch, *head.shape[-2:]), pair.expand(*batch, *pair.shape[-3:])
        root = log_sum_exp(self.parameters["log_root"][..., :, None] + head, -2)
        rules = []
        for q in range(head.shape[-1]):
            rows = pair[..., q, :, :]  # [B, C]
            rows = torch.cat([_through(head, rows[..., :n, :].mT).mT, rows[..., n:, :]], -2)
            rules.append(torch.cat([_through(head, rows[..., :n]), rows[..., n:]], -1))
        return root, torch.stack(rules, -3)


def _through(head: Float[Tensor, "*own nonterminal rank"], rows: Float[Tensor, "*each row nonterminal"]) -> Tensor:
    """log sum_B exp(rows[x, B] + head[B, q]), [x, q]."""
    return log_sum_exp(rows[..., :, :, None] + head[..., None, :, :], -2)
