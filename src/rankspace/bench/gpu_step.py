"""A training step of `rankspace bench gpu`: compared with float64 first, and timed only if it is right."""

import math
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from copy import deepcopy
from typing import Any, Literal, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from rankspace.bench.device_clock import Program, captured, forget_peak, median_ms, peak_gb, release
from rankspace.bench.gpu_rows import Row
from rankspace.bench.rectifiers import KeptSides, NotedSides
from rankspace.distributions.memory import Work
from rankspace.errors import NotEnoughMemoryError, is_lack_of_memory
from rankspace.inference.links import Precision
from rankspace.models import Model, create
from rankspace.models.memory import shortage
from rankspace.training.machine import matmul_precision

Way = Literal["graph", "eager"]

LIMIT = 1e-2  # of |d log p| at 40 words, in proportion for more; what is asked of "high" and "medium"
# Of the gradient of all weights, relative; in "highest" on the same sides of rectifiers.
GRADIENT_LIMITS: Mapping[Precision, float] = {"highest": 1e-4, "high": 2e-2, "medium": 2e-2}
SHARPNESS = 6.0
LOW_RANK_CHAINS = ("rank-hmm", "lhmm")
# What logits are linear in: these times 6 are logits times 6.
SCALES = {
    "rank-pcfg": ("ranks", "emission.words.weight", "emission.words.bias", "root.start"),
    "rank-hmm": ("ranks", "emitters", "start.start"),
}


class Sentences(NamedTuple):
    """A batch of random words."""

    words: Int[Tensor, "batch length"]
    lengths: tuple[int, ...]
    device_lengths: Int[Tensor, "batch"]
    seed: Int[Tensor, ""]

    @classmethod
    def of(cls, row: Row, device: torch.device) -> "Sentences":
        generator = torch.Generator().manual_seed(0)
        words = torch.randint(row.vocabulary, (len(row.lengths), max(row.lengths)), generator=generator).to(device)
        seed = torch.zeros((), dtype=torch.int64, device=device)
        return cls(words, row.lengths, torch.tensor(row.lengths, device=device), seed)


def measure(row: Row, device: torch.device, rounds: int = 20) -> dict[str, Any]:
    """The errors of a step and, if they are within what its precision promises, its time and peak memory.

    A lack of memory is told in place of what could not be measured.
    """
    try:
        with matmul_precision(row.precision):
            found = errors(row, device)
            release(device)
            return found if found["wrong"] else found | times(row, device, rounds)
    except (RuntimeError, NotEnoughMemoryError) as error:
        if not is_lack_of_memory(error):
            raise
        return {"wrong": lacking(row, row.lengths, error, torch.float64)}
    finally:
        release(device)


def lacking(row: Row, lengths: Sequence[int], error: BaseException, dtype: torch.dtype = torch.float32) -> str:
    """What a batch of a row takes, where memory did not hold it. A step takes most in float64, which it is compared
    with."""
    model = new_model(row, torch.device("cpu")).to(dtype)
    found = shortage(model, Work(tuple(lengths), gradients=True))
    return f"{found.account(error)}; give a device with more memory"


def new_model(row: Row, device: torch.device, sharpness: float = 1.0) -> Model:
    """With the weights that training begins with, drawn anew the same way at each call.

    The tables of low-rank chains begin all but uniform, where no rounding shows: their logits are spread to a standard
    deviation of one.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = create(row.model, vocabulary=row.vocabulary, **row.settings)
    model.options["precision"] = row.precision
    weights = dict(model.named_parameters())
    with torch.no_grad():
        for name in ("from_states", "to_states") if row.model in LOW_RANK_CHAINS else ():
            weights[name].div_((weights[name][:1000] @ weights["ranks"].T).std())
        for name in SCALES[row.model] if sharpness != 1 else ():
            weights[name].mul_(sharpness)
    return model.to(device)


# Correctness.


def errors(row: Row, device: torch.device) -> dict[str, Any]:
    """How far the step is from float64 on the same weights, without dropout; `wrong` says why it counts for nothing."""
    found = _compared(row, device, 1.0)
    if row.peaked and not found["wrong"]:
        release(device)
        peaked = _compared(row, device, SHARPNESS)
        found |= {f"peaked_{name}": peaked[name] for name in ("gradient_error", "moved", "lost")}
        found["peaked_error"] = peaked["log_p_error"]
        found["wrong"] = peaked["wrong"] and f"logits times {SHARPNESS:g}: {peaked['wrong']}"
    return found


def _compared(row: Row, device: torch.device, sharpness: float) -> dict[str, Any]:
    """Sentences that are lost count as errors, unless logits are sharp: then half may be done again when training."""
    model, sentences = new_model(row, device, sharpness).eval(), Sentences.of(row, device)
    log_p, lost = _log_prob(model, sentences)
    found = _gradients(model, log_p, lost)
    log_p = log_p.detach()
    release(device)
    sides = _sides(model, sentences) if row.precision == "highest" else None
    reference = deepcopy(model).double()
    reference.options = {"backend": "torch"}
    with KeptSides(sides) if sides is not None else nullcontext() as kept:
        expected_log_p = reference.log_prob(sentences.words, sentences.lengths)
    assert not kept or not kept.num_left, "both passes have the same rectifiers"
    expected = _gradients(reference, expected_log_p, lost)
    differences = (log_p - expected_log_p.detach()).abs().masked_fill(lost, 0)
    limits, num_lost = limit_of(row, expected_log_p.detach()), int(lost.sum())
    gradient_error = _relative_error(found, expected)
    wrong = why_wrong(differences, limits, num_lost if sharpness == 1 or 2 * num_lost > len(lost) else 0)
    return {
        "log_p_error": float(differences.max()),
        "gradient_error": gradient_error,
        "moved": kept.num_moved if kept else None,
        "mean_log_p": float(expected_log_p.detach().mean()),
        "lost": num_lost,
        "wrong": wrong or why_gradients_are_wrong(gradient_error, GRADIENT_LIMITS[row.precision]),
    }


def _sides(model: Model, sentences: Sentences) -> list[Bool[Tensor, "..."]]:
    """Of every rectifier, in float32 by torch."""
    twin = deepcopy(model)
    twin.options = {"backend": "torch", "precision": model.options["precision"]}
    noted = NotedSides()
    with torch.no_grad(), noted:
        twin.log_prob(sentences.words, sentences.lengths)
    return noted.sides


def _log_prob(model: Model, sentences: Sentences) -> tuple[Float[Tensor, "batch"], Bool[Tensor, "batch"]]:
    """As training computes it."""
    if model.can_be_captured(sentences.words.device):
        return model.padded_log_prob(sentences.words, sentences.device_lengths, sentences.seed)
    log_p = -model.loss(sentences.words, sentences.lengths)
    return log_p, torch.zeros_like(log_p, dtype=torch.bool)


def _gradients(
    model: Model, log_p: Float[Tensor, "batch"], lost: Bool[Tensor, "batch"]
) -> dict[str, Float[Tensor, "..."]]:
    """Of the mean NLL of the sentences that are not lost, in float64."""
    total = -log_p.masked_fill(lost, 0).mean()
    names = [name for name, _ in model.named_parameters()]
    found = torch.autograd.grad(total, list(model.parameters()), allow_unused=True)
    return {name: each.double() for name, each in zip(names, found, strict=True) if each is not None}


def _relative_error(found: dict[str, Tensor], expected: dict[str, Tensor]) -> float:
    """Norm of the difference over the norm of the gradient, all weights together."""
    zero = torch.zeros(())
    pairs = [(found.get(name, zero.to(each)), each) for name, each in expected.items()]
    difference = math.sqrt(sum(float((one - other).square().sum()) for one, other in pairs))
    size = math.sqrt(sum(float(other.square().sum()) for _, other in pairs))
    return difference / size if size else difference


def limit_of(row: Row, log_p: Float[Tensor, "batch"]) -> Float[Tensor, "batch"]:
    """The largest error of each sentence that counts as right. "highest": max(1e-4, 1e-6 |log p|)."""
    if row.precision == "highest":
        return (1e-6 * log_p.abs()).clamp(min=1e-4)
    return LIMIT * torch.tensor(row.lengths, dtype=log_p.dtype, device=log_p.device).div(40).clamp(min=1)


def why_wrong(differences: Float[Tensor, "batch"], limits: Float[Tensor, "batch"], num_lost: int) -> str:
    """Nothing for a step that is right."""
    if num_lost:
        return f"{num_lost} of {len(differences)} sentences were lost"
    is_right = differences <= limits  # not so for NaN
    if bool(is_right.all()):
        return ""
    worst = int((differences / limits).nan_to_num(math.inf).argmax())
    return f"log p is off by {float(differences[worst]):.1e}, more than {float(limits[worst]):.1e}"


def why_gradients_are_wrong(error: float, limit: float) -> str:
    """Nothing for gradients that are right."""
    return "" if error <= limit else f"gradients are off by {error:.1e} of their norm, more than {limit:.0e}"


# Speed.


def times(row: Row, device: torch.device, rounds: int) -> dict[str, Any]:
    """Median milliseconds and peak memory of a step in training mode, weights and gradients included."""
    way, milliseconds = time_of_steps(new_model(row, device).train(), row, device, rounds)
    return {"way": way, "milliseconds": milliseconds, "peak_gb": peak_gb(device)}


def time_of_steps(model: Model, row: Row, device: torch.device, rounds: int) -> tuple[Way, float]:
    """As one graph where the model can be captured, else as Python launches it; median milliseconds."""
    sentences = Sentences.of(row, device)
    if model.can_be_captured(device):
        return "graph", median_ms(captured(padded_step(model, sentences), device), device, rounds)
    step = _eager_step(model, sentences)
    step()
    forget_peak(device)
    return "eager", median_ms(step, device, rounds)


def padded_step(model: Model, sentences: Sentences) -> Program:
    """Gradients go to tensors that are there beforehand, for a graph writes where it was recorded to."""
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    gradients = [torch.zeros_like(weight) for weight in weights]

    def step() -> None:
        sentences.seed.add_(1)
        torch._foreach_zero_(gradients)
        log_p, _ = model.padded_log_prob(sentences.words, sentences.device_lengths, sentences.seed)
        found = torch.autograd.grad(-log_p.mean(), weights, allow_unused=True)
        known = [(own, each) for own, each in zip(gradients, found, strict=True) if each is not None]
        torch._foreach_add_([own for own, _ in known], [each for _, each in known])

    return step


def _eager_step(model: Model, sentences: Sentences) -> Program:
    def step() -> None:
        model.zero_grad()
        model.loss(sentences.words, sentences.lengths).mean().backward()

    return step
