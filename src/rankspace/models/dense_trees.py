"""What models share whose rules are one tensor to the kernels: log p of a batch by them."""

from abc import abstractmethod
from typing import ClassVar, NamedTuple

from jaxtyping import Bool, Float, Int
from torch import Tensor

from rankspace.inference.links import Precision
from rankspace.inference.tree.dense_triton import Setting, dense_log_z_by_kernels
from rankspace.models.arithmetic import ByKernels
from rankspace.models.fast_batch import Batch
from rankspace.models.fast_model import FastModel


class DenseTables(NamedTuple):
    """Probabilities; of words their logarithms, a row for each token."""

    root: Float[Tensor, "nonterminal"]
    rule: Float[Tensor, "nonterminal symbol symbol"]
    log_words: Float[Tensor, "token preterminal"]


class DenseTreeModel(FastModel):
    """A grammar that has kernels for a full rule tensor. Nothing is dropped."""

    KIND = "tree"
    ORDER: ClassVar = "state"
    PRECISION: ClassVar[Precision] = "high"

    @abstractmethod
    def dense_tables(self, tokens: Int[Tensor, "token"], by: ByKernels) -> DenseTables:
        """The grammar, for the tokens of a batch: nothing waits to know which of them are distinct."""

    def log_prob_by_kernels(
        self, words: Int[Tensor, "batch length"], batch: Batch
    ) -> tuple[Float[Tensor, "batch"], Bool[Tensor, "batch"]]:
        tables = self.dense_tables(batch.layout.pack(words), ByKernels(batch.precision))
        setting = Setting(batch.layout, batch.true_lengths, batch.precision)
        return dense_log_z_by_kernels(tables.rule, tables.root, tables.log_words, setting)
