"""Models that have kernels for the log p of a batch: when these run, and what they leave to be done again."""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, get_args

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from rankspace.distributions.contract import Backend, Order, check_choice
from rankspace.distributions.memory import within_memory
from rankspace.errors import RankspaceError
from rankspace.inference.backends import can_run_kernels, launching_on, runs_kernels
from rankspace.inference.links import Precision
from rankspace.inference.ragged import equal_lengths, lengths_of, ragged
from rankspace.models.contract import Lengths, Model
from rankspace.models.fast_batch import Batch

MOST_TERMS = 2**29  # of a step of a chain: the proof in kernels/chain.md that nothing underflows unseen goes no further


class KernelModel(Model):
    """A model with kernels, for weights in float32 and one order of summation.

    They run on a GPU with backend "auto" or "triton", elsewhere (under Triton's interpreter) with "triton" alone.
    """

    ORDER: ClassVar[Order]  # of the kernels

    def unfit(self) -> str:
        """Why the kernels are not for a model of these settings and options, and what to give; nothing if they are."""
        order = self.options.get("order", "auto")
        if order in ("auto", self.ORDER):
            return ""
        return f"its kernels run in {self.ORDER} order and order is {order!r}; give order='auto' or backend='auto'"

    @property
    def precision(self) -> Precision:
        found: Precision = self.options.get("precision", "highest")
        return found

    def by_kernels(self, device: torch.device) -> bool:
        return self._may_run_kernels() and runs_kernels(self.NAME, self.options, self.parameters(), device)

    def distribution_options(self) -> dict[str, Any]:
        """The kernels are the model's: its distributions run as with "auto"."""
        check_choice(self.NAME, "backend", self.options.get("backend", "auto"), get_args(Backend))
        if self.options.get("backend") != "triton":
            return dict(self.options)
        self.by_kernels(next(self.parameters()).device)  # an error where they cannot
        return {**self.options, "backend": "auto"}

    def _may_run_kernels(self) -> bool:
        backend, unfit = self.options.get("backend", "auto"), self.unfit()
        if backend == "triton" and unfit:
            raise RankspaceError(f"{self.NAME}: backend is 'triton', but {unfit}.")
        return backend in ("auto", "triton") and not unfit


class FastModel(KernelModel):
    """One whose kernels make all of log p from the words of a batch, so that its training steps can be captured."""

    @abstractmethod
    def log_prob_by_kernels(
        self, words: Int[Tensor, "batch length"], batch: Batch
    ) -> tuple[Float[Tensor, "batch"], Bool[Tensor, "batch"]]:
        """As `padded_log_prob`, for a batch; its `true_lengths` are those of sentences that are shorter than in its
        layout."""

    def can_be_captured(self, device: torch.device) -> bool:
        return self._may_run_kernels() and can_run_kernels(self.options, self.parameters(), device)

    def padded_log_prob(
        self, words: Int[Tensor, "batch length"], lengths: Int[Tensor, "batch"], seed: Int[Tensor, ""]
    ) -> tuple[Float[Tensor, "batch"], Bool[Tensor, "batch"]]:
        batch = Batch(equal_lengths(*words.shape, words.device), self.precision, seed, lengths)
        with launching_on(words.device):
            return self.log_prob_by_kernels(words, batch)

    @within_memory
    def log_prob(self, words: Int[Tensor, "batch length"], lengths: Lengths = None) -> Float[Tensor, "batch"]:
        """log p of each sentence, differentiable in the weights. By kernels where they run; what they lose is done
        again as everywhere else."""
        if not self.by_kernels(words.device):
            return super().log_prob(words, lengths)
        numbers = lengths_of(self.NAME, words, lengths)
        batch = Batch(ragged(numbers, words.device), self.precision, self._seed(words.device))
        with launching_on(words.device):
            found, lost = self.log_prob_by_kernels(words, batch)
        again = super().log_prob
        return with_lost(found.float(), lost, lambda rows: again(words[rows], [numbers[row] for row in rows.tolist()]))

    def _seed(self, device: torch.device) -> Int[Tensor, ""]:
        """Of what is dropped: drawn in training alone."""
        if self.training:
            return torch.randint(2**62, (), device=device)
        return torch.zeros((), dtype=torch.int64, device=device)


def with_lost(
    found: Float[Tensor, "batch"], lost: Bool[Tensor, "batch"], again: Callable[[Int[Tensor, "row"]], Tensor]
) -> Float[Tensor, "batch"]:
    """What kernels found, and what they lost done `again`."""
    if not bool(lost.any()):
        return found
    rows = lost.nonzero()[:, 0]
    return found.index_put((rows,), again(rows))


class FastChain(FastModel):
    """A chain with kernels. A number of a step is a sum over all ranks and states that lead to it."""

    KIND = "chain"

    def unfit(self) -> str:
        terms = self.settings.get("rank", 1) * self.settings["states"]
        if terms <= MOST_TERMS:
            return super().unfit()
        return (
            f"its kernels are for rank times states of at most {MOST_TERMS} and these are {terms}; give fewer of them "
            "or backend='auto'"
        )
