"""Grammars with full rule tensors, and what an engine makes of them: log Z, lost sentences and gradients."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from kernels.dense_charts import DEVICE
from rankspace.distributions import PCFG
from rankspace.inference.links import Precision
from rankspace.inference.ragged import ragged
from rankspace.inference.tree.dense_triton import Setting, dense_log_z_by_kernels

VOCABULARY = 50


class Tables(NamedTuple):
    """Logarithms, in float64."""

    root: Tensor
    rule: Tensor
    emission: Tensor


class Outcome(NamedTuple):
    log_z: Tensor
    lost: Tensor
    gradients: tuple[Tensor, ...]  # of a weighted sum of log Z, of all that is possible


def random_tables(nonterminals: int, preterminals: int, peak: float = 1.0) -> Tables:
    generator, symbols = torch.Generator().manual_seed(0), nonterminals + preterminals

    def rows(*shape: int) -> Tensor:
        logits = torch.randn(shape, generator=generator, dtype=torch.float64) * peak
        return logits.log_softmax(-1).to(DEVICE)

    rule = rows(nonterminals, symbols**2).view(nonterminals, symbols, symbols)
    return Tables(rows(nonterminals), rule, rows(preterminals, VOCABULARY))


def random_words(batch: int, length: int, seed: int = 1) -> Tensor:
    return torch.randint(VOCABULARY, (batch, length), generator=torch.Generator().manual_seed(seed)).to(DEVICE)


def by_kernels(
    tables: Tables,
    words: Tensor,
    lengths: Sequence[int],
    true_lengths: Sequence[int] | None = None,
    precision: Precision = "highest",
) -> Outcome:
    layout = ragged(tuple(lengths), DEVICE)
    given = None if true_lengths is None else torch.tensor(true_lengths, device=DEVICE)
    leaves = [table.float().requires_grad_() for table in tables]
    log_words = leaves[2].T[layout.pack(words)]
    setting = Setting(layout, given, precision)
    log_z, lost = dense_log_z_by_kernels(leaves[1].exp(), leaves[0].exp(), log_words, setting)
    return outcome(log_z, lost, leaves)


def by_torch(tables: Tables, words: Tensor, lengths: Sequence[int]) -> Outcome:
    leaves = [table.clone().requires_grad_() for table in tables]
    log_z = PCFG(*leaves, validate=False).log_prob(words, lengths)
    return outcome(log_z, torch.zeros_like(log_z, dtype=torch.bool), leaves)


def outcome(log_z: Tensor, lost: Tensor, leaves: list[Tensor]) -> Outcome:
    slopes = torch.linspace(-1, 2, len(log_z), dtype=torch.float64, device=DEVICE)
    total = (log_z.where(log_z > -math.inf, 0) * slopes.where(~lost, 0)).sum()
    return Outcome(log_z.detach(), lost, torch.autograd.grad(total, leaves))


def compare(found: Outcome, expected: Outcome, tolerance: float = 1e-5) -> None:
    """float32 rounding: a few units for each of some hundred terms."""
    assert not bool(found.lost.any())
    torch.testing.assert_close(found.log_z, expected.log_z, rtol=1e-6, atol=1e-5)
    for one, other in zip(found.gradients, expected.gradients, strict=True):
        assert one.dtype == torch.float32
        assert bool((one - other).norm() <= tolerance * other.norm())
