"""How exactly torch multiplies matrices of float32: a setting of the whole process, which is changed for a while and
then given back as the user had it.

Since 2.9 torch has `fp32_precision`, one for each kind of operation, and others above it that it goes by where it has
none of its own. Once a user has set one of these, the older functions may raise, and are not asked. Where torch is
older there are these alone.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any, NamedTuple

import torch

BACKENDS: Any = torch.backends  # whose settings are made as it is imported
HAS_SETTINGS = hasattr(BACKENDS.cuda.matmul, "fp32_precision")
EXACT, ROUNDED = "ieee", "tf32"  # operands in float32 as they are; cut to the bits of tf32


@contextmanager
def multiplying_in(precision: str) -> Iterator[None]:
    """Within, torch multiplies matrices in a precision. Products on a CPU are not rounded in any: some could be, to
    bfloat16, and rows of a table would sum to one within thousandths only."""
    with ExitStack() as changes:
        changes.enter_context(multiplying_on_gpu(precision != "highest"))
        if HAS_SETTINGS:
            changes.enter_context(_Setting(BACKENDS.mkldnn.matmul, (BACKENDS,)).changed_to(EXACT))
        yield


def multiplying_on_gpu(rounded: bool) -> AbstractContextManager[None]:
    """Within, products on a GPU round their operands to tf32, or do not."""
    if not HAS_SETTINGS:
        return _older("high" if rounded else "highest")
    on_gpu = _Setting(BACKENDS.cuda.matmul, (BACKENDS, BACKENDS.cudnn))
    return on_gpu.changed_to(ROUNDED if rounded else EXACT)


class _Setting(NamedTuple):
    """`fp32_precision` of a kind of operation, and those that it goes by where it has none, the topmost first."""

    of: Any
    above: tuple[Any, ...]

    @contextmanager
    def changed_to(self, value: str) -> Iterator[None]:
        found = self.of.fp32_precision
        if found == value or (found == "none" and value == EXACT):
            yield
            return
        own = self.own()
        self.of.fp32_precision = value
        try:
            yield
        finally:
            self.of.fp32_precision = own

    def own(self) -> str:
        """What is set here itself; torch tells what is gone by. If that is what stands above, it is seen by a change
        there whether it comes from there."""
        found: str = self.of.fp32_precision
        if found == "none" or not self.above or found != self.above[-1].fp32_precision:
            return found
        parent = _Setting(self.above[-1], self.above[:-1])
        kept = parent.own()
        parent.of.fp32_precision = ROUNDED if found == EXACT else EXACT
        follows = self.of.fp32_precision != found
        parent.of.fp32_precision = kept
        return "none" if follows else found


@contextmanager
def _older(precision: str) -> Iterator[None]:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(precision)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
