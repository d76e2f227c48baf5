"""Parses of sentences by a trained grammar, with what a reader may want to know of them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from jaxtyping import Float
from torch import Tensor

from rankspace.cli.symbols import with_names
from rankspace.models import Posed
from rankspace.training import Trained
from rankspace.training.together import Marginals, decoded
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


def parse_together(
    grammars: Sequence[Trained], marginals: Sequence[Marginals], sentences: Sequence[Words], wanted: Wanted
) -> list[Parsed]:
    """Parses from what the spans have under all grammars. The probability of a sentence is a matter of each; unknown
    are words that none of them knows."""
    found = decoded(sentences, marginals, wanted.num_best)
    results = []
    for words, trees, chart in zip(map(tuple, sentences), found, marginals, strict=True):
        candidates = [Candidate(tree, score if wanted.num_best > 1 else None) for tree, score in trees]
        parsed = Parsed(words, candidates)
        if wanted.details:
            unknown = set.intersection(*(set(unknown_places(each, words)) for each in grammars))
            probabilities = {} if chart is None else _probabilities(parsed, chart)
            parsed = replace(parsed, probabilities=probabilities, unknown=sorted(unknown))
        results.append(parsed)
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
        results[place] = replace(own, probabilities=_probabilities(own, marginals[row]), log_prob=log_probs[row])


def _probabilities(parsed: Parsed, marginals: Float[Tensor, "end end"]) -> dict[tuple[int, int], float]:
    """Of the spans of all trees; rounding may leave the marginals of some above one."""
    spans = sorted({(begin, end) for each in parsed.trees for begin, end, _ in each.tree.spans(min_width=2)})
    return {(begin, end): min(max(float(marginals[begin, end]), 0.0), 1.0) for begin, end in spans}
