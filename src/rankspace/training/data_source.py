"""The data of a run: a prepared folder, or the synthetic treebank made on the fly."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from rankspace.data.corpus import Corpus
from rankspace.data.encoding import encode_trees
from rankspace.data.prepared import PreparedData, load_prepared
from rankspace.data.preprocessing import Preprocessing
from rankspace.data.vocabulary import Vocabulary
from rankspace.errors import RankspaceError
from rankspace.trees import Tree

SYNTHETIC = "synthetic"
DEFAULT_SIZE = 2000
LONGEST = 20  # words: what a small grammar learns from in minutes
SEEDS = {"train": 1, "valid": 2, "test": 3}


def load_data(source: str) -> PreparedData:
    """The data that a configuration names: a folder, synthetic or synthetic:SENTENCES.

    Raises FormatError for a folder that is no prepared data, RankspaceError for a number that is none.
    """
    name, colon, size = source.partition(":")
    if name != SYNTHETIC:
        if not source:
            raise RankspaceError("train: there are no data; give a prepared folder, synthetic or synthetic:SENTENCES.")
        return load_prepared(Path(source))
    if colon and not (size.isascii() and size.isdigit() and int(size) > 0):
        raise RankspaceError(f"train: {source!r} has no number of sentences; write synthetic:2000.")
    return synthetic_data(int(size) if colon else DEFAULT_SIZE)


def synthetic_data(num_sentences: int, max_length: int = LONGEST) -> PreparedData:
    """The synthetic treebank, a tenth of the sentences besides for validation and as many for the test.

    The vocabulary, with <eos>, is that of the training split.
    """
    from rankspace.data.synthetic import SyntheticTreebank

    treebank = SyntheticTreebank(max_length)
    sizes = {"train": num_sentences, "valid": max(1, num_sentences // 10), "test": max(1, num_sentences // 10)}
    trees = {split: treebank.trees(size, SEEDS[split]) for split, size in sizes.items()}
    vocabulary = Vocabulary.from_counts(_counts(trees["train"]), eos=True)
    splits = {split: encode_trees(some, vocabulary) for split, some in trees.items()}
    return PreparedData(_card(vocabulary, splits, max_length), vocabulary, splits)


def _counts(trees: list[Tree]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for tree in trees:
        for word in tree.words:
            counts[str(word)] = counts.get(str(word), 0) + 1
    return counts


def _card(vocabulary: Vocabulary, splits: dict[str, Corpus], max_length: int) -> dict[str, Any]:
    """What `data prepare` writes of a folder, as far as it applies."""
    return {
        "preset": SYNTHETIC,
        "preprocessing": asdict(Preprocessing(eos=True, max_length=max_length)),
        "sources": [{"name": SYNTHETIC, "split": split, "seed": SEEDS[split]} for split in splits],
        "vocabulary": {"num_words": len(vocabulary), "from": "train"},
        "splits": {split: {"num_sentences": len(one), "num_words": len(one.tokens)} for split, one in splits.items()},
    }


def data_summary(data: PreparedData) -> dict[str, Any]:
    """What the card of a run says of its data: options, sources and counts, without lists of names."""
    wanted = ("preset", "preprocessing", "sources", "vocabulary", "splits")
    return {name: data.card[name] for name in wanted if name in data.card}


def source_name(source: str) -> str:
    """A source as it is written down: folders by their whole path, so that a run can go on from anywhere."""
    return source if not source or source.partition(":")[0] == SYNTHETIC else str(Path(source).absolute())
