"""Trees in PTB-style brackets, one or many lines per tree, read one at a time.

A bracket in the first column begins a tree, so the further lines of a tree are indented. That way one missing bracket
spoils one tree, and its line is known. As in `Tree.parse`, a label follows its bracket at once, and -LRB- and -RRB-
stand for brackets.
"""

import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from rankspace.data.lines import BadInput, decoded, raw_lines
from rankspace.data.sentence import LabelledSpan, Sentence
from rankspace.trees import Tree

PRETERMINAL, OPEN, CLOSE, WORD = 2, 3, 4, 5  # the last group of a match
TOKENS = re.compile(r"\(([^\s()]+)\s+([^\s()]+)\s*\)|\(([^\s()]*)|(\))|([^\s()]+)")

ESCAPES = re.compile(r"-\\*[LR]RB")


class BrokenError(Exception):
    """A mistake at a position of the text."""

    def __init__(self, position: int, what: str) -> None:
        super().__init__(what)
        self.position = position


def read_treebank(file: Path, bad: BadInput | None = None) -> Iterator[Sentence]:
    """The trees of a file. Memory is that of one tree.

    Raises FormatError, with file, line and column, for brackets that do not match, words outside of them, a tree
    without words and what is no UTF-8, unless `bad` says to count these and go on.
    """
    bad = bad or BadInput()
    for line, raw in _pieces(file):
        text = decoded(raw, file, line, bad)
        if text is None:
            continue
        try:
            trees = list(_trees(text, line))
        except BrokenError as error:
            line += text.count("\n", 0, error.position)
            column = error.position - text.rfind("\n", 0, error.position)
            problem, _, remedy = str(error).rstrip(".").partition("; ")
            bad.report(f"{file}: line {line}, column {column}: {problem}", remedy)
        else:
            yield from map(_unescaped, trees) if ESCAPES.search(text) else trees


def is_treebank(file: Path) -> bool:
    """Whether the first line that is not blank begins with a bracket."""
    first = next((raw for _, raw in raw_lines(file) if raw.strip()), b"")
    return begins_as_tree(first)


def begins_as_tree(line: bytes) -> bool:
    """Whether a line begins with a bracket."""
    return line.lstrip().startswith(b"(")


def _pieces(file: Path) -> Iterator[tuple[int, bytes]]:
    """Stretches of lines with whole trees in them, each with the number of its first line."""
    piece: list[bytes] = []
    begin = depth = 0
    for number, raw in raw_lines(file):
        if piece and (depth <= 0 or raw.startswith(b"(")):
            yield begin, b"".join(piece)
            piece, depth = [], 0
        if not piece and not raw.strip():
            continue
        begin = begin if piece else number
        piece.append(raw)
        depth += raw.count(b"(") - raw.count(b")")
    if piece:
        yield begin, b"".join(piece)


def _trees(text: str, line: int) -> Iterator[Sentence]:
    """The trees of a piece of text that begins on a line. Raises BrokenError."""
    words, tags, spans = list[str](), list[str](), list[LabelledSpan]()
    opened: list[tuple[int, int]] = []  # position in the text and number among the spans
    for match in TOKENS.finditer(text):
        kind, position = match.lastindex, match.start()
        if not opened and kind in (CLOSE, WORD):
            raise BrokenError(position, _outside(match[0]))
        if kind == PRETERMINAL:
            tags.append(match[1])
            words.append(match[2])
        elif kind == OPEN:
            opened.append((position, len(spans)))
            spans.append((len(words), len(words), match[3]))
        elif kind == WORD:
            tags.append("")
            words.append(match[0])
        else:
            position, number = opened.pop()
            begin, _, label = spans[number]
            spans[number] = begin, len(words), label
        if not opened:
            if not words:
                raise BrokenError(position, "this tree has no words; remove it.")
            yield Sentence(words, tags, spans, line + text.count("\n", 0, position))
            words, tags, spans = [], [], []
    if opened:
        raise BrokenError(
            opened[-1][0], "this ( is never closed; add the missing ), and indent all lines of a tree but its first."
        )


def _outside(token: str) -> str:
    if token == ")":
        return "this ) closes nothing; remove it or add its (."
    return f"{token!r} stands outside of the brackets; write (S (NP the dog) barks), or say --format text."


def _unescaped(sentence: Sentence) -> Sentence:
    words, tags = ([_unescaped_name(name) for name in names] for names in (sentence.words, sentence.tags or ()))
    spans = [(begin, end, _unescaped_name(label)) for begin, end, label in sentence.spans or ()]
    return Sentence(words, tags, spans, sentence.line)


@lru_cache(maxsize=10_000)
def _unescaped_name(name: str) -> str:
    return str(Tree.parse(f"( {name})").words[0]) if ESCAPES.search(name) else name
