"""The PCFG whose left and right children are independent given their parent."""

from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from rankspace.distributions.contract import Backend, Batch, Order, Parameters
from rankspace.distributions.low_rank_parses import LowRankTreeDistribution
from rankspace.distributions.spans import Lengths
from rankspace.inference.links import Precision
from rankspace.inference.tree.choosing import choose_in_portions, drawn
from rankspace.inference.tree.log_space import LogInputs


class SimplePCFG(LowRankTreeDistribution):
    """p(A -> B C) = left[A, B] right[A, C].

    `log_root` [nonterminal], `log_left` and `log_right` [nonterminal, symbol] (nonterminals first, then preterminals)
    and `log_emission` [preterminal, vocab] sum to one over their last axes.

    Each parameter may have a leading axis `batch`: then every sentence has its own, and gradients, counts and samples
    are those of each (compound grammars). Rules of each sentence's own are multiplied sentence by sentence.

    A rank-space PCFG whose ranks are its nonterminals: O(n^3 h + n^2 h^2) for n words and h nonterminals. Memory: 2h
    numbers for each span, with gradients 3h. A derivation of a sentence is its tree and the symbol of each node, so
    `viterbi` is exact.
    """

    AXES: ClassVar = {
        "log_root": ("nonterminal",),
        "log_left": ("nonterminal", "symbol"),
        "log_right": ("nonterminal", "symbol"),
        "log_emission": ("preterminal", "vocab"),
    }
    ORDERS: ClassVar = ("auto", "state")
    WIDTH: ClassVar = "nonterminal"

    def __init__(
        self,
        log_root: Float[Tensor, "... _"],
        log_left: Float[Tensor, "... _ _"],
        log_right: Float[Tensor, "... _ _"],
        log_emission: Float[Tensor, "... _ _"],
        *,
        order: Order = "auto",
        precision: Precision = "highest",
        backend: Backend = "auto",
        validate: bool = True,
    ) -> None:
        parameters = {
            "log_root": log_root,
            "log_left": log_left,
            "log_right": log_right,
            "log_emission": log_emission,
        }
        super().__init__(parameters, order=order, precision=precision, backend=backend, validate=validate)

    def _assembled(self, parameters: Parameters, emission: Float[Tensor, "word preterminal"]) -> LogInputs:
        both = torch.cat([parameters["log_left"], parameters["log_right"]], -2)
        nonterminals = self.num_nonterminals
        return LogInputs(parameters["log_root"], None, both[..., :nonterminals], both[..., nonterminals:], emission)

    def _multiplies(self, batch: Batch) -> bool:
        return False  # the link is one matrix as it stands

    def explain(self, words: Int[Tensor, "batch length"], lengths: Lengths = None) -> str:
        """That there is one order, and what each part of a batch costs."""
        batch = self._batch(words, lengths)
        h, p, long = self.num_nonterminals, self.num_preterminals, [n for n in batch.lengths if n > 1]
        spans = sum(n * (n - 1) // 2 for n in long)
        terms = {
            "words, once": 4 * len(self._distinct(batch)[0]) * h * p,
            "split sum": 2 * h * sum((n - 1) * n * (n + 1) // 6 for n in long),
            "to children": 4 * h * h * (spans - len(long)),
            "root": 2 * h * len(long),
        }
        lines = [
            "tree: state order, the only one: the ranks are the nonterminals",
            f"  {h} nonterminals, {p} preterminals, sentences {len(batch.lengths)}, spans of two words or more {spans}",
            *(f"    {name:<22}{flops:>10.3g} flops" for name, flops in terms.items()),
        ]
        return "\n".join(lines)

    def _branch(self, symbols: Int[Tensor, "node"], generator: torch.Generator | None) -> tuple[Tensor, Tensor]:
        choose, each = drawn(generator), self.sizes["symbol"]
        left, right = self.parameters["log_left"].detach(), self.parameters["log_right"].detach()
        first = choose_in_portions(choose, len(symbols), each, lambda some: left[symbols[some]], symbols)
        return first, choose_in_portions(choose, len(symbols), each, lambda some: right[symbols[some]], symbols)
