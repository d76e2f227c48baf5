"""HSMM: the suite of chains where the end of a segment is the end of the sentence, and what is its own."""

import math
from collections import Counter
from itertools import product
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor

from distributions.chain_enumeration import Parameters, Paths, Sentence
from distributions.chain_suite import EXACT, SENTENCES, VOCABULARY, ChainSuite, check_frequencies, padded
from rankspace.distributions import HMM, HSMM
from rankspace.fgg import zoo
from rankspace.inference import GenericEngine
from segmentations import prefix_log_prob, prefix_paths, segment_paths


@pytest.mark.parametrize("order", ["state"])
class TestHSMM(ChainSuite):
    KIND = HSMM
    SIZES: ClassVar = {"state": 3, "vocab": VOCABULARY, "duration": 3}
    SHAPES: ClassVar = {
        "log_start": ("state",),
        "log_transition": ("state", "state"),
        "log_emission": ("state", "vocab"),
        "log_duration": ("state", "duration"),
    }

    def paths(self, parameters: Parameters, sentence: Sentence) -> Paths:
        return segment_paths(parameters, sentence)

    def sparse(self) -> dict[str, Tensor]:
        tables = {
            "log_start": [0.5, 0.3, 0.2],
            "log_transition": [[0.5, 0.3, 0.2], [0.9, 0.0, 0.1], [0.0, 0.0, 1.0]],
            "log_emission": [[0.4, 0.6, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0]],
            "log_duration": [[0.5, 0.5, 0.0], [1.0, 0.0, 0.0], [0.25, 0.0, 0.75]],
        }
        return {name: torch.tensor(table, dtype=torch.float64).log() for name, table in tables.items()}

    def best(self, distribution: Any, words: Tensor, lengths: list[int], seen: Tensor | None = None) -> list[Any]:
        return distribution.viterbi(words, lengths, seen)

    @staticmethod
    def keys_of(path: Any) -> list[tuple[int, ...]]:
        table = torch.cat([path.states, path.ends.long()], -1)
        return [tuple(row) for row in (table if table.dim() == 2 else table[None]).tolist()]

    # A sentence is a sentence only if a segment ends with it, so that these read differently than for other chains.

    @pytest.mark.parametrize("length", [1, 3])
    def test_probabilities_of_all_sentences_sum_to_one(self, order: str, length: int) -> None:
        """To the probability that a segment ends after so many words."""
        distribution, _ = self.random(order, seed=5)
        words = torch.tensor(list(product(range(VOCABULARY), repeat=length)))
        nothing = torch.zeros(1, length, dtype=torch.int64)
        ends = distribution.log_prob(nothing, observed=torch.zeros(1, length, dtype=torch.bool))
        assert ends < 0
        torch.testing.assert_close(distribution.log_prob(words).logsumexp(0)[None], ends, **EXACT)

    def test_filter_surprisal_and_next_word(self, order: str) -> None:
        distribution, parameters = self.random(order, seed=10)
        words, lengths = padded(SENTENCES, width=6)
        beliefs, surprisals = distribution.filter(words, lengths), distribution.surprisal(words, lengths)
        following = distribution.next_word(words, lengths)
        for b, sentence in enumerate(SENTENCES):
            totals = [0.0]
            for time in range(len(sentence)):
                paths = prefix_paths(parameters, sentence[: time + 1])
                expected = torch.zeros(self.SIZES["state"], dtype=torch.float64)
                expected.index_add_(0, paths.states[:, time], paths.posterior)
                torch.testing.assert_close(beliefs[b, time], expected, **EXACT)
                totals.append(paths.log_z.item())
                assert surprisals[b, time].item() == pytest.approx(totals[-2] - totals[-1], rel=1e-9)
            assert not surprisals[b, len(sentence) :].any()
            if len(sentence) < 4:
                ways = [prefix_log_prob(parameters, [*sentence, word]) - totals[-1] for word in range(VOCABULARY)]
                torch.testing.assert_close(following[b], torch.stack(ways), **EXACT)
            torch.testing.assert_close(following[b].logsumexp(0), torch.zeros((), dtype=torch.float64), **EXACT)

    def test_one_word_at_a_time(self, order: str) -> None:
        distribution, _ = self.random(order, seed=11)
        words = torch.tensor([[0, 1, 3, 2, 2], [2, 2, 0, 1, 0]])
        seen = torch.tensor([[True, True, False, True, True]] * 2)
        state = distribution.begin(batch=2)
        assert state.log_prob.tolist() == [0, 0]
        torch.testing.assert_close(state.filter(), distribution.parameters["log_start"].exp().expand(2, -1), **EXACT)
        beliefs, surprisals = (query(words, observed=seen) for query in (distribution.filter, distribution.surprisal))
        for time in range(5):
            expected = distribution.next_word(words[:, :time], observed=seen[:, :time])
            torch.testing.assert_close(state.next_word(), expected, **EXACT)
            state = state.step(words[:, time] if seen[0, time] else None)
            torch.testing.assert_close(state.filter(), beliefs[:, time], **EXACT)
            torch.testing.assert_close(state.log_prob, -surprisals[:, : time + 1].sum(1), **EXACT)

    def test_samples_without_an_end(self, order: str) -> None:
        distribution, parameters = self.random(order, seed=14)
        sample = distribution.sample(3000, 2, torch.Generator().manual_seed(0))
        assert sample.lengths.unique().tolist() == [2]
        assert not sample.cut.any()
        assert sample.lost_mass.item() == 0
        assert sample.ends is not None
        assert sample.ends[:, -1].all()
        total = segment_paths(parameters, [None, None]).log_z
        expected = {}
        for sentence in product(range(VOCABULARY), repeat=2):
            paths = self.paths(parameters, sentence)
            for key, weight in zip(paths.keys(), (paths.log_weights - total).exp().tolist(), strict=True):
                expected[(*sentence, *key)] = weight
        keys = self.keys_of(sample)
        drawn = Counter((*sentence, *key) for sentence, key in zip(sample.words.tolist(), keys, strict=True))
        check_frequencies(drawn, expected, 3000)

    def test_samples_with_an_end(self, order: str) -> None:
        parameters = self.parameters(15)
        distribution = self.make(parameters, order, eos=1)
        sample = distribution.sample(3000, 3, torch.Generator().manual_seed(1))
        expected = {}
        for length in range(1, 4):
            for begin in product((0, 2, 3), repeat=length - 1):
                sentence = [*begin, 1]
                words = torch.tensor([sentence])
                expected[tuple(sentence)] = distribution.log_prob(words).exp().item()
        assert sample.lost_mass.item() == pytest.approx(1 - sum(expected.values()), rel=1e-9)
        rows = [tuple(row[:n].tolist()) for row, n in zip(sample.words, sample.lengths.tolist(), strict=True)]
        whole = [row for row, cut in zip(rows, sample.cut.tolist(), strict=True) if not cut]
        expected["cut"] = sample.lost_mass.item()
        check_frequencies(Counter([*whole, *["cut"] * (3000 - len(whole))]), expected, 3000)
        lost = [distribution.sample(0, length).lost_mass.item() for length in (1000, 10**9)]
        assert lost[1] == pytest.approx(lost[0], abs=1e-12)
        beyond = torch.arange(sample.words.shape[1]) >= sample.lengths[:, None]
        assert (sample.words[beyond] == -1).all()
        assert (sample.states[beyond] == -1).all()
        assert (sample.states[~beyond] >= 0).all()

    # What is its own.

    def test_durations_of_one_word_are_an_hmm(self, order: str) -> None:
        parameters = self.parameters(21, duration=1)
        one, other = HSMM(**parameters), HMM(*list(parameters.values())[:3])
        words, lengths = padded(SENTENCES)
        torch.testing.assert_close(one.log_prob(words, lengths), other.log_prob(words, lengths), **EXACT)
        for query in ("state_marginals", "filter", "surprisal", "next_word", "posterior_entropy"):
            torch.testing.assert_close(
                getattr(one, query)(words, lengths), getattr(other, query)(words, lengths), **EXACT
            )
        for mine, theirs in zip(one.viterbi(words, lengths), other.viterbi(words, lengths), strict=True):
            assert torch.equal(mine.states, theirs.states)
            assert mine.ends.all()

    def test_the_grammar_of_the_zoo(self, order: str) -> None:
        """Its start comes before the first transition: one state more, which only begins."""
        parameters = self.parameters(22)
        sizes = self.SIZES
        start = torch.zeros(sizes["state"] + 1, dtype=torch.float64)
        start[-1] = 1
        transition = torch.zeros(sizes["state"] + 1, sizes["state"] + 1, dtype=torch.float64)
        transition[:-1, :-1], transition[-1, :-1] = parameters["log_transition"].exp(), parameters["log_start"].exp()
        emission, duration = (
            torch.cat([parameters[name].exp(), torch.zeros(1, parameters[name].shape[1], dtype=torch.float64)])
            for name in ("log_emission", "log_duration")
        )
        grammar = zoo.hsmm(start, transition, duration, emission, torch.ones_like(start))
        sentences = [s for s in SENTENCES if s]
        words, lengths = padded(sentences)
        expected = GenericEngine(grammar).log_z(words.clamp(max=VOCABULARY - 1), torch.tensor(lengths))
        torch.testing.assert_close(HSMM(**parameters).log_prob(words, lengths), expected, **EXACT)

    def test_what_float32_cannot_hold_is_done_again(self, order: str) -> None:
        """a^40 b where states never change: the state that emits b is 1e-120 below the other by then."""
        parameters = {
            "log_start": torch.tensor([0.5, 0.5]).log(),
            "log_transition": torch.tensor([[0.0, -math.inf], [-math.inf, 0.0]]),
            "log_emission": torch.tensor([[0.0, -math.inf], [math.log(1e-3), math.log1p(-1e-3)]]),
            "log_duration": torch.tensor([[0.5, 0.5], [0.5, 0.5]]).log(),
        }
        words, lengths = padded([[0] * 40 + [1], [0, 1], [0] * 200 + [1]])
        wide = {name: value.double() for name, value in parameters.items()}
        expected = HSMM(**wide, backend="autograd").log_prob(words, lengths)
        leaves = {name: value.requires_grad_() for name, value in parameters.items()}
        found = HSMM(**leaves).log_prob(words, lengths)
        assert expected[2] < -1300
        torch.testing.assert_close(found.double(), expected, rtol=1e-6, atol=1e-4)
        assert all(slope.isfinite().all() for slope in torch.autograd.grad(found.sum(), list(leaves.values())))

    def test_a_length_at_which_no_segment_ends(self, order: str) -> None:
        parameters = self.parameters(23, duration=2)
        parameters["log_duration"] = torch.tensor([[0.0, 1.0]] * 3, dtype=torch.float64).log()
        distribution = self.make(parameters, order)
        assert distribution.log_prob(torch.tensor([[0, 1, 2]])).item() == -math.inf
        assert distribution.viterbi(torch.tensor([[0, 1, 2]])) == [None]
        assert distribution.surprisal(torch.tensor([[0, 1, 2]])).isfinite().all()
        message = r"^HSMM: no segment ends after 3 words; give sample another max_length, or the model an eos\.$"
        with pytest.raises(ValueError, match=message):
            distribution.sample(2, 3)

    def test_shapes_that_do_not_fit(self, order: str) -> None:
        parameters = self.parameters(24)
        message = (
            r"^HSMM: state is 3 in log_start \(3,\) but 2 in log_duration \(2, 3\); build both from one set of sizes\.$"
        )
        with pytest.raises(ValueError, match=message):
            HSMM(**{**parameters, "log_duration": parameters["log_duration"][:2]})
        message = (
            r"^HSMM: order is 'rank', but its link is one dense matrix over states and has no ranks; give 'state' or "
        )
        with pytest.raises(ValueError, match=message):
            HSMM(**parameters, order="rank")

    def test_explain(self, order: str) -> None:
        found = self.make(self.parameters(), order).explain(torch.tensor([[0, 1]]))
        assert found == "chain: state order; the link is one dense matrix over 3 states, durations up to 3"
