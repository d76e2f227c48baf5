"""Steps of training as CUDA graphs: one for each shape of a batch, and one for the optimiser.

A step of these models is a thousand small launches, which the host could not send as fast as the device works them off.
A graph of them is recorded once for a shape and sent as a whole.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from rankspace.models import Model
from rankspace.training.epochs import Share
from rankspace.training.machine import with_options
from rankspace.training.optimisers import set_learning_rate
from rankspace.training.processes import Processes
from rankspace.training.sections import OptimiserConfig
from rankspace.training.step import GradientStep, Task, nothing
from rankspace.training.watch import Watch

Shape = tuple[int, int]  # sentences, words of each


class CapturedStep(GradientStep):
    """As `GradientStep`, by `Model.padded_log_prob`. Batches are filled up to a shape that others have as well
    (`padded_shape`), with words that count nothing. The first batch of a shape runs as it is, which compiles what it
    needs; the second is recorded, once for batches that begin a step and once for others. Graphs share their memory.

    Waits for the device once for each share: sentences that lost more than rounding, which have no gradient so far, are
    then done again as `GradientStep` does them. Where that is known only after the backward pass, nothing was added,
    and the others are done again first.
    """

    CAPTURED: ClassVar = True

    def __init__(self, model: Model, config: OptimiserConfig, processes: Processes) -> None:
        super().__init__(model, config, processes)
        self._device = processes.device
        self._pool: Any = torch.cuda.graph_pool_handle()
        self._stream = torch.cuda.Stream(self._device)
        self._inputs: dict[Shape, Inputs] = {}
        self._graphs: dict[tuple[Shape, bool], torch.cuda.CUDAGraph] = {}
        self._optimiser_graph: torch.cuda.CUDAGraph | None = None
        self._num_changes = 0
        self._seed = torch.zeros((), dtype=torch.int64, device=self._device)
        for parameter in self._parameters:
            parameter.grad = torch.zeros_like(parameter)

    def __call__(self, shares: Sequence[Share], learning_rate: float, meanwhile: Task = nothing) -> None:
        set_learning_rate(self.optimiser, learning_rate)
        for place, share in enumerate(shares):
            self._learn(share, meanwhile, begins=place == 0)
        self._change_weights_by_graph()
        if self.average is not None:
            self.average.update()

    def _learn(self, share: Share, meanwhile: Task, begins: bool) -> None:
        """Adds the gradients of a share up; those of the first take the place of what the last step left."""
        shape, num = padded_shape(*share.words.shape), len(share.lengths)
        is_new = shape not in self._inputs
        if is_new:
            self._inputs[shape] = Inputs.empty(shape, self._device)
        inputs = self._inputs[shape]
        inputs.fill(share)
        lost: set[int] = set()
        while True:
            self._differentiate(shape, is_new, begins)
            meanwhile()
            marked = {place for place, is_lost in enumerate(inputs.lost.tolist()) if is_lost}  # waits for the device
            lost |= {place for place in marked if place < num}
            if shape[0] not in marked:
                break
            inputs.counts[sorted(lost)] = 0  # nothing was added: again without these
        if lost:
            self._do_again(share, torch.tensor(sorted(lost), device=self._device))

    def _differentiate(self, shape: Shape, is_new: bool, begins: bool) -> None:
        def work() -> None:
            self._seed.random_()
            add_gradients(self.model, self._inputs[shape], self._seed, self.watch, begins)

        if is_new:
            self._beside(work)
            return
        if (shape, begins) not in self._graphs:
            self._graphs[shape, begins] = self._recorded(work)
        self._graphs[shape, begins].replay()

    def load_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        """The optimiser has other tensors then: its graph is recorded again."""
        super().load_tensors(tensors)
        self._optimiser_graph, self._num_changes = None, 0

    def _do_again(self, share: Share, lost: Int[Tensor, "lost"]) -> None:
        """Sentences that a graph could not do, by torch: kernels would not either. Padding is not read."""
        lengths = tuple(share.lengths[place] for place in lost.tolist())
        self.watch.num_again += len(lengths)
        with with_options(self.model, backend="torch"):
            losses = self._loss(share.words[lost], lengths)
        total = self.watch.losses(losses, share.counts[lost], share.predictions[lost])
        (total * share.scale).backward()

    def _change_weights_by_graph(self) -> None:
        """The first change makes what the optimiser remembers; the second is recorded."""
        self._num_changes += 1
        if self._num_changes == 1:
            self._beside(self._change_weights)
            return
        if self._optimiser_graph is None:
            self._optimiser_graph = self._recorded(self._change_weights)
        self._optimiser_graph.replay()

    def _beside(self, work: Any) -> None:
        """Runs on the stream that graphs are recorded on."""
        self._stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(self._stream):
            work()
        torch.cuda.current_stream(self._device).wait_stream(self._stream)

    def _recorded(self, work: Any) -> torch.cuda.CUDAGraph:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool, stream=self._stream):
            work()
        return graph


class Inputs(NamedTuple):
    """What a graph reads, and which sentences it lost; the last of `lost` tells whether it added nothing."""

    words: Int[Tensor, "batch length"]
    lengths: Int[Tensor, "batch"]
    counts: Float[Tensor, "batch"]
    predictions: Float[Tensor, "batch"]
    scale: Float[Tensor, ""]
    lost: Bool[Tensor, "batch_and_one"]

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
            torch.zeros(batch + 1, dtype=torch.bool, device=device),
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


def add_gradients(model: Model, inputs: Inputs, seed: Int[Tensor, ""], watch: Watch, begins: bool = False) -> None:
    """Adds the gradients of a batch to those of the weights, or puts them in their place if it `begins`, and its losses
    to the watch: of all sentences but those that are lost, which have none. If the backward pass shows that more of
    them are, the gradients count as zero, and the last mark of `inputs.lost` tells. Weights have gradients already;
    those that the batch cannot move lose theirs."""
    log_p, lost = model.padded_log_prob(inputs.words, inputs.lengths, seed)
    before, counted = lost.clone(), inputs.counts > 0
    losses, counts = torch.where(before, 0, -log_p), inputs.counts.where(~before, 0)
    total = torch.where(losses < math.inf, losses * counts, 0).sum()
    weights = list(model.parameters())
    found = torch.autograd.grad(total * inputs.scale, weights, allow_unused=True)
    fails = (lost & ~before & counted).any()
    inputs.lost.copy_(torch.cat([lost & counted, fails[None]]))
    watch.losses(losses.detach().where(~fails, 0), counts.where(~fails, 0), inputs.predictions)
    zero = torch.zeros((), device=log_p.device)
    for weight, own in zip(weights, found, strict=True):
        if own is None:
            weight.grad = None
        elif weight.grad is not None and begins:
            torch.where(fails, zero, own, out=weight.grad)
        elif weight.grad is not None:
            weight.grad += torch.where(fails, zero, own)


def padded_shape(batch: int, length: int) -> Shape:
    """The shape a batch is filled up to: at most a quarter more sentences, and a sixteenth more words, or one."""
    return _rounded_up(batch, 4, 1), _rounded_up(length, 16, 2)


def _rounded_up(number: int, parts: int, least: int) -> int:
    """To a multiple of the power of two that divides the next lower power of two into some parts."""
    step = max(least, (1 << number.bit_length() - 1) // parts)
    return -(-number // step) * step
