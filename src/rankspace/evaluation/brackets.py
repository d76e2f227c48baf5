"""The brackets that count: spans of more than one word and less than the sentence, each once.

Everything that is scored is a `Tree` or its spans, (begin, end) or (begin, end, label), in any order.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from rankspace.errors import RankspaceError, ShapeError
from rankspace.trees import Node, Span, Symbol, Tree

Spans = frozenset[tuple[int, int]]
Parse = Tree | Iterable[Span]  # None in a list of predictions: no tree was found


class Comparison(NamedTuple):
    """The brackets of one sentence. `labels` are those of the gold tree, one for each bracket and label."""

    length: int
    gold: Spans
    predicted: Spans
    labels: frozenset[tuple[int, int, Symbol]]
    is_parsed: bool

    @property
    def num_common(self) -> int:
        return len(self.gold & self.predicted)


def brackets(parse: Parse, length: int) -> Spans:
    """Spans of more than one word and less than `length`, without labels and duplicates."""
    return frozenset((begin, end) for begin, end, _ in labelled_brackets(parse, length))


def labelled_brackets(parse: Parse, length: int) -> frozenset[tuple[int, int, Symbol]]:
    """The same with labels; of a unary chain each label."""
    spans = parse.nodes if isinstance(parse, Tree) else [Node(*span) for span in parse]
    return frozenset((begin, end, symbol) for begin, end, symbol in spans if 1 < end - begin < length)


def compare(
    gold: Sequence[Parse], predicted: Sequence[Parse | None], lengths: Sequence[int] | None = None
) -> list[Comparison]:
    """Gold and predicted brackets, sentence by sentence. `lengths` may be left out where the gold ones are trees.

    Raises ShapeError if the numbers of sentences or the lengths of one sentence differ.
    """
    if len(gold) != len(predicted):
        raise ShapeError(f"score: there are {len(gold)} gold parses but {len(predicted)} predicted; give one for each.")
    lengths = lengths_of(gold, lengths)
    return [_compare(*sentence) for sentence in zip(range(len(gold)), gold, predicted, lengths, strict=True)]


def lengths_of(gold: Sequence[Parse], lengths: Sequence[int] | None) -> Sequence[int]:
    """The lengths that are given, or those of the gold trees."""
    if lengths is None:
        return [_length(place, parse) for place, parse in enumerate(gold)]
    if len(lengths) != len(gold):
        raise ShapeError(f"score: there are {len(gold)} gold parses but {len(lengths)} lengths; give one for each.")
    return lengths


def _compare(place: int, gold: Parse, predicted: Parse | None, length: int) -> Comparison:
    gold, found = _checked(place, "gold", gold, length), _checked(place, "predicted", predicted or (), length)
    return Comparison(
        length, brackets(gold, length), brackets(found, length), labelled_brackets(gold, length), predicted is not None
    )


def _checked(place: int, role: str, parse: Parse, length: int) -> Tree | list[Span]:
    """The parse, which is of this length or has spans within it."""
    if isinstance(parse, Tree):
        if len(parse) != length:
            raise ShapeError(f"score: sentence {place} has {length} words but its {role} tree {len(parse)}.")
        return parse
    spans = list(parse)
    for begin, end, *_ in spans:
        if not 0 <= begin < end <= length:
            raise ShapeError(f"score: sentence {place} has {length} words but the {role} span ({begin}, {end}).")
    return spans


def _length(place: int, parse: Parse) -> int:
    if isinstance(parse, Tree):
        return len(parse)
    raise RankspaceError(f"score: gold parse {place} is a set of spans, which tells no length; give lengths.")
