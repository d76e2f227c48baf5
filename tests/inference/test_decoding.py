"""Decoding against the list of all binary trees: best and k best, ties, forbidden spans, ragged batches, padding."""

import math

import pytest
import torch
from torch import Tensor

from rankspace import Tree
from rankspace.errors import RankspaceError, ShapeError
from rankspace.inference import decoding
from rankspace.inference.decoding import best_tree, best_trees, brackets, crossing

Ranked = list[tuple[float, list[tuple[int, int]]]]

CATALAN = [1, 1, 2, 5, 14, 42, 132]  # binary trees over 1, 2, ... words


def all_trees(scores: Tensor, begin: int, end: int) -> Ranked:
    """Sum and brackets of every allowed tree, best first, of equal ones by split, left rank and right rank."""
    if end - begin == 1:
        return [(0.0, [])]
    parts = [(all_trees(scores, begin, split), all_trees(scores, split, end)) for split in range(begin + 1, end)]
    score = float(scores[begin, end])
    found = [
        (left_sum + right_sum + score, [(begin, end), *left, *right])
        for lefts, rights in parts
        for left_sum, left in lefts
        for right_sum, right in rights
    ]
    return sorted((tree for tree in found if tree[0] > -math.inf), key=lambda tree: -tree[0])


def random_scores(seed: int, *shape: int) -> Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def tied_scores(seed: int, *shape: int) -> Tensor:
    """Zeros, ones, and some forbidden spans: sums are exact and most of them equal."""
    values = torch.tensor([0.0, 0.0, 1.0, 1.0, 1.0, -math.inf], dtype=torch.float64)
    return values[torch.randint(6, shape, generator=torch.Generator().manual_seed(seed))]


def poisoned(scores: Tensor, lengths: list[int]) -> Tensor:
    """The scores with NaN in all that is not a span of two words or more."""
    scores = scores.clone()
    for chart, length in zip(scores, lengths, strict=True):
        chart[length + 1 :], chart[:, length + 1 :] = math.nan, math.nan
        chart[torch.ones_like(chart).triu(2) == 0] = math.nan
    return scores


@pytest.mark.parametrize("make", [random_scores, tied_scores])
@pytest.mark.parametrize("length", [1, 2, 3, 4, 5, 6, 7])
def test_best_trees_are_the_first_of_all(length: int, make) -> None:
    scores = make(length, 3, length + 1, length + 1)
    lengths = torch.tensor([length] * 3)
    expected = [all_trees(chart, 0, length) for chart in scores]
    if make is random_scores:
        assert {len(trees) for trees in expected} == {CATALAN[length - 1]}
    best = best_tree(scores, lengths)
    assert brackets(best.splits, lengths) == [trees[0][1] if trees else None for trees in expected]
    for k in (1, 3, 7, CATALAN[length - 1] + 2):
        result = best_trees(scores, lengths, k)
        assert result.brackets == [[tree for _, tree in trees[:k]] for trees in expected]
        sums = [([total for total, _ in trees] + [-math.inf] * k)[:k] for trees in expected]
        # sums of at most six scores, whose order of addition differs
        torch.testing.assert_close(result.totals, torch.tensor(sums, dtype=torch.float64), rtol=1e-14, atol=1e-14)
        assert best.total.equal(result.totals[:, 0])


@pytest.mark.parametrize("make", [random_scores, tied_scores])
def test_a_sentence_gets_what_it_gets_alone_and_padding_is_not_read(make) -> None:
    lengths = [4, 0, 7, 1, 2, 9, 2, 3]
    scores = poisoned(make(0, 8, 12, 12), lengths)
    best, several = best_tree(scores, lengths), best_trees(scores, torch.tensor(lengths), 6)
    together = brackets(best.splits, lengths)
    for b, length in enumerate(lengths):
        alone = scores[b : b + 1, : length + 1, : length + 1]
        single, few = best_tree(alone, [length]), best_trees(alone, [length], 6)
        assert single.total.equal(best.total[b : b + 1])
        assert few.totals.equal(several.totals[b : b + 1])
        assert brackets(single.splits, [length]) == [together[b]]
        assert few.brackets == [several.brackets[b]]
    assert (together[1], several.brackets[1], best.total[1].item()) == (None, [], -math.inf)
    assert (together[3], several.brackets[3], best.total[3].item()) == ([], [[]], 0.0)


def test_the_smallest_split_wins_ties() -> None:
    scores = torch.zeros(1, 6, 6)
    assert brackets(best_tree(scores, [5]).splits, [5]) == [[(0, 5), (1, 5), (2, 5), (3, 5)]]
    assert best_trees(scores, [4], 5).brackets[0] == [
        [(0, 4), (1, 4), (2, 4)],
        [(0, 4), (1, 4), (1, 3)],
        [(0, 4), (0, 2), (2, 4)],
        [(0, 4), (0, 3), (1, 3)],
        [(0, 4), (0, 3), (0, 2)],
    ]


def test_forbidden_spans_leave_no_tree() -> None:
    scores = torch.ones(2, 4, 4)
    scores[0, 0, 2] = scores[0, 1, 3] = -math.inf
    scores[1, 1, 3] = -math.inf
    best = best_tree(scores, [3, 3])
    assert best.total.tolist() == [-math.inf, 2.0]
    assert brackets(best.splits, [3, 3]) == [None, [(0, 3), (0, 2)]]
    several = best_trees(scores, [3, 3], 2)
    assert several.totals.tolist() == [[-math.inf, -math.inf], [2.0, -math.inf]]
    assert several.brackets == [[], [[(0, 3), (0, 2)]]]


def test_candidates_in_small_portions_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    scores = tied_scores(1, 3, 8, 8)
    expected = best_trees(scores, [7, 6, 7], 9)
    monkeypatch.setattr(decoding, "MOST_CANDIDATES", 100)
    result = best_trees(scores, [7, 6, 7], 9)
    assert result.totals.equal(expected.totals)
    assert result.brackets == expected.brackets


def test_low_precision_and_gradients_do_not_enter() -> None:
    scores = torch.full((1, 301, 301), 1 / 256, dtype=torch.bfloat16, requires_grad=True)
    total = best_tree(scores, [300]).total
    assert (total.dtype, total.item(), total.requires_grad) == (torch.float32, 299 / 256, False)


def test_an_empty_batch() -> None:
    scores = torch.zeros(0, 3, 3)
    best = best_tree(scores, [])
    assert (best.total.shape, brackets(best.splits, []), best_trees(scores, [], 2).brackets) == ((0,), [], [])


def test_a_long_sentence_is_read_off_without_recursion() -> None:
    length = 1500
    splits = torch.zeros(1, length + 1, length + 1, dtype=torch.int64)
    splits[0, :, length] = torch.arange(1, length + 2)
    assert brackets(splits, [length]) == [[(begin, length) for begin in range(length - 1)]]


def test_crossing_is_its_definition() -> None:
    tree = Tree.parse("(S (NP the (A big dog)) (VP barks loudly))")
    for given in ([], [(0, 3)], [(2, 4), (0, 3), (1, 5)], tree.spans()):
        expected = [
            [any(i < b < j < e or b < i < e < j for b, e, *_ in given) for j in range(6)]  # no span is i >= j
            for i in range(6)
        ]
        assert crossing(given, 5).tolist() == expected
    assert crossing([], 0).tolist() == [[False]]


def test_the_best_tree_without_crossing_spans_keeps_the_bracketing() -> None:
    given = [(1, 4), (4, 7)]
    scores = random_scores(2, 1, 9, 9).masked_fill(crossing(given, 8), -math.inf)
    for tree in best_trees(scores, [8], 20).brackets[0]:
        assert set(given) <= set(tree)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda: best_tree(torch.zeros(2, 4, 4), [3, 4]),
            ShapeError,
            "best_tree: lengths[1] is 4, but scores (2, 4, 4) have room for 0 to 3 words; make both from one batch.",
        ),
        (
            lambda: best_trees(torch.zeros(2, 4, 4), [3], 2),
            ShapeError,
            "best_trees: there are 1 lengths but 2 charts in scores; give one each.",
        ),
        (
            lambda: best_tree(torch.full((1, 4, 4), math.nan), [2]),
            RankspaceError,
            "best_tree: scores[0, 0, 2] is nan; give numbers, and -inf for spans that are forbidden.",
        ),
        (
            lambda: best_trees(torch.full((1, 4, 4), math.inf), [3], 2),
            RankspaceError,
            "best_trees: scores[0, 0, 2] is inf; give numbers, and -inf for spans that are forbidden.",
        ),
        (
            lambda: best_trees(torch.zeros(1, 4, 4), [3], 0),
            RankspaceError,
            "best_trees: k is 0; ask for at least one tree.",
        ),
        (
            lambda: crossing([(0, 2), (1, 4)], 3),
            RankspaceError,
            "crossing: the bracket (1, 4) leaves the sentence; give 0 <= begin < end <= 3.",
        ),
    ],
)
def test_errors(call, error: type[RankspaceError], message: str) -> None:
    with pytest.raises(error) as caught:
        call()
    assert str(caught.value) == message


@pytest.mark.gpu
def test_a_gpu_gives_the_same() -> None:
    scores, lengths = tied_scores(3, 8, 12, 12), torch.tensor([4, 0, 7, 1, 2, 11, 2, 3])
    expected, best = best_tree(scores, lengths), best_tree(scores.cuda(), lengths.cuda())
    assert best.total.cpu().equal(expected.total)
    assert brackets(best.splits, lengths.cuda()) == brackets(expected.splits, lengths)
    assert best_trees(scores.cuda(), lengths.cuda(), 9).brackets == best_trees(scores, lengths, 9).brackets
