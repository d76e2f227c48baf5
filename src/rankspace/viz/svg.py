"""Pictures as SVG text: plain elements, colours at the shapes, and style rules for dark surroundings.

There are no identifiers and no references, so several pictures fit into one page.
"""

from collections.abc import Iterator, Sequence
from html import escape

from rankspace.viz.lettering import FAMILY, plain
from rankspace.viz.palette import PALETTE, PICTURE, Role, dark_rules, fill_class, stroke_class
from rankspace.viz.shapes import Group, Line, Rectangle, Shape, Size, Text, pieces

DASHES = "4 3"


def write_svg(size: Size, shapes: Sequence[Shape], description: str, alone: bool) -> str:
    """One element, in lines; if `alone`, with the style rules of a file of its own."""
    width, height = map(number, size)
    head = attributes(
        {
            "xmlns": "http://www.w3.org/2000/svg",
            "class": PICTURE,
            "role": "img",
            "aria-label": plain(description),
            "width": width,
            "height": height,
            "viewBox": f"0 0 {width} {height}",
            "font-family": FAMILY,
        }
    )
    style = [f"<style>{dark_rules()}</style>"] if alone else []
    paper = Rectangle(0.0, 0.0, *size, "paper")
    body = [line for shape in (paper, *shapes) for line in _lines(shape)]
    return "\n".join([f"<svg{head}>", *style, *body, "</svg>", ""])


def number(value: float) -> str:
    """At most two digits after the point."""
    text = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def attributes(values: dict[str, str]) -> str:
    return "".join(f' {name}="{escape(value)}"' for name, value in values.items())


def _lines(shape: Shape) -> Iterator[str]:
    match shape:
        case Rectangle():
            yield f"<rect{attributes(_rectangle(shape))}/>"
        case Line():
            yield f"<path{attributes(_line(shape))}/>"
        case Text():
            yield f"<text{attributes(_text(shape))}>{escape(plain(shape.text))}</text>"
        case Group():
            yield f"<g{attributes({'class': shape.kind})}><title>{escape(plain(shape.note))}</title>"
            for inner in shape.shapes:
                yield from _lines(inner)
            yield "</g>"


def _rectangle(shape: Rectangle) -> dict[str, str]:
    found = {"x": shape.left, "y": shape.top, "width": shape.width, "height": shape.height}
    found |= {"rx": shape.radius} if shape.radius else {}
    found |= {"fill-opacity": shape.opacity} if shape.opacity < 1 else {}
    found |= {"stroke-width": shape.line_width} if shape.outline else {}
    return {**_colours(shape.fill, shape.outline), **{name: number(value) for name, value in found.items()}}


def _line(shape: Line) -> dict[str, str]:
    (x, y), found = shape.points[0], []
    for control, end in pieces(shape):
        found.append(f"L{number(end[0])} {number(end[1])}")
        if control:
            found[-1] = f"Q{number(control[0])} {number(control[1])} {found[-1][1:]}"
    path = {"d": f"M{number(x)} {number(y)}" + "".join(found), "stroke-width": number(shape.width)}
    ends = {"stroke-dasharray": DASHES} if shape.dashed else {"stroke-linecap": "round", "stroke-linejoin": "round"}
    faint = {"stroke-opacity": number(shape.opacity)} if shape.opacity < 1 else {}
    return {**_colours(None, shape.colour), **path, **ends, **faint}


def _text(shape: Text) -> dict[str, str]:
    found = {"x": number(shape.x), "y": number(shape.y), "font-size": number(shape.size)}
    found |= {"text-anchor": shape.anchor} if shape.anchor != "start" else {}
    found |= {"font-weight": "600"} if shape.bold else {}
    if shape.turn:
        found["transform"] = f"rotate({number(-shape.turn)} {found['x']} {found['y']})"
    return {**_colours(shape.colour, None), **found}


def _colours(fill: Role | None, stroke: Role | None) -> dict[str, str]:
    classes = [fill_class(fill)] if fill else []
    classes += [stroke_class(stroke)] if stroke else []
    found = {"class": " ".join(classes), "fill": PALETTE[fill].light if fill else "none"}
    return {**found, "stroke": PALETTE[stroke].light} if stroke else found
