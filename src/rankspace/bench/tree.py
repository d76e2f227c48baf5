"""PCFGs: what the explicit passes of the tree engine gain over autograd, and how their costs grow.

1. The rank-space PCFG against two implementations in plain torch, over symbols, rank, batch and length.
2. A dense PCFG against torch-struct, where it is installed.
3. The terms n^3 r (sums over splits) and n^2 r^2 (links) of its cost.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from rankspace.bench.comparison import OURS, Implementation, Task, log_distribution, random_words
from rankspace.bench.growth import Term
from rankspace.bench.peers import Package, implementations, installed, missing
from rankspace.bench.profiling import Phase
from rankspace.bench.sizes import around, named, over
from rankspace.bench.suite import Comparison, Suite
from rankspace.distributions import PCFG, RankSpacePCFG
from rankspace.lowrank import plan

PEERS = ("log_sum_exp", "log_einsum_exp")
TORCH_STRUCT = Package("torch-struct", "torch_struct", "torch_struct_pcfg")


@dataclass(frozen=True)
class Size:
    """A rank-space PCFG and a batch."""

    nonterminals: int = 450
    preterminals: int = 900
    rank: int = 100
    batch: int = 16
    length: int = 40
    vocabulary: int = 1000


@dataclass(frozen=True)
class DenseSize:
    """A dense PCFG and a batch."""

    nonterminals: int = 30
    preterminals: int = 60
    batch: int = 8
    length: int = 20
    vocabulary: int = 1000


def suite(size: Size, device: torch.device, alone: bool = False, repeats: int = 5) -> Suite:
    """Comparisons at a size and around it, with packages and with the claims; at the size `alone` nothing else."""
    symbols = ["nonterminals", "preterminals"]
    sizes = [size] if alone else list(around(size, symbols, ["rank"], ["batch"], ["length"]))
    return Suite(
        name="tree",
        device=device,
        repeats=repeats,
        rank_space=[_rank_space(each, device) for each in sizes],
        dense=[] if alone else _dense(DenseSize(), device),
        terms=[] if alone else terms(device),
        missing=missing(() if alone else [TORCH_STRUCT]),
    )


def quick_suite(device: torch.device) -> Suite:
    """All of it at sizes that say nothing of speed."""
    return Suite(
        name="tree",
        device=device,
        repeats=1,
        rank_space=[_rank_space(Size(9, 18, 5, 2, 6, 20), device)],
        dense=_dense(DenseSize(3, 6, 2, 6, 20), device),
        terms=terms(device, shrink=8),
        missing=missing([TORCH_STRUCT]),
    )


def _rank_space(size: Size, device: torch.device) -> Comparison:
    make_task = partial(task, size, device)
    costs = plan(
        "tree",
        states=size.nonterminals + size.preterminals,
        nonterminals=size.nonterminals,
        preterminals=size.preterminals,
        rank=size.rank,
        vocabulary=size.vocabulary,
        distinct_words=len(_words(size, device).unique()),
        length=size.length,
        batch=size.batch,
    )
    ours = costs.rank if costs.order == "rank" else costs.state
    # The backward pass does each product and each split sum twice, once for either operand: three times the forward.
    found = {OURS: Implementation(_log_prob, 3 * ours.flops)}
    for name, log_prob in implementations("tree", PEERS).items():
        found[name] = Implementation(log_prob, 3 * costs.rank.flops)
    return Comparison(make_task, found)


def _words(size: Size | DenseSize, device: torch.device) -> Tensor:
    return random_words(device, size.vocabulary, size.batch, size.length)


def task(size: Size, device: torch.device) -> Task:
    random = partial(log_distribution, torch.Generator().manual_seed(0), device)
    symbols = size.nonterminals + size.preterminals
    parameters = {
        "log_root": random(size.nonterminals),
        "log_head": random(size.nonterminals, size.rank),
        "log_left": random(size.rank, symbols),
        "log_right": random(size.rank, symbols),
        "log_emission": random(size.preterminals, size.vocabulary),
    }
    return Task(named(size), _words(size, device), parameters)


def _log_prob(words: Tensor, **parameters: Any) -> Tensor:
    return RankSpacePCFG(**parameters, validate=False).log_prob(words)


def _rank_order_log_prob(words: Tensor, **parameters: Any) -> Tensor:
    return RankSpacePCFG(**parameters, order="rank", validate=False).log_prob(words)


def _dense(size: DenseSize, device: torch.device) -> list[Comparison]:
    if not installed(TORCH_STRUCT):
        return []
    [peer] = implementations("packages", [TORCH_STRUCT.function]).values()
    flops = 3 * _dense_flops(size)
    pair = {OURS: Implementation(_dense_log_prob, flops), TORCH_STRUCT.name: Implementation(peer, flops)}
    return [Comparison(partial(_dense_task, size, device), pair)]


def _dense_flops(size: DenseSize) -> int:
    """Forward: pairs of children summed over the splits of each span, then their product with the rules.

    A child of one word is a preterminal, any other a nonterminal.
    """
    heads, leaves = size.nonterminals, size.preterminals
    total = 0
    for width in range(2, size.length + 1):
        inner = heads**2 if width > 3 else 0
        ends = leaves**2 if width == 2 else 2 * heads * leaves
        pairs = (width - 3) * inner + ends  # multiplied and added
        total += (size.length - width + 1) * (2 * pairs + 2 * heads * (inner + ends))
    return size.batch * total


def _dense_task(size: DenseSize, device: torch.device) -> Task:
    random = partial(log_distribution, torch.Generator().manual_seed(0), device)
    symbols = size.nonterminals + size.preterminals
    parameters = {
        "log_root": random(size.nonterminals),
        "log_rule": random(size.nonterminals, symbols**2).reshape(-1, symbols, symbols),
        "log_emission": random(size.preterminals, size.vocabulary),
    }
    return Task(named(size), _words(size, device), parameters)


def _dense_log_prob(words: Tensor, **parameters: Any) -> Tensor:
    return PCFG(**parameters, validate=False).log_prob(words)


def terms(device: torch.device, shrink: int = 1) -> list[Term]:
    """Few symbols, so that the links cost little beside the spans; they are applied as products, splits are not.

    On a CPU, where sentences are equally long, splits are summed by one kind of operation that nothing else uses.
    """
    sums: Phase = "sums" if device.type == "cpu" else "elementwise"
    splits = Size(nonterminals=16, preterminals=16, rank=64, batch=4, length=32)
    links = Size(nonterminals=16, preterminals=16, rank=256, batch=4, length=16)
    return [
        _term("n^3 r", sums, 3, "length", over(splits, "length", (32, 48, 64, 96), shrink), device),
        _term("n^3 r", sums, 1, "rank", over(splits, "rank", (64, 128, 192, 256), shrink), device),
        _term("n^2 r^2", "products", 2, "length", over(links, "length", (16, 24, 32, 48), shrink), device),
        _term("n^2 r^2", "products", 2, "rank", over(links, "rank", (128, 256, 512, 1024), shrink), device),
    ]


def _term(formula: str, phase: Phase, power: int, varied: str, sizes: list[Size], device: torch.device) -> Term:
    return Term(formula, varied, power, phase, _rank_order_log_prob, [partial(task, size, device) for size in sizes])
