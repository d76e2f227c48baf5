"""What the demonstration measures: parses against gold and its bounds, perplexities against the truth."""

import math
from dataclasses import dataclass
from typing import Any

from rankspace.demo.treebank import Treebank, ngram_perplexity
from rankspace.evaluation import Bounds, ParseScores, bounds, chain_perplexity, score, tree_perplexity
from rankspace.training import Trained

BOUNDS = {  # as `rankspace evaluate` names them
    "left_branching": "left-branching",
    "right_branching": "right-branching",
    "random": "random trees",
    "oracle": "binarised gold",
}


@dataclass(frozen=True)
class Scores:
    """Of the test sentences. Perplexities divide by the same number of predictions: words and ends of sentences."""

    parses: ParseScores
    bounds: Bounds
    perplexities: dict[str, float]

    @property
    def points_above_right_branching(self) -> float:
        """S-F1 of the grammar less that of right-branching."""
        return _number(self.parses.s_f1) - _number(self.bounds.right_branching.s_f1)

    @property
    def share_below_unigram(self) -> float:
        """By which share the HMM's perplexity is lower than that of the unigram model."""
        return 1 - self.perplexities["rank-hmm"] / self.perplexities["unigram"]

    @property
    def rows(self) -> list[tuple[str, float | None, float | None, float | None]]:
        """S-F1, S-F1 of sentences of more than two words and corpus F1: the grammar, then the bounds."""
        found = self.parses
        own = ("rank-pcfg", found.s_f1, found.s_f1_longer, found.corpus_f1)
        others = ((title, *self.bounds._asdict()[name]) for name, title in BOUNDS.items())
        return [own, *others]

    def to_json(self) -> dict[str, Any]:
        return {
            "parses": self.parses.to_json(),
            "bounds": self.bounds.to_json(),
            "perplexities": self.perplexities,
            "points_above_right_branching": self.points_above_right_branching,
            "share_below_unigram": self.share_below_unigram,
        }


def measure(grammar: Trained, chain: Trained, treebank: Treebank) -> Scores:
    """Scores on the test sentences."""
    sentences, lengths = treebank.sentences, [len(tree) for tree in treebank.test]
    return Scores(
        score(treebank.test, grammar.parse(sentences)),
        bounds(treebank.test),
        {
            "true grammar": treebank.true_perplexity,
            "rank-hmm": chain_perplexity(chain.log_prob(sentences), [n + 1 for n in lengths]).perplexity,
            "rank-pcfg": tree_perplexity(grammar.log_prob(sentences), lengths).perplexity,
            "trigram": ngram_perplexity(treebank.data, 3),
            "unigram": ngram_perplexity(treebank.data, 1),
        },
    )


def _number(value: float | None) -> float:
    return math.nan if value is None else value
