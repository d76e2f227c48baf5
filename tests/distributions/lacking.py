"""Run by `test_memory` in a process of its own: what is said where memory that is limited really runs out."""

import resource
from collections.abc import Callable
from typing import Any

import torch

from rankspace.distributions import HMM, LHMM, RankSpacePCFG, SimplePCFG
from rankspace.errors import NotEnoughMemoryError
from rankspace.models import create
from rankspace.training.machine import enough_memory

MORE = 400 * 2**20  # bytes that each process may have besides what it has begun with


def log_table(*shape: int) -> torch.Tensor:
    return torch.zeros(shape).log_softmax(-1)


def tree(rank: int) -> RankSpacePCFG:
    tables = log_table(2), log_table(2, rank), log_table(rank, 5), log_table(rank, 5), log_table(3, 7)
    return RankSpacePCFG(*tables)


def limit() -> None:
    with open("/proc/self/statm") as file:
        there = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (there + MORE, there + MORE))


def said(query: Callable[[], Any]) -> None:
    try:
        query()
    except NotEnoughMemoryError as error:
        print(error if isinstance(error.__cause__, RuntimeError) else error.__cause__)


def main() -> None:
    trees, wide = torch.zeros(4, 1000, dtype=torch.int64), torch.zeros(2, 200_000, dtype=torch.int64)
    hmm = HMM(log_table(300), log_table(300, 300), log_table(300, 7))
    lhmm = LHMM(*(table.double() for table in (log_table(40), log_table(40, 4), log_table(4, 40), log_table(40, 7))))
    simple = SimplePCFG(log_table(50), log_table(50, 53), log_table(50, 53), log_table(3, 7))
    model = create("direct", vocabulary=7, of="hmm", states=300)
    tree(300).log_prob(trees[:, :5])  # torch has begun all its threads
    limit()
    said(lambda: tree(300).log_prob(trees))
    said(lambda: simple.mbr(trees[:, :900]))
    said(lambda: hmm.log_prob(wide))
    said(lambda: lhmm.expected_counts(wide.repeat(2, 1)))
    said(lambda: model.log_prob(wide))

    def step() -> None:
        with enough_memory("step 7", model, [tuple(wide.shape)]):
            model.loss(wide).sum().backward()

    said(step)
    hmm = HMM(*(table.requires_grad_() for table in hmm.parameters.values()))
    found = hmm.log_prob(wide[:1, :50_000]).sum()
    said(found.backward)


if __name__ == "__main__":
    main()
