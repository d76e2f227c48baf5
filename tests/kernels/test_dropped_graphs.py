"""Graphs are dropped where memory is too short for another, or for what runs beside them; steps go on without."""

import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton", reason="needs triton")

from kernels.charts import DEVICE
from kernels.test_captured_steps import (
    LATER,
    LOST,
    LOST_WORD,
    OF_NEW_SHAPE,
    WRONG,
    Noisy,
    added,
    filled,
    gradients,
    share_of,
    share_with,
    taught,
)
from kernels.test_captured_steps import same as same_gradients
from rankspace.errors import NotEnoughMemoryError
from rankspace.models import create
from rankspace.training.captured import add_gradients
from rankspace.training.graphs import Graphs
from rankspace.training.watch import Place, Watch
from short_memory import OUT_OF_MEMORY, lacking

OTHER = share_with(0, OF_NEW_SHAPE)
LARGER = share_with(0, (6, 4, 5))
SHARES = [LATER, WRONG, LOST, OTHER, WRONG, OTHER, LARGER, LOST, LARGER, LATER, OTHER]
CANNOT_END = "Offset increment outside graph capture encountered unexpectedly."


@pytest.fixture
def dropped(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many graphs there were, each time they were dropped."""
    found, drop = list[int](), Graphs._drop_all

    def counting(graphs: Graphs) -> None:
        found.append(len(graphs._programs))
        drop(graphs)

    monkeypatch.setattr(Graphs, "_drop_all", counting)
    return found


def hold(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    """Memory holds so many graphs."""
    recorded = Graphs.recorded

    def recording(graphs: Graphs, program: Any) -> Any:
        return recorded(graphs, program) if len(graphs._programs) < most else lacking()

    monkeypatch.setattr(Graphs, "recorded", recording)


def drawn(model: Noisy) -> Tensor:
    """The weights in the end, and what is drawn next."""
    torch.manual_seed(5)
    step = taught(model, SHARES)
    return torch.cat([*(weight.detach() for weight in step.model.parameters()), torch.rand(3, device=DEVICE)])


def same(found: Tensor, expected: Tensor) -> None:
    """Up to rounding, which a GPU may do otherwise in a graph; other draws would be far off."""
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("most", "times"), [(9, 0), (3, 1), (2, 2), (1, 3), (0, 4)])
def test_where_memory_holds_no_more_graphs_steps_learn_the_same(
    monkeypatch: pytest.MonkeyPatch, dropped: list[int], most: int, times: int
) -> None:
    expected = drawn(Noisy((LOST_WORD,)))
    hold(monkeypatch, most)
    same(drawn(Noisy((LOST_WORD,))), expected)
    assert dropped == [most] * times


class Greedy(Noisy):
    """Draws, then lacks memory some times, for batches of more than four words."""

    def __init__(self, times: int) -> None:
        super().__init__((LOST_WORD,))
        self.times = times

    def padded_log_prob(self, words: Tensor, lengths: Tensor, seed: Tensor) -> tuple[Tensor, Tensor]:
        found = super().padded_log_prob(words, lengths, seed)
        if words.shape[1] > 4 and self.times > 0:
            self.times -= 1
            raise RuntimeError(OUT_OF_MEMORY)
        return found


def test_a_batch_of_a_new_shape_has_the_memory_of_graphs(dropped: list[int]) -> None:
    """As it runs again it draws the same; and it can be recorded, as all others again."""
    expected = drawn(Noisy((LOST_WORD,)))
    same(drawn(Greedy(times=1)), expected)
    assert dropped == [3]


def test_memory_of_graphs_is_given_back_for_what_runs_elsewhere(dropped: list[int]) -> None:
    """They are recorded again by the steps that come after, which learn the same."""
    steps = []
    for frees in (False, True):
        torch.manual_seed(5)
        step = taught(Noisy((LOST_WORD,)), SHARES)
        if frees:
            assert step.frees_memory()
            assert not step.frees_memory()  # there are none left
        for number, share in enumerate(SHARES, len(SHARES) + 1):
            step.watch.begin(Place(number, 0, number))
            step([share], 0.02)
        step.settle()
        steps.append(step)
    assert dropped == [4]
    assert steps[1].frees_memory()
    for expected, found in zip(*(step.model.parameters() for step in steps), strict=True):
        same(found.detach(), expected.detach())


class GreedyAgain(Noisy):
    """Draws, then lacks memory once where sentences are done again."""

    def __init__(self) -> None:
        super().__init__((LOST_WORD,))
        self.times = 1

    def loss(self, words: Tensor, lengths: Any = None) -> Tensor:
        found = super().loss(words, lengths)
        if self.times > 0:
            self.times -= 1
            lacking()
        return found


def test_sentences_that_are_done_again_have_the_memory_of_graphs(dropped: list[int]) -> None:
    expected = drawn(Noisy((LOST_WORD,)))
    same(drawn(GreedyAgain()), expected)
    assert len(dropped) == 1
    assert dropped[0] > 0


def test_a_batch_that_memory_does_not_hold_without_graphs_either(dropped: list[int]) -> None:
    with pytest.raises(NotEnoughMemoryError) as caught:
        taught(Greedy(times=2), [LATER, LATER, LARGER])
    assert dropped == [2]
    assert str(caught.value) == (
        "train: step 3: not enough memory for 3 sentences of up to 6 words (float32): 3.8 GB more could not be had; "
        "lower batches.max_sentences, batches.max_tokens, batches.max_length or the sizes of the model."
    )


def test_a_batch_that_runs_beside_no_graphs_is_tried_once(dropped: list[int]) -> None:
    with pytest.raises(NotEnoughMemoryError, match="step 1: not enough memory for 3 sentences of up to 6 words"):
        taught(Greedy(times=1), [LARGER])
    assert dropped == []


def test_a_capture_that_torch_cannot_end_is_a_lack_of_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is raised after it."""

    def fail(*_: Any) -> None:
        raise RuntimeError(CANNOT_END)

    monkeypatch.setattr(Graphs, "recorded", lacking)
    monkeypatch.setattr(Graphs, "_drop_all", fail)
    with pytest.raises(NotEnoughMemoryError) as caught:
        taught(Noisy(), [LATER, LATER])
    assert str(caught.value.__cause__) == CANNOT_END
    assert str(caught.value).startswith(
        "train: step 2: not enough memory for 3 sentences of up to 4 words (float32): 3.8"
    )


def test_other_errors_drop_nothing(monkeypatch: pytest.MonkeyPatch, dropped: list[int]) -> None:
    def fail(*_: Any) -> None:
        raise RuntimeError("size mismatch")

    monkeypatch.setattr(Graphs, "recorded", fail)
    with pytest.raises(RuntimeError, match="size mismatch"):
        taught(Noisy(), [LATER, LATER])
    assert dropped == []


def test_what_an_attempt_held_is_free_when_it_is_made_again() -> None:
    """Though its error, which may be needed, came through the frames that held it."""
    held, graphs = list[weakref.ref[Tensor]](), Graphs(DEVICE)
    graphs._programs["another"] = lambda: None

    def program() -> None:
        alive = [each() for each in held]
        chart = torch.zeros(5, device=DEVICE)
        held.append(weakref.ref(chart))
        if len(held) == 1:
            lacking()
        assert alive == [None]

    graphs.beside_or_alone(program)
    assert len(held) == 2


@pytest.mark.gpu
def test_memory_of_a_gpu_that_really_runs_out() -> None:
    """The memory of one graph is too much for launches beside it, and then for another graph."""
    gpu = torch.device("cuda", 0)
    graphs, total = Graphs(gpu), torch.zeros((), device=gpu)

    def adding(gigabytes: float) -> Callable[[], Tensor]:
        return lambda: total.add_(torch.ones(round(gigabytes * 2**30), dtype=torch.uint8, device=gpu)[-1])

    torch.cuda.empty_cache()
    there = torch.cuda.get_device_properties(gpu).total_memory
    torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved(gpu) + 2.5 * 2**30) / there, gpu)
    try:
        graphs.send("first", adding(1.5))
        graphs.beside_or_alone(adding(2.0))
        assert not graphs._programs
        graphs.send("second", adding(2.0))
        graphs.send("third", adding(2.2))
        assert [graphs.records(name) for name in ("first", "second", "third")] == [True, True, False]
        assert not graphs._programs
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0, gpu)
    assert int(total) == 4


def test_a_batch_that_lacks_memory_late_has_changed_nothing() -> None:
    """Wherever it is short: what is done again is counted once."""
    torch.manual_seed(0)
    model = create("rank-pcfg", vocabulary=9, nonterminals=3, preterminals=4, rank=3, size=4).to(DEVICE)
    inputs = filled(share_of((4, 2, 3)), (4, 4))
    expected, sums = added(model, inputs)
    for weight in model.parameters():
        weight.grad = torch.ones_like(weight)
    watch, held = Watch(DEVICE), torch.zeros((), device=DEVICE)
    watch.begin(Place(1, 0, 1))
    seed, where, num_calls = torch.zeros((), dtype=torch.int64, device=DEVICE), torch.where, 0

    def short(*given: Any, **named: Any) -> Any:
        nonlocal num_calls
        num_calls += 1
        return where(*given, **named) if num_calls != 5 else lacking()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "where", short)
        with pytest.raises(RuntimeError, match="out of memory"):
            add_gradients(model, inputs, seed, watch, held)
    add_gradients(model, inputs, seed, watch, held)
    same_gradients(gradients(model, 1.0), expected)
    assert watch.drain().loss == pytest.approx(sums.loss, rel=1e-6)
