"""What is done to sentences between a file and the vocabulary: the options, and how each is carried out."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate
from typing import Literal

from rankspace.data.sentence import LabelledSpan, Sentence
from rankspace.errors import RankspaceError

TRACE = "-NONE-"  # the tag of what is not pronounced
WRAPPERS = ("", "ROOT", "TOP")  # labels of brackets around a tree that are not part of it

MAX_LENGTH = 1000  # words of a sentence, unless told otherwise

RUN_OF_DIGITS = re.compile(r"[0-9][0-9.,]*")
NUMBER = re.compile(r"(?=.*[0-9%])[0-9.,:/\\%+-]+")


@dataclass(frozen=True)
class Preprocessing:
    """Options of `prepare`. The defaults change as little as possible: traces go, function tags go.

    removed_tags: words of treebanks with these POS tags are left out.
    removed_words: these words of text, which has no tags, are left out.
    keep_traces: keep the empty elements of treebanks, words with the tag -NONE-.
    removed_roots: trees with these labels are left out as a whole.
    keep_function_tags: keep NP-SBJ-1 as it is; otherwise it becomes NP.
    unary: of nodes over the same words "keep" all that differ in label, or only the "top" or "bottom" one.
    lower_case: lower-case all words.
    numbers: "keep" them; "digits", as the paper: each run of digits, also within a word, becomes N (10-year: N-year);
        "words", as the PTB language-model text: a word of digits, signs and % becomes N (10-year stays).
    max_words: the most frequent words of the training split are known, all others <unk>; None for no limit.
    min_count: words that are less frequent than this there are <unk>.
    eos: give <eos> a number, for models in which it ends every sentence.
    max_length: a longer sentence, in words after all of this, is bad input: to a grammar a text without line ends is
        one sentence that takes days. 0 or None for no limit.
    """

    removed_tags: tuple[str, ...] = ()
    removed_words: tuple[str, ...] = ()
    keep_traces: bool = False
    removed_roots: tuple[str, ...] = ()
    keep_function_tags: bool = False
    unary: Literal["keep", "top", "bottom"] = "keep"
    lower_case: bool = False
    numbers: Literal["keep", "digits", "words"] = "keep"
    max_words: int | None = None
    min_count: int = 1
    eos: bool = False
    max_length: int | None = MAX_LENGTH

    def __post_init__(self) -> None:
        for name, least in (("max_words", 1), ("min_count", 1), ("max_length", 0)):
            value = getattr(self, name)
            if value is not None and value < least:
                raise RankspaceError(f"Preprocessing: {name} is {value}; give at least {least}.")


class Cleaner:
    """Applies the options that concern single sentences. What a word or label becomes is worked out once."""

    def __init__(self, options: Preprocessing) -> None:
        self.options = options
        traces = () if options.keep_traces else (TRACE,)
        self._removed_tags = frozenset((*options.removed_tags, *traces))
        self._removed_words = frozenset(options.removed_words)
        self._words = Memo(self._word)
        self._labels = Memo(self._label)

    def is_removed(self, sentence: Sentence) -> bool:
        """Whether its tree has a label that is left out."""
        label = next((label for _, _, label in sentence.spans or () if label not in WRAPPERS), "")
        return self._labels[label] in self.options.removed_roots

    def clean(self, sentence: Sentence) -> Sentence:
        """The sentence that is left, perhaps without words. Nodes without words go, wrappers of the tree too."""
        if sentence.spans is None or sentence.tags is None:
            kept = sentence.words
            if not self._removed_words.isdisjoint(kept):
                kept = [word for word in kept if word not in self._removed_words]
            return sentence._replace(words=list(map(self._words.__getitem__, kept)))
        stays = [tag not in self._removed_tags for tag in sentence.tags]
        pairs = [(w, t) for w, t, stay in zip(sentence.words, sentence.tags, stays, strict=True) if stay]
        place = list(accumulate(stays, initial=0))
        spans = [(place[b], place[e], self._labels[label]) for b, e, label in sentence.spans if place[b] < place[e]]
        return Sentence(
            [self._words[word] for word, _ in pairs],
            [tag for _, tag in pairs],
            _merged(_unwrapped(spans, len(pairs)), self.options.unary),
            sentence.line,
        )

    def _word(self, word: str) -> str:
        if self.options.lower_case:
            word = word.lower()
        if self.options.numbers == "digits":
            return RUN_OF_DIGITS.sub("N", word)
        if self.options.numbers == "words" and NUMBER.fullmatch(word):
            return "N"
        return word

    def _label(self, label: str) -> str:
        return label if self.options.keep_function_tags else re.sub(r"(?<=.)[-=|].*", "", label)


class Memo(dict[str, str]):
    """A function of strings that remembers its results; looking one up runs no Python code."""

    def __init__(self, function: Callable[[str], str]) -> None:
        super().__init__()
        self._function = function

    def __missing__(self, key: str) -> str:
        self[key] = value = self._function(key)
        return value


def _unwrapped(spans: list[LabelledSpan], num_words: int) -> list[LabelledSpan]:
    """Without the brackets around the tree."""
    first = 0
    while first < len(spans) and spans[first][2] in WRAPPERS and spans[first][:2] == (0, num_words):
        first += 1
    return spans[first:]


def _merged(spans: list[LabelledSpan], unary: str) -> list[LabelledSpan]:
    """Nodes over the same words, which are neighbours in preorder, made one where they have one label or are to."""
    merged: list[LabelledSpan] = []
    for span in spans:
        same = merged and merged[-1][:2] == span[:2]
        if not same or (unary == "keep" and merged[-1] != span):
            merged.append(span)
        elif unary == "bottom":
            merged[-1] = span
    return merged
