"""A picture: shapes on a sheet, which can be had as SVG text and written as SVG or PNG."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rankspace.errors import RankspaceError
from rankspace.files import whole_file
from rankspace.viz.png import write_png
from rankspace.viz.shapes import Shape, moved
from rankspace.viz.svg import write_svg


@dataclass(frozen=True)
class Picture:
    """Shapes on a sheet of paper. `description` is read aloud to those who do not see it."""

    width: float
    height: float
    shapes: tuple[Shape, ...]
    description: str

    def to_svg(self, alone: bool = True) -> str:
        """As SVG; if not `alone`, for a page that has the style rules for dark surroundings (`palette.dark_rules`)."""
        return write_svg((self.width, self.height), self.shapes, self.description, alone)

    def save(self, path: str | Path) -> str:
        """Writes a .svg or, with matplotlib, a .png file, whole or not at all. Equal pictures give equal bytes.

        Returns the characters that the font of a .png lacks, in place of which there are boxes; of a .svg none.
        Raises RankspaceError on another suffix or a file that cannot be written, MissingExtraError without matplotlib.
        """
        path = Path(path)
        suffix = path.suffix.lower()
        if suffix not in (".svg", ".png"):
            raise RankspaceError(f"Picture.save: cannot draw to {path.name!r}; the name must end in .svg or .png.")
        with whole_file(path) as file:
            if suffix == ".png":
                return write_png((self.width, self.height), self.shapes, file)
            file.write_text(self.to_svg(), encoding="utf-8")
        return ""


def below_each_other(pictures: Sequence[Picture], description: str) -> Picture:
    """Several pictures as one, from top to bottom."""
    shapes: list[Shape] = []
    height = 0.0
    for picture in pictures:
        shapes += [moved(shape, 0.0, height) for shape in picture.shapes]
        height += picture.height
    return Picture(max(picture.width for picture in pictures), height, tuple(shapes), description)


def beside_each_other(pictures: Sequence[Picture], description: str) -> Picture:
    """Several pictures as one, from left to right, on a common base."""
    shapes: list[Shape] = []
    width, height = 0.0, max(picture.height for picture in pictures)
    for picture in pictures:
        shapes += [moved(shape, width, height - picture.height) for shape in picture.shapes]
        width += picture.width
    return Picture(width, height, tuple(shapes), description)
