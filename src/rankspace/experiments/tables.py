"""Tables of experiments and their rows, read from the TOML files beside this one.

TABLE/table.toml says what a table is and in which order its rows are run; TABLE/ROW.toml is a preset of training with
changes, its seeds and data, and what others report for it.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources
from typing import Any

from rankspace.errors import FormatError, RankspaceError
from rankspace.training import Config, load_preset

TABLE = "table"
DATA = ("ptb-text", "ptb", "craft", "craft-text")  # what rows may name; see `datasets`
KEYS = {"title", "extends", "seeds", "data", "ablation_of", "about", "paper", "reproduction", "config"}


@dataclass(frozen=True)
class Row:
    """A row of a table: one configuration, several seeds and data sets.

    paper, reproduction: figures that the paper, and others who repeated it, report. changes: of the preset, by
    section.key, those of the row it is an ablation of first.
    """

    name: str
    title: str
    extends: str
    config: Config
    changes: dict[str, Any]
    seeds: tuple[int, ...]
    data: tuple[str, ...]
    ablation_of: str | None = None
    about: str = ""
    paper: dict[str, Any] = field(default_factory=dict)
    reproduction: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Table:
    """A table, or a figure, of the paper. splits: those that finished runs are scored on, where the data have them.

    target: the perplexity of the validation split to which time is measured, where a row has none of its own.
    peers: implementations whose minutes stand beside ours.
    """

    name: str
    title: str
    rows: tuple[Row, ...]
    splits: tuple[str, ...]
    target: float | None
    peers: tuple[dict[str, Any], ...]

    def chosen(self, names: list[str]) -> tuple[Row, ...]:
        """The rows of some names, in the order of the table; all where there are none. Raises RankspaceError."""
        known = {row.name: row for row in self.rows}
        for name in names:
            if name not in known:
                raise RankspaceError(f"experiment: {self.name} has no row {name!r}; there are {', '.join(known)}.")
        return tuple(row for row in self.rows if not names or row.name in names)

    def target_of(self, row: Row) -> float | None:
        """The perplexity that time is measured to."""
        own = row.paper.get("valid")
        return self.target if own is None else float(own)


def table_names() -> list[str]:
    folders = [entry.name for entry in resources.files(__package__).iterdir() if (entry / f"{TABLE}.toml").is_file()]
    return sorted(folders)


def load_table(name: str) -> Table:
    """A table by its name. Raises RankspaceError, naming those there are."""
    if name not in table_names():
        raise RankspaceError(f"experiment: there is no table {name!r}; there are {', '.join(table_names())}.")
    about = _read(name, TABLE)
    rows: dict[str, Row] = {}
    for row in about["rows"]:
        rows[row] = _row(name, row, rows)
    return Table(
        name,
        about["title"],
        tuple(rows.values()),
        tuple(about["splits"]),
        about.get("target"),
        tuple(about.get("peers", ())),
    )


def _row(table: str, name: str, before: Mapping[str, Row]) -> Row:
    """A row; the one it is an ablation of stands before it."""
    found, where = _read(table, name), f"experiment {table}/{name}.toml"
    if unknown := found.keys() - KEYS:
        raise FormatError(f"{where}: there is no key {min(unknown)}; there are {', '.join(sorted(KEYS))}.")
    whole = found.get("ablation_of")
    if whole is not None and whole not in before:
        raise FormatError(f"{where}: ablation_of is {whole!r}; give the name of a row before it.")
    if other := set(found["data"]) - set(DATA):
        raise FormatError(f"{where}: data has {min(other)!r}; there are {', '.join(DATA)}.")
    changes = {**({} if whole is None else before[whole].changes), **_flat(found.get("config", {}))}
    try:
        config = load_preset(found["extends"]).changed(changes)
    except RankspaceError as error:
        raise FormatError(f"{where}: {str(error).removeprefix('config: ')}") from None
    return Row(
        name,
        found["title"],
        found["extends"],
        config,
        changes,
        tuple(found["seeds"]),
        tuple(found["data"]),
        whole,
        found.get("about", ""),
        found.get("paper", {}),
        found.get("reproduction", {}),
    )


def _flat(sections: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    return {f"{section}.{key}": value for section, table in sections.items() for key, value in table.items()}


def _read(table: str, name: str) -> dict[str, Any]:
    file = resources.files(__package__) / table / f"{name}.toml"
    return tomllib.loads(file.read_text(encoding="utf-8"))
