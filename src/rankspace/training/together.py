"""Several trained grammars that parse together.

What a grammar takes for a constituent depends on the seed it began with, and which seed is right about a span differs
from span to span. A span that most grammars find probable is more often right than one that a single grammar does; no
gold tree is needed to know which these are.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

import torch
from jaxtyping import Float
from torch import Tensor

from rankspace.errors import RankspaceError
from rankspace.inference.decoding import best_trees
from rankspace.training.trained import Trained, Words
from rankspace.trees import Tree

Marginals = Float[Tensor, "_ _"] | None  # of one sentence, at its ends; None where it is impossible, or has no words
Scored = tuple[Tree, float]  # a tree, and the expected number of its spans (of two words or more) that are right

NUMBERS_TOGETHER = 2**20  # entries of charts that are decoded at a time


class Together:
    """Trained grammars whose spans have the mean of their probabilities under all of them.

    The grammars may be of different models, and each reads words by its own vocabulary. One that cannot produce a
    sentence has no part in its trees. Takes the time of all grammars, and memory for charts of one of them at a time.
    """

    def __init__(self, grammars: Sequence[Trained]) -> None:
        if not grammars:
            raise RankspaceError("Together: there is no grammar; give at least one.")
        for each in grammars:
            if each.kind != "tree":
                raise RankspaceError(f"Together: {each.model.NAME} is a {each.kind}; give grammars, which have trees.")
        self.grammars = list(grammars)

    def span_marginals(self, sentences: Sequence[Words]) -> list[Marginals]:
        """As `Trained.span_marginals`: the mean over the grammars that can produce a sentence; None if none can."""
        return mean_marginals(each.span_marginals(sentences) for each in self.grammars)

    def parse(self, sentences: Sequence[Words]) -> list[Tree | None]:
        """As `Trained.parse`: the tree of each sentence with the largest expected number of correct spans."""
        return best_of(sentences, self.span_marginals(sentences))


def mean_marginals(of_grammars: Iterable[Sequence[Marginals]]) -> list[Marginals]:
    """Of each sentence the mean over the grammars that have marginals of it. Keeps a sum for each sentence, and what
    one grammar gives."""
    sums: dict[int, Tensor] = {}
    counts: Counter[int] = Counter()
    num = 0
    for marginals in of_grammars:
        num = len(marginals)
        for place, chart in enumerate(marginals):
            if chart is not None:
                sums[place] = chart + sums[place] if place in sums else chart
                counts[place] += 1
    return [sums[place] / counts[place] if place in sums else None for place in range(num)]


def best_of(sentences: Sequence[Words], marginals: Sequence[Marginals]) -> list[Tree | None]:
    """The tree of each sentence with the largest expected number of correct spans; None without marginals."""
    return [trees[0][0] if trees else None for trees in decoded(sentences, marginals, k=1)]


def decoded(sentences: Sequence[Words], marginals: Sequence[Marginals], k: int) -> list[list[Scored]]:
    """The k trees of each sentence with the largest expected numbers of correct spans, the best first; none where
    there are no marginals, and fewer where a sentence has fewer trees. One word has the trivial tree."""
    results: list[list[Scored]] = [[] for _ in sentences]
    for places in _batches(sentences, marginals, NUMBERS_TOGETHER // k):
        lengths = [len(sentences[place]) for place in places]
        best = best_trees(_padded([marginals[place] for place in places]), lengths, k)
        for place, brackets, totals in zip(places, best.brackets, best.totals.tolist(), strict=True):
            trees = [Tree.from_spans(sentences[place], spans) for spans in brackets]
            results[place] = list(zip(trees, totals, strict=False))
    return results


def _padded(charts: Sequence[Marginals]) -> Float[Tensor, "batch end end"]:
    """With zeros, which no tree reads."""
    found = [chart for chart in charts if chart is not None]
    table = torch.zeros(len(found), *(max(len(chart) for chart in found),) * 2, dtype=torch.float64)
    for row, chart in zip(table, found, strict=True):
        row[: len(chart), : len(chart)] = chart
    return table


def _batches(sentences: Sequence[Words], marginals: Sequence[Marginals], most: int) -> Iterator[list[int]]:
    """Places of sentences that are decoded at the same time, short ones first: so many entries of charts."""
    possible = [place for place, each in enumerate(marginals) if each is not None]
    order = sorted(possible, key=lambda place: len(sentences[place]))
    begins = [0]
    for number, place in enumerate(order):
        if (number + 1 - begins[-1]) * (len(sentences[place]) + 1) ** 2 > most and number > begins[-1]:
            begins.append(number)
    for begin, end in pairwise([*begins, len(order)]):
        if begin < end:
            yield order[begin:end]
