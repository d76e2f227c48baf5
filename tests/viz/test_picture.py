"""Pictures as files: SVG and PNG, whole or not at all, and text of any kind."""

import sys
import warnings
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from types import SimpleNamespace

import pytest

from rankspace.errors import FormatError, MissingExtraError, RankspaceError
from rankspace.viz import Picture
from rankspace.viz.lettering import num_columns, shown, text_width
from rankspace.viz.palette import PALETTE, PICTURE
from rankspace.viz.png import write_png
from rankspace.viz.shapes import Curve, Group, Line, Rectangle, Text, pieces
from viz.elements import root_of

SHAPES = (
    Rectangle(1.0, 2.0, 30.0, 10.0, "accent", 0.5, "line", radius=3.0),
    Group("some", "a <note>", [Line([(0.0, 0.0), (10.0, 0.0), (10.0, 10.0)], "ink", dashed=True, radius=4.0)]),
    Text(20.0, 30.0, "$a_b$ <&>\"'\x00", 12.0, "soft", "middle", bold=True, turn=60.0),
)
SHEET = Picture(60.0, 40.0, SHAPES, 'a "description" & more')


def test_an_svg_has_its_shapes_with_their_light_colours() -> None:
    root = root_of(SHEET)
    assert (root.attrib["viewBox"], root.attrib["aria-label"]) == ("0 0 60 40", 'a "description" & more')
    style, paper, rectangle, group, text = root
    assert "prefers-color-scheme: dark" in (style.text or "")
    assert paper.attrib == {"class": "f-paper", "fill": "#ffffff", "x": "0", "y": "0", "width": "60", "height": "40"}
    assert rectangle.attrib["fill-opacity"] == "0.5"
    assert rectangle.attrib["stroke"] == PALETTE["line"].light
    assert [element.text for element in group][:1] == ["a <note>"]
    assert group[1].attrib["d"] == "M0 0L6 0Q10 0 10 4L10 10"
    assert group[1].attrib["stroke-dasharray"] == "4 3"
    assert (text.text, text.attrib["transform"]) == ("$a_b$ <&>\"'\\x00", "rotate(-60 20 30)")


def test_a_picture_in_a_page_leaves_the_style_to_the_page() -> None:
    assert "<style>" not in SHEET.to_svg(alone=False)
    assert ElementTree.fromstring(SHEET.to_svg(alone=False)).attrib["class"] == PICTURE
    assert "id=" not in SHEET.to_svg()


def test_files_are_written_and_equal_pictures_give_equal_bytes(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    for name, begin in (("a.svg", b"<svg "), ("a.PNG", b"\x89PNG")):
        SHEET.save(tmp_path / name)
        first = (tmp_path / name).read_bytes()
        SHEET.save(str(tmp_path / name))
        assert first.startswith(begin)
        assert (tmp_path / name).read_bytes() == first


def test_characters_that_the_font_lacks_are_returned(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    sheet = Picture(60.0, 40.0, (Text(20.0, 30.0, "a猫b", 12.0), Text(20.0, 30.0, "猫き", 12.0, bold=True)), "cats")
    assert (sheet.save(tmp_path / "a.png"), sheet.save(tmp_path / "a.svg")) == ("猫き", "")
    assert SHEET.save(tmp_path / "b.png") == ""


def test_other_warnings_of_matplotlib_are_given_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib")

    def warn(*arguments: object, **options: object) -> None:
        tmp_path.joinpath("a.png").touch()
        warnings.warn("something else", UserWarning, stacklevel=1)

    monkeypatch.setattr("rankspace.viz.png._figure", lambda *_: SimpleNamespace(savefig=warn))
    with pytest.warns(UserWarning, match="something else"):
        write_png((1.0, 1.0), (), tmp_path / "a.png")


def test_drawing_leaves_matplotlib_as_it_was(tmp_path: Path) -> None:
    matplotlib = pytest.importorskip("matplotlib")
    before = dict(matplotlib.rcParams)
    SHEET.save(tmp_path / "a.png")
    assert dict(matplotlib.rcParams) == before


def test_a_png_of_a_wide_picture_has_at_most_8000_pixels(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    Picture(20_000.0, 20.0, (), "wide").save(tmp_path / "wide.png")
    assert int.from_bytes((tmp_path / "wide.png").read_bytes()[16:20]) == 8000


def test_without_matplotlib_svg_is_written_and_the_remedy_for_png_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    SHEET.save(tmp_path / "a.svg")
    with pytest.raises(MissingExtraError) as caught:
        SHEET.save(tmp_path / "a.png")
    assert str(caught.value) == (
        "Picture.save: matplotlib is not installed; write a .svg file, "
        "or install it with pip install 'rankspace[pictures]'."
    )
    assert [file.name for file in tmp_path.iterdir()] == ["a.svg"]


def test_another_suffix_is_refused(tmp_path: Path) -> None:
    for name in ("tree.jpg", "tree"):
        with pytest.raises(RankspaceError) as caught:
            SHEET.save(tmp_path / name)
        assert str(caught.value) == f"Picture.save: cannot draw to '{name}'; the name must end in .svg or .png."


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    path = tmp_path / "nowhere" / "a.svg"
    with pytest.raises(FormatError) as caught:
        SHEET.save(path)
    assert str(caught.value) == f"{path}: cannot be written (No such file or directory)."


@pytest.mark.parametrize("name", ["a.svg", "a.png"])
def test_a_failure_leaves_the_old_file_in_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    def half(*arguments: object, **options: object) -> None:
        raise OSError(28, "No space left on device")

    if name == "a.png":
        pytest.importorskip("matplotlib")
        monkeypatch.setattr("matplotlib.figure.Figure.savefig", half)
    else:
        monkeypatch.setattr("pathlib.Path.write_text", half)
    (tmp_path / name).write_bytes(b"the old picture")
    with pytest.raises(FormatError, match=r": cannot be written \(No space left on device\)\.$"):
        SHEET.save(tmp_path / name)
    assert [file.name for file in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_bytes() == b"the old picture"


# Text and lines


def test_text_takes_no_more_room_than_is_left_for_it() -> None:
    textpath = pytest.importorskip("matplotlib.textpath")
    from matplotlib.font_manager import FontProperties

    words = ["the", "international", "WILL", "mmm", "iii", "I", "NP-SBJ", "0.87", "naïve", "Ärger", "42%", "don't"]
    for word in words:
        for bold in (False, True):
            font = FontProperties(family="DejaVu Sans", size=100, weight="bold" if bold else "normal")
            width, _, _ = textpath.text_to_path.get_text_width_height_descent(word, font, False)
            assert 0.95 * width <= text_width(word, 100.0, bold) <= 1.35 * width, word


def test_wide_characters_and_marks_have_their_widths() -> None:
    assert (num_columns("日本"), num_columns("e\u0301a"), num_columns("abc")) == (4, 2, 3)
    assert text_width("日本", 10.0) == pytest.approx(21)
    assert text_width("e\u0301", 10.0) == text_width("é", 10.0) == text_width("e", 10.0)


def test_what_has_no_shape_is_escaped_and_long_text_cut() -> None:
    assert shown("a\tb\ud800\u202e") == "a\\tb\\ud800\\u202e"
    assert shown("क्\u200dष") == "क्\u200dष"
    assert (shown("x" * 32), shown("x" * 33)) == ("x" * 32, "x" * 31 + "…")


def test_corners_are_rounded_by_half_a_line_at_most() -> None:
    line = Line([(0.0, 0.0), (4.0, 0.0), (4.0, 0.0), (4.0, 20.0)], "ink", radius=5.0)
    assert list(pieces(line)) == [Curve(None, (4.0, 0.0)), Curve(None, (4.0, 0.0)), Curve(None, (4.0, 20.0))]
    line = Line([(0.0, 0.0), (4.0, 0.0), (4.0, 20.0)], "ink", radius=5.0)
    assert list(pieces(line)) == [Curve(None, (2.0, 0.0)), Curve((4.0, 0.0), (4.0, 2.0)), Curve(None, (4.0, 20.0))]
