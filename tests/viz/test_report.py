"""Reports: one page that needs nothing else, in which all text is escaped and every part is there."""

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from rankspace import Tree
from rankspace.errors import FormatError, RankspaceError, ShapeError
from rankspace.viz import Report, state_words_html, tree_picture
from rankspace.viz.report import Figure

NASTY = '<script>alert(1)</script> & "quotes" \'\x00'
SHOWN = NASTY.replace("\x00", "\\x00")
PICTURE = tree_picture(Tree.parse("(S (NP the dog) barks)"))
VOID = {"meta", "img", "rect", "path", "br"}


class Page(HTMLParser):
    """Tags with their attributes and text; every element must be closed by its own tag."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {}
        self.path: list[str] = []
        self.feed(html)
        assert self.path == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.path.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.path.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.path:
            self.texts.setdefault(self.path[-1], []).append(data)

    def named(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


def full_report(png: bytes = b"\x89PNG") -> Report:
    return (
        Report(NASTY, NASTY)
        .figures([(NASTY, NASTY, NASTY), Figure("words", "12")])
        .section(NASTY)
        .subsection(NASTY)
        .paragraph(NASTY)
        .table([NASTY, "S-F1"], [[NASTY, 1.5], ["other", None]], caption=NASTY)
        .section("Pictures")
        .picture(PICTURE, NASTY)
        .image(png, NASTY)
        .section("Words")
        .preformatted(NASTY + "\n  indented")
        .fragment(state_words_html(["PT-1"], [[("the", 0.5)]]))
    )


def test_every_part_is_there_and_every_text_escaped() -> None:
    page = Page(full_report().to_html())
    for tag in ("title", "h1", "h2", "h3", "p", "th", "caption", "figcaption", "b", "small", "a"):
        assert SHOWN in page.texts[tag], tag
    assert page.texts["pre"][0] == SHOWN + "\n  indented"
    assert page.named("img")[0]["alt"] == SHOWN
    assert page.named("script") == []
    assert {"the", "dog", "barks"} <= set(page.texts["text"])


def test_the_page_refers_to_nothing_outside() -> None:
    html = full_report().to_html()
    page = Page(html)
    references = [value for _, attributes in page.tags for name, value in attributes.items() if name in ("src", "href")]
    assert references
    assert all(value is not None and value.startswith(("data:", "#")) for value in references)
    assert re.findall(r"url\(|@import|https?://(?!www\.w3\.org/2000/svg)", html) == []
    assert html.count("@media screen and (prefers-color-scheme: dark)") == 2
    assert "@media print" in html
    assert {"name": "viewport", "content": "width=device-width, initial-scale=1"} in page.named("meta")


def test_sections_are_linked_if_there_are_three() -> None:
    page = Page(full_report().to_html())
    assert [link["href"] for link in page.named("a")] == ["#section-1", "#section-2", "#section-3"]
    assert [heading["id"] for heading in page.named("h2")] == ["section-1", "section-2", "section-3"]
    assert Page(Report("short").section("one").to_html()).named("a") == []


def cells(report: Report) -> list[list[str]]:
    rows = re.findall(r"<tr.*?</tr>", report.to_html())
    return [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row) for row in rows]


def test_numbers_are_aligned_and_the_best_marked() -> None:
    rows: list[list[str | int | float | None]] = [
        ["ours", 61.4, 24.8, 123456], ["right-branching", 38.2, None, None], ["gold", 87.9, None, None],
        ["twin", 61.401, 30.0, 7]
    ]  # fmt: skip
    best = {"S-F1": "highest", "perplexity": "lowest"}
    report = Report("t").table(["model", "S-F1", "perplexity", "size"], rows, best, apart=[2])  # type: ignore[arg-type]
    mark = '<strong class="best">{}</strong>'.format
    assert cells(report) == [
        ["model", "S-F1", "perplexity", "size"],
        ["ours", mark("61.40"), mark("24.80"), "123,456"],
        ["right-branching", "38.20", "\u2013", "\u2013"],
        ["gold", "87.90", "\u2013", "\u2013"],
        ["twin", mark("61.40"), "30.00", "7"],  # as good as the best as far as can be seen
    ]
    page = Page(report.to_html())
    assert [head.get("class") for head in page.named("th")[:4]] == [None, "figure", "figure", "figure"]
    assert [row.get("class") for row in page.named("tr")] == [None, None, None, "apart", None]


def test_digits_and_infinities_of_a_table() -> None:
    nan, inf = float("nan"), float("inf")
    report = Report("t").table(["a", "b"], [["x", nan], ["y", inf], ["z", 1.0]], {"b": "lowest"}, digits=1)
    assert cells(report)[1:] == [["x", "nan"], ["y", "inf"], ["z", '<strong class="best">1.0</strong>']]


def test_files_are_embedded(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    for name in ("a.png", "a.svg"):
        PICTURE.save(tmp_path / name)
    page = Page(Report("t").image(tmp_path / "a.png", description="a tree").image(str(tmp_path / "a.svg")).to_html())
    png, svg = page.named("img")
    assert (png["src"] or "").startswith("data:image/png;base64,iVBOR")
    assert (svg["src"] or "").startswith("data:image/svg+xml;base64,")
    assert png["alt"] == "a tree"
    width = re.match(r"width:([\d.]+)px;max-width:100%", png["style"] or "")
    assert width
    assert float(width[1]) == pytest.approx(PICTURE.width, abs=1)


def test_pictures_keep_their_size_and_shrink_a_little() -> None:
    (svg,) = Page(Report("t").picture(PICTURE).to_html()).named("svg")
    sizes = re.fullmatch(r"width:100%;max-width:([\d.]+)px;min-width:([\d.]+)px", svg["style"] or "")
    assert sizes
    assert float(sizes[1]) == pytest.approx(PICTURE.width, abs=0.01)
    assert float(sizes[2]) == pytest.approx(0.8 * PICTURE.width, abs=0.01)


def test_a_report_is_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "report.html"
    full_report().save(path)
    assert path.read_text("utf-8") == full_report().to_html()

    def full(*arguments: object, **options: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pathlib.Path.write_text", full)
    with pytest.raises(FormatError) as caught:
        Report("other").save(path)
    assert str(caught.value) == f"{path}: cannot be written (No space left on device)."
    assert path.read_text("utf-8") == full_report().to_html()
    assert [file.name for file in tmp_path.iterdir()] == ["report.html"]


def test_mistakes_are_named(tmp_path: Path) -> None:
    with pytest.raises(ShapeError) as caught:
        Report("t").table(["a", "b"], [["x", 1], ["y"]])
    assert str(caught.value) == "Report.table: row 1 has 1 cells for 2 columns; give one for each."
    with pytest.raises(RankspaceError) as caught:
        Report("t").table(["a", "b"], [], {"c": "lowest"})
    assert str(caught.value) == "Report.table: there is no column 'c'; the columns are a, b."
    with pytest.raises(FormatError) as caught:
        Report("t").image(tmp_path / "a.gif")
    assert str(caught.value) == "Report.image: 'a.gif' is of no known kind; the name must end in .png or .svg."
    with pytest.raises(FormatError) as caught:
        Report("t").image(tmp_path / "a.png")
    assert str(caught.value) == f"{tmp_path / 'a.png'}: cannot be read (No such file or directory)."
