"""Training on a GPU: as on the CPU up to rounding, resumed, and loaded on either."""

import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import rankspace
from rankspace.models import MODELS, Model, create
from rankspace.training import Config, RunDirectory, captured, train
from rankspace.training.captured import CapturedStep
from rankspace.training.epochs import Epochs, Share
from rankspace.training.graphs import Graphs
from rankspace.training.processes import Processes
from rankspace.training.sections import OptimiserConfig
from rankspace.training.step import GradientStep
from rankspace.training.watch import Place
from training.tiny import CHAIN, DIRECT, TREE, config, data

pytestmark = pytest.mark.gpu

GRAMMAR = {"model.nonterminals": 4, "model.preterminals": 6, "model.size": 8}
CAPTURED = [
    TREE,
    {**GRAMMAR, "model.name": "tn-pcfg", "model.rank": 5},
    {**GRAMMAR, "model.name": "simple-pcfg"},
    {**GRAMMAR, "model.name": "n-pcfg"},
    {**GRAMMAR, "model.name": "l-pcfg", "model.rank": 3},
    {**CHAIN, "model.dropout": 0.0},
    {"model.name": "lhmm", "model.states": 8, "model.rank": 5, "model.size": 8},
    {"model.name": "hmm", "model.states": 8, "model.size": 8},
]


def exact(model: dict[str, Any], **changes: Any) -> Config:
    """Of runs that compute in float32. Where rounding is all there is of a gradient, it hardly moves a weight."""
    return config(model, run__precision="highest", optimiser__epsilon=1e-6, run__log_every=1, **changes)


@pytest.mark.parametrize("model", [TREE, {**CHAIN, "model.dropout": 0.0}, {**DIRECT, "em.batch": "mini"}])
def test_the_gpu_learns_what_the_cpu_learns(tmp_path: Path, model: dict[str, Any]) -> None:
    chosen = exact(model, run__max_steps=4)
    for device in ("cpu", "cuda"):
        train(chosen, tmp_path / device, device=device, data=data())
    cpu, cuda = (RunDirectory.open(tmp_path / device).metrics() for device in ("cpu", "cuda"))
    for mine, other in zip(cpu, cuda, strict=True):
        assert other["perplexity"] == pytest.approx(mine["perplexity"], rel=1e-3)


@pytest.mark.parametrize("model", CAPTURED, ids=lambda model: model["model.name"])
@pytest.mark.parametrize("loses", [False, True])
@pytest.mark.parametrize("ahead", [False, True])
def test_graphs_learn_as_single_steps_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: dict[str, Any], loses: bool, ahead: bool
) -> None:
    """Several shapes, a rate that rises, gradients that are clipped; several batches a step and averaged weights, which
    wait for the device, or steps that are sent ahead. What graphs lose is done again."""
    learning = {"optimiser__clip": 0.5, "schedule__warm_up": 5, "run__epochs": 3}
    waiting = {} if ahead else {"optimiser__average": 0.9, "batches__accumulate": 2}
    chosen = exact(model, **learning, **waiting).changed({"run.log_every": 3 if ahead else 1})
    kind: Any = MODELS[chosen.model.name]
    monkeypatch.setattr(captured, "WARY", 0)
    whole, recorded, again = kind.padded_log_prob, Graphs.recorded, CapturedStep._do_again
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
    monkeypatch.setattr(Graphs, "recorded", recording)
    monkeypatch.setattr(CapturedStep, "_do_again", repeating)
    train(chosen, tmp_path / "graphs", device="cuda", data=data())
    assert counts["recorded"] > 2  # shapes and the optimiser
    assert bool(counts["again"]) == loses
    monkeypatch.setattr(kind, "can_be_captured", lambda *_: False)
    num_recorded = counts["recorded"]
    train(chosen, tmp_path / "steps", device="cuda", data=data())
    assert counts["recorded"] == num_recorded
    graphs, steps = (RunDirectory.open(tmp_path / name).metrics() for name in ("graphs", "steps"))
    assert len(graphs) == len(steps) > 6
    for one, other in zip(graphs, steps, strict=True):
        assert one["perplexity"] == pytest.approx(other["perplexity"], rel=1e-3)
        assert one.get("learning_rate") == other.get("learning_rate")
        assert one.get("gradient_norm", 0.0) == pytest.approx(other.get("gradient_norm", 0.0), rel=1e-2)
    norms, rates = ([one[name] for one in graphs if name in one] for name in ("gradient_norm", "learning_rate"))
    assert max(norms) > learning["optimiser__clip"]
    assert rates == sorted(rates)
    assert ahead or len(set(rates)) == learning["schedule__warm_up"] + 1


@pytest.mark.parametrize("model", [CHAIN, TREE])
@pytest.mark.parametrize("ahead", [False, True])
def test_a_run_that_goes_on_learns_as_one_that_was_never_ended(
    tmp_path: Path, model: dict[str, Any], ahead: bool
) -> None:
    """In the middle of an epoch and of the warm-up, with graphs on either side; what is dropped is the same too. Graphs
    begin anew, so that other steps run without them, which may round otherwise. Steps wait for the device, for averaged
    weights and to be logged, or are sent ahead."""
    learning = {"schedule__warm_up": 10, "run__epochs": 4} | ({} if ahead else {"optimiser__average": 0.9})
    for name, ends in (("whole", [16]), ("ended", [7, 16])):
        for num_steps in ends:
            chosen = exact(model, run__max_steps=num_steps, **learning).changed({"run.log_every": 4 if ahead else 1})
            results = train(chosen, tmp_path / name, device="cuda", data=data(), resume=True).results
            assert results["steps"] == num_steps
    whole, ended = (records(tmp_path / name) for name in ("whole", "ended"))
    assert ended.keys() - whole.keys() == {(7, "valid")}
    for place, record in whole.items():
        assert ended[place] == pytest.approx(record, rel=1e-4)
    one, other = (RunDirectory.open(tmp_path / name).read("last", resuming=True) for name in ("whole", "ended"))
    torch.testing.assert_close(other.weights, one.weights, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(other.resuming, one.resuming, rtol=1e-4, atol=1e-4)
    assert all(torch.equal(other.resuming[name], one.resuming[name]) for name in ("random.cpu", "random.cuda"))


def records(path: Path) -> dict[tuple[int, str], dict[str, float]]:
    """What a run was measured by, at each step of each split."""
    names = ("loss", "perplexity", "gradient_norm", "learning_rate")
    found = RunDirectory.open(path).metrics()
    return {(each["step"], each["split"]): {name: each[name] for name in names if name in each} for each in found}


def test_a_run_on_the_gpu_loads_on_the_cpu(tmp_path: Path) -> None:
    path, sentences = tmp_path / "run", [["the", "dog"], ["the"]]
    train(exact(CHAIN, run__max_steps=3), path, device="cuda", data=data())
    on_cpu, on_gpu = rankspace.load(path).log_prob(sentences), rankspace.load(path, device="cuda").log_prob(sentences)
    assert on_cpu == pytest.approx(on_gpu, rel=1e-4)


NUM_REPLAYS = 100
DROPPED = [
    ("rank-hmm", {"dropout": 0.5}),
    ("rank-hmm", {"dropout": 0.5, "start": "ranks"}),
    ("rank-hmm", {"dropout": 0.0, "rank_dropout": 0.5}),
    ("rank-hmm", {"dropout": 0.0, "state_dropout": 0.5}),
    ("rank-hmm", {"dropout": 0.0, "word_dropout": 0.5}),
    ("lhmm", {"dropout": 0.5}),
    ("lhmm", {"state_dropout": 0.5}),
    ("hmm", {"dropout": 0.5}),
]


@pytest.mark.parametrize(("name", "settings"), DROPPED)
def test_each_replay_of_a_graph_drops_anew(name: str, settings: dict[str, Any]) -> None:
    """Losses of one batch under the same weights vary as those of single steps do: means within five times what chance
    makes of them, deviations within a factor of two, which is far more."""
    graphs, steps = (losses(kind, name, settings) for kind in (CapturedStep, GradientStep))
    assert len(set(graphs.tolist())) > NUM_REPLAYS / 2
    chance = float((graphs.var() + steps.var()) / NUM_REPLAYS) ** 0.5
    assert float(graphs.mean()) == pytest.approx(float(steps.mean()), abs=5 * chance)
    assert 0.5 < float(graphs.std() / steps.std()) < 2


def losses(kind: type[GradientStep], name: str, settings: dict[str, Any]) -> Tensor:
    """Of steps with the same batch, each so short that it changes no weight; without that which comes before graphs."""
    torch.manual_seed(1)
    sizes = {"vocabulary": len(data().vocabulary), "states": 40, "size": 8} | ({"rank": 12} if name != "hmm" else {})
    model, processes = create(name, **sizes, **settings).to("cuda").train(), Processes(device=torch.device("cuda", 0))
    step, found = kind(model, OptimiserConfig(), processes), []
    for number, shares in enumerate([one_batch("chain", processes)] * (NUM_REPLAYS + 1)):
        step.watch.begin(Place(number + 1, 0, 1))
        step(shares, 1e-12)
        step.settle()
        step.watch.check()
        found.append(step.watch.drain().loss)
    return torch.tensor(found[1:], dtype=torch.float64)


def one_batch(kind: str, processes: Processes) -> list[Share]:
    epochs = Epochs(data()["train"], config(), kind, processes)
    return next(epochs.steps(epochs.batches(0)))


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


class WithoutEngine(Model):
    """A loss of a few launches, in place of an engine that waits."""

    NAME, KIND = "without-engine", "chain"

    def __init__(self) -> None:
        super().__init__(vocabulary=5)
        self.first, self.second = (nn.Parameter(torch.linspace(-1, 1, 5)) for _ in range(2))

    def forward(self, words: Tensor | None = None) -> Any:
        raise NotImplementedError

    def loss(self, words: Tensor, lengths: Any = None) -> Tensor:
        return -(self.first * self.second).log_softmax(0)[0].expand(len(words))


def test_steps_do_not_wait_for_the_device_but_where_the_engine_does() -> None:
    """The watch, the clipping, the optimiser and the averages add no synchronisation of their own."""
    processes = Processes(device=torch.device("cuda", 0))
    step = GradientStep(WithoutEngine().to("cuda"), OptimiserConfig(clip=0.1, average=0.9), processes)
    shares = one_batch("chain", processes)
    step(shares, 0.01)  # makes what the optimiser remembers
    with no_waiting():
        for number in range(3):
            step.watch.begin(Place(number + 1, 0, number + 1))
            step(shares, 0.01 / (number + 1))
    step.watch.check()
    assert step.watch.drain().num_steps == 4
    with pytest.raises(RuntimeError, match="synchronizing"), no_waiting():
        step.watch.drain()


@pytest.mark.parametrize("name", ["rank-hmm", "rank-pcfg"])
def test_captured_steps_wait_for_the_device_only_to_be_settled(name: str) -> None:
    """Several of them, once the graph of their shape is recorded: no copy, no number of the device that is read."""
    sizes = {"states": 40} if name == "rank-hmm" else {"nonterminals": 4, "preterminals": 6}
    processes = Processes(device=torch.device("cuda", 0))
    model = create(name, vocabulary=len(data().vocabulary), rank=12, size=8, **sizes).to("cuda").train()
    step, shares = CapturedStep(model, OptimiserConfig(clip=0.1), processes), one_batch(model.KIND, processes)

    def once(number: int) -> None:
        step.watch.begin(Place(number, 0, number))
        step(shares, 0.01 / number)

    for number in range(1, 4):
        once(number)
    with no_waiting():
        for number in range(4, 8):
            once(number)
    step.settle()
    step.watch.check()
    assert step.watch.drain().num_steps == 7
