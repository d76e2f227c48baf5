"""The record of `rankspace bench gpu` as tables."""

from collections.abc import Sequence
from typing import Any

from rankspace.cli.output import print_line, print_pairs, print_table

CIRCUMSTANCES = ("date", "commit", "device", "torch", "triton", "python")
COLUMNS = ("step", "precision", "ms / at most", "x peer", "GB / at most", "error", "GEMM", "copy", "worst weight")
PARTS = (
    ("steps", "steps"),
    ("recording", "compiling and recording"),
    ("evaluation", "evaluation"),
    ("checkpoints", "checkpoints"),
    ("rest", "the rest"),
)


def show_gpu(result: dict[str, Any]) -> None:
    """The rates, then a table for each kind of row that was measured."""
    print_pairs([(key, str(result[key])) for key in CIRCUMSTANCES])
    print_line(rates_line(result["rates"]))
    if result["rows"]:
        print_line("")
        print_line("Training steps: zero_grad, forward and backward of the mean NLL")
        show_steps("step", [row["name"] for row in result["rows"]], result["rows"])
    for varied, points in result["sweeps"].items():
        print_line("")
        print_line(f"rank-pcfg by {varied}")
        show_steps(varied, [str(point["value"]) for point in points], points)
    if "parse" in result:
        print_line("")
        print_line(parse_line(result["parse"]))
    for run in result["training"]:
        print_line(training_line(run))
        if not run["wrong"]:
            print_line(epoch_line(run))
            print_line(whole_line(run))


def rates_line(rates: dict[str, float]) -> str:
    products = ", ".join(f"{name} {rates[name]:.0f}" for name in ("fp32", "tf32", "bf16"))
    return f"Products of this device: {products} TFLOP/s; copy {rates['copy']:.2f} TB/s"


def show_steps(title: str, names: Sequence[str], rows: Sequence[dict[str, Any]]) -> None:
    """A table of steps, and below it why some have no time."""
    print_table((title, *COLUMNS[1:]), [[name, *cells(row)] for name, row in zip(names, rows, strict=True)])
    for name, row in zip(names, rows, strict=True):
        if row["wrong"]:
            print_line(f"{name}: {row['wrong']}; not timed.")


def cells(row: dict[str, Any]) -> list[str]:
    """What a table says of a step, but for its name."""
    error = f"{row['log_p_error']:.1e}" if "log_p_error" in row else ""
    if row["wrong"]:
        return [row["precision"], "wrong", "", "", error, "", "", worst_weight(row)]
    return [
        row["precision"] + ("" if row["way"] == "graph" else ", eager"),
        beside(row["milliseconds"], row["limit_ms"]),
        "" if row["faster"] is None else f"{row['faster']:.1f}",
        "" if row["peak_gb"] is None else beside(row["peak_gb"], row["limit_gb"]),
        error,
        f"{row['gemm_fraction']:.0%}",
        f"{row['copy_fraction']:.0%}",
        worst_weight(row),
    ]


def worst_weight(row: dict[str, Any]) -> str:
    """The weight whose gradient is furthest off, and by how much of its norm; nothing where none was compared."""
    worst = row.get("worst_weight")
    return f"{worst['error']:.1e} {worst['name']}" if worst else ""


def beside(value: float, limit: float | None) -> str:
    """A value and what it may be at most."""
    return f"{value:.2f}" + ("" if limit is None else f" / {limit:g}")


def parse_line(found: dict[str, Any]) -> str:
    start = f"Parsing {found['sentences']:,} sentences ({found['words']:,} words), precision {found['precision']}:"
    if found["wrong"]:
        return f"{start} {found['wrong']}"
    limit = "" if found["limit_seconds"] is None else f" (limit {found['limit_seconds']:g})"
    return f"{start} {found['seconds']:.2f} s{limit}, marginals off by {found['marginal_error']:.1e}"


def training_line(run: dict[str, Any]) -> str:
    if run["wrong"]:
        return f"{run['name']}: {run['wrong']}"
    return (
        f"{run['name']}: {run['words_per_second']:,.0f} words/s in training, {run['words_per_second_alone']:,.0f} by "
        f"steps alone: {run['ratio']:.2f} times as long (limit {run['limit']:g}); {run['num_again']} sentences "
        "computed again"
    )


def epoch_line(run: dict[str, Any]) -> str:
    """Of the same run, its last epoch."""
    epoch = run["epoch"]
    parts = ", ".join(f"{title} {epoch['split'][name]:.1f}" for name, title in PARTS if name in epoch["split"])
    return (
        f"{run['name']}, an epoch that has its graphs: {epoch['words_per_second']:,.0f} words/s, {epoch['ratio']:.2f} "
        f"times as long as by steps alone (limit {epoch['limit']:g}); {epoch['seconds']:.1f} s: {parts}"
    )


def whole_line(run: dict[str, Any]) -> str:
    """Of the same run, what its steps do not tell."""
    whole = run["whole"]
    parts = ", ".join(f"{title} {whole['split'][name]:.1f}" for name, title in PARTS)
    return (
        f"{run['name']}, the whole call: {whole['words_per_second']:,.0f} words/s, {whole['ratio']:.2f} times as long "
        f"as by steps alone; {whole['seconds']:.1f} s: {parts}"
    )
