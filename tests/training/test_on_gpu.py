"""Training on a GPU: as on the CPU up to rounding, resumed, and loaded on either."""

import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

import rankspace
from rankspace.models import MODELS
from rankspace.training import RunDirectory, train
from rankspace.training.captured import CapturedStep
from training.tiny import CHAIN, DIRECT, TREE, config, data

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("model", [TREE, {**CHAIN, "model.dropout": 0.0}, {**DIRECT, "em.batch": "mini"}])
def test_the_gpu_learns_what_the_cpu_learns(tmp_path: Path, model: dict[str, Any]) -> None:
    chosen = config(model, run__max_steps=4, run__log_every=1)
    for device in ("cpu", "cuda"):
        train(chosen, tmp_path / device, device=device, data=data())
    cpu, cuda = (RunDirectory.open(tmp_path / device).metrics() for device in ("cpu", "cuda"))
    for mine, other in zip(cpu, cuda, strict=True):
        assert other["perplexity"] == pytest.approx(mine["perplexity"], rel=1e-3)


@pytest.mark.parametrize("model", [TREE, {**CHAIN, "model.dropout": 0.0}])
@pytest.mark.parametrize("loses", [False, True])
def test_graphs_learn_as_single_steps_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: dict[str, Any], loses: bool
) -> None:
    """Several batches a step, several shapes, averaged weights; sentences that graphs lose are done again."""
    chosen = config(model, batches__accumulate=2, optimiser__average=0.9, run__epochs=3, run__log_every=1)
    kind: Any = MODELS[chosen.model.name]
    whole, recorded, again = kind.padded_log_prob, CapturedStep._recorded, CapturedStep._do_again
    counts = Counter[str]()

    def losing(self: Any, words: Any, lengths: Any, seed: Any) -> Any:
        found, lost = whole(self, words, lengths, seed)
        if loses:  # a tree may mark more of them on its way back
            lost = lost.logical_or_(words[:, 0] % 2 == 0) if self.KIND == "tree" else lost | (words[:, 0] % 2 == 0)
        return found, lost

    def recording(self: Any, work: Any) -> Any:
        counts["recorded"] += 1
        return recorded(self, work)

    def repeating(self: Any, share: Any, lost: Any) -> None:
        counts["again"] += len(lost)
        again(self, share, lost)

    monkeypatch.setattr(kind, "padded_log_prob", losing)
    monkeypatch.setattr(CapturedStep, "_recorded", recording)
    monkeypatch.setattr(CapturedStep, "_do_again", repeating)
    train(chosen, tmp_path / "graphs", device="cuda", data=data())
    assert counts["recorded"] > 2  # shapes and the optimiser
    assert bool(counts["again"]) == loses
    monkeypatch.setattr(kind, "can_be_captured", lambda *_: False)
    train(chosen, tmp_path / "steps", device="cuda", data=data())
    graphs, steps = (RunDirectory.open(tmp_path / name).metrics() for name in ("graphs", "steps"))
    assert len(graphs) == len(steps) > 6
    for one, other in zip(graphs, steps, strict=True):
        assert one["perplexity"] == pytest.approx(other["perplexity"], rel=1e-3)


def test_a_run_goes_on_and_loads_on_the_cpu(tmp_path: Path) -> None:
    path = tmp_path / "run"
    train(config(CHAIN, run__max_steps=3, optimiser__average=0.9), path, device="cuda", data=data())
    more = config(CHAIN, run__max_steps=6, optimiser__average=0.9)
    results = train(more, path, device="cuda", data=data(), resume=True).results
    assert results["steps"] == 6
    sentences = [["the", "dog"], ["the"]]
    on_cpu, on_gpu = rankspace.load(path).log_prob(sentences), rankspace.load(path, device="cuda").log_prob(sentences)
    assert on_cpu == pytest.approx(on_gpu, rel=1e-4)


@contextmanager
def no_waiting() -> Iterator[None]:
    """Within, an operation that waits for the GPU is an error."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch calls the mode a prototype
            torch.cuda.set_sync_debug_mode("error")
        yield
    finally:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.cuda.set_sync_debug_mode("default")


def test_steps_do_not_wait_for_the_device_but_where_the_engine_does(tmp_path: Path) -> None:
    """The watch, the clipping, the optimiser and the averages add no synchronisation of their own."""
    from rankspace.training.watch import Place, Watch

    watch = Watch(torch.device("cuda"))
    losses, counts = torch.rand(8, device="cuda"), torch.ones(8, device="cuda")
    with no_waiting():
        watch.begin(Place(1, 0, 1))
        watch.losses(losses, counts, 5 * counts)
        watch.step(losses.norm())
    watch.check("")
