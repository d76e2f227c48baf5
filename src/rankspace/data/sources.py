"""Which files belong to which split: sections of the Penn Treebank, files named by split, a table, nltk's sample."""

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from rankspace.data.split_table import SPLITS, SplitTable
from rankspace.errors import FormatError, MissingExtraError

SPLIT_OF_NAME = {"train": "train", "valid": "valid", "val": "valid", "dev": "valid", "test": "test"}
SECTIONS = {"train": range(2, 22), "valid": range(22, 23), "test": range(23, 24)}
NLTK_FILES = {"train": range(1, 143), "valid": range(143, 173), "test": range(173, 200)}  # wsj_0001 to wsj_0199
NLTK_TREEBANK = "nltk:treebank"
TABLE_ENDING = ".split.tsv"
TREE_SUFFIXES = (".mrg", ".ptb", ".tree", ".trees", ".parse", ".brackets")
SUFFIXES = (*TREE_SUFFIXES, ".txt", ".text", ".tok")


class Source(NamedTuple):
    """Files of one split, or one file with a table that says to which split each of its lines belongs."""

    name: str  # of the file or folder alone: a card is read on other machines
    files: tuple[Path, ...]
    split: str
    table: SplitTable | None = None


def find_sources(arguments: Sequence[str], pattern: str = "*", table: Path | None = None) -> list[Source]:
    """The sources that the arguments of `prepare` name, in the order of splits.

    An argument is SPLIT=PATH, a path, or nltk:treebank. A file without SPLIT= is divided by a table beside it
    (NAME.split.tsv) or belongs to the split in its name, else to train. A folder has section folders 02 to 23, or
    files wsj_0001.mrg to wsj_0199.mrg, or files named by split; `pattern` says which of its files are meant. Raises
    FormatError for paths that do not exist and folders in which nothing is found.
    """
    found = [source for argument in arguments for source in _sources(argument, pattern, table)]
    return sorted(found, key=lambda source: SPLITS.index(source.split))


def ignored_files(arguments: Sequence[str], sources: Sequence[Source]) -> list[Path]:
    """Files of the folders among the arguments that no source takes; without hidden ones and tables of splits."""
    taken = {file for source in sources for file in source.files}
    found: list[Path] = []
    for argument in arguments:
        name, _, rest = argument.partition("=")
        folder = Path(rest if name in SPLIT_OF_NAME and rest else argument)
        if argument != NLTK_TREEBANK and folder.is_dir():
            files = [path for path in sorted(folder.rglob("*")) if path.is_file() and path not in taken]
            found += [path for path in files if not (path.name.startswith(".") or path.name.endswith(TABLE_ENDING))]
    return found


def _sources(argument: str, pattern: str, table: Path | None) -> Iterator[Source]:
    name, _, rest = argument.partition("=")
    if argument == NLTK_TREEBANK:
        yield from _in_folder(_nltk_folder(), pattern)
    elif name in SPLIT_OF_NAME and rest:
        path = _existing(rest)
        files = _data_files(path) if path.is_dir() else [path]
        if not files:
            raise FormatError(f"{path}: has no files that end in {', '.join(SUFFIXES)}; give a file.")
        yield Source(path.name, tuple(files), SPLIT_OF_NAME[name])
    elif rest and not Path(argument).exists():
        raise FormatError(f"{argument}: {name!r} is no split; write train=, valid= or test= before the file.")
    elif (path := _existing(argument)).is_dir():
        yield from _in_folder(path, pattern)
    else:
        yield from _file(path, table)


def _existing(path: str) -> Path:
    if not Path(path).exists():
        raise FormatError(f"{path}: there is no such file or folder.")
    return Path(path)


def _file(path: Path, table: Path | None = None) -> Iterator[Source]:
    beside = path.with_name(f"{path.stem}{TABLE_ENDING}")
    if table is None and beside.exists():
        table = beside
    if table is None:
        yield Source(path.name, (path,), _split_in(path.name) or "train")
    else:
        yield Source(path.name, (path,), "train", SplitTable.load(table))


def _in_folder(folder: Path, pattern: str) -> list[Source]:
    """What a folder has, by the first way of naming that fits."""
    ways = (
        _named(folder, pattern) if pattern != "*" else [],
        treebank_sections(folder),
        _nltk_files(folder),
        _named(folder),
    )
    for sources in ways:
        if found := list(sources):
            return found
    raise FormatError(
        f"{folder}: has neither section folders (02 to 23) with trees nor files named train, valid or test; name the "
        f"files: train=FILE valid=FILE test=FILE."
    )


def _named(folder: Path, pattern: str = "*") -> Iterator[Source]:
    for file in sorted(folder.glob(pattern)):
        if file.is_file() and file.suffix.lower() in SUFFIXES and (pattern != "*" or _split_in(file.name)):
            yield from _file(file)


def treebank_sections(folder: Path) -> Iterator[Source]:
    """Sections of the Penn Treebank, at any depth; those of no split are left out."""
    sections: dict[int, Path] = {}
    for place in sorted(path for path in folder.rglob("[0-9][0-9]") if path.is_dir() and _data_files(path, True)):
        first = sections.setdefault(int(place.name), place)
        if first != place:
            raise FormatError(f"{folder}: section {place.name} is in {first} and in {place}; give one of the two.")
    for split, numbers in SECTIONS.items():
        if own := [number for number in numbers if number in sections]:
            files = [file for number in own for file in _data_files(sections[number], True)]
            yield Source(f"{folder.name}, {_listed(own)}", tuple(files), split)


def _listed(sections: Sequence[int]) -> str:
    if len(sections) > 2 and sections == list(range(sections[0], sections[-1] + 1)):
        return f"sections {sections[0]:02}-{sections[-1]:02}"
    return f"section{'s' if len(sections) > 1 else ''} {', '.join(f'{number:02}' for number in sections)}"


def _nltk_files(folder: Path) -> Iterator[Source]:
    for split, numbers in NLTK_FILES.items():
        names = [f"wsj_{number:04}.mrg" for number in numbers]
        if files := tuple(folder / name for name in names if (folder / name).is_file()):
            yield Source(f"{folder.name}, {files[0].stem} to {files[-1].stem}", files, split)


def _nltk_folder() -> Path:
    try:
        from nltk import data
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            f"{NLTK_TREEBANK}: nltk is not installed; pip install 'rankspace[pictures]', or give a path."
        ) from error
    for root in data.path:
        if (folder := Path(root, "corpora", "treebank", "combined")).is_dir():
            return folder
    raise FormatError(
        f"{NLTK_TREEBANK}: is in none of nltk's folders; run python -m nltk.downloader treebank, or give a path."
    )


def _data_files(folder: Path, trees: bool = False) -> list[Path]:
    suffixes: Iterable[str] = TREE_SUFFIXES if trees else SUFFIXES
    return sorted(path for path in folder.rglob("*") if path.is_file() and path.suffix.lower() in suffixes)


def _split_in(name: str) -> str | None:
    """train of ptb.train.txt, valid of craft-dev.mrg."""
    parts = re.split("[^a-z]+", name.lower())
    return next((SPLIT_OF_NAME[part] for part in parts if part in SPLIT_OF_NAME), None)
