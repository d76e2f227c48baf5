"""Words and their numbers."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import repeat
from pathlib import Path

import numpy as np
from jaxtyping import Int32

from rankspace.data.lines import BadInput, decoded, raw_lines
from rankspace.errors import FormatError, RankspaceError
from rankspace.files import whole_file

UNKNOWN = "<unk>"
END = "<eos>"


@dataclass(frozen=True)
class Vocabulary:
    """Words in the order of their numbers. One of them is <unk>; <eos>, which ends sentences, may be another.

    Raises RankspaceError for words that repeat, are empty or hold white space, and where <unk> is missing.
    """

    words: tuple[str, ...]

    def __post_init__(self) -> None:
        for number, word in enumerate(self.words):
            if word.split() != [word]:
                raise RankspaceError(f"Vocabulary: word {number} is {word!r}; give text without white space.")
        if len(self.index) < len(self.words):
            number, word = next((n, w) for n, w in enumerate(self.words) if self.index[w] != n)
            raise RankspaceError(f"Vocabulary: {word!r} is word {number} and {self.index[word]}; give it once.")
        if UNKNOWN not in self.index:
            raise RankspaceError(f"Vocabulary: {UNKNOWN} is missing; add it, for words that are not listed.")

    @classmethod
    def from_counts(
        cls, counts: Mapping[str, int], max_words: int | None = None, min_count: int = 1, eos: bool = False
    ) -> "Vocabulary":
        """<unk>, <eos> if wanted, then the most frequent words; of equally frequent ones those first in the alphabet.

        <unk> and <eos> do not count among the `max_words`.
        """
        special = (UNKNOWN, END) if eos else (UNKNOWN,)
        known = [word for word, count in counts.items() if count >= min_count and word not in special]
        known.sort(key=lambda word: (-counts[word], word))
        return cls(special + tuple(known[:max_words]))

    @classmethod
    def load(cls, file: Path | str) -> "Vocabulary":
        """The words of a file, one a line. Raises FormatError, with file and line."""
        path = Path(file)
        words: dict[str, int] = {}
        for line, raw in raw_lines(path):
            text = decoded(raw, path, line, BadInput())
            word = "" if text is None else text.rstrip("\r\n")
            if word.split() != [word]:
                raise FormatError(f"{path}: line {line}: is {word!r}; write one word a line, without white space.")
            if word in words:
                raise FormatError(f"{path}: line {line}: {word!r} is on line {words[word]} already; give it once.")
            words[word] = line
        if UNKNOWN not in words:
            raise FormatError(f"{path}: line {len(words) + 1}: {UNKNOWN} is missing; add a line with it.")
        return cls(tuple(words))

    def save(self, file: Path | str) -> None:
        """Writes one word a line, whole or not at all."""
        with whole_file(file) as unfinished:
            unfinished.write_text("".join(f"{word}\n" for word in self.words), encoding="utf-8", newline="\n")

    @cached_property
    def index(self) -> dict[str, int]:
        """The number of each word; of a repeated word, while it is checked, the first."""
        index: dict[str, int] = {}
        for number, word in enumerate(self.words):
            index.setdefault(word, number)
        return index

    @property
    def unk(self) -> int:
        return self.index[UNKNOWN]

    @property
    def eos(self) -> int | None:
        return self.index.get(END)

    def __len__(self) -> int:
        return len(self.words)

    def __contains__(self, word: object) -> bool:
        return word in self.index

    def encode(self, words: Iterable[str]) -> Int32[np.ndarray, "length"]:
        """Numbers of words, that of <unk> for words which are not listed."""
        return np.fromiter(map(self.index.get, words, repeat(self.unk)), dtype=np.int32)

    def decode(self, numbers: Iterable[int] | Int32[np.ndarray, "length"]) -> list[str]:
        return [self.words[number] for number in numbers]
