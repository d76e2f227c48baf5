"""The semi-Markov recursion: values, gradients and slopes against enumeration, both kinds of link, and its range."""

import json
import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

import segmentations
from rankspace.inference.chain import semi_markov, semi_markov_backward
from rankspace.inference.chain.paths import best
from rankspace.inference.chain.segments import trace
from rankspace.inference.chain.semi_markov import SemiMarkov
from rankspace.inference.chain.semi_markov_log import LogSemiMarkov, chart_of, log_z_in_log_space, prefixes, steps
from rankspace.inference.links import DenseLink, FactoredLink
from rankspace.inference.logarithms import exact_log_product, log_sum_exp
from rankspace.inference.ragged import ragged

SENTENCES = [[0, 1, 3, 2, 0], [1], [], [2, 2, 1, 0], [3, 0]]
FLOAT64 = 1e-9


def parts(sentences: list[list[int]]) -> tuple[Tensor, Tensor, object]:
    """Distinct words, the word of each token, and the layout; padding is out of range."""
    lengths = tuple(map(len, sentences))
    padded = torch.full((len(sentences), max(lengths, default=0)), 10**9)
    for row, sentence in enumerate(sentences):
        padded[row, : len(sentence)] = torch.tensor(sentence, dtype=torch.int64)
    layout = ragged(lengths, torch.device("cpu"))
    found, index = torch.unique(layout.pack(padded), return_inverse=True)
    return found, index, layout


def chains(model: segmentations.Parameters, sentences: list[list[int]]) -> SemiMarkov:
    found, index, layout = parts(sentences)
    link = DenseLink(model["log_transition"].exp().T)
    words = model["log_emission"].T[found]
    return SemiMarkov(model["log_start"].exp(), words, link, index, layout, model["log_duration"])


def log_chains(model: segmentations.Parameters, sentences: list[list[int]]) -> LogSemiMarkov:
    found, index, layout = parts(sentences)
    words = model["log_emission"].T[found]
    return LogSemiMarkov(model["log_start"], words, (model["log_transition"].T,), index, layout, model["log_duration"])


def nothing_impossible() -> None:
    return None


def leaves(model: segmentations.Parameters) -> dict[str, Tensor]:
    return {name: value.clone().requires_grad_() for name, value in model.items()}


@pytest.mark.parametrize("longest", [1, 2, 3, 7])
def test_values_and_gradients_are_those_of_enumeration(longest: int) -> None:
    model = leaves(segmentations.parameters(3, longest, 4))
    weight = torch.tensor([1.0, -2.0, 3.0, 0.5, 0.0], dtype=torch.float64)
    found, lost = semi_markov_backward.log_z(chains(model, SENTENCES), nothing_impossible)
    in_logs = log_z_in_log_space(log_chains(model, SENTENCES))
    expected = torch.stack([segmentations.log_prob(model, s) for s in SENTENCES])
    assert not lost.any()
    torch.testing.assert_close(found, expected, atol=FLOAT64, rtol=0)
    torch.testing.assert_close(in_logs, expected, atol=FLOAT64, rtol=0)
    wanted = torch.autograd.grad((weight * expected).sum(), list(model.values()))
    for value in (found, in_logs):
        got = torch.autograd.grad((weight * value).sum(), list(model.values()))
        for mine, theirs in zip(got, wanted, strict=True):
            torch.testing.assert_close(mine, theirs, atol=FLOAT64, rtol=0)


def test_a_factored_link_is_the_dense_link_of_its_product() -> None:
    generator = torch.Generator().manual_seed(1)
    model = segmentations.parameters(4, 3, 4)
    to_rank, to_state = (
        torch.randn(shape, generator=generator, dtype=torch.float64).log_softmax(-1) for shape in ((4, 2), (2, 4))
    )
    model["log_transition"] = (to_rank.exp() @ to_state.exp()).log()
    dense = chains(model, SENTENCES)
    first, second = to_rank.exp().T.requires_grad_(), to_state.exp().T.requires_grad_()
    factored = replace(dense, link=FactoredLink(second, first))
    value, _ = semi_markov_backward.log_z(factored, nothing_impossible)
    torch.testing.assert_close(value, semi_markov_backward.log_z(dense, nothing_impossible)[0], atol=FLOAT64, rtol=0)
    got = torch.autograd.grad(value.sum(), [first, second])
    product = replace(dense, link=FactoredLink(second, first).multiplied())
    same, _ = semi_markov_backward.log_z(product, nothing_impossible)
    for mine, theirs in zip(got, torch.autograd.grad(same.sum(), [first, second]), strict=True):
        torch.testing.assert_close(mine, theirs, atol=FLOAT64, rtol=0)


def test_gradcheck() -> None:
    model = segmentations.parameters(2, 3, 3, seed=2)
    sentences = [[0, 2, 1, 1], [2], [1, 0]]
    names = list(model)

    def value(*tensors: Tensor) -> Tensor:
        parameters = dict(zip(names, tensors, strict=True))
        return semi_markov_backward.log_z(chains(parameters, sentences), nothing_impossible)[0]

    assert torch.autograd.gradcheck(value, tuple(leaves(model).values()))


def test_slopes_are_directional_derivatives() -> None:
    model, direction = segmentations.parameters(3, 3, 4), segmentations.parameters(3, 3, 4, seed=5)
    here, there = chains(model, SENTENCES), chains(direction, SENTENCES)
    chart = semi_markov.forward(here)
    along = {name: model[name].exp() * direction[name] for name in ("log_start", "log_transition")}
    moved = (direction["log_duration"], along["log_start"], there.log_words, along["log_transition"].T)
    possible = torch.ones(len(SENTENCES), dtype=torch.bool)
    found = semi_markov_backward.slopes(here, chart, here.like(moved), possible)
    tracked = leaves(model)
    for slope, value in zip(found, log_z_in_log_space(log_chains(tracked, SENTENCES)), strict=True):
        gradients = torch.autograd.grad(value, list(tracked.values()), retain_graph=True)
        expected = sum((g * d).sum() for g, d in zip(gradients, direction.values(), strict=True))
        torch.testing.assert_close(slope, expected, atol=FLOAT64, rtol=0)


def test_prefixes_count_segments_that_are_not_finished() -> None:
    model = segmentations.parameters(2, 3, 3)
    words = [0, 2, 1, 1]
    found = prefixes(log_chains(model, [words]), exact_log_product)
    expected = torch.stack([segmentations.prefix_log_prob(model, words[: n + 1]) for n in range(len(words))])
    torch.testing.assert_close(log_sum_exp(found.current), expected, atol=FLOAT64, rtol=0)
    torch.testing.assert_close(log_sum_exp(found.following), expected, atol=FLOAT64, rtol=0)
    for time in range(3):
        following = log_sum_exp(found.following[time] + model["log_emission"][:, words[time + 1]])
        torch.testing.assert_close(following, expected[time + 1], atol=FLOAT64, rtol=0)


def test_a_walk_ends_segments_where_its_states_do() -> None:
    model = segmentations.parameters(3, 2, 4)
    here = log_chains(model, SENTENCES)
    chart = chart_of(here, list(steps(here, exact_log_product)))
    places = torch.tensor([0, 1, 2])  # the sentences of 5, 4 and 2 words
    states, ends, log_joint = trace(here, chart, places, best, exact_log_product)
    assert log_joint.isfinite().all()
    for row, length in enumerate((5, 4, 2)):
        assert ends[row, length - 1]
        assert not ends[row, length:].any()
        changes = states[row, 1:length] != states[row, : length - 1]
        assert not (changes & ~ends[row, : length - 1]).any()


# Numbers out of range.


def narrow(model: segmentations.Parameters) -> dict[str, Tensor]:
    return {name: value.float() for name, value in model.items()}


def support_of(model: segmentations.Parameters, sentences: list[list[int]]) -> SemiMarkov:
    ones = {name: torch.where(value > -math.inf, 0.0, value) for name, value in model.items()}
    return chains(ones, sentences)


def test_what_is_too_low_for_the_dtype_is_lost() -> None:
    """a^40 b with states that never change: the one that emits b is out of range by then."""
    tiny = math.log(1e-3)
    model = narrow(
        {
            "log_start": torch.tensor([0.5, 0.5]).log(),
            "log_transition": torch.tensor([[0.0, -math.inf], [-math.inf, 0.0]]),
            "log_emission": torch.tensor([[math.log1p(-1e-3), tiny - 1e3], [tiny, math.log1p(-1e-3)]]),
            "log_duration": torch.tensor([[0.5, 0.5], [0.5, 0.5]]).log(),
        }
    )
    sentences = [[0] * 40 + [1], [0, 1], [0] * 5]
    _, lost = semi_markov_backward.log_z(chains(model, sentences), lambda: support_of(model, sentences))
    assert lost.tolist() == [True, False, False]


def test_true_zeros_are_not_lost() -> None:
    model = segmentations.parameters(3, 2, 3)
    model["log_transition"] = torch.eye(3, dtype=torch.float64).log()
    model["log_emission"] = torch.tensor([[1.0, 0, 0], [0, 1, 0], [0.5, 0.5, 0]], dtype=torch.float64).log()
    sentences = [[0, 0, 0], [0, 1], [2], [0, 1, 0, 1, 1]]
    model = leaves(model)
    found, lost = semi_markov_backward.log_z(chains(model, sentences), lambda: support_of(model, sentences))
    assert not lost.any()
    assert found[2] == -math.inf
    expected = log_z_in_log_space(log_chains(model, sentences))
    torch.testing.assert_close(found, expected, atol=FLOAT64, rtol=0)
    for grad in torch.autograd.grad(found[found > -math.inf].sum(), list(model.values())):
        assert grad.isfinite().all()


def test_a_state_that_is_never_entered_passes_nothing_on() -> None:
    """It would explain the words better, by more than numbers can hold."""
    model = {
        "log_start": torch.tensor([1.0, 0.0]).log(),
        "log_transition": torch.eye(2).log(),
        "log_emission": torch.tensor([[1e-3, 1 - 1e-3], [1.0, 0.0]]).log(),
        "log_duration": torch.tensor([[0.5, 0.5], [0.5, 0.5]]).log(),
    }
    model = leaves(model)
    sentences = [[0] * 60, [0, 0, 1]]
    found, lost = semi_markov_backward.log_z(chains(model, sentences), lambda: support_of(model, sentences))
    assert not lost.any()
    exact = log_z_in_log_space(log_chains(model, sentences))
    torch.testing.assert_close(found.float(), exact, atol=0, rtol=1e-5)
    pairs = zip(*(torch.autograd.grad(value.sum(), list(model.values())) for value in (found, exact)), strict=True)
    for mine, theirs in pairs:
        torch.testing.assert_close(mine, theirs, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("peak", [1, 6, 20])
def test_float32_is_float64_within_rounding_or_lost(peak: int) -> None:
    """max(1e-4, 1e-6 |log Z|) is the promise of DESIGN, section 4."""
    model = segmentations.parameters(24, 6, 50, seed=peak, peak=peak)
    generator = torch.Generator().manual_seed(peak)
    sentences = [torch.randint(50, (n,), generator=generator).tolist() for n in (1, 2, 3, 40, 60)]
    exact, lost_there = semi_markov_backward.log_z(chains(model, sentences), nothing_impossible)
    found, lost = semi_markov_backward.log_z(chains(narrow(model), sentences), nothing_impossible)
    assert not lost_there.any()
    assert found.dtype == torch.float64
    error = (found - exact).abs() - (exact.abs() * 1e-6).clamp(min=1e-4)
    assert (error[~lost] <= 0).all()
    if peak == 1:
        assert not lost.any()


TEN_THOUSAND = """
import json, torch
from rankspace.distributions import HSMM

generator = torch.Generator().manual_seed(0)
shapes = ((4,), (4, 4), (4, 9), (4, 3))
wide = [torch.randn(shape, generator=generator).log_softmax(-1) for shape in shapes]
words = torch.randint(9, (2, 10_000), generator=generator)
single = [value.requires_grad_() for value in wide]
found = HSMM(*single, validate=False).log_prob(words, [10_000, 123])
counts = torch.autograd.grad(found[0], single)
exact = HSMM(*[value.detach().double() for value in wide], validate=False).log_prob(words, [10_000, 123])
print(json.dumps([exact.tolist(), found.tolist(), [count.double().sum().item() for count in counts]]))
"""


def test_ten_thousand_words() -> None:
    """float32 against float64, within the bounds of DESIGN, section 4; in a process without shape checks, for speed."""
    source = str(Path(__file__).parents[2] / "src")
    path = {"PYTHONPATH": source, "OMP_NUM_THREADS": "1", "PATH": ""}
    result = subprocess.run([sys.executable, "-c", TEN_THOUSAND], env=path, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    exact, found, (starts, moves, emitted, segments) = json.loads(result.stdout)
    assert exact[0] < -20_000
    for true, value in zip(exact, found, strict=True):
        assert abs(true - value) <= max(1e-4, 1e-6 * abs(true))
    assert starts == pytest.approx(1, rel=1e-4)
    assert emitted == pytest.approx(10_000, rel=1e-4)
    assert segments == pytest.approx(moves + 1, rel=1e-4)


def test_the_same_bits_twice() -> None:
    def result() -> list[Tensor]:
        model = leaves(narrow(segmentations.parameters(8, 3, 5)))
        found, _ = semi_markov_backward.log_z(chains(model, [[0, 1, 1, 1, 4] * 4, [1, 1]]), nothing_impossible)
        return [found, *torch.autograd.grad(found.sum(), list(model.values()))]

    assert all(torch.equal(a, b) for a, b in zip(result(), result(), strict=True))


def test_empty_sentences_only() -> None:
    model = leaves(segmentations.parameters(2, 2, 3))
    found, lost = semi_markov_backward.log_z(chains(model, [[], []]), nothing_impossible)
    assert found.tolist() == [0, 0]
    assert not lost.any()
    assert all(not grad.any() for grad in torch.autograd.grad(found.sum(), list(model.values())))
