"""Words divided into clusters for models whose states are in blocks: Brown clusters, and words dealt out evenly.

Brown clusters (Brown et al. 1992) are those of a class bigram model: they are merged so that adjacent clusters tell as
much about each other as possible. The text is taken as a ring of symbols in which a boundary stands before each
sentence, so that every word has one neighbour to the left and one to the right. The boundary is a cluster of its own:
it is a context like any other, but no word, and is never merged. With n(c, d) the number of times that cluster d
follows c, n(c) that of c, and N that of all symbols, boundaries included, the objective is

    sum over c, d of n(c, d) / N log (n(c, d) N / (n(c) n(d)))

Clusters are merged greedily within a window (Liang 2005). Words come in by falling frequency (of equally frequent ones
the lower number first). Whenever there are more clusters than wanted, the two are merged whose merge lowers the
objective least; words that are not in yet have no part in it.
"""

from collections.abc import Callable
from math import log

import numpy as np
from jaxtyping import Float64, Int, Int64

from rankspace.errors import RankspaceError
from rankspace.models.bigrams import Bigrams, check_text, count_bigrams

Tick = Callable[[int, int], object]

TIE = 1e-11  # of N: losses as near as this count as equal; what rounding adds up to over a text is less


def brown_clusters(
    tokens: Int[np.ndarray, "token"],
    offsets: Int[np.ndarray, "sentences_and_one"],
    vocabulary: int,
    num: int,
    *,
    largest: int | None = None,
    tick: Tick | None = None,
) -> Int64[np.ndarray, "vocabulary"]:
    """The Brown cluster of each word; sentence i of the text is tokens[offsets[i] : offsets[i + 1]].

    Clusters are numbered from 0 by their most frequent words, without gaps; there are `num`, or as many as words if
    these are fewer. Words that do not occur go one by one to the cluster with the fewest words, the first of those.
    `largest` bounds the number of words in a cluster: only merges within it are considered. It must be at least 2
    vocabulary / (num + 1); then there always is one. `tick(done, total)` is called after each word.

    Clusters stand in slots: a merged one in the first of the two, the next word in the other. Of merges that cost the
    same, the one of the first slots is taken, so the result depends on the text alone. Sentences without words are
    passed over. Costs O(vocabulary num^2) time, and num^2 memory beside the bigrams.

    Raises RankspaceError for a text that does not fit its offsets or the vocabulary, and for impossible sizes.
    """
    check_text("brown_clusters", tokens, offsets, vocabulary)
    _check_sizes("brown_clusters", vocabulary, num)
    _check_largest(largest, vocabulary, num)
    bigrams = count_bigrams(tokens, offsets, vocabulary)
    words = by_frequency(bigrams.counts[:vocabulary])
    words = words[bigrams.counts[words] > 0]
    window = Window(bigrams, num + 1, largest)
    for done, word in enumerate(words.tolist(), 1):
        window.add(word)
        if done > num:
            window.merge(*window.cheapest())
        if tick is not None:
            tick(done, len(words))
    return _numbered(window.slot_of_word[:vocabulary], words, min(num, vocabulary))


def uniform_clusters(counts: Int[np.ndarray, "vocabulary"] | int, num: int) -> Int64[np.ndarray, "vocabulary"]:
    """Words dealt out evenly to `num` clusters, without looking at a text; `counts` may be the number of words.

    By falling count (of equal ones the lower number first) words go to clusters 0, 1, ..., num - 1, the next ones to
    num - 1, ..., 0, and so on. So sizes differ by one at most, and clusters occur about equally often. With fewer words
    than clusters each has its own. Raises RankspaceError for impossible sizes.
    """
    counts = np.zeros(max(counts, 0), dtype=np.int64) if isinstance(counts, int) else counts
    _check_sizes("uniform_clusters", len(counts), num)
    turn, place = np.divmod(np.arange(len(counts)), num)
    clusters = np.empty(len(counts), dtype=np.int64)
    clusters[by_frequency(counts)] = np.where(turn % 2, num - 1 - place, place)
    return clusters


def mutual_information(
    tokens: Int[np.ndarray, "token"],
    offsets: Int[np.ndarray, "sentences_and_one"],
    clusters: Int[np.ndarray, "vocabulary"],
) -> float:
    """The objective of some clusters, in nats; 0 for a text without words. Linear in the text and in clusters squared.

    Raises RankspaceError for a text that does not fit its offsets or the clusters.
    """
    check_text("mutual_information", tokens, offsets, len(clusters))
    bigrams = count_bigrams(tokens, offsets, len(clusters))
    boundary = int(clusters.max(initial=-1)) + 1
    joint = bigrams.between(np.append(clusters, boundary), boundary + 1)
    total, left, right = joint.sum(), joint.sum(1), joint.sum(0)
    expected = np.outer(left, right)
    seen = joint > 0
    return float((joint[seen] * np.log(joint[seen] * total / expected[seen])).sum() / max(total, 1))


def by_frequency(counts: Int[np.ndarray, "vocabulary"]) -> Int64[np.ndarray, "vocabulary"]:
    """Words by falling count; of equal ones the lower number first."""
    return np.argsort(-counts.astype(np.int64), kind="stable")


class Window:
    """Some clusters in slots, with the costs of all merges kept up to date; slot 0 is the boundary's.

    With f(n) = n log n, N times the objective is

        sum over c, d of f(n(c, d)) - sum over c of t(c) log n(c) + constant,  t(c) = sum over d of n(c, d) + n(d, c)

    in which t counts neighbours in the window alone. A merge concerns the rows and columns of two slots. What takes
    long of it, for each pair the sum over all x of f(n(c, x) + n(d, x)) + f(n(x, c) + n(x, d)), is `merged`: a slot
    that changes changes one term of each sum, and the sums of its own pairs.
    """

    def __init__(self, bigrams: Bigrams, num_slots: int, largest: int | None = None) -> None:
        size = num_slots + 1
        self.bigrams, self.largest = bigrams, largest
        self.joint: Float64[np.ndarray, "slot slot"] = np.zeros((size, size))  # n(c, d)
        self.counts: Float64[np.ndarray, slot] = np.zeros(size)  # n(c)
        self.merged: Float64[np.ndarray, "slot slot"] = np.zeros((size, size))
        self.num_words: Int64[np.ndarray, slot] = np.zeros(size, dtype=np.int64)
        self.slot_of_word: Int64[np.ndarray, symbol] = np.full(len(bigrams.counts), -1)
        self._free = list(range(num_slots, -1, -1))
        self.add(len(bigrams.counts) - 1)

    def add(self, word: int) -> None:
        """Puts a word into a cluster of its own, in the first slot that is free."""
        slot = self._free.pop()
        self.slot_of_word[word] = slot
        after, before = self.bigrams.around(word, self.slot_of_word, len(self.counts))
        self._put(slot, after, before, float(self.bigrams.counts[word]), 1)

    def merge(self, first: int, second: int) -> None:
        """Merges two clusters into the slot of the first and frees that of the second."""
        joint, pair = self.joint, [first, second]
        after, before = joint[pair].sum(0), joint[:, pair].sum(1)
        after[first], before[first] = after[pair].sum(), before[pair].sum()
        after[second] = before[second] = 0
        count, words = float(self.counts[pair].sum()), int(self.num_words[pair].sum())
        self._clear(second)
        self._clear(first)
        self._put(first, after, before, count, words)
        self.slot_of_word[self.slot_of_word == second] = first
        self._free.append(second)

    def cheapest(self) -> tuple[int, int]:
        """The two clusters whose merge lowers the objective least; the first of those that are equal but for rounding.

        Every slot must be taken.
        """
        losses = self.losses()
        losses[~np.tri(len(losses), k=-1, dtype=bool).T] = np.inf
        losses[0] = np.inf
        if self.largest is not None:
            losses[self.num_words[:, None] + self.num_words > self.largest] = np.inf
        limit = losses.min() + TIE * self.bigrams.counts.sum()
        first, second = divmod(int((losses <= limit).argmax()), len(losses))
        return first, second

    def losses(self) -> Float64[np.ndarray, "slot slot"]:
        """How much N times the objective falls with each merge; of meaning where both slots are taken and differ."""
        joint, own = self.joint, self.joint.diagonal()
        each, (after, before) = _f(joint), (_f(own[:, None] + joint), _f(own + joint))
        both = _f(own[:, None] + own + joint + joint.T)
        twice = after + after.T + before + before.T  # terms of `merged` at x = c and x = d, which become one
        alone = each.sum(0) + each.sum(1) - each.diagonal()
        loss: np.ndarray = alone[:, None] + alone - each - each.T - (self.merged - twice + both)
        near = joint.sum(0) + joint.sum(1)
        lower = near * _log(self.counts)
        loss += (near[:, None] + near) * _log(self.counts[:, None] + self.counts) - lower[:, None] - lower
        return loss

    @property
    def objective(self) -> float:
        """The objective as far as clusters in the window go."""
        joint, total = self.joint, float(self.bigrams.counts.sum())
        found = _f(joint).sum() - ((joint.sum(0) + joint.sum(1)) * _log(self.counts)).sum()
        return float(found + joint.sum() * log(total)) / total

    def _put(self, slot: int, after: np.ndarray, before: np.ndarray, count: float, num_words: int) -> None:
        joint = self.joint
        joint[slot], joint[:, slot] = after, before
        self.counts[slot], self.num_words[slot] = count, num_words
        self.merged += _sums_of_pairs(joint[slot], joint[:, slot])
        own = _f(joint + joint[slot]).sum(1) + _f(joint + joint[:, slot, None]).sum(0)
        self.merged[slot], self.merged[:, slot] = own, own

    def _clear(self, slot: int) -> None:
        joint = self.joint
        self.merged -= _sums_of_pairs(joint[slot], joint[:, slot])
        joint[slot], joint[:, slot] = 0, 0
        self.counts[slot], self.num_words[slot] = 0, 0


def _sums_of_pairs(after: np.ndarray, before: np.ndarray) -> Float64[np.ndarray, "slot slot"]:
    """The term of one slot in the sums of all pairs."""
    found: np.ndarray = _f(after[:, None] + after) + _f(before[:, None] + before)
    return found


def _f(count: np.ndarray) -> np.ndarray:
    """n log n, 0 at 0."""
    found: np.ndarray = count * _log(count)
    return found


def _log(count: np.ndarray) -> np.ndarray:
    """The logarithm of a whole number; 0 at 0, where all that it is multiplied with is 0."""
    found: np.ndarray = np.log(np.maximum(count, 1))
    return found


def _numbered(
    slots: Int64[np.ndarray, "vocabulary"], words: Int64[np.ndarray, "seen"], num: int
) -> Int64[np.ndarray, "vocabulary"]:
    """Clusters by their most frequent words; `words` are those with a slot, by falling frequency."""
    found, first = np.unique(slots[words], return_index=True)
    number = np.full(slots.max(initial=0) + 1, -1)
    number[found[np.argsort(first)]] = np.arange(len(found))
    clusters = np.full(len(slots), -1)
    clusters[words] = number[slots[words]]
    unseen = (slots < 0).nonzero()[0]
    clusters[unseen] = _levelled(np.bincount(clusters[words], minlength=num), len(unseen))
    return clusters


def _levelled(sizes: Int64[np.ndarray, "cluster"], count: int) -> Int64[np.ndarray, "_"]:
    """Where each of `count` words goes if each goes to the smallest cluster, the first of those."""
    top = int(np.sort(sizes)[0]) + count if len(sizes) else 0
    low, high = int(sizes.min(initial=0)), top
    while low < high:  # the height up to which all are filled
        middle = (low + high + 1) // 2
        low, high = (middle, high) if np.maximum(middle - sizes, 0).sum() <= count else (low, middle - 1)
    cluster = np.repeat(np.arange(len(sizes)), np.maximum(low + 1 - sizes, 0))
    height = np.concatenate([np.arange(size, low + 1) for size in sizes] or [cluster])
    return cluster[np.argsort(height, kind="stable")[:count]]


def _check_sizes(name: str, vocabulary: int, num: int) -> None:
    if num < 1:
        raise RankspaceError(f"{name}: num is {num}; give one cluster or more.")
    if vocabulary < 1:
        raise RankspaceError(f"{name}: the vocabulary has {vocabulary} words; give one or more.")


def _check_largest(largest: int | None, vocabulary: int, num: int) -> None:
    least = -(-2 * vocabulary // (num + 1))
    if largest is not None and largest < least:
        raise RankspaceError(
            f"brown_clusters: largest is {largest}, but {vocabulary} words are merged into {num} clusters of any text "
            f"only if it is {least} or more; give that, or None."
        )
