"""Queries on parses at their edges: weights of spans, ranks of the best parse, NaN, and what is refused."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from distributions.test_on_gpu import LENGTHS, TREES, WORDS
from rankspace import Tree
from rankspace.distributions import LPCFG, BestParses, PriorSample
from rankspace.errors import RankspaceError

EXACT = {"rtol": 1e-9, "atol": 1e-9}  # float64, sums of some thousand products
SIZE = WORDS.shape[1] + 1
DENSE = ["pcfg", "lpcfg"]
every = pytest.mark.parametrize("name", TREES)


def best_of(made: Any) -> Callable[..., BestParses]:
    found: Callable[..., BestParses] = getattr(made, "viterbi_joint", None) or made.viterbi
    return found


def message(query: Callable[[], Any]) -> str:
    with pytest.raises(RankspaceError) as error:
        query()
    return str(error.value)


def in_log_space(made: Any) -> Any:
    return type(made)(**made.parameters, backend="autograd")


def weights(*entries: tuple[int, int, int, float], dtype: torch.dtype = torch.float64) -> Tensor:
    table = torch.zeros(len(LENGTHS), SIZE, SIZE, dtype=dtype)
    for sentence, begin, end, value in entries:
        table[sentence, begin, end] = value
    return table


# Weights of spans.


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("value", [-1e9, 1e9, -1e30])
@pytest.mark.parametrize("span", [(0, 7), (2, 5)])
@every
def test_large_finite_weights(name: str, span: tuple[int, int], value: float, dtype: torch.dtype) -> None:
    made = TREES[name].to(dtype)
    given = weights((0, *span, value), dtype=dtype)
    plain = in_log_space(TREES[name])
    # beside 1e9, float64 keeps other numbers to 1e-7; float32 marginals are good to 1e-5
    close = {"rtol": 1e-9, "atol": 1e-6} if dtype == torch.float64 else {"rtol": 1e-5, "atol": 1e-4}
    found = made.log_prob(WORDS, LENGTHS, given)
    assert bool(found[:4].isfinite().all())
    torch.testing.assert_close(found.double(), plain.log_prob(WORDS, LENGTHS, given.double()), **close)
    marginals = made.span_marginals(WORDS, LENGTHS, given)
    torch.testing.assert_close(marginals.double(), plain.span_marginals(WORDS, LENGTHS, given.double()), **close)
    labels = made.labelled_marginals(WORDS, LENGTHS, span_weights=given)
    torch.testing.assert_close(labels.sum(3), marginals, rtol=1e-4, atol=1e-4)
    if span == (2, 5):
        for tree in made.sample_posterior(WORDS, LENGTHS, num=5, span_weights=given)[0]:
            assert ((2, 5) in [node[:2] for node in tree.spans()]) == (value > 0)


@pytest.mark.parametrize("backend", ["auto", "autograd"])
@every
def test_labels_under_weights(name: str, backend: str) -> None:
    generator = torch.Generator().manual_seed(3)
    given = 2 * torch.randn(len(LENGTHS), SIZE, SIZE, generator=generator, dtype=torch.float64)
    given[0, 1, 4] = given[2, 0, 2] = -math.inf
    made = TREES[name] if backend == "auto" else in_log_space(TREES[name])
    found = made.labelled_marginals(WORDS, LENGTHS, span_weights=given)
    torch.testing.assert_close(found.sum(3), made.span_marginals(WORDS, LENGTHS, given), **EXACT)
    expected = in_log_space(TREES[name]).labelled_marginals(WORDS, LENGTHS, span_weights=given)
    torch.testing.assert_close(found, expected, **EXACT)
    spans = torch.tensor([[0, 0, 4], [2, 1, 2]])
    some = made.labelled_marginals(WORDS, LENGTHS, spans, span_weights=given)
    torch.testing.assert_close(some, expected[tuple(spans.T)], **EXACT)


@every
def test_forbidden_spans_are_in_no_tree(name: str) -> None:
    made = TREES[name]
    free = made.mbr(WORDS, LENGTHS)
    inner = [node[:2] for node in free[0].spans(2, whole=False)]
    given = weights(*((0, *span, -math.inf) for span in inner), (2, 0, 5, -math.inf), (3, 2, 3, -math.inf))
    given[4] = math.nan  # where there is no span of the sentence
    given[4, 0, 1] = 0
    trees = [made.mbr(WORDS, LENGTHS, labelled, given) for labelled in (False, True)]
    trees += [best_of(made)(WORDS, LENGTHS, given).trees]
    trees += [[own and own[0] for own in made.sample_posterior(WORDS, LENGTHS, span_weights=given)]]
    ranked = made.mbr_kbest(WORDS, LENGTHS, k=500, span_weights=given)
    trees += [[own[at][0] if own else None for own in ranked] for at in (0, -1)]
    for found in trees:
        assert [tree is None for tree in found] == [False, False, True, True, True]
        assert not {node[:2] for node in found[0].spans(2)} & set(inner)
    assert made.mbr(WORDS, LENGTHS, span_weights=torch.zeros(len(LENGTHS), SIZE, SIZE)) == free


@every
def test_the_best_parse_counts_its_weights(name: str) -> None:
    generator = torch.Generator().manual_seed(5)
    given = torch.randn(len(LENGTHS), SIZE, SIZE, generator=generator, dtype=torch.float64)
    found, free = best_of(TREES[name])(WORDS, LENGTHS, given), best_of(TREES[name])(WORDS, LENGTHS)
    for b, (tree, other) in enumerate(zip(found.trees[:4], free.trees[:4], strict=True)):
        own, others = (sum(given[b, i, j].item() for i, j, _ in each.nodes) for each in (tree, other))
        assert found.log_prob[b].item() - own <= free.log_prob[b].item() + 1e-9
        assert found.log_prob[b].item() >= free.log_prob[b].item() + others - 1e-9


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.float64])
@every
def test_weights_take_the_dtype_of_the_model(name: str, dtype: torch.dtype) -> None:
    made = TREES[name].to(torch.float32)
    given = (torch.arange(len(LENGTHS) * SIZE * SIZE).view(-1, SIZE, SIZE) % 3 == 0).to(dtype)
    found = made.span_marginals(WORDS, LENGTHS, given)
    assert found.dtype == torch.float32
    assert torch.equal(found, made.span_marginals(WORDS, LENGTHS, given.float()))
    assert torch.equal(made.log_prob(WORDS, LENGTHS, given), made.log_prob(WORDS, LENGTHS, given.float()))


# Ranks.


@pytest.mark.parametrize("name", ["lpcfg", "rank-pcfg", "rank-pcfg in state order"])
def test_tree_symbols_and_ranks_have_the_log_prob_of_the_best_parse(name: str) -> None:
    made = TREES[name]
    log = made.parameters
    found = made.viterbi_joint(WORDS, LENGTHS)
    assert found.ranks[4] is None
    for tree, ranks, log_prob in zip(found.trees[:4], found.ranks, found.log_prob, strict=False):
        symbol = {node[:2]: node.symbol for node in tree.nodes}
        inner = tree.spans(2)
        assert len(ranks) == len(inner) == len(tree) - 1
        total = log["log_root"][tree.symbol]
        for (begin, end, parent), rank in zip(inner, ranks, strict=True):
            split = next(m for m in range(begin + 1, end) if (begin, m) in symbol and (m, end) in symbol)
            left, right = symbol[begin, split], symbol[split, end]
            pair = log["log_pair"][rank, left, right] if name == "lpcfg" else None
            total = total + log["log_head"][parent, rank]
            total = total + (log["log_left"][rank, left] + log["log_right"][rank, right] if pair is None else pair)
        for place, word in enumerate(tree.words):
            total = total + log["log_emission"][symbol[place, place + 1] - made.num_nonterminals, word]
        torch.testing.assert_close(total, log_prob, **EXACT)


@pytest.mark.parametrize("name", ["pcfg", "simple-pcfg"])
def test_without_ranks_there_are_none(name: str) -> None:
    assert TREES[name].viterbi(WORDS, LENGTHS).ranks is None


# Bracketings.


@every
def test_log_joint_of_what_mbr_returns(name: str) -> None:
    made = TREES[name]
    trees = made.mbr(WORDS, LENGTHS)
    assert trees[4] is None
    found = made.log_joint(WORDS, trees)
    assert found[4] == -math.inf
    torch.testing.assert_close(found[:4], made.log_joint(WORDS[:4], trees[:4]), **EXACT)
    named = [tree and tree.map_words(str) for tree in trees]
    assert torch.equal(made.log_joint(WORDS, named), found)
    other = Tree.from_spans([7, 7], [])
    row = WORDS.clone()
    row[1, :2] = torch.tensor([7, 3])
    assert message(lambda: made.log_joint(row, [trees[0], other, *trees[2:]])) == (
        f"{type(made).__name__}.log_joint: word 1 of trees[1] is 7 but words[1, 1] is 3; give each "
        f"sentence its own tree."
    )


# NaN.


@every
def test_parameters_that_are_nan(name: str) -> None:
    made = TREES[name]
    label = list(made.parameters)[-2]
    broken = made.parameters[label].clone()
    broken.view(-1)[1] = math.nan
    place = broken.isnan().nonzero()[0].tolist()
    made = made.with_parameters({**made.parameters, label: broken})
    if name in DENSE:
        found = made.log_prob(WORDS, LENGTHS).isnan().tolist()
        assert found == [True, False, True, True, False]  # two words never meet the broken rule
        assert bool(in_log_space_unchecked(made).log_prob(WORDS[:1]).isnan().all())
    best = "viterbi_joint" if hasattr(made, "viterbi_joint") else "viterbi"
    for query, options in [("mbr", {}), ("mbr_kbest", {"k": 2}), (best, {}), ("sample_posterior", {})]:
        text = message(lambda query=query, options=options: getattr(made, query)(WORDS, LENGTHS, **options))
        assert text == f"{type(made).__name__}.{query}: {label}{place} is NaN; check what it was computed from."


def in_log_space_unchecked(made: Any) -> Any:
    return type(made)(**made.parameters, backend="autograd", validate=False)


# Collapse and costs.


@pytest.mark.parametrize("over", ["symbols", "ranks"])
@pytest.mark.parametrize("label", ["log_root", "log_head", "log_pair", "log_emission"])
def test_collapse_where_one_parameter_is_of_each_sentence(label: str, over: Any) -> None:
    shared = TREES["lpcfg"].parameters
    own = torch.stack([shared[label].roll(shift, 0) for shift in range(len(LENGTHS))])
    made = LPCFG(**{**shared, label: own})
    torch.testing.assert_close(made.collapse(over).log_prob(WORDS, LENGTHS), made.log_prob(WORDS, LENGTHS), **EXACT)


def test_collapse_over_something_else() -> None:
    made: Any = TREES["lpcfg"]
    assert message(lambda: made.collapse("rank")) == ("LPCFG.collapse: over is 'rank'; give one of 'symbols', 'ranks'.")


def test_the_one_order_of_a_simple_pcfg() -> None:
    made = TREES["simple-pcfg"]
    distinct = len({word for row, n in zip(WORDS.tolist(), LENGTHS, strict=True) for word in row[:n]})
    assert made.explain(WORDS, LENGTHS).splitlines() == [
        "tree: state order, the only one: the ranks are the nonterminals",
        "  4 nonterminals, 6 preterminals, sentences 5, spans of two words or more 53",
        f"    words, once           {4 * distinct * 4 * 6:>10.3g} flops",
        f"    split sum             {2 * 4 * (56 + 1 + 20 + 56):>10.3g} flops",
        f"    to children           {4 * 16 * (53 - 4):>10.3g} flops",
        f"    root                  {2 * 4 * 4:>10.3g} flops",
    ]


# What is refused.


@every
def test_wrong_arguments_are_named(name: str) -> None:
    made, kind = TREES[name], type(TREES[name]).__name__
    assert message(lambda: made.labelled_marginals(WORDS, LENGTHS, torch.zeros(2, 2, dtype=torch.int64))) == (
        f"{kind}.labelled_marginals: spans are torch.int64 (2, 2); give integers [span, 3]: rows (sentence, begin, "
        f"end)."
    )
    assert message(lambda: made.mbr_kbest(WORDS, LENGTHS, k=0)) == (
        f"{kind}.mbr_kbest: k is 0; give a whole number, at least 1."
    )
    for length in (0, -1):
        assert message(lambda length=length: made.sample(2, length)) == (
            f"{kind}: sample: max_length is {length}; give at least one word."
        )
    assert message(lambda: made.sample(-1, 5)) == f"{kind}: sample: num is -1; give zero or more."
    assert message(lambda: made.sample_posterior(WORDS, LENGTHS, num=-2)) == (
        f"{kind}: sample_posterior: num is -2; give zero or more."
    )


@every
def test_no_samples(name: str) -> None:
    assert TREES[name].sample_posterior(WORDS, LENGTHS, num=0) == [[], [], [], [], []]
    found = TREES[name].sample(0, 5)
    assert isinstance(found, PriorSample)
    assert found[:2] == ([], [])
