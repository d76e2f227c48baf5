"""Unites records of one table of `rankspace experiment` that were made side by side, each in a folder of its own.

    python benchmarks/merge_records.py OUT.json RECORD.json ... [--lent OTHER.json ...] [--note TEXT]

Rows come in the order of the table, runs in that of their seeds. Where two records have the same run the one that is
further on counts, and of equals the later file's. Where the model of a row has another number of weights in a later
file it has changed in between, and the earlier runs are left out. Options that a record does not know have their
defaults. Statistics are computed anew, titles and planned seeds are those of the table as it is. What several rows
parse together is that of the last record that has it, what seeds of one row do that of most of them. OUT may be among
the records. --note takes the place of those of the records; docs/results.md has it where it has minutes. --lent are
records of other tables: a run there counts for the row here that has its configuration, for it would be the same run.
"""

import argparse
import json
from pathlib import Path
from typing import Any

from rankspace.errors import RankspaceError
from rankspace.experiments import load_table
from rankspace.experiments.record import complete, options_of_row, row_entry
from rankspace.experiments.tables import Table
from rankspace.files import whole_file

FURTHER = ("under way", "failed", "finished")

Record = dict[str, Any]


def merged(records: list[Record], lent: list[Record] | None = None) -> Record:
    """One record; all but rows, data and notes are those of the last. Raises SystemExit for what does not belong
    together: several tables, toy models and others, runs of a row with different configurations."""
    names = {record["table"] for record in records}
    if len(names) != 1:
        raise SystemExit(f"these are records of several tables: {', '.join(sorted(names))}; give those of one.")
    if len({record["quick"] for record in records}) != 1:
        raise SystemExit("some of these records are of --quick and some are not; give one kind.")
    table = load_table(names.pop())
    records = [*(_of_this_table(table, record) for record in lent or ()), *records]
    data = {name: card for record in records for name, card in record["data"].items()}
    notes = dict.fromkeys(record["note"] for record in records if record["note"])
    rows = _rows(table, records)
    whole = {"title": table.title, "note": " ".join(notes), "data": data, "rows": rows}
    whole |= {"together": _together(records, rows)}
    return {**records[-1], **whole}


def _rows(table: Table, records: list[Record]) -> list[Record]:
    """In the order of the table."""
    of_name = {row.name: row for row in table.rows}
    rows: dict[tuple[str, str], Record] = {}
    for row in (row for record in records for row in record["rows"]):
        if row["name"] not in of_name:
            raise SystemExit(f"{table.name} has no row {row['name']!r}; leave it out, or give it the name it has.")
        key = row["name"], row["data"]
        rows[key] = _joined(rows[key], row) if key in rows else row
    order = sorted(rows, key=lambda key: (list(of_name).index(key[0]), key[1]))
    return [row_entry(table, of_name[name], data, rows[name, data]) for name, data in order]


def _together(records: list[Record], rows: list[Record]) -> Record:
    """What several rows on a data set parse together, of runs that are finished here."""
    runs = [(row["data"], row["name"], run) for row in rows for run in row["runs"]]
    there = {(data, name, run["seed"]) for data, name, run in runs if run["state"] == "finished"}
    given = [pair for record in records for pair in record.get("together", {}).items()]
    return {
        data: found
        for data, found in given
        if all((data, name, seed) in there for name, seeds in found["runs"].items() for seed in seeds)
    }


def _joined(one: Record, other: Record) -> Record:
    """One row in two records, of which the other is later."""
    if complete(one["config"]) != complete(other["config"]):
        raise SystemExit(f"{one['name']}: these are runs of different configurations; give those of one.")
    if one["weights"] != other["weights"]:
        return other
    together = max((row["together"] for row in (other, one) if row.get("together")), key=_num_seeds, default=None)
    return {**other, "runs": _runs(one["runs"], other["runs"]), "together": together}


def _num_seeds(together: Record) -> int:
    return sum(map(len, together["runs"].values()))


def _of_this_table(table: Table, record: Record) -> Record:
    """A record of another table with the rows whose configuration a row of this table has, under its name."""
    found = []
    for own in table.rows:
        config = options_of_row(own.config)
        same = [row for row in record["rows"] if complete(row["config"]) == config and row["data"] in own.data]
        found += [{**row, "name": own.name} for row in same]
    data = {row["data"]: record["data"][row["data"]] for row in found}
    return {**record, "rows": found, "data": data, "note": "", "together": {}}


def _runs(one: list[Record], other: list[Record]) -> list[Record]:
    found: dict[int, Record] = {}
    for run in (*one, *other):
        known = found.get(run["seed"])
        if known is None or FURTHER.index(run["state"]) >= FURTHER.index(known["state"]):
            found[run["seed"]] = run
    return [found[seed] for seed in sorted(found)]


def read(path: Path) -> Record:
    """Raises SystemExit for what is no record."""
    try:
        found: Record = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SystemExit(f"{path}: cannot be read ({error.strerror}); give records of rankspace experiment.") from None
    except ValueError:
        raise SystemExit(f"{path}: is damaged (no JSON); leave it out, or make it again.") from None
    if not isinstance(found, dict) or not found.keys() >= {"table", "quick", "rows"}:
        raise SystemExit(f"{path}: is no record of rankspace experiment; leave it out.")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path)
    parser.add_argument("records", type=Path, nargs="+")
    parser.add_argument("--lent", type=Path, nargs="+", default=[])
    parser.add_argument("--note")
    given = parser.parse_args()
    found = merged([read(path) for path in given.records], [read(path) for path in given.lent])
    if given.note is not None:
        found["note"] = given.note
    with whole_file(given.output) as file:
        file.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    try:
        main()
    except RankspaceError as error:
        raise SystemExit(str(error)) from None
