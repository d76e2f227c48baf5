"""The scripts of benchmarks/kernels: what they count, and that they fit the kernels as they are."""

import json
import runpy
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

pytest.importorskip("triton", reason="needs triton")

from kernels.charts import DEVICE
from kernels.traffic import Traffic, traffic
from rankspace.bench import gpu_kernel_page
from rankspace.bench.gpu_inputs import Sentences, new_model
from rankspace.bench.gpu_rows import ROWS, Row
from rankspace.bench.gpu_timing import training_step
from rankspace.kernels import halves, rectifying

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
SCRIPTS = BENCHMARKS / "kernels"
ROW = {row.name: row for row in ROWS}


@pytest.fixture(autouse=True)
def beside_the_scripts(monkeypatch: pytest.MonkeyPatch) -> None:
    """As for a script that is run: others of its folder can be imported."""
    monkeypatch.syspath_prepend(SCRIPTS)


def script(name: str) -> dict[str, Any]:
    return runpy.run_path(str(SCRIPTS / f"{name}.py"), run_name="imported")


@pytest.mark.parametrize("path", sorted(SCRIPTS.glob("*.py")), ids=lambda path: path.stem)
def test_every_script_can_be_imported(path: Path) -> None:
    assert callable(script(path.stem).get("main")) == ("__main__" in path.read_text(encoding="utf-8"))


def test_bytes_of_dense_kernels_are_those_of_the_page() -> None:
    """kernels/README.md, 16 x 40 with 30 nonterminals, in MB: what is written and what is read."""
    work = script("kernel_work")["work_of"](ROW["n-pcfg"])
    assert round(work["_pair_sums"].bytes / 1e6) == 43 + 35
    assert work["_span_vectors"].bytes / 1e6 == pytest.approx(1.4 + 85, rel=0.05)
    links = 85  # of words, which the page leaves out
    assert work["_dense_outside_sums"].bytes / 1e6 == pytest.approx(1.4 + 1050 + links, rel=0.01)
    assert work["_link_slopes"].bytes / 1e6 == pytest.approx(4.6 + 5.7, rel=0.01)
    assert work["_pair_sums"].flops / 1e9 == pytest.approx(0.26, rel=0.02)


@pytest.mark.parametrize(("num", "expected"), [(16, (0.5, 0.7, 0.7, 1.6)), (64, (2.1, 2.9, 2.8, 6.3))])
def test_bytes_of_sums_over_splits_are_those_of_the_page(num: int, expected: tuple[float, ...]) -> None:
    """kernels/README.md, about: rank 1000 in float32, in GB."""
    work = script("kernel_work")["work_of"](replace(ROW["rank-pcfg-highest"], lengths=(40,) * num))
    names = ("_split_sums", "_begin_sums", "_outside_sums", "_begin_outside_sums")
    assert [work[name].bytes / 1e9 for name in names] == pytest.approx(expected, rel=0.1)


def test_kernels_with_work_exist() -> None:
    """A kernel that is called otherwise would have no fraction of its limit."""
    work_of, found = script("kernel_work")["work_of"], script("step_kernels")
    named = {name for row in ROWS for name in work_of(row)}
    source = "".join(path.read_text(encoding="utf-8") for path in Path(halves.__file__).parent.glob("*.py"))
    assert [name for name in sorted(named | set(found["WHOLE_TABLES"])) if f"def {name}(" not in source] == []


# What is timed, small: each part runs, and is right where the script asks.


def here(found: dict[str, Any], monkeypatch: pytest.MonkeyPatch, **others: Any) -> dict[str, Any]:
    """The names of a script, which takes the device of the tests for its GPU."""
    names = found["main"].__globals__
    for name, value in {"GPU": DEVICE, **others}.items():
        monkeypatch.setitem(names, name, value)
    return dict(names)


@pytest.mark.parametrize("start", ["states", "ranks"])
def test_phases_of_a_step_of_rank_hmm(monkeypatch: pytest.MonkeyPatch, start: str) -> None:
    found = here(script("rank_hmm_step"), monkeypatch, graph_ms=lambda run: (run(), 1.0)[1])
    case = found["Case"]("small", 20, 9, (3, 2), "highest", start, vocabulary=11, size=6)
    assert found["errors"](case)["log_p_error"] < 1e-4
    times = found["phases"](case, found["new_model"](case, 0.1), found["tokens_of"](case, 0))
    assert list(times) == [
        "networks",
        "emission forward",
        "emission",
        "tables",
        "link",
        "recursion forward",
        "recursion backward",
        "gradients of tables",
    ]


@pytest.mark.filterwarnings("ignore:.*encountered:RuntimeWarning")  # what is timed has no meaning
@pytest.mark.parametrize("ahead", [False, True])
def test_parts_of_a_chart(monkeypatch: pytest.MonkeyPatch, ahead: bool) -> None:
    chart = here(script("tree_chart"), monkeypatch)
    case = chart["Case"]("small", 3, (5, 2), "highest", vocabulary=5)
    assert chart["errors"](case)["log_z_error"] < 1e-4
    monkeypatch.setitem(sys.modules, "tree_chart", SimpleNamespace(**chart))
    tiles = here(script("tree_tiles"), monkeypatch)
    tiles["use"]({"FEWEST": 1, "WIDTHS": 2, "LAG": 1} if ahead else {"FEWEST": tiles["NEVER"]})
    try:
        tiles["whole"](case)()
        parts = tiles["parts"](case)
        for run in parts.values():
            run()
    finally:
        tiles["use"]({})
    assert set(parts) >= {"splits", "outside", "begun" if ahead else "link gradient"}


# Under the interpreter: what kernels read and write is what the formulas say.

SMALL = {
    "rank-pcfg": ({"nonterminals": 8, "preterminals": 32, "rank": 128, "size": 16}, (10,)),
    "rank-hmm": ({"states": 64, "rank": 128, "size": 16}, (4, 4)),
    "lhmm": ({"states": 512, "rank": 96, "size": 16}, (4, 4)),
    "n-pcfg": ({"nonterminals": 24, "preterminals": 64, "size": 16}, (7,)),
}
BY_PROGRAM = {
    "_split_sums": 1,
    "_begin_sums": 0,
    "_outside_sums": 2,
    "_begin_outside_sums": 1,
}  # and rows that all read
BY_PROGRAM |= {"_dense_outside_sums": 0, "_doubts": 0}
# What is left out is more where sizes are small: parts of sums, one number to a row, a sum in place of its first part.
ROUGH = {"_sum_portion": 0.3, "_tops": 0.2, "_add_up": 0.2, "_copy_rows": 0.15, "_link_slopes": 0.15}
NEAR = 0.09


def small_row(name: str, precision: Any) -> Row:
    settings, lengths = SMALL[name]
    return replace(ROW[name], settings=settings, lengths=lengths, vocabulary=120, precision=precision)


def moved(found: Traffic, kernel: str, rank: int) -> int:
    """Bytes as the formulas count them; of rows that are one for all programs, none."""
    if kernel not in BY_PROGRAM:
        return found.once[kernel]
    return found.by_program[kernel] - 4 * rank * BY_PROGRAM[kernel] * found.programs[kernel]


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs the interpreter, and there is a GPU")
@pytest.mark.parametrize(
    ("name", "precision"),
    [("rank-pcfg", "medium"), ("rank-hmm", "medium"), ("rank-hmm", "highest"), ("lhmm", "medium"), ("n-pcfg", "high")],
)
def test_every_kernel_of_a_step_moves_what_is_counted(name: str, precision: str) -> None:
    row, found = small_row(name, precision), script("step_kernels")
    step = training_step(new_model(row, DEVICE).train(), Sentences.of(row, DEVICE))
    with traffic() as seen, found["counted_bytes"]() as counted:
        step()
    work = found["work_with"](row, counted)
    assert sorted(set(seen.launches) - set(work)) == []
    assert set(work) - set(seen.launches) <= {"_after_product_back"}  # of lhmm, with more sentences
    rank = row.settings.get("rank", 0)
    shares = {kernel: work[kernel].bytes / moved(seen, kernel, rank) for kernel in seen.launches}
    assert {kernel: each for kernel, each in shares.items() if abs(each - 1) > ROUGH.get(kernel, NEAR)} == {}


# What is told of it.


@pytest.fixture(scope="module")
def limits() -> dict[str, float]:
    """The rates of an H200."""
    record = json.loads((BENCHMARKS / "results" / "step-kernels-h200.json").read_text(encoding="utf-8"))
    found: dict[str, float] = record["limits"]
    return found


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_no_kernel_of_ours_is_bound_by_arithmetic(row: Row, limits: dict[str, float]) -> None:
    """As docs/performance.md says. The bytes of some are counted in a run."""
    found = script("step_kernels")
    times = {name: work.milliseconds(limits) for name, work in script("kernel_work")["work_of"](row).items()}
    by_formula = {name: each for name, each in times.items() if name not in found["WHOLE_TABLES"]}
    assert [name for name, each in by_formula.items() if each["arithmetic"] > 0.5 * each["memory"]] == []
    assert found["products"](row, limits)["gflop"] > 0


def test_the_limit_is_the_longer_of_both(limits: dict[str, float]) -> None:
    found, rates = script("step_kernels"), {"copy": 4.0, "fp32": 50.0, "bf16": 800.0}
    work = script("kernel_work")["Work"]
    by_bytes = found["share"]("_copy", 0.5, 3, work(10**9, 10**9), rates)
    assert (by_bytes["bound"], by_bytes["of_limit"]) == ("memory", pytest.approx(0.5))
    by_flops = found["share"]("_product", 0.5, 3, work(10**6, 2 * 10**11, "bf16"), rates)
    assert (by_flops["bound"], by_flops["of_limit"]) == ("arithmetic", pytest.approx(0.5))
    unknown = found["share"]("elementwise", 0.5, 3, None, rates)
    assert (unknown["bound"], unknown["of_limit"], unknown["gflop"]) == (None, None, None)


def part(kernel: str, milliseconds: float, work: Any = None, **more: Any) -> dict[str, Any]:
    return {"kernel": kernel, "milliseconds": milliseconds, "launches": 2, "megabytes": work, "of_limit": None, **more}


class TestPage:
    def record(self, parts: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
        about = {"device": "GPU", "torch": "2", "date": "today", "commit": "c", "limits": {"copy": 4.0}}
        return {**about, "steps": {"step": parts}, **more}

    def test_kernels(self) -> None:
        known = {"gflop": 0.0, "bound": "memory", "of_limit": 0.5}
        parts = [
            part("_sums", 0.5, 1000.0, gflop=0.25, bound="arithmetic", of_limit=0.8),
            part("_tops", 0.002, 4.0, **known),
            part("_ends", 0.006, 12.0, **{**known, "of_limit": 0.1}),
            part("gemm", 2.0, gflop=None, bound=None),
        ]
        text = gpu_kernel_page.kernels(self.record(parts, products={"step": {"gflop": 400.0, "tflops": 800.0}}))
        assert text.splitlines()[2].endswith("Bound by arithmetic: products by torch, and of ours `sums` (step).")
        assert text.splitlines()[6:] == [
            "| step | `sums` | 2 | 0.500 | 1000 | 0.25 | 80% |",
            "| step | others of ours | 4 | 0.008 | 16 |  | 20% |",
            "| step | products, and torch's own | 2 | 2.000 |  | 400.00 | 25% |",
        ]

    def test_what_older_records_lack_is_shown_as_missing(self) -> None:
        parts = [part("_sums", 0.5), part("_copy", 0.1, 4.0, of_limit=0.5), part("_tops", 0.002), part("gemm", 2.0)]
        text = gpu_kernel_page.kernels(self.record(parts))
        assert text.splitlines()[2].endswith("A hyphen (-): not counted in that run.")
        assert text.splitlines()[6:] == [
            "| step | `sums` | 2 | 0.500 | - | - | - |",
            "| step | `copy` | 2 | 0.100 | 4 | - | 50% |",
            "| step | others of ours | 2 | 0.002 | - | - | - |",
            "| step | products, and torch's own | 2 | 2.000 |  | - | - |",
        ]


def test_counted_bytes() -> None:
    """Once for each table, however it lies in memory, and nothing afterwards."""
    counting, table = script("step_kernels")["counted_bytes"], torch.randn(30, 16, device=DEVICE)
    with counting() as counted:
        halves.halves(table)
        halves.halves(table.T)
        rectifying.plus_rectified(table, table.roll(1))
    halves.halves(table)
    numbers = table.numel()
    assert counted == {"_halves": 2 * 8 * numbers, "_plus_rectified": 3 * 4 * numbers}
