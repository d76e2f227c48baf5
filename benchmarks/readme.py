"""Writes the tables of README.md, between its bench marks, from the records in benchmarks/results."""

import json
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
README = HERE.parent / "README.md"
RECORDS = {"fgg-cpu": "CPU, one thread", "fgg-h200": "H200", "fgg-h200-large": "H200"}
BEGIN, END = "<!-- bench -->\n", "<!-- /bench -->"

TEXT = """\
Measured by `rankspace bench fgg`, which checks every result in the run that times it; the records, with commit, device
and versions, are in `benchmarks/results/`. Float32, sentences of 20 words, median milliseconds of seven runs in turns.

Generality: a dense PCFG of 30 symbols, batch 8, on the generic engine and by an inside algorithm written by hand.

| {date} | engine | by hand | ratio |
| --- | --- | --- | --- |
{generality}

Rank space: a decomposed PCFG over states and over ranks, both on the generic engine; the tables over ranks are computed
anew in every run.

| forward and backward | states | rank | batch | over states | over ranks | gain |
| --- | --- | --- | --- | --- | --- | --- |
{rank_space}

Batch 128 is in this table because the gain is small below it: of the batches tried on a CPU (8, 32, 64, 128), it is the
first at which rank space is clearly more than five times as fast. With few sentences, and on a GPU at every size
measured, the engine is bound by the number of its operations (about 30 small ones per group), of which the rank-space
grammar has more; on the GPU state space is the faster order.
"""


def tables() -> str:
    """The section of the README."""
    records = {name: json.loads((HERE / "results" / f"{name}.json").read_text()) for name in RECORDS}
    generality = [row for name in ("fgg-cpu", "fgg-h200") for row in _generality(RECORDS[name], records[name])]
    rank_space = [row for name, label in RECORDS.items() for row in _rank_space(label, records[name])]
    date = max(record["date"] for record in records.values())
    return TEXT.format(date=date, generality="\n".join(generality), rank_space="\n".join(rank_space))


def _generality(label: str, record: dict[str, Any]) -> list[str]:
    part = record["generality"]
    return [
        f"| {label}, {name} | {part['milliseconds'][f'engine_{key}']:.1f} | "
        f"{part['milliseconds'][f'by_hand_{key}']:.1f} | {part[f'slower_{key}']:.2f} |"
        for key, name in (("forward", "forward"), ("both", "forward and backward"))
    ]


def _rank_space(label: str, record: dict[str, Any]) -> list[str]:
    rows = []
    for part in record["rank_space"]:
        sizes, times = part["sizes"], part["milliseconds"]
        cells = [f"{sizes['states']:,}", str(sizes["rank"]), str(sizes["batch"])]
        cells += [f"{times['state_both']:.0f}", f"{times['rank_both']:.0f}", f"{part['faster_both']:.2f}"]
        rows.append(f"| {label} | {' | '.join(cells)} |")
    return rows


def with_tables(text: str) -> str:
    """A README with the section between its marks replaced."""
    begin, end = text.index(BEGIN) + len(BEGIN), text.index(END)
    return text[:begin] + tables() + text[end:]


if __name__ == "__main__":
    README.write_text(with_tables(README.read_text(encoding="utf-8")), encoding="utf-8")
