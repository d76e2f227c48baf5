"""Modes of torch that a caller may be in: no_grad, inference_mode; and second derivatives, which engines refuse."""

from typing import Any

import pytest
import torch

from distributions.test_on_gpu import ALL, LENGTHS, TREES, WORDS
from rankspace.errors import RankspaceError


def leaves_of(distribution: Any) -> dict[str, torch.Tensor]:
    return {name: value.clone().requires_grad_() for name, value in distribution.parameters.items()}


@pytest.mark.parametrize("name", ALL)
def test_queries_under_inference_mode_and_training_after_them(name: str) -> None:
    """Layouts are kept between calls: what inference_mode made must serve a backward pass later."""
    lengths = [length + 2 for length in LENGTHS]  # lengths that no other test has asked for
    words = WORDS.repeat(1, 2)
    distribution = ALL[name]
    with torch.inference_mode():
        log_prob = distribution.log_prob(words, lengths)
        counts = distribution.expected_counts(words, lengths)
        entropy = distribution.posterior_entropy(words, lengths)
        marginals = distribution.span_marginals(words, lengths) if name in TREES else None
    leaves = leaves_of(distribution)
    again = distribution.with_parameters(leaves).log_prob(words, lengths)
    slopes = torch.autograd.grad(again.where(again > -torch.inf, 0).sum(), list(leaves.values()))
    assert torch.equal(log_prob, again.detach())
    assert all(torch.equal(count, slope) for count, slope in zip(counts.values(), slopes, strict=True))
    assert torch.equal(entropy, distribution.posterior_entropy(words, lengths))
    assert marginals is None or torch.equal(marginals, distribution.span_marginals(words, lengths))


@pytest.mark.parametrize("name", ALL)
def test_second_derivatives_of_engines_are_refused(name: str) -> None:
    leaves = leaves_of(ALL[name])
    total = ALL[name].with_parameters(leaves).log_prob(WORDS[:4], LENGTHS[:4]).sum()
    message = r"^log_prob: second derivatives need plain operations; give backend='autograd'\.$"
    with pytest.raises(RankspaceError, match=message):
        torch.autograd.grad(total, list(leaves.values()), create_graph=True)


@pytest.mark.parametrize("name", ALL)
def test_words_are_checked_after_a_change_of_dtype(name: str) -> None:
    changed = ALL[name].to(torch.float32).detach()
    with pytest.raises(RankspaceError, match=r": word -1 is outside the vocabulary of 9; words are numbered from 0\.$"):
        changed.log_prob(torch.tensor([[-1, 1]]))
