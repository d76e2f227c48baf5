"""Scores of a trained model on prepared data: perplexity, parsing beside its bounds, accuracy of induced tags."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from rankspace.data.corpus import Corpus
from rankspace.devices import is_gpu
from rankspace.evaluation import (
    Bounds,
    ParseScores,
    Perplexity,
    TagScores,
    bounds,
    chain_perplexity,
    many_to_one,
    score,
    tree_perplexity,
)
from rankspace.training import Trained
from rankspace.trees import Tree

Say = Callable[[str, int | None], None]  # a step, and how many sentences it goes through
Tags = list[list[int]]


@dataclass(frozen=True)
class Scores:
    """All scores; None where the model or the data have nothing to score."""

    perplexity: Perplexity | None = None  # of grammars that parse together there is none
    parsing: ParseScores | None = None
    bounds: Bounds | None = None
    tags: TagScores | None = None

    def to_json(self) -> dict[str, Any]:
        parts = {name: getattr(self, name) for name in ("perplexity", "parsing", "bounds", "tags")}
        return {name: None if part is None else part.to_json() for name, part in parts.items()}


def evaluate_model(trained: Trained, corpus: Corpus, numbers: Sequence[int], seed: int, say: Say) -> Scores:
    """Scores on sentences of a corpus whose vocabulary is the model's; `seed` is that of what is drawn at random."""
    sentences = [corpus.words(number) for number in numbers]
    with torch.random.fork_rng([trained.device] if is_gpu(trained.device) else []):
        torch.manual_seed(seed)
        say("perplexity", len(sentences))
        perplexity = _perplexity(trained, sentences)
        if corpus.gold is None:
            return Scores(perplexity)
        say("tags", len(sentences))
        tags = _tag_scores(trained, sentences, [corpus.tags(number) or [] for number in numbers])
        if trained.kind == "chain":
            return Scores(perplexity, tags=tags)
        say("parses", len(sentences))
        gold, lengths = [corpus.spans(number) or [] for number in numbers], [len(words) for words in sentences]
        parsing = score(gold, trained.parse(sentences), lengths)
        say("bounds", None)
        return Scores(perplexity, parsing, bounds(gold, lengths, seed), tags)


def evaluate_together(corpus: Corpus, numbers: Sequence[int], trees: Sequence[Tree | None], seed: int) -> Scores:
    """Scores of trees that several grammars found together."""
    gold, lengths = [corpus.spans(number) or [] for number in numbers], [int(corpus.lengths[each]) for each in numbers]
    return Scores(parsing=score(gold, trees, lengths), bounds=bounds(gold, lengths, seed))


def _perplexity(trained: Trained, sentences: Sequence[list[str]]) -> Perplexity:
    log_probs, lengths = trained.log_prob(sentences), [len(words) for words in sentences]
    if trained.kind == "tree":
        return tree_perplexity(log_probs, lengths)
    return chain_perplexity(log_probs, [length + (trained.eos is not None) for length in lengths])


def _tag_scores(trained: Trained, sentences: Sequence[list[str]], gold: Sequence[list[str]]) -> TagScores | None:
    """Of the words with a gold tag, in sentences that the model can produce."""
    right: list[list[str]] = []
    found: Tags = []
    for own, given in zip(induced_tags(trained, sentences), gold, strict=True):
        pairs = [(tag, name) for tag, name in zip(own, given, strict=bool(own)) if name]
        found.append([tag for tag, _ in pairs])
        right.append([name for _, name in pairs])
    return many_to_one(right, found) if any(right) else None


def induced_tags(trained: Trained, sentences: Sequence[list[str]]) -> Tags:
    """The most probable preterminal or state of each word by its posterior; none of an impossible sentence."""
    results: Tags = [[] for _ in sentences]
    for part, posed in trained.posed(sentences):
        lengths = [len(sentences[place]) for place in part.places]
        places = [(row, time) for row, length in enumerate(lengths) for time in range(length)]
        query = _preterminals if trained.kind == "tree" else _states
        probability, tags = query(posed, torch.tensor(places, dtype=torch.int64).reshape(-1, 2)).max(1)
        for (row, _), tag, value in zip(places, tags.tolist(), probability.tolist(), strict=True):
            if value > 0:
                results[part.places[row]].append(tag)
    return results


def _preterminals(posed: Any, places: Tensor) -> Tensor:
    spans = torch.cat([places, places[:, 1:] + 1], 1)
    table: Tensor = posed.distribution.labelled_marginals(posed.words, posed.lengths, spans)
    return table[:, posed.distribution.num_nonterminals :]


def _states(posed: Any, places: Tensor) -> Tensor:
    table: Tensor = posed.distribution.state_marginals(posed.words, posed.lengths, positions=places)
    return table
