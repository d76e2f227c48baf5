"""Parses of sentences by a trained grammar, with what a reader may want to know of them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from rankspace.cli.symbols import with_names
from rankspace.models import Posed
from rankspace.training import Trained
from rankspace.training.trained import Part
from rankspace.trees import Tree

Words = Sequence[str]


class Wanted(NamedTuple):
    """What is asked for. `labels`: symbols of the grammar. `details`: all that `Parsed` has besides trees."""

    labels: bool = False
    num_best: int = 1
    details: bool = False


class Candidate(NamedTuple):
    """A tree, and the expected number of its spans (of two words or more) that are right, if several were wanted."""

    tree: Tree
    score: float | None = None


@dataclass(frozen=True)
class Parsed:
    """A sentence and its trees, the best first; none for one that is impossible, left out, or has no words."""

    words: tuple[str, ...]
    trees: list[Candidate] = field(default_factory=list)
    probabilities: dict[tuple[int, int], float] = field(default_factory=dict)  # of the spans of all these trees
    log_prob: float | None = None
    unknown: list[int] = field(default_factory=list)  # places of words that the model reads as <unk>


def parse_all(trained: Trained, sentences: Sequence[Words], wanted: Wanted) -> list[Parsed]:
    """Parses of all sentences in their order; one word has the trivial tree."""
    results = [_trivial(trained, tuple(words), wanted) for words in sentences]
    long = [place for place, words in enumerate(sentences) if len(words) > 1]
    for part, posed in trained.posed([sentences[place] for place in long]):
        places = [long[place] for place in part.places]
        found = _candidates(posed, [tuple(sentences[place]) for place in places], wanted)
        for place, candidates in zip(places, found, strict=True):
            results[place] = replace(results[place], trees=candidates)
        if wanted.details:
            _add_details(trained, part, posed, places, results)
    return results


def unknown_places(trained: Trained, words: Words) -> list[int]:
    """Places of words that the model reads as <unk>."""
    numbers = trained.encode([words])[0][0].tolist() if words else []
    return [place for place in range(len(words)) if numbers[place] == trained.vocabulary.unk]


def _trivial(trained: Trained, words: tuple[str, ...], wanted: Wanted) -> Parsed:
    score = 0.0 if wanted.num_best > 1 else None
    trees = [Candidate(Tree.from_spans(words, []), score)] if len(words) == 1 else []
    unknown = unknown_places(trained, words) if wanted.details else []
    return Parsed(words, trees, log_prob=float("-inf") if words else None, unknown=unknown)


def _candidates(posed: Posed, sentences: Sequence[tuple[str, ...]], wanted: Wanted) -> list[list[Candidate]]:
    query: Any = posed.distribution
    if wanted.num_best > 1:
        found = query.mbr_kbest(posed.words, posed.lengths, k=wanted.num_best)
    else:
        trees = query.mbr(posed.words, posed.lengths, labelled=wanted.labels)
        found = [[] if tree is None else [(tree, None)] for tree in trees]
    return [
        [Candidate(_worded(tree, words, query.num_nonterminals), score) for tree, score in each]
        for words, each in zip(sentences, found, strict=True)
    ]


def _worded(tree: Tree, words: tuple[str, ...], num_nonterminals: int) -> Tree:
    return with_names(Tree(words, tree.nodes), num_nonterminals)


def _add_details(trained: Trained, part: Part, posed: Posed, places: Iterable[int], results: list[Parsed]) -> None:
    import torch

    query: Any = posed.distribution
    with torch.no_grad():
        log_probs = trained.model.log_prob(part.words, part.lengths).tolist()
    marginals = query.span_marginals(posed.words, posed.lengths).cpu()
    for row, place in enumerate(places):
        own = results[place]
        spans = sorted({(begin, end) for each in own.trees for begin, end, _ in each.tree.spans(min_width=2)})
        values = [float(marginals[row, begin, end]) for begin, end in spans]
        probabilities = {span: min(max(value, 0.0), 1.0) for span, value in zip(spans, values, strict=True)}  # rounding
        results[place] = replace(own, probabilities=probabilities, log_prob=log_probs[row])
