"""The dense tree engine: equal to its log-space twin in values and derivatives, honest about range, small in memory."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from rankspace.bench.profiling import PeakBytes
from rankspace.errors import RankspaceError
from rankspace.inference.dense_tree import groups
from rankspace.inference.dense_tree.choices import Places, division, portions, ways
from rankspace.inference.dense_tree.cost import explained
from rankspace.inference.dense_tree.groups import span_groups
from rankspace.inference.dense_tree.log_space import LogWeights, log_inside
from rankspace.inference.dense_tree.partition import log_partition, posterior, span_mass
from rankspace.inference.dense_tree.prior import length_probabilities
from rankspace.inference.dense_tree.slopes import slopes
from rankspace.inference.dense_tree.traces import best_way, drawn, trace
from rankspace.inference.dense_tree.weights import DenseWeights
from rankspace.inference.logarithms import log_sum_exp
from rankspace.inference.ragged import Ragged, ragged

CPU = torch.device("cpu")
LENGTHS = (5, 0, 2, 7, 1, 3, 7, 4)
EXACT = {"rtol": 1e-10, "atol": 1e-12}  # float64, sums of a few thousand terms

KINDS = ["rule", "head", "rule of each sentence", "head of each sentence"]


def random_weights(
    kind: str, layout: Ragged, *, sizes: tuple[int, int, int] = (3, 4, 2), scale: float = 1.0, span: bool = False
) -> LogWeights:
    """Log weights with rows that sum to one, from the seed that is set."""
    n, p, r = sizes
    own = len(layout.lengths) if "each" in kind else 1
    head = normal(scale, own, n, r) if "head" in kind else None
    rows = n if head is None else r
    rule = normal(scale, own, rows, (n + p) ** 2).view(own, rows, n + p, n + p)
    log_span = torch.randn(layout.total_spans, dtype=torch.float64) if span else None
    return LogWeights(rule, head, normal(scale, own, n), normal(scale, layout.num_tokens, p), log_span)


def normal(scale: float, *shape: int) -> Tensor:
    return (scale * torch.randn(*shape, dtype=torch.float64)).log_softmax(-1)


def leaves_of(weights: LogWeights) -> tuple[LogWeights, list[Tensor]]:
    tensors = [weights.rule, weights.head, weights.root, weights.words, weights.span]
    leaves = [None if tensor is None else tensor.detach().requires_grad_() for tensor in tensors]
    return LogWeights(*leaves), [leaf for leaf in leaves if leaf is not None]  # type: ignore[arg-type]


def scaled_log_z(weights: LogWeights, layout: Ragged) -> tuple[Tensor, Tensor]:
    """log Z of the weights themselves, by place, and what was lost."""
    linear, scale = weights.linear("highest")
    log_z, lost = log_partition(linear, layout, weights.support)
    return log_z + layout.unpack(scale).sum(1)[layout.sentence_at], lost


def as_float32(weights: LogWeights) -> LogWeights:
    tensors = (weights.rule, weights.head, weights.root, weights.words, weights.span)
    return LogWeights(*(None if tensor is None else tensor.float() for tensor in tensors))  # type: ignore[arg-type]


@pytest.fixture(params=[2**21, 30], ids=["whole widths", "small portions"])
def budget(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "BUDGET", request.param)


@pytest.mark.usefixtures("budget")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("span", [False, True], ids=["", "span weights"])
def test_equals_its_log_space_twin(kind: str, span: bool) -> None:
    torch.manual_seed(0)
    layout = ragged(LENGTHS, CPU)
    weights, leaves = leaves_of(random_weights(kind, layout, span=span))
    found, lost = scaled_log_z(weights, layout)
    expected = log_inside(weights, layout).log_z
    assert not lost.any()
    torch.testing.assert_close(found, expected, **EXACT)
    assert (expected == -math.inf).tolist() == [length < 2 for length in layout.length_at.tolist()]
    slope = torch.randn(len(LENGTHS), dtype=torch.float64)
    slope[found == -math.inf] = 0
    possible = found > -math.inf
    for one, other in zip(
        torch.autograd.grad((found * slope)[possible].sum(), leaves),
        torch.autograd.grad((expected * slope)[possible].sum(), leaves),
        strict=True,
    ):
        torch.testing.assert_close(one, other, **EXACT)


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_are_derivatives(kind: str) -> None:
    torch.manual_seed(1)
    layout = ragged((4, 2, 5), CPU)
    weights, leaves = leaves_of(random_weights(kind, layout, sizes=(2, 2, 2), span=True))
    has_head = weights.head is not None

    def log_z(*tensors: Tensor) -> Tensor:
        rule, *rest = tensors
        head = rest.pop(0) if has_head else None
        return scaled_log_z(LogWeights(rule, head, *rest), layout)[0]

    assert torch.autograd.gradcheck(log_z, leaves, fast_mode=True)


def test_the_twin_has_second_derivatives() -> None:
    torch.manual_seed(2)
    layout = ragged((4, 2), CPU)
    _, leaves = leaves_of(random_weights("head", layout, sizes=(2, 1, 2)))
    assert torch.autograd.gradgradcheck(lambda *tensors: log_inside(LogWeights(*tensors), layout).log_z, leaves)


def test_second_derivatives_of_the_engine_are_refused() -> None:
    layout = ragged((3,), CPU)
    weights, (rule, *_) = leaves_of(random_weights("rule", layout))
    with pytest.raises(RankspaceError) as error:
        torch.autograd.grad(scaled_log_z(weights, layout)[0].sum(), rule, create_graph=True)
    assert str(error.value) == "log_prob: second derivatives need plain operations; give backend='autograd'."


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")  # forward mode loads it
@pytest.mark.parametrize("kind", KINDS)
def test_slopes_are_directional_derivatives(kind: str) -> None:
    torch.manual_seed(3)
    layout = ragged(LENGTHS, CPU)
    weights = random_weights(kind, layout)
    tensors = [t for t in (weights.rule, weights.head, weights.root, weights.words) if t is not None]
    moved = [torch.randn_like(tensor) for tensor in tensors]

    def put(parts: list[Tensor]) -> LogWeights:
        return LogWeights(parts[0], parts[1] if len(parts) == 4 else None, *parts[-2:])

    linear, _ = weights.linear("highest")
    along = put(moved)
    tangent = DenseWeights(
        linear.rule * along.rule,
        None if linear.head is None or along.head is None else linear.head * along.head,
        linear.root * along.root,
        linear.words * along.words,
    )
    found = slopes(linear, tangent, layout, weights.support)
    expected = torch.func.jvp(lambda *parts: log_inside(put(list(parts)), layout).log_z, tuple(tensors), tuple(moved))[
        1
    ]
    torch.testing.assert_close(found.slope, torch.where(layout.length_at > 1, expected, 0), **EXACT)


# Range.


def test_sentences_that_are_not_lost_are_right_in_float32() -> None:
    """The criterion is sound: whatever it lets pass agrees with float64, however peaked the weights."""
    layout = ragged((6, 9, 2, 4), CPU)
    passed = 0
    for seed in range(30):
        torch.manual_seed(seed)
        weights = random_weights(KINDS[seed % 4], layout, sizes=(3, 3, 3), scale=2.0 + seed)
        found, lost = scaled_log_z(as_float32(weights), layout)
        expected, _ = scaled_log_z(as_float64(as_float32(weights)), layout)
        passed += int((~lost).sum())
        # float32 sums of some hundred terms: 1e-5; and the logarithms were given in float32, exactly the same
        torch.testing.assert_close(found[~lost], expected[~lost], rtol=2e-7, atol=2e-5)
    assert 20 < passed < 100  # of 120: the seeds reach beyond the range and stay within it


def as_float64(weights: LogWeights) -> LogWeights:
    tensors = (weights.rule, weights.head, weights.root, weights.words, weights.span)
    return LogWeights(*(None if tensor is None else tensor.double() for tensor in tensors))  # type: ignore[arg-type]


def two_camps(length: int) -> tuple[LogWeights, Ragged]:
    """The tree counterpart of a^n b with identity transitions: nonterminals X and Y keep to their own kind.

    Words but the last prefer X's preterminal by 20 nats; the last is Y's alone. All derivations go through Y, whose
    entries fall below X's by 20 nats a word.
    """
    layout = ragged((length,), CPU)
    rule = torch.full((2, 4, 4), -math.inf, dtype=torch.float64)
    for camp in range(2):  # X -> x X | x x, Y -> y Y | y y
        rule[camp, 2 + camp, camp] = rule[camp, 2 + camp, 2 + camp] = math.log(0.5)
    words = torch.tensor([[0.0, -20.0]], dtype=torch.float64).repeat(length, 1)
    words[-1] = torch.tensor([-math.inf, 0.0])
    return LogWeights(rule[None], None, torch.full((1, 2), 0.5).double().log(), words), layout


def test_an_entry_that_fell_out_of_range_and_is_needed_is_noticed() -> None:
    weights, layout = two_camps(12)
    expected = -20 * 11 + 12 * math.log(0.5)
    assert log_inside(weights, layout).log_z.item() == pytest.approx(expected, rel=1e-12)
    assert scaled_log_z(weights, layout)[0].item() == pytest.approx(expected, rel=1e-12)
    log_z, lost = scaled_log_z(as_float32(weights), layout)
    assert lost.all() or log_z.item() == pytest.approx(expected, rel=1e-6)


def test_a_low_entry_beside_a_high_one_is_lost() -> None:
    """Y's words are worth 1e-35 of X's at every word, which float32 with its rounding unit cannot carry further."""
    layout = ragged((4,), CPU)
    torch.manual_seed(0)
    weights = random_weights("rule", layout, sizes=(2, 2, 2))
    words = weights.words.clone()
    words[:, 1] = words[:, 0] - 80
    _, lost = scaled_log_z(as_float32(LogWeights(weights.rule, None, weights.root, words)), layout)
    assert lost.tolist() == [True]
    _, lost = scaled_log_z(LogWeights(weights.rule, None, weights.root, words), layout)
    assert lost.tolist() == [False]


@pytest.mark.parametrize("kind", KINDS)
def test_true_zeros_are_not_lost(kind: str) -> None:
    """Sparse weights stay with the linear engine; gradients are finite, and zero where the weight is."""
    torch.manual_seed(4)
    layout = ragged(LENGTHS, CPU)
    dense = random_weights(kind, layout, span=True)
    tensors = [dense.rule, dense.head, dense.root, dense.words, dense.span]
    sparse = [None if t is None else t.masked_fill(torch.rand_like(t) < 0.12, -math.inf) for t in tensors]
    weights, leaves = leaves_of(LogWeights(*sparse))  # type: ignore[arg-type]
    found, lost = scaled_log_z(weights, layout)
    expected = log_inside(weights, layout).log_z
    assert not lost.any()
    torch.testing.assert_close(found, expected, **EXACT)
    possible = found > -math.inf
    assert 0 < possible.sum() < len(LENGTHS)
    mine = torch.autograd.grad(found[possible].sum(), leaves)
    for one, other, leaf in zip(mine, torch.autograd.grad(expected[possible].sum(), leaves), leaves, strict=True):
        torch.testing.assert_close(one, other, **EXACT)
        assert (one[leaf == -math.inf] == 0).all()


def test_gradients_of_impossible_sentences_are_zero() -> None:
    layout = ragged((3, 1, 0), CPU)
    torch.manual_seed(0)
    weights = random_weights("head", layout)
    words = weights.words.clone()
    words[2] = -math.inf  # the second word of the first sentence
    weights, leaves = leaves_of(LogWeights(weights.rule, weights.head, weights.root, words))
    log_z, lost = scaled_log_z(weights, layout)
    assert log_z.tolist() == [-math.inf] * 3
    assert not lost.any()
    for slope in torch.autograd.grad(log_z, leaves, torch.ones_like(log_z)):
        assert (slope == 0).all()


# Charts.


def test_span_mass_sums_to_the_number_of_spans() -> None:
    torch.manual_seed(5)
    layout = ragged(LENGTHS, CPU)
    weights = random_weights("head", layout)
    found = posterior(weights.linear("highest")[0], layout, weights.support)
    mass = layout.to_chart(span_mass(found.chart, found.adjoint)).sum((1, 2))
    torch.testing.assert_close(mass, torch.tensor([2.0 * n - 1 if n > 1 else 0 for n in LENGTHS], dtype=torch.float64))


@pytest.mark.parametrize("kind", KINDS)
def test_ways_add_up_to_the_chart(kind: str) -> None:
    """The divisions of a span, summed, are its entry: none is missing, none is counted twice."""
    torch.manual_seed(6)
    layout = ragged(LENGTHS, CPU)
    weights = random_weights(kind, layout)
    chart = log_inside(weights, layout)
    table = chart.spans if chart.ranks is None else chart.ranks
    for width in range(2, layout.longest + 1):
        place, begin = layout.span_place(width), layout.span_begin(width)
        nodes = Places(place, begin, torch.full_like(place, width))
        for row in range(weights.sizes[2]):
            log = ways(weights, chart, layout, nodes, torch.full_like(place, row))
            rows = layout.row(place, begin, width) - layout.num_tokens
            torch.testing.assert_close(log_sum_exp(log, 1), table[rows, row], **EXACT)


def test_a_way_is_what_its_number_says() -> None:
    torch.manual_seed(7)
    layout = ragged((6,), CPU)
    weights = random_weights("rule", layout)
    chart = log_inside(weights, layout)
    n, start, here = weights.sizes[0], layout.num_tokens, torch.tensor(0)
    for width in (2, 3, 6):
        count = 4 * 4 if width == 2 else 2 * 3 * 4 + max(0, width - 3) * 9
        number = torch.arange(count)
        nodes = Places(*(torch.full((count,), x) for x in (0, 0, width)))
        log = ways(weights, chart, layout, Places(*(x[:1] for x in nodes)), torch.tensor([1]))[0]
        found = division(weights, nodes, number)
        assert len(log) == count == len(set(zip(*(x.tolist() for x in found), strict=True)))
        for value, w, left, right in zip(log.tolist(), *(x.tolist() for x in found), strict=True):
            sides = ((0, w, left), (w, width - w, right))
            parts = [
                chart.words[begin, symbol - n]
                if size == 1
                else chart.spans[layout.row(here, begin, size) - start, symbol]
                for begin, size, symbol in sides
            ]
            assert value == pytest.approx(weights.rule[0, 1, left, right].item() + sum(p.item() for p in parts))


def test_portions_cover_all_nodes_and_keep_two_words_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rankspace.inference.dense_tree.choices.BUDGET", 100)
    torch.manual_seed(8)
    width = torch.randint(2, 9, (50,))
    nodes = Places(torch.zeros_like(width), torch.zeros_like(width), width)
    weights = random_weights("rule", ragged((8,), CPU))
    found = list(portions(nodes, weights))
    assert sorted(torch.cat(found).tolist()) == list(range(50))
    assert len(found) > 5
    assert all(len(set((width[part] == 2).tolist())) == 1 for part in found)


def test_groups_cover_every_span_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "BUDGET", 12)
    layout = ragged(LENGTHS, CPU)
    for width in range(1, layout.longest + 1):
        for each in (False, True):
            rows = [_as_list(group.rows) for group in span_groups(layout, width, each, 4)]
            assert all(len(part) <= 3 for part in rows)
            assert sorted(row for part in rows for row in part) == list(range(layout.num_spans(width)))


def _as_list(rows: slice | Tensor) -> list[int]:
    return list(range(rows.start, rows.stop)) if isinstance(rows, slice) else rows.tolist()


def test_lengths_of_sentences_have_their_probabilities() -> None:
    """By the engine itself: the words of a sentence summed out."""
    torch.manual_seed(9)
    for kind in ("rule", "head"):
        layout = ragged(tuple(range(9)), CPU)
        weights = random_weights(kind, layout)
        free = LogWeights(weights.rule, weights.head, weights.root, torch.zeros_like(weights.words))
        expected = layout.in_callers_order(log_inside(free, layout).log_z).exp()
        head = None if weights.head is None else weights.head[0].exp()
        found = length_probabilities(weights.rule[0].exp(), head, weights.root[0].exp(), 8)
        torch.testing.assert_close(found, expected, **EXACT)


def test_traces_without_a_derivation_are_empty() -> None:
    layout = ragged((1, 0), CPU)
    weights = random_weights("rule", layout)
    for choose in (best_way, drawn(None)):
        assert trace(weights, log_inside(weights, layout), layout, 3, choose).tree.tolist() == []


def test_weight_zero_is_never_drawn() -> None:
    log = torch.tensor([[-math.inf, 0.0, -math.inf, -1.0, -math.inf]])
    found = drawn(torch.Generator().manual_seed(0))(log, torch.zeros(2000, dtype=torch.int64))
    assert set(found.tolist()) == {1, 3}


# Cost.


def test_the_same_input_gives_the_same_bits() -> None:
    torch.manual_seed(10)
    layout = ragged((9, 4, 12, 2), CPU)
    weights = as_float32(random_weights("head", layout, sizes=(5, 6, 4), span=True))
    runs = []
    for _ in range(2):
        copy, leaves = leaves_of(weights)
        log_z, _ = scaled_log_z(copy, layout)
        runs.append([log_z, *torch.autograd.grad(log_z.sum(), leaves)])
    assert all(torch.equal(one, other) for one, other in zip(*runs, strict=True))


@pytest.mark.parametrize("length", [16, 32])
def test_memory_is_two_charts_and_the_links_of_the_words(length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """As `inside` and `outside` state it; a tape would keep several tables [span, symbol, symbol, symbol]."""
    monkeypatch.setattr(groups, "BUDGET", 2**12)
    torch.manual_seed(11)
    layout = ragged((length,) * 8, CPU)
    weights, leaves = leaves_of(as_float32(random_weights("rule", layout, sizes=(12, 12, 12))))
    with PeakBytes() as memory:
        log_z, _ = scaled_log_z(weights, layout)
        log_z.sum().backward()
    n, rows = 12, layout.total_spans - layout.num_tokens
    chart = 4 * rows * n
    links = 4 * layout.num_tokens * n * n
    given = sum(4 * leaf.numel() for leaf in leaves)
    index = 8 * rows  # int32 exponents and bases, and the layout's own tables, which are made here
    bound = 2 * chart + 4 * links + 8 * given + 6 * index + 12 * 4 * 2**12
    assert chart + 2 * links < memory.peak < bound
    assert bound < 4 * rows * n * n * n / 2  # one of a tape's tables


def test_the_account_of_costs_counts_every_term() -> None:
    text = explained([2, 5, 1], 3, 4, 2, True)
    assert (
        text.splitlines()[1] == "  3 nonterminals, 4 preterminals, rank 2, sentences 3, spans of two words or more 11"
    )
    assert "pairs to ranks" in text
    assert "two words                    320 flops" in text  # 5 bigrams, 16 pairs, rank 2, twice


@pytest.mark.parametrize(("precision", "tolerance"), [("high", 1e-5), ("medium", 5e-2)])
def test_lower_precision_is_near(precision: Any, tolerance: float) -> None:
    torch.manual_seed(12)
    layout = ragged((9, 4), CPU)
    weights = as_float32(random_weights("head", layout))
    expected, _ = log_partition(weights.linear("highest")[0], layout, weights.support)
    found, _ = log_partition(weights.linear(precision)[0], layout, weights.support)
    torch.testing.assert_close(found, expected, rtol=0, atol=tolerance)
