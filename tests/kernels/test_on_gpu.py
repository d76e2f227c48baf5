"""The tree engine by Triton kernels on a GPU: accuracy at size, the same bits twice, and CUDA graphs."""

import pytest
import torch
from torch import Tensor

from rankspace.distributions import RankSpacePCFG
from rankspace.inference.links import DenseLink, Precision
from rankspace.inference.ragged import ragged
from rankspace.inference.tree.engine import log_z
from rankspace.inference.tree.inputs import Sentences, TreeInputs

pytestmark = pytest.mark.gpu
GPU = torch.device("cuda")
VOCABULARY = 50


def grammar(scale: float, precision: Precision, dtype: torch.dtype, backend: str) -> RankSpacePCFG:
    nonterminals, preterminals, rank = 450, 900, 100
    generator = torch.Generator().manual_seed(0)

    def rows(*shape: int) -> Tensor:
        logits = torch.randn(shape, generator=generator, dtype=torch.float64) * scale
        return logits.log_softmax(-1).to(dtype).to(GPU).requires_grad_()

    symbols = nonterminals + preterminals
    return RankSpacePCFG(
        rows(nonterminals),
        rows(nonterminals, rank),
        rows(rank, symbols),
        rows(rank, symbols),
        rows(preterminals, VOCABULARY),
        order="rank",
        precision=precision,
        backend=backend,
        validate=False,
    )


def outcome(made: RankSpacePCFG, lengths: list[int]) -> tuple[Tensor, list[Tensor]]:
    generator = torch.Generator().manual_seed(1)
    words = torch.randint(VOCABULARY, (len(lengths), max(lengths)), generator=generator).to(GPU)
    found = made.log_prob(words, lengths)
    return found.detach(), list(torch.autograd.grad(found.sum(), list(made.parameters.values())))


@pytest.mark.parametrize("scale", [1.0, 6.0, 20.0])
@pytest.mark.parametrize("lengths", [[40] * 4, [40, 2, 17, 3, 33, 9], [2, 3]])
def test_float32_is_as_accurate_as_promised(scale: float, lengths: list[int]) -> None:
    found, slopes = outcome(grammar(scale, "highest", torch.float32, "triton"), lengths)
    expected, true_slopes = outcome(grammar(scale, "highest", torch.float64, "torch"), lengths)
    tolerance = (1e-6 * expected.abs()).clamp(min=1e-4)
    assert bool(((found - expected).abs() <= tolerance).all())
    for one, other in zip(slopes, true_slopes, strict=True):
        assert float((one - other).norm() / other.norm()) <= 1e-4


@pytest.mark.parametrize(("precision", "tolerance"), [("high", 2e-2), ("medium", 2e-1)])
def test_lower_precisions(precision: Precision, tolerance: float) -> None:
    """Operands of products are rounded to 11 and 8 bits; the errors of some 40 products in a row add up."""
    found, slopes = outcome(grammar(1.0, precision, torch.float32, "triton"), [40] * 4)
    expected, true_slopes = outcome(grammar(1.0, "highest", torch.float64, "torch"), [40] * 4)
    assert float((found - expected).abs().max()) <= tolerance
    for one, other in zip(slopes, true_slopes, strict=True):
        assert float((one - other).norm() / other.norm()) <= tolerance


@pytest.mark.parametrize("precision", ["highest", "high", "medium"])
def test_the_same_bits_twice(precision: Precision) -> None:
    lengths = [40, 40, 25, 12, 7, 2]
    one, other = (outcome(grammar(1.0, precision, torch.float32, "triton"), lengths) for _ in range(2))
    assert torch.equal(one[0], other[0])
    assert all(torch.equal(x, y) for x, y in zip(one[1], other[1], strict=True))


def test_a_sentence_of_200_words() -> None:
    found, slopes = outcome(grammar(1.0, "highest", torch.float32, "triton"), [200])
    expected, true_slopes = outcome(grammar(1.0, "highest", torch.float64, "torch"), [200])
    assert float((found - expected).abs().max()) <= 1e-6 * float(expected.abs().max())
    for one, other in zip(slopes, true_slopes, strict=True):
        assert float((one - other).norm() / other.norm()) <= 1e-4


@pytest.mark.parametrize("rank", [1, 37, 130])
@pytest.mark.parametrize("weighted", [False, True])
def test_a_captured_graph_gives_the_same_bits(rank: int, weighted: bool) -> None:
    """All launches, forward and backward, without a decision on the host; other words in the same graph."""
    lengths, generator = (21, 21, 13, 5, 2, 1), torch.Generator().manual_seed(0)
    tables = [torch.rand(shape, generator=generator).to(GPU) for shape in ((9, 2 * rank), (rank,), (2 * rank, rank))]
    inputs = TreeInputs(DenseLink(tables[2] / rank, "high"), tables[0], tables[1])
    token_word = torch.randint(9, (sum(lengths),), generator=generator).to(GPU)
    sentences = Sentences(ragged(lengths, GPU), token_word, torch.zeros(9, dtype=torch.float64, device=GPU))
    log_weights = torch.randn(sentences.layout.total_spans, generator=generator).to(GPU) if weighted else None

    def run() -> tuple[Tensor, ...]:
        leaves = [tensor.detach().requires_grad_() for tensor in inputs.tensors]
        weights = None if log_weights is None else log_weights.detach().requires_grad_()
        found, lost = log_z(inputs.like(tuple(leaves)), sentences, lambda: None, weights, kernels=True)
        wanted = [*leaves, *([] if weights is None else [weights])]
        return (found.detach(), lost, *torch.autograd.grad(found, wanted, torch.ones_like(found)))

    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = run()
    token_word.copy_(token_word.flip(0))
    graph.replay()
    torch.cuda.synchronize()
    assert not bool(captured[1].any())
    assert all(torch.equal(one, other) for one, other in zip(captured, run(), strict=True))


def test_a_number_that_is_none_is_not_swallowed() -> None:
    """The largest of NaN and a number is the number there: what is raised must ask otherwise."""
    made = grammar(1.0, "highest", torch.float32, "triton")
    with torch.no_grad():
        made.parameters["log_left"][3, 7] = float("nan")
    words = torch.randint(VOCABULARY, (2, 6), generator=torch.Generator().manual_seed(0)).to(GPU)
    assert bool(made.log_prob(words, [6, 4]).isnan().all())


@pytest.mark.parametrize("precision", ["highest", "high", "medium"])
def test_impossible_sentences(precision: Precision) -> None:
    """A word that nothing emits: log p is -inf, and what others have is what they have without it."""
    lengths, tolerance = [40, 2, 17, 3, 33, 9], {"highest": 1e-4, "high": 2e-2, "medium": 2e-1}[precision]
    words = 1 + torch.randint(VOCABULARY - 1, (6, 40), generator=torch.Generator().manual_seed(1)).to(GPU)
    words[1, 1] = words[4, 20] = words[5, 20] = 0  # the last one behind the end
    outcomes = []
    for given in ((precision, torch.float32, "triton"), ("highest", torch.float64, "torch")):
        made = grammar(1.0, *given)  # type: ignore[arg-type]
        with torch.no_grad():
            made.parameters["log_emission"][:, 0] = -torch.inf
        log_p = made.log_prob(words, lengths)
        assert (log_p == -torch.inf).tolist() == [False, True, False, False, True, False]
        possible = log_p[log_p > -torch.inf]
        outcomes.append((possible.detach(), torch.autograd.grad(possible.sum(), list(made.parameters.values()))))
    (found, slopes), (expected, true_slopes) = outcomes
    assert bool(((found - expected).abs() <= (1e-6 * expected.abs()).clamp(min=tolerance)).all())
    for one, other in zip(slopes, true_slopes, strict=True):
        assert float((one - other).norm() / other.norm()) <= tolerance
