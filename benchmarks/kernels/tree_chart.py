"""Times the chart of the low-rank tree engine by Triton kernels: forward and backward from given linear inputs.

    python benchmarks/kernels/tree_chart.py [--output FILE] [--only NAME ...]

Every size is first compared with the torch engine in float64 on the same inputs; no time is printed for a wrong result.
Times are medians between device events after warm-up: `eager` with one launch at a time from Python, `graph` with all
launches of forward and backward captured once in a CUDA graph and replayed.
"""

import argparse
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rankspace.bench.device_clock import Rate, captured, median_ms, rates
from rankspace.bench.measurement import circumstances
from rankspace.inference.links import DenseLink, Precision
from rankspace.inference.ragged import ragged
from rankspace.inference.tree.engine import log_z
from rankspace.inference.tree.inputs import Sentences, TreeInputs

GPU = torch.device("cuda")
ARITHMETIC: dict[Precision, Rate] = {"highest": "fp32", "high": "tf32", "medium": "bf16"}
TOLERANCE = {"highest": 1e-4, "high": 1e-2, "medium": 1e-1}  # of log Z: max of it and 1e-6 |log Z|; gradients likewise


@dataclass(frozen=True)
class Case:
    name: str
    rank: int
    lengths: tuple[int, ...]
    precision: Precision
    vocabulary: int = 10_000

    @property
    def splits(self) -> int:
        return sum(n * (n - 1) * (n + 1) // 6 for n in self.lengths)

    @property
    def spans(self) -> int:
        """Spans that pass through the link: of two words or more, and not whole."""
        return sum(n * (n - 1) // 2 - 1 for n in self.lengths)

    @property
    def gflop(self) -> float:
        """Products with the link: forward, transposed, and its gradient."""
        return 3 * 2 * self.spans * 2 * self.rank**2 / 1e9

    @property
    def gigabytes(self) -> float:
        """Rows that splits read, forward (two) and backward (four)."""
        return 6 * self.splits * self.rank * (2 if self.precision == "medium" else 4) / 1e9


def ragged_lengths(num: int) -> tuple[int, ...]:
    return tuple(5 + 35 * b // (num - 1) for b in range(num))


CASES = [
    Case("16 x 40", 1000, (40,) * 16, "high"),
    Case("64 x 40", 1000, (40,) * 64, "high"),
    Case("16 of 5..40", 1000, ragged_lengths(16), "high"),
    Case("16 x 40 highest", 1000, (40,) * 16, "highest"),
    Case("16 x 40 medium", 1000, (40,) * 16, "medium"),
    Case("64 x 40 medium", 1000, (40,) * 64, "medium"),
    Case("1 x 400", 1000, (400,), "high"),
    Case("16 x 200", 1000, (200,) * 16, "high"),
    Case("16 x 40 r 4096", 4096, (40,) * 16, "high"),
]


def random_inputs(case: Case, seed: int = 0) -> tuple[TreeInputs, Sentences]:
    """Normalised as a grammar is: rows of the link over ranks, the rest of the mass on words."""
    generator = torch.Generator(GPU).manual_seed(seed)

    def draw(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, device=GPU)

    words = torch.randint(case.vocabulary, (sum(case.lengths),), generator=generator, device=GPU)
    distinct, token_word = torch.unique(words, return_inverse=True)
    link = DenseLink(draw(2 * case.rank, case.rank).softmax(1) / 2, case.precision)
    inputs = TreeInputs(link, draw(len(distinct), 2 * case.rank).exp() / 10, draw(case.rank).softmax(0))
    scales = torch.zeros(len(distinct), dtype=torch.float64, device=GPU)
    return inputs, Sentences(ragged(case.lengths, GPU), token_word, scales)


def step(inputs: TreeInputs, sentences: Sentences, kernels: bool) -> tuple[Tensor, ...]:
    """log Z, lost, and the gradient of the mean log Z with respect to all inputs.

    Leaves are made each time: a graph that is captured must not meet those of another stream.
    """
    inputs = inputs.like(tuple(tensor.detach().requires_grad_() for tensor in inputs.tensors))
    found, lost = log_z(inputs, sentences, lambda: None, None, kernels)
    slopes = torch.full_like(found, 1 / len(found))
    return (found.detach(), lost, *torch.autograd.grad(found, inputs.tensors, slopes))


def ready(inputs: TreeInputs, dtype: torch.dtype) -> TreeInputs:
    return inputs.like(tuple(tensor.to(dtype) for tensor in inputs.tensors))


def errors(case: Case) -> dict[str, float]:
    """Against float64. Raises where they are above the tolerance of the precision."""
    inputs, sentences = random_inputs(case, seed=1)
    found = step(ready(inputs, torch.float32), sentences, kernels=True)
    expected = step(ready(inputs, torch.float64), sentences, kernels=False)
    if bool(found[1].any()) or bool(expected[1].any()):
        raise SystemExit(f"{case.name}: sentences were lost")
    of_log_z = float((found[0] - expected[0]).abs().max())
    of_gradients = max(
        float((one - other).norm() / other.norm()) for one, other in zip(found[2:], expected[2:], strict=True)
    )
    limit = max(TOLERANCE[case.precision], 1e-6 * float(expected[0].abs().max()))
    if not of_log_z <= limit or not of_gradients <= TOLERANCE[case.precision]:
        raise SystemExit(f"{case.name}: wrong: log Z is off by {of_log_z:.2g}, gradients by {of_gradients:.2g}")
    return {"log_z_error": of_log_z, "gradient_error": of_gradients, "mean_log_z": float(expected[0].mean())}


def measure(case: Case) -> dict[str, Any]:
    inputs, sentences = random_inputs(case)
    inputs = ready(inputs, torch.float32)

    def run() -> tuple[Tensor, ...]:
        return step(inputs, sentences, kernels=True)

    run()
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    run()
    peak = (torch.cuda.max_memory_allocated() - before) / 1e9
    eager = median_ms(run, GPU, 5)
    return {"eager_ms": eager, "graph_ms": median_ms(captured(run, GPU), GPU), "peak_gb": peak}


def floor_ms(case: Case, limits: dict[Rate, float]) -> float:
    """Products at the rate of their arithmetic and bytes at that of a copy, one after the other."""
    return case.gflop / limits[ARITHMETIC[case.precision]] + case.gigabytes / limits["copy"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path)
    parser.add_argument("--only", nargs="*")
    given = parser.parse_args()
    limits = rates(GPU)
    print("  ".join(f"{name} {rate:.3g}" for name, rate in limits.items()), "(TFLOP/s; copy TB/s)")
    print(
        f"{'case':18}{'GFLOP':>8}{'GB':>8}{'floor':>8}{'graph ms':>10}{'of floor':>10}{'eager':>8}{'peak GB':>9}  "
        "errors"
    )
    records = []
    for case in CASES:
        if given.only and case.name not in given.only:
            continue
        record = {**asdict(case), "gflop": case.gflop, "gigabytes": case.gigabytes, "floor_ms": floor_ms(case, limits)}
        record |= errors(case)
        torch.cuda.empty_cache()
        record |= measure(case)
        records.append(record)
        share = record["floor_ms"] / record["graph_ms"]
        print(
            f"{case.name:18}{case.gflop:8.0f}{case.gigabytes:8.2f}{record['floor_ms']:8.2f}{record['graph_ms']:10.3f}"
            f"{share:10.0%}{record['eager_ms']:8.2f}{record['peak_gb']:9.2f}  log Z {record['log_z_error']:.1e}, "
            f"gradients {record['gradient_error']:.1e}",
            flush=True,
        )
        torch.cuda.empty_cache()
    if given.output:
        whole = {**circumstances(GPU), "limits": limits, "cases": records}
        given.output.write_text(json.dumps(whole, indent=1) + "\n")


if __name__ == "__main__":
    main()
