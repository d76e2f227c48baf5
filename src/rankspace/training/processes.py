"""Several processes that train one model, as torchrun starts them; one process is the case with no others."""

import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch import distributed as dist

from rankspace.devices import is_gpu
from rankspace.errors import RankspaceError

Found = TypeVar("Found")
LETTING_GO = 0.5  # seconds


@dataclass(frozen=True)
class Processes:
    """This process among its kind. The first one (rank 0) writes and prints."""

    rank: int = 0
    world: int = 1
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))

    @property
    def is_first(self) -> bool:
        return self.rank == 0

    def total(self, numbers: Tensor) -> Tensor:
        """The sum over processes."""
        if self.world > 1:
            dist.all_reduce(numbers)
        return numbers

    def gathered(self, part: list[Any]) -> list[Any]:
        """The lists of all processes, one after the other."""
        if self.world == 1:
            return part
        parts: list[list[Any]] = [[] for _ in range(self.world)]
        dist.all_gather_object(parts, part)
        return [entry for each in parts for entry in each]

    def any(self, flag: bool) -> bool:
        """Whether it is so in any process."""
        if self.world == 1:
            return flag
        return bool(self.total(torch.tensor([float(flag)], device=self.device)).item() > 0)

    def same(self, tensors: Iterable[Tensor]) -> None:
        """Gives tensors the values they have in the first process."""
        if self.world > 1:
            for tensor in tensors:
                dist.broadcast(tensor, 0)

    def told(self, work: Callable[[], Found]) -> Found:
        """What the first process finds, in all of them; its RankspaceError is raised in all."""
        found: list[Any] = [self.by_first(work)]
        if self.world > 1:
            dist.broadcast_object_list(found, device=self.device)
        return found[0]  # type: ignore[no-any-return]

    def by_first(self, work: Callable[[], Found]) -> Found | None:
        """Has the first process do something while the others wait; its RankspaceError is raised in all."""
        result, message = None, ""
        if self.is_first:
            try:
                result = work()
            except RankspaceError as error:
                if self.world == 1:
                    raise
                message = str(error)
        if self.world > 1:
            messages = [message]
            dist.broadcast_object_list(messages, device=self.device)
            if messages[0]:
                raise RankspaceError(messages[0])
        return result


def chosen_device(name: str) -> torch.device:
    """auto is a GPU where torch sees one; cuda that of this process among those of its machine. Raises RankspaceError
    for a device that is not there."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError:
        raise RankspaceError(f"train: there is no device {name!r}; give auto, cpu or cuda.") from None
    return _gpu(device) if is_gpu(device) else device


def _gpu(device: torch.device) -> torch.device:
    """With its number."""
    num = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if not num:
        raise RankspaceError(f"train: --device is {device}, but torch sees no CUDA device; use --device cpu.")
    found = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0"))) if device.index is None else device
    if found.index < num:
        return found
    if device.index is None:
        raise RankspaceError(
            f"train: --device is cuda, but that of this process is {found} and the last that torch sees is "
            f"cuda:{num - 1}; start fewer processes, or use --device cpu."
        )
    raise RankspaceError(f"train: --device is {device}, but the last that torch sees is cuda:{num - 1}; give that.")


def join_processes(device_name: str) -> Processes:
    """This process as torchrun started it: nccl among GPUs, gloo among CPUs. On its own if it was started alone."""
    device, world = chosen_device(device_name), int(os.environ.get("WORLD_SIZE", "1"))
    if is_gpu(device):
        torch.cuda.set_device(device)
    if world == 1:
        return Processes(device=device)
    if not dist.is_initialized():
        dist.init_process_group("nccl" if is_gpu(device) else "gloo")
    return Processes(dist.get_rank(), world, device)


def is_first_process() -> bool:
    """Whether this process is the first of the group it has joined, or alone."""
    return not (dist.is_available() and dist.is_initialized()) or dist.get_rank() == 0


def leave_processes() -> None:
    """Ends the group, if there is one.

    DistributedDataParallel keeps gloo's threads alive after that (torch 2.13), and now and then a process that ends at
    once is aborted, upon which torchrun ends all others: a thread that lets go of the tensors of the last exchange may
    need the interpreter, which is being taken apart. So they get some time while there is one.
    """
    if dist.is_available() and dist.is_initialized():
        by_threads = dist.get_backend() == "gloo"
        dist.destroy_process_group()
        time.sleep(LETTING_GO if by_threads else 0)
