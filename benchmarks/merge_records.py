"""Unites records of one table of `rankspace experiment` that were made side by side, each in a folder of its own.

    python benchmarks/merge_records.py OUT.json RECORD.json ... [--lent OTHER.json ...] [--note TEXT]

Rows come in the order of the table, runs in that of their seeds. Where two records have the same run the one that is
further on counts, and of equals the later file's. Statistics are computed anew, titles and planned seeds are those of
the table as it is. OUT may be among the records. --note takes the place of those of the records. --lent are records
of other tables: a run there counts for the row here that has its configuration, for it would be the same run.
"""

import argparse
import json
from pathlib import Path
from typing import Any

from rankspace.experiments import load_table
from rankspace.experiments.record import options_of_row
from rankspace.experiments.statistics import of_runs
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
    of_name = {row.name: row for row in table.rows}
    order = list(of_name)
    rows: dict[tuple[str, str], Record] = {}
    records = [*(_of_this_table(table, record) for record in lent or ()), *records]
    for row in (row for record in records for row in record["rows"]):
        if row["name"] not in of_name:
            raise SystemExit(f"{table.name} has no row {row['name']!r}; leave it out, or give it the name it has.")
        key = row["name"], row["data"]
        before = rows.get(key, {**row, "runs": []})
        if before["config"] != row["config"]:
            raise SystemExit(f"{row['name']}: these are runs of different configurations; give those of one.")
        rows[key] = {**row, "runs": _runs(before["runs"], row["runs"])}
    found = sorted(rows.values(), key=lambda row: (order.index(row["name"]), row["data"]))
    for row in found:
        own = of_name[row["name"]]
        row |= {"title": own.title, "about": own.about, "planned_seeds": list(own.seeds), "paper": own.paper}
        row |= {"ablation_of": own.ablation_of, "reproduction": own.reproduction}
        row["statistics"] = of_runs(row["runs"], table.target_of(own))
    data = {name: card for record in records for name, card in record["data"].items()}
    notes = dict.fromkeys(record["note"] for record in records if record["note"])
    return {**records[-1], "title": table.title, "note": " ".join(notes), "data": data, "rows": found}


def _of_this_table(table: Table, record: Record) -> Record:
    """A record of another table with the rows whose configuration a row of this table has, under its name."""
    found = []
    for own in table.rows:
        config = options_of_row(own.config)
        same = [row for row in record["rows"] if row["config"] == config and row["data"] in own.data]
        found += [{**row, "name": own.name} for row in same]
    data = {row["data"]: record["data"][row["data"]] for row in found}
    return {**record, "rows": found, "data": data, "note": ""}


def _runs(one: list[Record], other: list[Record]) -> list[Record]:
    found: dict[int, Record] = {}
    for run in (*one, *other):
        known = found.get(run["seed"])
        if known is None or FURTHER.index(run["state"]) >= FURTHER.index(known["state"]):
            found[run["seed"]] = run
    return [found[seed] for seed in sorted(found)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path)
    parser.add_argument("records", type=Path, nargs="+")
    parser.add_argument("--lent", type=Path, nargs="+", default=[])
    parser.add_argument("--note")
    given = parser.parse_args()
    read = [[json.loads(path.read_text(encoding="utf-8")) for path in paths] for paths in (given.records, given.lent)]
    found = merged(*read)
    if given.note is not None:
        found["note"] = given.note
    with whole_file(given.output) as file:
        file.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
