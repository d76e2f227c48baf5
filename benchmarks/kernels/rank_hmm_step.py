"""Times the training step of `rank-hmm` by kernels: zero_grad, forward and backward of the mean NLL with its networks.

    python benchmarks/kernels/rank_hmm_step.py [--output FILE] [--only NAME ...]

Every case is first compared with the torch engine in float64 on the same weights, log p and gradients, dropout off; no
time is printed for a wrong result. Times are medians between device events after warm-up, dropout on: `eager` with one
launch at a time from Python, `graph` with all launches of a step captured once in a CUDA graph and replayed. Phases are
captured each in a graph of its own.
"""

import argparse
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rankspace.bench.device_clock import captured, median_ms, rates
from rankspace.bench.measurement import circumstances
from rankspace.inference.links import Precision
from rankspace.inference.ragged import ragged
from rankspace.models import fast_chain, fast_emission, fast_rank_hmm
from rankspace.models.fast_batch import Batch
from rankspace.models.fast_linked import Link, linked, linked_back
from rankspace.models.fast_networks import residual_network
from rankspace.models.fast_rank_hmm import rank_hmm_log_prob
from rankspace.models.fast_vectors import rows_of
from rankspace.models.rank_hmm import RankHMM

GPU = torch.device("cuda")
OF_LOG_P = {"highest": 1e-4, "high": 1e-2, "medium": 1e-2}  # max of it and 1e-6 |log p|, per 40 words
# Relative. Of networks in "highest" more than of tables: a rectifier whose input rounds to the other side of zero.
OF_GRADIENTS = {"highest": 1e-4, "high": 1e-2, "medium": 5e-2}
OF_NETWORKS = {"highest": 1e-3, "high": 2e-2, "medium": 5e-2}
TABLES = ("from_states", "to_states", "ranks", "emitters")


@dataclass(frozen=True)
class Case:
    name: str
    states: int
    rank: int
    lengths: tuple[int, ...]
    precision: Precision = "medium"
    start: str = "states"
    sharpness: float = 1.0  # of the logits; 6 makes peaked distributions
    timed: bool = True
    tolerance: float | None = None  # of log p, where another is stated
    vocabulary: int = 10_000
    size: int = 256

    @property
    def tokens(self) -> int:
        return sum(self.lengths)

    @property
    def gflop(self) -> float:
        """Products: tables and their gradients, link, its gradient, recursion, emission."""
        tables = 2 * 3 * 2 * self.states * self.rank * self.size
        link = 2 * self.rank**2 * self.states
        back = min(8 * self.tokens * self.rank * self.states, 2 * link + 2 * self.tokens * self.rank**2)
        recursion = 4 * self.tokens * self.rank**2
        emission = 4 * 2 * self.rank * self.vocabulary * self.size
        return (tables + link + back + recursion + emission) / 1e9


CASES = [
    Case("16384/4096 8 x 32", 16384, 4096, (32,) * 8),
    Case("32768/4096 16 x 64", 32768, 4096, (64,) * 16),
    Case("same, start=ranks", 32768, 4096, (64,) * 16, start="ranks"),
    Case("same, lengths 4..64", 32768, 4096, tuple(range(4, 65, 4)), start="ranks"),
    Case("16384/4096 64 x 64", 16384, 4096, (64,) * 64),
    Case("odd sizes", 1003, 251, (17, 9, 40, 1, 2), timed=False),
    Case("logits times 6", 4096, 1024, (40,) * 4, sharpness=6.0, timed=False, tolerance=0.2),
    Case("highest, logits times 6", 4096, 1024, (40,) * 4, "highest", sharpness=6.0, timed=False),
    Case("highest 32768/4096 16 x 64", 32768, 4096, (64,) * 16, "highest"),
]


def new_model(case: Case, dropout: float) -> RankHMM:
    """With logits that differ as they do after some training."""
    torch.manual_seed(0)
    model = RankHMM(case.vocabulary, case.states, case.rank, case.size, dropout, case.start)  # type: ignore[arg-type]
    with torch.no_grad():
        for table in (model.from_states, model.to_states, model.ranks):
            table.normal_(std=(case.sharpness / case.size**0.5) ** 0.5)
        model.emitters.normal_(std=0.1 * case.sharpness)
        if case.start == "states":
            model.starts.mul_(0.1)
    return model.to(GPU)


def tokens_of(case: Case, seed: int) -> Tensor:
    generator = torch.Generator(GPU).manual_seed(seed)
    return torch.randint(case.vocabulary, (len(case.lengths), max(case.lengths)), generator=generator, device=GPU)


def gradients_of(model: RankHMM, log_p: Tensor) -> dict[str, Tensor]:
    (-log_p.mean()).backward()
    return {name: parameter.grad for name, parameter in model.named_parameters() if parameter.grad is not None}


def errors(case: Case) -> dict[str, Any]:
    """Against float64. Raises where they are above the tolerance of the precision."""
    model, words = new_model(case, 0.0), tokens_of(case, 1)
    seed = torch.zeros((), dtype=torch.int64, device=GPU)
    log_p, lost = rank_hmm_log_prob(model, words, Batch(ragged(case.lengths, GPU), case.precision, seed))
    found = gradients_of(model, log_p)
    model.zero_grad()
    double = new_model(case, 0.0).double()
    double.options = {"order": "rank", "backend": "torch"}
    expected_log_p = double.log_prob(words, case.lengths)
    expected = gradients_of(double, expected_log_p)
    largest = max(float(each.norm()) for each in expected.values())
    of_gradients = {
        name: float((found[name] - each).norm() / max(float(each.norm()), 1e-2 * largest))
        for name, each in expected.items()
    }
    of_log_p = float((log_p - expected_log_p).detach().abs().max())
    record = {
        "log_p_error": of_log_p,
        "gradient_error": of_gradients,
        "mean_log_p": float(expected_log_p.detach().mean()),
    }
    if bool(lost.any()):
        raise SystemExit(f"{case.name}: sentences were lost")
    if of_log_p <= limit_of(case, expected_log_p.detach()) and all(
        error <= (OF_GRADIENTS if name in TABLES else OF_NETWORKS)[case.precision]
        for name, error in of_gradients.items()
    ):
        return record
    print(f"WRONG {case.name}: {record}", flush=True)
    return {**record, "wrong": True}


def limit_of(case: Case, log_p: Tensor) -> float:
    """Of log p: that of 40 words, more for more words, and never below the rounding of float32."""
    if case.tolerance is not None:
        return case.tolerance
    return max(OF_LOG_P[case.precision], 1e-6 * float(log_p.abs().max())) * max(1.0, max(case.lengths) / 40)


def graph_ms(run: Callable[[], Any]) -> float:
    return median_ms(captured(run, GPU), GPU)


def measure(case: Case) -> dict[str, Any]:
    model, words = new_model(case, 0.1), tokens_of(case, 0)
    batch = Batch(ragged(case.lengths, GPU), case.precision, torch.zeros((), dtype=torch.int64, device=GPU))

    def step() -> None:
        batch.seed.add_(1)
        model.zero_grad()
        log_p, _ = rank_hmm_log_prob(model, words, batch)
        (-log_p.mean()).backward()

    step()
    model.zero_grad()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    step()
    peak = torch.cuda.max_memory_allocated() / 1e9
    eager = median_ms(step, GPU, 5)
    found = {"eager_ms": eager, "graph_ms": graph_ms(step), "peak_gb": peak}
    model.zero_grad()
    return {**found, "phases_ms": phases(case, model, words)}


def phases(case: Case, model: RankHMM, words: Tensor) -> dict[str, float]:
    """Of the parts of a step, each alone."""
    layout, precision = ragged(case.lengths, GPU), case.precision
    batch = Batch(layout, precision, torch.zeros((), dtype=torch.int64, device=GPU))
    of_words = fast_emission.precision_of_words(precision)
    start = None if case.start == "ranks" else torch.randn(case.states, device=GPU).softmax(0)
    tokens = layout.pack(words)
    weights = model.from_states.detach(), model.to_states.detach(), model.ranks.detach()
    hidden, vocabulary = model.emitters.detach(), model.words.detach()

    def networks() -> None:
        found = [residual_network(model.word_network, model.words, of_words)]
        if start is not None:
            found.append(fast_rank_hmm._start(model, model.starts, 0.1, precision))
        torch.autograd.backward(found, [torch.ones_like(each) for each in found])
        model.zero_grad()

    def emission() -> Tensor:
        return fast_emission.log_words(hidden, vocabulary, None, tokens, of_words)

    def emission_and_back() -> None:
        ready = [each.requires_grad_() for each in (hidden.detach(), vocabulary.detach())]
        found = fast_emission.log_words(*ready, None, tokens, of_words)
        torch.autograd.grad(found, ready, found.detach())

    def factors() -> Any:
        return fast_chain._factors(*weights, start, batch, 0.1)

    made = factors()

    def link() -> Any:
        return fast_chain._link(made, precision)

    (matrix, transposed), log_words = link(), emission()

    def forward() -> Any:
        ranks = fast_chain._start(made, precision)
        return linked(rows_of(layout), ranks, Link(matrix, transposed, precision), log_words)

    chain, ends = forward()
    slopes = torch.full_like(ends.log_z, 1 / len(case.lengths))

    def backward() -> Any:
        return linked_back(chain, ends, slopes, Link(matrix, None, precision), layout)

    back = backward()

    def of_factors() -> Any:
        return fast_chain._factor_gradients(made, chain, back, batch)

    parts = {
        "networks": networks,
        "emission forward": emission,
        "emission": emission_and_back,
        "tables": factors,
        "link": link,
        "recursion forward": forward,
        "recursion backward": backward,
        "gradients of tables": of_factors,
    }
    return {name: graph_ms(run) for name, run in parts.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path)
    parser.add_argument("--only", nargs="*")
    given = parser.parse_args()
    limits = rates(GPU)
    print(f"bf16 {limits['bf16']:.0f}, tf32 {limits['tf32']:.0f} TFLOP/s, copy {limits['copy']:.2f} TB/s")
    records = []
    for case in CASES:
        if given.only and case.name not in given.only:
            continue
        record = {**asdict(case), "gflop": case.gflop, **errors(case)}
        torch.cuda.empty_cache()
        worst = max(record["gradient_error"].values())
        line = f"{case.name:28} log p off by {record['log_p_error']:.1e}, gradients {worst:.1e}"
        if case.timed and "wrong" not in record:
            record |= measure(case)
            line += f"; graph {record['graph_ms']:.2f} ms, eager {record['eager_ms']:.1f}, {record['peak_gb']:.2f} GB, "
            line += f"{case.gflop:.0f} GFLOP\n    " + ", ".join(f"{k} {v:.2f}" for k, v in record["phases_ms"].items())
        print(line, flush=True)
        records.append(record)
        torch.cuda.empty_cache()
    if given.output:
        whole = {**circumstances(GPU), "limits": limits, "cases": records}
        given.output.write_text(json.dumps(whole, indent=1) + "\n")
    if any("wrong" in record for record in records):
        raise SystemExit("some results are wrong")


if __name__ == "__main__":
    main()
