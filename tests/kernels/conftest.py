"""Kernels run on the GPU where there is one, else as Python under Triton's interpreter.

Triton asks for its switch when a kernel is defined, so it is set before anything imports one. Where there is a GPU
every test here is one of the GPU: `pytest -m gpu` holds each kernel against its twin there.
"""

import os
from typing import Any

import pytest
import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"


def pytest_itemcollected(item: pytest.Item) -> None:
    """Asked for the tests of this folder alone, before `-m` chooses among them."""
    if torch.cuda.is_available():
        item.add_marker(pytest.mark.gpu)


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
