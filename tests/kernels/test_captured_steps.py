"""What a captured step adds up: gradients and losses of a padded batch, and steps that are sent before the last one is
known to have lost nothing, against the ordinary way. On a CPU programs take the place of graphs."""

import math
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn

pytest.importorskip("triton", reason="needs triton")

from kernels.charts import DEVICE
from rankspace.errors import NotEnoughMemoryError
from rankspace.models import Model, create
from rankspace.training import captured
from rankspace.training.captured import CapturedStep, Inputs, add_gradients, padded_shape
from rankspace.training.epochs import Share
from rankspace.training.processes import Processes
from rankspace.training.sections import OptimiserConfig
from rankspace.training.step import GradientStep
from rankspace.training.watch import NumbersError, Place, Sums, Watch

VOCABULARY = 9


@pytest.fixture
def model() -> Model:
    torch.manual_seed(0)
    return create("rank-pcfg", vocabulary=VOCABULARY, nonterminals=3, preterminals=4, rank=3, size=4).to(DEVICE)


def share_of(lengths: tuple[int, ...], seed: int = 1) -> Share:
    words = torch.randint(VOCABULARY, (len(lengths), max(lengths)), generator=torch.Generator().manual_seed(seed))
    numbers = torch.tensor(lengths)
    predictions = (numbers + 1).float().to(DEVICE)
    ones = torch.ones(len(lengths), device=DEVICE)
    total = sum(lengths) + len(lengths)
    return Share(words.to(DEVICE), lengths, numbers.to(DEVICE), ones, predictions, 0.25, False, len(lengths), total)


def filled(share: Share, shape: tuple[int, int]) -> Inputs:
    inputs = Inputs.empty(shape, DEVICE)
    inputs.fill(share)
    return inputs


def add(model: Model, inputs: Inputs, begin_with: float, held: float = 0.0, begins: bool = False) -> tuple[Sums, float]:
    """To gradients that are all the same; what the watch found, and whether anything is held."""
    for weight in model.parameters():
        weight.grad = torch.full_like(weight, begin_with)
    watch, flag = Watch(DEVICE), torch.tensor(held, device=DEVICE)
    watch.begin(Place(1, 0, 1))
    add_gradients(model, inputs, torch.zeros((), dtype=torch.int64, device=DEVICE), watch, flag, begins)
    watch.check()
    return watch.drain(), float(flag)


def gradients(model: Model, less: float = 0.0) -> dict[str, Tensor]:
    return {name: weight.grad - less for name, weight in model.named_parameters() if weight.grad is not None}


def added(model: Model, inputs: Inputs) -> tuple[dict[str, Tensor], Sums]:
    sums, held = add(model, inputs, 1.0)
    assert held == 0
    return gradients(model, 1.0), sums


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
    add(model, filled(share, (4, 4)), math.nan, begins=True)
    found = gradients(model)
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


NONE = [False] * 4


@pytest.mark.parametrize("begins", [False, True])
@pytest.mark.parametrize(
    ("early", "late", "lost"),
    [
        ([False, True, False, False], NONE, [1]),
        (NONE, [False, False, True, True], [2]),  # the fourth is a filler
        ([True, False, False, False], [False, True, False, False], [0, 1]),
    ],
)
def test_a_batch_that_loses_a_sentence_adds_nothing(
    model: Model, begins: bool, early: list[bool], late: list[bool], lost: list[int]
) -> None:
    inputs = filled(share_of((4, 2, 3)), (4, 4))
    sums, held = add(Losing(model, early, late), inputs, float(begins), begins=begins)
    assert (sums, held) == (Sums(), 1)
    assert begins or not any(bool(each.any()) for each in gradients(model).values())
    assert inputs.lost.nonzero()[:, 0].tolist() == lost


def test_a_batch_after_one_that_is_held_adds_nothing(model: Model) -> None:
    sums, held = add(model, filled(share_of((4, 2, 3)), (4, 4)), 0.0, held=1.0)
    assert (sums, held) == (Sums(), 1)
    assert not any(bool(each.any()) for each in gradients(model).values())


def test_without_what_was_lost_the_others_are_added(model: Model) -> None:
    share = share_of((4, 2, 3))
    inputs = filled(share, (4, 4))
    inputs.counts[1] = 0
    sums, held = add(Losing(model, [False, True, False, False], NONE), inputs, 0.0)
    found = gradients(model)
    expected, loss = expected_of(model, share, [0, 2])
    same(found, expected)
    assert held == 0
    assert sums.loss == pytest.approx(loss, rel=1e-5)


class Words(Model):
    """A loss of a few launches: words by themselves. Sentences that begin with some of them are lost when padded."""

    NAME, KIND = "words", "tree"

    def __init__(self, lost: tuple[int, ...] = (), wrong: tuple[int, ...] = ()) -> None:
        super().__init__(vocabulary=VOCABULARY)
        self.first, self.second = (nn.Parameter(torch.linspace(-1, end, VOCABULARY)) for end in (1, 2))
        self.lost, self.wrong = (torch.tensor(each, dtype=torch.int64, device=DEVICE) for each in (lost, wrong))

    def forward(self, words: Tensor | None = None) -> Any:
        raise NotImplementedError

    def loss(self, words: Tensor, lengths: Any = None) -> Tensor:
        return -self._log_prob(words, torch.tensor(lengths, device=words.device))

    def padded_log_prob(self, words: Tensor, lengths: Tensor, seed: Tensor) -> tuple[Tensor, Tensor]:
        log_p, lost = self._log_prob(words, lengths), torch.isin(words[:, 0], self.lost)
        return torch.where(torch.isin(words[:, 0], self.wrong), math.nan, log_p), lost

    def _log_prob(self, words: Tensor, lengths: Tensor) -> Tensor:
        within = torch.arange(words.shape[1], device=words.device) < lengths[:, None]
        return torch.where(within, (self.first * self.second).log_softmax(0)[words], 0).sum(1)


LENGTHS = [(4, 2, 3), (2, 4, 4), (3, 3), (4, 3, 4), (4, 4), (2, 4, 3)]
FEW, MANY = (1,), (1, 2, 4, 7)  # sentences that begin so are lost


def learn(kind: type[GradientStep], model: Model, num_batches: int, **options: Any) -> tuple[GradientStep, Sums]:
    """Steps of so many batches, and their sums; the last is settled."""
    shares = [share_of(lengths, seed) for seed, lengths in enumerate(LENGTHS)]
    step = kind(model, OptimiserConfig(learning_rate=0.02, epsilon=1e-6, clip=0.5, **options), Processes(device=DEVICE))
    for number, first in enumerate(range(0, len(shares), num_batches)):
        step.watch.begin(Place(number + 1, 0, first + num_batches))
        step(shares[first : first + num_batches], 0.02 / (number + 1))
    step.settle()
    step.watch.check()
    return step, step.watch.drain()


@pytest.mark.parametrize("options", [{}, {"average": 0.9}, {"name": "adamw", "weight_decay": 0.3}])
@pytest.mark.parametrize("num_batches", [1, 2])
@pytest.mark.parametrize(
    ("beginnings", "wary", "expected_again"), [((), 0, []), (FEW, 0, [2]), (MANY, 0, [1, 2]), (MANY, 2, [])]
)
def test_steps_that_are_sent_ahead_learn_as_single_ones_do(
    monkeypatch: pytest.MonkeyPatch,
    beginnings: tuple[int, ...],
    wary: int,
    expected_again: list[int],
    num_batches: int,
    options: dict[str, Any],
) -> None:
    repeat, num_again = CapturedStep._repeat, list[int]()

    def counting(self: Any, *jobs: Any) -> None:
        num_again.append(len(jobs))
        repeat(self, *jobs)

    monkeypatch.setattr(CapturedStep, "_repeat", counting)
    monkeypatch.setattr(captured, "WARY", wary)
    expected, sums = learn(GradientStep, Words().to(DEVICE), num_batches, **options)
    found, own = learn(CapturedStep, Words(beginnings).to(DEVICE), num_batches, **options)
    assert (found.watch.num_again > 0) == bool(beginnings)
    ahead = num_batches == 1 and "average" not in options
    assert num_again == (expected_again if ahead else [])
    assert list(own) == pytest.approx(list(sums), rel=1e-5)
    for one, other in zip(found.model.parameters(), expected.model.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)
    for name, each in expected.tensors().items():
        torch.testing.assert_close(found.tensors()[name], each, rtol=1e-4, atol=1e-5)


LOST_WORD, WRONG_WORD = 1, 2


def share_with(word: int, lengths: tuple[int, ...] = (4, 2, 3)) -> Share:
    """Its second sentence begins with a word, the others with 0."""
    share = share_of(lengths)
    share.words[:, 0] = 0
    share.words[1, 0] = word
    return share


LOST, WRONG, LATER = share_with(LOST_WORD), share_with(WRONG_WORD), share_with(0)
OF_NEW_SHAPE = (4, 2, 3, 4, 2)


def taught(model: Model, shares: Sequence[Share], settled: Sequence[int] = ()) -> CapturedStep:
    """After a step of each share; some are settled at once, and the last."""
    step = CapturedStep(model.to(DEVICE), OptimiserConfig(learning_rate=0.02), Processes(device=DEVICE))
    for number, share in enumerate(shares, 1):
        step.watch.begin(Place(number, 0, number))
        step([share], 0.02)
        if number in settled:
            step.settle()
    step.settle()
    return step


@pytest.mark.parametrize(
    ("shares", "named"),
    [
        ([LATER, LOST, WRONG], 3),
        ([LATER, LOST, LOST, WRONG], 4),
        ([LATER, LOST, WRONG, LATER, LATER], 3),
        ([LATER, LOST, share_with(WRONG_WORD, OF_NEW_SHAPE)], 3),
        ([LATER, WRONG, LOST], 2),
    ],
)
def test_a_step_that_goes_wrong_is_named_though_others_were_done_again(
    monkeypatch: pytest.MonkeyPatch, shares: list[Share], named: int
) -> None:
    monkeypatch.setattr(captured, "WARY", 0)
    step = taught(Words((LOST_WORD,), (WRONG_WORD,)), shares)
    assert step.watch.num_again > 0
    with pytest.raises(NumbersError, match=rf"step {named} \(epoch 1, batch {named}\): log p of a sentence is nan"):
        step.watch.check()


FOLLOWERS = [LATER, share_with(0, OF_NEW_SHAPE)]


class LostIsWrong(Words):
    """What is done again has no number."""

    def loss(self, words: Tensor, lengths: Any = None) -> Tensor:
        return super().loss(words, lengths) * math.nan


def test_after_a_loss_some_steps_wait_for_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(captured, "WARY", 2)
    sent, send = list[int](), CapturedStep._send

    def counting(self: CapturedStep, job: Any) -> None:
        sent.append(job.place.step)
        send(self, job)

    monkeypatch.setattr(CapturedStep, "_send", counting)
    shares = [LATER] * 13
    shares[2] = shares[7] = shares[9] = LOST
    taught(Words((LOST_WORD,)), shares)
    assert sent == [2, 3, 4, 7, 8, 9, 13]  # the first is of a new shape; 8 is found while 9 is sent, 10 loses again


@pytest.mark.parametrize("follower", FOLLOWERS)
def test_a_step_that_is_wrong_when_it_is_done_again_is_named(follower: Share) -> None:
    step = taught(LostIsWrong((LOST_WORD,)), [LATER, LOST, follower])
    with pytest.raises(NumbersError, match=r"step 2 \(epoch 1, batch 2\): log p of a sentence is nan"):
        step.watch.check()


class LostIsTooLarge(Words):
    """What is done again does not fit."""

    def loss(self, words: Tensor, lengths: Any = None) -> Tensor:
        raise MemoryError


@pytest.mark.parametrize("follower", [*FOLLOWERS, None])
def test_a_lack_of_memory_is_that_of_the_step_that_is_done_again(follower: Share | None) -> None:
    shares = [LATER, LOST, *([] if follower is None else [follower])]
    with pytest.raises(NotEnoughMemoryError, match=r"train: step 2: not enough memory for 3 sentences of up to 4 word"):
        taught(LostIsTooLarge((LOST_WORD,)), shares)


class Noisy(Words):
    """Draws from the generator of the device in each pass."""

    def _log_prob(self, words: Tensor, lengths: Tensor) -> Tensor:
        return super()._log_prob(words, lengths) * (1 + torch.rand(len(words), device=words.device))


@pytest.mark.parametrize("settled", [[], [1], [2], [3], [1, 2, 3, 4, 5, 6]])
@pytest.mark.parametrize("wary", [0, 20])
def test_what_is_drawn_does_not_depend_on_when_steps_are_settled(
    monkeypatch: pytest.MonkeyPatch, settled: list[int], wary: int
) -> None:
    monkeypatch.setattr(captured, "WARY", wary)
    one, other = (drawn(places) for places in ([4], settled))
    assert torch.equal(one, other)


def drawn(settled: list[int]) -> Tensor:
    """The weights in the end, and what is drawn next."""
    torch.manual_seed(5)
    step = taught(Noisy((LOST_WORD,)), [LATER, WRONG, LOST, WRONG, LOST, LATER], settled)
    assert step.watch.num_again == 2
    return torch.cat([*(weight.detach() for weight in step.model.parameters()), torch.rand(3, device=DEVICE)])


@pytest.mark.parametrize("batch", [1, 3, 7, 16, 33, 100, 1000])
@pytest.mark.parametrize("length", [1, 2, 15, 16, 17, 40, 63, 100, 999])
def test_shapes_are_a_little_larger_and_few(batch: int, length: int) -> None:
    sentences, words = padded_shape(batch, length)
    assert batch <= sentences <= batch * 1.25
    assert length <= words <= max(length + 1, math.ceil(length * 17 / 16))
    assert padded_shape(sentences, words) == (sentences, words)
    assert len({padded_shape(some, length) for some in range(64, 129)}) <= 5
