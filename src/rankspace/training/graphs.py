"""Launches that are recorded once and sent as a whole, and what the host learns of them without waiting for the rest.

On a CPU, where tests run the same code, programs are called as they are.
"""

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

Program = Callable[[], Any]


class Graphs:
    """Graphs that share their memory, recorded on a stream of their own."""

    def __init__(self, device: torch.device) -> None:
        self._device, self._captures = device, device.type == "cuda"
        self._pool: Any = torch.cuda.graph_pool_handle() if self._captures else None
        self._stream: Any = torch.cuda.Stream(device) if self._captures else None

    def beside(self, program: Program) -> None:
        """Runs a program on the stream that graphs are recorded on, which readies what it needs."""
        if not self._captures:
            program()
            return
        self._stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(self._stream):
            program()
        torch.cuda.current_stream(self._device).wait_stream(self._stream)

    def recorded(self, program: Program) -> Program:
        """Sends the launches of a program whenever it is called. The program itself is not run."""
        if not self._captures:
            return program
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool, stream=self._stream):
            program()
        return graph.replay


class Flag:
    """A number of the device as it was at a place among the launches; asking for it waits for that place alone."""

    def __init__(self, device: torch.device) -> None:
        self._captures = device.type == "cuda"
        self._number = torch.zeros((), pin_memory=self._captures)
        self._event: Any = torch.cuda.Event() if self._captures else None

    def take(self, number: Float[Tensor, ""]) -> None:
        """As it is when the device comes here."""
        self._number.copy_(number, non_blocking=True)
        if self._captures:
            self._event.record()

    @property
    def is_set(self) -> bool:
        """Whether it was not 0."""
        if self._captures:
            self._event.synchronize()
        return bool(self._number)
