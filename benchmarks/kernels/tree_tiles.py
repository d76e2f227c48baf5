"""Tries other tiles of the tree kernels: forward and backward in a CUDA graph, and each part alone.

    python benchmarks/kernels/tree_tiles.py [--output FILE] [--precision medium] [--parts]

Variants are compiled side by side first, each in a process of its own, which fills Triton's cache; then timed one after
the other. The constants of `rankspace/kernels/tree_tiles.py` are what this finds. `--parts` leaves other tiles out.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from tree_chart import CASES, GPU, Case, random_inputs, step

from rankspace.bench.device_clock import captured, median_ms, rates
from rankspace.bench.measurement import circumstances
from rankspace.inference.tree import triton_engine
from rankspace.kernels import tree_outside, tree_splits, tree_tiles, tree_tops

NEVER = 1000
DEFAULT = {
    name: getattr(tree_tiles, name) for name in ("TERMS", "RANKS_OF_A_WARP", "WIDTHS", "BEGINS", "FEWEST", "LAG")
}
VARIANTS: dict[str, dict[str, int]] = {
    "default": {},
    "nothing ahead": {"FEWEST": NEVER},
    "nothing ahead, 8 terms": {"FEWEST": NEVER, "TERMS": 8},
    "nothing ahead, 2 terms": {"FEWEST": NEVER, "TERMS": 2},
    "nothing ahead, 128 ranks a warp": {"FEWEST": NEVER, "RANKS_OF_A_WARP": 128, "TERMS": 8},
    "lag 1": {"LAG": 1},
    "lag 3": {"LAG": 3},
    "begins 4": {"BEGINS": 4, "RANKS_OF_A_WARP": 128},
    "begins 1": {"BEGINS": 1},
    "widths 2, begins 4": {"WIDTHS": 2, "BEGINS": 4},
    "widths 2, begins 4, lag 1": {"WIDTHS": 2, "BEGINS": 4, "LAG": 1},
    "widths 8, begins 1": {"WIDTHS": 8, "BEGINS": 1},
}
OF_PARTS = ("default", "nothing ahead")  # between them every part is seen


def use(changes: dict[str, int]) -> None:
    for name, value in {**DEFAULT, **changes}.items():
        for module in (tree_tiles, tree_splits, tree_outside):
            if hasattr(module, name):
                setattr(module, name, value)


def whole(case: Case) -> Callable[[], Any]:
    inputs, sentences = random_inputs(case)
    return lambda: step(inputs, sentences, kernels=True)


def parts(case: Case) -> dict[str, Callable[[], None]]:
    """The launches of each kind, one after the other, without what is between them."""
    inputs, sentences = random_inputs(case)
    chart, link, root, results = triton_engine._inside(inputs.detach(), sentences, None)
    slopes = tree_tops.top_slopes(chart, results, torch.ones_like(results.log_z))
    above = tree_outside.new_above(chart, slopes.of_top, root)
    above.alpha.fill_(1e-3)
    above.children.fill_(1e-3)
    rows = chart.rows
    inside, outside = list(tree_tiles.inside_steps(rows.longest)), list(tree_tiles.outside_steps(rows.longest))

    def splits() -> None:
        for each in inside:
            tree_splits.split_sums(chart, each.width, each.known)

    def begun() -> None:
        for each in inside:
            if each.ahead:
                tree_splits.begin_sums(chart, each.ahead, each.width)

    def outsides() -> None:
        for each in outside:
            tree_outside.outside_sums(chart, above, each.width, each.known)

    def begun_outside() -> None:
        for each in outside:
            if each.ahead:
                tree_outside.begin_outside_sums(chart, above, each.ahead, each.width)

    def products() -> None:
        for each in inside[:-1]:
            triton_engine._apply(link, chart.alpha[rows.wide(each.width)], chart.both(rows.spans(each.width)))

    back = triton_engine.Back(link)

    def products_back() -> None:
        for each in outside[:-1]:
            back(above.children[rows.spans(each.width)].flatten(1), above.alpha[rows.wide(each.width)])

    def link_gradient() -> None:
        triton_engine._link_gradients(inputs.link, link, chart, above, slopes.unit)

    found = {"splits": splits, "outside": outsides}
    if any(each.ahead for each in inside):
        return found | {"begun": begun, "begun outside": begun_outside}
    return found | {"products": products, "products back": products_back, "link gradient": link_gradient}


def compile_all(names: Iterable[str], precision: str) -> None:
    command = [sys.executable, __file__, "--precision", precision, "--compile"]
    started = [subprocess.Popen([*command, name]) for name in names]
    for process in started:
        process.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--compile", choices=VARIANTS)
    parser.add_argument("--output", type=Path)
    parser.add_argument("--precision", choices=["high", "medium"], default="high")
    parser.add_argument("--parts", action="store_true")
    given = parser.parse_args()
    names = OF_PARTS if given.parts else tuple(VARIANTS)
    cases = [replace(case, precision=given.precision) for case in CASES if case.name in ("16 x 40", "64 x 40")]
    if given.compile:
        use(VARIANTS[given.compile])
        whole(cases[0])()
        torch.cuda.synchronize()
        return
    compile_all(names, given.precision)
    limits, records = rates(GPU), []
    for case in cases:
        for name in names:
            use(VARIANTS[name])
            record = {
                "case": case.name,
                "precision": case.precision,
                "variant": name,
                "whole": median_ms(captured(whole(case), GPU), GPU),
            }
            record |= {part: median_ms(captured(run, GPU), GPU, 10) for part, run in parts(case).items()}
            records.append(record)
            shown = "  ".join(f"{part} {time:.3f}" for part, time in record.items() if isinstance(time, float))
            print(f"{case.name:9}{name:34}{shown}", flush=True)
            torch.cuda.empty_cache()
    if given.output:
        whole_record = {**circumstances(GPU), "limits": limits}
        given.output.write_text(json.dumps(whole_record | {"variants": records}, indent=1) + "\n")


if __name__ == "__main__":
    main()
