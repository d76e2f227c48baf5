"""The PCFG whose rules are decomposed around a rank: TN-PCFG in state space, and the same in rank space (section 4)."""

from functools import lru_cache
from typing import ClassVar, NoReturn

import torch
from jaxtyping import Float, Int
from torch import Tensor

from rankspace.distributions.contract import Backend, Batch, Order, Parameters
from rankspace.distributions.low_rank_parses import LowRankTreeDistribution
from rankspace.distributions.memory import within_memory
from rankspace.distributions.parses import BestParses, Lengths
from rankspace.distributions.simple_pcfg import SimplePCFG
from rankspace.distributions.spans import SpanWeights
from rankspace.errors import RankspaceError
from rankspace.inference.links import Precision
from rankspace.inference.tree.choosing import choose_in_portions, drawn
from rankspace.inference.tree.log_space import LogInputs
from rankspace.lowrank.planner import Plan, plan


class RankSpacePCFG(LowRankTreeDistribution):
    """p(A -> B C) = sum_q head[A, q] left[q, B] right[q, C].

    `log_root` [nonterminal] (s of the paper), `log_head` [nonterminal, rank] (U), `log_left` and `log_right` [rank,
    symbol] (V, W; nonterminals first, then preterminals) and `log_emission` [preterminal, vocab] (E) sum to one over
    their last axes.

    Each parameter may have a leading axis `batch`: then every sentence has its own, and gradients, counts and samples
    are those of each (compound grammars). What is said to be done once per batch is then done for each sentence.

    For n words, h nonterminals and rank r: order="rank" sums the nonterminals out, 2 r^2 h once per batch, and costs
    O(n^3 r + n^2 r^2) a sentence; order="state" passes through them at O(n^3 r + n^2 h r); "auto" takes what is cheaper
    for the batch, and `explain` tells which and why. Memory: 2r numbers for each span, with gradients 3r. A derivation
    of a sentence is its tree, the symbol of each node and the rank of each branching.
    """

    AXES: ClassVar = {
        "log_root": ("nonterminal",),
        "log_head": ("nonterminal", "rank"),
        "log_left": ("rank", "symbol"),
        "log_right": ("rank", "symbol"),
        "log_emission": ("preterminal", "vocab"),
    }
    WIDTH: ClassVar = "rank"

    def __init__(
        self,
        log_root: Float[Tensor, "... _"],
        log_head: Float[Tensor, "... _ _"],
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
            "log_head": log_head,
            "log_left": log_left,
            "log_right": log_right,
            "log_emission": log_emission,
        }
        super().__init__(parameters, order=order, precision=precision, backend=backend, validate=validate)

    @property
    def rank(self) -> int:
        return self.sizes["rank"]

    def _assembled(self, parameters: Parameters, emission: Float[Tensor, "word preterminal"]) -> LogInputs:
        both = torch.cat([parameters["log_left"], parameters["log_right"]], -2)
        nonterminals, head = self.num_nonterminals, parameters["log_head"]
        return LogInputs(parameters["log_root"], head, both[..., :nonterminals], both[..., nonterminals:], emission)

    def _multiplies(self, batch: Batch) -> bool:
        order = self._plan(batch).order if self.order == "auto" else self.order
        return order == "rank"

    def _plan(self, batch: Batch) -> Plan:
        lengths = tuple(sorted(n for n in batch.lengths if n > 1))
        words = len(self._distinct(batch)[0])
        if self._own_rules and lengths:
            words = round(sum(lengths) / len(lengths))
            lengths = (words,)  # each sentence is a batch of its own: that of an average one decides
        vocabulary = max(self.vocabulary, words)  # where sentences have tables of their own every token is a word
        sizes = (self.num_nonterminals, self.num_preterminals, self.rank, vocabulary)
        return _plan(*sizes, lengths, max(1, words), self.dtype.itemsize)

    def explain(self, words: Int[Tensor, "batch length"], lengths: Lengths = None) -> str:
        """Which order a batch is computed in, and why: the planner's account of both, or that it was asked for."""
        found = self._plan(self._batch(words, lengths))
        if self.order == "auto":
            return found.explain()
        return f'order="{self.order}" was asked for; the planner\'s account:\n{found.explain()}'

    def collapse(self) -> SimplePCFG:
        """The same distribution over sentences and bracketings as a SimplePCFG whose nonterminals are the ranks.

        Preterminals stay. With the nonterminals summed out, rank q rewrites to the rank p on the left with probability
        sum_A left[q, A] head[A, p], likewise on the right; the root is rank p with sum_A root[A] head[A, p]. Costs
        2 r^2 h, in log space. Differentiable.
        """
        parameters: Parameters = self.parameters
        if self.num_sentences is not None:
            parameters = self._stacked(parameters, torch.arange(self.num_sentences, device=self.device))
        logs = self._assembled(parameters, self.parameters["log_emission"].new_zeros(0, self.num_preterminals))
        ranks = logs.multiplied()
        left, right = torch.cat([ranks.second, logs.sides], -1).chunk(2, -2)
        return SimplePCFG(
            ranks.root,
            left,
            right,
            self.parameters["log_emission"],
            precision=self.precision,
            backend=self.backend,
            validate=self.validate,
        )

    def viterbi(
        self, words: Int[Tensor, "batch length"], lengths: Lengths = None, span_weights: SpanWeights = None
    ) -> NoReturn:
        """Not available: raises RankspaceError. See `viterbi_joint`."""
        raise RankspaceError(
            "RankSpacePCFG.viterbi: the best tree with its symbols alone cannot be found in polynomial time by dynamic "
            "programming over ranks, for the maximum does not commute with their sum; use viterbi_joint (best tree, "
            "symbols and ranks), mbr, or sample_posterior."
        )

    @within_memory
    def viterbi_joint(
        self, words: Int[Tensor, "batch length"], lengths: Lengths = None, span_weights: SpanWeights = None
    ) -> BestParses:
        """The best joint assignment of tree, symbols and ranks, and its log-probability with the words.

        The argmax over trees and symbols alone is not available: it needs the maximum over symbols of sums over ranks,
        and max does not commute with sum, so the sums could not be taken out of a recursion over ranks; a recursion
        over symbols would need the full rule tensor (see `PCFG`). Here ranks are maximised too, by max-product links:
        r^2 h once, then O(n^3 r + n^2 r^2) without matrix products. For `span_weights` see `viterbi` of a SimplePCFG.
        """
        return self._best_parses("viterbi_joint", words, lengths, span_weights)

    def _branch(self, symbols: Int[Tensor, "node"], generator: torch.Generator | None) -> tuple[Tensor, Tensor]:
        choose, tables = drawn(generator), self.parameters
        head, left, right = (tables[name].detach() for name in ("log_head", "log_left", "log_right"))
        rank = choose_in_portions(choose, len(symbols), self.rank, lambda some: head[symbols[some]], symbols)
        each = left.shape[1]
        first = choose_in_portions(choose, len(rank), each, lambda some: left[rank[some]], rank)
        return first, choose_in_portions(choose, len(rank), each, lambda some: right[rank[some]], rank)


@lru_cache(maxsize=256)
def _plan(
    nonterminals: int, preterminals: int, rank: int, vocabulary: int, lengths: tuple[int, ...], words: int, width: int
) -> Plan:
    """Training sees the same sizes again."""
    return plan(
        "tree",
        states=nonterminals + preterminals,
        nonterminals=nonterminals,
        preterminals=preterminals,
        rank=rank,
        vocabulary=vocabulary,
        length=lengths,
        distinct_words=words,
        bytes_per_number=width,
    )
