"""A lack of memory in a backward pass by kernels is told as one in the call that it belongs to."""

from typing import Any

import pytest
import torch

pytest.importorskip("triton", reason="needs triton")

from kernels.charts import DEVICE
from rankspace.errors import NotEnoughMemoryError
from rankspace.models import create
from short_memory import NoMemoryInBackward

CHAIN: dict[str, Any] = {"vocabulary": 9, "states": 6, "size": 4}
TREE: dict[str, Any] = {"vocabulary": 9, "nonterminals": 3, "preterminals": 4, "size": 4}
MODELS = {
    "rank-hmm": ({**CHAIN, "rank": 3}, "rank 3"),
    "lhmm": ({**CHAIN, "rank": 3}, "6 states"),
    "hmm": (CHAIN, "6 states"),
    "rank-pcfg": ({**TREE, "rank": 3}, "rank 3"),
    "simple-pcfg": (TREE, "3 nonterminals"),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_lack_in_the_backward_pass_is_told_with_the_call(name: str) -> None:
    settings, sizes = MODELS[name]
    model = create(name, **settings).to(DEVICE)
    model.options = {"backend": "triton"}
    assert model.by_kernels(DEVICE)
    found = model.log_prob(torch.zeros(2, 4, dtype=torch.int64, device=DEVICE), [4, 3]).sum()
    with pytest.raises(NotEnoughMemoryError) as caught, NoMemoryInBackward():
        found.backward()
    said = str(caught.value)
    assert said.startswith(f"{name}.log_prob: not enough memory for 2 sentences of up to 4 words ({sizes}, float32): ")
    assert ", and 3.8 GB more could not be had; give fewer or shorter sentences at a time, or " in said
