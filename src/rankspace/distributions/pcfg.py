"""The PCFG with a full rule tensor (N-PCFG; C-PCFG with parameters per sentence)."""

from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from rankspace.distributions.contract import Backend, Order
from rankspace.distributions.dense_parses import DenseTreeDistribution
from rankspace.errors import RankspaceError
from rankspace.inference.links import Precision


class PCFG(DenseTreeDistribution):
    """p(A -> B C) = rule[A, B, C], p(T -> word) = emission[T, word]; symbols are nonterminals, then preterminals.

    `log_rule[A]` sums to one over both children. Each parameter may have a leading axis `batch`: then every sentence
    has its own, and gradients, counts and samples are those of each. For n words, m nonterminals and p preterminals,
    log_prob takes O(n^3 m^2 + n^2 m^3 + n m^2 p + n m p^2) time and memory for n^2/2 vectors over the nonterminals;
    twice that with gradients.
    """

    AXES: ClassVar = {
        "log_root": ("nonterminal",),
        "log_rule": ("nonterminal", "symbol", "symbol"),
        "log_emission": ("preterminal", "vocabulary"),
    }
    JOINT: ClassVar = {"log_rule": 2}
    ORDERS: ClassVar = ("auto", "state")

    def __init__(
        self,
        log_root: Float[Tensor, "*batch nonterminal"],
        log_rule: Float[Tensor, "*own nonterminal symbol symbol"],
        log_emission: Float[Tensor, "*each preterminal vocabulary"],
        *,
        order: Order = "auto",
        precision: Precision = "highest",
        backend: Backend = "auto",
        validate: bool = True,
    ) -> None:
        if order == "rank":
            raise RankspaceError(
                "PCFG: order is 'rank', but a full rule tensor has no ranks; give 'auto' or 'state', or use "
                "RankSpacePCFG or LPCFG."
            )
        parameters = {"log_root": log_root, "log_rule": log_rule, "log_emission": log_emission}
        super().__init__(parameters, order=order, precision=precision, backend=backend, validate=validate)

    def _rules(self) -> tuple[str, str | None]:
        return "log_rule", None
