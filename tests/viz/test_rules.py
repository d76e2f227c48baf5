"""Pictures of rules: what is in the files, that nothing stands on anything else, and what goes wrong how."""

import random
import sys
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import combinations
from pathlib import Path

import pytest
import torch
from torch import Tensor

from rankspace.errors import MissingExtraError, RankspaceError
from rankspace.fgg import FGG, Indicator, Node, Rule, observe, zoo
from rankspace.viz import draw_rules
from rankspace.viz.drawing import (
    FONT,
    SMALL_FONT,
    Piece,
    factor_label,
    label_size,
    node_labels,
    nonterminal_label,
    rule_label,
)
from rankspace.viz.layers import Box, Part, place_in_layers
from rankspace.viz.layout import Layout
from rankspace.viz.rules import MAX_RULES, panels

matplotlib = pytest.importorskip("matplotlib")


def weights(*shape: int) -> Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(0))


ZOO: dict[str, Callable[[], FGG]] = {
    "hmm": lambda: zoo.hmm(weights(2), weights(2, 2), weights(2, 3), weights(2)),
    "factored_hmm": lambda: zoo.factored_hmm(weights(2), weights(2, 4), weights(4, 2), weights(4, 3), weights(2)),
    "lhmm": lambda: zoo.lhmm(weights(2), weights(2, 4), weights(4, 2), weights(2, 3), weights(2)),
    "hsmm": lambda: zoo.hsmm(weights(2), weights(2, 2), weights(2, 4), weights(2, 3), weights(2)),
    "hsmm, product": lambda: zoo.hsmm(
        weights(2), weights(2, 2), weights(2, 4), weights(2, 3), weights(2), product=True
    ),
    "pcfg": lambda: zoo.pcfg(weights(2), weights(2, 2, 2), weights(2, 3)),
    "split_pcfg": lambda: zoo.split_pcfg(weights(2), weights(2, 4, 4), weights(2, 3)),
    "factored_pcfg": lambda: zoo.factored_pcfg(weights(2), weights(2, 4), weights(4, 2), weights(4, 2), weights(2, 3)),
    "split_factored_pcfg": lambda: zoo.split_factored_pcfg(
        weights(2), weights(2, 5), weights(5, 4), weights(5, 4), weights(2, 3)
    ),
    "lpcfg": lambda: zoo.lpcfg(weights(2), weights(2, 4), weights(4, 2, 2), weights(2, 3)),
    "lexicalised_pcfg": lambda: zoo.lexicalised_pcfg(
        weights(2, 3), weights(2, 3, 2, 2, 3), weights(2, 3, 2, 2, 3), weights(2, 3)
    ),
    "lexicalised_pcfg, product": lambda: zoo.lexicalised_pcfg(
        weights(2, 3), weights(2, 3, 2, 2, 3), weights(2, 3, 2, 2, 3), weights(2, 3), product=True
    ),
    "qcfg": lambda: zoo.qcfg(weights(2, 3), weights(2, 3, 2, 3, 2, 3), weights(2, 3, 3)),
    "qcfg, product": lambda: zoo.qcfg(weights(2, 3), weights(2, 3, 2, 3, 2, 3), weights(2, 3, 3), product=True),
}


def odd_grammar() -> FGG:
    """Repeated endpoints, edges without endpoints, an empty right-hand side, external nodes in another order."""
    rules = [
        Rule.build("S", {"n1": "N"}, [("pair", "n1", "n1"), ("scalar",), ("Z",), ("X", "n1", "n1")], name="pi_1"),
        Rule.build("Z", {}, name="nothing"),
        Rule.build("X", {"n1": "N", "n2": "N"}, [("pair", "n1", "n2"), ("one", "n2")], ["n2", "n1"], name="pi_2"),
    ]
    factors = {"pair": weights(2, 2), "scalar": weights(), "one": Indicator(0, 2)}
    return FGG.build("S", rules, {"N": 2}, factors)


def random_grammar(seed: int, chain: bool) -> FGG:
    """Fragments of up to 10 nodes and 10 edges, of any shape; in chains, one nonterminal edge in each."""
    choose = random.Random(seed)
    rules = []
    for number in range(4):
        nodes = {f"v{i}": "N" for i in range(choose.randint(2, 10))}
        edges = []
        for i in range(choose.randint(1, 10)):
            ends = choose.choices(list(nodes), k=choose.choice([0, 1, 1, 2, 2, 3, 4]))
            kind = choose.choice(["factor", "factor", "X"]) if i == 0 or not chain else "factor"
            edges.append((f"{kind}{len(ends)}", *ends))
        rules.append(Rule.build(f"E{number}", nodes, edges, list(nodes)[: choose.randint(0, 2)]))
    stops = [
        Rule.build(f"X{k}", {f"n{i}": "N" for i in range(k)}, external=[f"n{i}" for i in range(k)]) for k in range(5)
    ]
    start = [Rule.build("S", {}, [("factor0",)])]
    used = {edge.label for rule in start + rules for edge in rule.rhs.edges}
    factors = {f"factor{k}": weights(*[2] * k) for k in range(5) if f"factor{k}" in used}
    return FGG.build("S", start + rules + stops, {"N": 2}, factors)


def layouts(fgg: FGG) -> Iterator[tuple[str, Layout]]:
    for rule, panel in zip(fgg.rules, panels(fgg, fgg.rules), strict=True):
        yield f"left-hand side of {rule}", panel.lhs.layout
        yield f"right-hand side of {rule}", panel.rhs.layout


def overlaps(fgg: FGG) -> list[str]:
    """The pairs of nodes, edges and labels that stand on each other."""
    found = []
    for place, layout in layouts(fgg):
        boxes = [(part, box) for part, boxes in layout.boxes.items() for box in boxes]
        found += [f"{place}: {a}, {b}" for (a, one), (b, other) in combinations(boxes, 2) if one.meets(other)]
    return found


def texts(path: Path) -> list[str]:
    return [element.text or "" for element in ElementTree.parse(path).iter("{http://www.w3.org/2000/svg}text")]


# Files


@pytest.mark.parametrize(
    ("name", "beginning"), [("a.svg", b"<?xml"), ("a.png", b"\x89PNG"), ("a.pdf", b"%PDF"), ("A.SVG", b"<?xml")]
)
def test_each_suffix_gives_a_file_of_its_format_and_the_same_bytes_twice(
    tmp_path: Path, name: str, beginning: bytes
) -> None:
    fgg = ZOO["hmm"]()
    draw_rules(fgg, tmp_path / name)
    first = (tmp_path / name).read_bytes()
    draw_rules(fgg, str(tmp_path / name))
    assert first.startswith(beginning)
    assert len(first) > 5000
    assert (tmp_path / name).read_bytes() == first
    assert [file.name for file in tmp_path.iterdir()] == [name]


def test_the_picture_has_every_label(tmp_path: Path) -> None:
    draw_rules(ZOO["hmm"](), tmp_path / "hmm.svg")
    assert Counter(texts(tmp_path / "hmm.svg")) == Counter(
        {
            "S": 1,
            "X": 4,
            "T": 7,
            "O": 1,
            "1": 6,
            "2": 3,
            "3": 2,
            "\u03c0": 3,
            "start": 1,
            "transition": 2,
            "emission": 1,
            "end": 1,
        }
    )


def test_a_conjoined_grammar_shows_spans_and_words(tmp_path: Path) -> None:
    draw_rules(observe(ZOO["pcfg"](), [0, 1, 2]), tmp_path / "pcfg.svg")
    found = Counter(texts(tmp_path / "pcfg.svg"))
    assert {text: found[text] for text in ("X,", "(0,3)", "(1,2)", "O=0", "O=1", "O=2", "emission", "rule")} == {
        "X,": 16, "(0,3)": 3, "(1,2)": 3, "O=0": 1, "O=1": 1, "O=2": 1, "emission": 3, "rule": 4
    }  # fmt: skip


def test_external_nodes_are_black_and_words_red(tmp_path: Path) -> None:
    draw_rules(observe(ZOO["pcfg"](), [0, 1, 2]), tmp_path / "pcfg.svg", ["pi_5"])
    picture = (tmp_path / "pcfg.svg").read_text()
    assert picture.count('fill: #ffffff" x=') == 3 * 2 * 2  # three rules, two sides, label and subscript of N_1
    assert picture.count('style="stroke: #000000') == 3 * 2  # an outline without any other fill
    assert picture.count('style="fill: #b01010; stroke: #b01010') == 3


def test_only_the_named_rules_are_drawn(tmp_path: Path) -> None:
    draw_rules(ZOO["hmm"](), tmp_path / "hmm.svg", ["pi_3", "pi_1"])
    found = texts(tmp_path / "hmm.svg")
    assert found.count("\u03c0") == 2
    assert "emission" not in found
    assert found.index("start") < found.index("transition")  # in the order of the grammar


def test_all_rules_of_one_name_are_drawn(tmp_path: Path) -> None:
    draw_rules(observe(ZOO["pcfg"](), [0, 1, 2]), tmp_path / "pcfg.svg", ["pi_6"])
    assert texts(tmp_path / "pcfg.svg").count("\u03c0") == 4


def test_any_character_stands_for_itself(tmp_path: Path) -> None:
    node, factor, word, name = "a$b_\\{}^#%'\"", "$p_i$ <&>", "O=$\\frac{1}{2}$", "{x}_$1%#^"
    rules = [
        Rule.build("\u65e5\u672c", {"v": node}, [(factor, "v"), (word, "v"), ("two\nlines\x00", "v")], ["v"], name),
        Rule.build("S", {"v": node}, [("\u65e5\u672c", "v")]),
    ]
    factors = {factor: weights(2), word: Indicator(0, 2), "two\nlines\x00": weights(2)}
    draw_rules(FGG.build("S", rules, {node: 2}, factors), tmp_path / "odd.svg")
    assert {node, factor, word, name, "\u65e5\u672c", "two\\nlines\\x00"} <= set(texts(tmp_path / "odd.svg"))


def test_drawing_leaves_matplotlib_as_it_was(tmp_path: Path) -> None:
    before = dict(matplotlib.rcParams)
    loaded = "matplotlib.pyplot" in sys.modules
    draw_rules(ZOO["hmm"](), tmp_path / "hmm.svg")
    assert dict(matplotlib.rcParams) == before
    assert ("matplotlib.pyplot" in sys.modules) == loaded


def test_settings_of_the_user_do_not_change_the_picture(tmp_path: Path) -> None:
    draw_rules(ZOO["hmm"](), tmp_path / "plain.svg")
    with matplotlib.rc_context({"font.family": "monospace", "svg.fonttype": "path", "text.color": "green"}):
        draw_rules(ZOO["hmm"](), tmp_path / "styled.svg")
    assert (tmp_path / "plain.svg").read_bytes() == (tmp_path / "styled.svg").read_bytes()


def test_many_rules_fill_a_grid(tmp_path: Path) -> None:
    fgg = observe(zoo.pcfg(weights(2), weights(2, 2, 2), weights(2, 6)), list(range(6)))
    draw_rules(fgg, tmp_path / "many.svg")
    left, bottom, width, height = map(
        float, ElementTree.parse(tmp_path / "many.svg").getroot().attrib["viewBox"].split()
    )
    assert (left, bottom) == (0, 0)
    assert 1 < width / height < 2
    assert texts(tmp_path / "many.svg").count("\u03c0") == len(fgg.rules) == 42


# Layout


@pytest.mark.parametrize("name", ZOO)
def test_nothing_overlaps_in_the_zoo(name: str) -> None:
    fgg = ZOO[name]()
    assert overlaps(fgg) == []
    assert [place for place, layout in layouts(fgg) if layout.lines_behind_parts()] == []


@pytest.mark.parametrize("name", ZOO)
def test_nothing_overlaps_in_conjoined_grammars(name: str) -> None:
    fgg = observe(ZOO[name](), [0, 1, 2])
    assert overlaps(fgg) == []
    assert [place for place, layout in layouts(fgg) if layout.lines_behind_parts()] == []


@pytest.mark.parametrize("chain", [False, True])
@pytest.mark.parametrize("seed", range(8))
def test_nothing_overlaps_in_fragments_of_any_shape(seed: int, chain: bool) -> None:
    assert overlaps(random_grammar(seed, chain)) == []


def test_the_check_for_overlaps_sees_one() -> None:
    assert Box(0.0, 0.0, 2.0, 2.0).meets(Box(1.0, 1.0, 3.0, 3.0))
    assert not Box(0.0, 0.0, 2.0, 2.0).meets(Box(2.0, 0.0, 3.0, 2.0))
    assert not Box(0.0, 0.0, 2.0, 2.0).meets(Box(0.0, 2.5, 2.0, 3.0))


def test_a_chain_flows_to_the_right_with_its_word_below() -> None:
    centres = centres_of(observe(ZOO["hmm"](), [0]), "pi_2")
    chain = ["t1", "e0", "t2", "e2"]
    assert [centres[name][1] for name in chain] == pytest.approx([centres["t1"][1]] * 4, abs=0.1)
    assert sorted(chain, key=lambda name: centres[name][0]) == chain
    hanging = ["t2", "e1", "o3", "o3=w0"]
    assert [centres[name][0] for name in hanging] == pytest.approx([centres["t2"][0]] * 4, abs=0.1)
    assert sorted(hanging, key=lambda name: -centres[name][1]) == hanging


def test_a_tree_grows_down_with_its_children_side_by_side() -> None:
    centres = centres_of(ZOO["factored_pcfg"](), "pi_6")
    for layers in (["n1", "e0", "r2", "e1", "n3", "e3"], ["n1", "e0", "r2", "e2", "n4", "e4"]):
        assert sorted(layers, key=lambda name: -centres[name][1]) == layers
    assert centres["n3"][0] < centres["n1"][0] < centres["n4"][0]
    assert centres["n1"][0] == pytest.approx(centres["r2"][0], abs=0.1)
    assert centres["n3"][0] == pytest.approx(centres["e3"][0], abs=0.1)
    middle = [(a + b) / 2 for a, b in zip(centres["r2"], centres["n3"], strict=True)]
    assert centres["e1"] == pytest.approx(middle, abs=1)  # a factor of two nodes stands between them


def centres_of(fgg: FGG, rule: str) -> dict[str, tuple[float, float]]:
    (panel,) = panels(fgg, [found for found in fgg.rules if found.name == rule])
    return {
        part.id: ((box.left + box.right) / 2, (box.bottom + box.top) / 2)
        for part, (box, *_) in panel.rhs.layout.boxes.items()
    }


def test_a_repeated_endpoint_has_a_line_for_each_time() -> None:
    panel, *_ = panels(odd_grammar(), odd_grammar().rules)
    assert {line.edge.id: line.times for line in panel.rhs.layout.lines} == {"e0": 2, "e3": 2}


def test_edges_without_endpoints_stand_alone_and_an_empty_fragment_is_drawn(tmp_path: Path) -> None:
    fgg = odd_grammar()
    assert overlaps(fgg) == []
    draw_rules(fgg, tmp_path / "odd.svg")
    assert {"scalar", "Z", "nothing", "one"} <= set(texts(tmp_path / "odd.svg"))


def test_external_nodes_keep_their_order_on_both_sides() -> None:
    panel = panels(odd_grammar(), odd_grammar().rules)[2]
    for layout in (panel.lhs.layout, panel.rhs.layout):
        first, second = (layout.boxes[Part("external", name)][0] for name in ("n2", "n1"))
        assert first.bottom > second.top or first.right < second.left


def test_layers_leave_room_for_a_line_that_passes_them() -> None:
    top, factor, node = Part("external", "a"), Part("factor", "f"), Part("node", "b")
    box = Part("nonterminal", "x")
    graph = {top: [factor, box], factor: [top, node], node: [factor, box], box: [top, node]}
    placement = place_in_layers(graph, [top], {part: [Box(-9.0, -9.0, 9.0, 9.0)] for part in graph})
    assert sorted(graph, key=lambda part: -placement.centres[part][1]) == [top, factor, node, box]
    assert len(placement.bends[top, box]) == 4  # in and out of two layers
    assert all(abs(x - placement.centres[node][0]) > 9 for x, _ in placement.bends[top, box])


# Labels


def test_labels_are_as_wide_as_they_are_drawn() -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    from rankspace.viz.drawing import INK, Pen

    figure = Figure(figsize=(5, 5), dpi=288)
    renderer = FigureCanvasAgg(figure).get_renderer()
    for label, font in ((rule_label("pi_12, transition"), FONT), (factor_label("emission"), SMALL_FONT)):
        figure.texts.clear()
        Pen(figure).label(label, Box(50.0, -100.0, 200.0, -80.0), INK, font)
        extents = [text.get_window_extent(renderer) for text in figure.texts]
        drawn = (extents[-1].x1 - extents[0].x0) * 72 / figure.dpi
        assert drawn == pytest.approx(label_size(label, font)[0], abs=1.5)  # bearings of the outer letters
        assert (extents[0].x0 + extents[-1].x1) / 2 * 72 / figure.dpi == pytest.approx(125, abs=1)


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        ([("t1", "T"), ("o3", "O")], ["T 1", "O 3"]),
        ([("x1", "TD"), ("x12", "TD")], ["TD 1", "TD 12"]),
        ([("n1", "N"), ("k", "H")], ["N 1", "H 2"]),
        ([("n1", "N"), ("m1", "N"), ("k7", "H")], ["N 1", "N 2", "H 3"]),
        ([("n2", "N"), ("k", "N")], ["N 1", "N 2"]),
        ([("r\u0662", "R")], ["R 1"]),
    ],
)
def test_subscripts_tell_nodes_apart(nodes: list[tuple[str, str]], expected: list[str]) -> None:
    labels = node_labels([Node(*node) for node in nodes])
    assert list(labels) == [name for name, _ in nodes]
    assert [" ".join(piece.text for piece in label) for label in labels.values()] == expected
    assert all([piece.lowered for piece in label] == [False, True] for label in labels.values())


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("pi_6", [Piece("\u03c0", "italic"), Piece("6", lowered=True)]),
        ("pi_6,pi_12", [Piece("\u03c0", "italic"), Piece("6", lowered=True), Piece(","), Piece("\u03c0", "italic"),
                        Piece("12", lowered=True)]),
        ("api_6", [Piece("api_6")]),
        ("pi_6a", [Piece("pi_6a")]),
        ("#3", [Piece("#3")]),
        ("", []),
    ],
)  # fmt: skip
def test_numbered_pis_are_set_in_greek(name: str, expected: list[Piece]) -> None:
    assert rule_label(name) == expected


def test_spans_of_nonterminals_are_set_apart() -> None:
    assert [piece.text for piece in nonterminal_label("X,(0,3)")] == ["X,", "(0,3)"]
    assert [piece.text for piece in nonterminal_label("X,(12)")] == ["X,", "(12)"]
    assert [piece.text for piece in nonterminal_label("X,(a)")] == ["X,(a)"]
    assert [piece.text for piece in nonterminal_label("(0,3)")] == ["(0,3)"]


def test_long_labels_are_cut() -> None:
    assert factor_label("x" * 40) == [Piece("x" * 40)]
    assert factor_label("x" * 41) == [Piece("x" * 39 + "\u2026")]


# Mistakes


def test_another_suffix_is_refused(tmp_path: Path) -> None:
    for name in ("rules.jpg", "rules"):
        with pytest.raises(RankspaceError) as caught:
            draw_rules(ZOO["hmm"](), tmp_path / name)
        assert str(caught.value) == f"draw_rules: cannot draw to '{name}'; the name must end in .svg, .png or .pdf."


def test_an_unknown_rule_is_refused_with_the_names_there_are(tmp_path: Path) -> None:
    with pytest.raises(RankspaceError) as caught:
        draw_rules(ZOO["hmm"](), tmp_path / "hmm.svg", ["pi_1", "pi_9"])
    assert str(caught.value) == "draw_rules: there is no rule 'pi_9'; the rules are pi_1, pi_2, pi_3."


def test_an_empty_choice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RankspaceError) as caught:
        draw_rules(ZOO["hmm"](), tmp_path / "hmm.svg", [])
    assert str(caught.value) == "draw_rules: no rule is chosen; name some of pi_1, pi_2, pi_3."


def test_too_many_rules_are_refused_but_some_of_them_can_be_drawn(tmp_path: Path) -> None:
    rules = [Rule.build("S", {}, [("scalar",)]) for _ in range(MAX_RULES + 1)]
    fgg = FGG.build("S", rules, {}, {"scalar": weights()})
    with pytest.raises(RankspaceError) as caught:
        draw_rules(fgg, tmp_path / "many.svg")
    assert str(caught.value) == (
        "draw_rules: 401 rules are too many for one picture, which holds 400; "
        "choose some by name (--rule NAME, or rules=[...])."
    )
    draw_rules(fgg, tmp_path / "one.svg", ["#401"])
    assert texts(tmp_path / "one.svg") == ["S", "#401", "scalar"]


def test_without_matplotlib_the_remedy_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtraError) as caught:
        draw_rules(ZOO["hmm"](), tmp_path / "hmm.svg")
    assert str(caught.value) == (
        "draw_rules: matplotlib is not installed; install it with pip install 'rankspace[pictures]'."
    )


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    path = tmp_path / "nowhere" / "hmm.svg"
    with pytest.raises(RankspaceError) as caught:
        draw_rules(ZOO["hmm"](), path)
    assert str(caught.value) == f"{path}: cannot be written (No such file or directory)."


def test_a_file_in_place_of_a_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RankspaceError, match=r": cannot be written \(Not a directory\)\.$"):
        draw_rules(ZOO["hmm"](), tmp_path / "file" / "hmm.svg")


@pytest.mark.parametrize(
    ("error", "raised"),
    [(OSError(28, "No space left on device"), RankspaceError), (KeyboardInterrupt(), KeyboardInterrupt)],
)
def test_a_failure_leaves_nothing_behind_and_the_old_file_in_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException, raised: type[BaseException]
) -> None:
    def half(self: object, path: Path, **options: object) -> None:
        Path(path).write_text("half a picture")
        raise error

    monkeypatch.setattr("matplotlib.figure.Figure.savefig", half)
    (tmp_path / "hmm.svg").write_text("the old picture")
    with pytest.raises(raised):
        draw_rules(ZOO["hmm"](), tmp_path / "hmm.svg")
    assert [file.name for file in tmp_path.iterdir()] == ["hmm.svg"]
    assert (tmp_path / "hmm.svg").read_text() == "the old picture"
