"""A `TreebankGrammar` as binary rules: what its inside algorithm runs on.

Rules with several children are binarised from the right by symbols that stand for what remains, shared among rules.
Chains of unary rules are summed in closed form, (I - unary)^-1, and multiplied into what stands below them.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from rankspace.data.synthetic.grammar import TreebankGrammar

Array = np.ndarray
Above = dict[tuple[str, ...], dict[str, float]]  # children -> the symbols that may stand above them


class Pairs(NamedTuple):
    """Pairs of children by their numbers, and which symbols stand above each, with what probability."""

    left: Int[Array, " pair"]
    right: Int[Array, " pair"]
    above: Float[Array, "pair symbol"]


class BinaryRules(NamedTuple):
    """Symbols are numbered with preterminals first. Pairs are sorted by what they need: a preterminal covers one word,
    so pairs with one have a single place to be divided, and few pairs have them all."""

    symbols: dict[str, int]
    word_first: Pairs  # the left child is a preterminal
    word_last: Pairs  # the right child alone is one
    wide: Pairs
    above_word: Float[Array, "preterminal symbol"]

    @property
    def num_pairs(self) -> int:
        return sum(len(pairs.left) for pairs in (self.word_first, self.word_last, self.wide))


def binarise(grammar: TreebankGrammar) -> BinaryRules:
    """The binary rules of a grammar, with the same probability for each sentence."""
    binary: Above = defaultdict(dict)
    unary: Above = defaultdict(dict)
    for lhs, expansions in grammar.rules.items():
        for parts, probability in expansions:
            _add(parts, lhs, probability, binary, unary)
    heads = [head for above in binary.values() for head in above]
    symbols = {name: number for number, name in enumerate(dict.fromkeys([*grammar.words, *grammar.rules, *heads]))}
    closure = np.linalg.inv(np.eye(len(symbols)) - _matrix([unary[name,] for name in symbols], symbols))

    def pairs(left_is_word: bool, *right_is_word: bool) -> Pairs:
        chosen = [
            (left, right)
            for left, right in binary
            if (left in grammar.words) == left_is_word and (right in grammar.words) in right_is_word
        ]
        left, right = (np.array([symbols[pair[side]] for pair in chosen], dtype=int) for side in (0, 1))
        return Pairs(left, right, _matrix([binary[pair] for pair in chosen], symbols) @ closure)

    return BinaryRules(
        symbols,
        word_first=pairs(True, True, False),
        word_last=pairs(False, True),
        wide=pairs(False, False),
        above_word=closure[: len(grammar.words)],
    )


def _add(parts: tuple[str, ...], head: str, probability: float, binary: Above, unary: Above) -> None:
    """Adds a rule, and if it is longer than two those that take it apart, which have probability one."""
    if len(parts) == 1:
        unary[parts][head] = probability
        return
    rest = " ".join(parts[1:])  # no symbol holds a blank
    binary[parts[0], rest][head] = probability
    if len(parts) > 2:
        _add(parts[1:], rest, 1.0, binary, unary)


def _matrix(rows: Sequence[Mapping[str, float]], symbols: Mapping[str, int]) -> Float[Array, "row symbol"]:
    matrix = np.zeros((len(rows), len(symbols)))
    for row, above in enumerate(rows):
        for name, probability in above.items():
            matrix[row, symbols[name]] = probability
    return matrix
