"""Every grammar of the zoo against the dynamic programme a textbook would give for it."""

from collections.abc import Callable, Sequence
from itertools import pairwise, product

import pytest
import torch
from torch import Tensor

from rankspace.fgg import FGG, observe, sum_product, zoo

Words = Sequence[int]
STATES, RANKS, TIMES, WORDS = 3, 2, 3, 3


def weights(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(1000 * seed + 10 * len(shape) + sum(shape))
    return torch.rand(*shape, generator=generator, dtype=torch.float64)


def distribution(*shape: int, seed: int = 0) -> Tensor:
    """Random probabilities over the last axis."""
    table = weights(*shape, seed=seed)
    return table / table.sum(-1, keepdim=True)


def sentences(words: int, longest: int) -> list[list[int]]:
    """All sentences of at most two words, and some longer ones."""
    short = [list(s) for length in (0, 1, 2) for s in product(range(words), repeat=length)]
    generator = torch.Generator().manual_seed(0)
    long = [torch.randint(words, (n,), generator=generator).tolist() for n in range(3, longest + 1)]
    return short + long


def assert_agrees(model: FGG, by_hand: Callable[[Words], Tensor], words: int, longest: int = 5) -> None:
    for sentence in sentences(words, longest):
        fgg = observe(model, sentence)
        expected = by_hand(sentence)
        # Two ways to sum at most some thousand positive products in float64.
        torch.testing.assert_close(sum_product(fgg), expected, rtol=1e-12, atol=0)
        torch.testing.assert_close(sum_product(fgg, "log"), expected.log(), rtol=1e-12, atol=1e-13)


# --- chains -----------------------------------------------------------------------------------------------------------


def test_hmm_is_the_forward_algorithm() -> None:
    start, transition, emission, end = (
        weights(STATES),
        weights(STATES, STATES),
        weights(STATES, WORDS),
        weights(STATES, seed=1),
    )

    def forward(sentence: Words) -> Tensor:
        alpha = start
        for word in sentence:
            alpha = (alpha @ transition) * emission[:, word]
        return alpha @ transition @ end  # figure 1a: T_{n+2} = eos comes by a transition of its own

    assert_agrees(zoo.hmm(start, transition, emission, end), forward, WORDS)


def test_bos_and_eos_give_the_figure_to_the_letter() -> None:
    """States 0 and 3 are bos and eos: the tagger of figure 1a with two tags."""
    one_hot = torch.eye(4, dtype=torch.float64)
    transition = weights(4, 4)
    transition[:, 0] = 0  # nothing goes back to bos
    transition[3] = 0  # nothing leaves eos
    emission = weights(4, WORDS)
    emission[[0, 3]] = 0  # neither emits words
    model = zoo.hmm(one_hot[0], transition, emission, one_hot[3])
    tags = (1, 2)
    for sentence in ([0], [1, 2], [2, 2, 0]):
        total = 0.0
        for path in product(tags, repeat=len(sentence)):
            states = (0, *path, 3)
            weight = torch.ones((), dtype=torch.float64)
            for here, there in pairwise(states):
                weight = weight * transition[here, there]
            for tag, word in zip(path, sentence, strict=True):
                weight = weight * emission[tag, word]
            total += weight.item()
        assert sum_product(observe(model, sentence)).item() == pytest.approx(total, rel=1e-13)  # eight products


def test_factored_hmm_passes_through_ranks() -> None:
    start, end = weights(STATES), weights(STATES, seed=1)
    state_to_rank, rank_to_state, rank_emission = weights(STATES, RANKS), weights(RANKS, STATES), weights(RANKS, WORDS)

    def forward(sentence: Words) -> Tensor:
        alpha = start
        for word in sentence:
            alpha = ((alpha @ state_to_rank) * rank_emission[:, word]) @ rank_to_state
        return alpha @ end

    model = zoo.factored_hmm(start, state_to_rank, rank_to_state, rank_emission, end)
    assert_agrees(model, forward, WORDS)
    # Sec. 4.1: it is the HMM whose transition and emission are one factor of order three.
    merged = torch.einsum("tq,qu,qo->tuo", state_to_rank, rank_to_state, rank_emission)
    alpha = start
    for word in (1, 2):
        alpha = alpha @ merged[:, :, word]
    torch.testing.assert_close(sum_product(observe(model, [1, 2])), alpha @ end, rtol=1e-13, atol=0)  # rounding


def test_lhmm_emits_from_states() -> None:
    start, end = weights(STATES), weights(STATES, seed=1)
    state_to_rank, rank_to_state, emission = weights(STATES, RANKS), weights(RANKS, STATES), weights(STATES, WORDS)

    def forward(sentence: Words) -> Tensor:
        alpha = start
        for word in sentence:
            alpha = (alpha @ state_to_rank @ rank_to_state) * emission[:, word]
        return alpha @ end

    assert_agrees(zoo.lhmm(start, state_to_rank, rank_to_state, emission, end), forward, WORDS)


def hsmm_parameters(states: int = 2, times: int = TIMES) -> tuple[Tensor, ...]:
    return (
        weights(states),
        weights(states, states),
        weights(states, times),
        weights(states, WORDS, seed=1),
        weights(states, seed=1),
    )


@pytest.mark.parametrize("form", ["separate", "product"])
def test_hsmm_sums_over_durations(form: str) -> None:
    start, transition, duration, emission, end = hsmm_parameters()

    def forward(sentence: Words) -> Tensor:
        """alpha[j][t]: the first j words are said, and state t has just said its last one."""
        alpha = [start]
        for j in range(1, len(sentence) + 1):
            here = torch.zeros(2, dtype=torch.float64)
            for time in range(1, min(TIMES, j) + 1):
                said = emission[:, list(sentence[j - time : j])].prod(1)
                here = here + (alpha[j - time] @ transition) * duration[:, time - 1] * said
            alpha.append(here)
        return alpha[-1] @ end

    model = zoo.hsmm(start, transition, duration, emission, end, product=form == "product")
    assert_agrees(model, forward, WORDS)


def test_hsmm_of_duration_one_is_an_hmm() -> None:
    start, transition, _, emission, end = hsmm_parameters()
    once = torch.ones(2, 1, dtype=torch.float64)
    chain = zoo.lhmm(start, transition, torch.eye(2, dtype=torch.float64), emission, end)
    for form in (False, True):
        model = zoo.hsmm(start, transition, once, emission, end, product=form)
        for sentence in ([], [1], [2, 0, 2]):
            expected = sum_product(observe(chain, sentence))
            torch.testing.assert_close(sum_product(observe(model, sentence)), expected, rtol=1e-13, atol=0)  # rounding


# --- trees ------------------------------------------------------------------------------------------------------------


def inside(sentence: Words, leaf: Callable[[int], Tensor], join: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """alpha[0, n] of a recursion over spans; `join` is bilinear in the left and the right child."""
    length = len(sentence)
    alpha = {(i, i + 1): leaf(word) for i, word in enumerate(sentence)}
    for width in range(2, length + 1):
        for i in range(length - width + 1):
            j = i + width
            parts = [join(alpha[i, k], alpha[k, j]) for k in range(i + 1, j)]
            alpha[i, j] = torch.stack(parts).sum(0)
    return alpha[0, length]


def tree(
    root: Tensor, leaf: Callable[[int], Tensor], join: Callable[[Tensor, Tensor], Tensor]
) -> Callable[[Words], Tensor]:
    """Z of a sentence; no tree has no words."""
    zero = torch.zeros((), dtype=torch.float64)
    return lambda sentence: (root * inside(sentence, leaf, join)).sum() if sentence else zero


def test_pcfg_is_the_inside_algorithm() -> None:
    root, rule, emission = weights(STATES), weights(STATES, STATES, STATES), weights(STATES, WORDS)

    def join(left: Tensor, right: Tensor) -> Tensor:
        return torch.einsum("abc,b,c->a", rule, left, right)

    assert_agrees(zoo.pcfg(root, rule, emission), tree(root, lambda word: emission[:, word], join), WORDS)


def test_split_pcfg_keeps_nonterminals_and_preterminals_apart() -> None:
    nonterminals, preterminals = 2, 3
    symbols = nonterminals + preterminals
    root, rule = weights(nonterminals), weights(nonterminals, symbols, symbols)
    emission = weights(preterminals, WORDS)

    def by_hand(sentence: Words) -> Tensor:
        """Children of width one are preterminals, wider ones nonterminals."""
        length = len(sentence)
        if length < 2:
            return torch.zeros((), dtype=torch.float64)
        beta: dict[tuple[int, int], Tensor] = {}

        def child(i: int, j: int) -> tuple[Tensor, slice]:
            if j == i + 1:
                return emission[:, sentence[i]], slice(nonterminals, symbols)
            return beta[i, j], slice(nonterminals)

        for width in range(2, length + 1):
            for i in range(length - width + 1):
                total = torch.zeros(nonterminals, dtype=torch.float64)
                for k in range(i + 1, i + width):
                    (left, at), (right, to) = child(i, k), child(k, i + width)
                    total = total + torch.einsum("abc,b,c->a", rule[:, at, to], left, right)
                beta[i, i + width] = total
        return root @ beta[0, length]

    assert_agrees(zoo.split_pcfg(root, rule, emission), by_hand, WORDS)


def test_sentences_of_one_word() -> None:
    root, emission = weights(STATES), weights(STATES, WORDS)
    model = zoo.pcfg(root, weights(STATES, STATES, STATES), emission)
    split = zoo.split_pcfg(weights(2), weights(2, 5, 5), weights(3, WORDS))
    factored = zoo.split_factored_pcfg(weights(2), weights(2, RANKS), weights(RANKS, 5), weights(RANKS, 5), emission)
    for word in range(WORDS):
        expected = sum(root[symbol].item() * emission[symbol, word].item() for symbol in range(STATES))
        assert sum_product(observe(model, [word])).item() == pytest.approx(expected, rel=1e-15)  # three products
        for impossible in (split, factored):
            fgg = observe(impossible, [word])
            assert sum_product(fgg).item() == 0
            assert sum_product(fgg, "log").item() == -torch.inf
            assert sum_product(fgg, "max").derivation is None


def factored_parameters() -> tuple[Tensor, ...]:
    return (
        weights(STATES),
        weights(STATES, RANKS),
        weights(RANKS, STATES, seed=1),
        weights(RANKS, STATES, seed=2),
        weights(STATES, WORDS),
    )


def test_factored_pcfg_is_the_recursion_of_td_pcfg() -> None:
    root, head, left, right, emission = factored_parameters()

    def join(one: Tensor, other: Tensor) -> Tensor:  # alpha_ij = U^T sum_k (V alpha_ik) * (W alpha_kj)
        return head @ ((left @ one) * (right @ other))

    model = zoo.factored_pcfg(root, head, left, right, emission)
    assert_agrees(model, tree(root, lambda word: emission[:, word], join), WORDS)
    dense = zoo.pcfg(root, torch.einsum("aq,qb,qc->abc", head, left, right), emission)
    for sentence in ([1], [0, 2], [2, 1, 0, 2]):
        found, expected = sum_product(observe(model, sentence)), sum_product(observe(dense, sentence))
        torch.testing.assert_close(found, expected, rtol=1e-13, atol=0)  # rounding


def test_split_factored_pcfg_is_the_split_pcfg_of_its_rules() -> None:
    root, head, emission = weights(2), weights(2, RANKS), weights(3, WORDS)
    left, right = weights(RANKS, 5, seed=1), weights(RANKS, 5, seed=2)
    model = zoo.split_factored_pcfg(root, head, left, right, emission)
    dense = zoo.split_pcfg(root, torch.einsum("aq,qb,qc->abc", head, left, right), emission)
    for sentence in ([0, 2], [1, 1, 2], [2, 1, 0, 2]):
        found, expected = sum_product(observe(model, sentence)), sum_product(observe(dense, sentence))
        assert expected > 0
        torch.testing.assert_close(found, expected, rtol=1e-13, atol=0)  # rounding


def test_lpcfg_joins_its_children_in_one_table() -> None:
    root, head, emission = weights(STATES), weights(STATES, RANKS), weights(STATES, WORDS)
    pair = weights(RANKS, STATES, STATES)

    def join(left: Tensor, right: Tensor) -> Tensor:  # alpha_ij = U^T sum_k V' (alpha_ik x alpha_kj)
        return head @ torch.einsum("qbc,b,c->q", pair, left, right)

    model = zoo.lpcfg(root, head, pair, emission)
    assert_agrees(model, tree(root, lambda word: emission[:, word], join), WORDS)


@pytest.mark.parametrize("form", ["separate", "product"])
def test_lexicalised_pcfg_passes_heads_up(form: str) -> None:
    symbols, words = 2, 3
    shape = (symbols, words, symbols, symbols, words)
    root, emission = weights(symbols, words), weights(symbols, words, seed=1)
    left_head, right_head = weights(*shape), weights(*shape, seed=1)

    def leaf(word: int) -> Tensor:
        result = torch.zeros(symbols, words, dtype=torch.float64)
        result[:, word] = emission[:, word]
        return result

    def join(left: Tensor, right: Tensor) -> Tensor:
        """A[h] -> B[h] C[k] takes its head from the left, A[h] -> B[k] C[h] from the right."""
        return torch.einsum("ahbck,bh,ck->ah", left_head, left, right) + torch.einsum(
            "ahbck,bk,ch->ah", right_head, left, right
        )

    model = zoo.lexicalised_pcfg(root, left_head, right_head, emission, product=form == "product")
    assert_agrees(model, tree(root, leaf, join), words, longest=4)


def test_heads_are_words_of_the_sentence() -> None:
    """Weight one for everything: a tree over n words has one symbol, and each branching chooses its head's side."""
    ones = torch.ones(1, 2, 1, 1, 2, dtype=torch.float64)
    for form in (False, True):
        model = zoo.lexicalised_pcfg(ones[:, :, 0, 0, 0], ones, ones, ones[:, :, 0, 0, 0], product=form)
        for sentence, trees in (([0], 1), ([0, 1], 1), ([1, 1, 0], 2), ([0, 1, 0, 1], 5)):
            assert sum_product(observe(model, sentence)).item() == trees * 2 ** (len(sentence) - 1)


@pytest.mark.parametrize("form", ["separate", "product"])
def test_qcfg_aligns_symbols_with_a_source(form: str) -> None:
    symbols, sources = 2, 3
    root, emission = weights(symbols, sources), weights(symbols, sources, WORDS)
    rule = weights(symbols, sources, symbols, sources, symbols, sources)

    def join(left: Tensor, right: Tensor) -> Tensor:  # A[i] -> B[j] C[k]
        return torch.einsum("aibjck,bj,ck->ai", rule, left, right)

    model = zoo.qcfg(root, rule, emission, product=form == "product")
    assert_agrees(model, tree(root, lambda word: emission[:, :, word], join), WORDS, longest=4)


# --- product forms ----------------------------------------------------------------------------------------------------


def both_forms() -> dict[str, tuple[FGG, FGG]]:
    lexical = (weights(2, 3), weights(2, 3, 2, 2, 3), weights(2, 3, 2, 2, 3, seed=1), weights(2, 3, seed=1))
    aligned = (weights(2, 3), weights(2, 3, 2, 3, 2, 3), weights(2, 3, 3))
    return {
        "hsmm": (zoo.hsmm(*hsmm_parameters()), zoo.hsmm(*hsmm_parameters(), product=True)),
        "lexicalised_pcfg": (zoo.lexicalised_pcfg(*lexical), zoo.lexicalised_pcfg(*lexical, product=True)),
        "qcfg": (zoo.qcfg(*aligned), zoo.qcfg(*aligned, product=True)),
    }


def is_b_fgg(fgg: FGG) -> bool:
    """Every rule but those of the start symbol has one external node, which no nonterminal edge touches."""
    return all(
        len(rule.rhs.external) == (0 if rule.lhs == fgg.start else 1)
        and not any(set(edge.nodes) & set(rule.rhs.external) for edge in fgg.grammar.nonterminal_edges(rule))
        for rule in fgg.rules
    )


@pytest.mark.parametrize("name", both_forms())
def test_product_forms_are_b_fggs_of_the_same_weight(name: str) -> None:
    separate, together = both_forms()[name]
    assert is_b_fgg(together)
    assert not is_b_fgg(separate)
    for sentence in ([0], [2, 1], [1, 1, 0], [0, 2, 1, 2]):
        left, right = observe(separate, sentence), observe(together, sentence)
        # The same products, added in another order.
        torch.testing.assert_close(sum_product(left), sum_product(right), rtol=1e-13, atol=0)
        torch.testing.assert_close(sum_product(left, "log"), sum_product(right, "log"), rtol=1e-13, atol=1e-14)
        best = [sum_product(fgg, "max").log_weight for fgg in (left, right)]
        if name != "lexicalised_pcfg":  # there, B[h] C[h] adds the two ways to take h as the head
            torch.testing.assert_close(best[0], best[1], rtol=1e-13, atol=0)


def test_values_of_product_nodes_are_pairs() -> None:
    forms = both_forms()
    assert list(forms["hsmm"][1].domains["TD"].values) == [(t, d) for t in range(2) for d in range(TIMES)]
    assert list(forms["lexicalised_pcfg"][1].domains["NH"].values) == [(a, h) for a in range(2) for h in range(3)]
    assert list(forms["qcfg"][1].domains["NS"].values) == [(a, i) for a in range(2) for i in range(3)]


# --- probabilities ----------------------------------------------------------------------------------------------------


def total(model: FGG, words: int, longest: int) -> float:
    """Sum over every sentence up to a length, one by one."""
    every = [s for length in range(longest + 1) for s in product(range(words), repeat=length)]
    return sum(sum_product(observe(model, list(sentence))).item() for sentence in every)


def test_a_proper_hmm_sums_to_one() -> None:
    start, transition = distribution(STATES), distribution(STATES, STATES)
    end = 0.2 + 0.5 * weights(STATES, seed=1)
    emission = (1 - end)[:, None] * distribution(STATES, 2, seed=1)  # a state says a word or ends
    model = zoo.hmm(start, transition, emission, end)
    step = transition * (1 - end)
    rest = start @ torch.linalg.matrix_power(step, 4) @ torch.ones(STATES, dtype=torch.float64)  # a fourth word
    assert 0.01 < rest.item() < 0.5
    # Sums of probabilities: fifteen sentences, each rounded.
    assert total(model, 2, 3) + rest.item() == pytest.approx(1, rel=1e-13)
    assert sum_product(model).item() == pytest.approx(1, rel=1e-13)
    assert sum_product(model, "log").item() == pytest.approx(0, abs=1e-13)


def test_a_proper_hsmm_sums_to_one() -> None:
    start, duration = distribution(2), distribution(2, TIMES)
    end = torch.tensor([0.9, 0.95], dtype=torch.float64)
    transition = (1 - end)[:, None] * distribution(2, 2)
    for form in (False, True):
        model = zoo.hsmm(start, transition, duration, distribution(2, 2, seed=1), end, product=form)
        assert sum_product(model).item() == pytest.approx(1, rel=1e-13)  # rounding
        by_length = [sum_product(observe(model, [None] * length)).item() for length in range(10)]
        # Ten words or more are four segments or more, and each is followed by another with 0.1 at most.
        assert 1 - 0.1**4 < sum(by_length) < 1
        assert total(model, 2, 3) == pytest.approx(sum(by_length[:4]), rel=1e-13)


def test_a_proper_pcfg_sums_to_one() -> None:
    symbols = 2
    rule = 0.3 * distribution(symbols, symbols * symbols).reshape(symbols, symbols, symbols)
    emission = 0.7 * distribution(symbols, 2, seed=1)
    model = zoo.pcfg(distribution(symbols), rule, emission)
    assert sum_product(model).item() == pytest.approx(1, rel=1e-13)  # rounding
    by_length = [sum_product(observe(model, [None] * length)).item() for length in range(1, 9)]
    # Whatever the symbols, a tree of n words has probability C(n - 1) 0.3^(n - 1) 0.7^n.
    expected = [0.7]
    for n in range(1, 8):
        expected.append(expected[-1] * 2 * (2 * n - 1) / (n + 1) * 0.3 * 0.7)
    assert by_length == pytest.approx(expected, rel=1e-12)
    assert total(model, 2, 3) == pytest.approx(sum(by_length[:3]), rel=1e-13)


def test_a_proper_factored_pcfg_sums_to_one() -> None:
    """U over ranks for each nonterminal, V and W over symbols for each rank, E over words for each preterminal."""
    nonterminals, preterminals = 2, 6
    # Most children are preterminals, so that trees end.
    split = torch.tensor([0.2] * nonterminals + [1.0] * preterminals, dtype=torch.float64)
    left, right = (weights(RANKS, 8, seed=seed) * split for seed in (1, 2))
    left, right = left / left.sum(1, keepdim=True), right / right.sum(1, keepdim=True)
    model = zoo.split_factored_pcfg(
        distribution(nonterminals), distribution(nonterminals, RANKS), left, right, distribution(preterminals, WORDS)
    )
    assert sum_product(model).item() == pytest.approx(1, rel=1e-13)  # rounding
    lengths = [sum_product(observe(model, [None] * length)).item() for length in range(1, 4)]
    assert lengths[0] == 0
    assert lengths[1] > lengths[2] > 0
