"""N-gram models as references for perplexities: interpolated Kneser-Ney with one discount for each order.

With c the counts of n-grams and d the discount, which is n_1 / (n_1 + 2 n_2) for n_1 and n_2 n-grams counted once and
twice (Ney, Essen & Kneser 1994) unless it is given,

    p(w | context) = max(c(context w) - d, 0) / c(context) + d n(context) / c(context) p(w | shorter context)

where c(context) sums c over words and n counts the different words seen there. The highest order counts occurrences,
lower orders the different words to the left (Kneser & Ney 1995). Below the unigrams stands the uniform distribution
over the words of the training text, the end of the sentence and one unknown word. A context that was not seen passes
everything on. Sentences are preceded by order - 1 marks, and their end is predicted.
"""

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Sequence
from functools import cached_property
from math import log

from rankspace.errors import RankspaceError
from rankspace.evaluation.perplexity import Perplexity, chain_perplexity

DISCOUNT = 0.75  # where nothing was counted once, or nothing twice: a usual value


class _Mark:
    """A word of its own kind, equal to nothing else."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return self.name


BEGIN, END = _Mark("<begin>"), _Mark("<end>")
Context = tuple[Hashable, ...]


class NgramModel:
    """An n-gram model of some sentences; `order` 1 is a unigram model. Words are anything hashable.

    Training is linear in the text times the order, and so is scoring.
    """

    def __init__(self, sentences: Iterable[Sequence[Hashable]], order: int, discount: float | None = None) -> None:
        if order < 1:
            raise RankspaceError(f"NgramModel: order is {order}; give 1 or more.")
        if discount is not None and not 0 < discount < 1:
            raise RankspaceError(f"NgramModel: discount is {discount}; give a number between 0 and 1.")
        self.order = order
        self._counts = _counts([self._padded(sentence) for sentence in sentences], order)
        self.discounts = [_discount(table) if discount is None else discount for table in self._counts]
        if not self.num_words:
            raise RankspaceError("NgramModel: there are no sentences to count; give at least one.")

    @property
    def num_words(self) -> int:
        """Different words of the training text, the end of the sentence among them."""
        return len(self._counts[0].get((), {}))

    def prob(self, word: Hashable, context: Sequence[Hashable]) -> float:
        """p(word | context), of which the last order - 1 words count. A word that was not seen is the unknown one."""
        probability = 1 / (self.num_words + 1)
        for width in range(min(self.order, len(context) + 1)):
            nearest = tuple(context[len(context) - width :])
            seen = self._counts[width].get(nearest)
            if seen is None:
                break
            total = self._totals[width][nearest]
            discount = self.discounts[width]
            kept = max(seen.get(word, 0) - discount, 0.0)
            probability = (kept + discount * len(seen) * probability) / total
        return probability

    def log_prob(self, sentence: Sequence[Hashable]) -> float:
        """log p of a sentence and its end."""
        words, width = self._padded(sentence), self.order - 1
        return sum(log(self.prob(words[at], words[at - width : at])) for at in range(width, len(words)))

    def perplexity(self, sentences: Iterable[Sequence[Hashable]]) -> Perplexity:
        """By the convention of chains: the end of the sentence is a word."""
        sentences = list(sentences)
        return chain_perplexity(map(self.log_prob, sentences), [len(sentence) + 1 for sentence in sentences])

    @cached_property
    def _totals(self) -> list[dict[Context, int]]:
        return [{context: sum(words.values()) for context, words in table.items()} for table in self._counts]

    def _padded(self, sentence: Sequence[Hashable]) -> Context:
        return (BEGIN,) * (self.order - 1) + tuple(sentence) + (END,)


def _discount(table: dict[Context, dict[Hashable, int]]) -> float:
    frequency = Counter(count for words in table.values() for count in words.values())
    once, twice = frequency[1], frequency[2]
    return once / (once + 2 * twice) if once and twice else DISCOUNT


def _counts(sentences: Iterable[Context], order: int) -> list[dict[Context, dict[Hashable, int]]]:
    """For contexts of 0, ..., order - 1 words: how often, or after how many different words, each word follows."""
    tables: list[dict[Context, dict[Hashable, int]]] = [defaultdict(lambda: defaultdict(int)) for _ in range(order)]
    for words in sentences:
        for place in range(order - 1, len(words)):
            context, word = words[place - order + 1 : place], words[place]
            for width in range(order - 1, -1, -1):
                followers = tables[width][context[order - 1 - width :]]
                followers[word] += 1
                if followers[word] > 1:  # seen before with this word to its left: it counts once for shorter contexts
                    break
    return [{context: dict(words) for context, words in table.items()} for table in tables]
