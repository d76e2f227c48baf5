"""Pictures of trees: all of a tree is there, nothing stands on anything else, and gold tells solid from dashed."""

import random
from collections import Counter

import pytest

from rankspace import Tree
from rankspace.errors import RankspaceError, ShapeError
from rankspace.viz import Picture, tree_pair_picture, tree_picture
from rankspace.viz.layers import Box
from rankspace.viz.shapes import Line, Rectangle, Text
from viz.elements import flat, groups, is_within, line_boxes, meeting, root_of, text_box, texts

TREE = Tree.parse("(S (NP (DT the) (NN dog)) (VP (VBZ sees) (NP (NP (DT a) (NN cat)) (PP (IN in) (NP (NN town))))))")
GOLD = Tree.parse("(S (NP (DT the) (NN dog)) (VP (VP (VBZ sees) (NP (DT a) (NN cat))) (PP (IN in) (NP (NN town)))))")
CONFIDENCE = {(0, 2): 0.91, (2, 7): 0.5, (3, 7): 0.125, (1, 4): 0.3}


def random_tree(seed: int, num_words: int, labelled: bool) -> Tree:
    """Nodes of two or more children, unary chains, and symbols of any length, or none."""
    source = random.Random(seed)
    words = ["".join(source.choices("abiWm日\u0301", k=source.randint(1, 14))) for _ in range(num_words)]
    spans: list[tuple[int, int, str | None]] = []
    pending = [(0, num_words)]
    while pending:
        begin, end = pending.pop()
        for _ in range(source.choice((0, 1, 1, 1, 2))):
            spans.append((begin, end, "X" * source.randint(1, 12) if labelled and source.random() < 0.9 else None))
        if end - begin > 1:
            cuts = sorted(source.sample(range(begin + 1, end), min(end - begin - 1, source.choice((1, 1, 2)))))
            pending += list(zip([begin, *cuts], [*cuts, end], strict=True))
    return Tree.from_spans(words, spans)


def right_branching(num_words: int) -> Tree:
    return Tree.from_spans(["w"] * num_words, [(begin, num_words, "NT-1234") for begin in range(num_words - 1)])


def overlaps(picture: Picture) -> list[tuple[Box, Box]]:
    """Words and labels that meet each other, and those that meet a line of a node."""
    labels = [shape for group in groups(picture, "node") for shape in flat([group])]
    boxes = [text_box(shape) for shape in labels if isinstance(shape, Text)]
    words = [text_box(shape) for group in groups(picture, "word") for shape in flat([group]) if isinstance(shape, Text)]
    lines = [
        box
        for group in groups(picture, "bracket")
        for line in flat([group])
        if isinstance(line, Line)
        for box in line_boxes(line)
    ]
    crossed = [(box, line) for box in boxes + words for line in lines if box.meets(line)]
    return meeting(boxes + words) + crossed


def test_one_word_without_a_symbol_stands_alone() -> None:
    assert not groups(tree_picture(Tree.from_spans(["dog"], [])), "bracket")
    assert len(groups(tree_picture(Tree.parse("(NN dog)")), "bracket")) == 1


def test_all_words_and_symbols_are_there_and_words_stand_on_one_line() -> None:
    picture = tree_picture(TREE)
    symbols = [str(node.symbol) for node in TREE.nodes]
    assert Counter(texts(picture)) == Counter([*symbols, *map(str, TREE.words)])
    words = [shape for group in groups(picture, "word") for shape in flat([group]) if isinstance(shape, Text)]
    assert [word.text for word in words] == list(TREE.words)
    assert len({word.y for word in words}) == 1
    assert sorted(words, key=lambda word: word.x) == words
    assert root_of(picture).attrib["aria-label"] == f"tree: {TREE}"


def test_parents_stand_above_their_children() -> None:
    heights = {group.note: shape.y for group in groups(tree_picture(TREE), "node") for shape in flat([group])}  # type: ignore[union-attr]
    assert heights["S (0, 7) the dog sees a cat in town"] < heights["VP (2, 7) sees a cat in town"]
    assert heights["NP (6, 7) town"] < heights["NN (6, 7) town"]
    assert heights["NP (0, 2) the dog"] == heights["NP (3, 5) a cat"]


@pytest.mark.parametrize("labelled", [True, False])
@pytest.mark.parametrize("num_words", [1, 2, 3, 12, 60])
def test_nothing_overlaps_whatever_the_tree(num_words: int, labelled: bool) -> None:
    for seed in range(4 if num_words < 20 else 1):
        tree = random_tree(seed, num_words, labelled)
        spans = [(begin, end) for begin in range(num_words) for end in range(begin + 1, num_words + 1)]
        for confidence in (None, dict.fromkeys(spans, 0.5)):
            picture = tree_picture(tree, confidence, random_tree(seed + 1, num_words, True))
            assert overlaps(picture) == []
            assert is_within(picture)


def test_nothing_overlaps_in_the_deepest_tree() -> None:
    assert overlaps(tree_picture(right_branching(60), {(begin, 60): 0.25 for begin in range(60)})) == []
    assert len(texts(tree_picture(right_branching(300)))) == 300 + 299


def test_the_check_for_overlaps_sees_one() -> None:
    picture = tree_picture(TREE)
    shapes = (*picture.shapes, groups(picture, "word")[0], *groups(picture, "node")[:1])
    assert len(overlaps(Picture(picture.width, picture.height, shapes, ""))) >= 2


def test_confidence_is_a_colour_and_a_number_for_the_spans_of_the_tree() -> None:
    picture = tree_picture(TREE, CONFIDENCE)
    found = {group.note: list(flat([group])) for group in groups(picture, "node")}
    paper, tint, symbol, number = found["NP (0, 2): 0.91 the dog"]
    assert isinstance(paper, Rectangle)
    assert isinstance(tint, Rectangle)
    assert (paper.fill, tint.fill, tint.opacity) == ("paper", "accent", 0.91)
    assert isinstance(symbol, Text)
    assert isinstance(number, Text)
    assert (symbol.text, number.text, number.colour) == ("NP", "0.91", "on_accent")
    assert found["NP (3, 7): 0.12 a cat in town"][-1].colour == "ink"  # type: ignore[union-attr]
    assert [text for text in texts(picture) if text.startswith("0.")] == ["0.91", "0.50", "0.12"]
    assert texts(picture)[-3:] == ["0", "1", "probability"]


def test_rounding_of_probabilities_is_allowed() -> None:
    assert "1.00" in texts(tree_picture(TREE, {(0, 2): 1.0000001, (0, 7): -1e-7}))


def dashed(picture: Picture) -> list[str]:
    lines = {group.note: next(flat([group])) for group in groups(picture, "bracket")}
    return [note for note, line in lines.items() if isinstance(line, Line) and line.dashed]


def test_spans_that_gold_lacks_are_dashed_and_the_legend_says_so() -> None:
    picture = tree_picture(TREE, gold=GOLD)
    assert dashed(picture) == ["NP (3, 7) a cat in town"]
    assert [entry.note for entry in groups(picture, "entry")] == ["in gold", "not in gold"]
    assert dashed(tree_picture(TREE)) == []
    assert groups(tree_picture(TREE), "entry") == []
    flat_gold = Tree.from_spans(TREE.words, [])
    trivial = [note for note in dashed(tree_picture(TREE, gold=flat_gold)) if "(0, 7)" in note or note[-4:] == "town"]
    assert trivial == ["VP (2, 7) sees a cat in town", "NP (3, 7) a cat in town", "PP (5, 7) in town"]


@pytest.mark.parametrize("arrangement", ["beside", "below"])
def test_a_pair_has_both_trees_and_dashes_what_one_lacks(arrangement: str) -> None:
    picture = tree_pair_picture(TREE, GOLD, CONFIDENCE, arrangement=arrangement)  # type: ignore[arg-type]
    assert dashed(picture) == ["NP (3, 7): 0.12 a cat in town", "VP (2, 5) sees a cat"]
    assert overlaps(picture) == []
    assert is_within(picture)
    assert {"predicted", "gold"} <= set(texts(picture))
    assert [entry.note for entry in groups(picture, "entry")] == ["probability", "in both trees", "in one of them"]
    words = [shape for group in groups(picture, "word") for shape in flat([group]) if isinstance(shape, Text)]
    assert [word.text for word in words] == [*TREE.words, *TREE.words]
    if arrangement == "below":
        assert [word.x for word in words[:7]] == pytest.approx([word.x for word in words[7:]])
    else:
        assert len({word.y for word in words}) == 1


def test_a_wide_pair_stands_one_below_the_other() -> None:
    assert tree_pair_picture(TREE, GOLD).width > 1.5 * tree_picture(TREE).width
    long = Tree.from_spans(["international"] * 30, [])
    assert tree_pair_picture(long, long).width == tree_picture(long).width


def test_any_character_stands_for_itself() -> None:
    words = ["<b>", "&amp;", "]]>", "\"'", "日本語", "שלום", "x\u0301", "a\x07b", 12]
    tree = Tree.from_spans(words, [(0, 9, "<S&>"), (0, 2, 7)])
    assert {"<b>", "&amp;", "]]>", "\"'", "日本語", "שלום", "x\u0301", "a\\x07b", "12", "<S&>", "7"} == set(
        texts(tree_picture(tree))
    )


def test_what_is_no_probability_is_refused() -> None:
    for value in (1.5, -0.1, float("nan")):
        with pytest.raises(RankspaceError) as caught:
            tree_picture(TREE, {(0, 2): value})
        assert str(caught.value) == (
            f"tree_picture: the confidence of (0, 2) is {value}; give a probability from 0 to 1."
        )


def test_gold_of_another_length_is_refused() -> None:
    with pytest.raises(ShapeError) as caught:
        tree_pair_picture(TREE, Tree.parse("(S a b)"))
    assert str(caught.value) == ("tree_pair_picture: one tree has 7 words, the other 2; give trees of one sentence.")
