"""What docs/performance.md says of kernels: each block is a function from a record of benchmarks/kernels to text."""

from collections.abc import Sequence
from typing import Any

Record = dict[str, Any]

LEAST = 0.01  # milliseconds: kernels of which each is shown
MISSING = "-"  # what a record does not have, for it was not measured or counted in that run

CHARTS = """\
Charts of low-rank trees alone, forward and backward from given probabilities ({device}, torch {torch}).
*Floor*: the time for the products with the link at the rate of a square product, and for the rows that splits read at
the rate of a copy, as if no cache served any of them twice.

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

KERNELS = """\
Kernels of training steps, launched one at a time under torch's profiler ({device}, torch {torch}, {date}, commit
{commit}), with the least they read and write (MB) and compute (GFLOP, where they multiply and add). *Of its limit*:
the longer of both times at the rates of that run (copy {copy:.2f} TB/s), over ms. {bound}

| step | kernel | launches | ms | MB | GFLOP | of its limit |
| --- | --- | --- | --- | --- | --- | --- |
{kernels}
"""


def number(value: float | None, form: str, missing: str = "") -> str:
    return missing if value is None else f"{value:{form}}"


def charts(found: Record) -> str:
    rows = [
        f"| {case['name']} | {case['rank']} | {case['precision']} | {case['graph_ms']:.2f} | "
        f"{case['floor_ms'] / case['graph_ms']:.0%} | {case['peak_gb']:.2f} | {case['log_z_error']:.0e} |"
        for case in found["cases"]
    ]
    return CHARTS.format(device=found["device"], torch=found["torch"], charts="\n".join(rows))


def phases(found: Record) -> str:
    cases = [case for case in found["cases"] if case.get("phases_ms")]
    names = list(dict.fromkeys(name for case in cases for name in case["phases_ms"]))
    rows = []
    for case in cases:
        values = [number(case["phases_ms"].get(name), ".2f") for name in names]
        rows.append(f"| {case['name']} | {case['precision']} | {case['graph_ms']:.2f} | {' | '.join(values)} |")
    heads = {"names": " | ".join(names), "dashes": " --- |" * len(names)}
    return PHASES.format(device=found["device"], torch=found["torch"], steps="\n".join(rows), **heads)


def kernels(found: Record) -> str:
    """The project's own kernels of each step, whose names begin with a line; the rest in one row."""
    rows = []
    for step, parts in found["steps"].items():
        own = [part for part in parts if part["kernel"].startswith("_")]
        short = [part for part in own if part["milliseconds"] < LEAST]
        rows += [kernel_row(step, f"`{part['kernel'][1:]}`", [part]) for part in own if part not in short]
        rows += [kernel_row(step, "others of ours", short)] if short else []
        rows += [products_row(step, [part for part in parts if part not in own], found.get("products", {}).get(step))]
    names = {name: found[name] for name in ("device", "torch", "date", "commit")}
    return KERNELS.format(**names, copy=found["limits"]["copy"], bound=bound_text(found), kernels="\n".join(rows))


def bound_text(found: Record) -> str:
    """Which of our kernels arithmetic bounds."""
    own = [(step, part) for step, parts in found["steps"].items() for part in parts if part["kernel"].startswith("_")]
    if any("bound" not in part for _, part in own):
        return f"A hyphen ({MISSING}): not counted in that run."
    bound = [f"`{part['kernel'][1:]}` ({step})" for step, part in own if part["bound"] == "arithmetic"]
    return f"Bound by arithmetic: products by torch, and of ours {', '.join(bound) or 'none'}."


def kernel_row(step: str, name: str, parts: Sequence[Record]) -> str:
    """Kernels together; what one of them does not have, they have not."""
    limits = [None if part["of_limit"] is None else part["of_limit"] * part["milliseconds"] for part in parts]
    work, flops = (total([part.get(each) for part in parts]) for each in ("megabytes", "gflop"))
    return _row(step, name, parts, number(work, ".0f", MISSING), flops, total(limits))


def products_row(step: str, parts: Sequence[Record], products: Record | None) -> str:
    """What is not ours. Torch's other kernels count against products, which then reach more than this says."""
    flops = None if products is None else products["gflop"]
    limit = None if products is None else products["gflop"] / products["tflops"]
    return _row(step, "products, and torch's own", parts, "", flops, limit)


def total(values: Sequence[float | None]) -> float | None:
    """None where one is missing."""
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def _row(step: str, name: str, parts: Sequence[Record], work: str, gflop: float | None, limit_ms: float | None) -> str:
    time, launches = (sum(part[each] for part in parts) for each in ("milliseconds", "launches"))
    share = None if limit_ms is None else limit_ms / time
    flops = "" if gflop == 0 else number(gflop, ".2f", MISSING)
    return f"| {step} | {name} | {launches} | {time:.3f} | {work} | {flops} | {number(share, '.0%', MISSING)} |"
