"""The records of `rankspace bench` as tables."""

from typing import Any

from rankspace.cli.output import print_line, print_pairs, print_table

CIRCUMSTANCES = ("date", "commit", "device", "threads", "torch", "python")


def show_fgg(result: dict[str, Any]) -> None:
    """The record of `bench fgg`."""
    _show_circumstances(result)
    dense = "Dense PCFG: generic engine against an inside algorithm written by hand"
    decomposed = "Decomposed PCFG: rank space against state space, both on the generic engine"
    _show_part(dense, result["generality"], ("slower_forward", "slower_both"))
    for part in result["rank_space"]:
        _show_part(decomposed, part, ("faster_forward", "faster_both"))
    print_line("")
    print_line("Contractions grow with levels, not with items")
    counts = result["generality"]["counts"]
    shown = ("batch", "length", "items", "applications", "levels", "shapes", "contractions")
    print_table(shown, [[f"{row[name]:,}" for name in shown] for row in counts])


def show_suite(result: dict[str, Any]) -> None:
    """The record of `bench chain` or `bench tree`."""
    _show_circumstances(result)
    model = {"chain": "HMM", "tree": "PCFG"}[result["benchmark"]]
    for line in result["missing"]:
        print_line(line)
    for part in result["rank_space"]:
        _show_comparison(f"Rank-space {model}", part)
    for part in result["dense"]:
        _show_comparison(f"Dense {model}", part)
    if result["growth"]:
        _show_growth(result["growth"])


def _show_circumstances(result: dict[str, Any]) -> None:
    print_pairs([(key, str(result[key])) for key in CIRCUMSTANCES])


def _show_part(title: str, part: dict[str, Any], ratios: tuple[str, ...]) -> None:
    print_line("")
    print_line(f"{title} ({_sizes(part)})")
    print_table(["run", "ms"], [(name.replace("_", " "), f"{ms:.1f}") for name, ms in part["milliseconds"].items()])
    print_pairs([(name.replace("_", " "), f"{part[name]:.2f} x") for name in ratios])


def _show_comparison(title: str, part: dict[str, Any]) -> None:
    print_line("")
    print_line(f"{title}, {part['run']} ({_sizes(part)})")
    columns = ("", "ms", "x ours", "peak MB", "x ours", "GFLOP", "of GEMM rate")
    print_table(columns, [_implementation(name, part) for name in part["implementations"]])


def _implementation(name: str, part: dict[str, Any]) -> list[str]:
    found = part["implementations"][name]
    return [
        name.replace("_", " "),
        f"{found['milliseconds']:.1f}",
        _ratio(part["faster"].get(name)),
        "" if found["peak_bytes"] is None else f"{found['peak_bytes'] / 1e6:.1f}",
        _ratio(part["smaller"].get(name)),
        f"{found['flops'] / 1e9:.3g}",
        f"{found['gemm_fraction']:.1%}",
    ]


def _ratio(ratio: float | None) -> str:
    return "" if ratio is None else f"{ratio:.2f}"


def _show_growth(terms: list[dict[str, Any]]) -> None:
    print_line("")
    print_line("Growth: powers fitted to the operations and to the time of each term alone")
    columns = ("term", "power of", "claimed", "counted", "timed", "at")
    print_table(columns, [_term(term) for term in terms])


def _term(term: dict[str, Any]) -> list[str]:
    return [
        term["term"],
        term["varied"],
        str(term["claimed"]),
        f"{term['counted']:.2f}",
        f"{term['timed']:.2f}",
        ", ".join(map(str, term["values"])),
    ]


def _sizes(part: dict[str, Any]) -> str:
    return ", ".join(f"{name} {size}" for name, size in part["sizes"].items())
