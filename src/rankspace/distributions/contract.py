"""What every distribution offers: log-probabilities that are exact in every case, and what follows from their slopes.

A concrete distribution says how its parameters make a recursion that an engine can run (`_linear`, `_log_space`,
`_slope`); everything here is common to chains and trees.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Literal, TypeVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from rankspace.distributions.memory import (
    Shortage,
    Work,
    lengths_given,
    lower,
    numbers_of,
    shortage_of,
    within_memory,
)
from rankspace.distributions.parameters import Axes, check_kind, check_normalised, is_integral, sizes_of
from rankspace.errors import RankspaceError, ShapeError
from rankspace.inference.differentiation import (
    depending_on,
    differentiable,
    differentiating,
    lasting,
    without_autocast,
)
from rankspace.inference.links import Precision
from rankspace.inference.ragged import Ragged, lengths_of, ragged

Order = Literal["auto", "rank", "state"]
Backend = Literal["auto", "torch", "triton", "autograd"]
Parameters = Mapping[str, Tensor]
Own = TypeVar("Own", bound="Distribution")  # beartype reads typing.Self on decorated classes alone


@dataclass(frozen=True)
class Batch:
    """Sentences of a ragged batch. Words beyond a length are never read."""

    words: Int[Tensor, "batch length"]
    lengths: tuple[int, ...]
    extras: Mapping[str, Tensor]  # what else goes with each sentence, first axis batch: masks, span weights

    @cached_property
    def layout(self) -> Ragged:
        return ragged(self.lengths, self.words.device)

    @lasting
    def tokens(self) -> Int[Tensor, "token"]:
        """The words in the order of the layout's steps."""
        return self.layout.pack(self.words)

    @lasting
    def distinct(self) -> tuple[Int[Tensor, "word"], Int[Tensor, "token"]]:
        """The distinct words of the batch, and the place of each token among them."""
        found, inverse = torch.unique(self.tokens, return_inverse=True)
        return found, inverse

    def subset(self, sentences: Tensor) -> "Batch":
        lengths = tuple(self.lengths[b] for b in sentences.tolist())
        return Batch(self.words[sentences], lengths, {name: extra[sentences] for name, extra in self.extras.items()})

    def to_dtype(self, dtype: torch.dtype) -> "Batch":
        """The same sentences with numbers of another kind."""
        extras = {name: extra.to(dtype) if extra.is_floating_point() else extra for name, extra in self.extras.items()}
        return replace(self, extras=extras)


class Distribution(ABC):
    """A distribution over sentences. Parameters are conditional distributions in log space; see each class."""

    AXES: ClassVar[Mapping[str, Axes]]  # constructor parameters and their axes
    JOINT: ClassVar[Mapping[str, int]] = {}  # parameters of which more than the last axis sums to one
    ORDERS: ClassVar[tuple[Order, ...]] = ("auto", "rank", "state")
    BACKENDS: ClassVar[tuple[Backend, ...]] = ("auto", "torch", "autograd")
    WIDTH: ClassVar[str]  # the axis that most of the memory of a batch is in proportion to

    def __init__(
        self, parameters: Parameters, *, order: Order, precision: Precision, backend: Backend, validate: bool
    ) -> None:
        name = type(self).__name__
        self.parameters = dict(parameters)
        self.order, self.precision, self.backend, self.validate = order, precision, backend, validate
        self.sizes = sizes_of(name, self._axes(), self.parameters)
        check_choice(name, "order", order, self.ORDERS)
        check_choice(name, "precision", precision, ("highest", "high", "medium"))
        if backend == "triton" and backend not in self.BACKENDS:
            raise RankspaceError(
                f"{name}: backend is 'triton', but of distributions RankSpacePCFG and SimplePCFG alone have kernels "
                f"(others belong to models); give one of {_quoted(self.BACKENDS)}."
            )
        check_choice(name, "backend", backend, self.BACKENDS)
        check_kind(name, self.parameters)
        if validate:
            for label, parameter in self.parameters.items():
                check_normalised(name, label, parameter, self.JOINT.get(label, 1))

    def _axes(self) -> Mapping[str, Axes]:
        """Axes of the parameters as given."""
        return self.AXES

    @property
    def dtype(self) -> torch.dtype:
        return next(iter(self.parameters.values())).dtype

    @property
    def device(self) -> torch.device:
        return next(iter(self.parameters.values())).device

    @property
    @abstractmethod
    def vocabulary(self) -> int:
        """Number of words."""

    def options(self) -> dict[str, Any]:
        """What the constructor takes besides the parameters."""
        return {"order": self.order, "precision": self.precision, "backend": self.backend}

    def with_parameters(self: Own, parameters: Parameters) -> Own:
        """The same distribution with other parameters; they are not checked again."""
        make: Any = type(self)  # each class names its parameters in its constructor
        made: Own = make(**parameters, **self.options(), validate=False)
        made.validate = self.validate  # words are checked as before
        return made

    def to(self: Own, *args: Any, **kwargs: Any) -> Own:
        """The same distribution on another device or in another dtype, as Tensor.to."""
        return self.with_parameters({name: value.to(*args, **kwargs) for name, value in self.parameters.items()})

    def detach(self: Own) -> Own:
        return self.with_parameters({name: value.detach() for name, value in self.parameters.items()})

    # Log-probabilities.

    @within_memory
    def log_prob(
        self, words: Int[Tensor, "batch length"], lengths: Sequence[int] | Int[Tensor, "batch"] | None = None
    ) -> Float[Tensor, "batch"]:
        """log p(sentence) of each sentence; -inf, with zero gradient, for one that cannot be produced.

        Differentiable once in all parameters (any number of times with backend="autograd"). Exact: where numbers leave
        the range of the dtype, those sentences are computed again in float64 and, if that is not enough, in log space.
        """
        return self._log_z(self._batch(words, lengths))

    def _batch(
        self, words: Tensor, lengths: Sequence[int] | Tensor | None, extras: Mapping[str, Tensor] | None = None
    ) -> Batch:
        name = type(self).__name__
        if words.dim() != 2 or not is_integral(words):
            raise ShapeError(
                f"{name}: words are {words.dtype} {tuple(words.shape)}; give integers [batch, length], padded at the "
                f"end, and the lengths."
            )
        numbers = lengths_of(name, words, lengths)
        if len(numbers) != words.shape[0] or not all(0 <= n <= words.shape[1] for n in numbers):
            raise ShapeError(
                f"{name}: lengths {_shortened(numbers)} do not fit words {tuple(words.shape)}; give one length for "
                f"each row, from 0 to {words.shape[1]}."
            )
        batch = Batch(differentiable(words.to(self.device, torch.int64)), numbers, dict(extras or {}))
        if self.validate and batch.tokens.numel():
            self._check_words(batch)
        return batch

    def _check_words(self, batch: Batch) -> None:
        low, high = (extreme.item() for extreme in torch.aminmax(batch.tokens))
        if low < 0 or high >= self.vocabulary:
            raise RankspaceError(
                f"{type(self).__name__}: word {low if low < 0 else high} is outside the vocabulary of "
                f"{self.vocabulary}; words are numbered from 0."
            )

    def _log_z(self, batch: Batch) -> Float[Tensor, "batch"]:
        """log_prob of a batch with its extras, redone where the dtype was too narrow."""
        if self.backend == "autograd":
            given = [*self.parameters.values(), *(each for each in batch.extras.values() if each.is_floating_point())]
            return depending_on(self._log_space(self.parameters, batch).to(self.dtype), *given)
        log_z, lost = self._linear(self.parameters, batch)
        if not bool(lost.any()):
            return log_z.to(self.dtype)
        again = lost.nonzero()[:, 0]
        return log_z.to(self.dtype).index_put((again,), self._redone(batch.subset(again)))

    def _redone(self, batch: Batch) -> Float[Tensor, "batch"]:
        """In float64 (where that is wider), and as a last resort what is lost even there."""
        parameters = {name: value.double() for name, value in self.parameters.items()}
        batch = batch.to_dtype(torch.float64)
        if self.dtype == torch.float64:
            return self._last_resort(parameters, batch)
        log_z, lost = self._linear(parameters, batch)
        if bool(lost.any()):
            again = lost.nonzero()[:, 0]
            log_z = log_z.index_put((again,), self._last_resort(parameters, batch.subset(again)).to(log_z.dtype))
        return log_z.to(self.dtype)

    def _last_resort(self, parameters: Parameters, batch: Batch) -> Float[Tensor, "batch"]:
        """log Z where linear space in float64 loses more than rounding."""
        return self._log_space(parameters, batch)

    @abstractmethod
    def _linear(self, parameters: Parameters, batch: Batch) -> tuple[Float[Tensor, "batch"], Bool[Tensor, "batch"]]:
        """log Z in float64 by the scaled linear engine, and which sentences lost more than rounding on the way."""

    @abstractmethod
    def _log_space(self, parameters: Parameters, batch: Batch) -> Float[Tensor, "batch"]:
        """log Z in log space, in plain differentiable operations."""

    @abstractmethod
    def _slope(self, batch: Batch, direction: Parameters) -> Float[Tensor, "batch"]:
        """Derivative of each sentence's log Z when the log parameters move along a (finite) direction.

        As log Z is a log-sum over derivations, this is the posterior expectation of the direction's sum over a
        derivation's parameters. Zero for impossible sentences.
        """

    @abstractmethod
    def _largest(self, batch: Batch) -> Float[Tensor, "batch"]:
        """The largest log weight that a derivation of each sentence has, in float64, whatever numbers the log
        parameters are; -inf where there is none."""

    # Memory.

    @classmethod
    @abstractmethod
    def numbers_kept(cls, sizes: Mapping[str, int], work: Work) -> int:
        """Roughly how many numbers the engine holds at one time for a batch, besides tables of parameters."""

    def memory(self, lengths: Sequence[int], gradients: bool = False) -> int:
        """Roughly how many bytes `log_prob` takes for sentences of some lengths (with `gradients`, its backward pass
        too), besides the parameters. Sentences that are computed again in float64 or in log space take more."""
        return self.dtype.itemsize * numbers_of(self, Work(tuple(lengths), gradients, self._by_kernels()))

    def _memory_sizes(self) -> Mapping[str, int]:
        """What `numbers_kept` goes by."""
        return self.sizes

    def _by_kernels(self) -> bool:
        """Whether `log_prob` runs by Triton."""
        return False

    def _shortage(self, query: str, words: Tensor, lengths: Sequence[int] | Tensor | None) -> Shortage:
        return shortage_of(self, query, lengths_given(words, lengths))

    def _is_wide(self, query: str) -> bool:
        """Whether a query is answered in float64."""
        return query in ("posterior_entropy", "posterior_cross_entropy", "posterior_kl", "viterbi", "viterbi_joint")

    def _arithmetic(self) -> AbstractContextManager[Any]:
        """Queries go by `precision`, also within autocast."""
        return without_autocast(self.device)

    @property
    def _label(self) -> str:
        return type(self).__name__

    @property
    def _remedy(self) -> str:
        narrower = ", or float32" if self.dtype == torch.float64 else ""
        return f"give fewer or shorter sentences at a time, or {lower(self.WIDTH)}{narrower}"

    # What follows from slopes.

    @within_memory
    def expected_counts(
        self, words: Int[Tensor, "batch length"], lengths: Sequence[int] | Int[Tensor, "batch"] | None = None
    ) -> dict[str, Tensor]:
        """How often each parameter is used, in expectation under the posterior, summed over the batch.

        The E-step of EM: the gradient of log_prob with respect to the log parameters, each as a free number.
        Impossible sentences count nothing.
        """
        return self._counts(self._batch(words, lengths))

    def _counts(self, batch: Batch) -> dict[str, Tensor]:
        with differentiating():
            leaves = {name: differentiable(value).detach().requires_grad_() for name, value in self.parameters.items()}
            total = self.with_parameters(leaves)._log_z(batch)
            total = torch.where(total > -math.inf, total, 0).sum()
            found = torch.autograd.grad(total, list(leaves.values()), allow_unused=True)
        counts = [
            torch.zeros_like(leaf) if count is None else count
            for leaf, count in zip(leaves.values(), found, strict=True)
        ]
        return dict(zip(leaves, counts, strict=True))

    @within_memory
    def posterior_entropy(
        self, words: Int[Tensor, "batch length"], lengths: Sequence[int] | Int[Tensor, "batch"] | None = None
    ) -> Float[Tensor, "batch"]:
        """Entropy, in nats, of the derivation given the sentence: log Z minus the expected log weight.

        Derivations of low-rank models include their ranks; the entropy of states or trees alone would need the
        probability of each with its ranks summed out inside the logarithm, which no dynamic program gives. Zero for
        impossible sentences. No gradient.
        """
        return self._entropy(self._batch(words, lengths))

    @within_memory
    def posterior_cross_entropy(
        self,
        other: "Distribution",
        words: Int[Tensor, "batch length"],
        lengths: Sequence[int] | Int[Tensor, "batch"] | None = None,
    ) -> Float[Tensor, "batch"]:
        """- E [log q(derivation | sentence)], p this distribution, q another of the same kind and sizes; in nats.

        Infinite where p allows a derivation that q does not. See `posterior_entropy` for what a derivation is.
        """
        return self._cross_entropy(other, self._batch(words, lengths)).to(self.dtype)

    def _entropy(self, batch: Batch) -> Float[Tensor, "batch"]:
        return self._cross_entropy(self, batch).clamp(min=0).to(self.dtype)  # not below zero by rounding

    def _kl(self, other: "Distribution", batch: Batch) -> Float[Tensor, "batch"]:
        difference = self._cross_entropy(other, batch) - self._cross_entropy(self, batch)
        return difference.clamp(min=0).to(self.dtype)

    def _cross_entropy(self, other: "Distribution", batch: Batch) -> Float[Tensor, "batch"]:
        """In float64: differences are rounded once."""
        self._check_comparable(other)
        with torch.no_grad():
            mine, theirs = (p.detach().to(torch.float64) for p in (self, other))  # a difference of large numbers
            impossible = mine._log_z(batch) == -math.inf
            forbidden = {name: value == -math.inf for name, value in theirs.parameters.items()}
            weights = {name: value.masked_fill(forbidden[name], 0) for name, value in theirs.parameters.items()}
            result = theirs._log_z(batch) - mine._slope(batch, weights)
            if other is not self:
                result = result.masked_fill(mine._uses(batch, forbidden), math.inf)
            return result.masked_fill(impossible, 0)

    def _uses(self, batch: Batch, marked: Mapping[str, Bool[Tensor, "..."]]) -> Bool[Tensor, "batch"]:
        """Whether some derivation of a sentence has a marked parameter, however improbable it is: how many of them the
        derivation has that has most, which no rounding and no range can hide."""
        own = {name: mask & (self.parameters[name] > -math.inf) for name, mask in marked.items()}
        if not any(bool(mask.any()) for mask in own.values()):
            return torch.zeros(len(batch.lengths), dtype=torch.bool, device=self.device)
        counts = {
            name: torch.where(value > -math.inf, own[name].to(value.dtype), value)
            for name, value in self.parameters.items()
        }
        return self.with_parameters(counts)._largest(batch) > 0

    @within_memory
    def posterior_kl(
        self,
        other: "Distribution",
        words: Int[Tensor, "batch length"],
        lengths: Sequence[int] | Int[Tensor, "batch"] | None = None,
    ) -> Float[Tensor, "batch"]:
        """KL(p || q) of the derivation given the sentence, p this distribution, q another; in nats."""
        return self._kl(other, self._batch(words, lengths))

    def _check_comparable(self, other: "Distribution") -> None:
        if type(other) is not type(self) or other.sizes != self.sizes:
            raise ShapeError(
                f"{type(self).__name__}: compared with {type(other).__name__} of sizes {other.sizes}, own sizes "
                f"{self.sizes}; derivations correspond only between models of one kind and size."
            )


def check_choice(name: str, option: str, value: str, choices: Sequence[str]) -> None:
    if value not in choices:
        raise RankspaceError(f"{name}: {option} is {value!r}; give one of {_quoted(choices)}.")


def _quoted(choices: Sequence[str]) -> str:
    return ", ".join(map(repr, choices))


def _shortened(numbers: Sequence[int]) -> str:
    shown = ", ".join(map(str, numbers[:8]))
    return f"({shown}, ...)" if len(numbers) > 8 else f"({shown})"
