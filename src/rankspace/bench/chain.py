"""HMMs: what the explicit passes of the chain engine gain over autograd, and how their costs grow.

1. The rank-space HMM against two implementations in plain torch, over states, rank, batch and length.
2. A dense HMM against packages, where they are installed.
3. The terms n r^2 (rank order) and n m r (state order) of its cost.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor

from rankspace.bench.comparison import OURS, Implementation, Task, log_distribution, random_words
from rankspace.bench.growth import Term
from rankspace.bench.peers import Package, implementations, installed, missing
from rankspace.bench.sizes import around, named, over
from rankspace.bench.suite import Comparison, Suite
from rankspace.distributions import HMM, RankSpaceHMM
from rankspace.lowrank import plan

PEERS = ("log_sum_exp", "log_einsum_exp")
Order = Literal["auto", "rank", "state"]
TORCH_STRUCT = Package("torch-struct", "torch_struct", "torch_struct_hmm")
HMMLEARN = Package("hmmlearn", "hmmlearn", "hmmlearn_hmm")


@dataclass(frozen=True)
class Size:
    """A rank-space HMM and a batch."""

    states: int = 4096
    rank: int = 256
    batch: int = 16
    length: int = 64
    vocabulary: int = 1000


@dataclass(frozen=True)
class DenseSize:
    """A dense HMM and a batch."""

    states: int = 64
    batch: int = 8
    length: int = 32
    vocabulary: int = 1000


def suite(size: Size, device: torch.device, alone: bool = False, repeats: int = 5) -> Suite:
    """Comparisons at a size and around it, with packages and with the claims; at the size `alone` nothing else."""
    sizes = [size] if alone else list(around(size, ["states"], ["rank"], ["batch"], ["length"]))
    return Suite(
        name="chain",
        device=device,
        repeats=repeats,
        rank_space=[_rank_space(each, device) for each in sizes],
        dense=[] if alone else _dense(DenseSize(), device),
        terms=[] if alone else terms(device),
        missing=missing(() if alone else (TORCH_STRUCT, HMMLEARN)),
    )


def quick_suite(device: torch.device) -> Suite:
    """All of it at sizes that say nothing of speed."""
    return Suite(
        name="chain",
        device=device,
        repeats=1,
        rank_space=[_rank_space(Size(32, 8, 2, 6, 20), device)],
        dense=_dense(DenseSize(8, 2, 6, 20), device),
        terms=terms(device, shrink=8),
        missing=missing((TORCH_STRUCT, HMMLEARN)),
    )


def _rank_space(size: Size, device: torch.device) -> Comparison:
    costs = plan(
        "chain",
        states=size.states,
        rank=size.rank,
        vocabulary=size.vocabulary,
        length=size.length,
        batch=size.batch,
    )
    ours = costs.rank if costs.order == "rank" else costs.state
    # A product has two of its own size in its backward pass, one for each operand: three times the forward pass.
    found = {OURS: Implementation(_log_prob, 3 * ours.flops)}
    for name, log_prob in implementations("chain", PEERS).items():
        found[name] = Implementation(log_prob, 3 * costs.rank.flops)
    return Comparison(partial(task, size, device), found)


def task(size: Size, device: torch.device) -> Task:
    random = partial(log_distribution, torch.Generator().manual_seed(0), device)
    parameters = {
        "log_start": random(size.states),
        "log_state_to_rank": random(size.states, size.rank),
        "log_rank_to_state": random(size.rank, size.states),
        "log_emission": random(size.rank, size.vocabulary),
    }
    return Task(named(size), random_words(device, size.vocabulary, size.batch, size.length), parameters)


def _log_prob(words: Tensor, order: Order = "auto", **parameters: Any) -> Tensor:
    return RankSpaceHMM(**parameters, order=order, validate=False).log_prob(words)


def _dense(size: DenseSize, device: torch.device) -> list[Comparison]:
    """With torch-struct forward and backward, with hmmlearn forward only."""
    forward = 2 * size.batch * (size.length - 1) * size.states**2
    found = []
    for package, backward in ((TORCH_STRUCT, True), (HMMLEARN, False)):
        if installed(package) and (backward or device.type == "cpu"):
            [peer] = implementations("packages", [package.function]).values()
            ours = _dense_log_prob if backward else _dense_total
            flops = forward * (3 if backward else 1)
            other = Implementation(peer, flops, in_torch=package is TORCH_STRUCT)
            pair = {OURS: Implementation(ours, flops), package.name: other}
            found.append(Comparison(partial(_dense_task, size, device, backward), pair))
    return found


def _dense_task(size: DenseSize, device: torch.device, backward: bool) -> Task:
    random = partial(log_distribution, torch.Generator().manual_seed(0), device)
    parameters = {
        "log_start": random(size.states),
        "log_transition": random(size.states, size.states),
        "log_emission": random(size.states, size.vocabulary),
    }
    words = random_words(device, size.vocabulary, size.batch, size.length)
    return Task(named(size), words, parameters, backward)


def _dense_log_prob(words: Tensor, **parameters: Any) -> Tensor:
    return HMM(**parameters, validate=False).log_prob(words)


def _dense_total(words: Tensor, **parameters: Any) -> Tensor:
    return _dense_log_prob(words, **parameters).sum()[None]  # hmmlearn gives no more


def terms(device: torch.device, shrink: int = 1) -> list[Term]:
    """Few states in rank order, so that the link costs little beside the steps; many in state order."""
    rank_order = Size(states=16, rank=512, batch=64, length=32)
    state_order = Size(states=2048, rank=64, batch=64, length=32)
    return [
        _term("n r^2", "rank", 1, "length", over(rank_order, "length", (16, 32, 64, 128), shrink), device),
        _term("n r^2", "rank", 2, "rank", over(rank_order, "rank", (128, 256, 512, 1024), shrink), device),
        _term("n m r", "state", 1, "length", over(state_order, "length", (16, 32, 64, 128), shrink), device),
        _term("n m r", "state", 1, "states", over(state_order, "states", (1024, 2048, 4096, 8192), shrink), device),
        _term("n m r", "state", 1, "rank", over(state_order, "rank", (32, 64, 128, 256), shrink), device),
    ]


def _term(formula: str, order: Order, power: int, varied: str, sizes: list[Size], device: torch.device) -> Term:
    make_tasks = [partial(task, size, device) for size in sizes]
    return Term(formula, varied, power, "products", partial(_log_prob, order=order), make_tasks)
