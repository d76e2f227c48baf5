"""What kernels read and write under Triton's interpreter, by the addresses of their loads and stores."""

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np
from triton.runtime.interpreter import InterpretedFunction, InterpreterBuilder

Place = tuple[str, int]  # a load or a store, of numbers of so many bytes


class Traffic:
    """Of each kernel that is launched: its launches and programs, the bytes of each number once for a launch, and once
    for each program of it. Atomic operations are left out."""

    def __init__(self) -> None:
        self.launches: dict[str, int] = defaultdict(int)
        self.programs: dict[str, int] = defaultdict(int)
        self.once: dict[str, int] = defaultdict(int)
        self.by_program: dict[str, int] = defaultdict(int)
        self._kernel = ""
        self._program: dict[Place, list[Any]] = defaultdict(list)
        self._launch: dict[Place, list[Any]] = defaultdict(list)

    def note(self, kind: str, pointers: Any, mask: Any) -> None:
        addresses = np.asarray(pointers.data)
        wanted = np.broadcast_to(np.asarray(mask.data, dtype=bool), addresses.shape)
        size = max(pointers.get_element_ty().primitive_bitwidth // 8, 1)
        self._program[kind, size].append(addresses[wanted])

    def end_program(self) -> None:
        self.programs[self._kernel] += bool(self._program)
        for place, found in self._program.items():
            distinct = np.unique(np.concatenate(found))
            self.by_program[self._kernel] += distinct.size * place[1]
            self._launch[place].append(distinct)
        self._program.clear()

    def begin_launch(self, kernel: str) -> None:
        self._kernel = kernel
        self.launches[kernel] += 1

    def end_launch(self) -> None:
        self.end_program()
        for (_, size), found in self._launch.items():
            self.once[self._kernel] += np.unique(np.concatenate(found)).size * size
        self._launch.clear()


@contextmanager
def traffic() -> Iterator[Traffic]:
    """What is launched within."""
    found = Traffic()
    load, store = InterpreterBuilder.create_masked_load, InterpreterBuilder.create_masked_store
    turn, run = InterpreterBuilder.set_grid_idx, InterpretedFunction.run

    def loading(self: Any, pointers: Any, mask: Any, *more: Any) -> Any:
        found.note("load", pointers, mask)
        return load(self, pointers, mask, *more)

    def storing(self: Any, pointers: Any, value: Any, mask: Any, *more: Any) -> Any:
        found.note("store", pointers, mask)
        return store(self, pointers, value, mask, *more)

    def turning(self: Any, *place: Any) -> Any:
        found.end_program()
        return turn(self, *place)

    def running(self: Any, *given: Any, **named: Any) -> Any:
        found.begin_launch(self.fn.__name__)
        result = run(self, *given, **named)
        found.end_launch()
        return result

    builder = patch.multiple(
        InterpreterBuilder, create_masked_load=loading, create_masked_store=storing, set_grid_idx=turning
    )
    with builder, patch.object(InterpretedFunction, "run", running):
        yield found
