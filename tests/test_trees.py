"""Trees: what they say of themselves, text and back, deep trees, and the wording of errors."""

import copy
import pickle
import sys

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from rankspace import Tree
from rankspace.errors import FormatError, MissingExtraError, RankspaceError
from rankspace.trees import Node

DOG = Tree.parse("(S (NP (DT the) dog) ( (V barks) loudly at (NP cats)))")

escapes = st.text("-\\LRB()aX", min_size=1)  # all that matters to -LRB- and its like
names = escapes | st.text(min_size=1).filter(lambda text: text.split() == [text])


def node_over(parts: st.SearchStrategy) -> st.SearchStrategy:
    return st.tuples(st.none() | names, st.lists(parts, min_size=1, max_size=4)).map(lambda node: (node[0], *node[1]))


nested = node_over(st.recursive(names, node_over, max_leaves=12))


def test_a_tree_says_what_it_is() -> None:
    assert DOG.words == ("the", "dog", "barks", "loudly", "at", "cats")
    assert (len(DOG), DOG.symbol, DOG.height, DOG.is_binary) == (6, "S", 3, False)
    assert DOG.nodes == ((0, 6, "S"), (0, 2, "NP"), (0, 1, "DT"), (2, 6, None), (2, 3, "V"), (5, 6, "NP"))
    assert DOG.spans() == list(DOG.nodes)
    assert DOG.spans(min_width=2, whole=False) == [(0, 2, "NP"), (2, 6, None)]
    first, second = DOG.children
    assert first == Tree.parse("(NP (DT the) dog)")
    assert second.children == (Tree.parse("(V barks)"), "loudly", "at", Tree.parse("(NP cats)"))


@pytest.mark.parametrize(
    ("text", "is_binary", "height"),
    [
        ("(S dog)", True, 1),
        ("(S (N dog))", False, 2),
        ("(S the dog)", True, 1),
        ("(S (D the) (N dog))", True, 2),
        ("(S (NP (D the) (N dog)))", False, 3),
        ("(S (NP the dog) barks)", True, 2),
        ("(S the dog barks)", False, 1),
    ],
)
def test_binary_and_height(text: str, is_binary: bool, height: int) -> None:
    tree = Tree.parse(text)
    assert (tree.is_binary, tree.height) == (is_binary, height)


def test_the_ways_to_make_a_tree_agree() -> None:
    spans = [(2, 3, "V"), (0, 2, "NP"), (2, 6), (0, 1, "DT"), (0, 6, "S"), (5, 6, "NP")]
    assert Tree.from_spans(DOG.words, spans) == DOG
    inner = (None, ("V", "barks"), "loudly", "at", ("NP", "cats"))
    assert Tree.from_nested(("S", ["NP", ("DT", "the"), "dog"], inner)) == DOG
    plain = Tree.from_spans(["the", "dog", "barks"], [(0, 2)])
    assert plain == Tree.from_nested((("the", "dog"), "barks"), labelled=False)
    assert plain == Tree.parse("((the dog)\n barks)", labelled=False)
    assert plain == Tree.parse("( ( the dog) barks)")
    assert str(Tree.from_spans(["dog"], [])) == "( dog)"


def test_of_equal_spans_the_first_is_the_topmost() -> None:
    assert str(Tree.from_spans("ab", [(0, 2, "X"), (0, 2, "Y"), (0, 1, "Z")])) == "(X (Y (Z a) b))"


def test_equal_trees_are_one_key() -> None:
    same = Tree.parse(str(DOG))
    assert {DOG: 1}[same] == 1
    assert same == pickle.loads(pickle.dumps(DOG)) == copy.deepcopy(DOG)
    assert DOG.map_symbols(lambda _: None) != DOG
    with pytest.raises(AttributeError):
        DOG.words = ()


def test_words_and_symbols_can_be_replaced() -> None:
    numbers = {word: number for number, word in enumerate(DOG.words)}
    numbered = DOG.map_words(numbers.__getitem__).map_symbols(len)
    assert str(numbered) == "(1 (2 (2 0) 1) ( (1 2) 3 4 (2 5)))"
    assert numbered.map_words(lambda number: DOG.words[number]).words == DOG.words
    assert numbered.nodes[0] == Node(0, 6, 1)


def test_text_without_symbols() -> None:
    assert DOG.bracketed(labelled=False) == "(((the) dog) ((barks) loudly at (cats)))"


def test_brackets_within_words() -> None:
    tree = Tree.parse("(-LRB- -LRB- :-RRB- -\\LRB-)")
    assert (tree.symbol, tree.words) == ("(", ("(", ":)", "-LRB-"))
    assert str(tree) == "(-LRB- -LRB- :-RRB- -\\LRB-)"


@given(nested)
def test_text_round_trip(found: tuple) -> None:
    tree = Tree.from_nested(found)
    assert Tree.parse(str(tree)) == tree
    plain = tree.map_symbols(lambda _: None)
    assert Tree.parse(tree.bracketed(labelled=False), labelled=False) == plain
    assert Tree.from_spans(tree.words, reversed(plain.spans())) == plain
    parts = [part if isinstance(part, str) else part.words[0] for part in tree.children]
    assert parts[0] == tree.words[0]


@settings(max_examples=30)
@given(nested)
def test_nltk_round_trip(found: tuple) -> None:
    nltk = pytest.importorskip("nltk")
    tree = Tree.from_nested(found)
    theirs = tree.to_nltk()
    assert isinstance(theirs, nltk.Tree)
    assert tuple(theirs.leaves()) == tree.words
    assert Tree.from_nltk(theirs) == tree


def test_nltk_reads_the_same_text() -> None:
    nltk = pytest.importorskip("nltk")
    text = "(S (NP (DT the) (NN dog)) (VP (V barks)))"
    assert Tree.from_nltk(nltk.Tree.fromstring(text)) == Tree.parse(text)
    assert Tree.parse(text).to_nltk() == nltk.Tree.fromstring(text)


def test_drawing() -> None:
    assert DOG.drawing().splitlines() == [
        "S",
        "├─ NP",
        "│  ├─ DT the",
        "│  └─ dog",
        "└──┐",
        "   ├─ V barks",
        "   ├─ loudly",
        "   ├─ at",
        "   └─ NP cats",
    ]
    plain = Tree.parse("(((the big) dog) barks)", labelled=False)
    assert plain.drawing().splitlines() == [
        "┐",
        "├──┐",
        "│  ├──┐",
        "│  │  ├─ the",
        "│  │  └─ big",
        "│  └─ dog",
        "└─ barks",
    ]
    assert Tree.parse("(S (A (B a)) ( b))").drawing().splitlines() == ["S", "├─ A", "│  └─ B a", "└──┐", "   └─ b"]


def test_deep_trees_do_not_recurse() -> None:
    length = 2000
    deep: tuple | str = "w"
    for _ in range(length - 1):
        deep = ("X", "w", deep)
    tree = Tree.from_nested(deep)
    assert (len(tree), tree.height, tree.is_binary) == (length, length - 1, True)
    others = [
        Tree.parse(str(tree)),
        Tree.from_spans(["w"] * length, [(begin, length, "X") for begin in range(length - 1)]),
        pickle.loads(pickle.dumps(tree)),
        copy.deepcopy(tree),
    ]
    assert all(other == tree and hash(other) == hash(tree) for other in others)
    assert len(repr(tree)) > length
    assert tree.drawing().count("\n") == 2 * length - 2
    assert len(tree.children[1]) == length - 1
    pytest.importorskip("nltk")
    assert Tree.from_nltk(tree.to_nltk()) == tree


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (" \n", "the text is empty; write a tree such as (S (NP the dog) barks)."),
        ("(S (NP the dog)\n  (VP barks", "line 2, column 3: this ( is never closed; add the missing )."),
        ("(S dog))", "line 1, column 8: this ) closes nothing; remove it or add its (."),
        ("dog", "line 1, column 1: 'dog' stands outside of the brackets; write (S (NP the dog) barks)."),
        ("(S dog)\n(S cat)", "line 2, column 1: a second tree begins here; parse one tree at a time."),
        ("(S (dog) barks)", "line 1, column 4: this node has no words; remove it, or put a space after the (."),
    ],
)
def test_broken_text(text: str, message: str) -> None:
    with pytest.raises(FormatError) as caught:
        Tree.parse(text)
    assert str(caught.value) == f"Tree.parse: {message}"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Tree.from_spans([], []), "Tree: there are no words; give at least one."),
        (
            lambda: Tree.from_spans("abcd", [(2, 3), (1, 4), (0, 2)]),
            "Tree: the spans (0, 2) and (1, 4) cross; give spans nested or apart.",
        ),
        (
            lambda: Tree.from_spans("abc", [(0, 2), (1, 4)]),
            "Tree: the span (1, 4) leaves the sentence; give 0 <= begin < end <= 3.",
        ),
        (
            lambda: Tree.from_spans("abc", [(2, 2)]),
            "Tree: the span (2, 2) leaves the sentence; give 0 <= begin < end <= 3.",
        ),
        (
            lambda: Tree(("a", "b"), (Node(0, 1),)),
            "Tree: the first node is not (0, 2); begin with the root, or use from_spans.",
        ),
        (
            lambda: Tree(("a", "b"), (Node(0, 2), Node(1, 2), Node(0, 1))),
            "Tree: the nodes are not in preorder; sort them by begin, wider ones first.",
        ),
        (
            lambda: Tree.from_spans(["a", "b c"], []),
            "Tree: word 1 is 'b c'; give text without white space, not empty.",
        ),
        (
            lambda: Tree.from_spans("ab", [(0, 1, "")]),
            "Tree: symbol 1 is ''; give text without white space, not empty.",
        ),
        (
            lambda: Tree.from_nested(("S", "a", ("NP",))),
            "Tree.from_nested: a node after 1 words has none of its own; remove it.",
        ),
        (
            lambda: Tree.from_nested((("the", "dog"), "barks")),
            "Tree.from_nested: a node does not begin with its symbol; put it (or None) first, or pass labelled=False.",
        ),
        (
            lambda: Tree.from_nested(("S", 1.5)),
            "Tree.from_nested: 1.5 is neither a word nor a node; a word is a str or an int, a node a tuple.",
        ),
        (
            lambda: Tree.from_nltk(("dog", "NN")),
            "Tree.from_nltk: ('dog', 'NN') is neither a word nor an nltk.Tree; a word is a str or an int.",
        ),
    ],
)
def test_errors(call, message: str) -> None:
    with pytest.raises(RankspaceError) as caught:
        call()
    assert str(caught.value) == message


def test_nltk_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "nltk.tree", None)
    with pytest.raises(MissingExtraError) as caught:
        DOG.to_nltk()
    expected = "Tree.to_nltk: nltk is not installed; install it with pip install 'rankspace[pictures]'."
    assert str(caught.value) == expected
