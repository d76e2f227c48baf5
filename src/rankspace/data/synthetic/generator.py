"""Sentences of the synthetic treebank with their gold trees and true probabilities."""

import random
from collections.abc import Sequence
from functools import cached_property
from math import inf, log
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from rankspace.data.synthetic.derivations import Draw, Sampler, tree_log_prob
from rankspace.data.synthetic.grammar import TreebankGrammar, english
from rankspace.data.synthetic.inside import InsideAlgorithm
from rankspace.errors import RankspaceError
from rankspace.trees import Tree


class SyntheticSentence(NamedTuple):
    """A gold tree, log p(words) and log p(words, tree), both given that the sentence is not too long."""

    tree: Tree
    log_prob: float
    log_joint: float

    @property
    def words(self) -> tuple[str, ...]:
        return tuple(map(str, self.tree.words))


class SyntheticTreebank:
    """A treebank of any size, of sentences of at most `max_length` words.

    Longer sentences are drawn and thrown away, so what remains follows the grammar given the length: probabilities are
    those of the grammar over `acceptance`, which is computed, not estimated. The same seed gives the same sentences on
    every machine, and a longer list begins with the shorter one. Different seeds give independent treebanks: take one
    for training and others for validation and test.
    """

    def __init__(self, max_length: int = 40, grammar: TreebankGrammar | None = None) -> None:
        self.max_length = max_length
        self.grammar = english() if grammar is None else grammar
        if max_length < 1 or self.acceptance <= 0:
            raise RankspaceError(f"SyntheticTreebank: no sentence has at most {max_length} words; raise max_length.")

    @cached_property
    def length_probabilities(self) -> Float[np.ndarray, " length"]:
        """p(0, 1, ..., max_length words) under the grammar; exact, and short of one by what is rejected."""
        return self._inside.length_probabilities(self.max_length)

    @cached_property
    def acceptance(self) -> float:
        """The probability that a sentence of the grammar is short enough."""
        return float(self.length_probabilities.sum())

    @property
    def expected_length(self) -> float:
        """The mean length of the sentences of this treebank."""
        return float(self.length_probabilities @ np.arange(self.max_length + 1)) / self.acceptance

    def generate(self, num: int, seed: int = 0) -> list[SyntheticSentence]:
        """Sentences with trees and probabilities; one or two milliseconds each, nearly all for log p(words)."""
        draws = self.draws(num, seed)
        log_probs = self.log_prob([drawn.tree.words for drawn in draws]).tolist()
        threshold = log(self.acceptance)
        return [
            SyntheticSentence(drawn.tree, log_prob, drawn.log_prob - threshold)
            for drawn, log_prob in zip(draws, log_probs, strict=True)
        ]

    def trees(self, num: int, seed: int = 0) -> list[Tree]:
        """The trees of `generate` alone, in a tenth of the time."""
        return [drawn.tree for drawn in self.draws(num, seed)]

    def draws(self, num: int, seed: int = 0) -> list[Draw]:
        """Trees with their probabilities under the grammar and the number of rejected sentences before each."""
        if num < 0:
            raise RankspaceError(f"SyntheticTreebank: num is {num}; give 0 or more.")
        uniform = random.Random(seed).random
        return [self._sampler.draw(uniform, self.max_length) for _ in range(num)]

    def log_prob(self, sentences: Sequence[Sequence[str | int]]) -> Float[np.ndarray, " sentence"]:
        """log p(words) of each sentence, summed over all trees; -inf for what this treebank cannot contain."""
        fitting = [place for place, words in enumerate(sentences) if len(words) <= self.max_length]
        result = np.full(len(sentences), -np.inf)
        result[fitting] = self._inside.log_prob([list(map(str, sentences[place])) for place in fitting])
        return result - log(self.acceptance)

    def log_joint(self, tree: Tree) -> float:
        """log p(words, tree), summed over the features that a tree does not show; -inf if it cannot be."""
        log_prob = tree_log_prob(tree, self.grammar) if len(tree) <= self.max_length else -inf
        return log_prob - log(self.acceptance)

    @cached_property
    def _sampler(self) -> Sampler:
        return Sampler(self.grammar)

    @cached_property
    def _inside(self) -> InsideAlgorithm:
        return InsideAlgorithm(self.grammar)
