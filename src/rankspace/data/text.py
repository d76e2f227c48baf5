"""Plain text, one sentence a line, and the choice between text and treebank."""

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from rankspace.data.lines import BadInput, decoded, raw_lines
from rankspace.data.sentence import Sentence
from rankspace.data.treebank import is_treebank, read_treebank

Format = Literal["auto", "text", "trees"]


def read_text(file: Path, bad: BadInput | None = None) -> Iterator[Sentence]:
    """The lines of a file as sentences: words with white space between them. Blank lines are no sentences.

    One line is in memory at a time. Raises FormatError, with file and line, for what is no UTF-8, unless `bad` says to
    count it and go on.
    """
    bad = bad or BadInput()
    for line, raw in raw_lines(file):
        text = decoded(raw, file, line, bad)
        words = text.split() if text else None
        if words:
            yield Sentence(words, line=line)


def read_sentences(file: Path, format: Format = "auto", bad: BadInput | None = None) -> Iterator[Sentence]:
    """The sentences of a file of text or trees; "auto" takes a file that begins with a bracket for a treebank.

    A file without any sentence is bad input as well.
    """
    bad = bad or BadInput()
    as_trees = format == "trees" or (format == "auto" and is_treebank(file))
    skipped_before = bad.num_skipped
    empty = True
    for sentence in (read_treebank if as_trees else read_text)(file, bad):
        empty = False
        yield sentence
    if empty and bad.num_skipped == skipped_before:
        bad.report(f"{file}: is empty", "give a file with one sentence a line, or with trees")
