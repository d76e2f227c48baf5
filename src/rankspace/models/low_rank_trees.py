"""What models with low-rank rules share: from their embeddings to a distribution, or to log p of a padded batch."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.functional import pad

from rankspace.distributions import RankSpacePCFG, SimplePCFG
from rankspace.inference.backends import can_run_kernels, launching_on
from rankspace.inference.links import DenseLink, Precision, operand
from rankspace.inference.ragged import Ragged, equal_lengths
from rankspace.inference.tree.inputs import Sentences, TreeInputs
from rankspace.inference.tree.kernel_bounds import unfit
from rankspace.inference.tree.linear_inputs import word_scale
from rankspace.inference.tree.triton_engine import log_z_by_kernels
from rankspace.models.arithmetic import Arithmetic, ByKernels, ByTorch
from rankspace.models.contract import Model
from rankspace.models.fast_products import MULTIPLE, meeting
from rankspace.models.fast_tables import conditional
from rankspace.models.networks import initialise_matrices
from rankspace.models.parts import surely_last


class Table(NamedTuple):
    """p(column | row) = softmax over columns of row . column."""

    rows: Float[Tensor, "row size"]
    columns: Float[Tensor, "column size"]

    def log_probabilities(self) -> Float[Tensor, "row column"]:
        """Normalised along the contiguous axis."""
        return (self.rows @ self.columns.T).log_softmax(1)


class TreeTables(NamedTuple):
    """The factors of a grammar. Symbols are nonterminals, then preterminals.

    Without a head the ranks are the nonterminals. Without a root it is the last row of the head, a nonterminal that is
    no child of any rank.
    """

    root: Float[Tensor, "nonterminal"] | None  # logits
    head: Table | None  # ranks of nonterminals
    left: Table  # children of ranks
    right: Table
    log_words: Float[Tensor, "word preterminal"]  # normalised


class Rectified(nn.Module):
    """ReLU(A x + b)."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.first = nn.Linear(size, size)
        initialise_matrices(self.first)

    def forward(self, rows: Float[Tensor, "row size"], by: Arithmetic) -> Float[Tensor, "row size"]:
        return (by.meeting(rows, self.first.weight) + self.first.bias).relu()


class LowRankTreeModel(Model):
    """A grammar whose rules meet in a rank: `tables` is all that a model adds."""

    KIND = "tree"

    @abstractmethod
    def tables(self, words: Int[Tensor, "word"] | None, by: Arithmetic) -> TreeTables:
        """The factors, for some words, or for all."""

    def forward(self, words: Int[Tensor, "word"] | None = None) -> RankSpacePCFG | SimplePCFG:
        found = self.tables(words, ByTorch())
        head = None if found.head is None else found.head.log_probabilities()
        left, right = found.left.log_probabilities(), found.right.log_probabilities()
        root = None if found.root is None else found.root.log_softmax(0)
        if head is None:
            assert root is not None
            return SimplePCFG(root, left, right, found.log_words.T, validate=False, **self.options)
        if root is None:
            root = surely_last(len(head), head)
            left, right = (_with_column(side, len(head) - 1) for side in (left, right))
        return RankSpacePCFG(root, head, left, right, found.log_words.T, validate=False, **self.options)

    def by_kernels(self, device: torch.device) -> bool:
        return not self._unfit() and super().by_kernels(device)

    def can_be_captured(self, device: torch.device) -> bool:
        if self.options.get("order") == "state" or self._unfit():
            return False
        return can_run_kernels(self.options, self.parameters(), device)

    def _unfit(self) -> str:
        nonterminals, preterminals = self.settings["nonterminals"], self.settings["preterminals"]
        return unfit(self.settings.get("rank", nonterminals), nonterminals, preterminals)

    def padded_log_prob(
        self, words: Int[Tensor, "batch length"], lengths: Int[Tensor, "batch"], seed: Int[Tensor, ""]
    ) -> tuple[Float[Tensor, "batch"], Bool[Tensor, "batch"]]:
        batch, length = words.shape
        layout = equal_lengths(batch, length, words.device)
        precision: Precision = self.options.get("precision", "highest")
        with launching_on(words.device):
            return tree_log_prob(self.tables(layout.pack(words), ByKernels(precision)), layout, lengths, precision)


def _with_column(logarithms: Float[Tensor, "row _"], place: int) -> Float[Tensor, "row _"]:
    """With a column that has no probability."""
    column = logarithms.new_full((len(logarithms), 1), -torch.inf)
    return torch.cat([logarithms[:, :place], column, logarithms[:, place:]], 1)


def tree_log_prob(
    tables: TreeTables, layout: Ragged, true_lengths: Int[Tensor, "batch"] | None, precision: Precision
) -> tuple[Float[Tensor, "batch"], Bool[Tensor, "batch"]]:
    """log p of each sentence in float64, and which sentences lost more than rounding (see `Model.padded_log_prob`).
    Words are the tokens of the layout.

    As `linear_inputs`, in rank order: J = E V^T, K = E W^T, L = s U, and H = V U, I = W U once for the batch. Every
    token has a row of its own in J and K: nothing waits to know how many words are distinct. The rules of a rank are
    divided by what they sum to as they are rounded, which of a confident grammar is above one.
    """
    scale = word_scale(tables.log_words)
    emitted = (tables.log_words - scale[:, None]).exp()
    sides = [_probabilities(side, emitted.shape[1], precision) for side in (tables.left, tables.right)]
    words = torch.cat([meeting(emitted, side.of_words, precision) for side in sides], 1)
    root = tables.root
    if tables.head is None:
        assert root is not None
        matrix, at_root = torch.cat([side.of_symbols[:, : len(root)] for side in sides]), root.softmax(0)
        mass = sides[0].masses.sum(1) * sides[1].masses.sum(1)
    else:
        head = conditional(*tables.head, precision).probabilities
        children = head if root is not None else head[:-1]
        reached = pad(children, (0, 0, 0, sides[0].of_symbols.shape[1] - len(children)))
        matrix = torch.cat([meeting(side.of_symbols, reached.T, precision) for side in sides])
        mass = _mass(sides, operand(matrix.detach(), precision))
        at_root = head[-1].float() if root is None else meeting(root.softmax(0)[None], head.T, precision)[0]
    tokens = torch.arange(layout.num_tokens, device=scale.device)
    doubt = None
    if torch.is_grad_enabled():
        doubt = torch.zeros(len(layout.lengths), dtype=torch.bool, device=scale.device)
    sentences = Sentences(layout, tokens, scale.double(), true_lengths, doubt, own_rows=True)
    inputs = TreeInputs(DenseLink(matrix, precision), words, at_root / at_root.detach().sum(), mass)
    found, lost = log_z_by_kernels(inputs, sentences, None)
    return found, lost if doubt is None else doubt


class Side(NamedTuple):
    """Probabilities of children, in the dtype of operands. Every rank has a child on each side, a preterminal or a
    nonterminal: `masses` are what each kind sums to."""

    of_words: Float[Tensor, "rank preterminal"]
    of_symbols: Float[Tensor, "rank padded"]  # with columns of zeros up to what products are fast at
    masses: Float[Tensor, "rank 2"]


def _probabilities(side: Table, preterminals: int, precision: Precision) -> Side:
    """Preterminals come first in memory: their number is more often such a multiple already."""
    nonterminals = len(side.columns) - preterminals
    padding = -len(side.columns) % MULTIPLE
    turned = pad(torch.cat([side.columns[nonterminals:], side.columns[:nonterminals]]), (0, 0, 0, padding))
    found, masses = conditional(side.rows, turned, precision, padding, preterminals)
    of_words, of_symbols = found.split([preterminals, nonterminals + padding], 1)
    return Side(of_words, of_symbols, masses)


def _mass(sides: Sequence[Side], matrix: Float[Tensor, "both rank"]) -> Float[Tensor, "rank"]:
    """What the rules of each rank sum to, where the link stands for the nonterminals."""
    of_symbols = matrix.sum(1, dtype=torch.float32).view(2, -1)
    return (sides[0].masses[:, 0] + of_symbols[0]) * (sides[1].masses[:, 0] + of_symbols[1])
