"""What every distribution over trees must fulfil, for each order and dtype: a class to inherit, with `model` set.

Sizes are small, and everything is compared with the enumeration of all derivations.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor

from distributions.prefix_suite import PrefixSuite
from distributions.tree_enumeration import Derivations, TreeModel, derivations
from rankspace import Tree

SENTENCES = ((3, 0, 1, 2), (1, 1), (0,), (), (2, 3, 1))
LENGTHS = [len(sentence) for sentence in SENTENCES]
POISON = 99  # where there is no word
# float64: sums of some ten thousand products of some ten numbers, each good to 1e-16; float32: 1e-7 likewise.
CLOSE = {torch.float64: {"rtol": 1e-9, "atol": 1e-10}, torch.float32: {"rtol": 2e-5, "atol": 2e-5}}


def padded(sentences: Sequence[Sequence[int]] = SENTENCES, room: int = 1) -> Tensor:
    longest = max(map(len, sentences)) + room
    return torch.tensor([[*sentence, *[POISON] * (longest - len(sentence))] for sentence in sentences])


def gradients(total: Tensor, leaves: Sequence[Tensor]) -> list[Tensor]:
    """Zeros where nothing depends on a leaf. The graph can be gone through again."""
    if not total.requires_grad:
        return [torch.zeros_like(leaf) for leaf in leaves]
    return list(torch.autograd.grad(total, leaves, retain_graph=True, allow_unused=True, materialize_grads=True))


def finite_sum(log_z: Tensor) -> Tensor:
    return log_z.where(log_z > -math.inf, 0).sum()


def chart_of(found: Derivations, probabilities: Tensor, size: int) -> Tensor:
    chart = torch.zeros(size, size, dtype=torch.float64)
    for nodes, p in zip(found.labelled, probabilities.tolist(), strict=True):
        for i, j, _ in nodes:
            chart[i, j] += p
    return chart


def check_frequencies(counts: Counter[Any], probabilities: dict[Any, float], num: int) -> None:
    """Chi-square: outcomes that are expected less than five times are put together."""
    assert set(counts) <= {key for key, p in probabilities.items() if p > 0}
    rare = [key for key, p in probabilities.items() if num * p < 5]
    cells = [(counts[key], num * p) for key, p in probabilities.items() if num * p >= 5]
    expected = num * sum(probabilities[key] for key in rare)
    if expected >= 5:
        cells.append((sum(counts[key] for key in rare), expected))
    statistic = sum((seen - wanted) ** 2 / wanted for seen, wanted in cells)
    freedom = len(cells) - 1
    assert statistic < freedom + 4 * math.sqrt(2 * max(1, freedom))  # four standard deviations; the seed is fixed


class TreeSuite(PrefixSuite):
    """Set `model`; classes that inherit are run as they stand."""

    model: ClassVar[TreeModel]

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        if "order" in metafunc.fixturenames:
            metafunc.parametrize("order", self.model.orders)
        if "dtype" in metafunc.fixturenames:
            metafunc.parametrize("dtype", [torch.float64, torch.float32], ids=["float64", "float32"])

    def distribution(self, parameters: dict[str, Tensor] | None = None, **options: Any) -> Any:
        return self.model.make(**(parameters or self.model.parameters()), **options)

    def enumerated(self, sentences: Sequence[Sequence[int]] = SENTENCES) -> list[Derivations]:
        return [derivations(self.model, sentence) for sentence in sentences]

    def log_z(self, parameters: dict[str, Tensor]) -> Tensor:
        return torch.stack([found.log_z(parameters) for found in self.enumerated()])

    # Values and gradients.

    def test_log_prob_and_gradients(self, order: str, dtype: torch.dtype) -> None:
        exact = {name: value.requires_grad_() for name, value in self.model.parameters().items()}
        given = {name: value.detach().to(dtype).requires_grad_() for name, value in exact.items()}
        expected = self.log_z(exact)
        for backend in ("auto", "autograd"):
            found = self.distribution(given, order=order, backend=backend).log_prob(padded(), LENGTHS)
            assert found.dtype == dtype
            torch.testing.assert_close(found.double(), expected, **CLOSE[dtype])
            slopes = gradients(finite_sum(found), list(given.values()))
            wanted = gradients(finite_sum(expected), list(exact.values()))
            for mine, theirs in zip(slopes, wanted, strict=True):
                torch.testing.assert_close(mine.double(), theirs, **CLOSE[dtype])

    def test_gradcheck(self, order: str) -> None:
        names, leaves = zip(*self.model.parameters().items(), strict=True)
        leaves = tuple(leaf.requires_grad_() for leaf in leaves)
        generator = torch.Generator().manual_seed(4)
        weights = torch.randn(2, 4, 4, generator=generator, dtype=torch.float64).requires_grad_()
        words, slopes = torch.tensor([[0, 1, 2], [3, 1, POISON]]), torch.tensor([1, 3])

        def log_prob(weights: Tensor, *values: Tensor) -> Tensor:
            made = self.distribution(dict(zip(names, values, strict=True)), order=order, validate=False)
            return made.log_prob(words, [3, 2], span_weights=weights) * slopes

        assert torch.autograd.gradcheck(log_prob, (weights, *leaves))

    def test_second_derivatives_in_plain_operations(self) -> None:
        names, leaves = zip(*self.model.parameters().items(), strict=True)
        leaves = tuple(leaf.requires_grad_() for leaf in leaves)

        def log_prob(*values: Tensor) -> Tensor:
            made = self.distribution(dict(zip(names, values, strict=True)), backend="autograd", validate=False)
            return made.log_prob(torch.tensor([[0, 1, 2]]))

        assert torch.autograd.gradgradcheck(log_prob, leaves)

    def test_the_same_bits_twice(self, order: str, dtype: torch.dtype) -> None:
        results = []
        for _ in range(2):
            given = {name: value.requires_grad_() for name, value in self.model.parameters(dtype=dtype).items()}
            found = self.distribution(given, order=order).log_prob(padded(), LENGTHS)
            results.append([found.detach(), *gradients(finite_sum(found), list(given.values()))])
        assert all(torch.equal(one, other) for one, other in zip(*results, strict=True))

    def test_backward_twice_through_one_graph(self) -> None:
        given = {name: value.requires_grad_() for name, value in self.model.parameters().items()}
        total = finite_sum(self.distribution(given).log_prob(padded(), LENGTHS))
        first = torch.autograd.grad(total, list(given.values()), retain_graph=True)
        second = torch.autograd.grad(total, list(given.values()))
        assert all(torch.equal(one, other) for one, other in zip(first, second, strict=True))

    # Batches.

    def test_lengths_zero_to_five_in_one_batch(self, order: str, dtype: torch.dtype) -> None:
        made = self.distribution(self.model.parameters(dtype=dtype), order=order)
        sentences = [[(3 * i + j) % 4 for j in range(n)] for i, n in enumerate([2, 5, 0, 3, 1, 4, 5])]
        together = made.log_prob(padded(sentences), [len(sentence) for sentence in sentences])
        for sentence, value in zip(sentences, together, strict=True):
            alone = made.log_prob(torch.tensor([sentence], dtype=torch.int64).view(1, -1))[0]
            torch.testing.assert_close(alone, value, **CLOSE[dtype])
        assert [value > -math.inf for value in together.tolist()] == [len(sentence) > 1 for sentence in sentences]

    def test_order_of_sentences_and_room_do_not_matter(self) -> None:
        made = self.distribution()
        permutation = [3, 1, 4, 0, 2]
        words, lengths = padded(room=4)[permutation], [LENGTHS[i] for i in permutation]
        close = CLOSE[torch.float64]
        torch.testing.assert_close(
            made.log_prob(words, torch.tensor(lengths)), made.log_prob(padded(), LENGTHS)[permutation], **close
        )
        there = made.span_marginals(words, lengths)[:, :6, :6]
        torch.testing.assert_close(there, made.span_marginals(padded(), LENGTHS)[permutation], **close)

    def test_no_sentences_and_empty_ones(self) -> None:
        made = self.distribution()
        assert made.log_prob(torch.zeros(0, 3, dtype=torch.int64)).shape == (0,)
        empty = torch.zeros(2, 0, dtype=torch.int64)
        assert made.log_prob(empty).tolist() == [-math.inf, -math.inf]
        assert made.mbr(empty) == [None, None]
        assert made.sample_posterior(empty) == [None, None]
        assert made.span_marginals(empty).tolist() == [[[0.0]], [[0.0]]]
        assert getattr(made, self.model.best)(empty).trees == [None, None]

    # Zeros.

    def with_zeros(self, seed: int = 0, share: float = 0.4) -> dict[str, Tensor]:
        """Many entries are exactly zero."""
        generator = torch.Generator().manual_seed(seed)
        found = {}
        for name, value in self.model.parameters(seed).items():
            gone = torch.rand(value.shape, generator=generator) < share
            axes = self.model.joint.get(name, 1)
            gone.flatten(-axes)[..., 0] = False
            kept = value.masked_fill(gone, -math.inf).flatten(-axes)
            found[name] = (kept - kept.logsumexp(-1, keepdim=True)).view(value.shape)
        return found

    @pytest.mark.parametrize("seed", range(4))
    def test_parameters_that_are_zero(self, order: str, dtype: torch.dtype, seed: int) -> None:
        exact = {name: value.requires_grad_() for name, value in self.with_zeros(seed).items()}
        given = {name: value.detach().to(dtype).requires_grad_() for name, value in exact.items()}
        expected = self.log_z(exact)
        for backend in ("auto", "autograd"):
            found = self.distribution(given, order=order, backend=backend).log_prob(padded(), LENGTHS)
            torch.testing.assert_close(found.double(), expected, **CLOSE[dtype])
            slopes = gradients(finite_sum(found), list(given.values()))
            wanted = gradients(finite_sum(expected), list(exact.values()))
            for mine, theirs in zip(slopes, wanted, strict=True):
                torch.testing.assert_close(mine.double(), theirs.nan_to_num(0), **CLOSE[dtype])

    def test_a_word_that_nothing_emits_is_impossible(self, order: str, dtype: torch.dtype) -> None:
        parameters = self.model.parameters(dtype=dtype)
        emission = parameters["log_emission"].clone()
        emission[:, 3] = -math.inf
        parameters["log_emission"] = emission.log_softmax(-1)
        given = {name: value.requires_grad_() for name, value in parameters.items()}
        made = self.distribution(given, order=order)
        words, lengths = torch.tensor([[3, 0, 1], [0, 1, 2]]), [3, 3]
        found = made.log_prob(words, lengths)
        assert found[0] == -math.inf
        assert found[1] > -math.inf
        alone = gradients(made.log_prob(words[1:], [3]).sum(), list(given.values()))
        for mine, theirs in zip(gradients(found.sum(), list(given.values())), alone, strict=True):
            torch.testing.assert_close(mine, theirs, **CLOSE[dtype])
        for slope in gradients(made.log_prob(words[:1], [3]).sum(), list(given.values())):
            assert bool((slope == 0).all())
        assert bool((made.span_marginals(words, lengths)[0] == 0).all())
        assert bool((made.labelled_marginals(words, lengths)[0] == 0).all())
        assert made.mbr(words, lengths)[0] is None
        assert made.mbr(words, lengths, labelled=True)[0] is None
        assert made.mbr_kbest(words, lengths, k=2)[0] == []
        assert made.sample_posterior(words, lengths)[0] is None
        assert made.sample_posterior(words, lengths)[1] is not None
        best = getattr(made, self.model.best)(words, lengths)
        assert best.trees[0] is None
        assert best.log_prob[0] == -math.inf
        assert made.posterior_entropy(words, lengths)[0] == 0

    def left_branching(self, rare: float, dtype: torch.dtype) -> dict[str, Tensor]:
        """Two nonterminals that never mix, A_s -> A_s T_s or T_s T_s; T_0 emits a alone, T_1 a rarely and else b."""
        left = torch.tensor([[0.5, 0, 0.5, 0], [0, 0.5, 0, 0.5]], dtype=torch.float64)
        right = torch.tensor([[0.0, 0, 1, 0], [0, 0, 0, 1]], dtype=torch.float64)
        emission = torch.tensor([[1, 0], [rare, 1 - rare]], dtype=torch.float64)
        rules = self.model.independent(left, right)
        root = torch.full((2,), 0.5, dtype=torch.float64)
        linear = {"log_root": root, **rules, "log_emission": emission}
        return {name: value.log().to(dtype) for name, value in linear.items()}

    @pytest.mark.parametrize("rare", [1e-2, 1e-30])
    def test_the_only_way_on_is_far_below_the_largest(self, order: str, dtype: torch.dtype, rare: float) -> None:
        """a^40 b: the nonterminal that can have b has 1e-80 or 1e-1200 times the mass of the other one."""
        parameters = {name: value.requires_grad_() for name, value in self.left_branching(rare, dtype).items()}
        made = self.distribution(parameters, order=order)
        words = torch.tensor([[0] * 40 + [1], [0] * 41])
        found = made.log_prob(words)
        exact = {name: value.double() for name, value in parameters.items()}["log_emission"][1]
        expected = 41 * math.log(0.5) + 40 * exact[0] + exact[1]
        torch.testing.assert_close(found[0].double(), expected.detach(), rtol=1e-6, atol=1e-4)
        assert found[1].item() == pytest.approx(41 * math.log(0.5), rel=1e-6)
        emission = gradients(found[0], [parameters["log_emission"]])[0]
        torch.testing.assert_close(emission, torch.tensor([[0, 0], [40, 1]], dtype=dtype), rtol=1e-4, atol=1e-4)
        spans = made.span_marginals(words)[0]
        assert bool((spans[0, 2:] > 0.999).all())
        assert spans.sum().item() == pytest.approx(81, rel=1e-4)
        (tree,) = made.sample_posterior(words[:1])[0]
        assert [node[:2] for node in tree.spans(2)] == [(0, end) for end in range(41, 1, -1)]
        assert {node.symbol for node in tree.spans(2)} == {1}
        assert made.labelled_marginals(words, spans=torch.tensor([[0, 0, 7], [0, 7, 8]])).tolist() == [
            pytest.approx([0, 1, 0, 0], abs=1e-4),
            pytest.approx([0, 0, 0, 1], abs=1e-4),
        ]
        assert made.posterior_entropy(words).tolist() == pytest.approx([0, 0], abs=2e-3)  # 1e-6 of a sum of -3000

    def test_one_derivation_only(self, order: str, dtype: torch.dtype) -> None:
        made = self.distribution(self.left_branching(0.5, dtype), order=order)
        words = torch.tensor([[0, 0, 1]])
        tree = Tree.from_spans([0, 0, 1], [(0, 3, 1), (0, 2, 1), (0, 1, 3), (1, 2, 3), (2, 3, 3)])
        assert made.log_prob(words).item() == pytest.approx(6 * math.log(0.5), rel=1e-6)
        assert getattr(made, self.model.best)(words).trees == [tree]
        assert made.mbr(words, labelled=True) == [tree]
        assert made.sample_posterior(words, num=3) == [[tree] * 3]
        assert made.posterior_entropy(words).item() == pytest.approx(0, abs=1e-5)

    # Spans.

    def test_span_marginals(self, order: str, dtype: torch.dtype) -> None:
        parameters = self.model.parameters()
        given = {name: value.to(dtype) for name, value in parameters.items()}
        found = self.distribution(given, order=order).span_marginals(padded(), LENGTHS)
        assert found.shape == (len(SENTENCES), 6, 6)
        for length, each, mine in zip(LENGTHS, self.enumerated(), found.double(), strict=True):
            expected = chart_of(each, each.posterior(parameters), 6)
            torch.testing.assert_close(mine, expected, **CLOSE[dtype])
            if length > 1:
                torch.testing.assert_close(mine.diagonal(1)[:length], torch.ones(length).double(), **CLOSE[dtype])
                assert mine.triu(2).sum().item() == pytest.approx(length - 1, rel=1e-5)

    def test_labelled_marginals(self, order: str, dtype: torch.dtype) -> None:
        parameters, symbols = self.model.parameters(), self.model.nonterminals + self.model.preterminals
        made = self.distribution({name: value.to(dtype) for name, value in parameters.items()}, order=order)
        expected = torch.zeros(len(SENTENCES), 6, 6, symbols, dtype=torch.float64)
        for table, each in zip(expected, self.enumerated(), strict=True):
            for nodes, p in zip(each.labelled, each.posterior(parameters).tolist(), strict=True):
                for node in nodes:
                    table[node] += p
        found = made.labelled_marginals(padded(), LENGTHS)
        torch.testing.assert_close(found.double(), expected, **CLOSE[dtype])
        spans = torch.tensor([[0, 1, 3], [4, 2, 3], [0, 0, 4], [0, 1, 3], [1, 0, 2]])
        some = made.labelled_marginals(padded(), LENGTHS, spans=spans)
        torch.testing.assert_close(some.double(), expected[tuple(spans.T)], **CLOSE[dtype])
        plain = self.distribution(parameters, backend="autograd").labelled_marginals(padded(), LENGTHS)
        torch.testing.assert_close(plain, expected, **CLOSE[torch.float64])

    def weights(self, forbid: bool) -> Tensor:
        generator = torch.Generator().manual_seed(5)
        weights = 3 * torch.randn(len(SENTENCES), 6, 6, generator=generator, dtype=torch.float64)
        if forbid:
            weights[0, 1, 3] = weights[4, 0, 2] = -math.inf
            weights[1, 0, 1] = -math.inf  # a word, so the whole sentence
        ends = torch.arange(6)
        real = (ends[:, None] < ends) & (ends <= torch.tensor(LENGTHS)[:, None, None])
        return weights.where(real, math.nan)

    @pytest.mark.parametrize("forbid", [False, True])
    @pytest.mark.parametrize("shift", [0.0, 300.0, -300.0])
    def test_span_weights(self, order: str, dtype: torch.dtype, forbid: bool, shift: float) -> None:
        weights = (self.weights(forbid) + shift).requires_grad_()
        parameters = self.model.parameters()
        expected = []
        for chart, each in zip(weights, self.enumerated(), strict=True):
            cells = torch.tensor([[6 * i + j for i, j, _ in nodes] for nodes in each.labelled], dtype=torch.int64)
            expected.append(each.log_z(parameters, chart.flatten()[cells].sum(-1)))
        wanted = torch.stack(expected)
        (marginals,) = gradients(finite_sum(wanted), [weights])
        given = {name: value.to(dtype) for name, value in parameters.items()}
        mine = weights.detach().to(dtype).requires_grad_()
        for backend in ("auto", "autograd"):
            made = self.distribution(given, order=order, backend=backend)
            found = made.log_prob(padded(), LENGTHS, span_weights=mine)
            tolerance = {"rtol": 1e-6, "atol": 1e-4} if dtype == torch.float32 else CLOSE[dtype]
            torch.testing.assert_close(found.double(), wanted, **tolerance)
            (slopes,) = gradients(finite_sum(found), [mine])
            torch.testing.assert_close(slopes.double(), marginals, rtol=1e-4, atol=tolerance["atol"])
            again = made.span_marginals(padded(), LENGTHS, span_weights=mine)
            torch.testing.assert_close(again, slopes)

    def test_log_joint(self, order: str, dtype: torch.dtype) -> None:
        parameters = self.model.parameters()
        made = self.distribution({name: value.to(dtype) for name, value in parameters.items()}, order=order)
        sentence = SENTENCES[0]
        each = derivations(self.model, sentence)
        log_weights = each.log_weights(parameters)
        for spans in [[(0, 2), (2, 4)], [(1, 4), (2, 4)], [(1, 3)], [], [(0, 1, 7), (1, 4)]]:
            tree = Tree.from_spans(sentence, spans)
            kept = [all(_nested(own, (a, b)) for a, b, *_ in spans for own in found) for found in each.bracketings]
            expected = log_weights[torch.tensor(kept)].logsumexp(0)
            words = torch.tensor([[*sentence, POISON], [1, 1, POISON, 0, 0]])
            found = made.log_joint(words, [tree, Tree.from_spans([1, 1], [])])
            torch.testing.assert_close(found[0].double(), expected, **CLOSE[dtype])
            torch.testing.assert_close(found[1], made.log_prob(torch.tensor([[1, 1]]))[0], **CLOSE[dtype])

    # Decoding.

    def test_mbr(self, order: str) -> None:
        parameters = self.model.parameters()
        made = self.distribution(parameters, order=order)
        trees = made.mbr(padded(), LENGTHS)
        ranked = made.mbr_kbest(padded(), LENGTHS, k=4)
        for sentence, tree, some, each in zip(SENTENCES, trees, ranked, self.enumerated(), strict=True):
            if len(sentence) < 2:
                assert tree is None
                assert some == []
                continue
            chart = chart_of(each, each.posterior(parameters), len(sentence) + 1)
            scores = {spans: sum(chart[span].item() for span in spans) for spans in set(each.bracketings)}
            best = sorted(scores.values(), reverse=True)[:4]
            assert tree.words == sentence
            assert scores[tuple(node[:2] for node in tree.spans(2))] == pytest.approx(best[0])
            assert [total for _, total in some] == pytest.approx(best)
            assert [scores[tuple(node[:2] for node in t.spans(2))] for t, _ in some] == pytest.approx(best)

    def test_labelled_mbr(self, order: str) -> None:
        parameters = self.model.parameters()
        trees = self.distribution(parameters, order=order).mbr(padded(), LENGTHS, labelled=True)
        for sentence, tree, each in zip(SENTENCES, trees, self.enumerated(), strict=True):
            if len(sentence) < 2:
                assert tree is None
                continue
            scores: dict[Any, float] = defaultdict(float)
            for nodes, p in zip(each.labelled, each.posterior(parameters).tolist(), strict=True):
                for node in nodes:
                    scores[node] += p
            totals = {nodes: sum(scores[node] for node in nodes) for nodes in set(each.labelled)}
            assert totals[tuple(map(tuple, tree.nodes))] == pytest.approx(max(totals.values()))

    def test_the_best_derivation(self, order: str, dtype: torch.dtype) -> None:
        for seed in range(3):
            parameters = self.model.parameters(seed)
            made = self.distribution({name: value.to(dtype) for name, value in parameters.items()}, order=order)
            best = getattr(made, self.model.best)(padded(), LENGTHS)
            for b, (sentence, each) in enumerate(zip(SENTENCES, self.enumerated(), strict=True)):
                if len(sentence) < 2:
                    assert best.trees[b] is None
                    assert best.log_prob[b] == -math.inf
                    continue
                top = each.log_weights(parameters).max(0)
                assert tuple(map(tuple, best.trees[b].nodes)) == each.labelled[int(top.indices)]
                torch.testing.assert_close(best.log_prob[b].double(), top.values, **CLOSE[dtype])

    # Samples.

    @pytest.mark.parametrize("backend", ["auto", "autograd"])
    def test_posterior_samples(self, order: str, backend: str) -> None:
        parameters, num = self.model.parameters(), 1000
        made = self.distribution(parameters, order=order, backend=backend)
        generator = torch.Generator().manual_seed(1)
        samples = made.sample_posterior(padded(), LENGTHS, num=num, generator=generator)
        for sentence, trees, each in zip(SENTENCES, samples, self.enumerated(), strict=True):
            if len(sentence) < 2:
                assert trees is None
                continue
            expected: dict[Any, float] = defaultdict(float)
            for nodes, p in zip(each.labelled, each.posterior(parameters).tolist(), strict=True):
                expected[nodes] += p
            check_frequencies(Counter(tuple(map(tuple, tree.nodes)) for tree in trees), expected, num)

    def test_prior_samples(self) -> None:
        parameters, num = self.model.parameters(), 2000
        made = self.distribution(parameters)
        found = made.sample(num, 3, generator=torch.Generator().manual_seed(5))
        vocabulary = range(4)
        pairs = [(a, b) for a in vocabulary for b in vocabulary]
        triples = [(a, b, c) for a, b in pairs for c in vocabulary]
        mass = {len(s): 0.0 for s in [pairs[0], triples[0]]}
        for sentence in [*pairs, *triples]:
            mass[len(sentence)] += derivations(self.model, sentence).log_z(parameters).exp().item()
        assert found.lost_mass == pytest.approx(1 - mass[2] - mass[3], abs=1e-9)
        assert [tree is None for tree in found.trees] == [i in found.dropped for i in range(num)]
        lengths = Counter(0 if tree is None else len(tree) for tree in found.trees)
        check_frequencies(lengths, {2: mass[2], 3: mass[3], 0: found.lost_mass}, num)
        short: dict[Any, float] = defaultdict(float)
        for sentence in pairs:
            each = derivations(self.model, sentence)
            for nodes, log_p in zip(each.labelled, each.log_weights(parameters).tolist(), strict=True):
                short[sentence, nodes] += math.exp(log_p) / mass[2]
        seen = Counter((t.words, tuple(map(tuple, t.nodes))) for t in found.trees if t is not None and len(t) == 2)
        check_frequencies(seen, short, lengths[2])

    def test_prior_samples_of_a_grammar_that_hardly_ends(self) -> None:
        left = torch.tensor([[0.95, 0.05], [0.95, 0.05]], dtype=torch.float64)[:1]
        rules = self.model.independent(left, left)
        linear = {"log_root": torch.ones(1), **rules, "log_emission": torch.ones(1, 1)}
        made = self.distribution({name: value.double().log() for name, value in linear.items()})
        found = made.sample(50, 20, generator=torch.Generator().manual_seed(3))
        assert len(found.dropped) > 40
        assert 0.9 < found.lost_mass < 1
        # a child branches with 0.95: n words have Catalan(n - 1) trees, of n leaves and, the root apart, n - 2 others
        catalan = [math.comb(2 * k, k) / (k + 1) for k in range(20)]
        ended = sum(catalan[n - 1] * 0.95 ** (n - 2) * 0.05**n for n in range(2, 21))
        assert found.lost_mass == pytest.approx(1 - ended)
        # p(a child ends) is the least q = 0.05 + 0.95 q^2; the root has two children
        assert made.sample(0, 10**9).lost_mass == pytest.approx(1 - (0.05 / 0.95) ** 2, rel=1e-12)

    @pytest.mark.parametrize("rare", [0.0, 1e-17])
    @pytest.mark.parametrize("length", [4, 10])
    def test_grammars_whose_sentences_are_long(self, length: int, rare: float) -> None:
        """One nonterminal after the other, each with a word at its left; and two words are rare, or impossible."""
        num = length - 1
        left, right = torch.zeros(2, num, num + 1, dtype=torch.float64)
        left[:, num] = 1
        for place in range(num):
            right[place, place + 1] = 1
        right[0, num] += rare
        root = torch.zeros(num, dtype=torch.float64)
        root[0] = 1
        rules = self.model.independent(left, right)
        linear = {"log_root": root, **rules, "log_emission": torch.ones(1, 1)}
        made = self.distribution({name: value.double().log() for name, value in linear.items()})
        for longest, expected in ((length - 1, 1), (length, 0), (10**9, 0)):
            assert made.sample(0, longest).lost_mass == pytest.approx(expected, abs=1e-12)

    def test_lengths_of_sparse_grammars(self) -> None:
        """Beside sums over all divisions of a span, which go on to the last length."""
        generator, n, longest = torch.Generator().manual_seed(0), 3, 30
        for _ in range(40):
            drawn = torch.rand(2, n, n + 2, generator=generator, dtype=torch.float64) ** 3
            drawn *= torch.rand(2, n, n + 2, generator=generator) < 0.5
            drawn[:, :, n] += 1e-3  # a child of one word at least
            left, right = drawn / drawn.sum(2, keepdim=True)
            root = torch.full((n,), 1 / n, dtype=torch.float64)
            rules = self.model.independent(left, right)
            linear = {"log_root": root, **rules, "log_emission": torch.ones(2, 1)}
            made = self.distribution({name: value.double().log() for name, value in linear.items()})
            children = torch.zeros(longest + 1, n + 2, dtype=torch.float64)  # [words, symbol]
            children[1, n:] = 1
            for width in range(2, longest + 1):
                parts = [(left @ children[k]) * (right @ children[width - k]) for k in range(1, width)]
                children[width, :n] = torch.stack(parts).sum(0)
            expected = children[:, :n] @ root
            found = made._log_lengths(longest).exp()
            padded = torch.nn.functional.pad(found, (0, longest + 1 - len(found)))
            torch.testing.assert_close(padded, expected * (torch.arange(longest + 1) > 1), rtol=1e-9, atol=1e-14)

    def test_sentences_of_any_length(self, dtype: torch.dtype) -> None:
        """The recursion over lengths ends where nothing is left, also of tables that sum to one within rounding."""
        left = torch.tensor([[0.4, 0.6]], dtype=torch.float64)
        rules = self.model.independent(left, left)
        linear = {"log_root": torch.ones(1), **rules, "log_emission": torch.ones(1, 1)}
        made = self.distribution({name: value.double().log().to(dtype) for name, value in linear.items()})
        lost = [made.sample(0, length).lost_mass for length in (2000, 10**9)]
        assert lost[1] == pytest.approx(lost[0], abs=1e-12)
        assert lost[1] == pytest.approx(0, abs=1e-12 if dtype == torch.float64 else 1e-5)

    # Counts and entropies.

    def test_expected_counts(self, order: str, dtype: torch.dtype) -> None:
        parameters = self.model.parameters()
        made = self.distribution({name: value.to(dtype) for name, value in parameters.items()}, order=order)
        counts = torch.zeros(sum(value.numel() for value in parameters.values()), dtype=torch.float64)
        for each in self.enumerated():
            if each.labelled:
                p = each.posterior(parameters)
                counts.index_add_(0, each.uses.flatten(), p[:, None].expand(each.uses.shape).flatten())
        found = made.expected_counts(padded(), LENGTHS)
        mine = torch.cat([found[name].flatten() for name in parameters])
        torch.testing.assert_close(mine.double(), counts, **CLOSE[dtype])

    def test_entropies(self, order: str, dtype: torch.dtype) -> None:
        one, two = self.model.parameters(0), self.model.parameters(1)
        p = self.distribution({name: value.to(dtype) for name, value in one.items()}, order=order)
        q = self.distribution({name: value.to(dtype) for name, value in two.items()}, order=order)
        entropy, cross, kl = [], [], []
        for each in self.enumerated():
            own, other = (each.log_weights(x).log_softmax(0) for x in (one, two))
            entropy.append(-(own.exp() * own).sum())
            cross.append(-(own.exp() * other).sum())
            kl.append((own.exp() * (own - other)).sum())
        words, close = (padded(), LENGTHS), {"rtol": 1e-4, "atol": 1e-4} if dtype == torch.float32 else CLOSE[dtype]
        torch.testing.assert_close(p.posterior_entropy(*words).double(), torch.stack(entropy), **close)
        torch.testing.assert_close(p.posterior_cross_entropy(q, *words).double(), torch.stack(cross), **close)
        torch.testing.assert_close(p.posterior_kl(q, *words).double(), torch.stack(kl), **close)

    def test_divergence_is_infinite_where_the_other_forbids(self) -> None:
        one, two = self.model.parameters(), self.with_zeros(1)
        p, q = self.distribution(one), self.distribution(two)
        assert p.posterior_kl(q, padded(), LENGTHS).tolist() == [math.inf, math.inf, 0, 0, math.inf]
        found = q.posterior_cross_entropy(p, padded(), LENGTHS)
        for each, mine in zip(self.enumerated(), found, strict=True):
            own, other = (each.log_weights(x).log_softmax(0) for x in (two, one))
            expected = -(own.exp() * other.where(own > -math.inf, 0)).sum().nan_to_num(0)
            torch.testing.assert_close(mine, expected, **CLOSE[torch.float64])

    # Mistakes.

    def test_wrong_arguments(self) -> None:
        made = self.distribution()
        name = type(made).__name__
        words = torch.tensor([[0, 1, 2]])
        with pytest.raises(ValueError, match="span_weights") as weights:
            made.log_prob(words, span_weights=torch.zeros(1, 3, 3))
        assert str(weights.value) == (
            f"{name}: span_weights are (1, 3, 3) but words (1, 3) need (1, 4, 4): [batch, begin, end]."
        )
        with pytest.raises(ValueError, match="span_weights") as infinite:
            made.log_prob(words, span_weights=torch.full((1, 4, 4), math.inf))
        assert str(infinite.value) == (
            f"{name}: span_weights have NaN or +inf at a span of its sentence; give numbers, or -inf to forbid a span."
        )
        with pytest.raises(ValueError, match="spans") as spans:
            made.labelled_marginals(words, spans=torch.tensor([[0, 0, 3], [0, 2, 4]]))
        assert str(spans.value) == (
            f"{name}: spans[1] is (0, 2, 4), which is no (sentence, begin, end) of this batch; give 0 <= begin < end "
            f"<= length."
        )
        with pytest.raises(ValueError, match="trees") as trees:
            made.log_joint(words, [])
        assert str(trees.value) == (
            f"{name}.log_joint: 0 trees of 0 words or fewer do not fit words (1, 3); give one tree for each row."
        )
        with pytest.raises(ValueError, match="vocabulary") as unknown:
            made.log_prob(torch.tensor([[0, 4]]))
        assert str(unknown.value) == f"{name}: word 4 is outside the vocabulary of 4; words are numbered from 0."


def _nested(one: tuple[int, int], other: tuple[int, int]) -> bool:
    """Whether two spans do not cross."""
    (a, b), (c, d) = one, other
    return b <= c or d <= a or (a <= c and d <= b) or (c <= a and b <= d)
