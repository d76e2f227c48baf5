"""Exact string probabilities under a `TreebankGrammar`: the inside algorithm on its binarised rules, in float64.

Sentences of one length go through the chart together, width by width.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from math import log

import numpy as np
from jaxtyping import Float, Int

from rankspace.data.synthetic.binarisation import binarise
from rankspace.data.synthetic.grammar import TreebankGrammar
from rankspace.errors import RankspaceError

Array = np.ndarray
CHART_NUMBERS = 2**20  # at most this many numbers of a chart at once (8 MiB), so that they stay in the cache
IMPOSSIBLE = -(2**28)  # the power of two of a span that is nothing; below any other, and sums of two fit in 32 bits


class InsideAlgorithm:
    """Probabilities of sentences, and of their lengths.

    A sentence of n words costs n^3/6 times the number of binary rules without preterminals, and memory n^2 times it.
    """

    def __init__(self, grammar: TreebankGrammar) -> None:
        self.grammar = grammar
        self._binary = binarise(grammar)
        self._start = self._binary.symbols[grammar.start]
        self._emission = self._emissions()

    def log_prob(self, sentences: Sequence[Sequence[str]]) -> Float[Array, " sentence"]:
        """log p of each sentence, -inf where the grammar cannot write it. Raises RankspaceError if one is empty."""
        result = np.full(len(sentences), -np.inf)
        for places in self._batches(sentences):
            emission = np.stack([self._word_vectors(sentences[place]) for place in places])
            *_, result[places] = self._log_tops(emission @ self._binary.above_word)
        return result

    def length_probabilities(self, longest: int) -> Float[Array, " length"]:
        """p(a sentence has 0, 1, ..., longest words): the inside algorithm with words of all kinds at once."""
        any_word = np.ones((1, longest, len(self.grammar.words)))
        log_tops = self._log_tops(any_word @ self._binary.above_word)
        return np.asarray(np.exp(np.concatenate([[-np.inf], *log_tops])))

    def _emissions(self) -> dict[str, Float[Array, " preterminal"]]:
        table: dict[str, Array] = defaultdict(lambda: np.zeros(len(self.grammar.words)))
        for position, words in enumerate(self.grammar.words.values()):
            for word, probability in words.items():
                table[word][position] = probability
        return dict(table)

    def _word_vectors(self, sentence: Sequence[str]) -> Float[Array, "length preterminal"]:
        unknown = np.zeros(len(self.grammar.words))
        return np.stack([self._emission.get(word, unknown) for word in sentence])

    def _batches(self, sentences: Sequence[Sequence[str]]) -> list[list[int]]:
        """Places of sentences of one length, as many together as the memory for charts allows."""
        by_length: dict[int, list[int]] = defaultdict(list)
        for place, sentence in enumerate(sentences):
            if not sentence:
                raise RankspaceError(f"log_prob: sentence {place} has no words; give at least one.")
            by_length[len(sentence)].append(place)
        batches = []
        for length, places in sorted(by_length.items()):
            size = max(1, CHART_NUMBERS // (length * (length + 1) * self._binary.num_pairs))
            batches += [places[begin : begin + size] for begin in range(0, len(places), size)]
        return batches

    def _log_tops(self, spans: Float[Array, "batch length symbol"]) -> Iterator[Float[Array, " batch"]]:
        """log p of the start symbol over the first 1, 2, ... words, given the symbols over single words.

        A span is kept as numbers of which the largest is in [1/2, 1), and a power of two.
        """
        _, first, last, wide, _ = self._binary
        spans, power = _scaled(spans, np.zeros(spans.shape[:2], dtype=int))
        words, powers = spans, [power]
        lefts, rights = [spans[..., wide.left]], [spans[..., wide.right]]  # by width, from 1, as powers
        yield self._log_top(spans, power)
        for width in range(2, words.shape[1] + 1):
            num = words.shape[1] - width + 1
            weights, power = _weights([(powers[left - 1], powers[width - left - 1]) for left in range(1, width)], num)
            pairs = np.zeros((len(spans), num, len(wide.left)))
            for left, weight in enumerate(weights, start=1):  # the right part begins `left` words later
                pairs += weight * lefts[left - 1][:, :num] * rights[width - left - 1][:, left : left + num]
            after_word = weights[0] * words[:, :num, first.left] * spans[:, 1:, first.right]
            before_word = weights[-1] * spans[:, :-1, last.left] * words[:, width - 1 :, last.right]
            spans, power = _scaled(pairs @ wide.above + after_word @ first.above + before_word @ last.above, power)
            powers.append(power)
            lefts.append(spans[..., wide.left])
            rights.append(spans[..., wide.right])
            yield self._log_top(spans, power)

    def _log_top(
        self, spans: Float[Array, "batch span symbol"], power: Int[Array, "batch span"]
    ) -> Float[Array, " batch"]:
        with np.errstate(divide="ignore"):  # log 0 is -inf, as it should be
            return np.asarray(np.log(spans[:, 0, self._start]) + power[:, 0] * log(2))


def _scaled(
    spans: Float[Array, "batch span symbol"], power: Int[Array, "batch span"]
) -> tuple[Float[Array, "batch span symbol"], Int[Array, "batch span"]]:
    """The same spans with the largest number of each in [1/2, 1), and their powers of two. This does not round."""
    largest = spans.max(axis=2)
    _, exponent = np.frexp(largest)
    return np.ldexp(spans, -exponent[..., None]), np.where(largest > 0, power + exponent, IMPOSSIBLE)


def _weights(
    parts: Sequence[tuple[Int[Array, "batch _"], Int[Array, "batch _"]]], num: int
) -> tuple[Float[Array, "split batch span 1"], Int[Array, "batch span"]]:
    """How much each division of spans weighs beside the largest, by powers of two, and the largest power."""
    sums = np.stack([lefts[:, :num] + rights[:, at : at + num] for at, (lefts, rights) in enumerate(parts, start=1)])
    largest = sums.max(axis=0)
    return np.ldexp(1.0, sums - largest)[..., None], largest
