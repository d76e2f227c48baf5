"""The synthetic treebank: its grammar, its sentences and their probabilities."""

import math
import sys
from functools import cache
from itertools import pairwise, product

import numpy as np
import pytest

from rankspace import Tree
from rankspace.data.synthetic import Expansion, SyntheticTreebank, TreebankGrammar, english
from rankspace.data.synthetic.grammar import label
from rankspace.data.synthetic.inside import InsideAlgorithm
from rankspace.data.synthetic.lexicon import conjugated, plural, zipf
from rankspace.data.synthetic.rules import Line, expand
from rankspace.errors import GrammarError, RankspaceError
from rankspace.evaluation import NgramModel, bounds, tree_perplexity

TINY = TreebankGrammar(
    rules={
        "S": (Expansion(("A", "B.x"), 0.5), Expansion(("A", "A", "S"), 0.2), Expansion(("B.y",), 0.3)),
        "A": (Expansion(("T",), 0.7), Expansion(("B.x", "T"), 0.3)),
        "B.x": (Expansion(("T",), 0.4), Expansion(("B.y",), 0.6)),
        "B.y": (Expansion(("U",), 0.9), Expansion(("U", "A"), 0.1)),
    },
    words={"T": {"a": 0.75, "b": 0.25}, "U": {"b": 0.5, "c": 0.5}},
)
SINGULAR_TAGS, PLURAL_TAGS = {"NN", "NNP"}, {"NNS"}
PLURAL_PRONOUNS = {"they", "we", "them", "us"}
ONLY_SINGULAR, ONLY_PLURAL = (
    {"a", "this", "every", "that", "another", "each"},
    {"these", "those", "some", "all", "many", "few"},
)


@cache
def treebank() -> SyntheticTreebank:
    return SyntheticTreebank()


@cache
def sample() -> list[Tree]:
    return treebank().trees(1000, seed=3)


def derivations(grammar: TreebankGrammar, symbol: str, words: tuple[str, ...]) -> list[float]:
    """The probability of each derivation of some words, found by trying everything."""
    if symbol in grammar.words:
        return [grammar.words[symbol][words[0]]] if len(words) == 1 and words[0] in grammar.words[symbol] else []
    return [
        probability * below
        for parts, probability in grammar.rules[symbol]
        for below in sequences(grammar, parts, words)
    ]


def sequences(grammar: TreebankGrammar, parts: tuple[str, ...], words: tuple[str, ...]) -> list[float]:
    if len(parts) == 1:
        return derivations(grammar, parts[0], words)
    return [
        left * right
        for end in range(1, len(words) - len(parts) + 2)
        for left in derivations(grammar, parts[0], words[:end])
        for right in sequences(grammar, parts[1:], words[end:])
    ]


def subtrees(tree: Tree) -> list[Tree]:
    found, pending = [], [tree]
    while pending:
        found.append(pending.pop())
        pending += [child for child in found[-1].children if isinstance(child, Tree)]
    return found


def number(noun_phrase: Tree) -> str:
    """Singular or plural, from what a tree shows."""
    tags = [child.symbol for child in noun_phrase.children if isinstance(child, Tree)]
    if "CC" in tags:
        return "plural"
    if tags[-1] in ("PP", "SBAR"):
        return number(noun_phrase.children[0])
    if tags[-1] == "PRP":
        return "plural" if noun_phrase.words[-1] in PLURAL_PRONOUNS else "singular"
    return "plural" if tags[-1] in PLURAL_TAGS else "singular"


def first_finite_verbs(verb_phrase: Tree) -> list[tuple[str, str]]:
    """Tag and word of the verb that agrees with the subject; of coordinated phrases, of each."""
    children = [child for child in verb_phrase.children if isinstance(child, Tree)]
    if any(child.symbol == "CC" for child in children):
        return [verb for child in children if child.symbol == "VP" for verb in first_finite_verbs(child)]
    verb = next(child for child in children if str(child.symbol)[0] in "VM")
    return [(str(verb.symbol), str(verb.words[0]))]


def test_expand_ties_variables_on_both_sides_and_divides_weight_among_the_others() -> None:
    assert expand("5 S -> NP.{n} VP.{n}") == [Line(3.0, "S", ("NP.sg", "VP.sg")), Line(2.0, "S", ("NP.pl", "VP.pl"))]
    assert expand("2 NP.{n} -> N.{n}") == [Line(2.0, "NP.sg", ("N.sg",)), Line(2.0, "NP.pl", ("N.pl",))]
    assert [line.rhs for line in expand("1 VP.{t} -> {h}.tr")] == [("VBZ.tr",), ("VBD.tr",), ("VBP.tr",), ("VBD.tr",)]


@pytest.mark.parametrize(
    ("noun", "expected"), [("dog", "dogs"), ("city", "cities"), ("boy", "boys"), ("box", "boxes"), ("man:men", "men")]
)
def test_plural(noun: str, expected: str) -> None:
    assert plural(noun) == expected


@pytest.mark.parametrize(
    ("verb", "expected"),
    [
        ("walk", ("walk", "walks", "walked", "walking", "walked")),
        ("love", ("love", "loves", "loved", "loving", "loved")),
        ("cry", ("cry", "cries", "cried", "crying", "cried")),
        ("watch", ("watch", "watches", "watched", "watching", "watched")),
        ("see:sees:saw:seeing:seen", ("see", "sees", "saw", "seeing", "seen")),
    ],
)
def test_conjugation(verb: str, expected: tuple[str, ...]) -> None:
    assert conjugated(verb) == expected


def test_frequencies_follow_ranks() -> None:
    assert zipf(["x", "y", "z"]) == pytest.approx({"x": 6 / 11, "y": 3 / 11, "z": 2 / 11})
    assert zipf(["x", "y"], flattening=2) == pytest.approx({"x": 4 / 7, "y": 3 / 7})


def test_the_grammar_has_a_size_worth_learning_and_uses_everything_it_has() -> None:
    grammar = english()
    counts = grammar.expected_counts
    assert 300 <= len(grammar.vocabulary) <= 1000
    assert all(counts[symbol] > 0 for symbol in (*grammar.rules, *grammar.words))
    assert {label(symbol) for symbol in grammar.rules} == {"S", "NP", "VP", "PP", "SBAR", "WHNP", "ADVP", "ADJP"}


def test_every_symbol_is_normalised() -> None:
    grammar = english()
    for expansions in grammar.rules.values():
        assert math.fsum(expansion.probability for expansion in expansions) == pytest.approx(1, abs=1e-12)
    for words in grammar.words.values():
        assert math.fsum(words.values()) == pytest.approx(1, abs=1e-12)


def test_a_grammar_that_is_not_one_is_refused() -> None:
    words = {"T": {"a": 1.0}}
    with pytest.raises(GrammarError, match=r"^TreebankGrammar: the expansions of S sum to 0\.5; they must sum to 1\.$"):
        TreebankGrammar({"S": (Expansion(("T",), 0.5),)}, words)
    with pytest.raises(GrammarError, match=r"^TreebankGrammar: S uses X, which has no rules and no words\.$"):
        TreebankGrammar({"S": (Expansion(("X",), 1.0),)}, words)
    message = r"^TreebankGrammar: sentences have infinite expected length; give recursive rules less\.$"
    with pytest.raises(GrammarError, match=message):
        TreebankGrammar({"S": (Expansion(("S", "S"), 0.5), Expansion(("T",), 0.5))}, words)


def test_probabilities_of_all_short_strings_equal_the_sum_over_derivations() -> None:
    inside = InsideAlgorithm(TINY)
    strings = [words for length in range(1, 6) for words in product("abc", repeat=length)]
    expected = [math.fsum(derivations(TINY, "S", words)) for words in strings]
    np.testing.assert_allclose(np.exp(inside.log_prob(strings)), expected, rtol=1e-12)  # some roundings of float64


def test_probabilities_of_all_strings_of_a_length_sum_to_that_of_the_length() -> None:
    inside = InsideAlgorithm(TINY)
    lengths = inside.length_probabilities(60)
    for length in range(1, 6):
        total = np.exp(inside.log_prob(list(product("abc", repeat=length)))).sum()
        assert total == pytest.approx(lengths[length], rel=1e-12)
    assert lengths.sum() == pytest.approx(1, abs=1e-9)  # what is longer than 60 words is less than that
    assert lengths @ np.arange(61) == pytest.approx(TINY.expected_length, abs=1e-7)


def test_the_inside_algorithm_equals_the_sum_over_derivations_on_english() -> None:
    sentences = [tree.words for tree in SyntheticTreebank(max_length=5).trees(5, seed=1)]
    expected = [math.log(math.fsum(derivations(english(), "S", tuple(map(str, words))))) for words in sentences]
    found = InsideAlgorithm(english()).log_prob([list(map(str, words)) for words in sentences])
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_probabilities_do_not_depend_on_the_batch() -> None:
    words = [tree.words for tree in sample()[:12]]
    alone = [treebank().log_prob([sentence])[0] for sentence in words]
    np.testing.assert_allclose(treebank().log_prob(words), alone, rtol=1e-12)


def test_long_sentences_stay_in_the_range_of_float64() -> None:
    """log p below that of the smallest float, and a word that only a rare tag saves at the end."""
    inside = InsideAlgorithm(english())
    long = ("three knives " + "beside us and three knives " * 40 + "hesitate to hesitate to tremble").split()
    log_prob = inside.log_prob([long])[0]
    assert -2000 < log_prob < math.log(sys.float_info.min)
    assert np.isneginf(inside.log_prob([[*long, "the"]]))


def test_impossible_and_unknown_words_are_minus_infinity() -> None:
    sentences = [["the", "dogs", "sleeps"], ["the", "dog", "zzz"], ["the", "dog", "sleeps"]]
    assert np.isneginf(treebank().log_prob(sentences)).tolist() == [True, True, False]


def test_sentences_that_are_empty_or_too_long_are_refused_or_impossible() -> None:
    with pytest.raises(RankspaceError, match=r"^log_prob: sentence 0 has no words; give at least one\.$"):
        treebank().log_prob([[]])
    assert np.isneginf(treebank().log_prob([["dog"] * 41]))


@pytest.mark.parametrize("max_length", [-1, 0, 1])
def test_a_length_that_cannot_be_is_refused(max_length: int) -> None:
    message = rf"^SyntheticTreebank: no sentence has at most {max_length} words; raise max_length\.$"
    with pytest.raises(RankspaceError, match=message):
        SyntheticTreebank(max_length)


def test_a_tree_is_at_most_as_likely_as_its_string() -> None:
    for sentence in treebank().generate(200, seed=5):
        assert sentence.log_joint <= sentence.log_prob + 1e-9  # equal where the string has one tree, up to rounding


def test_a_tree_shows_all_of_its_derivation() -> None:
    """So the probability of the derivation that was drawn is that of the tree."""
    for sentence in treebank().generate(60, seed=6):
        assert treebank().log_joint(sentence.tree) == pytest.approx(sentence.log_joint, rel=1e-12)


def test_a_tree_that_the_grammar_does_not_write_is_impossible() -> None:
    assert treebank().log_joint(Tree.parse("(S (NP (DT the) (NNS dogs)) (VP (VBZ sleeps)))")) == -math.inf
    assert treebank().log_joint(Tree.parse("(S (NP the dog) (VP sleeps))")) == -math.inf
    assert treebank().log_joint(Tree.parse("(S (NP (DT the) (NN dog)) (VP (VBZ sleeps)))")) > -20


def test_sampled_trees_have_the_entropy_that_the_grammar_promises() -> None:
    free = SyntheticTreebank(max_length=150)
    log_probs = np.array([drawn.log_prob for drawn in free.draws(500, seed=7)])
    error = log_probs.std() / math.sqrt(len(log_probs))
    assert abs(-log_probs.mean() - free.grammar.tree_entropy) < 4 * error  # four standard errors


def test_lengths_are_those_that_were_computed() -> None:
    bank = treebank()
    lengths = np.array([len(tree) for tree in sample()])
    assert lengths.max() <= bank.max_length
    assert abs(lengths.mean() - bank.expected_length) < 4 * lengths.std() / math.sqrt(len(lengths))
    assert 10 <= bank.expected_length <= 15
    assert 4 <= lengths.std() <= 10
    assert lengths.min() >= 2


def test_rejection_happens_as_often_as_computed() -> None:
    short = SyntheticTreebank(max_length=10)
    num_rejected = sum(drawn.num_rejected for drawn in short.draws(500, seed=8))
    expected = 500 * (1 - short.acceptance) / short.acceptance
    spread = math.sqrt(500 * (1 - short.acceptance)) / short.acceptance  # of a negative binomial distribution
    assert abs(num_rejected - expected) < 4 * spread


def test_probabilities_are_those_given_the_length() -> None:
    words = [["the", "dog", "sleeps"]]
    short = SyntheticTreebank(max_length=10)
    difference = short.log_prob(words)[0] - treebank().log_prob(words)[0]
    assert difference == pytest.approx(math.log(treebank().acceptance / short.acceptance))
    tiny = SyntheticTreebank(3, TINY)
    strings = [words for length in range(1, 4) for words in product("abc", repeat=length)]
    assert np.exp(tiny.log_prob(strings)).sum() == pytest.approx(1)


def test_verbs_agree_with_their_subjects() -> None:
    num_agreeing = 0
    for tree in sample()[:150]:
        for clause in subtrees(tree):
            children = [child for child in clause.children if isinstance(child, Tree)]
            symbols = [child.symbol for child in children]
            if clause.symbol != "S" or symbols[-2:] != ["NP", "VP"]:
                continue
            for tag, word in first_finite_verbs(children[-1]):
                allowed = {"singular": "VBZ", "plural": "VBP"}[number(children[-2])]
                assert tag in (allowed, "VBD", "MD"), clause
                assert word != {"singular": "were", "plural": "was"}[number(children[-2])], clause
                num_agreeing += tag == allowed
    assert num_agreeing > 50


def test_determiners_agree_with_their_nouns_and_articles_fit() -> None:
    for tree in sample()[:150]:
        for phrase in subtrees(tree):
            symbols = [child.symbol for child in phrase.children if isinstance(child, Tree)]
            if phrase.symbol == "NP" and symbols[0] == "DT":
                assert phrase.words[0] not in (ONLY_PLURAL if number(phrase) == "singular" else ONLY_SINGULAR), phrase
        assert not any(one == "a" and str(other)[0] in "aeiou" for one, other in pairwise(tree.words))


def test_the_same_seed_gives_the_same_sentences_on_every_machine() -> None:
    assert treebank().trees(50, seed=1) == treebank().trees(80, seed=1)[:50]
    assert treebank().trees(50, seed=1) != treebank().trees(50, seed=2)
    assert [drawn.tree for drawn in treebank().draws(3, seed=1)] == [s.tree for s in treebank().generate(3, seed=1)]
    assert [" ".join(map(str, tree.words)) for tree in treebank().trees(3)] == FIRST_SENTENCES


def test_no_sentences_and_less_than_none() -> None:
    assert treebank().generate(0) == []
    with pytest.raises(RankspaceError, match=r"^SyntheticTreebank: num is -1; give 0 or more\.$"):
        treebank().trees(-1)


def test_the_true_model_is_better_than_ngrams() -> None:
    training, test = [tree.words for tree in sample()], treebank().generate(150, seed=4)
    unigram, trigram = (
        NgramModel(training, order).perplexity([each.words for each in test]).perplexity for order in (1, 3)
    )
    true = tree_perplexity([each.log_prob for each in test], [len(each.tree) for each in test]).perplexity
    assert 40 < true < 60
    assert 1.5 * true < trigram < 0.75 * unigram


def test_trivial_parsers_do_badly() -> None:
    measured = bounds(sample())
    assert measured.right_branching.s_f1 < 45
    assert measured.left_branching.s_f1 < 25
    assert measured.random.s_f1 < 35
    assert measured.oracle.s_f1 > 80


FIRST_SENTENCES = [
    "send a book to famous hills",
    "since these kings forgot that that teacher is behind this lake every city soldier hears that in the child that the"
    " dog quickly meets the clocks help it",
    "call every ship who often waited",
]
