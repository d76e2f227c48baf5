"""Many-to-one accuracy: how well induced tags (preterminals, states of an HMM) match given ones."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rankspace.errors import RankspaceError, ShapeError
from rankspace.evaluation.text_table import percentage, text_table
from rankspace.trees import Symbol, Tree

Tags = Sequence[str | int]


@dataclass(frozen=True)
class TagScores:
    """Accuracy in per cent once each induced tag stands for the gold tag it meets most often (`mapping`)."""

    accuracy: float
    num_words: int
    num_correct: int
    mapping: dict[str | int, str | int]

    def to_json(self) -> dict[str, Any]:
        """Plain objects, for `json.dumps`."""
        mapping = {str(tag): gold for tag, gold in self.mapping.items()}
        counts = {"num_words": self.num_words, "num_correct": self.num_correct, "num_tags": len(self.mapping)}
        return {"accuracy": self.accuracy, **counts, "mapping": mapping}

    def table(self) -> str:
        """The accuracy as text."""
        rows = [("many-to-one accuracy", percentage(self.accuracy)), ("words", str(self.num_words))]
        return text_table(("score", ""), [*rows, ("tags in use", str(len(self.mapping)))])


def many_to_one(gold: Sequence[Tags], predicted: Sequence[Tags]) -> TagScores:
    """Scores of the tags of sentences. Among gold tags met equally often the first in alphabetical order is taken.

    Raises ShapeError where numbers of sentences or of words do not match, RankspaceError if there are no words.
    """
    if len(gold) != len(predicted):
        raise ShapeError(f"many_to_one: {len(gold)} gold sentences but {len(predicted)} predicted; give one for each.")
    pairs = Counter[tuple[str | int, str | int]]()  # predicted, gold
    for place, (right, found) in enumerate(zip(gold, predicted, strict=True)):
        if len(right) != len(found):
            raise ShapeError(f"many_to_one: sentence {place} has {len(right)} gold tags but {len(found)} predicted.")
        pairs.update(zip(found, right, strict=True))
    if not pairs:
        raise RankspaceError("many_to_one: there are no words; give at least one.")
    best: dict[str | int, str | int] = {}
    for tag, partner in sorted(pairs, key=lambda pair: (-pairs[pair], str(pair[1]))):
        best.setdefault(tag, partner)
    num_words, num_correct = pairs.total(), sum(pairs[pair] for pair in best.items())
    return TagScores(100 * num_correct / num_words, num_words, num_correct, best)


def preterminals(tree: Tree) -> list[str | int]:
    """The lowest symbol over each word. Raises RankspaceError if a word has none of its own."""
    lowest: list[Symbol] = [None] * len(tree)
    for begin, end, symbol in tree.nodes:
        if end - begin == 1:
            lowest[begin] = symbol
    tags = [symbol for symbol in lowest if symbol is not None]
    if len(tags) < len(tree):
        place = lowest.index(None)
        raise RankspaceError(f"preterminals: word {place}, {tree.words[place]!r}, has no symbol of its own.")
    return tags
