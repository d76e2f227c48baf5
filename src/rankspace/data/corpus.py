"""Encoded sentences in memory, with their gold trees where there are some."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int32, Int64

from rankspace.data.sentence import LabelledSpan, joined_tree
from rankspace.data.vocabulary import Vocabulary
from rankspace.errors import RankspaceError
from rankspace.trees import Tree

NO_TAG = -1


@dataclass(frozen=True, eq=False)
class Gold:
    """Gold trees of all sentences, flat: spans offsets[i], ..., offsets[i + 1] - 1 belong to sentence i."""

    offsets: Int64[np.ndarray, "sentences_and_one"]
    spans: Int32[np.ndarray, "spans 2"]  # begin and end within the sentence, in preorder
    labels: Int32[np.ndarray, "spans"]  # numbers of names in `label_names`
    tags: Int32[np.ndarray, "tokens"]  # one per word, NO_TAG where it has none
    label_names: tuple[str, ...]
    tag_names: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Corpus:
    """Sentences as numbers of words: sentence i is tokens[offsets[i] : offsets[i + 1]]. <eos> is not among them.

    Raises RankspaceError for offsets that do not fit and for numbers outside of the vocabulary.
    """

    vocabulary: Vocabulary
    tokens: Int32[np.ndarray, "tokens"]
    offsets: Int64[np.ndarray, "sentences_and_one"]
    gold: Gold | None = None

    def __post_init__(self) -> None:
        _check_offsets("offsets", self.offsets, len(self.tokens), "tokens")
        _check_numbers("tokens", self.tokens, 0, len(self.vocabulary), "the vocabulary")
        if len(self.tokens) and self.lengths.min() < 1:
            raise RankspaceError(f"Corpus: sentence {int(self.lengths.argmin())} has no words; leave it out.")
        if self.gold is not None:
            _check_gold(self.gold, self.lengths)

    @property
    def lengths(self) -> Int64[np.ndarray, "sentences"]:
        return np.diff(self.offsets)

    def __len__(self) -> int:
        """The number of sentences."""
        return len(self.offsets) - 1

    def __getitem__(self, number: int) -> Int32[np.ndarray, "length"]:
        """The words of a sentence, as numbers."""
        number = self._checked(number)
        return self.tokens[self.offsets[number] : self.offsets[number + 1]]

    def __iter__(self) -> Iterator[Int32[np.ndarray, "_"]]:
        return (self[number] for number in range(len(self)))

    def words(self, number: int) -> list[str]:
        """The words of a sentence; <unk> for unknown ones."""
        return self.vocabulary.decode(self[number])

    def spans(self, number: int) -> list[LabelledSpan] | None:
        """(begin, end, label) of the constituents of a sentence in preorder, or None where there are no gold trees."""
        if self.gold is None:
            return None
        number = self._checked(number)
        part = slice(self.gold.offsets[number], self.gold.offsets[number + 1])
        names = [self.gold.label_names[label] for label in self.gold.labels[part]]
        return [(begin, end, name) for (begin, end), name in zip(self.gold.spans[part].tolist(), names, strict=True)]

    def tags(self, number: int) -> list[str] | None:
        """The gold POS tags of a sentence, "" for words without one, or None where there are no gold trees."""
        if self.gold is None:
            return None
        number = self._checked(number)
        tags = self.gold.tags[self.offsets[number] : self.offsets[number + 1]]
        return ["" if tag == NO_TAG else self.gold.tag_names[tag] for tag in tags]

    def tree(self, number: int) -> Tree | None:
        """The gold tree of a sentence, with tags as preterminals, or None where there are no gold trees."""
        spans, tags = self.spans(number), self.tags(number)
        return None if spans is None or tags is None else joined_tree(self.words(number), tags, spans)

    def _checked(self, number: int) -> int:
        if not -len(self) <= number < len(self):
            raise IndexError(f"Corpus: sentence {number} of {len(self)}")
        return number % len(self)


def offsets_of(lengths: Iterable[int]) -> Int64[np.ndarray, "sentences_and_one"]:
    """Where each of some stretches begins, and where the last ends."""
    return np.concatenate([[0], np.cumsum(np.fromiter(lengths, dtype=np.int64))]).astype(np.int64)


def _check_offsets(name: str, offsets: Int64[np.ndarray, "_"], total: int, what: str) -> None:
    if not len(offsets) or offsets[0] != 0 or offsets[-1] != total or (np.diff(offsets) < 0).any():
        raise RankspaceError(f"Corpus: {name} do not rise from 0 to {total}, the number of {what}.")


def _check_numbers(name: str, numbers: Int32[np.ndarray, "_"], least: int, size: int, what: str) -> None:
    if len(numbers) and not least <= numbers.min() <= numbers.max() < size:
        raise RankspaceError(
            f"Corpus: {name} go from {numbers.min()} to {numbers.max()}, but {what} has {size} entries."
        )


def _check_gold(gold: Gold, lengths: Int64[np.ndarray, "_"]) -> None:
    if len(gold.offsets) != len(lengths) + 1 or len(gold.tags) != lengths.sum():
        raise RankspaceError(
            f"Corpus: gold trees of {len(gold.offsets) - 1} sentences and {len(gold.tags)} words, but there are "
            f"{len(lengths)} sentences and {lengths.sum()} words."
        )
    _check_offsets("offsets of gold spans", gold.offsets, len(gold.spans), "spans")
    _check_numbers("labels", gold.labels, 0, len(gold.label_names), "the list of labels")
    _check_numbers("tags", gold.tags, NO_TAG, len(gold.tag_names), "the list of tags")
    begins, ends = gold.spans[:, 0], gold.spans[:, 1]
    if not ((begins >= 0) & (begins < ends) & (ends <= np.repeat(lengths, np.diff(gold.offsets)))).all():
        raise RankspaceError("Corpus: a gold span leaves its sentence.")
