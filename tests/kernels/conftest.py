"""Kernels run on the GPU where there is one, else as Python under Triton's interpreter.

Triton asks for its switch when a kernel is defined, so it is set before anything imports one. Where there is a GPU
every test here is one of the GPU: `pytest -m gpu` holds each kernel against its twin there.
"""

import os
from typing import Any

import numpy as np
import pytest
import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"


def pytest_itemcollected(item: pytest.Item) -> None:
    """Asked for the tests of this folder alone, before `-m` chooses among them."""
    if torch.cuda.is_available():
        item.add_marker(pytest.mark.gpu)


@pytest.fixture(autouse=True)
def rounded_to_nearest(monkeypatch: pytest.MonkeyPatch) -> None:
    """bfloat16, as on a GPU and by torch; the interpreter cuts digits off, which makes what is rounded too small."""
    if torch.cuda.is_available():
        return
    from triton.language import bfloat16, float32
    from triton.runtime.interpreter import InterpreterBuilder, TensorHandle

    cast = InterpreterBuilder.cast_impl

    def rounding(self: Any, given: Any, wanted: Any) -> Any:
        if (given.dtype.scalar, wanted.scalar) != (float32, bfloat16):
            return cast(self, given, wanted)
        found = torch.from_numpy(np.ascontiguousarray(given.data)).bfloat16().view(torch.uint16)
        return TensorHandle(found.numpy(), bfloat16)

    monkeypatch.setattr(InterpreterBuilder, "cast_impl", rounding)


@pytest.fixture(autouse=True)
def masks_of_booleans(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the interpreter of Triton 3.9 demands; those before take masks of integers as well."""
    if torch.cuda.is_available():
        return
    from triton.runtime.interpreter import InterpreterBuilder

    load, store = InterpreterBuilder.create_masked_load, InterpreterBuilder.create_masked_store

    def checked(mask: Any) -> Any:
        assert mask.data.dtype == bool, "a mask of integers; only_if(mask, condition) gives booleans"
        return mask

    def loading(self: Any, pointers: Any, mask: Any, *more: Any) -> Any:
        return load(self, pointers, checked(mask), *more)

    def storing(self: Any, pointers: Any, value: Any, mask: Any, *more: Any) -> Any:
        return store(self, pointers, value, checked(mask), *more)

    monkeypatch.setattr(InterpreterBuilder, "create_masked_load", loading)
    monkeypatch.setattr(InterpreterBuilder, "create_masked_store", storing)
