"""One model by several implementations on one batch: compared, then timed in turns, then weighed."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from rankspace.bench.measurement import interleaved
from rankspace.bench.profiling import peak_bytes
from rankspace.devices import is_gpu
from rankspace.errors import RankspaceError

OURS = "rankspace"
GEMM = "gemm"
VALUE_TOLERANCE = 1e-5  # relative, of log p in float32: rounding of some thousand sums over up to 64 levels
# Relative to the largest entry. Peers that keep logarithms round numbers of some hundreds, by 2^-16, at every level.
GRADIENT_TOLERANCE = 2e-3


class Implementation(NamedTuple):
    """log p of the sentences from words and log parameters, and the flops of its formula, forward and backward."""

    log_prob: Callable[..., Tensor]
    flops: int
    in_torch: bool = True  # whether its memory is torch's, and can be seen


@dataclass(frozen=True)
class Task:
    """What all implementations are given."""

    sizes: Mapping[str, int]
    words: Int[Tensor, "batch length"]
    parameters: Mapping[str, Tensor]
    backward: bool = True

    @property
    def device(self) -> torch.device:
        return self.words.device

    def run(self, log_prob: Callable[..., Tensor]) -> dict[str, Tensor]:
        """log p and its derivatives by parameter; log p alone without `backward`."""
        if not self.backward:
            with torch.no_grad():
                return {"log p": log_prob(self.words, **self.parameters)}
        leaves = {name: parameter.detach().requires_grad_() for name, parameter in self.parameters.items()}
        found = log_prob(self.words, **leaves)
        gradients = torch.autograd.grad(found.sum(), list(leaves.values()))
        return {"log p": found.detach(), **dict(zip(leaves, gradients, strict=True))}


def compare(
    benchmark: str,
    task: Task,
    implementations: Mapping[str, Implementation],
    repeats: int,
    tick: Callable[[], None],
) -> dict[str, Any]:
    """Times, peak memory and rates of each implementation, and how `rankspace`, the first, compares with the others.

    A square matrix product takes its turn among them: rates are given as a fraction of its. `tick` is called
    `num_ticks` times. Raises RankspaceError if the results do not agree.
    """
    reference = task.run(implementations[OURS].log_prob)
    for name, other in implementations.items():
        if name != OURS:
            check(benchmark, task.run(other.log_prob), name, reference)
    programs = {name: _program(task, each.log_prob) for name, each in implementations.items()}
    size, gemm = _gemm(task.device)
    times = interleaved({GEMM: gemm, **programs}, repeats, task.device, tick, warm_up=False)
    rate = 2 * size**3 / times.pop(GEMM)
    found = {
        name: {
            "milliseconds": times[name],
            "peak_bytes": peak_bytes(programs[name], task.device) if each.in_torch else None,
            "flops": each.flops,
            "gemm_fraction": each.flops / times[name] / rate,
        }
        for name, each in implementations.items()
    }
    return {
        "sizes": dict(task.sizes),
        "run": "forward and backward" if task.backward else "forward",
        "gemm_gflops_per_second": rate / 1e6,
        "implementations": found,
        "faster": _ratios(found, "milliseconds"),
        "smaller": _ratios(found, "peak_bytes"),
    }


def num_ticks(num_implementations: int, repeats: int) -> int:
    """How often `compare` calls `tick`."""
    return (num_implementations + 1) * repeats


def check(benchmark: str, found: Mapping[str, Tensor], name: str, expected: Mapping[str, Tensor]) -> None:
    """Raises RankspaceError unless log p and all gradients agree."""
    for part, value in found.items():
        difference = (value.double() - expected[part].double()).abs().max()
        error = (difference / expected[part].double().abs().max()).item()
        if not error <= (VALUE_TOLERANCE if part == "log p" else GRADIENT_TOLERANCE):
            place = part if part == "log p" else f"the gradient of {part}"
            raise RankspaceError(
                f"bench {benchmark}: {OURS} and {name} differ by {error:.1e} in {place}; nothing was timed."
            )


def log_distribution(generator: torch.Generator, device: torch.device, *shape: int) -> Float[Tensor, "..."]:
    """Logarithms of random conditional distributions whose last axis sums to one."""
    return torch.randn(shape, generator=generator).log_softmax(-1).to(device)


def random_words(device: torch.device, vocabulary: int, batch: int, length: int) -> Int[Tensor, "batch length"]:
    """The same words at every call with the same sizes."""
    return torch.randint(vocabulary, (batch, length), generator=torch.Generator().manual_seed(0)).to(device)


def _program(task: Task, log_prob: Callable[..., Tensor]) -> Callable[[], object]:
    return lambda: task.run(log_prob)


def _gemm(device: torch.device) -> tuple[int, Callable[[], object]]:
    """A float32 product of square matrices, large enough for the device's full rate; run once."""
    size = 8192 if is_gpu(device) else 1024
    matrix = torch.ones(size, size, device=device)
    matrix @ matrix
    return size, lambda: matrix @ matrix


def _ratios(found: Mapping[str, Mapping[str, Any]], quantity: str) -> dict[str, float]:
    """How many times as much of a quantity the others take."""
    others = [name for name, each in found.items() if name != OURS and each[quantity] is not None]
    return {name: found[name][quantity] / found[OURS][quantity] for name in others}
