"""RankSpaceHMM: the suite of chains in both orders, and what is its own."""

import math
from typing import ClassVar

import pytest
import torch
from torch import Tensor

from distributions.chain_enumeration import Parameters, Paths, Sentence, rank_space_paths
from distributions.chain_suite import EXACT, SENTENCES, ChainSuite, padded
from rankspace.distributions import RankSpaceHMM
from rankspace.fgg import zoo
from rankspace.inference import GenericEngine
from rankspace.lowrank import to_rank_space


@pytest.mark.parametrize("order", ["rank", "state"])
class TestRankSpaceHMM(ChainSuite):
    KIND = RankSpaceHMM
    SHAPES: ClassVar = {
        "log_start": ("state",),
        "log_state_to_rank": ("state", "rank"),
        "log_rank_to_state": ("rank", "state"),
        "log_emission": ("rank", "vocab"),
    }

    def paths(self, parameters: Parameters, sentence: Sentence) -> Paths:
        return rank_space_paths(parameters, sentence, last_state=True)

    def derivations(self, parameters: Parameters, sentence: Sentence) -> Paths:
        return rank_space_paths(parameters, sentence, last_state=False)

    def sparse(self) -> dict[str, Tensor]:
        to_rank = torch.tensor([[0.7, 0.3], [1.0, 0.0], [0.0, 1.0]], dtype=torch.float64)
        to_state = torch.tensor([[0.6, 0.4, 0.0], [0.0, 0.0, 1.0]], dtype=torch.float64)
        emission = torch.tensor([[0.4, 0.6, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0]], dtype=torch.float64)
        start = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
        return dict(zip(self.SHAPES, (table.log() for table in (start, to_rank, to_state, emission)), strict=True))

    def test_collapse(self, order: str) -> None:
        parameters = {name: value.requires_grad_() for name, value in self.parameters(23).items()}
        distribution = self.make(parameters, order, eos=2)
        small = distribution.collapse()
        assert small.sizes == {"state": 2, "vocab": 4}
        assert small.eos == 2
        words, lengths = padded(SENTENCES)
        found, expected = small.log_prob(words, lengths), distribution.log_prob(words, lengths)
        torch.testing.assert_close(found, expected, **EXACT)
        leaves = list(parameters.values())
        slopes = torch.autograd.grad(found.sum(), leaves)
        for slope, other in zip(slopes, torch.autograd.grad(expected.sum(), leaves), strict=True):
            torch.testing.assert_close(slope, other, **EXACT)
        for table in small.parameters.values():
            torch.testing.assert_close(table.logsumexp(-1), torch.zeros(table.shape[:-1]).double(), **EXACT)

    def test_collapse_with_zeros(self, order: str) -> None:
        parameters = {name: value.requires_grad_() for name, value in self.sparse().items()}
        sentences = [*self.POSSIBLE, *self.IMPOSSIBLE]
        distribution = self.make(parameters, order)
        found = distribution.collapse().log_prob(*padded(sentences))
        torch.testing.assert_close(found, distribution.log_prob(*padded(sentences)), **EXACT)
        slopes = torch.autograd.grad(found[: len(self.POSSIBLE)].sum(), list(parameters.values()))
        assert all(slope.isfinite().all() for slope in slopes)

    def test_ladder(self, order: str) -> None:
        """The generic engine on the zoo's grammar, in state space and in rank space; the chain may end in any state."""
        logits = {name: value.requires_grad_() for name, value in self.parameters(24).items()}
        parameters = {name: value.log_softmax(-1) for name, value in logits.items()}
        weights = [value.exp() for value in parameters.values()]
        grammar = zoo.factored_hmm(*weights, torch.ones(self.SIZES["state"], dtype=torch.float64))
        sentences = [sentence for sentence in SENTENCES if sentence]
        found = self.make(parameters, order).log_prob(*padded(sentences))
        leaves = list(logits.values())
        slopes = torch.autograd.grad(found.sum(), leaves, retain_graph=True)
        for fgg in (grammar, to_rank_space(grammar)):
            engine = GenericEngine(fgg)
            expected = engine.log_z(*engine.encode(sentences))
            torch.testing.assert_close(found, expected, **EXACT)
            others = torch.autograd.grad(expected.sum(), leaves, retain_graph=True)
            for slope, other in zip(slopes, others, strict=True):
                torch.testing.assert_close(slope, other, **EXACT)

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    def test_an_entry_that_underflows_can_be_the_only_way_on(self, order: str, dtype: torch.dtype) -> None:
        """Two states that keep to their ranks; a^n b as in the HMM. 90 words are too many for float64 too."""
        length = 90
        identity = torch.eye(2, dtype=torch.float64)
        emission = torch.tensor([[1.0, 0.0], [1e-4, 1 - 1e-4]], dtype=torch.float64)
        tables = (torch.tensor([0.5, 0.5], dtype=torch.float64), identity, identity, emission)
        parameters = [table.log().to(dtype).requires_grad_() for table in tables]
        distribution = self.make(dict(zip(self.SHAPES, parameters, strict=True)), order)
        words = torch.tensor([[0] * length + [1]])
        found = distribution.log_prob(words)
        exact = math.log(0.5) + length * math.log(1e-4) + math.log1p(-1e-4)
        assert found.item() == pytest.approx(exact, rel=1e-6)
        slopes = torch.autograd.grad(found, parameters)
        expected = ([0, 1], [[0, 0], [0, length + 1]], [[0, 0], [0, length]], [[0, 0], [length, 1]])
        for slope, table in zip(slopes, expected, strict=True):
            torch.testing.assert_close(slope, torch.tensor(table, dtype=dtype), rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(distribution.state_marginals(words)[0, :, 1], torch.ones(length + 1, dtype=dtype))
        (path,) = distribution.viterbi_joint(words)
        assert path.ranks.tolist() == path.states.tolist() == [1] * (length + 1)
        (samples,) = distribution.sample_posterior(words)
        assert samples.states.eq(1).all()
        assert samples.first.eq(1).all()
        assert distribution.posterior_entropy(words).item() == pytest.approx(0, abs=1e-3)


def test_auto_takes_what_is_cheaper_and_says_so() -> None:
    suite = TestRankSpaceHMM()
    parameters = suite.parameters(25, state=200, rank=100, vocab=5)
    words = torch.zeros(1, 2, dtype=torch.int64)
    many = torch.zeros(64, 40, dtype=torch.int64)
    distribution = RankSpaceHMM(**parameters)
    assert distribution.explain(words).startswith("chain: state order; rank order would cost ")
    assert distribution.explain(many, [40] * 63 + [0]).startswith("chain: rank order; state order would cost ")
    forced = RankSpaceHMM(**parameters, order="rank").explain(words)
    assert forced.startswith('order="rank" was asked for; the planner\'s account:\nchain: state order;')
    for batch in (words, many):
        results = [RankSpaceHMM(**parameters, order=order).log_prob(batch) for order in ("auto", "rank", "state")]
        torch.testing.assert_close(results[0], results[1], **EXACT)
        torch.testing.assert_close(results[0], results[2], **EXACT)


def test_errors() -> None:
    parameters = TestRankSpaceHMM().parameters()
    expected = (
        "RankSpaceHMM: viterbi is not available, for the maximum over states does not commute with the sum over ranks; "
        "use viterbi_joint, the best assignment of states and ranks together, or state_marginals."
    )
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        RankSpaceHMM(**parameters).viterbi(torch.tensor([[0]]))
    assert str(caught.value) == expected
    one, other = RankSpaceHMM(**parameters), RankSpaceHMM(**TestRankSpaceHMM().parameters(rank=3))
    with pytest.raises(ValueError, match=r"^RankSpaceHMM: compared with RankSpaceHMM of sizes \{'state': 3, "):
        one.posterior_kl(other, torch.tensor([[0]]))
