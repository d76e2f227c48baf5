"""Perplexity by the conventions that papers use.

Trees: exp(-sum log p / sum (length + 1)), although a PCFG has no end-of-sentence word. Chains: the end of the sentence
is a word, so lengths count it. Where words are the same, both divide by the same number.
"""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from math import exp, fsum, inf, isnan
from typing import Any, SupportsFloat, SupportsInt

from rankspace.errors import RankspaceError, ShapeError
from rankspace.evaluation.text_table import text_table

ROUNDING = 1e-3  # log p above this is a mistake; below, float32 sums of a long sentence can end there


@dataclass(frozen=True)
class Perplexity:
    """A perplexity and what it is made of.

    One impossible sentence makes `perplexity` infinite; `of_possible` leaves such sentences out and means little
    without `num_impossible` beside it. Sentences that the model is not asked about are in `num_skipped` alone.
    """

    perplexity: float
    of_possible: float
    num_sentences: int  # scored, the impossible ones included
    num_predictions: int  # what the sum of log p of possible sentences is divided by
    num_impossible: int
    num_skipped: int
    log_prob: float  # sum over possible sentences

    def to_json(self) -> dict[str, Any]:
        """Plain objects, for `json.dumps`; infinity and nan as strings, which JSON has no numbers for."""
        return {name: _plain(value) for name, value in asdict(self).items()}

    def table(self) -> str:
        """The perplexity as text, and the sentences that do not count or make it infinite."""
        rows = [
            ("perplexity", f"{self.perplexity:.2f}"),
            ("of possible sentences", f"{self.of_possible:.2f}"),
            ("sentences scored", str(self.num_sentences)),
            ("impossible", str(self.num_impossible)),
            ("skipped", str(self.num_skipped)),
        ]
        return text_table(("score", ""), rows)


def tree_perplexity(
    log_probs: Iterable[SupportsFloat], lengths: Iterable[SupportsInt], shortest: int = 2
) -> Perplexity:
    """exp(-sum log p / sum (length + 1)) of sentences of `lengths` words.

    Sentences below `shortest` words are skipped and counted: grammars with nonterminals apart from preterminals cannot
    write one word. Raises ShapeError for different numbers of each, RankspaceError for log p that is nan or positive.
    """
    pairs = _pairs(log_probs, lengths)
    return _perplexity([(log_prob, length + 1) for log_prob, length in pairs if length >= shortest], len(pairs))


def chain_perplexity(log_probs: Iterable[SupportsFloat], lengths: Iterable[SupportsInt]) -> Perplexity:
    """exp(-sum log p / sum length), where sentences and `lengths` include the end of the sentence as a word."""
    pairs = _pairs(log_probs, lengths)
    return _perplexity(pairs, len(pairs))


def _perplexity(scored: list[tuple[float, int]], num_given: int) -> Perplexity:
    possible = [(log_prob, num) for log_prob, num in scored if log_prob > -inf]
    total, num_predictions = fsum(log_prob for log_prob, _ in possible), sum(num for _, num in possible)
    of_possible = _exp(-total / num_predictions) if num_predictions else float("nan")
    return Perplexity(
        perplexity=of_possible if len(possible) == len(scored) else inf,
        of_possible=of_possible,
        num_sentences=len(scored),
        num_predictions=num_predictions,
        num_impossible=len(scored) - len(possible),
        num_skipped=num_given - len(scored),
        log_prob=total,
    )


def _pairs(log_probs: Iterable[SupportsFloat], lengths: Iterable[SupportsInt]) -> list[tuple[float, int]]:
    values, sizes = [float(value) for value in log_probs], [int(size) for size in lengths]
    if len(values) != len(sizes):
        raise ShapeError(f"perplexity: there are {len(values)} log_probs but {len(sizes)} lengths; give one for each.")
    for place, value in enumerate(values):
        if isnan(value) or value > ROUNDING:
            raise RankspaceError(f"perplexity: log p of sentence {place} is {value}; it must be at most 0.")
    return list(zip(values, sizes, strict=True))


def _exp(value: float) -> float:
    """exp, infinite where a float cannot hold it."""
    try:
        return exp(value)
    except OverflowError:
        return inf


def _plain(value: float | int) -> float | int | str:
    return str(value) if value == inf or isnan(value) else value
