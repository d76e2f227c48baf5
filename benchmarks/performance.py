"""Writes what docs/performance.md and README.md say of one GPU, between their marks, from benchmarks/results.

    python benchmarks/performance.py

The plot docs/performance.png needs matplotlib. A block whose record does not exist is left empty; no figure is typed.
"""

import math
from pathlib import Path
from typing import Any

from rankspace.bench import pages

HERE = Path(__file__).parent
RESULTS = HERE / "results"
PAGE, README = HERE.parent / "docs" / "performance.md", HERE.parent / "README.md"
PLOT = HERE.parent / "docs" / "performance.png"
COLUMNS = (
    "step",
    "batch",
    "precision",
    "ms",
    "at most",
    "best peer ms",
    "times faster",
    "GB",
    "at most",
    "best peer GB",
    "error of log p",
    "of gradients",
    "of GEMM rate",
    "of copy rate",
)
RECORD, CHART, STEP, PARTS = "gpu-h200", "tree-chart-h200", "rank-hmm-step-h200", "step-kernels-h200"
LEAST = 0.01  # milliseconds: kernels of which each is shown
AXES = {"length": "words in a sentence", "rank": "rank", "batch": "sentences in a batch"}

HEADLINE = """\
On one {device} ({date}) a training step of the paper's PCFG ({sizes}, {batch} words) takes **{milliseconds:.1f} ms**
and {peak:.1f} GB, {faster:.0f} times less time than the fastest published implementation there; products in
{precision!r} precision, log p within {error:.0e} of float64. `rankspace bench gpu` measures it, and what else stands in
[docs/performance.md](docs/performance.md).
"""

STEPS = """\
{device}, torch {torch}, Triton {triton}, {date}, commit {commit}. Products of square matrices reach fp32 {fp32:.0f},
tf32 {tf32:.0f} and bf16 {bf16:.0f} TFLOP/s there, a copy {copy:.2f} TB/s.{note}

{columns}
{rows}

Best peers: {peers}.
{peaked}"""

PEAKED = """\
With logits times 6, `{model}` {sizes} in "highest" is off by {error:.0e}, and did {lost} of {num} sentences again.
"""

KERNELS = """\
Charts of low-rank trees alone, forward and backward from given probabilities ({device}, torch {torch}).
*Floor*: the products with the link at the rate of a square product, and the rows that splits read at the rate of a
copy, as if no cache gave any of them twice.

| chart | rank | precision | ms | of floor | peak GB | error of log Z |
| --- | --- | --- | --- | --- | --- | --- |
{charts}

"""

PHASES = """\
Where the step of `rank-hmm` spends its time, each phase in a graph of its own ({device}, torch {torch}), in ms.

| step | precision | whole | {names} |
| --- | --- | --- |{dashes}
{steps}
"""

PARTS_OF_STEPS = """\
Kernels of training steps, launched one at a time under torch's profiler ({device}, torch {torch}, {date}, commit
{commit}). *Of its limit*: the bytes that a kernel has to read and write, each number once, at the rate of a copy there,
{copy:.2f} TB/s; above 100 % a cache served some. Those without bytes are bound by arithmetic or wait for each other:
the [README of kernels](../src/rankspace/kernels/README.md) has their limits.

| step | kernel | launches | ms | MB | of its limit |
| --- | --- | --- | --- | --- | --- |
{kernels}
"""


# Blocks: each is a function from its record to text.


def headline(found: dict[str, Any]) -> str:
    """The first row, if it is right and has a peer."""
    row = next((row for row in found["rows"] if row["name"] == "rank-pcfg" and not row["wrong"]), None)
    if row is None:
        return ""
    return HEADLINE.format(
        device=found["device"],
        date=found["date"],
        sizes=row["sizes"],
        batch=row["batch"],
        milliseconds=row["milliseconds"],
        peak=row["peak_gb"],
        faster=row["faster"],
        precision=row["precision"],
        error=row["log_p_error"],
    )


def steps(found: dict[str, Any]) -> str:
    rows = "\n".join(f"| {' | '.join(step_cells(row))} |" for row in found["rows"])
    names = ("device", "torch", "triton", "date", "commit")
    peers = dict.fromkeys(f"`{row['model']}`: {row['peer']['name']}" for row in found["rows"] if row["peer"])
    peaked = "".join(peaked_text(row) for row in found["rows"] if "peaked_error" in row)
    columns = f"| {' | '.join(COLUMNS)} |\n|{' --- |' * len(COLUMNS)}"
    given = {"columns": columns, "rows": rows, "peers": "; ".join(peers), "peaked": peaked}
    given["note"] = f" {found['note']}" if found.get("note") else ""
    return STEPS.format(**given, **{name: found[name] for name in names}, **found["rates"])


def peaked_text(row: dict[str, Any]) -> str:
    sizes = {"model": row["model"], "sizes": row["sizes"], "num": len(row["lengths"])}
    return PEAKED.format(error=row["peaked_error"], lost=row["peaked_lost"], **sizes)


def step_cells(row: dict[str, Any]) -> list[str]:
    start = [f"`{row['model']}` {row['sizes']}", row["batch"], row["precision"]]
    if row["wrong"]:
        return [*start, f"not timed: {row['wrong']}", *[""] * 10]
    peer = row["peer"] or {"milliseconds": None, "gigabytes": None}
    return [
        *start,
        f"**{row['milliseconds']:.2f}**" + ("" if row["way"] == "graph" else " (eager)"),
        number(row["limit_ms"], "g"),
        number(peer["milliseconds"], "g"),
        number(row["faster"], ".0f"),
        number(row["peak_gb"], ".2f"),
        number(row["limit_gb"], "g"),
        number(peer["gigabytes"], "g"),
        f"{row['log_p_error']:.0e}",
        f"{row['gradient_error']:.0e}",
        f"{row['gemm_fraction']:.0%}",
        f"{row['copy_fraction']:.0%}",
    ]


def whole_runs(found: dict[str, Any]) -> str:
    """Parsing and training."""
    lines = [parse_text(found["parse"])] if "parse" in found else []
    lines += [training_text(run) for run in found["training"]]
    return "".join(f"- {line}\n" for line in lines)


def parse_text(run: dict[str, Any]) -> str:
    start = f"Parsing {run['sentences']:,} sentences of newspaper lengths ({run['words']:,} words) at the paper's size"
    if run["wrong"]:
        return f"{start}: not timed, {run['wrong']}."
    return (
        f"{start}, from words to trees on the host: **{run['seconds']:.2f} s**, at most {run['limit_seconds']:g}; "
        f"probabilities of spans are off by {run['marginal_error']:.0e}, in {run['precision']!r}."
    )


def training_text(run: dict[str, Any]) -> str:
    start = f"`rankspace train` of `{run['model']}` in {run['precision']!r}"
    if run["wrong"]:
        return f"{start}: not timed, {run['wrong']}."
    return (
        f"{start}: {run['words_per_second']:,.0f} words a second in the loop, {run['words_per_second_alone']:,.0f} by "
        f"its steps alone: {run['ratio']:.2f} times as long, at most {run['limit']:g}; {run['num_again']} sentences "
        "were done again."
    )


def growth(found: dict[str, Any]) -> str:
    """The plot, and the same as tables."""
    parts = [f"![Time of a training step against length, rank and batch]({PLOT.name})\n"] if found["sweeps"] else []
    for varied, right in measured(found).items():
        values, times = ([f"{point[key]:{form}}" for point in right] for key, form in SHOWN)
        parts.append(
            f"| {AXES[varied]} | {' | '.join(values)} |\n| --- |{' --- |' * len(right)}\n| ms | {' | '.join(times)} |\n"
        )
        if len(right) > 1:
            parts.append(GROWTH.format(first=values[-2], last=values[-1], power=last_power(right)))
    return "\n".join(parts)


def measured(found: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """The right points of each sweep; to lengths belongs the row of long sentences in the same number."""
    sweeps = {varied: [point for point in points if not point["wrong"]] for varied, points in found["sweeps"].items()}
    for row in found["rows"]:
        if row["name"] == LONG and not row["wrong"] and "length" in sweeps:
            sweeps["length"].append({**row, "value": max(row["lengths"])})
    return sweeps


def last_power(points: list[dict[str, Any]]) -> float:
    """With which power of the size that was varied the time grows between the two largest."""
    one, other = points[-2:]
    return math.log(other["milliseconds"] / one["milliseconds"]) / math.log(other["value"] / one["value"])


GROWTH = "From {first} to {last} time grows with the power {power:.2f} of that.\n"
LONG = "length-200"  # 16 sentences, as in the sweep
SHOWN = (("value", "d"), ("milliseconds", ".2f"))


def charts(found: dict[str, Any]) -> str:
    rows = [
        f"| {case['name']} | {case['rank']} | {case['precision']} | {case['graph_ms']:.2f} | "
        f"{case['floor_ms'] / case['graph_ms']:.0%} | {case['peak_gb']:.2f} | {case['log_z_error']:.0e} |"
        for case in found["cases"]
    ]
    return KERNELS.format(device=found["device"], torch=found["torch"], charts="\n".join(rows))


def phases(found: dict[str, Any]) -> str:
    cases = [case for case in found["cases"] if case.get("phases_ms")]
    names = list(dict.fromkeys(name for case in cases for name in case["phases_ms"]))
    rows = []
    for case in cases:
        values = [number(case["phases_ms"].get(name), ".2f") for name in names]
        rows.append(f"| {case['name']} | {case['precision']} | {case['graph_ms']:.2f} | {' | '.join(values)} |")
    heads = {"names": " | ".join(names), "dashes": " --- |" * len(names)}
    return PHASES.format(device=found["device"], torch=found["torch"], steps="\n".join(rows), **heads)


def kernels(found: dict[str, Any]) -> str:
    """The project's own kernels of each step, whose names begin with a line; the rest in one row."""
    rows = []
    for step, parts in found["steps"].items():
        own = [part for part in parts if part["kernel"].startswith("_")]
        shown = [part for part in own if part["milliseconds"] >= LEAST]
        rows += [kernel_row(step, f"`{part['kernel'][1:]}`", [part]) for part in shown]
        rows += [kernel_row(step, "others of ours", [part for part in own if part["milliseconds"] < LEAST])]
        rows += [kernel_row(step, "products, and torch's own", [part for part in parts if part not in own])]
    names = {name: found[name] for name in ("device", "torch", "date", "commit")}
    return PARTS_OF_STEPS.format(**names, copy=found["limits"]["copy"], kernels="\n".join(rows))


def kernel_row(step: str, name: str, parts: list[dict[str, Any]]) -> str:
    work, share = (parts[0]["megabytes"], parts[0]["of_limit"]) if len(parts) == 1 else (None, None)
    time, launches = (sum(part[each] for part in parts) for each in ("milliseconds", "launches"))
    return f"| {step} | {name} | {launches} | {time:.3f} | {number(work, '.0f')} | {number(share, '.0%')} |"


def number(value: float | None, form: str) -> str:
    return "" if value is None else f"{value:{form}}"


BLOCKS: dict[str, pages.Block] = {
    "gpu": (RECORD, headline),
    "gpu-steps": (RECORD, steps),
    "gpu-runs": (RECORD, whole_runs),
    "gpu-growth": (RECORD, growth),
    "gpu-charts": (CHART, charts),
    "gpu-phases": (STEP, phases),
    "gpu-kernels": (PARTS, kernels),
}


def with_blocks(text: str) -> str:
    """A page with everything between its marks written anew."""
    return pages.with_blocks(text, BLOCKS, RESULTS)


def draw(sweeps: dict[str, list[dict[str, Any]]], file: Path) -> None:
    """Milliseconds of a step against each size that was varied, both axes logarithmic."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, places = pyplot.subplots(1, len(sweeps), figsize=(9, 2.8), sharey=True, squeeze=False)
    for place, (varied, right) in zip(places[0], sweeps.items(), strict=True):
        values = [point["value"] for point in right]
        place.loglog(values, [point["milliseconds"] for point in right], marker="o", color="#2b6cb0")
        place.set_xticks(values, [str(value) for value in values], minor=False)
        place.set_yticks([5, 10, 20, 40, 60], ["5", "10", "20", "40", "60"])
        place.minorticks_off()
        place.set_xlabel(AXES[varied])
        place.grid(alpha=0.3)
    places[0][0].set_ylabel("ms of a training step")
    figure.tight_layout()
    figure.savefig(file, dpi=110)
    pyplot.close(figure)


def main() -> None:
    for page in (PAGE, README):
        page.write_text(with_blocks(page.read_text(encoding="utf-8")), encoding="utf-8")
    found = pages.record(RESULTS, RECORD)
    if found is not None and found["sweeps"]:
        draw(measured(found), PLOT)


if __name__ == "__main__":
    main()
