"""Writes what docs/performance.md and README.md say of one GPU, between their marks, from benchmarks/results.

    python benchmarks/performance.py

The plot docs/performance.png needs matplotlib. A block whose record does not exist is left empty; no figure is typed.
"""

import math
from pathlib import Path
from typing import Any

from rankspace.bench import pages
from rankspace.bench.gpu_kernel_page import MISSING, charts, kernels, number, phases
from rankspace.bench.gpu_weights import LIMIT, SHARE, SMALL_LIMIT, WeightError, worst_of

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
    "worst weight",
    "replay",
    "of GEMM rate",
    "of copy rate",
)
RECORD, CHART, STEP, PARTS = "gpu-h200", "tree-chart-h200", "rank-hmm-step-h200", "step-kernels-h200"
AXES = {"length": "words in a sentence", "rank": "rank", "batch": "sentences in a batch"}

HEADLINE = """\
On one {device} ({date}), a training step of the paper's PCFG ({sizes}, {batch} words)
takes **{milliseconds:.1f} ms** and {peak:.1f} GB, {faster:.0f} times less time than the fastest published
implementation takes on such a GPU. Products are in {precision!r} precision, and log p is within {error:.0e} of float64.
`rankspace bench gpu` measures this and the other figures in [docs/performance.md](docs/performance.md).
"""

STEPS = """\
{device}, torch {torch}, Triton {triton}, {date}, commit {commit}. On this GPU products of square matrices reach
{fp32:.0f} TFLOP/s in fp32, {tf32:.0f} in tf32 and {bf16:.0f} in bf16, and a copy reaches {copy:.2f} TB/s.{note}

{columns}
{rows}

Best peers: {peers}.
{peaked}"""

PEAKED = """\
With logits times 6, `{model}` {sizes} in "highest" is off by {error:.0e}, and computed {lost} of {num} sentences again.
"""

SMALL = """\
Weights with less than {share:g} of the norm that are off by more than {limit:g} of their own, which up to {small:g}
does not make a row wrong: {found}.
"""

EPOCH = """\
An epoch that has its graphs, with its evaluation and checkpoints: {words_per_second:,.0f} words a second, {ratio:.2f}
times as long as its steps alone would take (limit {limit:g}). The {seconds:.1f} s are: steps {steps:.1f}, evaluation
{evaluation:.1f}, checkpoints {checkpoints:.1f}."""

WHOLE = """\
The whole call, {epochs}: {words_per_second:,.0f} words a second, {ratio:.2f} times as long as its steps alone would
take. The {seconds:.1f} s are: steps {steps:.1f}, compiling and recording {recording:.1f}, evaluation {evaluation:.1f},
checkpoints {checkpoints:.1f}, the rest {rest:.1f}."""


# Blocks: each is a function from its record to text.


def headline(found: dict[str, Any]) -> str:
    """The first row, if it is right and has a peer."""
    row = next((row for row in found["rows"] if row["name"] == "rank-pcfg" and not row["wrong"]), None)
    if row is None:
        return ""
    text = HEADLINE.format(
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
    return f"{pages.filled(text)}\n"


def steps(found: dict[str, Any]) -> str:
    rows = "\n".join(f"| {' | '.join(step_cells(row))} |" for row in found["rows"])
    names = ("device", "torch", "triton", "date", "commit")
    peers = dict.fromkeys(f"`{row['model']}`: {row['peer']['name']}" for row in found["rows"] if row["peer"])
    peaked = "".join(peaked_text(row) for row in found["rows"] if "peaked_error" in row) + small_weights(found["rows"])
    columns = f"| {' | '.join(COLUMNS)} |\n|{' --- |' * len(COLUMNS)}"
    given = {"columns": columns, "rows": rows, "peers": "; ".join(peers), "peaked": peaked}
    given["note"] = f" {found['note']}" if found.get("note") else ""
    return STEPS.format(**given, **{name: found[name] for name in names}, **found["rates"])


def peaked_text(row: dict[str, Any]) -> str:
    sizes = {"model": row["model"], "sizes": row["sizes"], "num": len(row["lengths"])}
    return PEAKED.format(error=row["peaked_error"], lost=row["peaked_lost"], **sizes)


def small_weights(rows: list[dict[str, Any]]) -> str:
    """What is recorded of weights that are too small for the limit of others, where something is."""
    compared = [row for row in rows if "weights" in row]
    small = [(row, [WeightError(**each) for each in row["weights"] if each["share"] < SHARE]) for row in compared]
    worst = [(row, worst_of(some) or worst_of(some, judged=False)) for row, some in small]
    far = [f"`{row['name']}`: `{each.name}` {each.error:.0e}" for row, each in worst if each and each.error > LIMIT]
    return SMALL.format(share=SHARE, limit=LIMIT, small=SMALL_LIMIT, found="; ".join(far) or "none") if compared else ""


def worst_weight(row: dict[str, Any]) -> str:
    worst = row.get("worst_weight")
    return MISSING if worst is None else f"`{worst['name']}` {worst['error']:.0e}"


def replay(row: dict[str, Any]) -> str:
    """How what was timed compares with its launches."""
    if "replay" not in row:
        return MISSING
    largest = max(row["replay"]["difference"].values())
    return f"{largest:.0e}" if largest else "same bits"


def step_cells(row: dict[str, Any]) -> list[str]:
    start = [f"`{row['model']}` {row['sizes']}", row["batch"], row["precision"]]
    if row["wrong"]:
        return [*start, f"not timed: {row['wrong']}", *[""] * (len(COLUMNS) - 4)]
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
        worst_weight(row),
        replay(row),
        f"{row['gemm_fraction']:.0%}",
        f"{row['copy_fraction']:.0%}",
    ]


def whole_runs(found: dict[str, Any]) -> str:
    """Parsing and training."""
    lines = [parse_text(found["parse"])] if "parse" in found else []
    lines += [text(run) for run in found["training"] for text in (training_text, epoch_text, whole_text)]
    return "".join(f"- {line}\n" for line in lines)


def parse_text(run: dict[str, Any]) -> str:
    start = f"Parsing {run['sentences']:,} sentences of newspaper lengths ({run['words']:,} words) at the paper's size"
    if run["wrong"]:
        return f"{start}: not timed, {run['wrong']}."
    return (
        f"{start}, from words to trees on the host: **{run['seconds']:.2f} s** (limit {run['limit_seconds']:g}); "
        f"probabilities of spans are off by {run['marginal_error']:.0e} in {run['precision']!r} precision."
    )


def training_text(run: dict[str, Any]) -> str:
    start = f"`rankspace train` of `{run['model']}` in {run['precision']!r} precision"
    if run["wrong"]:
        return f"{start}: not timed, {run['wrong']}."
    return (
        f"{start}: {run['words_per_second']:,.0f} words a second in the loop, {run['words_per_second_alone']:,.0f} by "
        f"its steps alone: {run['ratio']:.2f} times as long (limit {run['limit']:g}); {run['num_again']} sentences "
        "were computed again."
    )


def epoch_text(run: dict[str, Any]) -> str:
    """What one epoch of the same run takes; older records do not have it."""
    epoch = run.get("epoch")
    if epoch is None:
        return f"An epoch of `{run['model']}` with its evaluation and checkpoints: not in this record."
    return EPOCH.format(**epoch, **epoch["split"]).replace("\n", " ")


def whole_text(run: dict[str, Any]) -> str:
    """Where the time of the same run goes; older records do not have it, or are of one epoch."""
    whole = run.get("whole")
    if whole is None:
        return f"The whole call of `rankspace train` of `{run['model']}`: not in this record."
    epochs = "two epochs" if "epoch" in run else "one epoch"
    return WHOLE.format(**whole, **whole["split"], epochs=epochs).replace("\n", " ")


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


GROWTH = "From {first} to {last}, time grows as that size to the power {power:.2f}.\n"
LONG = "length-200"  # 16 sentences, as in the sweep
SHOWN = (("value", "d"), ("milliseconds", ".2f"))


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
