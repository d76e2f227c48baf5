"""Sentences turned into flat arrays as they come, before the vocabulary is known."""

from array import array
from collections import defaultdict
from collections.abc import Iterable

import numpy as np
from jaxtyping import Int32

from rankspace.data.corpus import NO_TAG, Corpus, Gold, offsets_of
from rankspace.data.sentence import Sentence
from rankspace.data.vocabulary import Vocabulary
from rankspace.errors import RankspaceError
from rankspace.trees import Tree


class Numbering(defaultdict[str, int]):
    """Names numbered in the order in which they are first looked up."""

    def __init__(self) -> None:
        super().__init__()
        self.default_factory = self.__len__

    def of(self, names: Iterable[str]) -> Iterable[int]:
        return map(self.__getitem__, names)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self)


class Names:
    """Words, labels and tags, numbered alike in all splits."""

    def __init__(self) -> None:
        self.words, self.labels, self.tags = Numbering(), Numbering(), Numbering()
        self.tags[""]  # takes the first number, from which NO_TAG is made


class Encoder:
    """The sentences of one split: four bytes a word, and with trees another four, and twelve a span."""

    def __init__(self, names: Names | None = None) -> None:
        self.names = names or Names()
        self.num_words, self.num_spans = array("q"), array("q")
        self.words, self.tags, self.labels, self.spans = array("i"), array("i"), array("i"), array("i")

    def add(self, sentence: Sentence) -> None:
        """Raises RankspaceError where sentences with and without trees are mixed."""
        has_tree = sentence.spans is not None
        if self.num_words and has_tree != bool(self.num_spans):
            raise RankspaceError("a split has sentences with and without trees; make two splits of them.")
        self.num_words.append(len(sentence.words))
        self.words.extend(self.names.words.of(sentence.words))
        if sentence.spans is not None:
            self.num_spans.append(len(sentence.spans))
            self.tags.extend(self.names.tags.of(sentence.tags or [""] * len(sentence.words)))
            self.labels.extend(self.names.labels.of(label for _, _, label in sentence.spans))
            self.spans.extend(place for span in sentence.spans for place in span[:2])

    def add_tree(self, tree: Tree) -> None:
        """Words and constituents; the innermost node over a single word is its tag."""
        self.add(_sentence(tree))

    def __len__(self) -> int:
        return len(self.num_words)

    def counts(self) -> dict[str, int]:
        """How often each word occurs."""
        counts = np.bincount(_int32(self.words), minlength=len(self.names.words)).tolist()
        return {word: count for word, count in zip(self.names.words, counts, strict=True) if count}

    def corpus(self, vocabulary: Vocabulary) -> Corpus:
        """The sentences in numbers of a vocabulary."""
        number_of = vocabulary.encode(self.names.words)
        tokens = number_of[_int32(self.words)] if len(self.words) else np.zeros(0, np.int32)
        return Corpus(vocabulary, tokens, offsets_of(self.num_words), self._gold() if self.num_spans else None)

    def _gold(self) -> Gold:
        return Gold(
            offsets_of(self.num_spans),
            _int32(self.spans).reshape(-1, 2),
            _int32(self.labels),
            _int32(self.tags) + NO_TAG,
            self.names.labels.names,
            self.names.tags.names[1:],
        )


def encode_text(sentences: Iterable[Iterable[str]], vocabulary: Vocabulary) -> Corpus:
    """Sentences without gold trees; unknown words become <unk>."""
    encoder = Encoder()
    for words in sentences:
        encoder.add(Sentence(list(words)))
    return encoder.corpus(vocabulary)


def encode_trees(trees: Iterable[Tree], vocabulary: Vocabulary) -> Corpus:
    """Sentences with their trees as gold."""
    encoder = Encoder()
    for tree in trees:
        encoder.add_tree(tree)
    return encoder.corpus(vocabulary)


def _sentence(tree: Tree) -> Sentence:
    tag_at = {node.begin: place for place, node in enumerate(tree.nodes) if node.end - node.begin == 1}
    is_tag = set(tag_at.values())
    names = ["" if node.symbol is None else str(node.symbol) for node in tree.nodes]
    tags = [names[tag_at[place]] if place in tag_at else "" for place in range(len(tree))]
    spans = [(n.begin, n.end, names[place]) for place, n in enumerate(tree.nodes) if place not in is_tag]
    return Sentence([str(word) for word in tree.words], tags, spans)


def _int32(numbers: "array[int]") -> Int32[np.ndarray, "_"]:
    return np.array(numbers, dtype=np.int32)
