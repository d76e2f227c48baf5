"""What the dense tree engine computes with: a rule tensor, a root vector and word vectors, in linear space.

Symbols are numbered nonterminals first, then preterminals; spans of two words or more carry vectors over the
nonterminals, words vectors over the preterminals. The pairs of children therefore fall into four blocks.
"""

from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor

from rankspace.inference.links import Precision


@dataclass(frozen=True)
class DenseWeights:
    """rho[q] = sum_{B,C} rule[q, B, C] pair[B, C]; a span's vector is head . rho, or rho itself without a head.

    The leading axis `group` of rule and head, and that of root, has one entry for each place of the layout where every
    sentence has weights of its own (C-PCFG), else one entry alone. Word vectors are taken at a scale of the caller's
    choosing, one per word, on which they do not exceed one. `log_span`, where given, is added to the logarithm of each
    span's vector, words included; -inf forbids the span.
    """

    rule: Float[Tensor, "group rank symbol symbol"]
    head: Float[Tensor, "group nonterminal rank"] | None
    root: Float[Tensor, "places nonterminal"]
    words: Float[Tensor, "token preterminal"]
    log_span: Float[Tensor, "span"] | None = None
    precision: Precision = "highest"

    @property
    def num_nonterminals(self) -> int:
        return self.root.shape[1]

    @property
    def num_preterminals(self) -> int:
        return self.words.shape[1]

    @property
    def num_ranks(self) -> int:
        """Rows of the rule tensor: ranks, or nonterminals where there is no head matrix."""
        return self.rule.shape[1]

    @property
    def per_sentence(self) -> bool:
        """Whether every sentence has rules of its own."""
        return self.rule.shape[0] != 1

    @property
    def dtype(self) -> torch.dtype:
        return self.rule.dtype

    @cached_property
    def blocks(self) -> "Blocks":
        return Blocks.of(self.rule, self.num_nonterminals)


@dataclass(frozen=True)
class Blocks:
    """The rule tensor by the kinds of its children, as matrices from pairs to ranks."""

    spans: Float[Tensor, "group rank span_pair"]
    span_word: Float[Tensor, "group rank_span preterminal"]  # from the word on the right
    word_span: Float[Tensor, "group rank_span preterminal"]  # from the word on the left
    words: Float[Tensor, "group rank word_pair"]

    @classmethod
    def of(cls, rule: Float[Tensor, "group rank symbol symbol"], num_nonterminals: int) -> "Blocks":
        n = num_nonterminals
        return cls(
            rule[:, :, :n, :n].flatten(2),
            rule[:, :, :n, n:].flatten(1, 2),
            rule[:, :, n:, :n].transpose(2, 3).flatten(1, 2),
            rule[:, :, n:, n:].flatten(2),
        )

    def joined(self, num_nonterminals: int) -> Float[Tensor, "group rank symbol symbol"]:
        """The tensor these are blocks of."""
        groups, rank = self.spans.shape[:2]
        n, p = num_nonterminals, self.span_word.shape[2]
        upper = torch.cat([self.spans.view(groups, rank, n, n), self.span_word.view(groups, rank, n, p)], 3)
        word_span = self.word_span.view(groups, rank, n, p).transpose(2, 3)
        lower = torch.cat([word_span, self.words.view(groups, rank, p, p)], 3)
        return torch.cat([upper, lower], 2)

    def zeros(self) -> "Blocks":
        return Blocks(*(torch.zeros_like(block) for block in (self.spans, self.span_word, self.word_span, self.words)))


def root_rows(weights: DenseWeights, count: int) -> Float[Tensor, "long nonterminal"]:
    """Root vectors of the first places."""
    return weights.root[:count] if len(weights.root) != 1 else weights.root.expand(count, -1)
