"""Times on a device: programs recorded as one CUDA graph, medians between device events, and the rates it can reach.

On a CPU, where tests run the same code, a program is called as it is and a stopwatch takes the time.
"""

import gc
import itertools
import statistics
import time
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Literal

import torch

from rankspace.devices import is_gpu
from rankspace.inference.links import Precision, tf32

Rate = Literal["fp32", "tf32", "bf16", "copy"]
Program = Callable[[], Any]


def captured(program: Program, device: torch.device) -> Program:
    """The program as one graph, to be replayed; it runs twice before, on the stream that records it. A replay gives
    what the program gave when it was recorded: tensors, that each replay fills anew."""
    if not is_gpu(device):
        program()
        return program
    for _ in range(2):
        launched(program, device)
    torch.cuda.synchronize(device)
    torch.cuda.reset_peak_memory_stats(device)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=_stream(device)):
        found = program()

    def replay() -> Any:
        graph.replay()
        return found

    return replay


def launched(program: Program, device: torch.device) -> Any:
    """What a program gives, launch by launch, on the stream that records graphs."""
    if not is_gpu(device):
        return program()
    stream = _stream(device)
    stream.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(stream):
        found = program()
    torch.cuda.current_stream(device).wait_stream(stream)
    return found


@lru_cache(maxsize=8)
def _stream(device: torch.device) -> torch.cuda.Stream:
    """One for all graphs: the library of products keeps room of its own for each stream it has worked on."""
    return torch.cuda.Stream(device)


def median_ms(program: Program, device: torch.device, rounds: int = 20) -> float:
    """The median time of some runs, after one that is not counted."""
    program()
    return statistics.median(_once_ms(program, device) for _ in range(rounds))


def _once_ms(program: Program, device: torch.device) -> float:
    if not is_gpu(device):
        begin = time.perf_counter()
        program()
        return 1000 * (time.perf_counter() - begin)
    start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    program()
    stop.record()
    stop.synchronize()
    return float(start.elapsed_time(stop))


class Marks:
    """Places among the launches of a device, and when it came to each. Setting one does not wait for it."""

    def __init__(self, device: torch.device) -> None:
        self._on_device = is_gpu(device)
        self._marks: list[Any] = []

    def set(self) -> None:
        if not self._on_device:
            self._marks.append(time.perf_counter())
            return
        self._marks.append(torch.cuda.Event(enable_timing=True))
        self._marks[-1].record()

    def __len__(self) -> int:
        return len(self._marks)

    def seconds(self) -> list[float]:
        """Since the first, of each."""
        if not self._on_device:
            return [mark - self._marks[0] for mark in self._marks]
        torch.cuda.synchronize()
        steps = (before.elapsed_time(mark) / 1000 for before, mark in itertools.pairwise(self._marks))
        return list(itertools.accumulate(steps, initial=0.0))  # elapsed_time is in float32


def wait_for(device: torch.device) -> None:
    if is_gpu(device):
        torch.cuda.synchronize(device)


def peak_gb(device: torch.device) -> float | None:
    """The most that tensors held at once, all that is on the device included, since a graph was last recorded or
    `forget_peak` called; None on a CPU."""
    if not is_gpu(device):
        return None
    torch.cuda.synchronize(device)
    return torch.cuda.max_memory_allocated(device) / 1e9


def forget_peak(device: torch.device) -> None:
    if is_gpu(device):
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)


def release(device: torch.device) -> None:
    """Gives back what is no longer referred to."""
    gc.collect()
    if is_gpu(device):
        torch.cuda.synchronize(device)
        torch.cuda.empty_cache()


def rates(device: torch.device, size: int = 8192, rounds: int = 20) -> dict[Rate, float]:
    """TFLOP/s of square products in three precisions, and TB/s that a copy reads and writes."""
    one, other = (torch.randn(size, size, device=device) for _ in range(2))
    found: dict[Rate, float] = {}
    with tf32(device, allowed=False):
        found["fp32"] = 2 * size**3 / median_ms(lambda: one @ other, device, rounds) / 1e9
    with tf32(device, allowed=True):
        found["tf32"] = 2 * size**3 / median_ms(lambda: one @ other, device, rounds) / 1e9
    rounded = one.bfloat16(), other.bfloat16()
    found["bf16"] = 2 * size**3 / median_ms(lambda: rounded[0] @ rounded[1], device, rounds) / 1e9
    source = torch.randn(8 * size**2, device=device)
    target = torch.empty_like(source)
    found["copy"] = 2 * source.nbytes / median_ms(lambda: target.copy_(source), device, rounds) / 1e9
    return found


def product_rate(precision: Precision, found: dict[Rate, float]) -> float:
    """TFLOP/s that products of a precision can reach: float32 accuracy also comes of three tf32 products."""
    if precision == "highest":
        return max(found["fp32"], found["tf32"] / 3)
    return found["tf32" if precision == "high" else "bf16"]
