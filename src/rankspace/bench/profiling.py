"""What a stopwatch does not tell: the most memory a program holds at once, and how long it spends in each phase."""

import os
import sys
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal

import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from rankspace.devices import is_gpu

Phase = Literal["products", "elementwise", "sums"]  # sums of elementwise products: a part of what is elementwise
PRODUCTS = ("aten::mm", "aten::bmm", "aten::addmm", "aten::baddbmm")
SUMS = ("aten::addcmul_",)


def peak_bytes(program: Callable[[], Any], device: torch.device) -> int:
    """Most bytes of tensors at once while the program runs, beyond those that were there before.

    On the CPU the profiler reports what the allocator of torch hands out and takes back, also inside operations, where
    the resident memory of the process would depend on what the C library keeps for later. On a GPU the caching
    allocator keeps this count itself.
    """
    if is_gpu(device):
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        program()
        torch.cuda.synchronize(device)
        return torch.cuda.max_memory_allocated(device) - before
    found = _profile(program, [ProfilerActivity.CPU], memory=True)
    changes = [event for event in found.profiler.kineto_results.events() if event.name() == "[memory]"]
    held = peak = 0
    for change in sorted(changes, key=lambda event: event.start_ns()):
        held += change.nbytes()
        peak = max(peak, held)
    return peak


def phase_milliseconds(program: Callable[[], Any], device: torch.device) -> dict[Phase, float]:
    """Time in matrix products, the rest of it, and in sums alone; on a GPU, the time of kernels."""
    if is_gpu(device):
        averages = _profile(program, [ProfilerActivity.CPU, ProfilerActivity.CUDA]).key_averages()
        times = {event.key: event.self_device_time_total / 1000 for event in averages}
        products, sums = (sum(times.get(name, 0.0) for name in names) for names in (PRODUCTS, SUMS))
        return {"products": products, "elementwise": sum(times.values()) - products, "sums": sums}
    begin, end = 0.0, 0.0

    def timed() -> None:
        nonlocal begin, end
        begin = time.perf_counter()
        program()
        end = time.perf_counter()

    events = _profile(timed, [ProfilerActivity.CPU]).profiler.kineto_results.events()
    products, sums = (sum(e.duration_ns() for e in events if e.name() in names) / 1e6 for names in (PRODUCTS, SUMS))
    return {"products": products, "elementwise": 1000 * (end - begin) - products, "sums": sums}


def _profile(program: Callable[[], Any], activities: list[ProfilerActivity], memory: bool = False) -> Any:
    with _silent_stderr(), profile(activities=activities, profile_memory=memory, acc_events=True) as found:
        program()
    return found


@contextmanager
def _silent_stderr() -> Iterator[None]:
    """The profiler's libraries write lines of their own to stderr, past Python."""
    sys.stderr.flush()
    kept = os.dup(2)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


class PeakBytes(TorchDispatchMode):
    """Bytes of tensors that operations within made and that are still there: now, and the most there were at once.

    What an operation holds inside is not seen. Works on any device, one without numbers ("meta") too.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.now = self.peak = 0
        self._known: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(found):
            if isinstance(leaf, Tensor):
                self._enter(leaf.untyped_storage())
        return found

    def _enter(self, storage: torch.UntypedStorage) -> None:
        key, size = storage._cdata, storage.nbytes()
        if key in self._known:
            return
        self._known.add(key)
        self.now += size
        self.peak = max(self.peak, self.now)
        weakref.finalize(storage, self._leave, key, size)

    def _leave(self, key: int, size: int) -> None:
        self._known.discard(key)
        self.now -= size
