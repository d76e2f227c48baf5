"""Kernels run on the GPU where there is one, else as Python under Triton's interpreter.

Triton asks for its switch when a kernel is defined, so it is set before anything imports one. Where there is a GPU
every test here is one of the GPU: `pytest -m gpu` holds each kernel against its twin there.
"""

import os

import pytest
import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"


def pytest_itemcollected(item: pytest.Item) -> None:
    """Asked for the tests of this folder alone, before `-m` chooses among them."""
    if torch.cuda.is_available():
        item.add_marker(pytest.mark.gpu)
