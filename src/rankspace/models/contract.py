"""What every model is: a module that turns its weights into a distribution."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Int32, Int64
from torch import Tensor, nn

from rankspace.distributions.contract import Distribution
from rankspace.distributions.memory import Shortage, Work, if_known, lengths_given, within_memory
from rankspace.distributions.parameters import check_eos
from rankspace.errors import RankspaceError
from rankspace.inference.backends import runs_kernels
from rankspace.inference.links import Precision
from rankspace.inference.ragged import lengths_of, ragged
from rankspace.models.memory import distribution_of, shortage, smaller

Lengths = Sequence[int] | Int[Tensor, "batch"] | None
Kind = Literal["tree", "chain"]


class Posed(NamedTuple):
    """A distribution over the distinct words of a batch, and the batch in its numbers: `distribution.mbr(words,
    lengths)`. Its probabilities are those of the whole vocabulary. Place i stands for the word `distinct[i]`; where
    every sentence has a distribution of its own, for `distinct[sentence, i]`, and words may occur twice there."""

    distribution: Distribution
    words: Int[Tensor, "batch length"]
    lengths: tuple[int, ...]
    distinct: Int[Tensor, "*batch word"]


class Model(nn.Module, ABC):
    """A parameterisation of a distribution.

    `settings` are the arguments of its constructor: `create(model.NAME, **model.settings)` makes another like it.
    `options` go to every distribution it gives: order, precision, backend.
    """

    NAME: ClassVar[str]
    ABOUT: ClassVar[str]  # one line for people
    KIND: Kind
    PRECISION: ClassVar[Precision] = "medium"  # of training by kernels, where none is asked for
    BOUND: ClassVar[bool] = False  # whether `loss` is only an upper bound of -log p

    def __init__(self, **settings: Any) -> None:
        super().__init__()
        self.settings = settings
        self.options: dict[str, Any] = {}
        self.check_settings(settings)

    @classmethod
    def check_settings(cls, settings: Mapping[str, Any]) -> None:
        """Raises RankspaceError for values that settings, all of them given, cannot have."""
        for name, value in settings.items():
            if isinstance(value, int) and not isinstance(value, bool) and name != "eos" and value < 1:
                raise RankspaceError(f"{cls.NAME}: {name} is {value}; give at least 1.")
        for name, value in settings.items():
            if name.endswith("dropout") and not 0 <= value < 1:
                raise RankspaceError(f"{cls.NAME}: {name} is {value}; give a number from 0 to below 1.")
        check_eos(cls.NAME, settings.get("eos"), settings["vocabulary"])

    @property
    def vocabulary(self) -> int:
        """Number of words."""
        size: int = self.settings["vocabulary"]
        return size

    @property
    def num_weights(self) -> int:
        return sum(parameter.numel() for parameter in self.parameters())

    @abstractmethod
    def forward(self, words: Int[Tensor, "word"] | None = None) -> Distribution:
        """The distribution over sentences; its vocabulary is `words` alone, distinct and rising, if they are given.

        Probabilities are those of the whole vocabulary either way. Without `words` a chain has its `eos`.
        """

    @within_memory
    def pose(self, words: Int[Tensor, "batch length"], lengths: Lengths = None) -> Posed:
        """The distribution for a batch: emissions of its distinct words alone. Padding is not read.

        Waits for words on a GPU: how many are distinct, which is the size of the emissions, is known only there.
        """
        numbers = lengths_of(self.NAME, words, lengths)
        layout = ragged(numbers, words.device)
        distinct, places = torch.unique(layout.pack(words), return_inverse=True)
        if not layout.num_tokens:
            distinct = distinct.new_zeros(1)  # a vocabulary has a word
        return Posed(self(distinct), layout.unpack(places), numbers, distinct)

    @within_memory
    def log_prob(self, words: Int[Tensor, "batch length"], lengths: Lengths = None) -> Float[Tensor, "batch"]:
        """log p of each sentence, differentiable in the weights."""
        posed = self.pose(words, lengths)
        return posed.distribution.log_prob(posed.words, posed.lengths)

    def _shortage(self, query: str, words: Tensor, lengths: Lengths) -> Shortage:
        work = Work(lengths_given(words, lengths), self._learns(), if_known(lambda: self.by_kernels(words.device)))
        return shortage(self, work)

    def _learns(self) -> bool:
        return torch.is_grad_enabled() and any(weight.requires_grad for weight in self.parameters())

    def _arithmetic(self) -> AbstractContextManager[Any]:
        """Networks may run within autocast; what must not leaves it by itself."""
        return nullcontext()

    @property
    def _label(self) -> str:
        return self.NAME

    @property
    def _remedy(self) -> str:
        return f"give fewer or shorter sentences at a time, or {smaller(self)}"

    def through_networks(self) -> Iterator[tuple[nn.Module, int]]:
        """Networks, and how many rows go through each; those of a single row may be left out."""
        yield from ()

    def by_kernels(self, device: torch.device) -> bool:
        """Whether `log_prob` runs by Triton on a device."""
        return self.poses_kernels(device)

    def poses_kernels(self, device: torch.device) -> bool:
        """Whether its distributions run by Triton on a device: those that are one for all sentences."""
        of = distribution_of(self)
        plain = self.BOUND or of is None or "triton" not in of.BACKENDS
        return not plain and runs_kernels(self.NAME, self.options, self.parameters(), device)

    def can_be_captured(self, device: torch.device) -> bool:
        """Whether `padded_log_prob` runs on a device with the model's options."""
        return False

    def padded_log_prob(
        self, words: Int[Tensor, "batch length"], lengths: Int[Tensor, "batch"], seed: Int[Tensor, ""]
    ) -> tuple[Float[Tensor, "batch"], Bool[Tensor, "batch"]]:
        """log p of each sentence in float64, and which sentences lost more than rounding: these have gradient zero. The
        backward pass may mark more of them in the same tensor; the gradients of the batch are not to be used then.

        Shapes alone decide what is launched, and nothing waits for the device, so that one CUDA graph serves all
        batches of a shape. Without gradients, where no backward pass will mark any, it waits to know them; a graph
        that is recorded without gradients marks all that may be. Words after the end of a sentence are any words. The
        seed chooses what is dropped.
        """
        raise NotImplementedError(f"{self.NAME} has no kernels.")

    def loss(self, words: Int[Tensor, "batch length"], lengths: Lengths = None) -> Float[Tensor, "batch"]:
        """What training minimises: -log p of each sentence, or an upper bound of it (`BOUND`)."""
        return -self.log_prob(words, lengths)

    def sampler(self, generator: torch.Generator | None = None) -> Distribution:
        """A distribution to draw one sentence from: the distribution itself, unless it depends on the sentence."""
        distribution: Distribution = self()
        return distribution

    def prepare(self, tokens: Int32[np.ndarray, "tokens"], offsets: Int64[np.ndarray, "sentences_and_one"]) -> None:
        """Looks at the training text, once, before training begins. Most models do not need it."""

    def distribution_options(self) -> dict[str, Any]:
        """The options of its distributions. Raises RankspaceError for kernels, of which a model has none by itself."""
        if self.options.get("backend") == "triton":
            raise RankspaceError(
                f"{self.NAME}: backend is 'triton', but this model has no kernels; give backend='auto'."
            )
        return dict(self.options)

    def chain_options(self, words: Tensor | None) -> dict[str, Any]:
        """Options of a chain: the end of sentence has a number only among the whole vocabulary."""
        eos = self.settings["eos"] if words is None else None
        return {"eos": eos, "validate": False, **self.distribution_options()}
