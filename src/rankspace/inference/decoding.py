"""Decoding: the binary trees whose spans have the largest sum of scores, and which spans cross a bracketing.

With posterior probabilities of spans as scores, the best tree has the largest expected number of correct spans (minimum
Bayes risk). Charts are [batch, length + 1, length + 1], the entry [b, i, j] is about the span [i, j) of sentence b, and
entries that are no span of their sentence are never read.

Every binary tree has the same spans of one word, so their scores are not read either. A score of -inf forbids its span:
no tree with it is returned. Results do not depend on chance or on the rest of the batch: of equal sums the one with the
smallest split wins.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from rankspace.errors import RankspaceError, ShapeError
from rankspace.trees import Span

NO_TREE = 0  # in a chart of splits; the split of [i, j) is larger than i
MOST_CANDIDATES = 2**22  # looked at together by `best_trees`: about 128 MB

Lengths = Int[Tensor, "batch"] | Sequence[int]
Brackets = list[tuple[int, int]]  # spans of two words or more, in preorder
Parts = Callable[[int, int, int], tuple[int, int, int]]  # begin, end, rank -> split, ranks of the left and right part


class BestTree(NamedTuple):
    total: Float[Tensor, "batch"]  # max over trees of the sum of scores[i, j] over [i, j) in the tree
    splits: Int[Tensor, "batch end end"]  # [i, j) -> where its best tree divides it; NO_TREE if it has none


class BestTrees(NamedTuple):
    totals: Float[Tensor, "batch tree"]  # falling; -inf where a sentence has fewer trees
    brackets: list[list[Brackets]]  # of each sentence, of each of its trees


def best_tree(scores: Float[Tensor, "batch end end"], lengths: Lengths) -> BestTree:
    """The binary tree with the largest sum of scores, of every sentence of a batch: CYK, width by width.

    One word has the total 0. No word, or no tree without forbidden spans, has the total -inf. Takes O(batch length^3)
    time and memory for about six charts; sums are float32, or float64 if the scores are. No gradients.
    Raises ShapeError if lengths do not fit the chart, and RankspaceError if a sentence has a score of NaN or +inf.
    """
    sizes = _on_host(lengths)
    scores = _checked("best_tree", scores, sizes)
    chart, splits = _Chart(scores, 1), torch.full_like(scores, NO_TREE, dtype=torch.int64)
    for width in range(2, max(sizes, default=0) + 1):
        best, split = (chart.left(width) + chart.right(width)).max(dim=2)  # the first of equal ones
        best = best + scores.diagonal(width, 1, 2).unsqueeze(2)
        chart.store(width, best)
        begins = torch.arange(best.shape[1], device=scores.device)
        splits.diagonal(width, 1, 2).copy_((begins + 1 + split[..., 0]).where(best[..., 0] > -torch.inf, NO_TREE))
    return BestTree(chart.whole(sizes)[:, 0], splits)


def brackets(splits: Int[Tensor, "batch end end"], lengths: Lengths) -> list[Brackets | None]:
    """The spans of two words or more of each sentence's best tree, in preorder; None if it has no tree or no words.

    `splits` are those of `best_tree`. One transfer from the device, then a step per span.
    """
    sizes = torch.as_tensor(lengths, dtype=torch.int64, device=splits.device)
    table = torch.cat([sizes[:, None], splits.flatten(1)], dim=1).cpu().numpy()  # both in the one transfer
    found: list[Brackets | None] = []
    for length, row in zip(table[:, 0].tolist(), table[:, 1:].reshape(splits.shape), strict=True):
        possible = length == 1 or (length > 1 and row[0, length] != NO_TREE)
        found.append(_trace(length, 0, _split_reader(row)) if possible else None)
    return found


def best_trees(scores: Float[Tensor, "batch end end"], lengths: Lengths, k: int) -> BestTrees:
    """The k binary trees with the largest sums of scores, exactly, all different; fewer where there are fewer.

    Each span keeps its k best as (split, rank of the left part, rank of the right part). Counted from 1, the ranks
    (l, r) come after l r - 1 others of the same split, so only pairs with l r <= k are tried: about k log k. Takes
    O(batch length^3 k log k) time, and memory for about 4 k charts and MOST_CANDIDATES sums; k charts go to the host.
    Of equal sums the smallest split comes first, then the smallest rank of the left part, then that of the right. A
    sentence without words or without any tree gets an empty list. Otherwise as `best_tree`.
    """
    if k < 1:
        raise RankspaceError(f"best_trees: k is {k}; ask for at least one tree.")
    sizes = _on_host(lengths)
    scores = _checked("best_trees", scores, sizes)
    kept = min(k, _num_binary_trees(max(sizes, default=0)))
    pairs = [(left, right) for left in range(kept) for right in range(kept // (left + 1))]
    ranks = torch.tensor(pairs, device=scores.device)
    chart, choices = _Chart(scores, kept), scores.new_zeros((*scores.shape, kept), dtype=torch.int32)
    for width in range(2, max(sizes, default=0) + 1):
        best, choice = _best_pairs(chart.left(width), chart.right(width), ranks)
        chart.store(width, best + scores.diagonal(width, 1, 2).unsqueeze(2))
        choices.diagonal(width, 1, 2).copy_(choice.movedim(1, 2))
    totals = chart.whole(sizes)
    num_trees = (totals > -torch.inf).sum(1).tolist()
    found = [
        [_trace(length, rank, _choice_reader(table, pairs)) for rank in range(count)]
        for table, length, count in zip(choices.cpu().numpy(), sizes, num_trees, strict=True)
    ]
    return BestTrees(torch.nn.functional.pad(totals, (0, k - kept), value=-torch.inf), found)


def crossing(brackets: Iterable[Span], length: int) -> Bool[Tensor, "end end"]:
    """[length + 1, length + 1]: whether the span [i, j) crosses one of the brackets: i < begin < j < end or the mirror.

    Brackets may carry a symbol, so the spans of a `Tree` will do. Takes O(length^2) time for each. On the host. Raises
    RankspaceError for a bracket that leaves the sentence.
    """
    mask = torch.zeros(length + 1, length + 1, dtype=torch.bool)
    for begin, end, *_ in brackets:
        if not 0 <= begin < end <= length:
            raise RankspaceError(
                f"crossing: the bracket ({begin}, {end}) leaves the sentence; give 0 <= begin < end <= {length}."
            )
        mask[:begin, begin + 1 : end] = True
        mask[begin + 1 : end, end + 1 :] = True
    return mask


class _Chart:
    """The best sums of every span, best first, twice: so that all left parts and all right parts are slices."""

    def __init__(self, scores: Tensor, num_ranks: int) -> None:
        self.by_begin = scores.new_full((*scores.shape, num_ranks), -torch.inf)  # [batch, begin, width, rank]
        self.by_end = self.by_begin.clone()  # [batch, end, width, rank]
        word = scores.new_full((scores.shape[1] - 1, num_ranks), -torch.inf)
        word[:, 0] = 0
        self.store(1, word.expand(len(scores), -1, -1))

    def store(self, width: int, best: Tensor) -> None:
        """`best` [batch, begin, rank] of all spans of a width."""
        if best.shape[1]:
            self.by_begin[:, : best.shape[1], width] = best
            self.by_end[:, width:, width] = best

    def left(self, width: int) -> Tensor:
        """[batch, begin, split, rank]: the sums of [begin, begin + 1 + split)."""
        return self.by_begin[:, :-width, 1:width]

    def right(self, width: int) -> Tensor:
        """[batch, begin, split, rank]: the sums of [begin + 1 + split, begin + width)."""
        return self.by_end[:, width:, 1:width].flip(2)

    def whole(self, lengths: Sequence[int]) -> Tensor:
        """[batch, rank]: the sums of the sentences."""
        sizes = torch.tensor(lengths, dtype=torch.int64, device=self.by_begin.device)
        return self.by_begin[torch.arange(len(sizes), device=sizes.device), 0, sizes]


def _best_pairs(left: Tensor, right: Tensor, ranks: Tensor) -> tuple[Tensor, Tensor]:
    """Of spans of one width the k best sums [batch, begin, rank], and split * number of pairs + pair of each."""
    batch, num_begins, num_splits, k = left.shape
    rows = max(1, MOST_CANDIDATES // (num_splits * len(ranks)))
    parts = zip(left.flatten(0, 1).split(rows), right.flatten(0, 1).split(rows), strict=True)
    found = [_largest((a[..., ranks[:, 0]] + b[..., ranks[:, 1]]).flatten(1), k) for a, b in parts]
    sums, choices = (torch.cat(each).view(batch, num_begins, k) for each in zip(*found, strict=True))
    return sums, choices


def _largest(sums: Float[Tensor, "row candidate"], k: int) -> tuple[Tensor, Tensor]:
    """The k largest of each row and where they stand; of equal ones the first. `topk` promises no order of these."""
    sums = torch.nn.functional.pad(sums, (0, max(0, k - sums.shape[1])), value=-torch.inf)
    least = sums.topk(k).values[:, -1:]
    above, equal = sums > least, sums == least
    chosen = above | (equal & (equal.cumsum(1) <= k - above.sum(1, keepdim=True)))
    places = chosen.nonzero()[:, 1].view(-1, k)
    values, order = sums.gather(1, places).sort(descending=True, stable=True)
    return values, places.gather(1, order)


def _split_reader(splits: Any) -> Parts:
    """From a chart of splits as a numpy array."""
    return lambda begin, end, _: (int(splits[begin, end]), 0, 0)


def _choice_reader(choices: Any, pairs: Sequence[tuple[int, int]]) -> Parts:
    """From a chart [begin, end, rank] of split * number of pairs + pair, as a numpy array."""

    def parts(begin: int, end: int, rank: int) -> tuple[int, int, int]:
        split, pair = divmod(int(choices[begin, end, rank]), len(pairs))
        return begin + 1 + split, *pairs[pair]

    return parts


def _trace(length: int, rank: int, parts: Parts) -> Brackets:
    """The spans, in preorder, of a sentence's tree of some rank."""
    found: Brackets = []
    pending = [(0, length, rank)]
    while pending:
        begin, end, rank = pending.pop()
        if end - begin > 1:
            found.append((begin, end))
            split, left, right = parts(begin, end, rank)
            pending += [(split, end, right), (begin, split, left)]
    return found


def _num_binary_trees(length: int) -> int:
    """The Catalan number of length - 1."""
    inner = max(length - 1, 0)
    return math.comb(2 * inner, inner) // (inner + 1)


def _on_host(lengths: Lengths) -> list[int]:
    return lengths.tolist() if isinstance(lengths, Tensor) else list(lengths)


def _checked(operation: str, scores: Tensor, lengths: Sequence[int]) -> Tensor:
    """The scores in float32 or float64, without gradients, with -inf wherever there is no span of two words or more."""
    _check_lengths(operation, scores, lengths)
    ends = torch.arange(scores.shape[1], device=scores.device)
    sizes = torch.tensor(lengths, dtype=torch.int64, device=scores.device)
    is_span = (ends[:, None] + 1 < ends) & (ends <= sizes[:, None, None])
    precise = scores.detach().to(torch.promote_types(scores.dtype, torch.float32))
    wrong = is_span & ~(precise < torch.inf)
    if wrong.any():
        sentence, begin, end = wrong.nonzero()[0].tolist()
        raise RankspaceError(
            f"{operation}: scores[{sentence}, {begin}, {end}] is {precise[sentence, begin, end].item()}; "
            "give numbers, and -inf for spans that are forbidden."
        )
    return precise.where(is_span, -torch.inf)


def _check_lengths(operation: str, scores: Tensor, lengths: Sequence[int]) -> None:
    batch, size = scores.shape[:2]
    if len(lengths) != batch:
        raise ShapeError(f"{operation}: there are {len(lengths)} lengths but {batch} charts in scores; give one each.")
    for sentence, length in enumerate(lengths):
        if not 0 <= length < size:
            raise ShapeError(
                f"{operation}: lengths[{sentence}] is {length}, but scores {tuple(scores.shape)} have room for 0 to "
                f"{size - 1} words; make both from one batch."
            )
