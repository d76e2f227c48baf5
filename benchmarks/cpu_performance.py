"""Writes what docs/performance-cpu.md and README.md say of engines on a CPU, and of the generic engine on a GPU too,
between their marks, from benchmarks/results.

    python benchmarks/cpu_performance.py

A block whose record does not exist is left empty; no figure is typed.
"""

from functools import partial
from pathlib import Path
from typing import Any

from rankspace.bench import pages
from rankspace.bench.comparison import OURS

HERE = Path(__file__).parent
RESULTS = HERE / "results"
PAGE, README = HERE.parent / "docs" / "performance-cpu.md", HERE.parent / "README.md"
CHAIN, TREE = "chain-cpu", "tree-cpu"
MODELS = {CHAIN: "HMM", TREE: "PCFG"}
GENERIC = {"fgg-cpu": "CPU, one thread", "fgg-h200": "H200", "fgg-h200-large": "H200"}
NAMES = {"log_sum_exp": "log-sum-exp", "log_einsum_exp": "log-einsum-exp"}
COLUMNS = ("", "ms", "times ours", "peak MB", "times ours", "of GEMM rate")

HEADLINE = """\
On {threads} of a CPU ({date}), log p of a rank-space PCFG ({sizes}) and its gradient take **{milliseconds:.0f} ms**:
{einsum:.1f} times less than the same recursion by log-einsum-exp in plain torch, {sum:.0f} times less than by
log-sum-exp. For a rank-space HMM ({chain}) it is {chain_einsum:.1f} and {chain_sum:.0f} times: matrix products that all
have in common take most of the time. A dense PCFG ({dense}) takes {struct:.0f} times less than in torch-struct.
`rankspace bench tree`, `chain` and `fgg` measure this and the other figures in
[docs/performance-cpu.md](docs/performance-cpu.md)."""

ABOUT = "{device}, {threads}, torch {torch}, {date}, commit {commit}."

GENERALITY = """\
Generality: a dense PCFG of 30 symbols, batch 8, on the generic engine and with an inside algorithm written by hand.
Median milliseconds of seven runs, taken in turns ({dates})."""

RANK_SPACE = """\
Rank space: a decomposed PCFG over states and over ranks, both on the generic engine and from the same parameters, in
the same runs. Both use only the emission of the words in the batch, and the tables over ranks are computed anew in
every run. Before anything is timed, log Z and all gradients are checked to agree."""


# Blocks: each is a function from its record to text.


def headline(found: dict[str, Any]) -> str:
    """The first comparisons in rank space, of trees and of chains, and the one of trees with torch-struct."""
    low_rank, dense, chains = found["rank_space"][0], found["dense"], pages.record(RESULTS, CHAIN)
    if not dense or chains is None:
        return ""
    chain = chains["rank_space"][0]
    text = HEADLINE.format(
        threads=_threads(found["threads"]),
        date=found["date"],
        sizes=_sizes(low_rank),
        milliseconds=low_rank["implementations"][OURS]["milliseconds"],
        einsum=low_rank["faster"]["log_einsum_exp"],
        sum=low_rank["faster"]["log_sum_exp"],
        chain=_sizes(chain),
        chain_einsum=chain["faster"]["log_einsum_exp"],
        chain_sum=chain["faster"]["log_sum_exp"],
        dense=_sizes(dense[0]),
        struct=dense[0]["faster"]["torch-struct"],
    )
    return f"{pages.filled(text)}\n"


def comparisons(model: str, found: dict[str, Any]) -> str:
    """In rank space at the first size of the record, then dense: a table each."""
    about = ABOUT.format(**{**found, "threads": _threads(found["threads"])})
    parts = [("rank-space", found["rank_space"][0]), *(("dense", part) for part in found["dense"])]
    tables = [
        pages.filled(f"**{kind} {model}, {part['run']}**: {_sizes(part)}")
        + "\n\n"
        + pages.markdown_table(COLUMNS, [_implementation(name, part) for name in part["implementations"]])
        for kind, part in parts
    ]
    return "\n".join([f"{about}\n", *tables])


def growth(found: dict[str, Any]) -> str:
    cells = [
        [term["term"], term["varied"], str(term["claimed"]), f"{term['counted']:.2f}", f"{term['timed']:.2f}"]
        for term in found["growth"]
    ]
    return pages.markdown_table(("term", "power of", "claimed", "counted", "timed"), cells)


def generic() -> str:
    """The generic engine, by all its records."""
    found = {name: record for name in GENERIC if (record := pages.record(RESULTS, name))}
    if not found:
        return ""
    dates = ", ".join(dict.fromkeys(f"{GENERIC[name]}: {record['date']}" for name, record in found.items()))
    by_hand = [line for name in found if not name.endswith("large") for line in _generality(GENERIC[name], found[name])]
    gain = [line for name, record in found.items() for line in _rank_space(GENERIC[name], record)]
    columns = ("forward and backward", "states", "rank", "batch", "over states, ms", "over ranks, ms", "gain")
    return (
        f"{pages.filled(GENERALITY.format(dates=dates))}\n\n"
        + pages.markdown_table(("", "engine, ms", "by hand, ms", "ratio"), by_hand)
        + f"\n{pages.filled(RANK_SPACE)}\n\n"
        + pages.markdown_table(columns, gain)
    )


def _sizes(part: dict[str, Any]) -> str:
    return ", ".join(f"{name} {size}" for name, size in part["sizes"].items())


def _threads(count: int) -> str:
    return "one thread" if count == 1 else f"{count} threads"


def _implementation(name: str, part: dict[str, Any]) -> list[str]:
    found = part["implementations"][name]
    memory = "" if found["peak_bytes"] is None else f"{found['peak_bytes'] / 1e6:.1f}"
    faster, smaller = (f"{part[key][name]:.1f}" if name in part[key] else "" for key in ("faster", "smaller"))
    figures = [f"{found['milliseconds']:.1f}", faster, memory, smaller, f"{found['gemm_fraction']:.0%}"]
    return [NAMES.get(name, name), *figures]


def _generality(label: str, record: dict[str, Any]) -> list[list[str]]:
    part = record["generality"]
    return [
        [
            f"{label}, {name}",
            *(f"{part['milliseconds'][f'{way}_{key}']:.1f}" for way in ("engine", "by_hand")),
            f"{part[f'slower_{key}']:.2f}",
        ]
        for key, name in (("forward", "forward"), ("both", "forward and backward"))
    ]


def _rank_space(label: str, record: dict[str, Any]) -> list[list[str]]:
    rows = []
    for part in record["rank_space"]:
        sizes, times = part["sizes"], part["milliseconds"]
        cells = [f"{sizes['states']:,}", str(sizes["rank"]), str(sizes["batch"])]
        cells += [f"{times['state_both']:.0f}", f"{times['rank_both']:.0f}", f"{part['faster_both']:.2f}"]
        rows.append([label, *cells])
    return rows


BLOCKS: dict[str, pages.Block] = {
    "cpu": (TREE, headline),
    **{f"cpu-{name}": (name, partial(comparisons, model)) for name, model in MODELS.items()},
    **{f"cpu-growth-{name}": (name, growth) for name in MODELS},
}


def with_blocks(text: str) -> str:
    """A page with everything between its marks written anew."""
    return pages.with_block(pages.with_blocks(text, BLOCKS, RESULTS), "generic", generic)


if __name__ == "__main__":
    for page in (PAGE, README):
        page.write_text(with_blocks(page.read_text(encoding="utf-8")), encoding="utf-8")
