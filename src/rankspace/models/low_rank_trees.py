"""What models with low-rank rules share: from their embeddings to a distribution, or to log p of a padded batch."""

from abc import abstractmethod
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import pad

from rankspace.distributions import RankSpacePCFG, SimplePCFG
from rankspace.inference.backends import missing
from rankspace.inference.links import DenseLink, Precision
from rankspace.inference.ragged import Ragged, equal_lengths
from rankspace.inference.tree.inputs import Sentences, TreeInputs
from rankspace.inference.tree.triton_engine import log_z_by_kernels
from rankspace.models.arithmetic import Arithmetic, ByKernels, ByTorch
from rankspace.models.contract import Model
from rankspace.models.fast_products import meeting
from rankspace.models.fast_tables import conditional
from rankspace.models.parts import surely_last

MULTIPLE = 16  # of rows and columns that products are fast at


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

    def can_be_captured(self, device: torch.device) -> bool:
        plain = self.options.get("backend", "auto") in ("auto", "triton") and self.options.get("order") != "state"
        return plain and not missing(device) and all(each.dtype == torch.float32 for each in self.parameters())

    def padded_log_prob(
        self, words: Int[Tensor, "batch length"], lengths: Int[Tensor, "batch"], seed: Int[Tensor, ""]
    ) -> tuple[Float[Tensor, "batch"], Bool[Tensor, "batch"]]:
        batch, length = words.shape
        layout = equal_lengths(batch, length, words.device)
        precision: Precision = self.options.get("precision", "highest")
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
    token has a row of its own in J and K: nothing waits to know how many words are distinct.
    """
    scale = tables.log_words.detach().amax(1)
    emitted = (tables.log_words - scale[:, None]).exp()
    sides = [_probabilities(side, emitted.shape[1], precision) for side in (tables.left, tables.right)]
    words = torch.cat([meeting(emitted, of_words, precision) for of_words, _ in sides], 1)
    rules, root = [of_symbols for _, of_symbols in sides], tables.root
    if tables.head is None:
        assert root is not None
        matrix, at_root = torch.cat([rule[:, : len(root)] for rule in rules]), root.softmax(0)
    else:
        head = conditional(*tables.head, precision)
        children = head if root is not None else head[:-1]
        reached = pad(children, (0, 0, 0, rules[0].shape[1] - len(children)))
        matrix = torch.cat([meeting(rule, reached.T, precision) for rule in rules])
        at_root = head[-1].float() if root is None else meeting(root.softmax(0)[None], head.T, precision)[0]
    tokens = torch.arange(layout.num_tokens, device=scale.device)
    lost = torch.zeros(len(layout.lengths), dtype=torch.bool, device=scale.device)
    sentences = Sentences(layout, tokens, scale.double(), true_lengths, doubt=lost)
    found, _ = log_z_by_kernels(TreeInputs(DenseLink(matrix, precision), words, at_root), sentences, None)
    return found, lost


def _probabilities(
    side: Table, preterminals: int, precision: Precision
) -> tuple[Float[Tensor, "rank preterminal"], Float[Tensor, "rank padded"]]:
    """Of preterminals and of nonterminals as children, the latter with some columns of zeros that fill them up to what
    products are fast at. Preterminals come first in memory: their number is more often such a multiple already."""
    nonterminals = len(side.columns) - preterminals
    padding = -len(side.columns) % MULTIPLE
    turned = pad(torch.cat([side.columns[nonterminals:], side.columns[:nonterminals]]), (0, 0, 0, padding))
    of_words, of_symbols = conditional(side.rows, turned, precision, padding).split(
        [preterminals, nonterminals + padding], 1
    )
    return of_words, of_symbols
