"""The data of a run: a prepared folder, or the synthetic treebank made on the fly."""

from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from rankspace.data.encoding import Encoder, Names
from rankspace.data.preparation import make_card
from rankspace.data.prepared import PreparedData, load_card, load_prepared, missing_split, sha256
from rankspace.data.preprocessing import Preprocessing
from rankspace.data.vocabulary import Vocabulary
from rankspace.errors import RankspaceError

SYNTHETIC = "synthetic"
DEFAULT_SIZE = 2000
LONGEST = 40  # words
SEEDS = {"train": 1, "valid": 2, "test": 3}


def load_data(source: str) -> PreparedData:
    """The data that a configuration names: a folder, synthetic or synthetic:SENTENCES.

    Raises FormatError for a folder that is no prepared data, RankspaceError for a number that is none.
    """
    size = _num_sentences(source)
    return load_prepared(Path(source)) if size is None else synthetic_data(size)


def check_source(source: str, wanted: Iterable[str]) -> None:
    """Raises what `load_data`, and asking it for splits, would; reads a card at most."""
    splits = SEEDS if _num_sentences(source) is not None else load_card(Path(source)).get("splits")
    if isinstance(splits, Mapping):
        check_splits(splits, wanted)


def check_splits(splits: Collection[str], wanted: Iterable[str]) -> None:
    """Raises RankspaceError for the first that is not among the splits of the data."""
    for split in wanted:
        if split not in splits:
            raise missing_split(split, splits)


def _num_sentences(source: str) -> int | None:
    """Of synthetic data; None for a folder."""
    name, colon, size = source.partition(":")
    if name != SYNTHETIC:
        if not source:
            raise RankspaceError("train: there are no data; give a prepared folder, synthetic or synthetic:SENTENCES.")
        return None
    if colon and not (size.isascii() and size.isdigit() and int(size) > 0):
        raise RankspaceError(f"train: {source!r} has no number of sentences; write synthetic:2000.")
    return int(size) if colon else DEFAULT_SIZE


def synthetic_data(num_sentences: int, max_length: int = LONGEST) -> PreparedData:
    """The synthetic treebank, a tenth of the sentences besides for validation and as many for the test.

    The vocabulary, with <eos>, is that of the training split.
    """
    from rankspace.data.synthetic import SyntheticTreebank

    treebank, names = SyntheticTreebank(max_length), Names()
    sizes = {"train": num_sentences, "valid": max(1, num_sentences // 10), "test": max(1, num_sentences // 10)}
    encoders = {split: Encoder(names) for split in sizes}
    for split, size in sizes.items():
        for tree in treebank.trees(size, SEEDS[split]):
            encoders[split].add_tree(tree)
    vocabulary = Vocabulary.from_counts(encoders["train"].counts(), eos=True)
    splits = {split: encoder.corpus(vocabulary) for split, encoder in encoders.items()}
    options = Preprocessing(eos=True, max_length=max_length)
    sources = [
        {"name": SYNTHETIC, "split": split, "seed": SEEDS[split], "num_files": 0, "sha256": sha256(())}
        for split in splits
    ]
    return PreparedData(make_card(SYNTHETIC, options, sources, splits), vocabulary, splits)


def data_summary(data: PreparedData) -> dict[str, Any]:
    """What the card of a run says of its data: options, sources and counts, without lists of names."""
    wanted = ("preset", "preprocessing", "sources", "vocabulary", "splits")
    return {name: data.card[name] for name in wanted if name in data.card}


def source_name(source: str) -> str:
    """A source as it is written down: folders by their whole path, so that a run can go on from anywhere."""
    return str(Path(source).absolute()) if is_folder(source) else source


def is_folder(source: str) -> bool:
    """Whether a source is a folder, and neither synthetic nor unknown."""
    return bool(source) and source.partition(":")[0] != SYNTHETIC
