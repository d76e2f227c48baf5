"""The scripts of benchmarks/kernels: what they count, and that they fit the kernels as they are."""

import runpy
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("triton", reason="needs triton")

from kernels.charts import DEVICE
from rankspace.bench.gpu_rows import ROWS
from rankspace.kernels import halves, rectifying

SCRIPTS = Path(__file__).parents[2] / "benchmarks" / "kernels"


def script(name: str) -> dict[str, Any]:
    return runpy.run_path(str(SCRIPTS / f"{name}.py"), run_name="imported")


@pytest.mark.parametrize("path", sorted(SCRIPTS.glob("*.py")), ids=lambda path: path.stem)
def test_every_script_can_be_imported(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(SCRIPTS)  # as for a script that is run
    assert callable(script(path.stem)["main"])


def test_bytes_of_dense_kernels_are_those_of_the_page() -> None:
    """kernels/README.md, 16 x 40 with 30 nonterminals, in MB: what is written and what is read."""
    found = script("step_kernels")
    row = next(row for row in ROWS if row.name == "n-pcfg")
    work = found["BYTES"][row.model](found["sizes_of"](row))
    assert round(work["_pair_sums"] / 1e6) == 43 + 35
    assert work["_span_vectors"] / 1e6 == pytest.approx(1.4 + 85, rel=0.05)
    assert work["_dense_outside_sums"] / 1e6 == pytest.approx(1.4 + 1050, rel=0.01)
    assert work["_link_slopes"] / 1e6 == pytest.approx(4.6 + 5.7, rel=0.01)


def test_kernels_with_bytes_exist() -> None:
    """A kernel that is called otherwise would have no fraction of its limit."""
    found = script("step_kernels")
    named = {
        name
        for row in ROWS
        if row.model in found["BYTES"]
        for name in found["BYTES"][row.model](found["sizes_of"](row))
    }
    source = "".join(path.read_text(encoding="utf-8") for path in Path(halves.__file__).parent.glob("*.py"))
    assert [name for name in sorted(named | set(found["WHOLE_TABLES"])) if f"def {name}(" not in source] == []


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
