"""Triton is optional: where it cannot be imported everything runs in torch, and who asks for kernels is told so."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src"
WITHOUT = "import sys\nsys.modules['triton'] = None  # importing it fails\n"
MODEL = """
import torch
from rankspace.errors import RankspaceError
from rankspace.models import create

torch.manual_seed(0)
tree, chain = {"nonterminals": 3, "preterminals": 4}, {"states": 5, "rank": 3}
chosen = {
    "rank-pcfg": {**tree, "rank": 3},
    "tn-pcfg": {**tree, "rank": 3},
    "simple-pcfg": tree,
    "n-pcfg": tree,
    "l-pcfg": {**tree, "rank": 2},
    "rank-hmm": chain,
    "lhmm": chain,
    "hmm": {"states": 5},
}
for name, sizes in chosen.items():
    model = create(name, vocabulary=7, size=4, **sizes).eval()
    losses = {}
    for backend in ("auto", "torch", "triton"):
        model.options["backend"] = backend
        try:
            losses[backend] = model.loss(torch.tensor([[1, 2, 3, 0]]), [4])
        except RankspaceError as error:
            print(error)
    losses["auto"].sum().backward()
    assert torch.equal(losses["auto"], losses["torch"])
    assert not model.can_be_captured(torch.device("cpu"))
"""
TRAINING = """
import rankspace
from rankspace.training import Config, synthetic_data, train

sizes = {"model.name": "rank-pcfg", "model.nonterminals": 3, "model.preterminals": 4, "model.rank": 3, "model.size": 4}
data = synthetic_data(12, max_length=5)
train(Config().changed({**sizes, "run.max_steps": 2}), "run", device="cpu", data=data)
print(rankspace.load("run").log_prob([["the", "dog"]])[0] < 0)
"""
MODULES = """
import importlib, pkgutil
import rankspace

for found in pkgutil.walk_packages(rankspace.__path__, "rankspace."):
    if not found.name.startswith("rankspace.kernels.") and not found.name.endswith("__main__"):
        importlib.import_module(found.name)
"""


def printed_without_triton(code: str, folder: Path) -> list[str]:
    """The lines that a fresh interpreter prints which has no Triton, not even its interpreter."""
    path = os.pathsep.join([str(SOURCE), *filter(None, [os.environ.get("PYTHONPATH")])])
    result = subprocess.run(
        [sys.executable, "-c", WITHOUT + code],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path, "TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout.splitlines()


def test_importing_it_fails_there(tmp_path: Path) -> None:
    code = "try:\n    import triton\nexcept ImportError:\n    print('failed')\n"
    assert printed_without_triton(code, tmp_path) == ["failed"]


def test_models_run_in_torch_and_say_why(tmp_path: Path) -> None:
    reason = "backend is 'triton', but triton is not installed; give backend='auto'."
    refusing = ("RankSpacePCFG", "RankSpacePCFG", "SimplePCFG", "n-pcfg", "l-pcfg", "rank-hmm", "lhmm", "hmm")
    assert printed_without_triton(MODEL, tmp_path) == [f"{name}: {reason}" for name in refusing]


@pytest.mark.parametrize(("code", "expected"), [(TRAINING, ["True"]), (MODULES, [])], ids=["training", "modules"])
def test_nothing_but_kernels_needs_it(tmp_path: Path, code: str, expected: list[str]) -> None:
    assert printed_without_triton(code, tmp_path) == expected
