"""Low-rank trees with parameters of every sentence's own: each query equals that of each sentence alone."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from rankspace.distributions import RankSpacePCFG, SimplePCFG
from rankspace.trees import Tree

EXACT: dict[str, float] = {"rtol": 1e-9, "atol": 1e-11}  # float64, sums in another order
NARROW: dict[str, float] = {"rtol": 1e-4, "atol": 1e-5}  # float32, likewise

NONTERMINALS, PRETERMINALS, RANK, VOCABULARY = 3, 2, 4, 4
SYMBOLS = NONTERMINALS + PRETERMINALS
WORDS = torch.tensor(
    [
        [0, 3, 1, 2, 99, 99],
        [1, 99, 99, 99, 99, 99],
        [2, 2, 99, 99, 99, 99],
        [3, 1, 0, 1, 2, 0],
        [0, 1, 3, 99, 99, 99],
        [2, 3, 99, 99, 99, 99],
    ]
)
LENGTHS = [4, 1, 2, 6, 3, 2]

SHAPES: dict[type, dict[str, tuple[int, ...]]] = {
    SimplePCFG: {
        "log_root": (NONTERMINALS,),
        "log_left": (NONTERMINALS, SYMBOLS),
        "log_right": (NONTERMINALS, SYMBOLS),
        "log_emission": (PRETERMINALS, VOCABULARY),
    },
    RankSpacePCFG: {
        "log_root": (NONTERMINALS,),
        "log_head": (NONTERMINALS, RANK),
        "log_left": (RANK, SYMBOLS),
        "log_right": (RANK, SYMBOLS),
        "log_emission": (PRETERMINALS, VOCABULARY),
    },
}
KINDS: dict[str, tuple[type, dict[str, Any]]] = {
    "simple": (SimplePCFG, {}),
    "rank order": (RankSpacePCFG, {"order": "rank"}),
    "state order": (RankSpacePCFG, {"order": "state"}),
}
SHARED: dict[str, tuple[str, ...]] = {
    "all are each sentence's": (),
    "words are shared": ("log_emission",),
    "one rule and words are shared": ("log_right", "log_emission"),
    "rules are shared": ("log_head", "log_left", "log_right"),
    "root alone": ("log_head", "log_left", "log_right", "log_emission"),
}


def parameters_of(kind: type, batch: int, scale: float = 1.0, seed: int = 0) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {
        name: (scale * torch.randn(batch, *shape, generator=generator, dtype=torch.float64)).log_softmax(-1)
        for name, shape in SHAPES[kind].items()
    }


def leaves_of(parameters: dict[str, Tensor], dtype: torch.dtype = torch.float64) -> dict[str, Tensor]:
    return {name: value.detach().to(dtype).requires_grad_() for name, value in parameters.items()}


class Case:
    """Parameters, some of each sentence's own; the distribution; and that of each sentence alone."""

    def __init__(self, kind: str, shared: tuple[str, ...], dtype: torch.dtype = torch.float64, seed: int = 0) -> None:
        self.kind, self.options = KINDS[kind]
        parameters = parameters_of(self.kind, len(LENGTHS), seed=seed)
        self.shared = [name for name in shared if name in parameters]
        for name in self.shared:
            parameters[name] = parameters[name][0]
        self.leaves = leaves_of(parameters, dtype)
        self.close = EXACT if dtype == torch.float64 else NARROW

    def together(self, **options: Any) -> Any:
        return self.kind(**self.leaves, **self.options, **options)

    def alone(self, b: int) -> Any:
        own = {name: value if name in self.shared else value[b] for name, value in self.leaves.items()}
        return self.kind(**own, **self.options)

    def same(self, found: Tensor, expected: Tensor) -> None:
        torch.testing.assert_close(found, expected, **self.close)


CASES = [("simple", shared) for shared in SHARED] + [
    ("rank order", "all are each sentence's"),
    ("rank order", "root alone"),
    ("state order", "one rule and words are shared"),
    ("state order", "rules are shared"),
]


@pytest.fixture(params=CASES, ids=", ".join)
def case(request: pytest.FixtureRequest) -> Case:
    kind, shared = request.param
    return Case(kind, SHARED[shared])


def words_of(b: int) -> Tensor:
    return WORDS[b : b + 1, : LENGTHS[b]]


def each(query: Callable[[int, Tensor], Tensor]) -> Tensor:
    return torch.cat([query(b, words_of(b)) for b in range(len(LENGTHS))])


def gradients(log_prob: Tensor, leaves: dict[str, Tensor]) -> tuple[Tensor, ...]:
    return torch.autograd.grad(log_prob[log_prob > -math.inf].sum(), list(leaves.values()))


@pytest.mark.parametrize("backend", ["torch", "autograd"])
def test_log_prob_and_gradients(case: Case, backend: str) -> None:
    together = case.together(backend=backend).log_prob(WORDS, LENGTHS)
    alone = each(lambda b, words: case.alone(b).log_prob(words))
    case.same(together, alone)
    for mine, theirs in zip(gradients(together, case.leaves), gradients(alone, case.leaves), strict=True):
        case.same(mine, theirs)


@pytest.mark.parametrize("kind", KINDS)
def test_float32(kind: str) -> None:
    case = Case(kind, (), torch.float32)
    together = case.together().log_prob(WORDS, LENGTHS)
    alone = each(lambda b, words: case.alone(b).log_prob(words))
    case.same(together, alone)
    for mine, theirs in zip(gradients(together, case.leaves), gradients(alone, case.leaves), strict=True):
        case.same(mine, theirs)
    labels = case.together().labelled_marginals(WORDS, LENGTHS)
    for b, n in enumerate(LENGTHS):
        case.same(labels[b, : n + 1, : n + 1], case.alone(b).labelled_marginals(words_of(b))[0])


@pytest.mark.parametrize("kind", KINDS)
def test_gradcheck(kind: str) -> None:
    """Along random directions: there are hundreds of parameters."""
    case = Case(kind, ())

    def log_prob(weights: Tensor, *values: Tensor) -> Tensor:
        made = case.kind(**dict(zip(case.leaves, values, strict=True)), **case.options, validate=False)
        found: Tensor = made.log_prob(WORDS, LENGTHS, weights)
        return found[found > -math.inf]

    generator = torch.Generator().manual_seed(1)
    weights = torch.randn(len(LENGTHS), 7, 7, generator=generator, dtype=torch.float64).requires_grad_()
    assert torch.autograd.gradcheck(log_prob, (weights, *case.leaves.values()), fast_mode=True)


@pytest.mark.parametrize("equally_long", [True, False])
def test_long_sentences(equally_long: bool) -> None:
    """Longer than what the growth of numbers is estimated from, whose few spans need their sentences' own links."""
    parameters = leaves_of(parameters_of(SimplePCFG, 8), torch.float32)
    words = torch.randint(VOCABULARY, (8, 20), generator=torch.Generator().manual_seed(2))
    lengths = [20] * 8 if equally_long else [17, 3, 20, 13, 1, 20, 6, 14]
    found = SimplePCFG(**parameters).log_prob(words, lengths)
    wide = leaves_of(parameters)
    alone = torch.cat(
        [
            SimplePCFG(**{name: value[b] for name, value in wide.items()}).log_prob(words[b : b + 1, :n])
            for b, n in enumerate(lengths)
        ]
    )
    torch.testing.assert_close(found.double(), alone, rtol=1e-6, atol=1e-4)
    for mine, theirs in zip(gradients(found, parameters), gradients(alone, wide), strict=True):
        torch.testing.assert_close(mine.double(), theirs, rtol=1e-3, atol=1e-4)


# Other queries.


@pytest.mark.parametrize("backend", ["torch", "autograd"])
def test_marginals(case: Case, backend: str) -> None:
    both = case.together(backend=backend)
    spans, labels = both.span_marginals(WORDS, LENGTHS), both.labelled_marginals(WORDS, LENGTHS)
    some = torch.tensor([[3, 1, 4], [0, 0, 4], [3, 2, 3], [1, 0, 1], [3, 0, 6], [0, 1, 2]])
    case.same(both.labelled_marginals(WORDS, LENGTHS, some), labels[some.unbind(1)])
    for b, n in enumerate(LENGTHS):
        one, words = case.alone(b), words_of(b)
        case.same(spans[b, : n + 1, : n + 1], one.span_marginals(words)[0])
        case.same(labels[b, : n + 1, : n + 1], one.labelled_marginals(words)[0])


def test_prefixes(case: Case) -> None:
    both = case.together()
    prefixes, surprisal = both.log_prefix(WORDS, LENGTHS), both.surprisal(WORDS, LENGTHS)
    case.same(both.next_word(WORDS, LENGTHS), each(lambda b, words: case.alone(b).next_word(words)))
    for b, n in enumerate(LENGTHS):
        one, words = case.alone(b), words_of(b)
        case.same(prefixes[b, : n + 1], one.log_prefix(words)[0])
        case.same(surprisal[b, :n], one.surprisal(words)[0])


def test_decoding(case: Case) -> None:
    both = case.together()
    query = "viterbi" if case.kind is SimplePCFG else "viterbi_joint"
    best, kbest = getattr(both, query)(WORDS, LENGTHS), both.mbr_kbest(WORDS, LENGTHS, k=3)
    mbr, labelled = both.mbr(WORDS, LENGTHS), both.mbr(WORDS, LENGTHS, labelled=True)
    for b in range(len(LENGTHS)):
        one, words = case.alone(b), words_of(b)
        alone = getattr(one, query)(words)
        assert (best.trees[b], best.log_prob[b].item()) == (alone.trees[0], pytest.approx(alone.log_prob.item()))
        assert (best.ranks is None) == (query == "viterbi")
        assert best.ranks is None or best.ranks[b] == alone.ranks[0]
        assert (mbr[b], labelled[b]) == (one.mbr(words)[0], one.mbr(words, labelled=True)[0])
        expected = one.mbr_kbest(words, k=3)[0]
        assert [tree for tree, _ in kbest[b]] == [tree for tree, _ in expected]
        assert [score for _, score in kbest[b]] == pytest.approx([score for _, score in expected])


def test_log_joint(case: Case) -> None:
    flat = [None if n < 2 else Tree.from_spans([0] * n, [(0, n), (n - 2, n)]) for n in LENGTHS]
    trees = [tree and Tree(tuple(words_of(b)[0].tolist()), tree.nodes) for b, tree in enumerate(flat)]
    found = case.together().log_joint(WORDS, trees)
    case.same(found, each(lambda b, words: case.alone(b).log_joint(words, [trees[b]])))


@pytest.mark.parametrize("backend", ["torch", "autograd"])
def test_posterior_samples(case: Case, backend: str) -> None:
    """The share of each span and symbol; 4 standard deviations of 400 draws are 0.1 at most."""
    both = case.together(backend=backend)
    samples = both.sample_posterior(WORDS, LENGTHS, num=400, generator=torch.Generator().manual_seed(0))
    labels = both.labelled_marginals(WORDS, LENGTHS)
    for b, n in enumerate(LENGTHS):
        if n < 2:
            assert samples[b] is None
            continue
        shares = torch.zeros_like(labels[b])
        for tree in samples[b]:
            assert tree.words == tuple(words_of(b)[0].tolist())
            for node in tree.nodes:
                shares[node.begin, node.end, node.symbol] += 1 / 400
        assert (shares - labels[b]).abs().max() < 0.1


def test_expected_counts(case: Case) -> None:
    counts = case.together().expected_counts(WORDS, LENGTHS)
    alone = [case.alone(b).expected_counts(words_of(b)) for b in range(len(LENGTHS))]
    for label, count in counts.items():
        parts = torch.stack([part[label] for part in alone])
        case.same(count, parts.sum(0) if label in case.shared else parts)


@pytest.mark.parametrize("kind", KINDS)
def test_entropies(kind: str) -> None:
    case, other = Case(kind, ("log_right",)), Case(kind, ("log_right",), seed=5)
    both = case.together()
    case.same(both.posterior_entropy(WORDS, LENGTHS), each(lambda b, words: case.alone(b).posterior_entropy(words)))
    for query in ("posterior_kl", "posterior_cross_entropy"):
        found = getattr(both, query)(other.together(), WORDS, LENGTHS)
        case.same(found, each(lambda b, words, query=query: getattr(case.alone(b), query)(other.alone(b), words)))


def test_collapse() -> None:
    case = Case("rank order", ("log_emission",))
    found = case.together().collapse()
    assert isinstance(found, SimplePCFG)
    case.same(found.log_prob(WORDS, LENGTHS), case.together().log_prob(WORDS, LENGTHS))


# What leaves the range of a dtype, and zeros.


@pytest.mark.parametrize("kind", KINDS)
def test_lost_sentences_are_redone_with_their_own_parameters(kind: str) -> None:
    """Only the third and fourth sentence leave the range of float32."""
    made_of, options = KINDS[kind]
    mixed, peaked = parameters_of(made_of, 5, seed=1), parameters_of(made_of, 5, scale=60)
    for name, value in mixed.items():
        value[2:4] = peaked[name][2:4]
    exact, narrow = leaves_of(mixed), leaves_of(mixed, torch.float32)
    words, lengths = torch.tensor([[0, 3, 1, 2, 0, 1]]).expand(5, 6), [6, 4, 5, 6, 3]
    made, wide = made_of(**narrow, **options), made_of(**exact, **options)
    lost = made._linear(narrow, made._batch(words, lengths))[1]
    assert lost.tolist() == [False, False, True, True, False]
    expected, found = wide.log_prob(words, lengths), made.log_prob(words, lengths)
    torch.testing.assert_close(found.double(), expected, rtol=1e-6, atol=1e-4)
    for mine, theirs in zip(gradients(found, narrow), gradients(expected, exact), strict=True):
        torch.testing.assert_close(mine.double(), theirs, rtol=1e-3, atol=1e-4)
    for query in ("labelled_marginals", "posterior_entropy"):
        mine, theirs = getattr(made, query)(words, lengths), getattr(wide, query)(words, lengths)
        torch.testing.assert_close(mine.double(), theirs, rtol=1e-3, atol=1e-4)
    samples = made.sample_posterior(words, lengths, num=2, generator=torch.Generator().manual_seed(0))
    assert [None if trees is None else len(trees) for trees in samples] == [2] * 5


@pytest.mark.parametrize("kind", KINDS)
def test_a_sentence_that_its_own_parameters_forbid(kind: str) -> None:
    """The third sentence's word 2 is emitted by nothing there; others keep it."""
    case = Case(kind, ())
    emission = case.leaves["log_emission"].detach().clone()
    emission[2, :, 2] = -math.inf
    case.leaves["log_emission"] = emission.log_softmax(-1).requires_grad_()
    together = case.together().log_prob(WORDS, LENGTHS)
    alone = each(lambda b, words: case.alone(b).log_prob(words))
    assert (together == -math.inf).tolist() == [False, True, True, False, False, False]
    case.same(together, alone)
    for mine, theirs in zip(gradients(together, case.leaves), gradients(alone, case.leaves), strict=True):
        assert not mine.isnan().any()
        case.same(mine, theirs)


def test_no_words() -> None:
    made = SimplePCFG(**parameters_of(SimplePCFG, 2))
    assert made.log_prob(torch.zeros(2, 0, dtype=torch.int64)).tolist() == [-math.inf] * 2
    assert made.log_prob(torch.zeros(2, 3, dtype=torch.int64), [0, 1]).tolist() == [-math.inf] * 2


# Errors.


def test_errors() -> None:
    made = SimplePCFG(**parameters_of(SimplePCFG, 5))
    with pytest.raises(ValueError, match="words") as rows:
        made.log_prob(WORDS[:3])
    assert str(rows.value) == (
        "SimplePCFG: words are (3, 6) but the parameters are for 5 sentences; give one row for each."
    )
    with pytest.raises(ValueError, match="sample") as sample:
        made.sample(3, 10)
    assert str(sample.value) == (
        "SimplePCFG.sample: the parameters are those of 5 sentences; make a distribution of one sentence's parameters "
        "and sample from that."
    )
    with pytest.raises(ValueError, match="batch") as sizes:
        SimplePCFG(**parameters_of(SimplePCFG, 5) | {"log_root": parameters_of(SimplePCFG, 2)["log_root"]})
    assert str(sizes.value) == (
        "SimplePCFG: batch is 2 in log_root (2, 3) but 5 in log_left (5, 3, 5); build both from one set of sizes."
    )
    with pytest.raises(ValueError, match="triton") as kernels:
        SimplePCFG(**leaves_of(parameters_of(SimplePCFG, 6), torch.float32), backend="triton").log_prob(WORDS, LENGTHS)
    assert str(kernels.value) == (
        "SimplePCFG: backend is 'triton', but the parameters are those of 6 sentences; give 'auto' or 'torch'."
    )


@pytest.mark.gpu
@pytest.mark.parametrize("kind", KINDS)
def test_on_a_gpu(kind: str) -> None:
    """What the CPU finds, and the same bits twice."""
    case = Case(kind, ("log_right",))
    cpu = case.together().detach()
    gpu, words = cpu.to("cuda"), WORDS.clamp(max=VOCABULARY - 1).cuda()
    case.same(gpu.log_prob(words, LENGTHS).cpu(), cpu.log_prob(WORDS, LENGTHS))
    case.same(gpu.labelled_marginals(words, LENGTHS).cpu(), cpu.labelled_marginals(WORDS, LENGTHS))
    narrow, expected = gpu.to(torch.float32), cpu.expected_counts(WORDS, LENGTHS)
    once, twice = narrow.expected_counts(words, LENGTHS), narrow.expected_counts(words, LENGTHS)
    for label, count in once.items():
        torch.testing.assert_close(count.cpu().double(), expected[label], **NARROW)
        assert torch.equal(count, twice[label])


@pytest.mark.parametrize("own", ["log_head", "log_emission"])
def test_the_planner_counts_words_beyond_the_vocabulary(own: str) -> None:
    """Where sentences have tables of their own every token is a word: there may be more than the vocabulary has."""
    torch.manual_seed(0)
    shapes = {"log_root": (2,), "log_head": (2, 3), "log_left": (3, 4), "log_right": (3, 4), "log_emission": (2, 3)}
    shapes[own] = (2, *shapes[own])
    tables = {name: torch.randn(shape).log_softmax(-1) for name, shape in shapes.items()}
    words = torch.tensor([[0, 1, 2, 0, 1], [2, 1, 0, 1, 1]])
    planned = RankSpacePCFG(**tables)
    for order in ("rank", "state"):
        torch.testing.assert_close(planned.log_prob(words), RankSpacePCFG(**tables, order=order).log_prob(words))
    assert "words" in planned.explain(words)
