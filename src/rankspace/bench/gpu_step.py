"""A training step of `rankspace bench gpu`: compared with float64 first, and timed only if it is right."""

import math
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from copy import deepcopy
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from rankspace.bench.device_clock import release
from rankspace.bench.gpu_inputs import Sentences, log_prob, new_model
from rankspace.bench.gpu_rows import Row
from rankspace.bench.gpu_timing import time_of_steps
from rankspace.bench.gpu_weights import GradientErrors, Gradients, gradient_errors, worst_of
from rankspace.bench.rectifiers import KeptSides, NotedSides
from rankspace.distributions.memory import Work
from rankspace.errors import NotEnoughMemoryError, is_lack_of_memory
from rankspace.inference.links import Precision
from rankspace.models import Model
from rankspace.models.memory import shortage
from rankspace.training.machine import matmul_precision

LIMIT = 1e-2  # of |d log p| at 40 words, in proportion for more; what is asked of "high" and "medium"
# Of the gradient of all weights, relative; in "highest" on the same sides of rectifiers.
GRADIENT_LIMITS: Mapping[Precision, float] = {"highest": 1e-4, "high": 2e-2, "medium": 2e-2}
SHARPNESS = 6.0


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


# Correctness.


def errors(row: Row, device: torch.device) -> dict[str, Any]:
    """How far the step is from float64 on the same weights, without dropout; `wrong` says why it counts for nothing."""
    found = _compared(row, device, 1.0)
    if row.peaked and not found["wrong"]:
        release(device)
        peaked = _compared(row, device, SHARPNESS)
        found |= {f"peaked_{name}": peaked[name] for name in ("gradient_error", "worst_weight", "moved", "lost")}
        found["peaked_error"] = peaked["log_p_error"]
        found["wrong"] = peaked["wrong"] and f"logits times {SHARPNESS:g}: {peaked['wrong']}"
    return found


def _compared(row: Row, device: torch.device, sharpness: float) -> dict[str, Any]:
    """Sentences that are lost count as errors, unless logits are sharp: then half may be done again when training."""
    model, sentences = new_model(row, device, sharpness).eval(), Sentences.of(row, device)
    log_p, lost, found = _by_kernels(model, sentences)
    release(device)
    expected_log_p, expected, num_moved = _in_float64(model, sentences, lost)
    differences = (log_p - expected_log_p).abs().masked_fill(lost, 0)
    num_lost = int(lost.sum())
    counted = num_lost if sharpness == 1 or 2 * num_lost > len(lost) else 0
    wrong = why_wrong(differences, limit_of(row, expected_log_p), counted)
    about = {"log_p_error": float(differences.max()), "mean_log_p": float(expected_log_p.mean())}
    return about | {"moved": num_moved, "lost": num_lost} | _of_gradients(row, gradient_errors(found, expected), wrong)


def _by_kernels(model: Model, sentences: Sentences) -> tuple[Float[Tensor, "batch"], Bool[Tensor, "batch"], Gradients]:
    """log p, which sentences are lost, and gradients without these: again where the backward pass marked more."""
    left_out = torch.zeros(len(sentences.lengths), dtype=torch.bool, device=sentences.words.device)
    while True:
        log_p, lost = log_prob(model, sentences)
        left_out = left_out | lost
        found = _gradients(model, log_p, left_out)
        if not bool((lost & ~left_out).any()):
            return log_p.detach(), left_out, found
        left_out = left_out | lost


def _of_gradients(row: Row, found: GradientErrors, wrong: str) -> dict[str, Any]:
    """What is told of gradients; `wrong` is what is wrong apart from them."""
    worst = worst_of(found.weights)
    return {
        "gradient_error": found.whole,
        "weights": [weight._asdict() for weight in found.weights],
        "worst_weight": worst and worst._asdict(),
        "wrong": wrong or why_gradients_are_wrong(found.whole, GRADIENT_LIMITS[row.precision]) or found.why_wrong,
    }


def _in_float64(
    model: Model, sentences: Sentences, lost: Bool[Tensor, "batch"]
) -> tuple[Float[Tensor, "batch"], Gradients, int | None]:
    """log p and gradients by torch; in "highest" on the sides of rectifiers that float32 takes, and how many moved."""
    sides = _sides(model, sentences) if model.options["precision"] == "highest" else None
    reference = deepcopy(model).double()
    reference.options = {"backend": "torch"}
    with KeptSides(sides) if sides is not None else nullcontext() as kept:
        log_p = reference.log_prob(sentences.words, sentences.lengths)
    assert not kept or not kept.num_left, "both passes have the same rectifiers"
    return log_p.detach(), _gradients(reference, log_p, lost), kept.num_moved if kept else None


def _sides(model: Model, sentences: Sentences) -> list[Bool[Tensor, "..."]]:
    """Of every rectifier, in float32 by torch."""
    twin = deepcopy(model)
    twin.options = {"backend": "torch", "precision": model.options["precision"]}
    noted = NotedSides()
    with torch.no_grad(), noted:
        twin.log_prob(sentences.words, sentences.lengths)
    return noted.sides


def _gradients(
    model: Model, log_p: Float[Tensor, "batch"], lost: Bool[Tensor, "batch"]
) -> dict[str, Float[Tensor, "..."]]:
    """Of the mean NLL of the sentences that are not lost, in float64."""
    total = -log_p.masked_fill(lost, 0).mean()
    names = [name for name, _ in model.named_parameters()]
    found = torch.autograd.grad(total, list(model.parameters()), allow_unused=True)
    return {name: each.double() for name, each in zip(names, found, strict=True) if each is not None}


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
    """Median milliseconds and peak memory of a step in training mode; neither where what was timed was not the step
    that was checked."""
    found = time_of_steps(new_model(row, device).train(), row, device, rounds)
    checked = {"way": found.way, "replay": found.replay.record(), "wrong": found.replay.why_wrong}
    if checked["wrong"]:
        return checked
    return checked | {"milliseconds": found.milliseconds, "peak_gb": found.peak_gb}
