"""Writes the tables of README.md, between its bench marks, from the records in benchmarks/results."""

import json
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
README = HERE.parent / "README.md"
RECORDS = {"fgg-cpu": "CPU, one thread", "fgg-h200": "H200", "fgg-h200-large": "H200"}
SUITES = {"chain-cpu": "HMM", "tree-cpu": "PCFG"}
NAMES = {"log_sum_exp": "log-sum-exp", "log_einsum_exp": "log-einsum-exp"}
BEGIN, END = "<!-- bench -->\n", "<!-- /bench -->"

TEXT = """\
Measured by `rankspace bench fgg`, which checks every result in the run that times it. The records, with commit, device
and versions, are in `benchmarks/results/`. Figures are for float32 and sentences of 20 words: median milliseconds of
seven runs, taken in turns.

Generality: a dense PCFG of 30 symbols, batch 8, on the generic engine and with an inside algorithm written by hand.

| {date} | engine | by hand | ratio |
| --- | --- | --- | --- |
{generality}

Rank space: a decomposed PCFG over states and over ranks, both on the generic engine and from the same parameters. Both
use only the emission of the words in the batch, and the tables over ranks are computed anew in every run. Before
anything is timed, log Z and all gradients are checked to agree.

| forward and backward | states | rank | batch | over states | over ranks | gain |
| --- | --- | --- | --- | --- | --- | --- |
{rank_space}

With few sentences, and on a GPU at most sizes, time depends on the number of operations rather than on their size.
"""

SUITE_TEXT = """\
`rankspace bench chain` and `bench tree` time log p and its gradient from given parameters, on {threads} of a CPU. They
compare with the same recursions over ranks in plain torch with autograd (`benchmarks/peers`): *log-sum-exp* adds
everything in logarithms; *log-einsum-exp* takes a maximum out, exponentiates, multiplies and takes the logarithm. *Of
GEMM rate*: the flops of the formulas per second, against a matrix product timed in the same run.

| {date} | ms | times ours | peak MB | times ours | of GEMM rate |
| --- | --- | --- | --- | --- | --- |
{comparisons}

Growth: one size is varied, while the others are such that the term stays the largest, and a power is fitted to the
term's operations and to its time.

| term | power of | claimed | counted | timed |
| --- | --- | --- | --- | --- |
{growth}

"""


def tables() -> str:
    """The section of the README."""
    return _suites() + _fgg()


def _threads(count: int) -> str:
    return "one thread" if count == 1 else f"{count} threads"


def _suites() -> str:
    """Chains and trees, as far as they have been measured."""
    found = [(model, _record(name)) for name, model in SUITES.items() if (HERE / "results" / f"{name}.json").exists()]
    if not found:
        return ""
    return SUITE_TEXT.format(
        date=max(record["date"] for _, record in found),
        threads=_threads(max(record["threads"] for _, record in found)),
        comparisons="\n".join(row for model, record in found for row in _comparisons(model, record)),
        growth="\n".join(_growth(term) for _, record in found for term in record["growth"]),
    )


def _comparisons(model: str, record: dict[str, Any]) -> list[str]:
    """A row for each implementation: in rank space at the first size of the record, then dense."""
    rows = []
    for kind, part in [("rank-space", record["rank_space"][0]), *(("dense", part) for part in record["dense"])]:
        sizes = ", ".join(f"{name} {size}" for name, size in part["sizes"].items())
        rows.append(f"| *{kind} {model}, {part['run']}: {sizes}* | | | | | |")
        rows += [_implementation(name, part) for name in part["implementations"]]
    return rows


def _implementation(name: str, part: dict[str, Any]) -> str:
    found = part["implementations"][name]
    memory = "" if found["peak_bytes"] is None else f"{found['peak_bytes'] / 1e6:.1f}"
    faster, smaller = (f"{part[key][name]:.1f}" if name in part[key] else "" for key in ("faster", "smaller"))
    cells = [NAMES.get(name, name), f"{found['milliseconds']:.1f}", faster, memory, smaller]
    return f"| {' | '.join(cells)} | {found['gemm_fraction']:.0%} |"


def _growth(term: dict[str, Any]) -> str:
    cells = [term["term"], term["varied"], str(term["claimed"]), f"{term['counted']:.2f}", f"{term['timed']:.2f}"]
    return f"| {' | '.join(cells)} |"


def _record(name: str) -> dict[str, Any]:
    record: dict[str, Any] = json.loads((HERE / "results" / f"{name}.json").read_text())
    return record


def _fgg() -> str:
    """The generic engine."""
    records = {name: _record(name) for name in RECORDS}
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
