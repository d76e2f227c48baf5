"""Trees with a full rule tensor by Triton kernels on a GPU: accuracy at size, the same bits twice, and CUDA graphs."""

from typing import Any

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton", reason="needs triton")

from kernels.dense_cases import VOCABULARY, Outcome, by_kernels, by_torch, random_tables, random_words
from rankspace.inference.links import Precision
from rankspace.models import create

pytestmark = pytest.mark.gpu
GPU = torch.device("cuda")
RAGGED = (40, 2, 17, 1, 33, 9, 3, 40)


def accurate(found: Outcome, expected: Outcome) -> None:
    kept = ~found.lost & expected.log_z.isfinite()
    tolerance = (1e-6 * expected.log_z.abs()).clamp(min=1e-4)
    assert bool(((found.log_z - expected.log_z).abs() <= tolerance)[kept].all())
    assert torch.equal(found.log_z.isfinite(), expected.log_z.isfinite())


@pytest.mark.parametrize("scale", [1.0, 6.0])
@pytest.mark.parametrize("lengths", [(40,) * 16, RAGGED, (2, 3)])
@pytest.mark.parametrize("sizes", [(30, 60), (7, 65), (45, 3)])
def test_float32_is_as_accurate_as_promised(scale: float, lengths: tuple[int, ...], sizes: tuple[int, int]) -> None:
    tables, words = random_tables(*sizes, scale), random_words(len(lengths), max(lengths))
    layout = (max(lengths),) * len(lengths)
    found, expected = by_kernels(tables, words, layout, lengths), by_torch(tables, words, lengths)
    assert not bool(found.lost.any())
    accurate(found, expected)
    for one, other in zip(found.gradients, expected.gradients, strict=True):
        assert float((one - other).norm() / other.norm()) <= 1e-4


def test_peaked_parameters_are_right_or_lost() -> None:
    tables, words = random_tables(30, 60, 20.0), random_words(len(RAGGED), 40)
    found, expected = by_kernels(tables, words, (40,) * len(RAGGED), RAGGED), by_torch(tables, words, RAGGED)
    accurate(found, expected)
    assert all(bool(gradient.isfinite().all()) for gradient in found.gradients)


@pytest.mark.parametrize(("precision", "tolerance"), [("high", 2e-2), ("medium", 2e-1)])
def test_lower_precisions(precision: Precision, tolerance: float) -> None:
    """Operands of products are rounded to 11 and 8 bits; the errors of some 40 products in a row add up."""
    tables, words = random_tables(30, 60), random_words(4, 40)
    found, expected = by_kernels(tables, words, (40,) * 4, None, precision), by_torch(tables, words, (40,) * 4)
    assert float((found.log_z - expected.log_z).abs().max()) <= tolerance
    for one, other in zip(found.gradients, expected.gradients, strict=True):
        assert float((one - other).norm() / other.norm()) <= tolerance


@pytest.mark.parametrize("precision", ["highest", "high", "medium"])
def test_the_same_bits_twice(precision: Precision) -> None:
    tables, words = random_tables(30, 60), random_words(len(RAGGED), 40)
    one, other = (by_kernels(tables, words, (40,) * len(RAGGED), RAGGED, precision) for _ in range(2))
    assert torch.equal(one.log_z, other.log_z)
    assert all(torch.equal(x, y) for x, y in zip(one.gradients, other.gradients, strict=True))


def test_a_sentence_of_150_words() -> None:
    tables, words = random_tables(30, 60), random_words(1, 150)
    accurate(by_kernels(tables, words, (150,)), by_torch(tables, words, (150,)))


@pytest.mark.parametrize(("precision", "tolerance"), [("highest", 1e-4), ("high", 2e-2)])
def test_a_head_that_is_multiplied_out(precision: Precision, tolerance: float) -> None:
    """At the sizes that the model has by itself."""
    torch.manual_seed(0)
    model, words = create("l-pcfg", vocabulary=VOCABULARY).to(GPU), random_words(len(RAGGED), 40)
    model.options = {"precision": precision, "backend": "triton"}
    found = model.log_prob(words, RAGGED)
    model.options = {"backend": "torch"}
    expected = model.double().log_prob(words, RAGGED)
    assert float((found - expected)[expected.isfinite()].abs().max().detach()) <= tolerance


@pytest.mark.parametrize("sizes", [{"name": "n-pcfg"}, {"name": "l-pcfg", "rank": 13}], ids=lambda sizes: sizes["name"])
@pytest.mark.parametrize("precision", ["highest", "high", "medium"])
def test_a_captured_step_gives_the_same_bits(precision: Precision, sizes: dict[str, Any]) -> None:
    """Of other words and other lengths than it was captured with."""
    torch.manual_seed(0)
    model = create(**sizes, vocabulary=VOCABULARY, nonterminals=30, preterminals=60, size=64).to(GPU)
    model.options = {"precision": precision}
    words, lengths = random_words(6, 21), torch.tensor([21, 21, 13, 5, 2, 2], device=GPU)
    seed = torch.zeros((), dtype=torch.int64, device=GPU)

    def run() -> tuple[Tensor, ...]:
        model.zero_grad(set_to_none=False)
        found, lost = model.padded_log_prob(words, lengths, seed)
        (-found.mean()).backward()
        return found.detach(), lost

    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = run()
    words.copy_(random_words(6, 21, seed=2))
    lengths.copy_(torch.tensor([3, 20, 2, 21, 7, 4]))
    graph.replay()
    torch.cuda.synchronize()
    of_graph = [weight.grad.clone() for weight in model.parameters() if weight.grad is not None]
    assert not bool(captured[1].any())
    assert all(torch.equal(one, other) for one, other in zip(captured, run(), strict=True))
    again = [weight.grad for weight in model.parameters() if weight.grad is not None]
    assert len(of_graph) == len(list(model.parameters()))
    assert all(torch.equal(one, other) for one, other in zip(of_graph, again, strict=True))
