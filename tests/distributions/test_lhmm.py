"""LHMM: the suite of chains, and what is its own."""

from typing import ClassVar

import pytest
import torch
from torch import Tensor

from distributions.chain_enumeration import Parameters, Paths, Sentence, lhmm_paths
from distributions.chain_suite import EXACT, SENTENCES, ChainSuite, padded
from rankspace.distributions import HMM, LHMM
from rankspace.fgg import zoo
from rankspace.inference import GenericEngine


@pytest.mark.parametrize("order", ["state"])
class TestLHMM(ChainSuite):
    KIND = LHMM
    SHAPES: ClassVar = {
        "log_start": ("state",),
        "log_state_to_rank": ("state", "rank"),
        "log_rank_to_state": ("rank", "state"),
        "log_emission": ("state", "vocab"),
    }

    def paths(self, parameters: Parameters, sentence: Sentence) -> Paths:
        return lhmm_paths(parameters, sentence)

    def sparse(self) -> dict[str, Tensor]:
        to_rank = torch.tensor([[0.7, 0.3], [1.0, 0.0], [0.0, 1.0]], dtype=torch.float64)
        to_state = torch.tensor([[0.6, 0.4, 0.0], [0.0, 0.0, 1.0]], dtype=torch.float64)
        emission = torch.tensor([[0.4, 0.6, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0]], dtype=torch.float64)
        start = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
        return dict(zip(self.SHAPES, (table.log() for table in (start, to_rank, to_state, emission)), strict=True))

    def test_to_dense(self, order: str) -> None:
        distribution, _ = self.random(order, seed=26)
        dense = distribution.to_dense()
        words, lengths = padded(SENTENCES)
        torch.testing.assert_close(dense.log_prob(words, lengths), distribution.log_prob(words, lengths), **EXACT)
        marginals = [model.state_marginals(words, lengths) for model in (dense, distribution.collapse())]
        torch.testing.assert_close(marginals[0], distribution.state_marginals(words, lengths), **EXACT)
        torch.testing.assert_close(marginals[0], marginals[1], **EXACT)

    def test_ladder(self, order: str) -> None:
        """The generic engine on the zoo's LHMM, which starts before the first transition: a state and a rank more."""
        parameters = self.parameters(27)
        start, to_rank, to_state, emission = (value.exp() for value in parameters.values())
        num_states, num_ranks = to_rank.shape
        begin = torch.eye(num_states + 1, dtype=torch.float64)[num_states]
        wide_to_rank = torch.block_diag(to_rank, torch.ones(1, 1, dtype=torch.float64))
        wide_to_state = torch.zeros(num_ranks + 1, num_states + 1, dtype=torch.float64)
        wide_to_state[:num_ranks, :num_states] = to_state
        wide_to_state[num_ranks, :num_states] = start
        words = torch.cat([emission, torch.zeros(1, emission.shape[1], dtype=torch.float64)])
        ends = torch.ones(num_states + 1, dtype=torch.float64)
        engine = GenericEngine(zoo.lhmm(begin, wide_to_rank, wide_to_state, words, ends))
        sentences = [sentence for sentence in SENTENCES if sentence]
        expected = engine.log_z(*engine.encode(sentences))
        torch.testing.assert_close(self.make(parameters, order).log_prob(*padded(sentences)), expected, **EXACT)


def test_from_features() -> None:
    """A nonnegative low-rank product over its row sums, against the HMM with that very matrix; also the gradients."""
    generator = torch.Generator().manual_seed(0)
    left, right = (3 * torch.randn(shape, generator=generator, dtype=torch.float64) for shape in ((5, 2), (2, 5)))
    start, emission = (
        torch.randn(shape, generator=generator, dtype=torch.float64).log_softmax(-1) for shape in ((5,), (5, 4))
    )
    leaves = [left.requires_grad_(), right.requires_grad_()]
    transition = left.exp() @ right.exp()
    dense = HMM(start, (transition / transition.sum(1, keepdim=True)).log(), emission)
    found = LHMM.from_features(start, left, right, emission, eos=1)
    assert found.eos == 1
    words, lengths = padded(SENTENCES)
    expected = dense.log_prob(words, lengths)
    torch.testing.assert_close(found.log_prob(words, lengths), expected, **EXACT)
    slopes = torch.autograd.grad(found.log_prob(words, lengths).sum(), leaves)
    for slope, other in zip(slopes, torch.autograd.grad(expected.sum(), leaves), strict=True):
        torch.testing.assert_close(slope, other, **EXACT)


def test_errors() -> None:
    parameters = TestLHMM().parameters()
    expected = (
        "LHMM: order is 'rank', but its words hang on states, and summing the states out would give one link for each "
        "word; give 'state' or 'auto', or use RankSpaceHMM."
    )
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        LHMM(**parameters, order="rank")
    assert str(caught.value) == expected
    with pytest.raises(ValueError, match=r"^LHMM: viterbi is not available, for the maximum over states does not "):
        LHMM(**parameters).viterbi(torch.tensor([[0]]))
    assert LHMM(**parameters).explain(torch.tensor([[0]])).startswith("chain: state order; words hang on states")
