"""Steps of a GPU at their full size, on tensors without numbers: benchmarks/kernels/dry_run.py, in processes of
its own, for here kernels may be the interpreter's."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("triton", reason="needs triton")

from rankspace.bench.gpu_rows import ROWS
from rankspace.experiments import load_table, table_names
from rankspace.inference.backends import INTERPRETER

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
SCRIPT = BENCHMARKS / "kernels" / "dry_run.py"
WITHOUT_KERNELS = {"c-pcfg", "vl-hmm"}
LIBRARIES = (0.1, 0.2)  # GB that torch's libraries take on an H200


def run(*arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    known = {name: value for name, value in os.environ.items() if name != INTERPRETER}
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, check=False, env={**known, **environment}
    )


def outcomes(*options: str) -> list[dict[str, Any]]:
    found = run(str(SCRIPT), "--json", *options)
    assert found.returncode == 0, found.stderr
    rows: list[dict[str, Any]] = json.loads(found.stdout)
    return rows


def test_every_step_keeps_to_its_memory_and_to_what_a_graph_can_hold() -> None:
    found = {row["row"]: row for row in outcomes()}
    assert list(found) == [row.name for row in ROWS]
    record = json.loads((BENCHMARKS / "results" / "gpu-h200.json").read_text(encoding="utf-8"))
    measured = {row["name"]: row["peak_gb"] for row in record["rows"]}
    for row in ROWS:
        held = found[row.name]["gigabytes"]
        assert row.limit_gb is None or held + LIBRARIES[1] <= row.limit_gb
        assert 0.75 < found[row.name]["said_gb"] / held < 1.3  # an estimate from sizes alone
        assert LIBRARIES[0] <= measured[row.name] - held <= LIBRARIES[1]


def test_every_row_of_an_experiment_whose_model_has_kernels() -> None:
    found = {row["row"] for row in outcomes("--tables")}
    models = {f"{table}/{row.name}": row.config.model.name for table in table_names() for row in load_table(table).rows}
    assert {models[name] for name in found} == set(models.values()) - WITHOUT_KERNELS


@pytest.mark.parametrize("capability", ["80", "90"])
def test_kernels_compile_without_a_gpu(capability: str) -> None:
    found = outcomes("--compile", capability, "--rows", "n-pcfg", "rank-hmm")
    assert [row["variants"] > 10 < row["shared_memory"] for row in found] == [True, True]


def test_under_the_interpreter_there_is_nothing_to_look_at() -> None:
    found = run(str(SCRIPT), "--rows", "n-pcfg", **{INTERPRETER: "1"})
    assert found.returncode == 1
    assert found.stderr == ("n-pcfg, high: TRITON_INTERPRET is set: kernels are for the interpreter, and for no GPU\n")


SHAPES = """
import sys
import torch
sys.path.insert(0, sys.argv[1])
from dry_run import NOWHERE, dry
from rankspace.models import create

with dry(90) as launches:
    with NOWHERE:
        model = create(sys.argv[2], vocabulary=50, nonterminals=20, preterminals=40).train()
    for batch, length in ((16, 12), (7, 12), (5, 11), (3, 11)):  # 4 divides the number of spans, or not
        words, seed = torch.zeros(batch, length, dtype=torch.int64, device=NOWHERE), torch.zeros((), device=NOWHERE)
        log_p, _ = model.padded_log_prob(words, torch.full((batch,), length, device=NOWHERE), seed)
        torch.autograd.grad(log_p.sum(), list(model.parameters()), allow_unused=True)
of_charts = [each for each in launches.variants if each.kernel.__module__.rpartition(".")[2].startswith("tree_")]
print(len(of_charts), len({each._replace(aligned=()) for each in of_charts}))
"""


def test_kernels_of_charts_are_not_compiled_anew_for_the_number_of_spans() -> None:
    """Where their tables begin in memory does not depend on it."""
    found = run("-c", SHAPES, str(SCRIPT.parent), "simple-pcfg")
    compiled, different = map(int, found.stdout.split())
    assert compiled == different > 8


MISTAKES = """
import sys
import torch
sys.path.insert(0, sys.argv[1])
from dry_run import NOWHERE, DryRunError, recording, dry
from rankspace.kernels.probe import _write_one

there, here, number = torch.zeros(3, device=NOWHERE), torch.zeros(3), torch.zeros(())
for mistake in (
    lambda: bool(there[0] > 0),
    lambda: there.nonzero(),
    lambda: torch.tensor([1, 2], device=NOWHERE),
    lambda: there[[0, 1]],
    lambda: there.new_tensor([1]),
    lambda: there.copy_(here),
    lambda: number.to(NOWHERE),
    lambda: there[None] @ there[:, None].bfloat16(),
    lambda: _write_one[(1,)](here),
    lambda: _write_one[(0,)](there),
    lambda: _write_one[(1, 2**16)](there),
):
    with dry(90) as launches, recording():
        try:
            mistake()
        except DryRunError as error:
            print(error)
"""


def test_what_a_gpu_could_not_do_is_an_error() -> None:
    found = run("-c", MISTAKES, str(SCRIPT.parent))
    assert found.stdout.splitlines() == [
        "_local_scalar_dense waits for the device",
        "nonzero waits for the device",
        "tensor copies numbers of the host",
        "__getitem__ copies numbers of the host",
        "new_tensor copies numbers of the host",
        "copy_ has a tensor of the host, (3,)",
        "_to_copy has a tensor of the host, ()",
        "mm of torch.float32 and torch.bfloat16",
        "_write_one: found is on cpu",
        "_write_one: no GPU takes a grid of (0,)",
        "_write_one: no GPU takes a grid of (1, 65536)",
    ], found.stderr
