"""Brown clusters against merges tried one by one, each with its mutual information computed from scratch."""

import re
from collections import Counter
from itertools import combinations
from math import log

import numpy as np
import pytest

from rankspace.errors import RankspaceError
from rankspace.models.bigrams import count_bigrams
from rankspace.models.brown import TIE, Window, brown_clusters, by_frequency, mutual_information, uniform_clusters

Text = tuple[np.ndarray, np.ndarray]  # tokens, offsets


def text_of(sentences: list[list[int]]) -> Text:
    tokens = np.array([word for sentence in sentences for word in sentence], dtype=np.int32)
    return tokens, np.cumsum([0, *map(len, sentences)]).astype(np.int64)


def random_text(vocabulary: int, num_sentences: int, seed: int) -> list[list[int]]:
    """Words with a preference for some followers, so that merges differ."""
    generator = np.random.default_rng(seed)
    follow = generator.dirichlet(np.full(vocabulary, 0.3), size=vocabulary)
    sentences = []
    for _ in range(num_sentences):
        words = [int(generator.integers(vocabulary))]
        while generator.random() < 0.85:
            words.append(int(generator.choice(vocabulary, p=follow[words[-1]])))
        sentences.append(words)
    return sentences


# The reference: sets of words, and every count made anew for every merge that is tried.


def windowed_information(sentences: list[list[int]], clusters: list[frozenset[int | None]]) -> float:
    """The part of the objective in which both neighbours are in a cluster; None is the boundary."""
    ring = [word for sentence in sentences if sentence for word in (None, *sentence)]
    cluster_of = {word: c for c, members in enumerate(clusters) for word in members}
    counts = Counter(cluster_of.get(word, word) for word in ring if word in cluster_of)
    pairs = Counter(
        (cluster_of[a], cluster_of[b])
        for a, b in zip(ring, ring[1:] + ring[:1], strict=True)
        if a in cluster_of and b in cluster_of
    )
    total = len(ring)
    return sum(n / total * log(n * total / (counts[c] * counts[d])) for (c, d), n in pairs.items())


def merged_by_hand(
    sentences: list[list[int]], num: int, largest: int | None
) -> tuple[list[frozenset[int | None]], float]:
    counts = Counter(word for sentence in sentences for word in sentence)
    words = sorted(counts, key=lambda word: (-counts[word], word))
    clusters: list[frozenset[int | None]] = [frozenset({None}), *(frozenset({word}) for word in words[:num])]
    free = len(clusters)  # the slot that the next word goes to
    for word in words[num:]:
        clusters.insert(free, frozenset({word}))
        tried = []
        for a, b in combinations(range(1, len(clusters)), 2):
            both = clusters[a] | clusters[b]
            if largest is not None and len(both) > largest:
                continue
            after = [both if c == a else members for c, members in enumerate(clusters) if c != b]
            tried.append((windowed_information(sentences, after), a, b))
        best = max(value for value, _, _ in tried)
        _, a, b = next(found for found in tried if found[0] >= best - TIE)
        clusters[a] |= clusters.pop(b)
        free = b
    return clusters[1:], windowed_information(sentences, clusters)


def as_sets(clusters: np.ndarray) -> set[frozenset[int]]:
    return {frozenset(np.flatnonzero(clusters == c).tolist()) for c in np.unique(clusters)}


SIZES = [(6, 2, 0, None), (6, 2, 0, 4), (9, 3, 1, None), (9, 3, 1, 5), (10, 4, 2, None), (10, 4, 2, 4), (8, 1, 3, None)]


@pytest.mark.parametrize(("vocabulary", "num", "seed", "largest"), [*SIZES, (9, 8, 4, None)])
def test_merges_are_the_best_ones_of_every_window(vocabulary: int, num: int, seed: int, largest: int | None) -> None:
    sentences = random_text(vocabulary, 40, seed)
    tokens, offsets = text_of(sentences)
    assert len(set(tokens.tolist())) == vocabulary
    wanted, information = merged_by_hand(sentences, num, largest)
    found = brown_clusters(tokens, offsets, vocabulary, num, largest=largest)
    assert as_sets(found) == set(wanted)
    assert mutual_information(tokens, offsets, found) == pytest.approx(information, rel=1e-12)


def test_the_window_knows_objective_and_losses() -> None:
    """Also after many merges, whose roundings add up; counts are below 10^3, so errors stay far below 1e-9."""
    sentences = random_text(30, 100, 5)
    tokens, offsets = text_of(sentences)
    bigrams = count_bigrams(tokens, offsets, 30)
    window = Window(bigrams, 7)
    total = bigrams.counts.sum()
    for done, word in enumerate(by_frequency(bigrams.counts[:30]).tolist(), 1):
        window.add(word)
        members = [frozenset(np.flatnonzero(window.slot_of_word == slot).tolist()) for slot in range(8)]
        by_word = [frozenset(None if word == 30 else word for word in own) for own in members]
        assert window.objective == pytest.approx(windowed_information(sentences, by_word), abs=1e-12)
        if done < 7:
            continue
        losses, first, second = window.losses(), *window.cheapest()
        for a, b in combinations(range(1, 8), 2):
            after = [own for c, own in enumerate(by_word) if c not in (a, b)] + [by_word[a] | by_word[b]]
            lost = window.objective - windowed_information(sentences, after)
            assert losses[a, b] / total == pytest.approx(lost, abs=1e-12)
        window.merge(first, second)


def test_the_whole_objective_is_mutual_information() -> None:
    """With all words in the window it is that of the joint distribution of neighbours, marginals and all."""
    sentences = random_text(12, 60, 6)
    tokens, offsets = text_of(sentences)
    clusters = np.arange(12) % 5
    window = Window(count_bigrams(tokens, offsets, 12), 12)
    for word in range(12):
        window.add(word)
    for word in range(5, 12):
        slots = window.slot_of_word
        window.merge(int(slots[word % 5]), int(slots[word]))
    assert mutual_information(tokens, offsets, clusters) == pytest.approx(window.objective, rel=1e-12)
    own = mutual_information(tokens, offsets, np.arange(12))
    assert 0 < mutual_information(tokens, offsets, clusters) < own


def test_obvious_classes() -> None:
    """Determiners, nouns and verbs in sentences of two forms: each class takes the places the others never take."""
    generator = np.random.default_rng(7)
    classes = [[0, 1, 2], [3, 4, 5, 6, 7], [8, 9, 10, 11]]
    forms = [[0, 1, 2], [0, 1, 2, 0, 1]]
    sentences = [[int(generator.choice(classes[c])) for c in forms[generator.integers(2)]] for _ in range(400)]
    found = brown_clusters(*text_of(sentences), 12, 3)
    assert as_sets(found) == {frozenset(words) for words in classes}


def test_clusters_are_numbered_by_their_most_frequent_words() -> None:
    sentences = random_text(20, 80, 8)
    tokens, offsets = text_of(sentences)
    found = brown_clusters(tokens, offsets, 20, 6)
    counts = np.bincount(tokens, minlength=20)
    firsts = [int(counts[found == c].max()) for c in range(6)]
    assert found.dtype == np.int64
    assert firsts == sorted(firsts, reverse=True)


def test_the_result_depends_on_the_text_alone() -> None:
    tokens, offsets = text_of(random_text(25, 80, 9))
    once = brown_clusters(tokens, offsets, 25, 5)
    assert (brown_clusters(tokens.astype(np.int64), offsets, 25, 5) == once).all()
    assert (brown_clusters(tokens.copy(), offsets.copy(), 25, 5) == once).all()


def test_merges_that_cost_the_same_are_made_in_the_order_of_slots() -> None:
    """All words have the same neighbours, so every merge is free: 0 and 1, whose slot 4 takes, then 0 and 4."""
    sentences = [[word] for word in range(5)]
    assert brown_clusters(*text_of(sentences), 5, 3).tolist() == [0, 0, 1, 2, 0]


def test_tick_tells_words_done() -> None:
    told: list[tuple[int, int]] = []
    brown_clusters(*text_of([[0, 1], [2, 0]]), 5, 2, tick=lambda done, total: told.append((done, total)))
    assert told == [(1, 3), (2, 3), (3, 3)]


def test_words_that_never_occur_fill_the_smallest_clusters() -> None:
    sentences = random_text(8, 60, 10)
    tokens, offsets = text_of(sentences)
    seen = brown_clusters(tokens, offsets, 8, 3)
    found = brown_clusters(tokens, offsets, 14, 3)
    assert (found[:8] == seen).all()
    sizes = np.bincount(seen, minlength=3)
    for word in range(8, 14):
        assert found[word] == sizes.argmin()
        sizes[found[word]] += 1


@pytest.mark.parametrize("num", [3, 4, 9])
def test_fewer_words_than_clusters(num: int) -> None:
    """Each word has a cluster of its own, and numbers have no gaps."""
    assert brown_clusters(*text_of([[2, 0, 2]]), 3, num).tolist() == [1, 2, 0]


def test_no_text() -> None:
    assert brown_clusters(*text_of([]), 5, 2).tolist() == [0, 1, 0, 1, 0]
    assert brown_clusters(*text_of([[], []]), 5, 2).tolist() == [0, 1, 0, 1, 0]
    assert mutual_information(*text_of([]), np.zeros(5, dtype=np.int64)) == 0


def test_one_sentence() -> None:
    """a b a b a c: b and c stand after a, so they belong together."""
    assert brown_clusters(*text_of([[0, 1, 0, 1, 0, 2]]), 3, 2).tolist() == [0, 1, 1]


def test_sentences_without_words_are_passed_over() -> None:
    sentences = random_text(9, 30, 11)
    with_gaps = [[], *(part for sentence in sentences for part in (sentence, []))]
    assert (brown_clusters(*text_of(with_gaps), 9, 3) == brown_clusters(*text_of(sentences), 9, 3)).all()


def test_largest_bounds_the_clusters() -> None:
    """Every merge is free, so that without a bound one cluster takes all."""
    tokens, offsets = text_of([[word] for word in range(40)])
    free = np.bincount(brown_clusters(tokens, offsets, 45, 8))
    bound = np.bincount(brown_clusters(tokens, offsets, 45, 8, largest=10), minlength=8)
    assert free.max() == 33
    assert bound.max() == 10
    assert bound.min() > 0


def test_uniform_clusters() -> None:
    assert uniform_clusters(7, 3).tolist() == [0, 1, 2, 2, 1, 0, 0]
    assert uniform_clusters(np.array([1, 9, 5, 5, 2]), 2).tolist() == [0, 0, 1, 1, 0]
    assert uniform_clusters(3, 5).tolist() == [0, 1, 2]


def test_uniform_clusters_occur_about_equally_often() -> None:
    counts = (10_000 / np.arange(1, 1001)).astype(np.int64)
    clusters = uniform_clusters(counts, 10)
    sizes = np.bincount(clusters)
    assert sizes.max() - sizes.min() <= 1
    occurrences = np.bincount(clusters[10:], counts[10:])  # the few most frequent words outweigh all others
    assert occurrences.max() < 1.2 * occurrences.min()


ONE = text_of([[0, 1]])
MISTAKES = {
    "no clusters": (lambda: brown_clusters(*ONE, 2, 0), "brown_clusters: num is 0; give one cluster or more."),
    "no words": (
        lambda: brown_clusters(*text_of([]), 0, 2),
        "brown_clusters: the vocabulary has 0 words; give one or more.",
    ),
    "unknown word": (
        lambda: brown_clusters(*ONE, 1, 2),
        "brown_clusters: tokens go from 0 to 1, but the vocabulary has 1 words; number words from 0.",
    ),
    "negative word": (
        lambda: mutual_information(*text_of([[-1, 1]]), np.zeros(2, dtype=np.int64)),
        "mutual_information: tokens go from -1 to 1, but the vocabulary has 2 words; number words from 0.",
    ),
    "offsets": (
        lambda: brown_clusters(ONE[0], np.array([0, 1]), 2, 2),
        "brown_clusters: offsets do not rise from 0 to 2, the number of tokens; sentence i is tokens[offsets[i] : "
        "offsets[i + 1]].",
    ),
    "too small": (
        lambda: brown_clusters(*ONE, 100, 9, largest=19),
        "brown_clusters: largest is 19, but 100 words are merged into 9 clusters of any text only if it is 20 or more; "
        "give that, or None.",
    ),
    "uniform": (lambda: uniform_clusters(5, 0), "uniform_clusters: num is 0; give one cluster or more."),
    "uniform, no words": (
        lambda: uniform_clusters(-1, 1),
        "uniform_clusters: the vocabulary has 0 words; give one or more.",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes(mistake: str) -> None:
    act, message = MISTAKES[mistake]
    with pytest.raises(RankspaceError, match=f"^{re.escape(message)}$"):
        act()
