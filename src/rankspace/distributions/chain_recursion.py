"""Distributions that are a chain of vectors through a link: log-probabilities and what follows from their slopes."""

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from rankspace.distributions.contract import Backend, Batch, Distribution, Order, Parameters
from rankspace.distributions.directional import derivative_along
from rankspace.distributions.memory import Work, within_memory
from rankspace.distributions.parameters import check_eos
from rankspace.errors import RankspaceError, ShapeError
from rankspace.inference.chain.forward import Recursion
from rankspace.inference.chain.log_space import LogRecursion, log_z_in_log_space
from rankspace.inference.chain.log_z import log_z, log_z_slopes
from rankspace.inference.links import Precision

Lengths = Sequence[int] | Int[Tensor, "batch"] | None
Observed = Bool[Tensor, "_ _"] | None


class RecursiveDistribution(Distribution):
    """A chain over hidden vectors: `_recursion` and `_log_recursion` say which; the rest follows.

    `observed` (a mask, True where a word was seen) is an argument of every query on sentences: a word that was not
    seen is summed out, exactly, and whatever `words` holds there is not read.
    """

    NO_RANK_ORDER: ClassVar[str] = ""  # why, for those that have the state order only
    WIDTH: ClassVar = "state"
    VECTORS: ClassVar = (2, 5)  # that an engine holds for each word at one time, in one pass and in both

    def __init__(
        self,
        parameters: Parameters,
        *,
        eos: int | None,
        order: Order,
        precision: Precision,
        backend: Backend,
        validate: bool,
    ) -> None:
        name = type(self).__name__
        if order == "rank" and self.NO_RANK_ORDER:
            raise RankspaceError(
                f"{name}: order is 'rank', but {self.NO_RANK_ORDER}; give 'state' or 'auto', or use RankSpaceHMM."
            )
        super().__init__(parameters, order=order, precision=precision, backend=backend, validate=validate)
        check_eos(name, eos, self.vocabulary)
        self.eos = eos

    def options(self) -> dict[str, Any]:
        return {"eos": self.eos, **super().options()}

    @classmethod
    def numbers_kept(cls, sizes: Mapping[str, int], work: Work) -> int:
        """Some vectors for each word, and those of the distinct words."""
        distinct = min(work.num_tokens, sizes.get("vocab", work.num_tokens))
        return sizes[cls.WIDTH] * (cls.VECTORS[work.both_passes] * work.num_tokens + distinct)

    def _is_wide(self, query: str) -> bool:
        return query not in ("log_prob", "expected_counts")

    @abstractmethod
    def _recursion(self, parameters: Parameters, batch: Batch) -> Recursion:
        """The chains of a batch in linear space, as plain differentiable operations on the parameters."""

    @abstractmethod
    def _log_recursion(self, parameters: Parameters, batch: Batch) -> LogRecursion:
        """The same in log space, factors not multiplied out."""

    @within_memory
    def log_prob(
        self, words: Int[Tensor, "batch length"], lengths: Lengths = None, observed: Observed = None
    ) -> Float[Tensor, "batch"]:
        """log p(sentence) of each sentence; -inf, with zero gradient, for one that cannot be produced.

        Words that are not `observed` are summed out. An empty sentence has log-probability 0. Differentiable once in
        all parameters (any number of times with backend="autograd"). Exact: where numbers leave the range of the dtype,
        those sentences are computed again in float64 and, if that is not enough, in log space.

        Time is that of the class; the vectors of all words are kept for the backward pass. In log space (and with
        backend="autograd") every matrix of the link is a table for each word: those of more than 2^16 numbers are not
        kept but made again in the backward pass.
        """
        return self._log_z(self._sentences(words, lengths, observed))

    def _sentences(self, words: Tensor, lengths: Lengths, observed: Observed) -> Batch:
        if observed is None:
            return self._batch(words, lengths)
        if observed.shape != words.shape or observed.dtype != torch.bool:
            raise ShapeError(
                f"{type(self).__name__}: observed is {observed.dtype} {tuple(observed.shape)} but words are "
                f"{tuple(words.shape)}; give one bool for each word."
            )
        seen = observed.to(self.device)
        return self._batch(words.to(self.device).masked_fill(~seen, 0), lengths, {"observed": seen})

    @within_memory
    def expected_counts(
        self, words: Int[Tensor, "batch length"], lengths: Lengths = None, observed: Observed = None
    ) -> dict[str, Tensor]:
        """How often each parameter is used, in expectation under the posterior, summed over the batch.

        The E-step of EM: the gradient of log_prob with respect to the log parameters, each as a free number. Words that
        are not `observed` and impossible sentences count nothing.
        """
        return self._counts(self._sentences(words, lengths, observed))

    @within_memory
    def posterior_entropy(
        self, words: Int[Tensor, "batch length"], lengths: Lengths = None, observed: Observed = None
    ) -> Float[Tensor, "batch"]:
        """Entropy, in nats, of the derivation (states, and ranks where there are any) given the observed words.

        With ranks summed out it would need the logarithm of a sum over ranks for every path of states, which no dynamic
        program gives. Zero for impossible sentences. No gradient.
        """
        return self._entropy(self._sentences(words, lengths, observed))

    @within_memory
    def posterior_cross_entropy(
        self,
        other: Distribution,
        words: Int[Tensor, "batch length"],
        lengths: Lengths = None,
        observed: Observed = None,
    ) -> Float[Tensor, "batch"]:
        """- E [log q(derivation | sentence)], p this distribution, q another of the same kind and sizes; in nats.

        Infinite where p allows a derivation that q does not. See `posterior_entropy` for what a derivation is.
        """
        return self._cross_entropy(other, self._sentences(words, lengths, observed)).to(self.dtype)

    @within_memory
    def posterior_kl(
        self,
        other: Distribution,
        words: Int[Tensor, "batch length"],
        lengths: Lengths = None,
        observed: Observed = None,
    ) -> Float[Tensor, "batch"]:
        """KL(p || q) of the derivation given the sentence, p this distribution, q another; in nats."""
        return self._kl(other, self._sentences(words, lengths, observed))

    # The contract.

    def _linear(self, parameters: Parameters, batch: Batch) -> tuple[Float[Tensor, "batch"], Bool[Tensor, "batch"]]:
        return log_z(self._recursion(parameters, batch), lambda: self._support(parameters, batch))

    def _log_space(self, parameters: Parameters, batch: Batch) -> Float[Tensor, "batch"]:
        return log_z_in_log_space(self._log_recursion(parameters, batch))

    def _slope(self, batch: Batch, direction: Parameters) -> Float[Tensor, "batch"]:
        found, lost = self._linear_slope(batch, direction)
        if not bool(lost.any()):
            return found
        again = lost.nonzero()[:, 0]
        wide = {name: value.double() for name, value in direction.items()}
        part = batch.subset(again)
        if self.dtype == torch.float64:
            return found.index_put((again,), self._log_space_slope(part, wide))
        return found.index_put((again,), self.to(torch.float64)._slope(part, wide))

    def _linear_slope(self, batch: Batch, direction: Parameters) -> tuple[Tensor, Tensor]:
        recursion, moved = self._recursion(self.parameters, batch), self._moved(batch, direction)
        return log_z_slopes(recursion, recursion.like(moved), lambda: self._support(self.parameters, batch))

    def _moved(self, batch: Batch, direction: Parameters) -> tuple[Tensor, ...]:
        """How the recursion's tensors move when the parameters do."""

        def tensors(parameters: Parameters) -> tuple[Tensor, ...]:
            return self._recursion(parameters, batch).tensors

        moved: tuple[Tensor, ...] = derivative_along(tensors, self.parameters, direction)
        return moved

    def _log_space_slope(self, batch: Batch, direction: Parameters) -> Float[Tensor, "batch"]:
        def log_probabilities(parameters: Parameters) -> Tensor:
            return self._log_space(parameters, batch)

        moved: Tensor = derivative_along(log_probabilities, self.parameters, direction)
        return moved

    def _support(self, parameters: Parameters, batch: Batch) -> Recursion | None:
        """The recursion with ones for all that is positive; None if everything is."""
        if not any(bool((value == -math.inf).any()) for value in parameters.values()):
            return None
        ones = {name: torch.where(value > -math.inf, 0.0, value).detach() for name, value in parameters.items()}
        return self._recursion(ones, batch)


def word_vectors(log_emission: Float[Tensor, "size vocab"], batch: Batch) -> tuple[Tensor, Tensor]:
    """Log-probabilities of the distinct words of a batch, [word, size], and the word of each token among them.

    A word that was not observed has probability one everywhere: emissions sum to one.
    """
    found, index = batch.distinct
    log_words = log_emission.index_select(1, found).T.contiguous()
    if "observed" not in batch.extras:
        return log_words, index
    open_word = log_words.new_zeros(1, log_words.shape[1])
    seen = batch.layout.pack(batch.extras["observed"])
    return torch.cat([log_words, open_word]), torch.where(seen, index, len(found))
