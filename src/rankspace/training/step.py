"""One step of training: the one place where weights change."""

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, ClassVar, Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from rankspace.models import Model
from rankspace.training.averaging import Average
from rankspace.training.epochs import Share
from rankspace.training.machine import enough_memory
from rankspace.training.optimisers import load_optimiser_tensors, make_optimiser, optimiser_tensors, set_learning_rate
from rankspace.training.processes import Processes
from rankspace.training.sections import OptimiserConfig
from rankspace.training.watch import Place, Watch

Task = Callable[[], None]


def nothing() -> None:
    """No task."""


@runtime_checkable
class Step(Protocol):
    """What the loop asks of a way to train."""

    watch: Watch

    def __call__(self, shares: Sequence[Share], learning_rate: float, meanwhile: Task = nothing) -> None:
        """Learns from the shares of the step that the watch was told of. A step that waits for the device does a task
        of the host before it does; others leave it. Weights and watch have the step for certain after `settle`. A lack
        of memory is told with the step."""

    def settle(self) -> None:
        """Called before weights are used otherwise, or the watch is read."""

    def frees_memory(self) -> bool:
        """Gives back memory that serves its steps alone, and which they can have again; whether there was any."""

    def end_epoch(self) -> None:
        """Called when all sentences of an epoch have been seen."""

    def evaluated_weights(self) -> AbstractContextManager[None]:
        """Within, the model has the weights that are to be evaluated and kept."""

    def tensors(self) -> dict[str, Tensor]:
        """What resuming needs besides those weights."""

    def load_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        """Goes on from the `tensors` of another; the model has the weights that were evaluated."""


def memory_for(place: Place, model: Model, shares: Sequence[Share]) -> AbstractContextManager[None]:
    """Within, a lack of memory is told with the step and its batches."""
    return enough_memory(f"step {place.step}", model, [tuple(share.words.shape) for share in shares])


class Loss(nn.Module):
    """The loss of a model as a module's forward, which is what DistributedDataParallel looks after."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.model = model

    def forward(self, words: Int[Tensor, "batch length"], lengths: tuple[int, ...]) -> Float[Tensor, "batch"]:
        return self.model.loss(words, lengths)


class GradientStep:
    """zero_grad, forward, backward, clip, optimiser step. Does not wait for the device.

    Each process has the sum of its own losses times the number of processes over the size of the whole batch;
    DistributedDataParallel takes the mean, which is the gradient of the whole batch.
    """

    CAPTURED: ClassVar = False

    def __init__(self, model: Model, config: OptimiserConfig, processes: Processes) -> None:
        self.model, self.config = model, config
        self.watch = Watch(processes.device)
        self.optimiser = make_optimiser(config, model, self.CAPTURED)
        self.average = Average(model, config.average) if config.average else None
        self._parameters = list(model.parameters())
        self._loss: nn.Module = Loss(model)
        if processes.world > 1:
            self._loss = DistributedDataParallel(self._loss, **_buffers_stay())

    def __call__(self, shares: Sequence[Share], learning_rate: float, meanwhile: Task = nothing) -> None:
        set_learning_rate(self.optimiser, learning_rate)
        self.optimiser.zero_grad()
        with memory_for(self.watch.place, self.model, shares):
            for place, share in enumerate(shares, 1):
                with self._synchronised(place == len(shares)):
                    losses = self._loss(share.words, share.lengths)
                    (self.watch.losses(losses, share.counts, share.predictions) * share.scale).backward()
            self._change_weights()
        if self.average is not None:
            self.average.update()

    def _change_weights(self) -> None:
        self.watch.step(nn.utils.clip_grad_norm_(self._parameters, self.config.clip or math.inf))
        self.optimiser.step()

    def _synchronised(self, wanted: bool) -> AbstractContextManager[None]:
        """Gradients of several batches are added up before processes exchange them."""
        if wanted or not isinstance(self._loss, DistributedDataParallel):
            return nullcontext()
        return self._loss.no_sync()

    def settle(self) -> None:
        pass

    def frees_memory(self) -> bool:
        return False

    def end_epoch(self) -> None:
        pass

    def evaluated_weights(self) -> AbstractContextManager[None]:
        return nullcontext() if self.average is None else self.average.in_place()

    def tensors(self) -> dict[str, Tensor]:
        found = optimiser_tensors(self.optimiser, self.model)
        if self.average is not None:
            found["average.num_steps"] = torch.tensor(self.average.num_steps)
            found |= {f"raw.{name}": weight for name, weight in self.model.named_parameters()}
        return found

    def load_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        load_optimiser_tensors(self.optimiser, self.model, tensors)
        if self.average is None:
            return
        self.average.num_steps = int(tensors["average.num_steps"])
        with torch.no_grad():
            for name, weight in self.model.named_parameters():
                self.average.weights[name].copy_(weight)
                weight.copy_(tensors[f"raw.{name}"])


def _buffers_stay() -> dict[str, Any]:
    """Has DistributedDataParallel send no buffers at each step: all have the same. torch 2.13 renamed the option."""
    names = inspect.signature(DistributedDataParallel).parameters
    return {"forward_sync_buffers" if "forward_sync_buffers" in names else "broadcast_buffers": False}
