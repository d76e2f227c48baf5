"""The low-rank tree engine: blocks against gathered rows, scaling, what counts as lost, and memory."""

import math
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from rankspace.bench.profiling import PeakBytes
from rankspace.inference.links import DenseLink, FactoredLink
from rankspace.inference.ragged import ragged
from rankspace.inference.tree.choosing import drawn
from rankspace.inference.tree.engine import log_z
from rankspace.inference.tree.growth import grow
from rankspace.inference.tree.inputs import Sentences, TreeInputs
from rankspace.inference.tree.inside import inside, normalise_rows
from rankspace.inference.tree.splits import BlockSplits, GatheredSplits, RaggedSplits, Splits

CPU = torch.device("cpu")


def random_inputs(rank: int, words: int, dtype: torch.dtype = torch.float64, seed: int = 0) -> TreeInputs:
    generator = torch.Generator().manual_seed(seed)

    def make(*shape: int) -> Tensor:
        return torch.rand(shape, generator=generator, dtype=torch.float64).to(dtype)

    return TreeInputs(DenseLink(make(2 * rank, rank) / rank), make(words, 2 * rank), make(rank))


def sentences_of(lengths: Sequence[int], words: int, seed: int = 0) -> Sentences:
    generator = torch.Generator().manual_seed(seed)
    index = torch.randint(words, (sum(lengths),), generator=generator)
    return Sentences(ragged(tuple(lengths), CPU), index, torch.zeros(words, dtype=torch.float64))


def by_hand(inputs: TreeInputs, words: Sequence[int]) -> Tensor:
    """The recursion over one sentence, without scales."""
    rank, n = len(inputs.root), len(words)
    children = {(i, i + 1): inputs.words[word] for i, word in enumerate(words)}
    alpha = torch.zeros(rank, dtype=inputs.dtype)
    for width in range(2, n + 1):
        for i in range(n - width + 1):
            j = i + width
            pairs = [children[i, k][:rank] * children[k, j][rank:] for k in range(i + 1, j)]
            alpha = torch.stack(pairs).sum(0)
            children[i, j] = inputs.link.apply(alpha[None])[0]
    return (alpha @ inputs.root).log()


@pytest.mark.parametrize("lengths", [(5, 5, 5), (2, 7, 1, 4, 0, 7), (14,) * 2, (14, 13)])
@pytest.mark.parametrize("factored", [False, True])
def test_log_z_and_gradients_equal_the_recursion_by_hand(lengths: tuple[int, ...], factored: bool) -> None:
    inputs = random_inputs(3, 6)
    if factored:
        generator = torch.Generator().manual_seed(3)
        second, first = (torch.rand(shape, generator=generator, dtype=torch.float64) for shape in ((6, 4), (4, 3)))
        inputs = TreeInputs(FactoredLink(second, first), inputs.words, inputs.root)
    inputs = inputs.like(tuple(tensor.requires_grad_() for tensor in inputs.tensors))
    sentences = sentences_of(lengths, 6)
    found, lost = log_z(inputs, sentences, lambda: None)
    words = sentences.layout.unpack(sentences.token_word)
    expected = torch.stack(
        [
            by_hand(inputs, words[b, :n].tolist()) if n > 1 else torch.tensor(-math.inf).double()
            for b, n in enumerate(lengths)
        ]
    )
    assert not bool(lost.any())
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    some = torch.tensor(lengths) > 1
    slopes = torch.linspace(-1, 2, int(some.sum()), dtype=torch.float64)
    mine = torch.autograd.grad((found[some] * slopes).sum(), inputs.tensors)
    theirs = torch.autograd.grad((expected[some] * slopes).sum(), inputs.tensors)
    for one, other in zip(mine, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(
    ("kind", "lengths"), [(BlockSplits, (7,) * 3), (RaggedSplits, (7,) * 3), (RaggedSplits, (0, 3, 7, 1, 7, 5, 2))]
)
def test_all_ways_to_sum_are_equal(kind: type[Splits], lengths: tuple[int, ...], weighted: bool) -> None:
    layout, rank = ragged(lengths, CPU), 4
    generator = torch.Generator().manual_seed(0)
    children = torch.rand(2, layout.total_spans, rank, generator=generator, dtype=torch.float64)
    exponent = torch.randint(-9, 9, (layout.total_spans,), generator=generator, dtype=torch.int32) * int(weighted)
    above = torch.rand(layout.num_wide, rank, generator=generator, dtype=torch.float64)
    ways = kind(layout, children, exponent), GatheredSplits(layout, children, exponent)
    for width in range(1, 8):
        one, other = (splits.outside(width, above, exponent, weighted) for splits in ways)
        torch.testing.assert_close(one, other)
        if width > 1:
            sums = torch.full((2, layout.num_spans(width), rank), math.nan, dtype=torch.float64)
            bases = [splits.inside(width, weighted, total) for splits, total in zip(ways, sums, strict=True)]
            torch.testing.assert_close(sums[0], sums[1])
            assert torch.equal(bases[0], bases[1])


def test_rows_are_normalised_by_powers_of_two() -> None:
    rows = torch.tensor([[0.0, 0.0], [3.0, 2.0**-20], [2.0**40, 1.0], [2.0**-60, 0.0], [1e-38, 0.0]])
    exact, coarse = rows.clone(), rows.clone()
    powers, coarse_powers = normalise_rows(exact, 1), normalise_rows(coarse, 32)
    assert powers is not None
    assert coarse_powers is not None
    assert powers.tolist() == [-(2**28), 2, 41, -59, -102]  # not below 1e-31, where entries are not trusted
    assert coarse_powers.tolist() == [-(2**28), 0, 32, -64, -96]
    assert exact[1].tolist() == [0.75, 2.0**-22]
    assert torch.equal(coarse[2], rows[2] * 2.0**-32)
    assert normalise_rows(torch.tensor([[3.0, 0.0], [0.01, 0.02]]), 32) is None


def test_most_batches_need_no_exponents() -> None:
    """Spans of 60 words have 2^-200 times the weight of one word, and still all mantissas are near one."""
    inputs = random_inputs(5, 9, torch.float32)
    inputs = inputs.like((0.1 * inputs.words, *inputs.tensors[1:]))
    chart = inside(inputs, sentences_of((60, 60), 9), None, keep_alpha=True)
    assert not chart.weighted
    assert chart.alpha is not None
    assert 2.0**-17 < chart.alpha.amax(1).min() <= chart.alpha.max() < 2.0**16


def test_true_zeros_are_not_lost_and_others_are() -> None:
    inputs = random_inputs(3, 5, torch.float32)
    matrix = inputs.link.tensors[0].clone()
    matrix[1] = 0  # no span is a left child of rank 1, unless it is a word
    zero = TreeInputs(DenseLink(matrix), inputs.words, inputs.root)
    tiny = TreeInputs(DenseLink(torch.where(matrix == 0, 1e-36, matrix)), inputs.words, inputs.root)
    ones = zero.like(tuple((tensor > 0).float() for tensor in zero.tensors))
    sentences = sentences_of((5, 2, 4), 5)
    assert log_z(zero, sentences, lambda: ones)[1].tolist() == [False] * 3
    assert log_z(zero, sentences, lambda: None)[1].tolist() == [True, False, True]  # two words: no such child
    assert log_z(tiny, sentences, lambda: None)[1].tolist() == [True, False, True]
    assert log_z(inputs, sentences, lambda: None)[1].tolist() == [False] * 3


def test_grown_trees_are_trees() -> None:
    generator = torch.Generator().manual_seed(0)
    choose = drawn(generator)

    def branch(symbols: Tensor) -> tuple[Tensor, Tensor]:
        weights = torch.tensor([0.45, 0.55]).log().expand(len(symbols), 2)
        return choose(weights), choose(weights)

    nodes, dropped = grow(torch.zeros(200, dtype=torch.int64), branch, 1, 12)
    assert 0 < int(dropped.sum()) < 200
    for tree in range(200):
        own = {(b, e): s for t, b, e, s in torch.stack(nodes[:4], 1).tolist() if t == tree}
        assert bool(dropped[tree]) == (not own)
        if own:
            words = max(end for _, end in own)
            assert 2 <= words <= 12
            assert len(own) == 2 * words - 1
            assert all((symbol == 1) == (end - begin == 1) for (begin, end), symbol in own.items())


# Memory.


def peak_numbers(length: int, with_gradient: bool) -> float:
    """Peak memory of three sentences in float32 numbers for each span and rank."""
    rank, lengths = 64, (length,) * 3
    inputs, sentences = random_inputs(rank, 20, torch.float32), sentences_of(lengths, 20)
    inputs = inputs.like(tuple(tensor.requires_grad_(with_gradient) for tensor in inputs.tensors))
    log_z(inputs, sentences, lambda: None)[0].sum()  # the layout is made once, and kept
    with PeakBytes() as memory:
        found = log_z(inputs, sentences, lambda: None)[0].sum()
        if with_gradient:
            found.backward()
    return memory.peak / 4 / rank / sentences.layout.total_spans


def test_memory_is_the_children_and_a_few_widths() -> None:
    """2R numbers for each span, 3R with gradients. The rest, a few rows of one width, is a share that falls with n."""
    forward = [peak_numbers(length, with_gradient=False) for length in (30, 90)]
    both = [peak_numbers(length, with_gradient=True) for length in (30, 90)]
    assert 2 < forward[1] < forward[0] < 2.6
    assert forward[1] < 2.2
    assert 3 < both[1] < both[0] < 4
    assert both[1] < 3.4
