"""How the networks and products of a model are computed: by torch, or by kernels in some precision."""

from typing import NamedTuple, Protocol, runtime_checkable

from jaxtyping import Float, Int
from torch import Tensor, nn

from rankspace.inference.links import Precision
from rankspace.models.fast_emission import log_words, precision_of_words
from rankspace.models.fast_networks import residual_network
from rankspace.models.fast_products import meeting
from rankspace.models.parts import Emission


@runtime_checkable
class Arithmetic(Protocol):
    def network(self, network: nn.Module, rows: Float[Tensor, "row size"]) -> Float[Tensor, "row size"]:
        """A residual network of rows."""

    def meeting(
        self, rows: Float[Tensor, "row size"], others: Float[Tensor, "other size"]
    ) -> Float[Tensor, "row other"]:
        """rows @ others^T."""

    def log_words(
        self, emission: Emission, symbols: Float[Tensor, "symbol size"], words: Int[Tensor, "word"] | None
    ) -> Float[Tensor, "word symbol"]:
        """log p of some words, or of all, given each symbol."""


class ByTorch(NamedTuple):
    """Plain operations, in any dtype."""

    def network(self, network: nn.Module, rows: Float[Tensor, "row size"]) -> Float[Tensor, "row size"]:
        found: Tensor = network(rows)
        return found

    def meeting(
        self, rows: Float[Tensor, "row size"], others: Float[Tensor, "other size"]
    ) -> Float[Tensor, "row other"]:
        return (rows @ others[0])[:, None] if len(others) == 1 else rows @ others.T

    def log_words(
        self, emission: Emission, symbols: Float[Tensor, "symbol size"], words: Int[Tensor, "word"] | None
    ) -> Float[Tensor, "word symbol"]:
        found: Tensor = emission(symbols, words)
        return found.T


class ByKernels(NamedTuple):
    """Kernels and products in a precision; nothing waits for the device, and words may be repeated. Networks give
    operands of products: bfloat16 in "medium". Words have a precision of their own (`precision_of_words`)."""

    precision: Precision

    def network(self, network: nn.Module, rows: Float[Tensor, "row size"]) -> Float[Tensor, "row size"]:
        return residual_network(network, rows, self.precision)

    def meeting(
        self, rows: Float[Tensor, "row size"], others: Float[Tensor, "other size"]
    ) -> Float[Tensor, "row other"]:
        return meeting(rows, others, self.precision)

    def log_words(
        self, emission: Emission, symbols: Float[Tensor, "symbol size"], words: Int[Tensor, "word"] | None
    ) -> Float[Tensor, "word symbol"]:
        if words is None:
            return ByTorch().log_words(emission, symbols, None)
        precision = precision_of_words(self.precision)
        hidden = residual_network(emission.network, symbols, precision)
        return log_words(hidden, emission.words.weight, emission.words.bias, words, precision)
