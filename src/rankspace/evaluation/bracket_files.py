"""Scoring one file of bracketed trees against another, with no model at hand.

A file has one tree a line; blank lines are passed over. In predicted files () and (()) are sentences without a tree.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from rankspace.errors import FormatError
from rankspace.evaluation.parsing import ParseScores, score
from rankspace.trees import Tree

NO_TREE = ("()", "(())")  # the latter is what EVALB takes for a parse that failed


class LineTree(NamedTuple):
    """A tree, None where none was found, and the number of its line."""

    line: int
    tree: Tree | None


def score_files(
    gold: str | os.PathLike[str], predicted: str | os.PathLike[str], gold_labelled: bool = True, labelled: bool = True
) -> ParseScores:
    """Scores of the predicted trees of a file against the gold trees of another.

    `labelled` tells whether the brackets of predicted trees begin with symbols: (S (NP the dog) barks) or
    ((the dog) barks); `gold_labelled` the same of the gold ones. Raises FormatError, with file and line, for broken
    brackets and where sentences or words do not match.
    """
    pairs = paired(gold, read_trees(gold, gold_labelled), predicted, read_trees(predicted, labelled))
    return score([right for right, _ in pairs], [found for _, found in pairs])


def paired(
    gold: str | os.PathLike[str],
    right: Sequence[LineTree],
    predicted: str | os.PathLike[str],
    found: Sequence[LineTree],
) -> list[tuple[Tree, Tree | None]]:
    """Gold trees, each with what was predicted. The names of the files are for messages. Raises FormatError, with file
    and line, where sentences or words do not match."""
    counts = f"{os.fspath(gold)} has {len(right)} trees but {os.fspath(predicted)} {len(found)}."
    try:
        for one, other in zip(right, found, strict=False):
            _check_words(Path(gold), one, Path(predicted), other)
    except FormatError as error:
        if len(right) == len(found):
            raise
        raise FormatError(f"{str(error).removesuffix('.')}; {counts}") from None
    if len(right) != len(found):
        longer, rows = (gold, right) if len(right) > len(found) else (predicted, found)
        first = rows[min(len(right), len(found))].line
        raise FormatError(f"{os.fspath(longer)}, line {first}: this tree has no partner; {counts}")
    return [(one.tree, other.tree) for one, other in zip(right, found, strict=True) if one.tree is not None]


def read_trees(path: str | os.PathLike[str], labelled: bool = True) -> list[LineTree]:
    """The trees of a file, one a line. Raises FormatError, with file and line."""
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except OSError as error:
        raise FormatError(f"{os.fspath(path)}: cannot be read ({error.strerror or error}).") from None
    except UnicodeDecodeError as error:
        raise FormatError(f"{os.fspath(path)}: is not UTF-8 (byte {error.start}); convert it first.") from None
    lines = [(number, line.strip()) for number, line in enumerate(text.split("\n"), start=1)]
    return [LineTree(number, _tree(path, number, line, labelled)) for number, line in lines if line]


def _tree(path: str | os.PathLike[str], number: int, line: str, labelled: bool) -> Tree | None:
    if line.replace(" ", "") in NO_TREE:
        return None
    try:
        return Tree.parse(line, labelled)
    except FormatError as error:
        reason = str(error).removeprefix("Tree.parse: ").replace("line 1, ", "")
        raise FormatError(f"{os.fspath(path)}, line {number}: {reason}") from None


def _check_words(gold: Path, one: LineTree, predicted: Path, other: LineTree) -> None:
    if one.tree is None:
        raise FormatError(f"{gold}, line {one.line}: a gold sentence has no tree; remove it from both files.")
    if other.tree is None or one.tree.words == other.tree.words:
        return
    where = f"{predicted}, line {other.line}"
    if len(one.tree) != len(other.tree):
        raise FormatError(f"{where}: {len(other.tree)} words, but line {one.line} of {gold} has {len(one.tree)}.")
    pairs = zip(one.tree.words, other.tree.words, strict=True)
    place, (right, found) = next((place, pair) for place, pair in enumerate(pairs, start=1) if pair[0] != pair[1])
    raise FormatError(f"{where}: word {place} is {found!r}, but {right!r} in line {one.line} of {gold}.")
