"""HMM: the suite of chains, and what is its own."""

import math
import warnings
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor

from distributions.chain_enumeration import Parameters, Paths, Sentence, hmm_paths
from distributions.chain_suite import EXACT, SENTENCES, ChainSuite, padded
from rankspace.distributions import HMM
from rankspace.fgg import zoo
from rankspace.inference import GenericEngine


@pytest.mark.parametrize("order", ["state"])
class TestHMM(ChainSuite):
    KIND = HMM
    SHAPES: ClassVar = {
        "log_start": ("state",),
        "log_transition": ("state", "state"),
        "log_emission": ("state", "vocab"),
    }

    def paths(self, parameters: Parameters, sentence: Sentence) -> Paths:
        return hmm_paths(parameters, sentence)

    def sparse(self) -> dict[str, Tensor]:
        start = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
        transition = torch.tensor([[0.5, 0.3, 0.2], [0.9, 0.0, 0.1], [0.0, 0.0, 1.0]], dtype=torch.float64)
        emission = torch.tensor([[0.4, 0.6, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0]], dtype=torch.float64)
        return {"log_start": start.log(), "log_transition": transition.log(), "log_emission": emission.log()}

    def best(self, distribution: Any, words: Tensor, lengths: list[int], seen: Tensor | None = None) -> list[Any]:
        return distribution.viterbi(words, lengths, seen)

    def test_ladder(self, order: str) -> None:
        """The generic engine on the zoo's HMM, whose start lies before the first transition: a state of its own."""
        parameters = {name: value.requires_grad_() for name, value in self.parameters(21).items()}
        start, transition, emission = (value.exp() for value in parameters.values())
        num = len(start)
        begin = torch.zeros(num + 1, dtype=torch.float64)
        begin[num] = 1
        moves = torch.zeros(num + 1, num + 1, dtype=torch.float64)
        moves = torch.cat([torch.cat([transition, start[None]]), moves[:, :1]], 1)  # nothing leads back to the start
        words = torch.cat([emission, torch.zeros(1, emission.shape[1], dtype=torch.float64)])
        # The zoo ends with one more transition, whatever it leads to.
        engine = GenericEngine(zoo.hmm(begin, moves, words, torch.ones(num + 1, dtype=torch.float64)))
        sentences = [sentence for sentence in SENTENCES if sentence]
        expected = engine.log_z(*engine.encode(sentences))
        found = self.make(parameters, order).log_prob(*padded(sentences))
        torch.testing.assert_close(found, expected, **EXACT)


def two_states(stay: float, dtype: torch.dtype) -> HMM:
    """DESIGN, section 4: state 0 emits a far likelier than state 1, which alone emits b."""
    transition = torch.tensor([[1.0, stay], [stay, 1.0]], dtype=torch.float64)
    emission = torch.tensor([[1.0, 0.0], [1e-4, 1 - 1e-4]], dtype=torch.float64)
    start = torch.tensor([0.5, 0.5], dtype=torch.float64)
    return HMM(*(table.log().to(dtype).requires_grad_() for table in (start, transition, emission)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("length", [40, 90])
def test_an_entry_that_underflows_can_be_the_only_way_on(dtype: torch.dtype, length: int) -> None:
    """a^n b: the forward vector has an entry of 1e-4^n beside one of 1. At 90 that is too low for float64 too."""
    distribution = two_states(0.0, dtype)
    words = torch.tensor([[0] * length + [1], [0] * (length + 1)])
    found = distribution.log_prob(words)
    exact = [math.log(0.5) + length * math.log(1e-4) + math.log1p(-1e-4), math.log(0.5)]
    torch.testing.assert_close(found.double(), torch.tensor(exact, dtype=torch.float64), rtol=1e-6, atol=1e-6)
    slopes = torch.autograd.grad(found[0], list(distribution.parameters.values()))
    tables = ([0, 1], [[0, 0], [0, length]], [[0, 0], [length, 1]])
    for slope, expected in zip(slopes, tables, strict=True):
        torch.testing.assert_close(slope, torch.tensor(expected, dtype=dtype), rtol=1e-5, atol=1e-6)
    assert distribution.detach().posterior_entropy(words).abs().max() < 1e-3  # the second can end in state 1, hardly
    marginals = distribution.state_marginals(words)
    torch.testing.assert_close(marginals[0, :, 1], torch.ones(length + 1, dtype=dtype))
    path, _ = distribution.viterbi(words)
    assert path.states.tolist() == [1] * (length + 1)
    (samples, _) = distribution.sample_posterior(words, num=3, generator=torch.Generator().manual_seed(0))
    assert samples.states.tolist() == [[1] * (length + 1)] * 3
    assert distribution.surprisal(words)[0].isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_tiny_transitions_instead_of_zeros(dtype: torch.dtype) -> None:
    """As above, but a path can also change state at the end, with probability e^-360: both matter."""
    length, stay = 40, math.exp(-360)
    distribution = HMM(
        torch.tensor([0.5, 0.5], dtype=torch.float64).log().to(dtype).requires_grad_(),
        torch.tensor([[0.0, -360.0], [-360.0, 0.0]], dtype=dtype).requires_grad_(),
        two_states(0.0, dtype).parameters["log_emission"].detach().requires_grad_(),
    )
    words = torch.tensor([[0] * length + [1]])
    found = distribution.log_prob(words)
    by_staying = math.log(0.5) + length * math.log(1e-4) + math.log1p(-1e-4)
    by_moving = [math.log(0.5 * stay) + later * math.log(1e-4) + math.log1p(-1e-4) for later in range(length)]
    exact = torch.tensor([by_staying, *by_moving], dtype=torch.float64).logsumexp(0)
    torch.testing.assert_close(found[0].double(), exact, rtol=1e-6, atol=0)
    (moves,) = torch.autograd.grad(found, [distribution.parameters["log_transition"]])
    moving = (torch.tensor(by_moving, dtype=torch.float64) - exact).exp()
    torch.testing.assert_close(moves[0, 1].double(), moving.sum(), rtol=1e-3, atol=1e-9)
    remaining = (1 - moving.sum()) * length + (moving * torch.arange(length)).sum()
    torch.testing.assert_close(moves[1, 1].double(), remaining, rtol=1e-5, atol=0)


def test_one_derivation_only() -> None:
    """A cycle of three states, each with its own word: log p is the one path's, and its entropy is zero."""
    transition = torch.eye(3, dtype=torch.float64).roll(1, 1)
    start = torch.tensor([1.0, 0.0, 0.0], dtype=torch.float64)
    distribution = HMM(start.log(), transition.log(), torch.eye(3, dtype=torch.float64).log())
    words = torch.tensor([[0, 1, 2, 0, 1], [0, 1, 2, 0, 2]])
    assert distribution.log_prob(words).tolist() == [0, -math.inf]
    assert distribution.posterior_entropy(words).tolist() == [0, 0]
    path, none = distribution.viterbi(words)
    assert path.states.tolist() == [0, 1, 2, 0, 1]
    assert none is None


def test_hmmlearn_agrees() -> None:
    """An independent implementation on equal parameters: log-likelihood, posteriors, the best path."""
    hmm = pytest.importorskip("hmmlearn.hmm")
    suite = TestHMM()
    parameters = suite.parameters(22, state=5, vocab=7)
    distribution = HMM(**parameters)
    other = hmm.CategoricalHMM(n_components=5, n_features=7)
    start, transition, emission = (value.exp().numpy() for value in parameters.values())
    other.startprob_, other.transmat_, other.emissionprob_ = start, transition, emission
    words = torch.randint(7, (1, 50), generator=torch.Generator().manual_seed(4))
    column = words.T.numpy()
    log_likelihood, posteriors = other.score_samples(column)
    assert distribution.log_prob(words).item() == pytest.approx(log_likelihood, rel=1e-9)
    marginals = distribution.state_marginals(words)[0]
    torch.testing.assert_close(marginals, torch.from_numpy(posteriors), rtol=1e-7, atol=1e-9)
    log_joint, states = other.decode(column)
    (path,) = distribution.viterbi(words)
    assert path.log_joint.item() == pytest.approx(log_joint, rel=1e-9)
    assert path.states.tolist() == states.tolist()


@pytest.mark.filterwarnings("ignore")  # of the peer and what it imports
def test_torch_struct_agrees() -> None:
    """Its linear chain on equal parameters, ragged: log Z, gradients, the weight of the best path."""
    peer = pytest.importorskip("torch_struct")
    parameters = TestHMM().parameters(23, state=5, vocab=7)
    leaves = {name: value.requires_grad_() for name, value in parameters.items()}
    words, lengths = torch.randint(7, (3, 9), generator=torch.Generator().manual_seed(4)), torch.tensor([9, 5, 2])
    emitted = leaves["log_emission"].T[words]
    edges = leaves["log_transition"].T + emitted[:, 1:, :, None]  # [batch, step, next, state]
    first = (leaves["log_start"] + emitted[:, 0])[:, None, None]
    theirs = peer.LinearChainCRF(torch.cat([edges[:, :1] + first, edges[:, 1:]], 1), lengths=lengths)
    mine = HMM(**leaves)
    found = mine.log_prob(words, lengths)
    torch.testing.assert_close(found, theirs.partition, rtol=1e-6, atol=1e-6)  # the peer's epsilons
    expected = torch.autograd.grad(theirs.partition.sum(), list(leaves.values()))
    for one, other in zip(torch.autograd.grad(found.sum(), list(leaves.values())), expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)
    best = torch.stack([path.log_joint for path in mine.viterbi(words, lengths)])
    torch.testing.assert_close(best, theirs.max, rtol=1e-6, atol=1e-6)


def test_errors() -> None:
    parameters = TestHMM().parameters()
    with pytest.raises(ValueError, match=r"^HMM: order is 'rank', but its link is one dense matrix over states"):
        HMM(**parameters, order="rank")
    with pytest.raises(ValueError, match=r"^HMM: state is 3 in log_start \(3,\) but 4 in log_transition \(4, 4\); "):
        HMM(**parameters | {"log_transition": torch.zeros(4, 4, dtype=torch.float64)})


def test_pomegranate_agrees() -> None:
    """Another one; it ends each sentence with a uniform choice among the states."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what it imports warns
        models = pytest.importorskip("pomegranate.hmm", exc_type=ImportError)
        categorical = pytest.importorskip("pomegranate.distributions").Categorical
        start, transition, emission = (value.exp().float() for value in TestHMM().parameters(28, state=5).values())
        other = models.DenseHMM([categorical(row[None]) for row in emission], edges=transition, starts=start)
        words = torch.randint(4, (3, 20), generator=torch.Generator().manual_seed(5))
        log_likelihood, posteriors = other.log_probability(words[:, :, None]), other.predict_proba(words[:, :, None])
    distribution = HMM(start.log(), transition.log(), emission.log())
    torch.testing.assert_close(distribution.log_prob(words), log_likelihood + math.log(5), rtol=1e-5, atol=1e-4)
    torch.testing.assert_close(distribution.state_marginals(words), posteriors, rtol=1e-4, atol=1e-5)
