"""Memory that nothing was written to is not read: log p and gradients have the same bits whatever it holds."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton", reason="needs triton")

from kernels.charts import DEVICE
from rankspace.inference.links import Precision
from rankspace.models import Model, create

VOCABULARY = 11
GRAMMAR = {"nonterminals": 5, "preterminals": 7, "size": 8}
SMALL: dict[str, dict[str, Any]] = {
    "rank-pcfg": {**GRAMMAR, "rank": 6},
    "tn-pcfg": {**GRAMMAR, "rank": 6},
    "simple-pcfg": GRAMMAR,
    "n-pcfg": GRAMMAR,
    "l-pcfg": {**GRAMMAR, "rank": 3},
    "rank-hmm": {"states": 9, "rank": 4, "size": 8},
    "lhmm": {"states": 9, "rank": 4, "size": 8},
    "hmm": {"states": 9, "size": 8},
}
LARGE: dict[str, dict[str, Any]] = {
    "rank-pcfg": {"nonterminals": 90, "preterminals": 150, "rank": 37, "size": 32},
    "simple-pcfg": {"nonterminals": 37, "preterminals": 65, "size": 32},
    "n-pcfg": {"nonterminals": 7, "preterminals": 33, "size": 32},
    "l-pcfg": {"nonterminals": 37, "preterminals": 33, "rank": 7, "size": 32},
    "rank-hmm": {"states": 700, "rank": 131, "size": 32},
    "lhmm": {"states": 700, "rank": 131, "size": 32},
    "hmm": {"states": 331, "size": 32},
}


@contextmanager
def poisoned_memory() -> Iterator[None]:
    """What is allocated is NaN, or a number that is no row."""
    with pytest.MonkeyPatch.context() as patch:
        for owner, name in ((torch, "empty"), (torch, "empty_like"), (torch.Tensor, "new_empty")):
            patch.setattr(owner, name, _poisoned(getattr(owner, name)))
        yield


def _poisoned(allocate: Any) -> Any:
    def allocated(*given: Any, **options: Any) -> Tensor:
        found: Tensor = allocate(*given, **options)
        if found.is_floating_point() or found.dtype == torch.bool:
            return found.fill_(math.nan)
        return found.fill_(torch.iinfo(found.dtype).max // 2)

    return allocated


def new_model(name: str, sizes: dict[str, Any], precision: Precision) -> Model:
    torch.manual_seed(0)
    model = create(name, vocabulary=VOCABULARY, **sizes).to(DEVICE).eval()
    model.options = {"precision": precision}
    return model


def outcome(model: Model, lengths: tuple[int, ...]) -> list[Tensor]:
    """log p, and gradients of what is possible."""
    generator = torch.Generator().manual_seed(0)
    words = torch.randint(VOCABULARY, (len(lengths), max(lengths) + 1), generator=generator).to(DEVICE)
    seed = torch.zeros((), dtype=torch.int64, device=DEVICE)
    log_p, lost = model.padded_log_prob(words, torch.tensor(lengths, device=DEVICE), seed)
    assert not bool(lost.any())
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    found = torch.autograd.grad(log_p.where(log_p > -math.inf, 0).sum(), weights, allow_unused=True)
    return [log_p.detach(), *(each for each in found if each is not None)]


def same_whatever_memory_holds(model: Model, lengths: tuple[int, ...]) -> None:
    expected = outcome(model, lengths)
    with poisoned_memory():
        assert bool(torch.empty(1).isnan())
        found = outcome(model, lengths)
    for one, other in zip(found, expected, strict=True):
        assert not bool(one.isnan().any())
        assert torch.equal(one, other)


@pytest.mark.parametrize("name", SMALL)
def test_unwritten_memory_is_not_read(name: str) -> None:
    same_whatever_memory_holds(new_model(name, SMALL[name], "medium"), (2, 1))


@pytest.mark.gpu
@pytest.mark.parametrize("name", LARGE)
@pytest.mark.parametrize("precision", ["highest", "high", "medium"])
def test_unwritten_memory_is_not_read_at_some_size(name: str, precision: Precision) -> None:
    """Widths at which sums are begun ahead; lengths 1 and 2; the same bits twice, as memory is all that differs."""
    same_whatever_memory_holds(new_model(name, LARGE[name], precision), (21, 1, 2, 13))
