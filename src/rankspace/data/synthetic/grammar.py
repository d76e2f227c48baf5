"""A grammar that writes labelled trees: normalised rules of any arity over symbols with features, and a lexicon."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import fsum, isclose, log
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from rankspace.data.synthetic.lexicon import Words, lexicon
from rankspace.data.synthetic.rules import RULES, Line, expand
from rankspace.errors import GrammarError

START = "S"


class Expansion(NamedTuple):
    """What a symbol can become: symbols, or for a preterminal one word."""

    parts: tuple[str, ...]
    probability: float


def label(symbol: str) -> str:
    """What a tree shows of a symbol: VP of VP.gap.sg."""
    return symbol.partition(".")[0]


@dataclass(frozen=True)
class TreebankGrammar:
    """A PCFG whose symbols all appear in its trees, by their labels.

    `rules` maps each nonterminal to its expansions, `words` each preterminal to its words; both in a fixed order.
    Raises GrammarError if a symbol has no expansion, probabilities do not sum to one, or the expected length of a
    sentence is infinite.
    """

    rules: Mapping[str, tuple[Expansion, ...]]
    words: Mapping[str, Words]
    start: str = START

    def __post_init__(self) -> None:
        for symbol, expansions in self.rules.items():
            _check_normalised(symbol, [expansion.probability for expansion in expansions])
            for part in {part for expansion in expansions for part in expansion.parts}:
                if part not in self.rules and part not in self.words:
                    raise GrammarError(f"TreebankGrammar: {symbol} uses {part}, which has no rules and no words.")
        for preterminal, words in self.words.items():
            _check_normalised(preterminal, words.values())
        if max(abs(np.linalg.eigvals(self._means))) >= 1:
            raise GrammarError("TreebankGrammar: sentences have infinite expected length; give recursive rules less.")

    @cached_property
    def nonterminals(self) -> tuple[str, ...]:
        return tuple(self.rules)

    @cached_property
    def vocabulary(self) -> tuple[str, ...]:
        """All words, sorted."""
        return tuple(sorted({word for words in self.words.values() for word in words}))

    @cached_property
    def num_rules(self) -> int:
        return sum(map(len, self.rules.values()))

    @cached_property
    def expected_counts(self) -> dict[str, float]:
        """How often each symbol occurs in a tree on average, preterminals too: counts = start + means^T counts."""
        symbols = self.nonterminals
        begin = np.array([float(symbol == self.start) for symbol in symbols])
        solved = np.linalg.solve(np.eye(len(symbols)) - self._means.T, begin)
        counts = {symbol: float(count) for symbol, count in zip(symbols, solved, strict=True)}
        counts |= dict.fromkeys(self.words, 0.0)
        for symbol in symbols:
            for parts, probability in self.rules[symbol]:
                for part in parts:
                    counts[part] += counts[symbol] * probability if part in self.words else 0.0
        return counts

    @property
    def expected_length(self) -> float:
        """The mean number of words of a sentence, of any length."""
        return fsum(self.expected_counts[preterminal] for preterminal in self.words)

    @property
    def tree_entropy(self) -> float:
        """The expected -log p(tree): entropies of the expansions, as often as these are expected."""
        counts = self.expected_counts
        choices = {symbol: [expansion.probability for expansion in self.rules[symbol]] for symbol in self.rules}
        choices |= {preterminal: list(words.values()) for preterminal, words in self.words.items()}
        return fsum(-counts[symbol] * p * log(p) for symbol, chances in choices.items() for p in chances)

    @cached_property
    def _means(self) -> Float[np.ndarray, "parent child"]:
        """The expected number of each nonterminal among the children of each."""
        place = {symbol: position for position, symbol in enumerate(self.rules)}
        means = np.zeros((len(place), len(place)))
        for symbol, expansions in self.rules.items():
            for parts, probability in expansions:
                for part in parts:
                    if part in place:
                        means[place[symbol], place[part]] += probability
        return means


def normalised(lines: Iterable[Line]) -> dict[str, tuple[Expansion, ...]]:
    """Rules with the weights of each left-hand side made to sum to one."""
    weights: dict[str, dict[tuple[str, ...], float]] = {}
    for weight, lhs, rhs in lines:
        expansions = weights.setdefault(lhs, {})
        expansions[rhs] = expansions.get(rhs, 0.0) + weight
    return {
        lhs: tuple(Expansion(rhs, weight / fsum(expansions.values())) for rhs, weight in expansions.items())
        for lhs, expansions in weights.items()
    }


def english() -> TreebankGrammar:
    """The grammar of the synthetic treebank."""
    return TreebankGrammar(normalised(expand(RULES)), lexicon())


def _check_normalised(symbol: str, probabilities: Iterable[float]) -> None:
    total = fsum(probabilities)
    if not isclose(total, 1, rel_tol=1e-12):  # rounding of a few divisions
        raise GrammarError(f"TreebankGrammar: the expansions of {symbol} sum to {total}; they must sum to 1.")
