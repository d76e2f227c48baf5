"""What a captured step adds up, without the graph: gradients and losses of a padded batch, against the ordinary way."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton", reason="needs triton")

from kernels.charts import DEVICE
from rankspace.models import Model, create
from rankspace.training.captured import Inputs, add_gradients, padded_shape
from rankspace.training.epochs import Share
from rankspace.training.watch import Place, Sums, Watch

VOCABULARY = 9


@pytest.fixture
def model() -> Model:
    torch.manual_seed(0)
    return create("rank-pcfg", vocabulary=VOCABULARY, nonterminals=3, preterminals=4, rank=3, size=4).to(DEVICE)


def share_of(lengths: tuple[int, ...]) -> Share:
    words = torch.randint(VOCABULARY, (len(lengths), max(lengths)), generator=torch.Generator().manual_seed(1))
    numbers = torch.tensor(lengths)
    predictions = (numbers + 1).float().to(DEVICE)
    ones = torch.ones(len(lengths), device=DEVICE)
    total = sum(lengths) + len(lengths)
    return Share(words.to(DEVICE), lengths, numbers.to(DEVICE), ones, predictions, 0.25, False, len(lengths), total)


def filled(share: Share, shape: tuple[int, int]) -> Inputs:
    inputs = Inputs.empty(shape, DEVICE)
    inputs.fill(share)
    return inputs


def added(model: Model, inputs: Inputs) -> tuple[dict[str, Tensor], Sums]:
    """To gradients of one."""
    for weight in model.parameters():
        weight.grad = torch.ones_like(weight)
    watch = Watch(DEVICE)
    watch.begin(Place(1, 0, 1))
    add_gradients(model, inputs, torch.zeros((), dtype=torch.int64, device=DEVICE), watch)
    watch.check("")
    found = {name: weight.grad - 1 for name, weight in model.named_parameters() if weight.grad is not None}
    return found, watch.drain()


def expected_of(model: Model, share: Share, some: list[int]) -> tuple[dict[str, Tensor], float]:
    model.zero_grad()
    losses = model.loss(share.words[some], tuple(share.lengths[place] for place in some))
    (losses.sum() * share.scale).backward()
    return {name: weight.grad for name, weight in model.named_parameters() if weight.grad is not None}, float(
        losses.detach().sum()
    )


def same(found: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    assert found.keys() == expected.keys()
    for name, each in expected.items():
        torch.testing.assert_close(found[name], each, rtol=1e-4, atol=1e-5)


def test_gradients_and_losses_of_a_batch_with_fillers(model: Model) -> None:
    share = share_of((4, 2, 3))
    inputs = filled(share, (4, 6))
    found, sums = added(model, inputs)
    expected, loss = expected_of(model, share, [0, 1, 2])
    same(found, expected)
    assert sums.loss == pytest.approx(loss, rel=1e-5)
    assert (sums.num_sentences, sums.num_predictions) == (3, 12)
    assert not bool(inputs.lost.any())


def test_a_smaller_batch_after_a_larger_one_leaves_nothing_of_it(model: Model) -> None:
    inputs = filled(share_of((4, 2, 3, 4)), (4, 4))
    share = share_of((3, 2))
    inputs.fill(share)
    found, sums = added(model, inputs)
    expected, loss = expected_of(model, share, [0, 1])
    same(found, expected)
    assert sums.loss == pytest.approx(loss, rel=1e-5)


def test_a_batch_that_begins_a_step_takes_the_place_of_the_last(model: Model) -> None:
    share = share_of((4, 2, 3))
    for weight in model.parameters():
        weight.grad = torch.full_like(weight, math.nan)
    watch = Watch(DEVICE)
    watch.begin(Place(1, 0, 1))
    seed = torch.zeros((), dtype=torch.int64, device=DEVICE)
    add_gradients(model, filled(share, (4, 4)), seed, watch, begins=True)
    found = {name: weight.grad.clone() for name, weight in model.named_parameters() if weight.grad is not None}
    expected, _ = expected_of(model, share, [0, 1, 2])
    same(found, expected)


class Losing(Model):
    """A model that loses some sentences: before the backward pass, or in it."""

    NAME, KIND = "losing", "tree"

    def __init__(self, model: Model, early: list[bool], late: list[bool]) -> None:
        super().__init__(vocabulary=VOCABULARY)
        self.model, self.flags = model, torch.tensor([early, late], device=DEVICE)

    def forward(self, words: Tensor | None = None) -> Any:
        return self.model(words)

    def padded_log_prob(self, words: Tensor, lengths: Tensor, seed: Tensor) -> tuple[Tensor, Tensor]:
        log_p, lost = self.model.padded_log_prob(words, lengths, seed)
        lost |= self.flags[0]

        def mark(slopes: Tensor) -> Tensor:
            lost.logical_or_(self.flags[1])
            return slopes.where(~self.flags[0], 0)

        log_p.register_hook(mark)
        return log_p, lost


def test_lost_sentences_are_left_out(model: Model) -> None:
    share = share_of((4, 2, 3))
    inputs = filled(share, (3, 4))
    losing = Losing(model, [False, True, False], [False, False, False])
    for weight in model.parameters():
        weight.grad = torch.zeros_like(weight)
    watch = Watch(DEVICE)
    watch.begin(Place(1, 0, 1))
    add_gradients(losing, inputs, torch.zeros((), dtype=torch.int64, device=DEVICE), watch)
    found = {name: weight.grad.clone() for name, weight in model.named_parameters() if weight.grad is not None}
    expected, loss = expected_of(model, share, [0, 2])
    same(found, expected)
    assert inputs.lost.tolist() == [False, True, False, False]
    assert watch.drain().loss == pytest.approx(loss, rel=1e-5)


@pytest.mark.parametrize("begins", [False, True])
def test_what_the_backward_pass_marks_undoes_the_batch(model: Model, begins: bool) -> None:
    inputs = filled(share_of((4, 2, 3)), (4, 4))
    losing = Losing(model, [False] * 4, [False, False, True, True])
    for weight in model.parameters():
        weight.grad = torch.full_like(weight, float(begins))
    watch = Watch(DEVICE)
    watch.begin(Place(1, 0, 1))
    add_gradients(losing, inputs, torch.zeros((), dtype=torch.int64, device=DEVICE), watch, begins)
    assert not any(bool(weight.grad.any()) for weight in model.parameters() if weight.grad is not None)
    assert inputs.lost.tolist() == [False, False, True, False, True]  # the fourth is a filler
    assert watch.drain() == Sums()


@pytest.mark.parametrize("batch", [1, 3, 7, 16, 33, 100, 1000])
@pytest.mark.parametrize("length", [1, 2, 15, 16, 17, 40, 63, 100, 999])
def test_shapes_are_a_little_larger_and_few(batch: int, length: int) -> None:
    sentences, words = padded_shape(batch, length)
    assert batch <= sentences <= batch * 1.25
    assert length <= words <= max(length + 1, math.ceil(length * 17 / 16))
    assert padded_shape(sentences, words) == (sentences, words)
    assert len({padded_shape(some, length) for some in range(64, 129)}) <= 5
