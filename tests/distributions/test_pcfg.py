"""The PCFG with a full rule tensor, also with parameters of every sentence's own."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from distributions.tree_enumeration import TreeModel, Use
from distributions.tree_suite import TreeSuite
from rankspace.distributions import PCFG
from rankspace.fgg import observe, sum_product, zoo
from rankspace.inference import GenericEngine

NONTERMINALS, PRETERMINALS, VOCABULARY = 2, 2, 4
SYMBOLS = NONTERMINALS + PRETERMINALS
EXACT = {"rtol": 1e-9, "atol": 1e-11}  # float64, sums of some thousand products


def branches(parent: int) -> list[tuple[int, int, list[Use]]]:
    return [(b, c, [("log_rule", (parent, b, c))]) for b in range(SYMBOLS) for c in range(SYMBOLS)]


def independent(left: Tensor, right: Tensor) -> dict[str, Tensor]:
    return {"log_rule": left[:, :, None] * right[:, None, :]}


MODEL = TreeModel(
    PCFG,
    {
        "log_root": (NONTERMINALS,),
        "log_rule": (NONTERMINALS, SYMBOLS, SYMBOLS),
        "log_emission": (PRETERMINALS, VOCABULARY),
    },
    NONTERMINALS,
    PRETERMINALS,
    branches,
    independent,
    joint={"log_rule": 2},
)


class TestPCFG(TreeSuite):
    model = MODEL


def parameters_of(
    nonterminals: int, preterminals: int, vocabulary: int, *batch: int, scale: float = 1.0, seed: int = 0
) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    symbols = nonterminals + preterminals

    def draw(*shape: int) -> Tensor:
        logits = scale * torch.randn(*batch, *shape, generator=generator, dtype=torch.float64)
        return logits.log_softmax(-1)

    rule = draw(nonterminals, symbols * symbols).view(*batch, nonterminals, symbols, symbols)
    return {"log_root": draw(nonterminals), "log_rule": rule, "log_emission": draw(preterminals, vocabulary)}


def leaves_of(parameters: dict[str, Tensor], dtype: torch.dtype = torch.float64) -> dict[str, Tensor]:
    return {name: value.detach().to(dtype).requires_grad_() for name, value in parameters.items()}


# Parameters of every sentence's own.

WORDS = torch.tensor([[0, 3, 1, 2, 99], [1, 99, 99, 99, 99], [2, 2, 99, 99, 99], [3, 1, 0, 1, 2], [0, 1, 3, 99, 99]])
LENGTHS = [4, 1, 2, 5, 3]

SHARED = {
    "all are each sentence's": (),
    "words are shared": ("log_emission",),
    "rules are shared": ("log_rule",),
    "root alone": ("log_rule", "log_emission"),
}


@pytest.fixture(params=SHARED.values(), ids=SHARED.keys())
def per_sentence(request: pytest.FixtureRequest) -> tuple[dict[str, Tensor], Callable[[int], dict[str, Tensor]]]:
    """Parameters, and those of one sentence alone."""
    parameters = parameters_of(3, 2, 4, len(LENGTHS))
    for name in request.param:
        parameters[name] = parameters[name][0]
    leaves = leaves_of(parameters)
    return leaves, lambda b: {name: value if name in request.param else value[b] for name, value in leaves.items()}


PerSentence = tuple[dict[str, Tensor], Callable[[int], dict[str, Tensor]]]


def test_sentences_with_their_own_parameters_equal_each_alone(per_sentence: PerSentence) -> None:
    leaves, own = per_sentence
    together = PCFG(**leaves).log_prob(WORDS, LENGTHS)
    alone = torch.cat([PCFG(**own(b)).log_prob(WORDS[b : b + 1], LENGTHS[b : b + 1]) for b in range(len(LENGTHS))])
    torch.testing.assert_close(together, alone, **EXACT)
    found, expected = (
        torch.autograd.grad(log_prob[log_prob > -math.inf].sum(), list(leaves.values()))
        for log_prob in (together, alone)
    )
    for mine, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(mine, theirs, **EXACT)


def test_queries_of_sentences_with_their_own_parameters(per_sentence: PerSentence) -> None:
    leaves, own = per_sentence
    both = PCFG(**leaves)
    spans, labels = both.span_marginals(WORDS, LENGTHS), both.labelled_marginals(WORDS, LENGTHS)
    best, entropy = both.viterbi(WORDS, LENGTHS), both.posterior_entropy(WORDS, LENGTHS)
    samples = both.sample_posterior(WORDS, LENGTHS, num=3, generator=torch.Generator().manual_seed(0))
    prefixes, following = both.log_prefix(WORDS, LENGTHS), both.next_word(WORDS, LENGTHS)
    plain = PCFG(**leaves, backend="autograd").labelled_marginals(WORDS, LENGTHS)
    torch.testing.assert_close(labels, plain, **EXACT)
    for b, length in enumerate(LENGTHS):
        one, words = PCFG(**own(b)), WORDS[b : b + 1, :length]
        n = length + 1
        torch.testing.assert_close(spans[b, :n, :n], one.span_marginals(words)[0], **EXACT)
        torch.testing.assert_close(labels[b, :n, :n], one.labelled_marginals(words)[0], **EXACT)
        torch.testing.assert_close(prefixes[b, :n], one.log_prefix(words)[0], **EXACT)
        torch.testing.assert_close(following[b], one.next_word(words)[0], **EXACT)
        alone = one.viterbi(words)
        assert (best.trees[b], best.log_prob[b].item()) == (alone.trees[0], pytest.approx(alone.log_prob.item()))
        assert entropy[b].item() == pytest.approx(one.posterior_entropy(words).item(), abs=1e-12)
        trees = samples[b]
        assert (trees is None) == (length < 2)
        assert all(tree.words == tuple(words[0].tolist()) for tree in trees or [])


def test_lost_sentences_are_redone_with_their_own_parameters() -> None:
    """Only the third and fourth sentence leave the range of float32."""
    peaked, flat = parameters_of(3, 2, 4, 5, scale=60), parameters_of(3, 2, 4, 5, seed=1)
    mixed = {name: flat[name].clone() for name in flat}
    for name, value in mixed.items():
        value[2:4] = peaked[name][2:4]
    exact, narrow = leaves_of(mixed), leaves_of(mixed, torch.float32)
    words = torch.tensor([[0, 3, 1, 2, 0, 1]]).expand(5, 6)
    made = PCFG(**narrow)
    lost = made._linear(narrow, made._batch(words, None))[1]
    assert lost.tolist() == [False, False, True, True, False]
    expected, found = PCFG(**exact).log_prob(words), made.log_prob(words)
    torch.testing.assert_close(found.double(), expected, rtol=1e-6, atol=1e-4)
    wanted = torch.autograd.grad(expected.sum(), list(exact.values()))
    for mine, theirs in zip(torch.autograd.grad(found.sum(), list(narrow.values())), wanted, strict=True):
        torch.testing.assert_close(mine.double(), theirs, rtol=1e-3, atol=1e-4)


def test_errors_about_sentences_with_their_own_parameters() -> None:
    made = PCFG(**parameters_of(3, 2, 4, 5))
    with pytest.raises(ValueError, match="words") as rows:
        made.log_prob(WORDS[:3])
    assert str(rows.value) == "PCFG: words are (3, 5) but the parameters are for 5 sentences; give one row for each."
    with pytest.raises(ValueError, match="sample") as sample:
        made.sample(3, 10)
    assert str(sample.value) == (
        "PCFG.sample: the parameters are those of 5 sentences; make a distribution of one sentence's parameters and "
        "sample from that."
    )
    mixed = parameters_of(3, 2, 4, 5) | {"log_root": parameters_of(3, 2, 4, 2)["log_root"]}
    with pytest.raises(ValueError, match="batch") as sizes:
        PCFG(**mixed)
    assert str(sizes.value) == (
        "PCFG: batch is 2 in log_root (2, 3) but 5 in log_rule (5, 3, 5, 5); build both from one set of sizes."
    )


def test_there_is_one_order_only() -> None:
    with pytest.raises(ValueError, match="order") as error:
        PCFG(**parameters_of(3, 2, 4), order="rank")
    assert str(error.value) == (
        "PCFG: order is 'rank', but a full rule tensor has no ranks; give 'auto' or 'state', or use RankSpacePCFG or "
        "LPCFG."
    )


def test_rules_sum_to_one_over_both_children() -> None:
    parameters = parameters_of(3, 2, 4)
    parameters["log_rule"] = parameters["log_rule"].log_softmax(-1)
    with pytest.raises(ValueError, match="log_rule") as error:
        PCFG(**parameters)
    assert str(error.value) == ("PCFG: log_rule[0] sums to 5, not 1; normalise with log_softmax over the last 2 axes.")


def test_explain_names_order_and_costs() -> None:
    lines = PCFG(**parameters_of(3, 2, 4)).explain(WORDS, LENGTHS).splitlines()
    assert lines[0] == "tree: state order, the only one: vectors over nonterminals, a full rule tensor"
    assert lines[1] == "  3 nonterminals, 2 preterminals, sentences 5, spans of two words or more 20"
    assert len(lines) == 7


# Against others.


def test_equals_the_grammar_of_the_zoo() -> None:
    """The rung below: the same grammar as an FGG, by the generic engine and by plain sum-product."""
    leaves = leaves_of(parameters_of(2, 2, 4, seed=3))
    weights = [leaves[name].exp() for name in ("log_root", "log_rule", "log_emission")]
    fgg = zoo.split_pcfg(*weights)
    sentences = [[0, 3, 1, 2, 1], [2, 2], [1, 0, 3]]
    engine = GenericEngine(fgg)
    generic = engine.log_z(*engine.encode(sentences))
    words = torch.tensor([[*s, *[99] * (5 - len(s))] for s in sentences])
    found = PCFG(**leaves).log_prob(words, [len(s) for s in sentences])
    torch.testing.assert_close(found, generic, **EXACT)
    torch.testing.assert_close(found[2], sum_product(observe(fgg, sentences[2]), "log"), **EXACT)
    expected = torch.autograd.grad(generic.sum(), list(leaves.values()), retain_graph=True)
    for mine, theirs in zip(torch.autograd.grad(found.sum(), list(leaves.values())), expected, strict=True):
        torch.testing.assert_close(mine, theirs, **EXACT)


@pytest.mark.parametrize("kind", ["SimplePCFG", "RankSpacePCFG"])
def test_equals_factored_grammars_multiplied_out(kind: str) -> None:
    from rankspace import distributions

    generator = torch.Generator().manual_seed(4)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64).log_softmax(-1)

    root, emission = draw(3), draw(2, 4)
    rows = 3 if kind == "SimplePCFG" else 4
    factors = {"log_left": draw(rows, 5), "log_right": draw(rows, 5)}
    pairs = factors["log_left"].exp()[:, :, None] * factors["log_right"].exp()[:, None, :]
    if kind == "RankSpacePCFG":
        factors["log_head"] = draw(3, 4)
        pairs = torch.einsum("aq,qbc->abc", factors["log_head"].exp(), pairs)
    factored = getattr(distributions, kind)(log_root=root, log_emission=emission, **factors)
    dense = PCFG(root, pairs.log(), emission)
    torch.testing.assert_close(dense.log_prob(WORDS, LENGTHS), factored.log_prob(WORDS, LENGTHS), **EXACT)
    torch.testing.assert_close(dense.span_marginals(WORDS, LENGTHS), factored.span_marginals(WORDS, LENGTHS), **EXACT)
    both = [made.labelled_marginals(WORDS, LENGTHS) for made in (dense, factored)]
    torch.testing.assert_close(both[0], both[1], **EXACT)


@pytest.mark.filterwarnings("ignore")  # of the peer and what it imports
def test_equals_torch_struct() -> None:
    peer = pytest.importorskip("torch_struct")
    leaves = leaves_of(parameters_of(4, 3, 6, seed=5))
    generator = torch.Generator().manual_seed(5)
    words, lengths = torch.randint(0, 6, (3, 7), generator=generator), torch.tensor([7, 4, 2])
    terms = leaves["log_emission"].T[words]
    given = (terms, leaves["log_rule"].expand(3, -1, -1, -1), leaves["log_root"].expand(3, -1))
    theirs = peer.SentCFG(given, lengths=lengths)
    mine = PCFG(**leaves)
    log_prob = mine.log_prob(words, lengths)
    torch.testing.assert_close(log_prob, theirs.partition, rtol=1e-6, atol=1e-6)  # the peer's epsilons
    expected = torch.autograd.grad(theirs.partition.sum(), list(leaves.values()), retain_graph=True)
    for one, other in zip(torch.autograd.grad(log_prob.sum(), list(leaves.values())), expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)
    best = theirs.max  # log weight of its best derivation
    torch.testing.assert_close(mine.viterbi(words, lengths).log_prob, best, rtol=1e-6, atol=1e-6)


# Numerics.


@pytest.mark.parametrize("scale", [1.0, 6.0, 20.0])
def test_float32_equals_float64(scale: float) -> None:
    """NT 30, PT 60, n 40: within max(1e-4, 1e-6 |log Z|), gradients within 1e-4 (DESIGN, section 4)."""
    parameters = {name: value.float() for name, value in parameters_of(30, 60, 100, scale=scale).items()}
    narrow, exact = leaves_of(parameters, torch.float32), leaves_of(parameters)
    generator = torch.Generator().manual_seed(0)
    words, lengths = torch.randint(0, 100, (4, 40), generator=generator), [40, 3, 2, 17]
    found, expected = (PCFG(**leaves, validate=False).log_prob(words, lengths) for leaves in (narrow, exact))
    assert bool(((found - expected).abs() <= (1e-6 * expected.abs()).clamp(min=1e-4)).all())
    wanted = torch.autograd.grad(expected.sum(), list(exact.values()))
    for mine, theirs in zip(torch.autograd.grad(found.sum(), list(narrow.values())), wanted, strict=True):
        assert (mine - theirs).abs().max() <= 1e-4 * theirs.abs().max()


def right_branching(length: int, dtype: torch.dtype) -> tuple[dict[str, Tensor], Tensor]:
    """One derivation alone: S_i -> T_i S_(i+1), S_last -> T T, each word from one preterminal."""
    count = length - 1
    symbols = count + length
    rule = torch.full((count, symbols, symbols), -math.inf, dtype=dtype)
    for i in range(count):
        rule[i, count + i, i + 1 if i + 1 < count else symbols - 1] = 0
    root = torch.full((count,), -math.inf, dtype=dtype)
    root[0] = 0
    emission = torch.full((length, length + 1), -math.inf, dtype=dtype)
    emission.fill_diagonal_(math.log(0.25))
    emission[:, -1] = math.log(0.75)
    return {"log_root": root, "log_rule": rule, "log_emission": emission}, torch.arange(length)[None]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_grammar_with_one_derivation(dtype: torch.dtype) -> None:
    parameters, words = right_branching(8, dtype)
    leaves = leaves_of(parameters, dtype)
    made = PCFG(**leaves)
    assert not made._linear(leaves, made._batch(words, None))[1].any()  # true zeros are no loss
    log_prob = made.log_prob(words)
    assert log_prob.item() == pytest.approx(8 * math.log(0.25))
    for name, slope in zip(leaves, torch.autograd.grad(log_prob.sum(), list(leaves.values())), strict=True):
        used = 1 if name == "log_root" else 7 if name == "log_rule" else 8
        assert sorted(slope.flatten().tolist(), reverse=True)[: used + 1] == pytest.approx([1.0] * used + [0.0])
        assert (slope[leaves[name] == -math.inf] == 0).all()
    assert made.posterior_entropy(words).item() == pytest.approx(0, abs=1e-5)
    tree = made.viterbi(words).trees[0]
    assert tree is not None
    assert made.sample_posterior(words) == [[tree]]
    assert [span[:2] for span in tree.spans(2)] == [(i, 8) for i in range(7)]


def test_lower_precision_is_near() -> None:
    parameters = {name: value.float() for name, value in parameters_of(5, 4, 6).items()}
    exact = PCFG(**parameters).log_prob(WORDS.clamp(max=5))
    options: dict[str, Any]
    for options in ({"precision": "high"}, {"precision": "medium"}):
        near = PCFG(**parameters, **options).log_prob(WORDS.clamp(max=5))
        torch.testing.assert_close(near, exact, rtol=0, atol=5e-2)
