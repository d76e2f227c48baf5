"""Pictures as PNG files, through matplotlib, in the colours of light surroundings."""

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rankspace.errors import MissingExtraError
from rankspace.viz.glyphs import lacking_glyphs
from rankspace.viz.lettering import plain
from rankspace.viz.palette import PALETTE
from rankspace.viz.shapes import Group, Line, Rectangle, Shape, Size, Text, pieces

FONT = "DejaVu Sans"  # comes with matplotlib
INCH, POINT = 96, 96 / 72  # in pixels of CSS
DPI, MAX_PIXELS = 192, 8000  # two pixels for each of CSS; the longest side


def write_png(size: Size, shapes: Sequence[Shape], file: Path) -> str:
    """Draws the shapes to a file. Equal shapes give equal bytes. Returns the characters that the font lacks, in place
    of which there are boxes. Raises MissingExtraError."""
    library = _matplotlib()
    with library.rc_context(), lacking_glyphs() as found:
        library.rcdefaults()
        _figure(size, shapes).savefig(file, format="png", facecolor=PALETTE["paper"].light)
    return "".join(dict.fromkeys(found))


def _matplotlib(module: str = "") -> Any:
    try:
        return importlib.import_module(f"matplotlib{module}")
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            "Picture.save: matplotlib is not installed; write a .svg file, "
            "or install it with pip install 'rankspace[pictures]'."
        ) from error


def _figure(size: Size, shapes: Sequence[Shape]) -> Any:
    width, height = size[0] / INCH, size[1] / INCH
    figure = _matplotlib(".figure").Figure((width, height), dpi=min(DPI, MAX_PIXELS / max(width, height)))
    down = _matplotlib(".transforms").Affine2D().scale(1 / INCH, -1 / INCH).translate(0, height)
    for order, shape in enumerate(shapes):
        _draw(figure, down + figure.dpi_scale_trans, shape, order)
    return figure


def _draw(figure: Any, transform: Any, shape: Shape, order: int) -> None:
    match shape:
        case Rectangle():
            figure.add_artist(_rectangle(shape, transform=transform, zorder=order))
        case Line():
            figure.add_artist(_line(shape, transform=transform, zorder=order))
        case Text():
            _text(figure, shape, transform=transform, zorder=order)
        case Group():
            for inner in shape.shapes:
                _draw(figure, transform, inner, order)


def _rectangle(shape: Rectangle, **options: Any) -> Any:
    colours = _matplotlib(".colors")
    return _matplotlib(".patches").FancyBboxPatch(
        (shape.left, shape.top),
        shape.width,
        shape.height,
        boxstyle=f"round,pad=0,rounding_size={shape.radius}" if shape.radius else "square,pad=0",
        facecolor=colours.to_rgba(PALETTE[shape.fill].light, shape.opacity) if shape.fill else "none",
        edgecolor=PALETTE[shape.outline].light if shape.outline else "none",
        linewidth=shape.line_width / POINT,
        **options,
    )


def _line(shape: Line, **options: Any) -> Any:
    path = _matplotlib(".path").Path
    vertices, codes = [shape.points[0]], [path.MOVETO]
    for control, end in pieces(shape):
        vertices += [control, end] if control else [end]
        codes += [path.CURVE3, path.CURVE3] if control else [path.LINETO]
    return _matplotlib(".patches").PathPatch(
        path(vertices, codes),
        facecolor="none",
        edgecolor=_matplotlib(".colors").to_rgba(PALETTE[shape.colour].light, shape.opacity),
        linewidth=shape.width / POINT,
        linestyle=(0, (4 / shape.width, 3 / shape.width)) if shape.dashed else "solid",
        capstyle="butt" if shape.dashed else "round",
        joinstyle="round",
        **options,
    )


def _text(figure: Any, shape: Text, **options: Any) -> None:
    figure.text(
        shape.x,
        shape.y,
        plain(shape.text),
        family=FONT,
        size=shape.size / POINT,
        weight="bold" if shape.bold else "normal",
        color=PALETTE[shape.colour].light,
        horizontalalignment={"start": "left", "middle": "center", "end": "right"}[shape.anchor],
        verticalalignment="baseline",
        rotation=shape.turn,
        rotation_mode="anchor",
        parse_math=False,
        **options,
    )
