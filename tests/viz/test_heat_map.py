"""Heat maps: one cell for each span, gold outlined, words on the axes."""

import random

import pytest

from rankspace import Tree
from rankspace.errors import RankspaceError, ShapeError
from rankspace.viz import heat_map
from rankspace.viz.layers import Box
from rankspace.viz.shapes import Rectangle, Text
from viz.elements import flat, groups, is_within, meeting, text_box, texts

WORDS = ["the", "dog", "sees", "a", "cat"]
TREE = Tree.parse("(S (NP the dog) (VP sees (NP a cat)))")


def chart(size: int) -> list[list[float]]:
    source = random.Random(0)
    return [
        [source.uniform(0.01, 0.99) if end > begin else 0.0 for end in range(size + 1)] for begin in range(size + 1)
    ]


def box(cell: Rectangle) -> Box:
    return Box(cell.left, cell.top, cell.left + cell.width, cell.top + cell.height)


def test_there_is_a_cell_for_each_span_of_two_words_or_more() -> None:
    numbers = chart(5)
    numbers[1][3] = 0.004
    picture = heat_map(WORDS, numbers, TREE, "a title")
    cells = {group.note: list(flat([group])) for group in groups(picture, "cell")}
    assert len(cells) == 10 - 1  # one is too improbable to be written
    _, tint, number = cells[f"(0, 2): {numbers[0][2]:.2f} the dog"]
    assert isinstance(tint, Rectangle)
    assert isinstance(number, Text)
    assert (tint.opacity, number.text) == (numbers[0][2], f"{numbers[0][2]:.2f}")
    assert len([shape for shape in flat(picture.shapes) if isinstance(shape, Rectangle) and shape.fill == "wash"]) == 10
    assert [group.note for group in groups(picture, "first")] == WORDS
    assert [group.note for group in groups(picture, "last")] == WORDS[1:]
    assert [group.note for group in groups(picture, "entry")] == ["probability of the span", "in gold"]


def test_gold_is_outlined_where_its_cells_are() -> None:
    for gold in (TREE, [(0, 5), (0, 2), (2, 5), (3, 5), (0, 1)]):
        picture = heat_map(WORDS, chart(5), gold)
        outlines = [
            box(shape) for group in groups(picture, "gold") for shape in flat([group]) if isinstance(shape, Rectangle)
        ]
        assert [group.note for group in groups(picture, "gold")] == [
            "(0, 5) in gold", "(0, 2) in gold", "(2, 5) in gold", "(3, 5) in gold"
        ]  # fmt: skip
        cells = {group.note[:6]: next(flat([group])) for group in groups(picture, "cell")}
        assert [box(cells[note]) for note in ("(0, 5)", "(0, 2)", "(2, 5)", "(3, 5)")] == outlines  # type: ignore[arg-type]


@pytest.mark.parametrize("size", [1, 2, 12, 25, 60])
def test_cells_and_words_do_not_meet_and_stay_on_the_sheet(size: int) -> None:
    words = ["international" if place % 3 else "a" for place in range(size)]
    picture = heat_map(words, chart(size), [(0, size)], "title")
    cells = [box(shape) for shape in flat(picture.shapes) if isinstance(shape, Rectangle) and shape.fill == "wash"]
    names = [
        text_box(shape) for group in groups(picture, "first") for shape in flat([group]) if isinstance(shape, Text)
    ]
    assert meeting(names) == []
    assert meeting(cells[:400]) == []
    assert [name for name in names for cell in cells if name.meets(cell)] == []
    assert all(name.left >= 0 for name in names)
    assert is_within(picture)


def test_numbers_stand_in_large_cells_alone() -> None:
    assert any(text.startswith("0.") for text in texts(heat_map(["w"] * 20, chart(20))))
    assert not any(text.startswith("0.") for text in texts(heat_map(["w"] * 30, chart(30))))


def test_any_character_stands_for_itself() -> None:
    assert texts(heat_map(["<b>", "日本"], chart(2)))[2:5] == ["<b>", "日本", "日本"]


def test_the_axes_have_names() -> None:
    assert texts(heat_map(["a", "b"], chart(2)))[:2] == ["columns: end word", "rows: begin word"]
    assert is_within(heat_map(["a"], chart(1)))


def test_mistakes_are_named() -> None:
    numbers = chart(5)
    numbers[1][4] = 1.5
    cases = [
        ((WORDS, numbers), "heat_map: marginals[1][4] is 1.5; give probabilities from 0 to 1."),
        (([], [[]]), "heat_map: there are 0 words; give a sentence of 1 to 150."),
        ((["w"] * 151, chart(151)), "heat_map: there are 151 words; give a sentence of 1 to 150."),
        (
            (WORDS, chart(5), [(0, 6)]),
            "heat_map: the gold span (0, 6) leaves the sentence; give 0 <= begin < end <= 5.",
        ),
    ]
    for arguments, message in cases:
        with pytest.raises(RankspaceError) as caught:
            heat_map(*arguments)  # type: ignore[arg-type]
        assert str(caught.value) == message


def test_sizes_that_do_not_fit_are_named() -> None:
    with pytest.raises(ShapeError) as caught:
        heat_map(WORDS, chart(4))
    assert str(caught.value) == "heat_map: marginals are (5, 5) for 5 words; give (6, 6) numbers."
    with pytest.raises(ShapeError) as caught:
        heat_map(WORDS, chart(5), Tree.parse("(S a b)"))
    assert str(caught.value) == "heat_map: there are 5 words but gold has 2; give the tree of the sentence."
