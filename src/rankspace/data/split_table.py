"""A table that divides the lines of one file into splits."""

from dataclasses import dataclass
from pathlib import Path

from rankspace.data.lines import BadInput, decoded, raw_lines
from rankspace.errors import FormatError

SPLITS = ("train", "valid", "test")


@dataclass(frozen=True)
class SplitTable:
    """The split of each line, lines counted from 1."""

    file: Path
    split_of: dict[int, str]

    @classmethod
    def load(cls, file: Path) -> "SplitTable":
        """Reads columns line (counted from 0), file, number in that file and split, with tabs between them.

        Raises FormatError, with file and line.
        """
        split_of: dict[int, str] = {}
        for row, raw in raw_lines(file):
            cells = (decoded(raw, file, row, BadInput()) or "").rstrip("\r\n").split("\t")
            if len(cells) != 4 or not cells[0].isascii() or not cells[0].isdigit() or cells[3] not in SPLITS:
                raise FormatError(
                    f"{file}: line {row}: is no row of a split table; write line, file, number and train, valid or "
                    f"test, with tabs between them."
                )
            if int(cells[0]) + 1 in split_of:
                raise FormatError(f"{file}: line {row}: line {cells[0]} has a split already; give it once.")
            split_of[int(cells[0]) + 1] = cells[3]
        return cls(file, split_of)
