"""Trees of a `TreebankGrammar`: drawing one, and the probability of a given one."""

from bisect import bisect_right
from collections.abc import Callable, Mapping
from itertools import accumulate
from math import fsum, inf, log, prod
from typing import NamedTuple

from rankspace.data.synthetic.grammar import TreebankGrammar, label
from rankspace.trees import Tree
from rankspace.trees.nodes import Assembly


class Draw(NamedTuple):
    """A tree, its log-probability under the grammar, and how many longer ones were thrown away before it."""

    tree: Tree
    log_prob: float
    num_rejected: int


class _Choice(NamedTuple):
    """What a symbol becomes: words for preterminals (one part), symbols otherwise."""

    limits: list[float]  # cumulative probabilities, of all but the last
    parts: list[tuple[str, ...]]
    log_probs: list[float]


class Sampler:
    """Draws trees from the top down, each choice by one number from `uniform`, which gives numbers in [0, 1)."""

    def __init__(self, grammar: TreebankGrammar) -> None:
        self.start = grammar.start
        self._words = {
            name: _choice({(word,): p for word, p in words.items()}) for name, words in grammar.words.items()
        }
        self._rules = {name: _choice(dict(expansions)) for name, expansions in grammar.rules.items()}

    def draw(self, uniform: Callable[[], float], max_length: int) -> Draw:
        """A tree of at most `max_length` words."""
        num_rejected = 0
        while (drawn := self._attempt(uniform, max_length)) is None:
            num_rejected += 1
        return Draw(*drawn, num_rejected)

    def _attempt(self, uniform: Callable[[], float], max_length: int) -> tuple[Tree, float] | None:
        """A tree and its log-probability; None as soon as it is too long."""
        assembly, log_prob = Assembly(), 0.0
        pending: list[str | None] = [self.start]  # None: a node ends here
        while pending and len(assembly.words) <= max_length:
            symbol = pending.pop()
            if symbol is None:
                assembly.close()
                continue
            is_word = symbol in self._words
            limits, parts, log_probs = self._words[symbol] if is_word else self._rules[symbol]
            chosen = bisect_right(limits, uniform())
            log_prob += log_probs[chosen]
            assembly.open(label(symbol))
            if is_word:
                assembly.word(parts[chosen][0])
                assembly.close()
            else:
                pending += [None, *reversed(parts[chosen])]
        if len(assembly.words) > max_length:
            return None
        return Tree(tuple(assembly.words), tuple(assembly.nodes)), log_prob


def tree_log_prob(tree: Tree, grammar: TreebankGrammar) -> float:
    """log p(tree), summed over the features that it does not show; -inf if the grammar cannot write it."""
    beliefs, log_scale = _symbols_over(tree, grammar)
    return log_scale + log(beliefs[grammar.start]) if grammar.start in beliefs else -inf


def _symbols_over(tree: Tree, grammar: TreebankGrammar) -> tuple[dict[str, float], float]:
    """The probability with which each symbol writes a tree, over exp(scale); symbols that cannot are left out."""
    children = tree.children
    if all(isinstance(child, Tree) for child in children):
        below = [_symbols_over(child, grammar) for child in children if isinstance(child, Tree)]
        found = _heads(tree, grammar, [symbols for symbols, _ in below])
    else:
        below = []
        found = {name: words.get(str(children[0]), 0.0) for name, words in grammar.words.items()}
    found = {name: p for name, p in found.items() if p and label(name) == tree.symbol}
    largest = max(found.values(), default=1.0)
    return {name: p / largest for name, p in found.items()}, log(largest) + sum(scale for _, scale in below)


def _heads(tree: Tree, grammar: TreebankGrammar, below: list[dict[str, float]]) -> dict[str, float]:
    return {
        symbol: fsum(
            probability * prod(symbols.get(part, 0.0) for symbols, part in zip(below, parts, strict=True))
            for parts, probability in expansions
            if len(parts) == len(below)
        )
        for symbol, expansions in grammar.rules.items()
        if label(symbol) == tree.symbol
    }


def _choice(probabilities: Mapping[tuple[str, ...], float]) -> _Choice:
    limits = list(accumulate(probabilities.values()))[:-1]
    return _Choice(limits, list(probabilities), [log(probability) for probability in probabilities.values()])
