"""The tests that every chain passes, in each of its orders; a distribution inherits them and says how to enumerate."""

import math
from collections import Counter
from collections.abc import Sequence
from itertools import product
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor

from distributions.chain_enumeration import Parameters, Paths, Sentence, safe_logsumexp
from rankspace.distributions.chains import ChainDistribution

VOCABULARY = 4
SENTENCES: list[list[int]] = [[2, 0, 1], [], [3, 3, 0, 1, 2], [1], [0, 2], [1, 1, 3, 0]]
POISON = 10**6  # a word that no vocabulary has

# float64, sums of some thousand positive numbers, each a product of some ten: 1e-9 leaves four digits of slack.
EXACT = {"rtol": 1e-9, "atol": 1e-12}
# float32: parameters near 1e-7 off, some ten of them multiplied.
SINGLE = {"rtol": 2e-5, "atol": 2e-6}


def padded(sentences: Sequence[Sequence[int | None]], width: int | None = None) -> tuple[Tensor, list[int]]:
    """Words padded with a number that must not be read, and lengths."""
    lengths = [len(sentence) for sentence in sentences]
    words = torch.full((len(sentences), width or max(lengths, default=0)), POISON)
    for row, sentence in zip(words, sentences, strict=True):
        row[: len(sentence)] = torch.tensor([POISON if word is None else word for word in sentence], dtype=torch.int64)
    return words, lengths


def mask_of(sentences: Sequence[Sentence], words: Tensor) -> Tensor:
    """True where a word was observed; also in the padding, which must not be read."""
    seen = torch.ones_like(words, dtype=torch.bool)
    for row, sentence in zip(seen, sentences, strict=True):
        row[: len(sentence)] = torch.tensor([word is not None for word in sentence], dtype=torch.bool)
    return seen


def check_frequencies(drawn: Counter[Any], expected: dict[Any, float], num: int) -> None:
    """Chi-square test at the quantile (Wilson and Hilferty) of 1e-5: a right sampler fails with one seed in 10^5."""
    assert set(drawn) <= {key for key, probability in expected.items() if probability > 0}
    likely = {key: num * probability for key, probability in expected.items() if num * probability >= 5}
    rest = num - sum(likely.values())
    cells = [(drawn[key], mean) for key, mean in likely.items()]
    if rest >= 5:
        cells.append((num - sum(drawn[key] for key in likely), rest))
    statistic = sum((count - mean) ** 2 / mean for count, mean in cells)
    degrees = max(1, len(cells) - 1)
    quantile = degrees * (1 - 2 / (9 * degrees) + 4.265 * math.sqrt(2 / (9 * degrees))) ** 3
    assert statistic < quantile, f"chi-square {statistic:.1f} with {degrees} degrees of freedom"


class ChainSuite:
    """Inherit, give the abstract parts, and parametrise the class by `order`."""

    SHAPES: ClassVar[dict[str, tuple[str, ...]]]
    SIZES: ClassVar[dict[str, int]] = {"state": 3, "rank": 2, "vocab": VOCABULARY}
    KIND: ClassVar[type[ChainDistribution]]

    def paths(self, parameters: Parameters, sentence: Sentence) -> Paths:
        """All hidden paths, as samples and best paths have them."""
        raise NotImplementedError

    def derivations(self, parameters: Parameters, sentence: Sentence) -> Paths:
        """All derivations, as gradients, counts and entropies have them."""
        return self.paths(parameters, sentence)

    def sparse(self) -> dict[str, Tensor]:
        """Parameters with zeros: words 0 and 1 come in any order, after 3 there are only more of it, and 2 never is."""
        raise NotImplementedError

    def parameters(
        self, seed: int = 0, scale: float = 1.0, dtype: torch.dtype = torch.float64, **sizes: int
    ) -> dict[str, Tensor]:
        generator = torch.Generator().manual_seed(seed)
        sizes = self.SIZES | sizes
        return {
            name: (scale * torch.randn([sizes[axis] for axis in axes], generator=generator, dtype=torch.float64))
            .log_softmax(-1)
            .to(dtype)
            for name, axes in self.SHAPES.items()
        }

    def make(self, parameters: Parameters, order: str = "auto", **options: Any) -> ChainDistribution:
        return self.KIND(**parameters, order=order, **options)

    def random(self, order: str, seed: int = 0, **options: Any) -> tuple[ChainDistribution, dict[str, Tensor]]:
        parameters = self.parameters(seed, **options)
        return self.make(parameters, order), parameters

    # Values and gradients.

    @pytest.mark.parametrize("backend", ["auto", "autograd"])
    @pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
    def test_log_prob_and_its_gradients(self, order: str, dtype: torch.dtype, backend: str) -> None:
        parameters = {name: value.requires_grad_() for name, value in self.parameters().items()}
        narrow = {name: value.to(dtype) for name, value in parameters.items()}
        words, lengths = padded(SENTENCES)
        found = self.make(narrow, order, backend=backend).log_prob(words, lengths)
        expected = torch.stack([self.derivations(parameters, sentence).log_z for sentence in SENTENCES])
        expected = torch.where(torch.tensor(lengths) > 0, expected, 0)
        tolerance = EXACT if dtype == torch.float64 else SINGLE
        assert found.dtype == dtype
        torch.testing.assert_close(found.double(), expected, **tolerance)
        rates = torch.randn(len(SENTENCES), generator=torch.Generator().manual_seed(1), dtype=torch.float64)
        leaves = list(parameters.values())
        slopes = torch.autograd.grad((found * rates).sum(), leaves)
        for slope, true in zip(slopes, torch.autograd.grad((expected * rates).sum(), leaves), strict=True):
            torch.testing.assert_close(slope, true, **tolerance)

    def test_gradcheck(self, order: str) -> None:
        logits = [value.requires_grad_() for value in self.parameters(3).values()]
        words, lengths = padded([[0, 1, 2], [3], [2, 2]])

        def log_prob(*values: Tensor) -> Tensor:
            normalised = [value.log_softmax(-1) for value in values]
            return self.make(dict(zip(self.SHAPES, normalised, strict=True)), order).log_prob(words, lengths)

        assert torch.autograd.gradcheck(log_prob, logits)

    def test_second_derivatives(self, order: str) -> None:
        parameters = [value.requires_grad_() for value in self.parameters(4).values()]
        words, lengths = padded([[0, 1, 2], [3, 1]])

        def log_prob(*values: Tensor) -> Tensor:
            named = dict(zip(self.SHAPES, values, strict=True))
            return self.make(named, order, backend="autograd", validate=False).log_prob(words, lengths)

        assert torch.autograd.gradgradcheck(log_prob, parameters)

    def test_counts_are_gradients(self, order: str) -> None:
        distribution, parameters = self.random(order)
        words, lengths = padded(SENTENCES)
        leaves = {name: value.requires_grad_() for name, value in parameters.items()}
        total = self.make(leaves, order).log_prob(words, lengths).sum()
        counts = distribution.expected_counts(words, lengths)
        for name, slope in zip(leaves, torch.autograd.grad(total, list(leaves.values())), strict=True):
            torch.testing.assert_close(counts[name], slope, **EXACT)
        used = sum(length > 0 for length in lengths)
        torch.testing.assert_close(counts["log_start"].sum(), torch.tensor(float(used), dtype=torch.float64), **EXACT)
        torch.testing.assert_close(
            counts["log_emission"].sum(), torch.tensor(float(sum(lengths)), dtype=torch.float64), **EXACT
        )

    @pytest.mark.parametrize("length", [1, 3])
    def test_probabilities_of_all_sentences_sum_to_one(self, order: str, length: int) -> None:
        distribution, _ = self.random(order, seed=5)
        words = torch.tensor(list(product(range(VOCABULARY), repeat=length)))
        total = distribution.log_prob(words).logsumexp(0)
        torch.testing.assert_close(total, torch.zeros((), dtype=torch.float64), **EXACT)

    # Layout.

    def test_batch_order_and_padding_do_not_matter(self, order: str) -> None:
        distribution, _ = self.random(order, seed=6)
        words, lengths = padded(SENTENCES)
        expected = distribution.log_prob(words, lengths)
        wide, _ = padded(SENTENCES, width=9)
        torch.testing.assert_close(distribution.log_prob(wide, torch.tensor(lengths)), expected, **EXACT)
        shuffled = [4, 0, 5, 2, 1, 3]
        again = distribution.log_prob(words[shuffled], [lengths[i] for i in shuffled])
        torch.testing.assert_close(again, expected[shuffled], **EXACT)
        alone = torch.cat([distribution.log_prob(words[i : i + 1], lengths[i : i + 1]) for i in range(len(lengths))])
        torch.testing.assert_close(alone, expected, **EXACT)

    def test_nothing_at_all(self, order: str) -> None:
        distribution, _ = self.random(order)
        no_words = torch.zeros(2, 0, dtype=torch.int64)
        assert distribution.log_prob(no_words).tolist() == [0, 0]
        assert distribution.log_prob(torch.zeros(0, 3, dtype=torch.int64)).shape == (0,)
        assert distribution.state_marginals(no_words).shape == (2, 0, self.SIZES["state"])
        assert distribution.posterior_entropy(no_words).tolist() == [0, 0]

    def test_the_same_bits_twice(self, order: str) -> None:
        results = []
        for _ in range(2):
            parameters = self.parameters(7, dtype=torch.float32, state=20, rank=8, vocab=50)
            leaves = [value.requires_grad_() for value in parameters.values()]
            words = torch.randint(50, (6, 30), generator=torch.Generator().manual_seed(0))
            found = self.make(parameters, order).log_prob(words, [30, 2, 17, 30, 1, 9])
            results.append([found.detach(), *torch.autograd.grad(found.sum(), leaves)])
        assert all(torch.equal(one, other) for one, other in zip(*results, strict=True))

    # Words that were not observed.

    def test_unobserved_words_are_summed_out(self, order: str) -> None:
        parameters = {name: value.requires_grad_() for name, value in self.parameters(8).items()}
        sentences: list[list[int | None]] = [[0, None, 2], [None], [], [None, 1, None, 3], [3, 3]]
        words, lengths = padded(sentences)
        found = self.make(parameters, order).log_prob(words, lengths, mask_of(sentences, words))
        expected = []
        for sentence in sentences:
            options = [range(VOCABULARY) if word is None else [word] for word in sentence]
            ways = [self.derivations(parameters, filled).log_z for filled in product(*options)]
            expected.append(torch.stack(ways).logsumexp(0) if sentence else torch.zeros((), dtype=torch.float64))
        torch.testing.assert_close(found, torch.stack(expected), **EXACT)
        by_hand = torch.stack([self.derivations(parameters, sentence).log_z for sentence in sentences if sentence])
        leaves = list(parameters.values())
        slopes = torch.autograd.grad(found.sum(), leaves)
        for slope, true in zip(slopes, torch.autograd.grad(by_hand.sum(), leaves), strict=True):
            torch.testing.assert_close(slope, true, **EXACT)

    # Queries.

    SEEN: ClassVar[list[list[int | None]]] = [[2, 0, 1], [], [3, None, 0], [1], [None, None]]

    def test_state_marginals(self, order: str) -> None:
        distribution, parameters = self.random(order, seed=9)
        words, lengths = padded(self.SEEN, width=4)
        seen = mask_of(self.SEEN, words)
        found = distribution.state_marginals(words, lengths, seen)
        assert found.shape == (len(self.SEEN), 4, self.SIZES["state"])
        for b, sentence in enumerate(self.SEEN):
            paths = self.paths(parameters, sentence)
            for time in range(4):
                expected = torch.zeros(self.SIZES["state"], dtype=torch.float64)
                if time < len(sentence):
                    expected.index_add_(0, paths.states[:, time], paths.posterior)
                torch.testing.assert_close(found[b, time], expected, **EXACT)
        some = torch.tensor([[2, 1], [0, 0], [2, 2], [2, 1]])
        rows = distribution.state_marginals(words, lengths, seen, positions=some)
        torch.testing.assert_close(rows, found[some[:, 0], some[:, 1]], **EXACT)

    def test_filter_surprisal_and_next_word(self, order: str) -> None:
        distribution, parameters = self.random(order, seed=10)
        words, lengths = padded(SENTENCES, width=6)
        beliefs, surprisals = distribution.filter(words, lengths), distribution.surprisal(words, lengths)
        following = distribution.next_word(words, lengths)
        assert beliefs.shape == (6, 6, self.SIZES["state"])
        assert surprisals.shape == (6, 6)
        for b, sentence in enumerate(SENTENCES):
            totals = [0.0]
            for time in range(len(sentence)):
                paths = self.paths(parameters, sentence[: time + 1])
                expected = torch.zeros(self.SIZES["state"], dtype=torch.float64)
                expected.index_add_(0, paths.states[:, time], paths.posterior)
                torch.testing.assert_close(beliefs[b, time], expected, **EXACT)
                totals.append(paths.log_z.item())
                assert surprisals[b, time].item() == pytest.approx(totals[-2] - totals[-1], rel=1e-9)
            assert not surprisals[b, len(sentence) :].any()
            assert not beliefs[b, len(sentence) :].any()
            if len(sentence) < 5:
                ways = [self.derivations(parameters, [*sentence, word]).log_z for word in range(VOCABULARY)]
                torch.testing.assert_close(following[b], torch.stack(ways) - totals[-1], **EXACT)

    def test_one_word_at_a_time(self, order: str) -> None:
        distribution, _ = self.random(order, seed=11)
        words = torch.tensor([[0, 1, 3, 2], [2, 2, 0, 1]])
        seen = torch.tensor([[True, True, False, True]] * 2)
        state = distribution.begin(batch=2)
        assert state.log_prob.tolist() == [0, 0]
        torch.testing.assert_close(state.filter(), distribution.parameters["log_start"].exp().expand(2, -1), **EXACT)
        beliefs = distribution.filter(words, observed=seen)
        for time in range(4):
            expected = distribution.next_word(words[:, :time], observed=seen[:, :time])
            torch.testing.assert_close(state.next_word(), expected, **EXACT)
            state = state.step(words[:, time] if seen[0, time] else None)
            torch.testing.assert_close(state.filter(), beliefs[:, time], **EXACT)
            so_far = distribution.log_prob(words[:, : time + 1], observed=seen[:, : time + 1])
            torch.testing.assert_close(state.log_prob, so_far, **EXACT)

    def test_best_paths(self, order: str) -> None:
        distribution, parameters = self.random(order, seed=12, scale=2.0)
        words, lengths = padded(self.SEEN)
        found = self.best(distribution, words, lengths, mask_of(self.SEEN, words))
        for sentence, path in zip(self.SEEN, found, strict=True):
            paths = self.paths(parameters, sentence)
            top = paths.log_weights.max().item()
            assert path.log_joint.item() == pytest.approx(top, abs=1e-9)
            best = paths.keys()[int(paths.log_weights.argmax())]
            assert self.keys_of(path) == [best]

    def best(self, distribution: Any, words: Tensor, lengths: list[int], seen: Tensor | None = None) -> list[Any]:
        return distribution.viterbi_joint(words, lengths, seen)

    @staticmethod
    def keys_of(path: Any) -> list[tuple[int, ...]]:
        """Of one path or several samples, as `Paths.keys`."""
        columns = [field for field in (path.states, path.ranks) if field is not None]
        columns += [] if path.first is None else [path.first[..., None]]
        table = torch.cat(columns, -1)
        return [tuple(row) for row in (table if table.dim() == 2 else table[None]).tolist()]

    def test_posterior_samples(self, order: str) -> None:
        distribution, parameters = self.random(order, seed=13)
        words, lengths = padded(self.SEEN)
        num, seen = 4000, mask_of(self.SEEN, words)
        found = distribution.sample_posterior(words, lengths, num, torch.Generator().manual_seed(0), seen)
        for sentence, samples in zip(self.SEEN, found, strict=True):
            assert samples is not None
            assert samples.states.shape == (num, len(sentence))
            paths = self.paths(parameters, sentence)
            check_frequencies(
                Counter(self.keys_of(samples)), dict(zip(paths.keys(), paths.posterior.tolist(), strict=True)), num
            )
            weights = dict(zip(paths.keys(), paths.log_weights.tolist(), strict=True))
            of_samples = [weights[key] for key in self.keys_of(samples)]
            torch.testing.assert_close(samples.log_joint, torch.tensor(of_samples, dtype=torch.float64), **EXACT)
        again = distribution.sample_posterior(words, lengths, num, torch.Generator().manual_seed(0), seen)
        assert all(torch.equal(one.states, other.states) for one, other in zip(found, again, strict=True))

    def test_samples_without_an_end(self, order: str) -> None:
        distribution, parameters = self.random(order, seed=14)
        sample = distribution.sample(3000, 2, torch.Generator().manual_seed(0))
        assert sample.lengths.unique().tolist() == [2]
        assert not sample.cut.any()
        assert sample.lost_mass.item() == 0
        expected = {}
        for sentence in product(range(VOCABULARY), repeat=2):
            paths = self.paths(parameters, sentence)
            for key, weight in zip(paths.keys(), paths.log_weights.exp().tolist(), strict=True):
                expected[(*sentence, *key)] = weight
        ranks = None if sample.ranks is None else sample.ranks[:, : 2 - (sample.first is None)]
        keys = self.keys_of(sample._replace(ranks=ranks))
        drawn = Counter((*sentence, *key) for sentence, key in zip(sample.words.tolist(), keys, strict=True))
        check_frequencies(drawn, expected, 3000)

    def test_samples_with_an_end(self, order: str) -> None:
        parameters = self.parameters(15)
        distribution = self.make(parameters, order, eos=1)
        sample = distribution.sample(2000, 3, torch.Generator().manual_seed(1))
        expected, cut = {}, 0.0
        for sentence in product(range(VOCABULARY), repeat=3):
            ended = sentence[: sentence.index(1) + 1] if 1 in sentence else sentence
            probability = self.derivations(parameters, sentence).log_z.exp().item()
            expected[ended] = expected.get(ended, 0.0) + probability
            cut += 0.0 if 1 in sentence else probability
        assert sample.lost_mass.item() == pytest.approx(cut, rel=1e-9)
        rows = [tuple(row[:n].tolist()) for row, n in zip(sample.words, sample.lengths.tolist(), strict=True)]
        assert [1 not in row for row in rows] == sample.cut.tolist()
        check_frequencies(Counter(rows), expected, 2000)
        of_any_length = distribution.sample(20, 10**9, torch.Generator().manual_seed(1))
        assert (of_any_length.lost_mass.item(), of_any_length.cut.any().item()) == (0, False)
        beyond = torch.arange(sample.words.shape[1]) >= sample.lengths[:, None]
        assert (sample.words[beyond] == -1).all()
        assert (sample.states[beyond] == -1).all()
        assert (sample.states[~beyond] >= 0).all()

    def test_entropies(self, order: str) -> None:
        one, parameters = self.random(order, seed=16)
        other, others = self.random(order, seed=17)
        words, lengths = padded(self.SEEN)
        seen = mask_of(self.SEEN, words)
        entropy = one.posterior_entropy(words, lengths, seen)
        cross, kl = (query(other, words, lengths, seen) for query in (one.posterior_cross_entropy, one.posterior_kl))
        for b, sentence in enumerate(self.SEEN):
            if not sentence:
                assert entropy[b] == cross[b] == kl[b] == 0
                continue
            mine, theirs = self.derivations(parameters, sentence), self.derivations(others, sentence)
            p, log_p, log_q = mine.posterior, mine.posterior.log(), theirs.posterior.log()
            assert entropy[b].item() == pytest.approx(-(p * log_p).sum().item(), rel=1e-9)
            assert cross[b].item() == pytest.approx(-(p * log_q).sum().item(), rel=1e-9)
            assert kl[b].item() == pytest.approx((p * (log_p - log_q)).sum().item(), rel=1e-7)

    # Zeros. `sparse` allows 0 and 1 in any order, and 3 at the end: 2 never.

    POSSIBLE: ClassVar[list[list[int]]] = [[0, 1, 0], [3, 3, 3], [1, 3], [0], [1, 0, 3, 3]]
    IMPOSSIBLE: ClassVar[list[list[int]]] = [[3, 0], [2], [0, 2, 1], [0, 3, 3, 1]]

    @pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
    def test_zeros(self, order: str, dtype: torch.dtype) -> None:
        wide = {name: value.requires_grad_() for name, value in self.sparse().items()}
        parameters = {name: value.detach().to(dtype).requires_grad_() for name, value in wide.items()}
        sentences = [self.POSSIBLE[0], *self.IMPOSSIBLE, *self.POSSIBLE[1:]]
        words, lengths = padded(sentences)
        distribution = self.make(parameters, order)
        found = distribution.log_prob(words, lengths)
        expected = [self.derivations(wide, sentence).log_z for sentence in sentences]
        tolerance = EXACT if dtype == torch.float64 else SINGLE
        torch.testing.assert_close(found.double(), torch.stack(expected), **tolerance)
        assert [row.item() == -math.inf for row in found] == [sentence in self.IMPOSSIBLE for sentence in sentences]
        slopes = torch.autograd.grad(found[found > -math.inf].sum(), list(parameters.values()))
        true = safe_sum(expected)
        for slope, other in zip(slopes, torch.autograd.grad(true, list(wide.values())), strict=True):
            torch.testing.assert_close(slope.double(), other, **tolerance)
        nothing = torch.autograd.grad(distribution.log_prob(words[1:5], lengths[1:5]).sum(), list(parameters.values()))
        assert all(not slope.any() for slope in nothing)

    def test_sparse_models_stay_in_linear_space(self, order: str, monkeypatch: pytest.MonkeyPatch) -> None:
        distribution = self.make(self.sparse(), order)
        monkeypatch.setattr(self.KIND, "_redone", None, raising=False)  # calling it would fail
        sentences = [*self.POSSIBLE, *self.IMPOSSIBLE]
        assert (distribution.log_prob(*padded(sentences)) > -math.inf).sum() == len(self.POSSIBLE)

    def test_queries_with_zeros(self, order: str) -> None:
        parameters = self.sparse()
        distribution = self.make(parameters, order)
        sentences = [*self.POSSIBLE[:3], *self.IMPOSSIBLE]
        words, lengths = padded(sentences)
        marginals, entropy = (
            distribution.state_marginals(words, lengths),
            distribution.posterior_entropy(words, lengths),
        )
        samples = distribution.sample_posterior(words, lengths, 50, torch.Generator().manual_seed(0))
        best, surprisals = self.best(distribution, words, lengths), distribution.surprisal(words, lengths)
        following = distribution.next_word(words, lengths)
        assert marginals.isfinite().all()
        for b, sentence in enumerate(sentences):
            paths = self.derivations(parameters, sentence)
            if sentence in self.IMPOSSIBLE:
                assert not marginals[b].any()
                assert entropy[b] == 0
                assert samples[b] is None
                assert best[b] is None
                assert (following[b] == -math.inf).all()
                assert surprisals[b, : lengths[b]].max() == math.inf
                continue
            p = paths.posterior[paths.posterior > 0]
            assert entropy[b].item() == pytest.approx(-(p * p.log()).sum().item(), abs=1e-9)
            full = self.paths(parameters, sentence)
            allowed = {key for key, weight in zip(full.keys(), full.posterior.tolist(), strict=True) if weight > 0}
            assert set(self.keys_of(samples[b])) <= allowed
            assert best[b].log_joint.item() == pytest.approx(full.log_weights.max().item(), abs=1e-9)
            torch.testing.assert_close(marginals[b, : lengths[b]].sum(1), torch.ones(lengths[b]).double(), **EXACT)
            torch.testing.assert_close(following[b].logsumexp(0), torch.zeros((), dtype=torch.float64), **EXACT)

    def test_cross_entropy_with_what_forbids_more(self, order: str) -> None:
        free, _ = self.random(order, seed=18)
        narrow = self.make(self.sparse(), order)
        words, lengths = padded([[0, 1], [0, 1, 0]])
        assert free.posterior_cross_entropy(narrow, words, lengths).tolist() == [math.inf, math.inf]
        assert narrow.posterior_cross_entropy(free, words, lengths).isfinite().all()

    # Numbers out of range.

    @pytest.mark.parametrize("scale", [1.0, 6.0, 20.0])
    @pytest.mark.parametrize("length", [2, 3, 60])
    def test_single_against_double_precision(self, order: str, scale: float, length: int) -> None:
        """The bounds of DESIGN, section 4: max(1e-4, 1e-6 |log Z|), and 1e-4 for gradients, relative to the largest."""
        wide = {
            name: value.float().double().requires_grad_()  # the same numbers in both
            for name, value in self.parameters(19, scale, state=40, rank=16, vocab=30).items()
        }
        narrow = {name: value.detach().float().requires_grad_() for name, value in wide.items()}
        words = torch.randint(30, (4, length), generator=torch.Generator().manual_seed(2))
        single = self.make(narrow, order, validate=False).log_prob(words)
        double = self.make(wide, order, validate=False).log_prob(words)
        bound = (1e-6 * double.abs()).clamp(min=1e-4)
        assert ((single.double() - double).abs() <= bound).all()
        slopes = torch.autograd.grad(single.sum(), list(narrow.values()))
        for slope, true in zip(slopes, torch.autograd.grad(double.sum(), list(wide.values())), strict=True):
            assert (slope.double() - true).abs().max() <= 1e-4 * true.abs().max()

    def test_long_sentences(self, order: str) -> None:
        """`tests/inference/test_chain.py` has one of 10,000 words: here every call has its shapes checked."""
        wide = self.parameters(20, state=6, rank=4, vocab=9)
        words = torch.randint(9, (2, 400), generator=torch.Generator().manual_seed(3))
        results = []
        for dtype in (torch.float32, torch.float64):
            parameters = {name: value.float().to(dtype).requires_grad_() for name, value in wide.items()}
            found = self.make(parameters, order, validate=False).log_prob(words, [400, 7])
            results.append([found.detach(), *torch.autograd.grad(found.sum(), list(parameters.values()))])
        (single, *slopes), (double, *others) = results
        assert double[0] < -400  # e^-400 is out of the range of float32
        assert ((single.double() - double).abs() <= (1e-6 * double.abs()).clamp(min=1e-4)).all()
        for slope, other in zip(slopes, others, strict=True):
            assert (slope.double() - other).abs().max() <= 1e-4 * other.abs().max()

    @pytest.mark.gpu
    def test_on_a_gpu(self, order: str) -> None:
        """The same numbers as on the CPU, and the same bits twice."""
        parameters = self.parameters(29, 3.0, dtype=torch.float32, state=40, rank=16, vocab=30)
        words = torch.randint(30, (6, 50), generator=torch.Generator().manual_seed(6))
        lengths = [50, 3, 0, 1, 50, 22]
        results = []
        for device in ("cpu", "cuda", "cuda"):
            leaves = {name: value.to(device).requires_grad_() for name, value in parameters.items()}
            distribution = self.make(leaves, order)
            found = distribution.log_prob(words, lengths)
            slopes = torch.autograd.grad(found.sum(), list(leaves.values()))
            generator = torch.Generator().manual_seed(0)
            paths = distribution.sample_posterior(words, lengths, 2, generator)
            best = self.best(distribution, words, lengths)
            tables = [distribution.state_marginals(words, lengths), distribution.posterior_entropy(words, lengths)]
            tables += [path.states for path in (*paths, *best)] + [distribution.next_word(words, lengths)]
            results.append([table.detach().cpu() for table in (found, *slopes, *tables)])
            assert distribution.sample(3, 5, generator).words.shape == (3, 5)
        for cpu, gpu, again in zip(*results, strict=True):
            torch.testing.assert_close(gpu, cpu, rtol=1e-4, atol=1e-4)
            assert torch.equal(gpu, again)

    def test_errors(self, order: str) -> None:
        distribution, parameters = self.random(order)
        name = self.KIND.__name__
        words = torch.tensor([[0, 1]])
        with pytest.raises(ValueError, match=rf"^{name}: eos is 4 but there are 4 words; give the number of the word "):
            self.make(parameters, order, eos=4)
        with pytest.raises(ValueError, match=rf"^{name}: observed is torch.bool \(1, 3\) but words are \(1, 2\); give"):
            distribution.log_prob(words, None, torch.ones(1, 3, dtype=torch.bool))
        with pytest.raises(ValueError, match=rf"^{name}: position \(0, 2\) is not a word of the batch; give pairs"):
            distribution.state_marginals(words, positions=torch.tensor([[0, 1], [0, 2]]))
        with pytest.raises(ValueError, match=rf"^{name}: word 4 is outside the vocabulary of 4; words are numbered "):
            distribution.log_prob(torch.tensor([[0, 4]]))
        with pytest.raises(ValueError, match=r"^step: words are \(2,\) but there are 1 sentences; give one word for "):
            distribution.begin().step(torch.tensor([0, 1]))
        with pytest.raises(ValueError, match=rf"^{name}: sample: max_length is 0; give at least one word."):
            distribution.sample(1, 0)


def safe_sum(values: Sequence[Tensor]) -> Tensor:
    return torch.stack([value for value in values if value > -math.inf]).sum()


__all__ = ["EXACT", "SENTENCES", "ChainSuite", "padded", "safe_logsumexp"]
