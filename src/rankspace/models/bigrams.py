"""Which symbols of a text follow which: counts over a ring in which a boundary stands before each sentence."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64, Int, Int64

from rankspace.errors import RankspaceError


@dataclass(frozen=True)
class Bigrams:
    """Counts of symbols and of pairs of adjacent ones. Symbols are the words and, as the last, the boundary.

    Pairs are sorted by their first symbols: those of symbol s are starts[s], ..., starts[s + 1] - 1. `by_second` sorts
    them by their second symbols, in the same manner with `ends`.
    """

    counts: Int64[np.ndarray, "symbol"]
    first: Int64[np.ndarray, "pair"]
    second: Int64[np.ndarray, "pair"]
    times: Int64[np.ndarray, "pair"]
    starts: Int64[np.ndarray, "symbols_and_one"]
    by_second: Int64[np.ndarray, "pair"]
    ends: Int64[np.ndarray, "symbols_and_one"]

    def around(
        self, symbol: int, slots: Int64[np.ndarray, "symbol"], num_slots: int
    ) -> tuple[Float64[np.ndarray, "slot"], Float64[np.ndarray, "slot"]]:
        """How often symbols of each slot follow a symbol, and precede it; slots of -1 are left out."""
        after = slice(self.starts[symbol], self.starts[symbol + 1])
        before = self.by_second[self.ends[symbol] : self.ends[symbol + 1]]
        followers = _added(slots[self.second[after]], self.times[after], num_slots)
        return followers, _added(slots[self.first[before]], self.times[before], num_slots)

    def between(self, slots: Int64[np.ndarray, "symbol"], num_slots: int) -> Float64[np.ndarray, "slot slot"]:
        """How often a symbol of each slot is followed by one of each."""
        pairs = slots[self.first] * num_slots + slots[self.second]
        return np.bincount(pairs, self.times, num_slots**2).astype(np.float64).reshape(num_slots, num_slots)


def count_bigrams(
    tokens: Int[np.ndarray, "token"], offsets: Int[np.ndarray, "sentences_and_one"], vocabulary: int
) -> Bigrams:
    """The bigrams of a text: those of the ring boundary, sentence, boundary, sentence, ... Sentences without words are
    passed over."""
    ring = np.insert(tokens.astype(np.int64), np.unique(offsets[:-1][np.diff(offsets) > 0]), vocabulary)
    size = vocabulary + 1
    pairs, times = np.unique(ring * size + np.roll(ring, -1), return_counts=True)
    first, second = np.divmod(pairs, size)
    by_second = np.argsort(second, kind="stable")
    symbols = np.arange(size + 1)
    starts, ends = np.searchsorted(first, symbols), np.searchsorted(second[by_second], symbols)
    return Bigrams(np.bincount(ring, minlength=size), first, second, times, starts, by_second, ends)


def check_text(
    name: str,
    tokens: Int[np.ndarray, "token"],
    offsets: Int[np.ndarray, "sentences_and_one"],
    vocabulary: int,
) -> None:
    """Offsets rise from 0 to the number of tokens, and these are words of the vocabulary."""
    if not len(offsets) or offsets[0] != 0 or offsets[-1] != len(tokens) or (np.diff(offsets) < 0).any():
        raise RankspaceError(
            f"{name}: offsets do not rise from 0 to {len(tokens)}, the number of tokens; sentence i is "
            f"tokens[offsets[i] : offsets[i + 1]]."
        )
    if len(tokens) and not 0 <= tokens.min() <= tokens.max() < vocabulary:
        raise RankspaceError(
            f"{name}: tokens go from {tokens.min()} to {tokens.max()}, but the vocabulary has {vocabulary} words; "
            f"number words from 0."
        )


def _added(slots: Int64[np.ndarray, "_"], times: Int64[np.ndarray, "_"], num_slots: int) -> Float64[np.ndarray, "slot"]:
    known = slots >= 0
    return np.bincount(slots[known], times[known], num_slots).astype(np.float64)  # integers if there are none
