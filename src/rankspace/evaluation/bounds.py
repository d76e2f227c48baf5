"""What parsers are measured against: branching to one side, at random, and the best that a binary tree can do."""

import random
from collections.abc import Callable, Sequence
from math import fsum
from typing import Any, NamedTuple

from rankspace.evaluation.brackets import Parse, Spans, brackets, lengths_of
from rankspace.evaluation.parsing import ParseScores, score
from rankspace.evaluation.text_table import percentage, text_table
from rankspace.trees import Node, Tree
from rankspace.trees.nodes import steps

RANDOM_RUNS = 5


class Bound(NamedTuple):
    """The scores of a trivial parser, in per cent; None where no sentence counts."""

    s_f1: float | None
    s_f1_longer: float | None
    corpus_f1: float | None


class Bounds(NamedTuple):
    """Bounds of a treebank. `random` is the mean over several runs; `oracle` is the binarised gold tree."""

    left_branching: Bound
    right_branching: Bound
    random: Bound
    oracle: Bound

    def to_json(self) -> dict[str, Any]:
        """Plain objects, for `json.dumps`."""
        return {name: bound._asdict() for name, bound in self._asdict().items()}

    def table(self) -> str:
        """One line for each bound."""
        rows = [(name.replace("_", " "), *map(percentage, bound)) for name, bound in self._asdict().items()]
        return text_table(("bound", "S-F1", "S-F1, > 2 words", "corpus F1"), rows)


def bounds(
    gold: Sequence[Parse], lengths: Sequence[int] | None = None, seed: int = 0, num_random: int = RANDOM_RUNS
) -> Bounds:
    """The bounds of a gold treebank: trees, or spans with `lengths`."""
    gold = [parse if isinstance(parse, Tree) else list(parse) for parse in gold]
    sizes = lengths_of(gold, lengths)

    def bound(parser: Callable[[int], Spans]) -> Bound:
        return _bound(score(gold, [parser(size) for size in sizes], lengths))

    generator = random.Random(seed)
    oracle = [binarised(parse, size) for parse, size in zip(gold, sizes, strict=True)]
    return Bounds(
        left_branching=bound(left_branching),
        right_branching=bound(right_branching),
        random=_mean([bound(lambda size: random_branching(size, generator)) for _ in range(num_random)]),
        oracle=_bound(score(gold, oracle, lengths)),
    )


def left_branching(length: int) -> Spans:
    """(((w w) w) w), as all its spans of more than one word."""
    return frozenset((0, end) for end in range(2, length + 1))


def right_branching(length: int) -> Spans:
    """(w (w (w w))), as all its spans of more than one word."""
    return frozenset((begin, length) for begin in range(length - 1))


def random_branching(length: int, generator: random.Random) -> Spans:
    """A binary tree that divides each span at a place chosen uniformly, as all its spans of more than one word."""
    spans, pending = set(), [(0, length)]
    while pending:
        begin, end = pending.pop()
        if end - begin > 1:
            spans.add((begin, end))
            middle = begin + 1 + int(generator.random() * (end - begin - 1))
            pending += [(middle, end), (begin, middle)]
    return frozenset(spans)


def binarised(parse: Parse, length: int) -> Spans:
    """A binary tree with all brackets of a parse, as all its spans of more than one word.

    Nodes with several children are divided from the right. Any other way has the same F1, since what is added is not
    in the parse. Raises RankspaceError if spans cross.
    """
    tree = Tree.from_spans(range(length), brackets(parse, length))
    spans: set[tuple[int, int]] = set()
    ends = [length]  # of the nodes around a place
    for step in steps(tree.words, tree.nodes):
        if step is None:
            ends.pop()
        else:  # a child, node or word: from here to the end of its parent
            place = step.begin if isinstance(step, Node) else int(step)
            spans.add((place, ends[-1]))
            ends += [step.end] if isinstance(step, Node) else []
    return frozenset((begin, end) for begin, end in spans if end - begin > 1)


def _bound(scores: ParseScores) -> Bound:
    return Bound(scores.s_f1, scores.s_f1_longer, scores.corpus_f1)


def _mean(runs: Sequence[Bound]) -> Bound:
    return Bound(*(_mean_of([value for value in column if value is not None]) for column in zip(*runs, strict=True)))


def _mean_of(values: Sequence[float]) -> float | None:
    return fsum(values) / len(values) if values else None
