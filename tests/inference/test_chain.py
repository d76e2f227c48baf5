"""The chain engine below the distributions: against plain loops, and at the edges of the range of numbers."""

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor

from rankspace.inference.chain.forward import Recursion, run_forward
from rankspace.inference.chain.log_space import LogRecursion, backward_table, forward_table, log_product
from rankspace.inference.chain.log_z import log_z
from rankspace.inference.chain.paths import Draw, best, max_product
from rankspace.inference.exponentials import product_of_exponentials
from rankspace.inference.links import DenseLink, FactoredLink, Link
from rankspace.inference.logarithms import exact_log_product, log_sum_exp
from rankspace.inference.ragged import Ragged

EXACT = {"rtol": 1e-10, "atol": 1e-12}
LENGTHS = (3, 0, 4, 1, 2)
LAYOUT = Ragged(LENGTHS, torch.device("cpu"))


def weights(*shape: int, seed: int) -> Tensor:
    """Positive numbers of any scale: the engine does not ask for probabilities."""
    return (2 * torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)).exp()


def recursion(link: Link) -> Recursion:
    index = torch.tensor([0, 2, 1, 1, 0, 2, 2, 1, 0, 0])
    return Recursion(weights(4, seed=1), weights(3, 4, seed=2).log(), link, index, LAYOUT)


def in_log_space(chain: Recursion) -> LogRecursion:
    links = tuple(tensor.log() for tensor in reversed(chain.link.tensors))
    return LogRecursion(chain.start.log(), chain.log_words, links, chain.index, chain.layout)


def by_loops(chain: Recursion) -> list[Tensor]:
    """Z of each sentence, in the order of the caller."""
    matrix = chain.link.apply(torch.eye(4, dtype=torch.float64)).T
    found = []
    for sentence, length in enumerate(LENGTHS):
        vector = None
        for row in range(LAYOUT.num_tokens):
            if LAYOUT.sentence_at[LAYOUT.token_place[row]] == sentence:
                before = chain.start if vector is None else matrix @ vector
                vector = before * chain.log_words[chain.index[row]].exp()
        found.append(torch.ones((), dtype=torch.float64) if length == 0 else vector.sum())
    return found


LINKS = [DenseLink(weights(4, 4, seed=3)), FactoredLink(weights(4, 2, seed=4), weights(2, 4, seed=5))]


@pytest.mark.parametrize("link", LINKS, ids=["dense", "factored"])
def test_log_z_and_its_gradients(link: Link) -> None:
    chain = recursion(link)
    leaves = tuple(tensor.clone().requires_grad_() for tensor in chain.tensors)
    chain = chain.like(leaves)
    found, lost = log_z(chain, lambda: None)
    expected = torch.stack(by_loops(chain)).log()
    assert not lost.any()
    torch.testing.assert_close(found, expected, **EXACT)
    rates = torch.tensor([1.0, 5.0, -2.0, 0.0, 3.0], dtype=torch.float64)
    slopes = torch.autograd.grad((found * rates).sum(), leaves)
    for slope, other in zip(slopes, torch.autograd.grad((expected * rates).sum(), leaves), strict=True):
        torch.testing.assert_close(slope, other, **EXACT)


def test_product_of_exponentials_and_its_derivatives() -> None:
    """First derivatives by products in place, second ones by plain operations; a weight of zero has derivative zero."""
    logs = [weights(*shape, seed=seed).log() for seed, shape in enumerate([(2, 5), (1, 5), (5, 3)])]
    logs[0][1, 2] = -math.inf
    expected = torch.cat(logs[:2]).exp() @ logs[2].exp()
    torch.testing.assert_close(product_of_exponentials(logs[:2], logs[2], "highest"), expected, **EXACT)
    leaves = [log.where(log.isfinite(), 0).requires_grad_() for log in logs]

    def function(*tensors: Tensor) -> Tensor:
        return product_of_exponentials(tensors[:2], tensors[2], "highest")

    assert torch.autograd.gradcheck(function, leaves)
    assert torch.autograd.gradgradcheck(function, leaves)
    first = logs[0].requires_grad_()
    assert torch.autograd.grad(function(*logs).sum(), first)[0][1, 2] == 0


@pytest.mark.parametrize("link", LINKS, ids=["dense", "factored"])
def test_mantissas_are_normalised(link: Link) -> None:
    chain = recursion(link)
    vectors = run_forward(chain).vectors(chain)
    top = vectors.amax(1)
    assert ((top >= 0.5) & (top < 1)).all()


@pytest.mark.parametrize("product", [log_product, exact_log_product])
@pytest.mark.parametrize("link", LINKS, ids=["dense", "factored"])
def test_messages_in_log_space(link: Link, product: type) -> None:
    """Forward times backward is Z at every word, and both ways of multiplying agree."""
    chain = recursion(link)
    logs = in_log_space(chain)
    forward, backward = forward_table(logs, product), backward_table(logs, product)
    expected = torch.stack(by_loops(chain)).log()[LAYOUT.sentence_at[LAYOUT.token_place]]
    torch.testing.assert_close(log_sum_exp(forward + backward), expected, **EXACT)


def test_only_range_makes_a_sentence_lost() -> None:
    """Two states that keep to themselves: the second's share is 1e-3^n, which float32 holds up to about n = 10."""
    identity = DenseLink(torch.eye(2))
    log_words = torch.tensor([[1.0, 1e-3], [0.0, 1.0]]).log()

    def lost_after(length: int, positive: bool) -> bool:
        layout = Ragged((length + 1,), torch.device("cpu"))
        index = torch.tensor([0] * length + [1])
        link = DenseLink(torch.eye(2) + 1e-36) if positive else identity
        chain = Recursion(torch.tensor([0.5, 0.5]), log_words, link, index, layout)
        support = Recursion(torch.ones(2), torch.where(log_words > -math.inf, 0, log_words), identity, index, layout)
        return bool(log_z(chain, lambda: None if positive else support)[1])

    assert [lost_after(length, positive=False) for length in (5, 10, 12, 40)] == [False, False, True, True]
    assert [lost_after(length, positive=True) for length in (5, 10, 12, 40)] == [False, False, True, True]


def test_largest_sums() -> None:
    rows, matrix = weights(5, 4, seed=6).log(), weights(3, 4, seed=7).log()
    expected = (rows[:, None] + matrix).amax(-1)
    assert torch.equal(max_product(matrix)(rows), expected)
    assert torch.equal(best(rows), rows.argmax(-1))


def test_draws_never_have_weight_zero() -> None:
    log_weights = torch.tensor([-math.inf, 0.0, -math.inf, -800.0, math.log(3), -math.inf], dtype=torch.float64)
    draws = Draw(torch.Generator().manual_seed(0))(log_weights.expand(20_000, -1))
    counts = draws.bincount(minlength=6)
    assert counts[[0, 2, 3, 5]].tolist() == [0, 0, 0, 0]
    # 5000 expected, a standard deviation of 61
    assert abs(counts[1].item() - 5000) < 300


TEN_THOUSAND = """
import json, sys, time, torch
from rankspace.distributions import HMM, LHMM, RankSpaceHMM

def parameters(*shapes):
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(s, generator=generator, dtype=torch.float64).log_softmax(-1).float().double() for s in shapes]

words = torch.randint(9, (2, 10_000), generator=torch.Generator().manual_seed(1))
models = [
    (HMM, parameters((6,), (6, 6), (6, 9)), {}),
    (LHMM, parameters((6,), (6, 4), (4, 6), (6, 9)), {}),
    (RankSpaceHMM, parameters((6,), (6, 4), (4, 6), (4, 9)), {"order": "rank"}),
]
report = []
for kind, wide, options in models:
    results = []
    for dtype in (torch.float32, torch.float64):
        leaves = [value.to(dtype).requires_grad_() for value in wide]
        found = kind(*leaves, **options, validate=False).log_prob(words, [10_000, 123])
        slopes = torch.autograd.grad(found.sum(), leaves)
        results.append((found.detach().double(), torch.cat([slope.double().flatten() for slope in slopes])))
    (single, slopes), (double, others) = results
    exact = (double.tolist(), (single - double).abs().tolist(), ((slopes - others).abs().max() / others.max()).item())
    report.append(exact)
print(json.dumps(report))
"""


def test_ten_thousand_words() -> None:
    """float32 against float64, within the bounds of DESIGN, section 4; in a process without shape checks, for speed."""
    source = str(Path(__file__).parents[2] / "src")
    path = {"PYTHONPATH": source, "OMP_NUM_THREADS": "1", "PATH": ""}
    result = subprocess.run([sys.executable, "-c", TEN_THOUSAND], env=path, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    for totals, errors, slope_error in json.loads(result.stdout):
        assert totals[0] < -20_000
        for total, error in zip(totals, errors, strict=True):
            assert error <= max(1e-4, 1e-6 * abs(total))
        assert slope_error <= 1e-4
