"""The time of a training step, and whether what was timed is the step that was checked.

The step is compared with float64 launch by launch and without dropout; it is timed as a CUDA graph, with dropout. So
what was timed runs once more afterwards, and so does the step as Python launches it, with the same weights, seed and
random state: losses and gradients must have the same bits, and no sentence may be lost. Where two launches of the step
differ, because something in it adds up in any order, a replay may differ `SLACK` times as much.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from rankspace.bench.device_clock import captured, forget_peak, launched, median_ms, peak_gb
from rankspace.bench.gpu_inputs import Sentences, log_prob
from rankspace.bench.gpu_rows import Row
from rankspace.models import Model
from rankspace.training.random_state import device_state, set_device_state

Way = Literal["graph", "eager"]
SEED = 1 << 20  # of the runs that are compared: none that was timed had it
SLACK = 10


class Outcome(NamedTuple):
    """What a step finds. Gradients lie where those of the next step will."""

    log_p: Float[Tensor, "batch"]
    lost: Bool[Tensor, "batch"]
    gradients: Sequence[Float[Tensor, "..."]]

    def copied(self) -> "Outcome":
        return Outcome(self.log_p.clone(), self.lost.clone(), [each.clone() for each in self.gradients])


Step = Callable[[], Outcome]


def training_step(model: Model, sentences: Sentences) -> Step:
    """zero_grad, forward and backward of the mean NLL. Gradients go to tensors that are there beforehand, for a graph
    writes where it was recorded to."""
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    gradients = [torch.zeros_like(weight) for weight in weights]

    def step() -> Outcome:
        sentences.seed.add_(1)
        torch._foreach_zero_(gradients)
        log_p, lost = log_prob(model, sentences)
        found = torch.autograd.grad(-log_p.mean(), weights, allow_unused=True)
        known = [(own, each) for own, each in zip(gradients, found, strict=True) if each is not None]
        torch._foreach_add_([own for own, _ in known], [each for _, each in known])
        return Outcome(log_p.detach(), lost, gradients)

    return step


class Difference(NamedTuple):
    """Between two runs: the largest of log p, and of gradients the norm of the difference over the norm."""

    log_p: float
    gradients: float

    @classmethod
    def between(cls, one: Outcome, other: Outcome) -> "Difference":
        pairs = zip(one.gradients, other.gradients, strict=True)
        difference = math.hypot(*(_norm(own - each) for own, each in pairs))
        size = math.hypot(*(_norm(each) for each in other.gradients))
        return cls(float((one.log_p - other.log_p).abs().max()), difference / size if size else difference)


def _norm(gradient: Float[Tensor, "..."]) -> float:
    """In float64: a difference in the last bit of a small number has a square too."""
    return float(torch.linalg.vector_norm(gradient, dtype=torch.float64))


class Replay(NamedTuple):
    """What was timed, held against the launches of the step; and two runs of these against each other."""

    difference: Difference
    launches: Difference
    lost: int

    @property
    def why_wrong(self) -> str:
        """Nothing where what was timed is the step that was checked."""
        if self.lost:
            return f"the step that was timed lost {self.lost} sentences"
        names = ("log p", "gradients")
        for name, found, noise in zip(names, self.difference, self.launches, strict=True):
            if not found <= SLACK * noise:
                return f"the step that was timed is {found:.1e} from its launches in {name}"
        return ""

    def record(self) -> dict[str, Any]:
        return {"difference": self.difference._asdict(), "launches": self.launches._asdict(), "lost": self.lost}


def replayed(program: Step, step: Step, sentences: Sentences) -> Replay:
    """Runs what was timed, and its step twice, all alike."""
    device = sentences.words.device
    state = device_state(device)

    def once(run: Step) -> Outcome:
        sentences.seed.fill_(SEED)
        set_device_state(state, device)
        return run().copied()

    replay, first, second = (once(run) for run in (program, *[lambda: launched(step, device)] * 2))
    lost = int((replay.lost | first.lost).sum())
    return Replay(Difference.between(replay, first), Difference.between(second, first), lost)


class Timed(NamedTuple):
    """`peak_gb`: weights and gradients included."""

    way: Way
    milliseconds: float
    peak_gb: float | None
    replay: Replay


def time_of_steps(model: Model, row: Row, device: torch.device, rounds: int) -> Timed:
    """As one graph where the model can be captured, else as Python launches it; median milliseconds."""
    sentences = Sentences.of(row, device)
    step = training_step(model, sentences)
    way: Way = "graph" if model.can_be_captured(device) else "eager"
    program = captured(step, device) if way == "graph" else _readied(step, device)
    milliseconds, peak = median_ms(program, device, rounds), peak_gb(device)  # before anything else takes memory
    return Timed(way, milliseconds, peak, replayed(program, step, sentences))


def _readied(step: Step, device: torch.device) -> Step:
    step()
    forget_peak(device)
    return step
