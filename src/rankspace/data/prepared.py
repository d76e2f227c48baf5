"""A folder of prepared data: its vocabulary, its splits as arrays, and a card that says what they are.

card.json          counts, options, names and hashes of the sources, names of labels and tags, format version
vocabulary.txt     one word a line, in the order of their numbers
SPLIT.safetensors  tokens int32, offsets int64 and, with gold trees, span_offsets, spans, labels, tags
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.numpy import load_file, save

from rankspace.data.corpus import Corpus, Gold
from rankspace.data.vocabulary import Vocabulary
from rankspace.errors import FormatError, RankspaceError
from rankspace.files import check_no_file, check_place, read_card, whole_directory

FORMAT = "rankspace prepared data"
VERSION = 1
CARD = "card.json"
VOCABULARY = "vocabulary.txt"
AGAIN = "prepare the data again"


@dataclass(frozen=True)
class PreparedData:
    """Prepared data in memory: `data["train"]` is the corpus of a split."""

    card: dict[str, Any]
    vocabulary: Vocabulary
    splits: dict[str, Corpus]

    def __getitem__(self, split: str) -> Corpus:
        if split not in self.splits:
            raise missing_split(split, self.splits)
        return self.splits[split]


def missing_split(split: str, splits: Iterable[str]) -> RankspaceError:
    return RankspaceError(f"prepared data: there is no split {split!r}; there are {', '.join(splits)}.")


def check_output(directory: Path, force: bool) -> None:
    """Raises FormatError where `save_prepared` would refuse, before the work is done."""
    check_place(directory)
    check_no_file(directory)
    if not directory.exists() or (directory.is_dir() and not any(directory.iterdir())):
        return
    if not force:
        raise FormatError(f"{directory}: exists already; choose another name, or overwrite it with --force.")
    load_card(directory)  # nothing but prepared data is overwritten


def save_prepared(directory: Path, data: PreparedData, force: bool = False) -> PreparedData:
    """Writes the folder whole or not at all; returns the data with hashes of the files on the card."""
    check_output(directory, force)
    card = json.loads(json.dumps(data.card))
    with whole_directory(directory, replace=force) as folder:
        data.vocabulary.save(folder / VOCABULARY)
        card["vocabulary"]["sha256"] = sha256([folder / VOCABULARY])
        for split, corpus in data.splits.items():
            file = folder / f"{split}.safetensors"
            file.write_bytes(save(_arrays(corpus), {"format": FORMAT}))
            card["splits"][split]["sha256"] = sha256([file])
        text = json.dumps({"format": FORMAT, "version": VERSION, **card}, indent=1, ensure_ascii=False)
        (folder / CARD).write_text(text + "\n", encoding="utf-8")
    return PreparedData(card, data.vocabulary, data.splits)


def load_card(directory: Path | str) -> dict[str, Any]:
    """The card alone. Raises FormatError for a folder that is no prepared data, or of a later version."""
    remedies = {"make": "make it with data prepare", "repair": AGAIN, "upgrade": AGAIN}
    return read_card(Path(directory) / CARD, FORMAT, VERSION, what="prepared data", **remedies)


def load_prepared(directory: Path | str) -> PreparedData:
    """Reads and checks a folder. Raises FormatError for what is foreign, truncated, changed or of a later version."""
    folder = Path(directory)
    card = load_card(folder)
    try:
        check_hash(folder / VOCABULARY, card["vocabulary"]["sha256"], "the card", AGAIN)
        vocabulary = Vocabulary.load(folder / VOCABULARY)
        names = tuple(card["labels"]), tuple(card["tags"])
        splits = {
            split: _load_split(folder, split, entry, vocabulary, *names) for split, entry in card["splits"].items()
        }
    except (KeyError, TypeError, AttributeError) as error:
        raise FormatError(f"{folder / CARD}: is damaged ({error!r}); {AGAIN}.") from None
    return PreparedData(card, vocabulary, splits)


def sha256(files: list[Path] | tuple[Path, ...]) -> str:
    """Of the contents of files, one after the other: for a single file what `sha256sum` prints."""
    digest = hashlib.sha256()
    for file in files:
        with file.open("rb") as stream:
            while chunk := stream.read(1 << 20):
                digest.update(chunk)
    return digest.hexdigest()


def _load_split(
    folder: Path,
    split: str,
    entry: Mapping[str, Any],
    vocabulary: Vocabulary,
    labels: tuple[str, ...],
    tags: tuple[str, ...],
) -> Corpus:
    file = folder / f"{split}.safetensors"
    check_hash(file, entry["sha256"], "the card", AGAIN)
    try:
        arrays = load_file(file)
        gold = None
        if "spans" in arrays:
            spans = arrays["span_offsets"], arrays["spans"], arrays["labels"]
            gold = Gold(*spans, arrays["tags"], label_names=labels, tag_names=tags)
        return Corpus(vocabulary, arrays["tokens"], arrays["offsets"], gold)
    except (SafetensorError, RankspaceError, KeyError) as error:
        raise FormatError(f"{file}: is damaged ({error}); {AGAIN}.") from None


def check_hash(file: Path, expected: str, card: str, remedy: str) -> None:
    """Raises FormatError for a file that is missing or not as a card, by its name, has it."""
    if not file.is_file():
        raise FormatError(f"{file}: is missing; {remedy}.")
    if sha256([file]) != expected:
        raise FormatError(f"{file}: is truncated or changed: its hash is not that of {card}; {remedy}.")


def _arrays(corpus: Corpus) -> dict[str, Any]:
    arrays = {"tokens": corpus.tokens, "offsets": corpus.offsets}
    if corpus.gold is not None:
        gold = corpus.gold
        arrays |= {"span_offsets": gold.offsets, "spans": gold.spans, "labels": gold.labels, "tags": gold.tags}
    return arrays
