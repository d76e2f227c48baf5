"""What each kernel takes of a training step, and which fraction of its limit that is.

    python benchmarks/kernels/step_kernels.py [--rows NAME ...] [--output FILE]

The steps are those of `rankspace bench gpu`, in training mode, launched from Python under torch's profiler. A kernel's
limit is the longer of two times: that of its bytes at the rate of a copy, and that of its flops at the rate of
products, both measured in the same run. `kernel_work.py` has them by formulas; of the functions of `WHOLE_TABLES` the
bytes are all that they are given and give. Above 100 % a cache served some. Far below are kernels that take no longer
than their launches do, and those of which many wait for each other: sums over splits, steps of a chain
(`tree_tiles.py`, `rank_hmm_step.py`). Products by torch are one row, with the flops of the model's products but for
those that our kernels do.
"""

import argparse
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from kernel_work import Work, work_of
from torch.utils._pytree import tree_leaves

from rankspace.bench.device_clock import Rate, product_rate, rates, release
from rankspace.bench.gpu_inputs import Sentences, new_model
from rankspace.bench.gpu_rows import ROWS, Row
from rankspace.bench.gpu_timing import training_step
from rankspace.bench.gpu_work import step_flops
from rankspace.bench.measurement import circumstances
from rankspace.kernels import chain_tall, halves, rectifying
from rankspace.training.machine import matmul_precision

GPU = torch.device("cuda")
STEPS = ("rank-pcfg", "rank-pcfg-highest", "simple-pcfg", "rank-hmm-32768", "rank-hmm-highest", "lhmm", "n-pcfg")
LEAST = 2e-3  # milliseconds: of kernels that are not ours, what is recorded
LONGEST = 90  # letters of a kernel's name that are kept: torch's have hundreds
WHOLE_TABLES = {  # kernels whose functions read all they are given and write all they give
    "_plus_rectified": (rectifying, "plus_rectified"),
    "_passed_back": (rectifying, "passed_back"),
    "_halves": (halves, "halves"),
    "_add_up": (chain_tall, "add_up"),
    "_product_in_shares": (chain_tall, "product_in_shares"),
}


def bytes_of(tables: Iterable[torch.Tensor]) -> int:
    """Of tables that may be parts of each other from the beginning: of these the larger."""
    sizes: Counter[int] = Counter()
    for each in tables:
        sizes[each.data_ptr()] = max(sizes[each.data_ptr()], each.nbytes)
    return sizes.total()


@contextmanager
def counted_bytes() -> Iterator[Counter[str]]:
    """What the functions of `WHOLE_TABLES` read and write within, by kernel."""
    found: Counter[str] = Counter()

    def counting(kernel: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def run(*given: Any) -> Any:
            result = function(*given)
            found[kernel] += bytes_of(each for each in tree_leaves((given, result)) if isinstance(each, torch.Tensor))
            return result

        return run

    with ExitStack() as stack:
        for kernel, (module, name) in WHOLE_TABLES.items():
            stack.enter_context(patch.object(module, name, counting(kernel, getattr(module, name))))
        yield found


def kernel_times(row: Row) -> tuple[dict[str, tuple[float, int]], Counter[str]]:
    """Milliseconds and launches of each kernel of a step, and counted bytes, by name."""
    with matmul_precision(row.precision):
        step = training_step(new_model(row, GPU).train(), Sentences.of(row, GPU))
        for _ in range(2):
            step()
        with counted_bytes() as counted:
            step()
        torch.cuda.synchronize()
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
            step()
            torch.cuda.synchronize()
    found: dict[str, tuple[float, int]] = defaultdict(lambda: (0.0, 0))
    for event in profile.events():
        if event.device_type == torch.autograd.DeviceType.CUDA:
            time, count = found[event.name]
            found[event.name] = time + event.device_time / 1e3, count + 1
    return dict(found), counted


def is_own(kernel: str) -> bool:
    """Whether it is one of ours: their names begin with a line."""
    return kernel.startswith("_")


def work_with(row: Row, counted: Mapping[str, int]) -> dict[str, Work]:
    """By formulas, with bytes that were counted."""
    work = work_of(row)
    return work | {name: work.get(name, Work(0))._replace(bytes=counted[name]) for name in counted}


def share(
    kernel: str, milliseconds: float, launches: int, work: Work | None, found: dict[Rate, float]
) -> dict[str, Any]:
    """What is recorded of a kernel; nothing of work that is not known."""
    times = {} if work is None else work.milliseconds(found)
    bound = max(times, key=times.__getitem__) if times else None
    return {
        "kernel": kernel[:LONGEST],
        "milliseconds": milliseconds,
        "launches": launches,
        "megabytes": None if work is None else work.bytes / 1e6,
        "gflop": None if work is None else work.flops / 1e9,
        "bound": bound,
        "of_limit": times[bound] / milliseconds if bound else None,
    }


def shares(row: Row, found: dict[Rate, float]) -> list[dict[str, Any]]:
    """The kernels of a step, longest first."""
    times, counted = kernel_times(row)
    work = work_with(row, counted)
    return [
        share(name, time, count, work.get(name), found)
        for name, (time, count) in sorted(times.items(), key=lambda each: -each[1][0])
        if is_own(name) or time >= LEAST
    ]


def products(row: Row, found: dict[Rate, float]) -> dict[str, float]:
    """Flops of the model's products that are left to torch, and TFLOP/s that products of its precision can reach."""
    own = sum(work.flops for work in work_of(row).values() if work.is_product)
    return {"gflop": (step_flops(row) - own) / 1e9, "tflops": product_rate(row.precision, found)}


def show(row: Row, parts: list[dict[str, Any]]) -> None:
    print(f"{row.name}, {row.precision}", flush=True)
    for found in parts:
        work = ""
        if found["bound"]:
            work = f"{found['megabytes']:9.1f} MB {found['gflop']:8.2f} GFLOP {found['of_limit']:5.0%} {found['bound']}"
        print(f"  {found['milliseconds']:7.3f} ms x{found['launches']:4d} {work:48} {found['kernel']}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", nargs="+", default=list(STEPS))
    parser.add_argument("--output", type=Path)
    given = parser.parse_args()
    limits, chosen = rates(GPU), [row for row in ROWS if row.name in given.rows]
    steps: dict[str, list[dict[str, Any]]] = {}
    for row in chosen:
        steps[row.name] = shares(row, limits)
        show(row, steps[row.name])
        release(GPU)
    if given.output:
        record = {**circumstances(GPU), "limits": limits, "steps": steps}
        record["products"] = {row.name: products(row, limits) for row in chosen}
        given.output.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
