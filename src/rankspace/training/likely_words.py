"""The most likely words of what emits words in a model: preterminals, states or ranks, and how much each is used."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from rankspace.data.corpus import Corpus
from rankspace.distributions import BlockHMM, RankSpaceHMM
from rankspace.training.trained import Trained

ROWS = 1024  # of the emission table at a time
NUM_DRAWN, MAX_LENGTH = 1000, 40  # sentences whose use is counted where there are no data


class LikelyWords(NamedTuple):
    """One emitter: its name, the share of all words that it emits, and its words with their probabilities."""

    name: str
    share: float
    words: list[tuple[str, float]]


def likely_words(
    trained: Trained, num_words: int, num_states: int | None, corpus: Corpus | None, seed: int
) -> list[LikelyWords]:
    """The most used emitters, the most used one first, with their most likely words.

    Shares are those of words of a corpus, in expectation, or of 1,000 sentences of at most 40 words drawn from the
    model. A compound model is taken at the mean of its prior.
    """
    distribution: Any = trained.distribution()
    use = _use_in(trained, corpus) if corpus is not None else _use_drawn(distribution, seed)
    shares = (use / use.sum()).tolist() if float(use.sum()) else [0.0] * len(use)
    order = sorted(range(len(shares)), key=lambda place: (-shares[place], place))[:num_states]
    kind = "PT" if trained.kind == "tree" else "rank" if isinstance(distribution, RankSpaceHMM) else "state"
    found = zip(order, _top(distribution, order, num_words), strict=True)
    return [LikelyWords(f"{kind}-{place}", shares[place], _decoded(trained, *pairs)) for place, pairs in found]


def _decoded(trained: Trained, numbers: list[int], log_probs: list[float]) -> list[tuple[str, float]]:
    words = trained.vocabulary.decode(numbers)
    pairs = zip(words, torch.tensor(log_probs).exp().clamp(max=1).tolist(), strict=True)
    return [(word, value) for word, value in pairs if value > 0]


def _top(distribution: Any, order: Sequence[int], num_words: int) -> Iterator[tuple[list[int], list[float]]]:
    """Numbers and log-probabilities of the likeliest words of some emitters."""
    table = distribution.parameters["log_emission"]
    for begin in range(0, len(order), ROWS):
        some = torch.tensor(order[begin : begin + ROWS], device=table.device)
        values, columns = table[some].topk(min(num_words, table.shape[1]), dim=1)
        if isinstance(distribution, BlockHMM):
            columns = _words_of_blocks(distribution, some)[torch.arange(len(some))[:, None], columns.cpu()]
        yield from zip(columns.tolist(), values.tolist(), strict=True)


def _words_of_blocks(distribution: BlockHMM, states: Int[Tensor, "state"]) -> Int[Tensor, "state column"]:
    """The word of each column of each state's row; any word where the block has none, for it is impossible there."""
    blocks = distribution.blocks
    words = torch.zeros(blocks.num, distribution.sizes["column"], dtype=torch.int64)
    words[blocks.of_word.cpu(), blocks.column.cpu()] = torch.arange(distribution.vocabulary)
    return words[states.cpu() // blocks.size]


def _use_in(trained: Trained, corpus: Corpus) -> Float[Tensor, "emitter"]:
    """How many words of a corpus each emits, in expectation."""
    total: Tensor | None = None
    shortest = 2 if trained.kind == "tree" else 1
    sentences = [corpus.words(number) for number in range(len(corpus)) if corpus.lengths[number] >= shortest]
    for _, posed in trained.posed(sentences):
        counts = posed.distribution.expected_counts(posed.words, posed.lengths)["log_emission"].double().sum(-1)
        counts = counts.reshape(-1, counts.shape[-1]).sum(0)  # of all sentences, where each has a table of its own
        total = counts if total is None else total + counts
    assert total is not None  # a corpus has sentences
    return total.cpu()


def _use_drawn(distribution: Any, seed: int) -> Float[Tensor, "emitter"]:
    generator = torch.Generator(distribution.device).manual_seed(seed)
    drawn = distribution.sample(NUM_DRAWN, MAX_LENGTH, generator)
    if hasattr(drawn, "trees"):
        first, num = distribution.num_nonterminals, distribution.num_preterminals
        nodes = [node for tree in drawn.trees if tree is not None for node in tree.nodes]
        numbers = torch.tensor([node.symbol - first for node in nodes if node.symbol >= first], dtype=torch.int64)
    else:
        emitters = drawn.ranks if isinstance(distribution, RankSpaceHMM) else drawn.states
        numbers, num = emitters[emitters >= 0].cpu(), distribution.parameters["log_emission"].shape[0]
    return torch.bincount(numbers, minlength=num).double()
