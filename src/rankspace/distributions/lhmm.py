"""The low-rank HMM: a transition matrix that is a product of two, emissions on states."""

from typing import Any, ClassVar, NoReturn

import torch
from jaxtyping import Float, Int
from torch import Tensor

from rankspace.distributions.chain_results import ChainPath
from rankspace.distributions.chains import ChainDistribution, Lengths, Observed, no_viterbi, word_vectors
from rankspace.distributions.contract import Backend, Batch, Order, Parameters
from rankspace.distributions.hmm import HMM
from rankspace.distributions.memory import within_memory
from rankspace.inference.chain.forward import Recursion
from rankspace.inference.chain.log_space import LogRecursion
from rankspace.inference.links import FactoredLink, Precision
from rankspace.inference.logarithms import log_matrix_product, log_sum_exp


class LHMM(ChainDistribution):
    """An HMM with p(T_t | T_{t-1}) = sum_q state_to_rank[T_{t-1}, q] rank_to_state[q, T_t].

    The start state emits the first word. `log_start` [state], `log_state_to_rank` [state, rank], `log_rank_to_state`
    [rank, state] and `log_emission` [state, vocab] sum to one over their last axes; `from_features` takes the form of
    Chiu et al. 2021. `eos` is the word that ends a sentence, if there is one: `sample` stops there. O(n m r) for n
    words, m states and rank r. A derivation of a sentence is T_1, q_2, T_2, ..., q_n, T_n.

    There is the state order only: words hang on states, so that summing the states out would give a link for each word.
    """

    AXES: ClassVar = {
        "log_start": ("state",),
        "log_state_to_rank": ("state", "rank"),
        "log_rank_to_state": ("rank", "state"),
        "log_emission": ("state", "vocab"),
    }
    ORDERS = ("auto", "state")
    NO_RANK_ORDER = "its words hang on states, and summing the states out would give one link for each word"

    def __init__(
        self,
        log_start: Float[Tensor, "_"],
        log_state_to_rank: Float[Tensor, "_ _"],
        log_rank_to_state: Float[Tensor, "_ _"],
        log_emission: Float[Tensor, "_ _"],
        eos: int | None = None,
        *,
        order: Order = "auto",
        precision: Precision = "highest",
        backend: Backend = "auto",
        validate: bool = True,
    ) -> None:
        parameters = {
            "log_start": log_start,
            "log_state_to_rank": log_state_to_rank,
            "log_rank_to_state": log_rank_to_state,
            "log_emission": log_emission,
        }
        super().__init__(parameters, eos=eos, order=order, precision=precision, backend=backend, validate=validate)

    @property
    def vocabulary(self) -> int:
        return self.sizes["vocab"]

    def _recursion(self, parameters: Parameters, batch: Batch) -> Recursion:
        log_words, index = word_vectors(parameters["log_emission"], batch)
        to_rank, to_state = parameters["log_state_to_rank"].exp(), parameters["log_rank_to_state"].exp()
        link = FactoredLink(to_state.T, to_rank.T, self.precision)
        return Recursion(parameters["log_start"].exp(), log_words, link, index, batch.layout)

    def _log_recursion(self, parameters: Parameters, batch: Batch) -> LogRecursion:
        log_words, index = word_vectors(parameters["log_emission"], batch)
        links = (parameters["log_state_to_rank"].T, parameters["log_rank_to_state"].T)
        return LogRecursion(parameters["log_start"], log_words, links, index, batch.layout)

    @classmethod
    def from_features(
        cls,
        log_start: Float[Tensor, "state"],
        log_left: Float[Tensor, "state rank"],
        log_right: Float[Tensor, "rank state"],
        log_emission: Float[Tensor, "state vocab"],
        eos: int | None = None,
        **options: Any,
    ) -> "LHMM":
        """Transition[i, j] = sum_q exp(left[i, q] + right[q, j]) over its row sum (Chiu et al. 2021). Differentiable.

        `log_left` and `log_right` are any numbers: see `tables_of_features`.
        """
        return cls(log_start, *tables_of_features(log_left, log_right), log_emission, eos, **options)

    def to_dense(self) -> HMM:
        """The same distribution over sentences and states as an HMM, its transition multiplied out; differentiable.

        Takes m^2 numbers, where the LHMM takes 2 m r.
        """
        transition = log_matrix_product(self.parameters["log_state_to_rank"], self.parameters["log_rank_to_state"])
        return HMM(
            self.parameters["log_start"],
            transition,
            self.parameters["log_emission"],
            self.eos,
            precision=self.precision,
            backend=self.backend,
            validate=self.validate,
        )

    def collapse(self) -> HMM:
        """The HMM without ranks: `to_dense`."""
        return self.to_dense()

    def viterbi(self, *_: Any, **__: Any) -> NoReturn:
        """Not available: see `viterbi_joint`."""
        raise no_viterbi("LHMM")

    @within_memory
    def viterbi_joint(
        self, words: Int[Tensor, "batch length"], lengths: Lengths = None, observed: Observed = None
    ) -> list[ChainPath | None]:
        """The likeliest joint assignment of states and ranks of each sentence; None for an impossible one.

        The likeliest states alone are not available at this cost: their probability is a sum over ranks, and the
        maximum over states does not commute with it. `to_dense().viterbi` gives them at O(n m^2). O(n m r), no matrix
        products.
        """
        with torch.no_grad():
            return self._best_paths(self._sentences(words, lengths, observed))

    def explain(self, words: Int[Tensor, "batch length"], lengths: Lengths = None) -> str:
        """Which order a batch is computed in, and why."""
        self._batch(words, lengths)
        return "chain: state order; words hang on states, so there is no link over ranks that all words share"


def tables_of_features(
    log_left: Float[Tensor, "row rank"], log_right: Float[Tensor, "rank state"]
) -> tuple[Float[Tensor, "row rank"], Float[Tensor, "rank state"]]:
    """Conditional distributions whose product is exp(left) exp(right) with its rows divided by their sums.

    With c[q] = sum_j exp(right[q, j]) the sum of row i is sum_q exp(left[i, q]) c[q]: row_to_rank[i, q] is in
    proportion to exp(left[i, q]) c[q], and rank_to_state is `right` normalised. Differentiable.
    """
    return (log_left + log_sum_exp(log_right)).log_softmax(-1), log_right.log_softmax(-1)
