"""Every distribution on a GPU: what the CPU finds, the same bits twice, and every query runs there."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from torch import Tensor

from rankspace.distributions import HMM, HSMM, LHMM, LPCFG, PCFG, BlockHMM, RankSpaceHMM, RankSpacePCFG, SimplePCFG

pytestmark = pytest.mark.gpu

STATES, RANK, NONTERMINALS, PRETERMINALS, VOCABULARY = 12, 5, 4, 6, 9
SYMBOLS = NONTERMINALS + PRETERMINALS
LENGTHS = [7, 2, 5, 7, 1]
GPU = torch.device("cuda")


def table(*shape: int) -> Tensor:
    return 3 * torch.randn(shape, generator=GENERATOR, dtype=torch.float64)


def row(*shape: int) -> Tensor:
    return table(*shape).log_softmax(-1)


def pairs(*shape: int) -> Tensor:
    return table(*shape).flatten(-2).log_softmax(-1).reshape(shape)


GENERATOR = torch.Generator().manual_seed(0)
BLOCKS = torch.arange(VOCABULARY) % 3
EMISSION = row(PRETERMINALS, VOCABULARY)
CHAINS: Mapping[str, Any] = {
    "hmm": HMM(row(STATES), row(STATES, STATES), row(STATES, VOCABULARY)),
    "rank-hmm": RankSpaceHMM(row(STATES), row(STATES, RANK), row(RANK, STATES), row(RANK, VOCABULARY), order="rank"),
    "rank-hmm in state order": RankSpaceHMM(
        row(STATES), row(STATES, RANK), row(RANK, STATES), row(RANK, VOCABULARY), order="state"
    ),
    "lhmm": LHMM(row(STATES), row(STATES, RANK), row(RANK, STATES), row(STATES, VOCABULARY)),
    "block-hmm": BlockHMM(row(STATES), row(STATES, STATES), row(STATES, VOCABULARY // 3), BLOCKS),
    "hsmm": HSMM(row(STATES), row(STATES, STATES), row(STATES, VOCABULARY), row(STATES, 3)),
}
TREES: Mapping[str, Any] = {
    "pcfg": PCFG(row(NONTERMINALS), pairs(NONTERMINALS, SYMBOLS, SYMBOLS), EMISSION),
    "lpcfg": LPCFG(row(NONTERMINALS), row(NONTERMINALS, RANK), pairs(RANK, SYMBOLS, SYMBOLS), EMISSION),
    "simple-pcfg": SimplePCFG(row(NONTERMINALS), row(NONTERMINALS, SYMBOLS), row(NONTERMINALS, SYMBOLS), EMISSION),
    "rank-pcfg": RankSpacePCFG(
        row(NONTERMINALS), row(NONTERMINALS, RANK), row(RANK, SYMBOLS), row(RANK, SYMBOLS), EMISSION, order="rank"
    ),
    "rank-pcfg in state order": RankSpacePCFG(
        row(NONTERMINALS), row(NONTERMINALS, RANK), row(RANK, SYMBOLS), row(RANK, SYMBOLS), EMISSION, order="state"
    ),
}
WORDS = torch.randint(VOCABULARY, (len(LENGTHS), max(LENGTHS)), generator=GENERATOR)
ALL = {**CHAINS, **TREES}


def both(name: str, dtype: torch.dtype) -> tuple[Any, Any]:
    """A distribution on the CPU in float64, and on the GPU."""
    return ALL[name], ALL[name].to(dtype).to(GPU)


def counts(distribution: Any) -> dict[str, Tensor]:
    found: dict[str, Tensor] = distribution.expected_counts(WORDS.to(distribution.device), LENGTHS)
    return found


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", ALL)
def test_values_and_gradients_are_those_of_the_cpu(name: str, dtype: torch.dtype) -> None:
    cpu, gpu = both(name, dtype)
    close = {"rtol": 1e-4, "atol": 1e-4} if dtype == torch.float32 else {"rtol": 1e-9, "atol": 1e-9}
    found = gpu.log_prob(WORDS.to(GPU), LENGTHS)
    assert found.device.type == "cuda"
    torch.testing.assert_close(found.cpu().double(), cpu.log_prob(WORDS, LENGTHS), **close)
    expected = counts(cpu)
    for label, count in counts(gpu).items():
        torch.testing.assert_close(count.cpu().double(), expected[label], **close)


@pytest.mark.parametrize("name", ALL)
def test_the_same_bits_twice(name: str) -> None:
    _, gpu = both(name, torch.float32)
    assert torch.equal(gpu.log_prob(WORDS.to(GPU), LENGTHS), gpu.log_prob(WORDS.to(GPU), LENGTHS))
    first, second = counts(gpu), counts(gpu)
    assert all(torch.equal(first[label], second[label]) for label in first)


@pytest.mark.parametrize("name", ALL)
def test_entropies_are_those_of_the_cpu(name: str) -> None:
    cpu, gpu = both(name, torch.float64)
    torch.testing.assert_close(
        gpu.posterior_entropy(WORDS.to(GPU), LENGTHS).cpu(), cpu.posterior_entropy(WORDS, LENGTHS), rtol=1e-9, atol=1e-9
    )


@pytest.mark.parametrize("name", CHAINS)
def test_queries_of_chains(name: str) -> None:
    cpu, gpu = both(name, torch.float64)
    words = WORDS.to(GPU)
    query: Callable[[Any, Tensor], Tensor]
    for query in (
        lambda chain, given: chain.state_marginals(given, LENGTHS),
        lambda chain, given: chain.filter(given, LENGTHS),
        lambda chain, given: chain.surprisal(given, LENGTHS),
        lambda chain, given: chain.next_word(given, LENGTHS),
    ):
        torch.testing.assert_close(query(gpu, words).cpu(), query(cpu, WORDS), rtol=1e-9, atol=1e-9)
    best = "viterbi_joint" if hasattr(gpu, "viterbi_joint") else "viterbi"
    for on_gpu, on_cpu in zip(getattr(gpu, best)(words, LENGTHS), getattr(cpu, best)(WORDS, LENGTHS), strict=True):
        assert on_gpu.states.tolist() == on_cpu.states.tolist()
    generator = torch.Generator(GPU).manual_seed(0)
    assert len(gpu.sample_posterior(words, LENGTHS, num=3, generator=generator)) == len(LENGTHS)
    gpu.sample(4, 6, generator=generator)


@pytest.mark.parametrize("name", TREES)
def test_queries_of_trees(name: str) -> None:
    cpu, gpu = both(name, torch.float64)
    words = WORDS.to(GPU)
    query: Callable[[Any, Tensor], Tensor]
    for query in (
        lambda tree, given: tree.span_marginals(given, LENGTHS),
        lambda tree, given: tree.labelled_marginals(given, LENGTHS),
        lambda tree, given: tree.surprisal(given, LENGTHS, end=True),
        lambda tree, given: tree.next_word(given, LENGTHS),
    ):
        torch.testing.assert_close(query(gpu, words).cpu(), query(cpu, WORDS), rtol=1e-9, atol=1e-9)
    for labelled in (False, True):
        assert gpu.mbr(words, LENGTHS, labelled=labelled) == cpu.mbr(WORDS, LENGTHS, labelled=labelled)
    on_gpu, on_cpu = gpu.mbr_kbest(words, LENGTHS, k=3), cpu.mbr_kbest(WORDS, LENGTHS, k=3)
    assert [[tree for tree, _ in each] for each in on_gpu] == [[tree for tree, _ in each] for each in on_cpu]
    best = "viterbi_joint" if hasattr(gpu, "viterbi_joint") else "viterbi"
    assert getattr(gpu, best)(words, LENGTHS).trees == getattr(cpu, best)(WORDS, LENGTHS).trees
    generator = torch.Generator(GPU).manual_seed(0)
    assert len(gpu.sample_posterior(words, LENGTHS, num=3, generator=generator)) == len(LENGTHS)
    gpu.sample(4, 6, generator=generator)
    trees = [tree for tree in cpu.mbr(WORDS, LENGTHS) if tree is not None]
    padded = WORDS[:4]
    torch.testing.assert_close(
        gpu.log_joint(padded.to(GPU), trees).cpu(), cpu.log_joint(padded, trees), rtol=1e-9, atol=1e-9
    )
