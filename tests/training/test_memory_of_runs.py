"""A lack of memory where a run builds, loads, evaluates or draws is one line with the size and the remedy."""

from pathlib import Path
from typing import Any

import pytest
import torch

import rankspace
from models.cases import CASES
from rankspace.bench.profiling import PeakBytes
from rankspace.distributions import RankSpacePCFG, SimplePCFG
from rankspace.distributions.memory import Work
from rankspace.errors import NotEnoughMemoryError
from rankspace.models import MODELS, Model, create
from rankspace.models.fast_model import KernelModel
from rankspace.models.memory import (
    bytes_needed,
    bytes_of_samples,
    bytes_of_tables,
    bytes_of_weights,
    chart_bytes,
    distribution_of,
)
from rankspace.models.networks import JoinedNetwork, ResidualNetwork
from rankspace.models.parts import Root
from rankspace.training import train
from rankspace.training.evaluator import Evaluator
from rankspace.training.machine import without_weights
from rankspace.training.processes import Processes
from short_memory import OUT_OF_MEMORY, lacking
from training.tiny import CHAIN, config, data

FOR_MODEL = (
    "train: the model: not enough memory for rank-hmm with 2,264 weights (rank 5, float32): it takes about 36.2 kB, "
    "and 3.8 GB more could not be had; lower model.rank."
)
READ = "rankspace.training.checkpoints.load_file"
WHERE = ["torch.nn.Module.to", "rankspace.training.runs.create", "rankspace.training.loop._make_step"]


@pytest.mark.parametrize("where", WHERE)
def test_a_model_that_training_has_no_room_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    """On its device, on the way there, or with gradients and what an optimiser remembers."""
    monkeypatch.setattr(where, lacking)
    with pytest.raises(NotEnoughMemoryError) as caught:
        train(config(CHAIN), tmp_path / "run", device="cpu", data=data())
    assert str(caught.value) == FOR_MODEL
    assert str(caught.value.__cause__) == OUT_OF_MEMORY


@pytest.mark.parametrize("where", [*WHERE, READ, "rankspace.training.loop.Trainer.load"])
def test_a_model_that_a_run_that_goes_on_has_no_room_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    train(config(CHAIN, run__max_steps=1), tmp_path / "run", device="cpu", data=data())
    monkeypatch.setattr(where, lacking)
    with pytest.raises(NotEnoughMemoryError) as caught:
        train(config(CHAIN), tmp_path / "run", device="cpu", data=data(), resume=True)
    assert str(caught.value) == FOR_MODEL


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runs") / "run"
    train(config(CHAIN, run__max_steps=1), path, device="cpu", data=data())
    return path


@pytest.mark.parametrize("where", ["torch.nn.Module.to", "rankspace.training.trained.create", READ])
def test_a_model_that_a_device_does_not_hold(run: Path, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    monkeypatch.setattr(where, lacking)
    with pytest.raises(NotEnoughMemoryError) as caught:
        rankspace.load(run)
    assert str(caught.value) == (
        "load: not enough memory for rank-hmm with 2,264 weights (rank 5, float32): it takes about 9.1 kB, and 3.8 GB "
        "more could not be had; free memory, or load the model on a device with more memory."
    )


def test_sentences_that_there_is_no_room_to_draw(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trained = rankspace.load(run)
    monkeypatch.setattr(trained.model, "forward", lacking)
    with pytest.raises(NotEnoughMemoryError) as caught:
        trained.sample(100, 20)
    assert str(caught.value) == (
        "sample: not enough memory for 100 sentences of up to 20 words (rank 5, float32): it takes about 411.4 kB, and "
        "3.8 GB more could not be had; draw fewer at a time, or load the model on a device with more memory."
    )
    with pytest.raises(NotEnoughMemoryError) as caught:
        trained.distribution()
    assert str(caught.value) == (
        "distribution: not enough memory for tables of 158 words (rank 5, float32): it takes about 16.1 kB, and 3.8 GB "
        "more could not be had; load the model on a device with more memory."
    )


@pytest.mark.parametrize("case", CASES)
def test_models_without_weights_have_their_sizes(case: str) -> None:
    name, settings = CASES[case]
    model = without_weights(name, settings)
    assert model.num_weights == create(name, **settings).num_weights
    assert {weight.device.type for weight in model.parameters()} == {"meta"}


GRAMMAR = {"nonterminals": 100, "preterminals": 200, "size": 64}
SMALL = {"nonterminals": 20, "preterminals": 40, "size": 64}
LEARNED: dict[str, tuple[str, dict[str, Any]]] = {
    "rank-pcfg": ("rank-pcfg", {**GRAMMAR, "rank": 50}),
    "rectified": ("rank-pcfg", {**GRAMMAR, "rank": 50, "networks": "rectified", "start": "embedding"}),
    "tn-pcfg": ("tn-pcfg", {**GRAMMAR, "rank": 50}),
    "simple-pcfg": ("simple-pcfg", GRAMMAR),
    "simple-cpcfg": ("simple-cpcfg", SMALL),
    "n-pcfg": ("n-pcfg", SMALL),
    "c-pcfg": ("c-pcfg", SMALL),
    "l-pcfg": ("l-pcfg", {**SMALL, "rank": 10}),
    "rank-hmm": ("rank-hmm", {"states": 800, "rank": 100, "size": 64}),
    "lhmm": ("lhmm", {"states": 800, "rank": 100, "size": 64}),
    "hmm": ("hmm", {"states": 300, "size": 64}),
    "vl-hmm": ("vl-hmm", {"states": 800, "blocks": 8, "size": 64}),
}


@pytest.mark.parametrize("gradients", [False, True])
@pytest.mark.parametrize("case", LEARNED)
def test_what_a_batch_takes(case: str, gradients: bool) -> None:
    """Within a factor of two. What is measured has no weights, and no optimiser that remembers something of them."""
    name, settings = LEARNED[case]
    torch.manual_seed(0)
    model = create(name, vocabulary=1000, **settings)
    words, lengths = torch.randint(1000, (16, 30)), (30,) * 16
    with torch.set_grad_enabled(gradients), PeakBytes() as memory:
        found = model.loss(words, lengths).mean()
        if gradients:
            found.backward()
    weights = bytes_of_weights(model, learns=False)
    said = (bytes_needed(model, Work(lengths, gradients)) or 0) - (3 if gradients else 1) * weights
    assert 0.5 < said / memory.peak < 2


def test_every_model_says_which_networks_it_has() -> None:
    """All that a table of embeddings goes through; of a `direct` one there are none."""
    assert {name for name, _ in LEARNED.values()} == set(MODELS) - {"direct"}
    for name, settings in LEARNED.values():
        model = create(name, vocabulary=50, **settings)
        told = {id(part) for network, _ in model.through_networks() for part in network.modules()}
        networks = [part for part in model.modules() if isinstance(part, ResidualNetwork | JoinedNetwork)]
        of_one_row = [part.network for part in model.modules() if isinstance(part, Root)]
        assert {id(network) for network in networks} - {id(network) for network in of_one_row} <= told


DRAWN: list[dict[str, Any]] = [
    {"of": "hmm", "states": 40},
    {"of": "lhmm", "states": 40, "rank": 8},
    {"of": "rank-hmm", "states": 40, "rank": 8},
    {"of": "rank-pcfg", "nonterminals": 20, "preterminals": 40, "rank": 16},
    {"of": "simple-pcfg", "nonterminals": 20, "preterminals": 40},
]


@pytest.mark.parametrize("num", [1, 400])
@pytest.mark.parametrize("settings", DRAWN, ids=lambda settings: settings["of"])
def test_what_drawing_takes(settings: dict[str, Any], num: int) -> None:
    """Within a factor of two, as all that memory is said to be."""
    model = create("direct", vocabulary=5000, **settings)
    weights = model.num_weights * 4
    with torch.no_grad(), PeakBytes() as made:
        distribution: Any = model()
        table_peak = made.peak
        distribution.sample(num, 10, torch.Generator().manual_seed(0))
    assert 0.5 < (bytes_of_tables(model) or 0) / (table_peak + weights) < 2
    assert 0.5 < (bytes_of_samples(model, num, 10) or 0) / (made.peak + weights) < 2


# Evaluation.


def lacks(model: Model, monkeypatch: pytest.MonkeyPatch, kernels: bool, parse: bool = True) -> str:
    """What is said where evaluation lacks memory."""
    monkeypatch.setattr(type(model), "poses_kernels", lambda *_: kernels)
    monkeypatch.setattr(type(model), "pose" if parse else "log_prob", lacking)
    with pytest.raises(NotEnoughMemoryError) as caught:
        Evaluator(data()["valid"], "tree", Processes(), max_tokens=8, parse=parse)(model)
    return str(caught.value)


def test_evaluation_is_told_with_what_it_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parses take the outside pass too, and kernels wider charts."""
    model = create("rank-pcfg", vocabulary=28, nonterminals=4, preterminals=6, rank=100, size=8)
    found = [lacks(model, monkeypatch, kernels, parse) for parse in (False, True) for kernels in (False, True)]
    assert found == [
        f"train: evaluation: not enough memory for a sentence of 6 words (rank 100, float32): it takes about {size}, "
        "and 3.8 GB more could not be had; lower evaluation.max_tokens, evaluation.max_length or model.rank."
        for size in ("133.6 kB", "144.4 kB", "144.4 kB", "176.8 kB")
    ]


@pytest.mark.parametrize(("kernels", "of_span"), [(False, 3), (True, 6)])
def test_parses_take_both_passes_and_no_gradients_of_weights(kernels: bool, of_span: int) -> None:
    model = create("rank-pcfg", vocabulary=28, nonterminals=4, preterminals=6, rank=100, size=8)
    lengths, spans = (500,), 500 * 501 // 2
    scored, parsed, learned = (
        Work(lengths, *rest) for rest in ((False, kernels), (False, kernels, True), (True, kernels))
    )
    assert chart_bytes(model, parsed) == chart_bytes(model, learned) == pytest.approx(of_span * 400 * spans, rel=0.01)
    charts = chart_bytes(model, parsed) - chart_bytes(model, scored)
    assert (bytes_needed(model, parsed) or 0) - (bytes_needed(model, scored) or 0) == charts
    assert (bytes_needed(model, learned) or 0) > (bytes_needed(model, parsed) or 0) + 3 * 4 * model.num_weights


def test_which_models_score_and_parse_by_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Low-rank grammars do both, as their distributions do; models that have kernels of their own score by them."""
    for module in ("rankspace.models.contract", "rankspace.models.fast_model"):
        monkeypatch.setattr(f"{module}.runs_kernels", lambda *_: True)
    models, gpu = [create(name, **settings) for name, settings in CASES.values()], torch.device("cuda")
    low_rank = {RankSpacePCFG, SimplePCFG}
    assert {distribution_of(model) for model in models if model.poses_kernels(gpu)} == low_rank
    for model in models:
        assert model.poses_kernels(gpu) == (distribution_of(model) in low_rank and not model.BOUND)
        assert model.by_kernels(gpu) == (model.poses_kernels(gpu) or isinstance(model, KernelModel))
