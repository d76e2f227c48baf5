"""Launches that are recorded once and sent as a whole, and what the host learns of them without waiting for the rest.

On a CPU, where tests run the same code, programs are called as they are.
"""

import warnings
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from rankspace.devices import is_gpu
from rankspace.errors import NotEnoughMemoryError, is_lack_of_memory, replaced_by
from rankspace.training.random_state import device_state, set_device_state

Program = Callable[[], Any]


class Graphs:
    """Graphs that share their memory, recorded on a stream of their own.

    That memory serves nothing else. Where it leaves too little, for another graph or for what runs beside them, all
    graphs are dropped, and recorded again when they are asked for. What could not be recorded runs launch by launch,
    and is not tried again: it would drop the others each time.
    """

    def __init__(self, device: torch.device) -> None:
        self._device, self._captures = device, is_gpu(device)
        self._stream: Any = torch.cuda.Stream(device) if self._captures else None
        self._pool: Any = torch.cuda.graph_pool_handle() if self._captures else None
        self._programs: dict[Hashable, Program] = {}
        self._unrecorded = set[Hashable]()  # for lack of memory

    def records(self, name: Hashable) -> bool:
        """Whether what has this name is to be sent as a whole, and not run launch by launch."""
        return name not in self._unrecorded

    def send(self, name: Hashable, program: Program) -> None:
        """Sends the launches of a program, as they were recorded when the name was first used."""

        def record() -> None:
            self._programs[name] = self.recorded(program)

        if name in self._programs or self._has_memory_for(record, program):
            self._programs[name]()
        else:
            self._unrecorded.add(name)

    def beside(self, program: Program) -> None:
        """Runs a program launch by launch, on the stream that graphs are recorded on, which readies what it needs."""
        if not self._captures:
            program()
            return
        self._stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(self._stream):
            program()
        torch.cuda.current_stream(self._device).wait_stream(self._stream)

    def beside_or_alone(self, program: Program) -> None:
        """As `beside`, and once more without graphs where memory was too short. For programs that change nothing before
        they have all the memory they need; they draw the same again."""
        if self._programs:
            self._has_memory_for(lambda: self.beside(program), program)
        else:
            self.beside(program)

    def forget(self, name: Hashable) -> None:
        """What is sent by this name next is recorded again."""
        self._programs.pop(name, None)

    def drop(self) -> bool:
        """Gives the memory of the graphs back, for what runs elsewhere; whether there were any."""
        there_were = bool(self._programs)
        if there_were:
            self._drop_all()
        return there_were

    def _has_memory_for(self, attempt: Program, program: Program) -> bool:
        """Whether an attempt did not lack memory. After one that did, a program runs without graphs in its place."""
        random = device_state(self._device)
        lack = lack_in(attempt)
        if lack is None:
            return True
        try:
            self._drop_all()
            set_device_state(random, self._device)
            self.beside(program)
        except RuntimeError as error:  # if the lack was in a capture that torch could not end, this may be any
            raise error from lack
        return False

    def _drop_all(self) -> None:
        """Gives the memory of the graphs back, once the device has done with them."""
        if self._captures:
            torch.cuda.synchronize(self._device)
        self._programs.clear()
        if self._captures:
            self._pool = torch.cuda.graph_pool_handle()
            torch.cuda.empty_cache()

    def recorded(self, program: Program) -> Program:
        """Sends the launches of a program whenever it is called. The program itself is not run."""
        if not self._captures:
            return program
        graph = torch.cuda.CUDAGraph()
        with (
            _nothing_said_of_empty_graphs(),
            torch.cuda.stream(torch.cuda.current_stream(self._device)),  # torch stays on a capture that it cannot end
            torch.cuda.graph(graph, pool=self._pool, stream=self._stream),
        ):
            program()
        return graph.replay


@contextmanager
def _nothing_said_of_empty_graphs() -> Iterator[None]:
    """Within, torch does not warn of a graph without launches: an error before the first of them is told by itself."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The CUDA Graph is empty", UserWarning)
        yield


def lack_in(attempt: Program) -> BaseException | None:
    """The lack of memory in which an attempt ended, if it did, without the frames it came through: they hold tensors.
    Other errors pass."""
    try:
        attempt()
    except (MemoryError, RuntimeError, NotEnoughMemoryError) as error:
        if not is_lack_of_memory(error):
            raise
        found: BaseException | None = error
        while found is not None:
            found = replaced_by(found.with_traceback(None))
        return error
    return None


class Flag:
    """A number of the device as it was at a place among the launches; asking for it waits for that place alone."""

    def __init__(self, device: torch.device) -> None:
        self._device, self._captures = device, is_gpu(device)
        self._number = torch.zeros((), pin_memory=self._captures)
        self._event: Any = torch.cuda.Event() if self._captures else None

    def take(self, number: Float[Tensor, ""]) -> None:
        """As it is when the device comes here."""
        self._number.copy_(number, non_blocking=True)
        if self._captures:
            self._event.record(torch.cuda.current_stream(self._device))

    @property
    def is_set(self) -> bool:
        """Whether it was not 0."""
        if self._captures:
            self._event.synchronize()
        return bool(self._number)
