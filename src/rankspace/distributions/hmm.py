"""The hidden Markov model."""

from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from rankspace.distributions.chain_results import ChainPath
from rankspace.distributions.chains import ChainDistribution, Lengths, Observed, word_vectors
from rankspace.distributions.contract import Backend, Batch, Order, Parameters
from rankspace.distributions.memory import within_memory
from rankspace.inference.chain.forward import Recursion
from rankspace.inference.chain.log_space import LogRecursion
from rankspace.inference.links import DenseLink, Precision


class HMM(ChainDistribution):
    """p(words, states) = start[T_1] emission[T_1, w_1] prod_t transition[T_{t-1}, T_t] emission[T_t, w_t].

    The start state emits the first word. `log_start` [state], `log_transition` [state, next state] and `log_emission`
    [state, vocab] sum to one over their last axes. `eos` is the word that ends a sentence, if there is one: `sample`
    stops there. O(n m^2) for n words and m states.
    """

    AXES: ClassVar = {
        "log_start": ("state",),
        "log_transition": ("state", "state"),
        "log_emission": ("state", "vocab"),
    }
    ORDERS = ("auto", "state")
    NO_RANK_ORDER = "its link is one dense matrix over states and has no ranks"

    def __init__(
        self,
        log_start: Float[Tensor, "_"],
        log_transition: Float[Tensor, "_ _"],
        log_emission: Float[Tensor, "_ _"],
        eos: int | None = None,
        *,
        order: Order = "auto",
        precision: Precision = "highest",
        backend: Backend = "auto",
        validate: bool = True,
    ) -> None:
        parameters = {"log_start": log_start, "log_transition": log_transition, "log_emission": log_emission}
        super().__init__(parameters, eos=eos, order=order, precision=precision, backend=backend, validate=validate)

    @property
    def vocabulary(self) -> int:
        return self.sizes["vocab"]

    def _recursion(self, parameters: Parameters, batch: Batch) -> Recursion:
        log_words, index = word_vectors(parameters["log_emission"], batch)
        start = parameters["log_start"].exp()
        link = DenseLink(parameters["log_transition"].exp().T, self.precision)
        return Recursion(start, log_words, link, index, batch.layout)

    def _log_recursion(self, parameters: Parameters, batch: Batch) -> LogRecursion:
        log_words, index = word_vectors(parameters["log_emission"], batch)
        links = (parameters["log_transition"].T,)
        return LogRecursion(parameters["log_start"], log_words, links, index, batch.layout)

    @within_memory
    def viterbi(
        self, words: Int[Tensor, "batch length"], lengths: Lengths = None, observed: Observed = None
    ) -> list[ChainPath | None]:
        """The likeliest path of states of each sentence; None for an impossible one. O(n m^2), no matrix products."""
        with torch.no_grad():
            return self._best_paths(self._sentences(words, lengths, observed))

    def explain(self, words: Int[Tensor, "batch length"], lengths: Lengths = None) -> str:
        """Which order a batch is computed in, and why."""
        self._batch(words, lengths)
        return f"chain: state order; the link is one dense matrix over {self.sizes['state']} states"
