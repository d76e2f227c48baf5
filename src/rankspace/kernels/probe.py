"""The smallest kernel there is: whether anything can be compiled and launched at all."""

from typing import no_type_check

import torch
import triton
import triton.language as tl


def probe(device: torch.device) -> bool:
    """Whether a kernel runs on a device and does what it should. Raises whatever Triton raises where it cannot."""
    found = torch.zeros(1, dtype=torch.int32, device=device)
    _write_one[(1,)](found)
    return bool(found == 1)


@triton.jit
@no_type_check
def _write_one(found):
    tl.store(found, 1)
