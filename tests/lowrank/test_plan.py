"""The cost model against both recursions written out in plain torch, where every product is counted as it is done."""

from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from rankspace.errors import RankspaceError
from rankspace.lowrank import Cost, Plan, plan

BYTES = 8  # the reference computes in float64


class Meter:
    """Counts flops, and the bytes of operands and results, from the tensors that are really multiplied."""

    def __init__(self) -> None:
        self.flops = self.bytes = 0

    def matmul(self, a: Tensor, b: Tensor) -> Tensor:
        self.flops += 2 * a.shape[0] * a.shape[1] * b.shape[1]
        return self._moved(a, b, a @ b)

    def multiply(self, a: Tensor, b: Tensor) -> Tensor:
        self.flops += a.numel()
        return self._moved(a, b, a * b)

    def split_sum(self, a: Tensor, b: Tensor) -> Tensor:
        self.flops += 2 * a.numel()
        return self._moved(a, b, (a * b).sum(1))

    def _moved(self, *tensors: Tensor) -> Tensor:
        self.bytes += sum(tensor.nbytes for tensor in tensors)
        return tensors[-1]


def positive(generator: torch.Generator, *shape: int) -> Tensor:
    return torch.rand(*shape, generator=generator, dtype=torch.float64) + 0.1


def random_sentences(generator: torch.Generator, lengths: tuple[int, ...], vocabulary: int) -> list[list[int]]:
    return [torch.randint(vocabulary, (length,), generator=generator).tolist() for length in lengths]


# Chains.


def chain(states: int, rank: int, vocabulary: int) -> SimpleNamespace:
    g = torch.Generator().manual_seed(0)
    return SimpleNamespace(
        start=positive(g, states, 1),
        head=positive(g, rank, states),
        next=positive(g, rank, states),
        emission=positive(g, rank, vocabulary),
    )


def chain_log_z(model: SimpleNamespace, sentences: list[list[int]], order: str, meter: Meter) -> Tensor:
    """Forward algorithm, all sentences that have a t-th word in one product."""
    link = meter.matmul(model.head, model.next.T) if order == "rank" else None
    start = meter.matmul(model.head, model.start)[:, 0]
    alpha: dict[int, Tensor] = dict.fromkeys(range(len(sentences)), start)
    for step in range(max(map(len, sentences))):
        alive = [b for b, sentence in enumerate(sentences) if len(sentence) > step]
        columns = torch.stack([alpha[b] for b in alive], 1)
        if step > 0 and link is not None:
            columns = meter.matmul(link, columns)
        elif step > 0:
            columns = meter.matmul(model.head, meter.matmul(model.next.T, columns))
        columns = meter.multiply(columns, model.emission[:, [sentences[b][step] for b in alive]])
        alpha |= dict(zip(alive, columns.unbind(1), strict=True))
    return torch.stack([alpha[b].sum().log() for b in range(len(sentences))])


# Trees.


def tree(heads: int, leaves: int, rank: int, vocabulary: int, split: bool) -> SimpleNamespace:
    """Without the split every state both heads rules and emits words, and `heads` == `leaves`."""
    g = torch.Generator().manual_seed(0)
    left, right = positive(g, rank, heads), positive(g, rank, heads)
    return SimpleNamespace(
        root=positive(g, 1, heads),
        head=positive(g, rank, heads),
        head_children=(left, right),
        leaf_children=(positive(g, rank, leaves), positive(g, rank, leaves)) if split else (left, right),
        emission=positive(g, vocabulary, leaves),
    )


def tree_log_z(model: SimpleNamespace, sentences: list[list[int]], order: str, meter: Meter) -> Tensor:
    """Inside algorithm, all spans of one width in one product. Every sentence has at least two words."""
    sides: list[dict[tuple[int, int, int], Tensor]] = [{}, {}]  # scores of a span as a left and as a right child
    tokens = [(b, i, word) for b, sentence in enumerate(sentences) for i, word in enumerate(sentence)]
    words = sorted({word for _, _, word in tokens}) if order == "rank" else [word for _, _, word in tokens]
    for side, leaf in zip(sides, model.leaf_children, strict=True):
        scores = meter.matmul(leaf, model.emission[words].T).unbind(1)
        column = {word: scores[at] for at, word in enumerate(words)}
        side |= {(b, i, i + 1): column[word] for b, i, word in tokens}
    if order == "rank":
        links = [meter.matmul(child, model.head.T) for child in model.head_children]
        root = meter.matmul(model.root, model.head.T)
    else:
        links, root = list(model.head_children), model.root
    log_z = [torch.empty(())] * len(sentences)
    for width in range(2, max(map(len, sentences)) + 1):
        spans = [(b, i, i + width) for b, words in enumerate(sentences) for i in range(len(words) - width + 1)]
        columns = torch.stack([inside(sides, span, meter) for span in spans], 1)
        if order == "state":
            columns = meter.matmul(model.head.T, columns)
        whole = [at for at, (b, _, _) in enumerate(spans) if len(sentences[b]) == width]
        inner = [at for at in range(len(spans)) if at not in whole]
        if inner:
            for side, link in zip(sides, links, strict=True):
                side |= zip([spans[at] for at in inner], meter.matmul(link, columns[:, inner]).unbind(1), strict=True)
        if whole:
            for at, z in zip(whole, meter.matmul(root, columns[:, whole])[0], strict=True):
                log_z[spans[at][0]] = z.log()
    return torch.stack(log_z)


def inside(sides: list[dict[tuple[int, int, int], Tensor]], span: tuple[int, int, int], meter: Meter) -> Tensor:
    b, i, j = span
    left = torch.stack([sides[0][b, i, k] for k in range(i + 1, j)], 1)
    right = torch.stack([sides[1][b, k, j] for k in range(i + 1, j)], 1)
    return meter.split_sum(left, right)


# Counts.


def assert_counted(cost: Cost, meter: Meter) -> None:
    assert (cost.flops, cost.bytes) == (meter.flops, meter.bytes)
    assert sum(term.flops for term in cost.terms) == meter.flops
    assert sum(term.bytes for term in cost.terms) == meter.bytes


@pytest.mark.parametrize("lengths", [(1,), (5,), (4, 2, 1, 7, 2), (3, 3, 3)])
@pytest.mark.parametrize(("states", "rank"), [(6, 4), (3, 5), (7, 1)])
def test_chain_counts(states: int, rank: int, lengths: tuple[int, ...]) -> None:
    model, sentences = chain(states, rank, 5), random_sentences(torch.Generator().manual_seed(1), lengths, 5)
    meters = {"rank": Meter(), "state": Meter()}
    log_z = {order: chain_log_z(model, sentences, order, meter) for order, meter in meters.items()}
    # Both orders add the same positive numbers, at most 7 * 35 of them one after another: far below 1e-12 in float64.
    torch.testing.assert_close(log_z["rank"], log_z["state"], rtol=1e-12, atol=1e-12)
    counted = plan("chain", states=states, rank=rank, vocabulary=5, length=lengths, bytes_per_number=BYTES)
    assert_counted(counted.rank, meters["rank"])
    assert_counted(counted.state, meters["state"])


@pytest.mark.parametrize("lengths", [(2,), (6,), (5, 2, 3, 7, 2), (4, 4, 4)])
@pytest.mark.parametrize("split", [True, False])
@pytest.mark.parametrize("rank", [1, 4, 9])
def test_tree_counts(split: bool, rank: int, lengths: tuple[int, ...]) -> None:
    heads, leaves = (3, 5) if split else (8, 8)
    model = tree(heads, leaves, rank, 6, split)
    sentences = random_sentences(torch.Generator().manual_seed(1), lengths, 6)
    meters = {"rank": Meter(), "state": Meter()}
    log_z = {order: tree_log_z(model, sentences, order, meter) for order, meter in meters.items()}
    # Both orders add the same positive numbers, a few hundred one after another: far below 1e-12 in float64.
    torch.testing.assert_close(log_z["rank"], log_z["state"], rtol=1e-12, atol=1e-12)
    sizes: dict[str, Any] = {"nonterminals": 3, "preterminals": 5} if split else {}
    words = len({word for sentence in sentences for word in sentence})
    counted = plan(
        "tree",
        states=8,
        rank=rank,
        vocabulary=6,
        length=lengths,
        distinct_words=words,
        bytes_per_number=BYTES,
        **sizes,
    )
    assert_counted(counted.rank, meters["rank"])
    assert_counted(counted.state, meters["state"])


def test_tree_formulas() -> None:
    """One sentence of n words by hand: n (n + 1) / 2 spans, n (n^2 - 1) / 6 splits."""
    m, r, n, vocabulary = 11, 7, 9, 100
    counted = plan("tree", states=m, rank=r, vocabulary=vocabulary, length=n, batch=1)
    spans, splits = n * (n - 1) // 2, n * (n * n - 1) // 6  # spans of two words or more
    once = 2 * 2 * r * r * m + 2 * 2 * r * m * n + 2 * r * m
    assert counted.rank.flops == once + 2 * r * splits + 4 * r * r * (spans - 1) + 2 * r
    assert counted.state.flops == 4 * r * m * n + 2 * r * splits + 2 * r * m * spans + 4 * r * m * (spans - 1) + 2 * m


def test_one_word_sentences_of_a_tree_cost_nothing() -> None:
    sizes: dict[str, Any] = {"states": 8, "rank": 3, "vocabulary": 50}
    with_short, without = plan("tree", length=[1, 4, 1], **sizes), plan("tree", length=[4], **sizes)
    assert (with_short.state, with_short.rank) == (without.state, without.rank)
    nothing = plan("tree", length=[1, 1], **sizes)
    assert (nothing.order, nothing.state.flops, nothing.speedup) == ("state", 0, float("inf"))


def test_words_default_to_tokens_or_vocabulary() -> None:
    sizes: dict[str, Any] = {"states": 8, "rank": 3, "length": 10, "batch": 4}
    assert plan("tree", vocabulary=1000, **sizes) == plan("tree", vocabulary=1000, distinct_words=40, **sizes)
    assert plan("tree", vocabulary=30, **sizes) == plan("tree", vocabulary=30, distinct_words=30, **sizes)
    few, many = (plan("tree", vocabulary=1000, distinct_words=words, **sizes) for words in (10, 40))
    assert many.rank.flops - few.rank.flops == 2 * 2 * 3 * 8 * 30
    assert many.state == few.state


def test_length_is_one_number_or_one_for_each_sentence() -> None:
    sizes: dict[str, Any] = {"states": 8, "rank": 3, "vocabulary": 50}
    for shape in ("chain", "tree"):
        assert plan(shape, length=5, batch=3, **sizes) == plan(shape, length=[5, 5, 5], **sizes)
        assert plan(shape, length=[5, 2], batch=2, **sizes) == plan(shape, length=(5, 2), **sizes)
        assert plan(shape, length=5, **sizes) == plan(shape, length=[5], **sizes)


# Decisions.


def test_rank_order_wins_with_many_states_and_tokens() -> None:
    for shape in ("chain", "tree"):
        chosen = plan(shape, states=9000, rank=1000, vocabulary=10_000, length=30, batch=128)
        assert chosen.order == "rank"
        assert chosen.speedup == pytest.approx(cost(chosen, "state") / cost(chosen, "rank"))
        assert chosen.speedup > 3


def test_state_order_wins_with_few_tokens_and_rank_close_to_states() -> None:
    for shape in ("chain", "tree"):
        chosen = plan(shape, states=1000, rank=900, vocabulary=10_000, length=4, batch=1)
        assert chosen.order == "state"
        assert chosen.speedup == pytest.approx(cost(chosen, "rank") / cost(chosen, "state"))
        assert chosen.speedup > 3


def cost(chosen: Plan, order: str) -> float:
    """The roofline at the default of 10 flops a byte."""
    counted = chosen.rank if order == "rank" else chosen.state
    return max(counted.flops, 10 * counted.bytes)


@pytest.mark.parametrize(
    ("shape", "states", "rank"), [("chain", 9000, 1000), ("chain", 600, 400), ("tree", 9000, 1000)]
)
def test_crossover_is_monotone_in_tokens(shape: Any, states: int, rank: int) -> None:
    orders = [
        plan(shape, states=states, rank=rank, vocabulary=10_000, length=6, batch=batch).order
        for batch in range(1, 400, 3)
    ]
    assert orders[0] == "state"
    assert orders[-1] == "rank"
    assert sum(before != after for before, after in pairwise(orders)) == 1


def test_flops_per_byte_decides_which_side_binds() -> None:
    """One long sentence: the link costs the rank order more flops, but the state order reads far more."""
    sizes: dict[str, Any] = {"states": 400, "rank": 100, "vocabulary": 1000, "length": 40}
    by_flops = plan("chain", flops_per_byte=1e-6, **sizes)
    by_bytes = plan("chain", flops_per_byte=1e6, **sizes)
    assert by_flops.rank == by_bytes.rank
    assert by_flops.rank.flops > by_flops.state.flops
    assert by_flops.rank.bytes < by_flops.state.bytes
    assert (by_flops.order, by_bytes.order) == ("state", "rank")
    assert by_flops.speedup == pytest.approx(by_flops.rank.flops / by_flops.state.flops)
    assert by_bytes.speedup == pytest.approx(by_flops.state.bytes / by_flops.rank.bytes)
    assert by_flops.explain().count("flops bind") == 2
    assert by_bytes.explain().count("bytes bind") == 2


def test_explain_word_for_word() -> None:
    chosen = plan("chain", states=300, rank=4, vocabulary=9, length=[3, 2])
    assert chosen.explain().splitlines() == [
        "chain: rank order; state order would cost 2.03 times as much",
        "  states 300, rank 4, sentences 2, tokens 5, distinct words 5, flops per byte 10",
        "  rank order                1.21e+04 flops   1.61e+04 bytes, bytes bind",
        "    link, once               9.6e+03 flops   9.66e+03 bytes",
        "    start                    2.4e+03 flops   6.02e+03 bytes",
        "    emission                      20 flops        240 bytes",
        "    step                          96 flops        224 bytes",
        "  state order               1.68e+04 flops   3.28e+04 bytes, bytes bind",
        "    start                    2.4e+03 flops   6.02e+03 bytes",
        "    emission                      20 flops        240 bytes",
        "    to states                7.2e+03 flops   1.32e+04 bytes",
        "    to ranks                 7.2e+03 flops   1.32e+04 bytes",
    ]
    split = plan("tree", states=8, nonterminals=3, preterminals=5, rank=4, vocabulary=9, length=5)
    assert split.explain().splitlines()[1].startswith("  states 8 (3 nonterminals, 5 preterminals), rank 4, ")


# Mistakes.

GOOD: dict[str, Any] = {"states": 8, "rank": 3, "vocabulary": 50, "length": 5}


@pytest.mark.parametrize(
    ("shape", "changed", "message"),
    [
        ("tree", {"states": 0}, "plan: states is 0; give a positive number."),
        ("tree", {"rank": -1}, "plan: rank is -1; give a positive number."),
        ("chain", {"vocabulary": 0}, "plan: vocabulary is 0; give a positive number."),
        ("chain", {"length": 0}, "plan: length is 0; give a positive number."),
        ("chain", {"length": [3, 0]}, "plan: length 1 is 0; give a positive number."),
        ("chain", {"batch": 0}, "plan: batch is 0; give a positive number."),
        ("tree", {"bytes_per_number": 0}, "plan: bytes_per_number is 0; give a positive number."),
        ("tree", {"flops_per_byte": 0.0}, "plan: flops_per_byte is 0.0; give a positive number."),
        ("tree", {"distinct_words": 0}, "plan: distinct_words is 0; give a positive number."),
        (
            "tree",
            {"distinct_words": 51},
            "plan: distinct_words is 51 but the vocabulary has 50; give at most that many.",
        ),
        (
            "tree",
            {"length": [3, 4], "batch": 3},
            "plan: batch is 3 but there are 2 lengths; leave batch out when every length is given.",
        ),
        (
            "tree",
            {"nonterminals": 3},
            "plan: only one of nonterminals and preterminals is given; give both or neither.",
        ),
        (
            "tree",
            {"nonterminals": 3, "preterminals": 4},
            "plan: states is 8 but nonterminals 3 and preterminals 4 make 7; give states as their sum.",
        ),
        ("tree", {"nonterminals": 8, "preterminals": 0}, "plan: preterminals is 0; give a positive number."),
        (
            "chain",
            {"nonterminals": 3, "preterminals": 5},
            "plan: a chain has no nonterminals and preterminals; give states alone.",
        ),
    ],
)
def test_mistakes_word_for_word(shape: Any, changed: dict[str, Any], message: str) -> None:
    with pytest.raises(RankspaceError) as caught:
        plan(shape, **(GOOD | changed))
    assert str(caught.value) == message
