"""Grammars that parse together: means of marginals, the trees that are best under them, and who has a part."""

import pickle
from itertools import product
from typing import Any

import pytest
import torch

from rankspace.data import Vocabulary
from rankspace.errors import RankspaceError
from rankspace.models import create
from rankspace.training import Together, Trained
from rankspace.training.together import decoded
from rankspace.trees import Tree

WORDS = Vocabulary(("<unk>", "a", "b", "c"))
GRAMMAR = {"of": "rank-pcfg", "nonterminals": 3, "preterminals": 4, "rank": 5}
SENTENCES = [list("abca"), list("b"), [], list("cab"), list("abcabc"), list("ac")]


def grammar(seed: int, without: str = "", vocabulary: Vocabulary = WORDS) -> Trained:
    """Random rules, peaked ones; one that emits no `without` cannot produce sentences that have it."""
    torch.manual_seed(seed)
    model = create("direct", vocabulary=len(vocabulary), **GRAMMAR)
    weights = model.state_dict()
    for table in weights.values():
        table.normal_(std=3)
    if without:
        weights["logits.log_emission"][:, vocabulary.index[without]] = -torch.inf
    return Trained(model, vocabulary, {})


@pytest.fixture(scope="module")
def three() -> list[Trained]:
    return [grammar(seed) for seed in (1, 2, 3)]


def binary_trees(begin: int, end: int) -> list[frozenset[tuple[int, int]]]:
    """Spans of two words or more of every binary tree."""
    if end - begin == 1:
        return [frozenset()]
    return [
        left | right | {(begin, end)}
        for split in range(begin + 1, end)
        for left, right in product(binary_trees(begin, split), binary_trees(split, end))
    ]


def spans(tree: Tree | None) -> set[tuple[int, int]]:
    assert tree is not None
    return {(begin, end) for begin, end, _ in tree.spans(min_width=2)}


def test_the_mean_of_what_each_grammar_says(three: list[Trained]) -> None:
    found = Together(three).span_marginals(SENTENCES)
    for place, words in enumerate(SENTENCES):
        if len(words) < 2:
            continue
        own: list[Any] = []
        for each in three:
            (part, posed), *_ = each.posed([words])
            assert part.lengths == [len(words)]
            query: Any = posed.distribution
            own.append(query.span_marginals(posed.words, posed.lengths)[0])
        torch.testing.assert_close(found[place], (own[0].double() + own[1].double() + own[2].double()) / 3)
    assert found[2] is None
    assert found[1] is not None
    assert found[1].tolist() == [[0, 1], [0, 0]]


def test_the_tree_with_the_most_expected_spans_of_all_trees(three: list[Trained]) -> None:
    together = Together(three)
    marginals, trees = together.span_marginals(SENTENCES), together.parse(SENTENCES)
    for place in (0, 3, 4, 5):
        chart = marginals[place]
        assert chart is not None
        ranked = sorted(
            (-sum(float(chart[span]) for span in tree), sorted(tree)) for tree in binary_trees(0, len(SENTENCES[place]))
        )
        assert sorted(spans(trees[place])) == ranked[0][1]
        best = decoded([SENTENCES[place]], [chart], 3)[0]
        assert [total for _, total in best] == pytest.approx([-total for total, _ in ranked[:3]])
        assert [sorted(spans(tree)) for tree, _ in best] == [tree for _, tree in ranked[:3]]
        assert trees[place] == best[0][0]
    assert trees[1] == Tree.from_spans(["b"], [])
    assert trees[2] is None


def test_they_agree_with_none_of_themselves_alone(three: list[Trained]) -> None:
    """The grammars differ, or the mean would show nothing."""
    sentences = [list(words) for words in ("abcabca", "bbcaacb", "cabbacc", "accabba")]
    alone = [each.parse(sentences) for each in three]
    assert all(one != other for place, one in enumerate(alone) for other in alone[:place])
    assert Together(three).parse(sentences) not in alone


def test_one_grammar_or_the_same_twice_is_that_grammar(three: list[Trained]) -> None:
    expected = three[0].parse(SENTENCES)
    assert Together(three[:1]).parse(SENTENCES) == expected
    assert Together([three[0], three[0]]).parse(SENTENCES) == expected


def test_a_grammar_that_cannot_produce_a_sentence_has_no_part_in_it(three: list[Trained]) -> None:
    lacking = grammar(4, without="c")
    together = Together([three[0], lacking]).parse(SENTENCES)
    alone = three[0].parse(SENTENCES)
    with_c = [place for place, words in enumerate(SENTENCES) if "c" in words]
    assert [together[place] for place in with_c] == [alone[place] for place in with_c]
    assert Together([lacking, lacking]).parse([list("abc"), list("ab")])[0] is None
    assert Together([lacking, lacking]).parse([list("abc"), list("ab")])[1] is not None


def test_each_reads_words_by_its_own_vocabulary(three: list[Trained]) -> None:
    other = grammar(1, vocabulary=Vocabulary(("<unk>", "c", "b", "a")))
    turned = [[{"a": "c", "c": "a"}.get(word, word) for word in words] for words in SENTENCES]
    for one, two in zip(other.span_marginals(SENTENCES), three[0].span_marginals(turned), strict=True):
        assert (one is None and two is None) or torch.equal(one, two)  # type: ignore[arg-type]
    found = Together([three[1], other]).span_marginals(SENTENCES)[0]
    own, others = three[1].span_marginals(SENTENCES)[0], three[0].span_marginals(turned)[0]
    assert own is not None
    assert others is not None
    torch.testing.assert_close(found, (own + others) / 2)


def test_batches_change_nothing(three: list[Trained], monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Together(three).parse(SENTENCES)
    monkeypatch.setattr("rankspace.training.together.NUMBERS_TOGETHER", 40)
    assert Together(three).parse(SENTENCES) == whole


def test_a_trained_grammar_can_be_sent_to_other_processes(three: list[Trained]) -> None:
    sent = pickle.loads(pickle.dumps(three[0]))
    assert sent.parse(SENTENCES) == three[0].parse(SENTENCES)


def test_nothing_to_parse(three: list[Trained]) -> None:
    assert Together(three).parse([]) == []
    assert Together(three).parse([[]]) == [None]


def test_mistakes(three: list[Trained]) -> None:
    with pytest.raises(RankspaceError) as caught:
        Together([])
    assert str(caught.value) == "Together: there is no grammar; give at least one."
    chain = Trained(create("direct", vocabulary=4, of="hmm", states=3), WORDS, {})
    with pytest.raises(RankspaceError) as caught:
        Together([three[0], chain])
    assert str(caught.value) == "Together: direct is a chain; give grammars, which have trees."
    with pytest.raises(RankspaceError) as caught:
        chain.span_marginals(SENTENCES)
    assert str(caught.value) == "span_marginals: direct is a chain; this is for grammars, which have trees."
