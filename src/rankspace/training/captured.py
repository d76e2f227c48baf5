"""Steps of training as CUDA graphs: one for each shape of a batch, and one for the optimiser.

A step of these models is a thousand small launches, which the host could not send as fast as the device works them off.
A graph of them is recorded once for a shape and sent as a whole, while the device is still at the step before.
"""

import math
from collections.abc import Mapping, Sequence
from typing import ClassVar, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from rankspace.models import Model
from rankspace.training.epochs import Share
from rankspace.training.graphs import Flag, Graphs
from rankspace.training.machine import with_options
from rankspace.training.optimisers import set_learning_rate
from rankspace.training.processes import Processes
from rankspace.training.random_state import device_state, set_device_state
from rankspace.training.sections import OptimiserConfig
from rankspace.training.step import GradientStep, Task, memory_for, nothing
from rankspace.training.watch import Place, Watch, total_loss

Shape = tuple[int, int]  # sentences, words of each
CHANGE = "change"  # the name of the optimiser's graph
WARY = 20  # steps that wait for the device after one that lost sentences


class Job(NamedTuple):
    """One step that is asked for."""

    place: Place
    shares: Sequence[Share]
    learning_rate: float
    random: Tensor  # the state of the generator from which its passes draw


class CapturedStep(GradientStep):
    """As `GradientStep`, by `Model.padded_log_prob`. Batches are filled up to a shape that others have as well
    (`padded_shape`), with words that count nothing. The first batch of a shape runs as it is, which compiles what it
    needs; the second is recorded, once for batches that begin a step and once for others. Graphs share their memory,
    and are dropped where it leaves too little for a batch.

    A step is sent before it is known whether the one before it lost sentences (more than rounding), so that the device
    has work while the host prepares the next. One that did has set a flag on the device, `held`, which keeps it and all
    that is sent after it from changing anything: sums, weights, and what the optimiser remembers. Both steps are then
    done again one by one, the lost sentences as `GradientStep` does them. `settle` waits for the last step.

    A step draws the same when it is done again, and leaves the generator as if it had been done once: what is drawn
    does not depend on when the host looks. Steps of several batches, of averaged weights, and of shapes that are new
    wait for the device, and so do those after a loss (`WARY`), for one seldom comes alone.
    """

    CAPTURED: ClassVar = True

    def __init__(self, model: Model, config: OptimiserConfig, processes: Processes) -> None:
        super().__init__(model, config, processes)
        self._device = processes.device
        self._graphs = Graphs(self._device)
        self._inputs: dict[Shape, Inputs] = {}
        self._num_changes = 0
        self._seed = torch.zeros((), dtype=torch.int64, device=self._device)
        self._held = torch.zeros((), device=self._device)  # 1 from when sentences were lost, else 0
        self.optimiser.found_inf = self._held  # type: ignore[attr-defined]  # with 1 there, its step changes nothing
        self._flags = Flag(self._device), Flag(self._device)  # what `held` was after the last step and the one before
        self._ahead: Job | None = None  # sent, and not known to have lost nothing
        self._num_wary = 0  # of the steps to come, how many wait because of a loss
        for parameter in self._parameters:
            parameter.grad = torch.zeros_like(parameter)

    def __call__(self, shares: Sequence[Share], learning_rate: float, meanwhile: Task = nothing) -> None:
        waits = self._must_wait(shares)
        if waits:
            self.settle()
        job = Job(self.watch.place, shares, learning_rate, device_state(self._device))
        if waits:
            self._num_wary = max(self._num_wary - 1, 0)
            self._one_by_one(job, meanwhile)
        else:
            self._send_ahead(job, meanwhile)

    def settle(self) -> None:
        """Waits for the last step, and does it again if it lost sentences."""
        if self._ahead is not None and self._flags[0].is_set:
            self._repeat(self._ahead)
        self._ahead = None

    def frees_memory(self) -> bool:
        """That of the graphs."""
        return self._graphs.drop()

    def _must_wait(self, shares: Sequence[Share]) -> bool:
        if len(shares) > 1 or self.average is not None or self._num_wary:
            return True
        return padded_shape(*shares[0].words.shape) not in self._inputs

    def _send_ahead(self, job: Job, meanwhile: Task) -> None:
        """A step, before it is known what became of the last, which is then waited for."""
        with memory_for(job.place, self.model, job.shares):
            self._send(job)
        before, self._ahead = self._ahead, job
        self._flags = self._flags[1], self._flags[0]
        self._flags[0].take(self._held)
        meanwhile()
        if before is not None and self._flags[1].is_set:
            self._repeat(before, job)

    def _repeat(self, *jobs: Job) -> None:
        """Steps that changed nothing."""
        self._ahead = None
        self._held.zero_()
        for job in jobs:
            self._one_by_one(job)

    def _send(self, job: Job) -> None:
        """A step of one batch, without waiting for it."""
        (share,) = job.shares
        set_learning_rate(self.optimiser, job.learning_rate)
        shape = padded_shape(*share.words.shape)
        self._inputs[shape].fill(share)
        self._differentiate(shape, is_new=False, begins=True)
        self._change_weights_by_graph()

    def _one_by_one(self, job: Job, meanwhile: Task = nothing) -> None:
        """A step, waiting for each of its batches."""
        self.watch.turn_to(job.place)
        set_learning_rate(self.optimiser, job.learning_rate)
        set_device_state(job.random, self._device)
        with memory_for(job.place, self.model, job.shares):
            for place, share in enumerate(job.shares):
                self._learn(share, meanwhile, begins=place == 0)
            self._change_weights_by_graph()
        if self.average is not None:
            self.average.update()

    def _learn(self, share: Share, meanwhile: Task, begins: bool) -> None:
        """Adds the gradients of a share up; those of the first take the place of what the last step left."""
        shape = padded_shape(*share.words.shape)
        is_new = shape not in self._inputs
        if is_new:
            self._inputs[shape] = Inputs.empty(shape, self._device)
        inputs = self._inputs[shape]
        inputs.fill(share)
        lost, random = set[int](), device_state(self._device)
        while True:
            set_device_state(random, self._device)
            self._differentiate(shape, is_new, begins)
            meanwhile()
            found = {place for place, is_lost in enumerate(inputs.lost.tolist()) if is_lost}  # waits for the device
            if not found:
                break
            lost |= found
            inputs.counts[sorted(lost)] = 0  # nothing was added: again without these
            self._held.zero_()
        if lost:
            self._num_wary = WARY
            random = device_state(self._device)
            self._do_again(share, torch.tensor(sorted(lost), device=self._device))
            set_device_state(random, self._device)

    def _differentiate(self, shape: Shape, is_new: bool, begins: bool) -> None:
        def work() -> None:
            self._seed.random_()
            add_gradients(self.model, self._inputs[shape], self._seed, self.watch, self._held, begins)

        if is_new or not self._graphs.records((shape, begins)):
            self._graphs.beside_or_alone(work)
        else:
            self._graphs.send((shape, begins), work)

    def load_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        """The optimiser has other tensors then: its graph is recorded again."""
        super().load_tensors(tensors)
        self._graphs.forget(CHANGE)
        self._num_changes = 0

    def _do_again(self, share: Share, lost: Int[Tensor, "lost"]) -> None:
        """Sentences that a graph could not do, by torch: kernels would not either. Padding is not read. They may take
        more memory than graphs leave."""
        lengths, counts = tuple(share.lengths[place] for place in lost.tolist()), share.counts[lost]
        found: list[Tensor | None] = []

        def work() -> None:
            with with_options(self.model, backend="torch"):
                losses = self._loss(share.words[lost], lengths)
            total = total_loss(losses, counts)
            slopes = torch.autograd.grad(total * share.scale, self._parameters, allow_unused=True)
            found[:] = [losses.detach(), *slopes]

        self._graphs.beside_or_alone(work)
        losses, *slopes = found
        assert losses is not None
        self.watch.num_again += len(lengths)
        self.watch.losses(losses, counts, share.predictions[lost])
        for weight, own in zip(self._parameters, slopes, strict=True):
            if own is not None:
                weight.grad = own if weight.grad is None else weight.grad.add_(own)

    def _change_weights_by_graph(self) -> None:
        """The first change makes what the optimiser remembers; the second is recorded."""
        self._num_changes += 1
        if self._num_changes == 1 or not self._graphs.records(CHANGE):
            self._graphs.beside(self._change_weights)
        else:
            self._graphs.send(CHANGE, self._change_weights)

    def _change_weights(self) -> None:
        """Of a step that is held nothing is changed, and its gradients mean nothing."""
        norm, counts = nn.utils.clip_grad_norm_(self._parameters, self.config.clip or math.inf), self._held == 0
        self.watch.step(norm.where(counts, 0), counts)
        self.optimiser.step()


class Inputs(NamedTuple):
    """What a graph reads, and which sentences it lost."""

    words: Int[Tensor, "batch length"]
    lengths: Int[Tensor, "batch"]
    counts: Float[Tensor, "batch"]
    predictions: Float[Tensor, "batch"]
    scale: Float[Tensor, ""]
    lost: Bool[Tensor, "batch"]

    @classmethod
    def empty(cls, shape: Shape, device: torch.device) -> "Inputs":
        """Sentences that count nothing, as long as the shortest that a grammar has."""
        batch, length = shape
        return cls(
            torch.zeros(batch, length, dtype=torch.int64, device=device),
            torch.full((batch,), min(2, length), device=device),
            torch.zeros(batch, device=device),
            torch.zeros(batch, device=device),
            torch.zeros((), device=device),
            torch.zeros(batch, dtype=torch.bool, device=device),
        )

    def fill(self, share: Share) -> None:
        batch, length = share.words.shape
        self.words[:batch, :length].copy_(share.words)
        self.lengths[:batch].copy_(share.device_lengths)
        self.counts[:batch].copy_(share.counts)
        if batch < len(self.lengths):
            self.lengths[batch:].fill_(min(2, self.words.shape[1]))
            self.counts[batch:].zero_()
        self.predictions[:batch].copy_(share.predictions)
        self.scale.fill_(share.scale)


def add_gradients(
    model: Model,
    inputs: Inputs,
    seed: Int[Tensor, ""],
    watch: Watch,
    held: Float[Tensor, ""],
    begins: bool = False,
) -> None:
    """Adds the gradients of a batch to those of the weights, or puts them in their place if it `begins`, and its losses
    to the watch. If sentences that count are lost, before the backward pass or in it, `held` becomes 1; and where it is
    1, gradients that are added and losses are zeros, and what is put in place of gradients means nothing. Weights have
    gradients already; those that the batch cannot move lose theirs."""
    log_p, lost = model.padded_log_prob(inputs.words, inputs.lengths, seed)
    before, counted = lost.clone(), inputs.counts > 0
    losses, counts = torch.where(before, 0, -log_p), inputs.counts.where(~before, 0)
    total = total_loss(losses, counts)
    weights = list(model.parameters())
    found = torch.autograd.grad(total * inputs.scale, weights, allow_unused=True)
    inputs.lost.copy_(lost & counted)
    held.copy_(torch.maximum(held, inputs.lost.any()))
    counts_nothing, zero = held > 0, torch.zeros((), device=log_p.device)
    # What takes memory comes first: a batch that lacks it has changed nothing, and can be done again.
    kept = found if begins else [None if own is None else torch.where(counts_nothing, zero, own) for own in found]
    watch.losses(losses.detach().where(~counts_nothing, 0), counts.where(~counts_nothing, 0), inputs.predictions)
    for weight, own in zip(weights, kept, strict=True):
        if own is None:
            weight.grad = None
    moved = [(weight.grad, own) for weight, own in zip(weights, kept, strict=True) if own is not None]
    pairs = [(total, own) for total, own in moved if total is not None]
    put = torch._foreach_copy_ if begins else torch._foreach_add_
    put([total for total, _ in pairs], [own for _, own in pairs])


def padded_shape(batch: int, length: int) -> Shape:
    """The shape a batch is filled up to: at most a quarter more sentences, and a sixteenth more words, or one."""
    return _rounded_up(batch, 4, 1), _rounded_up(length, 16, 2)


def _rounded_up(number: int, parts: int, least: int) -> int:
    """To a multiple of the power of two that divides the next lower power of two into some parts."""
    step = max(least, (1 << number.bit_length() - 1) // parts)
    return -(-number // step) * step
