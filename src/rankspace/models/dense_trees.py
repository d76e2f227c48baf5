"""What models share whose rules are a tensor to the kernels, one for all sentences or one for each: log p of a batch by
them."""

from abc import abstractmethod
from typing import ClassVar, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from rankspace.inference.backends import launching_on
from rankspace.inference.links import Precision
from rankspace.inference.ragged import ragged
from rankspace.inference.tree.dense_triton import Setting, dense_log_z_by_kernels
from rankspace.models.arithmetic import ByKernels
from rankspace.models.contract import Posed
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


def log_prob_of_each(posed: Posed, precision: Precision) -> tuple[Float[Tensor, "batch"], Bool[Tensor, "batch"]]:
    """log p, and what is lost, where every sentence has a `PCFG` of its own. Sentences are filled up to the longest."""
    tables, words = posed.distribution.parameters, posed.words
    layout = ragged((words.shape[1],) * words.shape[0], words.device)
    setting = Setting(layout, torch.tensor(posed.lengths, device=words.device), precision)
    places = layout.sentence_at[layout.token_place], layout.pack(words)
    with launching_on(words.device):
        return dense_log_z_by_kernels(
            tables["log_rule"].exp(), tables["log_root"].exp(), tables["log_emission"].mT[places], setting
        )
