"""The sentences a command is about: from files or standard input, a line each, or the words of a treebank."""

import codecs
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from rankspace.errors import FormatError
from rankspace.files import writing

STANDARD_INPUT = "standard input"
MOST_WORDS, MOST_SENTENCES = 20_000, 2_000  # of a chunk: much more than a batch, so that batches have like lengths
REMEDIES = {  # of the readers, in the options of other commands
    ", or leave the line out with --skip-bad": "",
    "or say --format text": "or leave out --trees",
}

Files = Annotated[
    list[Path] | None,
    typer.Argument(metavar="FILE", help="Files with one sentence per line; - or no file: standard input."),
]
Trees = Annotated[bool, typer.Option("--trees", help="The input is a treebank; take the words of its trees.")]
Clean = Annotated[bool, typer.Option("--clean", help="Leave out what the training data left out: punctuation, traces.")]

Tell = Callable[[str], None]


class Given(NamedTuple):
    """A sentence, perhaps without words, and where it stands."""

    words: list[str]
    where: str


def read_through(files: Sequence[Path] | None, trees: bool) -> int | None:
    """The number of sentences of some files; None where standard input or a pipe, which are read once, are among them.

    Raises FormatError, with file and line, for what is no UTF-8 text or no tree, and OSError.
    """
    total: int | None = 0
    for path in _paths(files):
        if path is None or not (path.is_file() or not path.exists() or path.is_dir()):
            total = None
            continue
        if path.is_dir():
            raise FormatError(f"{path}: is a folder; give files with one sentence a line.")
        num = sum(1 for _ in _read(path, trees))
        total = None if total is None else total + num
    return total


def read_given(
    files: Sequence[Path] | None, trees: bool, card: Mapping[str, Any] | None, tell: Tell = lambda _: None
) -> Iterator[Given]:
    """The sentences of some files in their order, one at a time; with the card of a run, cleaned as its data were.

    A line without words is a sentence without words. `tell` is told of lines that look like trees and are read as
    words. Raises what `read_through` raises, which finds it before there is any work done.
    """
    cleaned = _cleaner(card)
    for path in _paths(files):
        name, is_first = str(path or STANDARD_INPUT), not trees
        for words, tags, line in _read(path, trees):
            if is_first and words:
                is_first = False
                _tell_of_trees(words[0], f"{name}: line {line}", tell)
            yield Given(cleaned(words, tags), f"{name}: line {line}")


def read_chunks(
    files: Sequence[Path] | None, trees: bool, card: Mapping[str, Any] | None, tell: Tell = lambda _: None
) -> Iterator[list[Given]]:
    """The sentences of `read_given` in portions that fit into memory; one by one where a person types them."""
    most = 1 if not files and sys.stdin.isatty() else MOST_SENTENCES
    chunk: list[Given] = []
    num_words = 0
    for sentence in read_given(files, trees, card, tell):
        chunk.append(sentence)
        num_words += len(sentence.words)
        if len(chunk) >= most or num_words >= MOST_WORDS:
            yield chunk
            chunk, num_words = [], 0
    if chunk:
        yield chunk


def _paths(files: Sequence[Path] | None) -> list[Path | None]:
    """None is standard input."""
    return [None if str(file) == "-" else file for file in files or [Path("-")]]


def _tell_of_trees(word: str, where: str, tell: Tell) -> None:
    from rankspace.data.treebank import begins_as_tree

    if begins_as_tree(word.encode()):
        tell(f"{where}: begins with a bracket, and brackets are read as words; if these are trees, say --trees.")


def _read(path: Path | None, trees: bool) -> Iterator[tuple[list[str], list[str] | None, int]]:
    """Words, tags and the line of each sentence."""
    from tempfile import TemporaryDirectory

    from rankspace.data.lines import raw_lines

    if not trees:
        yield from _lines(path, raw_lines(path) if path is not None else _typed())
    elif path is not None:
        yield from _trees(path, str(path))
    else:
        with TemporaryDirectory() as folder:  # the reader of trees opens its file
            spool = Path(folder, "trees")
            with writing(spool), spool.open("wb") as file:
                file.writelines(sys.stdin.buffer)
            yield from _trees(spool, STANDARD_INPUT)


def _typed() -> Iterator[tuple[int, bytes]]:
    """The lines of standard input, as `raw_lines` has those of files."""
    for number, raw in enumerate(sys.stdin.buffer, 1):
        yield number, raw.removeprefix(codecs.BOM_UTF8) if number == 1 else raw


def _lines(path: Path | None, lines: Iterable[tuple[int, bytes]]) -> Iterator[tuple[list[str], None, int]]:
    from rankspace.data.lines import BadInput, decoded

    for line, raw in lines:
        try:
            text = decoded(raw, path or Path(STANDARD_INPUT), line, BadInput())
        except FormatError as error:
            raise FormatError(_message(error)) from None
        yield (text or "").split(), None, line


def _trees(path: Path, name: str) -> Iterator[tuple[list[str], list[str] | None, int]]:
    from rankspace.data.treebank import read_treebank

    try:
        for sentence in read_treebank(path):
            yield sentence.words, sentence.tags, sentence.line
    except FormatError as error:
        raise FormatError(_message(error).replace(str(path), name)) from None


def _message(error: FormatError) -> str:
    """With the remedies of these commands."""
    message = str(error)
    for theirs, ours in REMEDIES.items():
        message = message.replace(theirs, ours)
    return message


def _cleaner(card: Mapping[str, Any] | None) -> Callable[[list[str], list[str] | None], list[str]]:
    """What leaves out the words that the data of a run left out; words stay as they are written."""
    if card is None:
        return lambda words, tags: words
    from rankspace.data.preprocessing import Cleaner, Preprocessing
    from rankspace.data.sentence import Sentence

    known = card.get("data", {}).get("preprocessing", {})
    tags, words = (tuple(known.get(name, ())) for name in ("removed_tags", "removed_words"))
    cleaner = Cleaner(Preprocessing(tags, words, known.get("keep_traces", False)))
    return lambda words, tags: cleaner.clean(Sentence(words, tags, None if tags is None else [])).words
