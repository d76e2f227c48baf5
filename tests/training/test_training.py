"""The loop: it learns, counts, stops and keeps what it should; steps are held against simpler ways to make them."""

import io
import itertools
import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import rankspace
from rankspace.data.batches import Batches
from rankspace.data.prepared import PreparedData
from rankspace.errors import FormatError, NotEnoughMemoryError, RankspaceError
from rankspace.evaluation import Perplexity
from rankspace.inference import links
from rankspace.inference.links import Precision
from rankspace.inference.torch_precision import HAS_SETTINGS
from rankspace.models import Model, create
from rankspace.training import Config, Outcome, RunDirectory, synthetic_data, train
from rankspace.training.averaging import Average
from rankspace.training.epochs import Epochs, Share
from rankspace.training.evaluator import Evaluated, Evaluator
from rankspace.training.keeping import Keeper, draw_curves
from rankspace.training.loop import Trainer
from rankspace.training.machine import decided_precision, enough_memory
from rankspace.training.optimisers import Schedule
from rankspace.training.processes import Processes
from rankspace.training.progress import Lines, Quiet
from rankspace.training.runs import build_model
from rankspace.training.standing import Progress
from rankspace.training.step import GradientStep, Task, nothing
from rankspace.training.watch import NumbersError, Place, Sums, Watch
from short_memory import lacking
from training.tiny import CHAIN, DIRECT, TREE, config, data


def trained(path: Path, chosen: Config, **options: Any) -> Outcome:
    return train(chosen, path, device="cpu", data=data(), **options)


def built(chosen: Config) -> Model:
    return build_model(chosen, data().vocabulary, data()["train"])


def weights(path: Path, name: str = "last") -> dict[str, torch.Tensor]:
    return dict(RunDirectory.open(path).read(name).weights)


def evaluations(path: Path) -> list[dict[str, Any]]:
    return [record for record in RunDirectory.open(path).metrics() if record["split"] == "valid"]


@pytest.mark.parametrize("model", [TREE, CHAIN, DIRECT])
def test_it_learns(tmp_path: Path, model: dict[str, Any]) -> None:
    results = trained(tmp_path / "run", config(model, run__epochs=4, run__log_every=50)).results
    found = [record["perplexity"] for record in evaluations(tmp_path / "run")]
    losses = [record["loss"] for record in RunDirectory.open(tmp_path / "run").metrics() if record["split"] == "train"]
    assert len(found) == len(losses) == 4
    assert losses == sorted(losses, reverse=True)  # each of the same sentences
    assert losses[-1] < 0.96 * losses[0]
    assert float(results["best"]["perplexity"]) == min(map(float, found))
    assert results["test"]["num_sentences"] == len(data()["test"]) - results["test"]["num_skipped"]
    assert (results["finished"], results["stopped"], results["epochs"]) == (True, "", 4)
    assert (results["best"].get("f1") is None) == (model is not TREE)
    card = json.loads((tmp_path / "run" / "card.json").read_text())
    assert card["results"] == results
    assert card["data"]["preprocessing"]["eos"] is True
    assert card["environment"]["torch"] == torch.__version__


def test_curves_are_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rankspace.training.keeping.draw_curves", draw_curves)
    trained(tmp_path / "run", config(run__epochs=1))
    assert (tmp_path / "run" / "curves.png").read_bytes().startswith(b"\x89PNG")


def test_what_is_loaded_is_what_was_evaluated(tmp_path: Path) -> None:
    for model in (TREE, CHAIN):
        path = tmp_path / model["model.name"]
        results = trained(path, config(model, optimiser__average=0.9)).results
        model_of_run = rankspace.load(path).model
        evaluator = Evaluator(data()["valid"], model_of_run.KIND, Processes())
        assert evaluator(model_of_run).perplexity.perplexity == results["best"]["perplexity"]


def test_the_same_seed_gives_the_same_weights(tmp_path: Path) -> None:
    for name, seed in (("one", 1), ("two", 1), ("three", 2)):
        trained(tmp_path / name, config(CHAIN, run__seed=seed, run__epochs=1))
    one, two, three = (weights(tmp_path / name) for name in ("one", "two", "three"))
    assert all(torch.equal(one[name], two[name]) for name in one)
    assert not torch.equal(one["ranks"], three["ranks"])


def test_sentences_that_were_done_again_are_counted() -> None:
    trainer = Trainer(config(), built(config()), data(), Processes(), Keeper(None), Quiet())
    seen = []
    for number in (0, 3, 0):
        trainer.step.watch.num_again = number
        trainer._log(0.01)
        seen.append(trainer.record.get("num_again"))
    assert seen == [None, 3, None]


def test_records(tmp_path: Path) -> None:
    trained(tmp_path / "run", config(run__epochs=1, run__log_every=2))
    record = next(record for record in RunDirectory.open(tmp_path / "run").metrics() if record["split"] == "train")
    assert (record["step"], record["epoch"], record["num_impossible"]) == (2, 1, 0)
    assert record["learning_rate"] == 0.01
    assert record["gradient_norm"] > 0
    assert record["perplexity"] < math.exp(record["loss"])
    assert record["words_per_second"] > 0
    assert record["memory_mb"] > 10


def logged(path: Path, **changes: Any) -> list[dict[str, Any]]:
    """The records of training, without times, of a run whose learning rate changes at each step and evaluation."""
    slower = {"schedule__name": "cosine", "schedule__warm_up": 2, "evaluation__every_steps": 5, "run__max_steps": 11}
    trained(path, config(CHAIN, run__epochs=3, **slower, **changes))
    records = [record for record in RunDirectory.open(path).metrics() if record["split"] == "train"]
    return [{key: record[key] for key in record if key not in ("words_per_second", "memory_mb")} for record in records]


def test_an_epoch_ends_with_a_record(tmp_path: Path) -> None:
    every, seldom = logged(tmp_path / "every", run__log_every=1), logged(tmp_path / "seldom", run__log_every=3)
    assert [record["step"] for record in seldom] == [3, 5, 6, 9, 10]  # five steps an epoch
    same = {record["step"]: record for record in every}
    for record in seldom:
        for key in ("epoch", "learning_rate"):
            assert record[key] == same[record["step"]][key]
    assert seldom[2] == same[6]  # the sums began again at the end of the epoch
    splits = [(record["step"], record["split"]) for record in RunDirectory.open(tmp_path / "seldom").metrics()]
    assert splits[1:3] == [(5, "train"), (5, "valid")]


def test_the_last_record_is_that_of_the_test_split(tmp_path: Path) -> None:
    for num_epochs in (1, 1, 2):  # the second time there is nothing to do
        results = trained(tmp_path / "run", config(CHAIN, run__epochs=num_epochs), resume=True).results
        *others, last = RunDirectory.open(tmp_path / "run").metrics()
        assert last == {**results["test"], "final": True}
        assert not any("final" in record for record in others)


def test_the_test_result_has_the_place_of_the_checkpoint_that_it_is_of(tmp_path: Path) -> None:
    """Which is not where training ended."""
    results = trained(tmp_path / "run", config(CHAIN, run__epochs=4, optimiser__learning_rate=3.0)).results
    best, last, test = results["best"], results["last"], results["test"]
    assert best["epoch"] < last["epoch"]
    assert (test["step"], test["epoch"]) == (best["step"], best["epoch"])


def test_the_loss_of_a_record_is_the_mean_over_sentences(tmp_path: Path) -> None:
    chosen = config(run__epochs=1, run__log_every=1, run__max_steps=1, optimiser__learning_rate=1e-9)
    trained(tmp_path / "run", chosen)
    trainer_batches = Epochs(data()["train"], chosen, "tree", Processes()).batches(0)
    batch = trainer_batches.batch(trainer_batches.plan()[0])
    with torch.no_grad():
        losses = built(chosen).loss(batch.words, batch.lengths.tolist())
    record = RunDirectory.open(tmp_path / "run").metrics()[0]
    assert record["loss"] == pytest.approx(losses.double().mean().item(), rel=1e-6)
    assert record["perplexity"] == pytest.approx(
        math.exp(losses.double().sum().item() / (batch.num_tokens + len(losses))), rel=1e-6
    )


# Steps.


def steps(chosen: Config, processes: Processes | None = None) -> list[list[Share]]:
    epochs = Epochs(data()["train"], chosen, built(chosen).KIND, processes or Processes())
    return list(epochs.steps(epochs.batches(0)))


def gradient(chosen: Config, shares: Sequence[Share]) -> dict[str, torch.Tensor]:
    model = built(chosen).eval()  # no dropout
    step = GradientStep(model, chosen.optimiser, Processes())
    step.watch.begin(Place(1, 0, 1))
    step(shares, 0.0)
    return {name: weight.grad.clone() for name, weight in model.named_parameters() if weight.grad is not None}


def assert_close(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> None:
    for name, value in one.items():  # sums in another order, in float32
        torch.testing.assert_close(value, other[name], rtol=1e-4, atol=1e-6, msg=name)


@pytest.mark.parametrize("model", [TREE, CHAIN])
@pytest.mark.parametrize("normalise", ["sentence", "token"])
def test_the_gradient_is_that_of_the_mean_loss(model: dict[str, Any], normalise: str) -> None:
    chosen = config(model, objective__normalise=normalise)
    share = steps(chosen)[0][0]
    own = built(chosen).eval()
    losses = own.loss(share.words, share.lengths)
    size = len(share.lengths) if normalise == "sentence" else sum(share.lengths)
    (losses.sum() / size).backward()
    assert_close(gradient(chosen, [share]), {name: weight.grad for name, weight in own.named_parameters()})


@pytest.mark.parametrize("normalise", ["sentence", "token"])
def test_accumulated_gradients_are_those_of_one_batch(normalise: str) -> None:
    parts = config(batches__max_sentences=4, batches__accumulate=3, objective__normalise=normalise)
    shares = steps(parts)[0]
    assert len(shares) == 3
    model = built(parts)
    total = sum(model.loss(share.words, share.lengths).sum() for share in shares)
    size = sum(len(share.lengths) if normalise == "sentence" else sum(share.lengths) for share in shares)
    (total / size).backward()  # type: ignore[union-attr]
    assert_close(gradient(parts, shares), {name: weight.grad for name, weight in model.named_parameters()})


@pytest.mark.parametrize("world", [2, 3, 11])
@pytest.mark.parametrize("normalise", ["sentence", "token"])
def test_shares_of_processes_make_the_batch(world: int, normalise: str) -> None:
    chosen = config(CHAIN, objective__normalise=normalise)
    whole = gradient(chosen, steps(chosen)[0])
    each = [gradient(chosen, steps(chosen, Processes(rank, world))[0]) for rank in range(world)]
    mean = {name: sum(part[name] for part in each) / world for name in whole}  # as DistributedDataParallel does
    assert_close(whole, mean)  # type: ignore[arg-type]


def test_gradients_are_clipped() -> None:
    free, clipped = config(), config(optimiser__clip=0.01)
    share = steps(free)[0]
    norms = [
        torch.stack([value.norm() for value in gradient(chosen, share).values()]).norm().item()
        for chosen in (free, clipped)
    ]
    assert norms[0] > 0.1
    assert norms[1] == pytest.approx(0.01, rel=1e-4)


def test_averages_follow_their_formula() -> None:
    model = built(config())
    average, expected = Average(model, 0.15), {name: w.detach().clone() for name, w in model.named_parameters()}
    for decay in (0.1, 0.15):  # (1 + step) / (10 + step) is lower only at first
        with torch.no_grad():
            for name, weight in model.named_parameters():
                weight += 1
                expected[name] = decay * expected[name] + (1 - decay) * weight
        average.update()
    assert_close(average.weights, expected)


def test_averaged_weights_are_evaluated_and_saved(tmp_path: Path) -> None:
    trained(tmp_path / "run", config(optimiser__average=0.99, run__epochs=1))
    checkpoint = RunDirectory.open(tmp_path / "run").read("last", resuming=True)
    raw, averaged = checkpoint.resuming["raw.ranks"], checkpoint.weights["ranks"]
    begun = built(config()).state_dict()["ranks"]
    assert not torch.equal(raw, averaged)
    assert (averaged - begun).norm() < (raw - begun).norm()
    assert torch.equal(weights(tmp_path / "run", "best")["ranks"], averaged)


# Schedules.


def rates(**changes: Any) -> list[float]:
    schedule = Schedule(config(**changes).schedule, 1.0)
    return [schedule.learning_rate(step, step / 4) for step in range(5)]


def test_learning_rates() -> None:
    assert rates() == [1.0] * 5
    assert rates(schedule__warm_up=3) == [0.25, 0.5, 0.75, 1.0, 1.0]
    assert rates(schedule__name="cosine") == pytest.approx([1, 0.5 + 0.5**1.5, 0.5, 0.5 - 0.5**1.5, 0])
    assert rates(schedule__name="cosine", schedule__lowest=0.2)[-1] == 0.2


@pytest.mark.parametrize(
    ("changes", "bound"),
    [
        ({"run__max_steps": 2}, "0.0015"),
        ({"run__epochs": 1}, "0.0036"),
        ({"batches__accumulate": 2, "run__epochs": 3}, "0.0065"),
        ({"run__epochs": 3}, None),
    ],
)
def test_a_warm_up_that_is_longer_than_the_run_is_told_once(
    tmp_path: Path, changes: dict[str, Any], bound: str | None
) -> None:
    lines = io.StringIO()
    for _ in range(2):
        given = config(CHAIN, schedule__warm_up=14, **changes)
        num_steps = trained(tmp_path / "run", given, resume=True, display=Lines(lines)).results["steps"]
    text = f"schedule.warm_up is 14 steps and the run has {num_steps}: the learning rate stays below {bound} of 0.01"
    told = [line for line in lines.getvalue().splitlines() if "warm_up" in line]
    assert told == ([f"{text}; give fewer"] if bound else [])


def test_plateaus() -> None:
    schedule = Schedule(config(schedule__name="plateau", schedule__patience=2).schedule, 1.0)
    found = []
    for improved in (True, False, False, True, False, False, False, False):
        schedule.evaluated(improved)
        found.append(schedule.learning_rate(9, 0.0))
    assert found == [1.0, 1.0, 0.5, 0.5, 0.5, 0.25, 0.25, 0.125]


def test_the_curriculum_lengthens_sentences() -> None:
    chosen = config(curriculum__start=4, curriculum__growth=2, batches__max_length=7)
    epochs = Epochs(data()["train"], chosen, "tree", Processes())
    longest = [max(int(data()["train"].lengths[part].max()) for part in epochs.batches(e).plan()) for e in range(4)]
    assert longest == [4, 6, 7, 7]


def test_training_stops_early(tmp_path: Path) -> None:
    chosen = config(run__epochs=50, evaluation__patience=2, optimiser__learning_rate=0.2)
    results = trained(tmp_path / "run", chosen).results
    assert results["epochs"] < 50
    assert results["stopped"] == "no better evaluation in 2"
    assert results["best"]["step"] < results["last"]["step"]
    again = trained(tmp_path / "run", chosen, resume=True).results
    assert again["steps"] == results["steps"]


def test_evaluation_every_some_steps(tmp_path: Path) -> None:
    trained(tmp_path / "run", config(evaluation__every_steps=2, run__max_steps=5))
    assert [record["step"] for record in evaluations(tmp_path / "run")] == [2, 4, 5]


def test_the_best_by_f1(tmp_path: Path) -> None:
    results = trained(tmp_path / "run", config(run__epochs=3, evaluation__measure="s_f1")).results
    assert results["best"]["f1"] == max(record["f1"] for record in evaluations(tmp_path / "run"))


RESTLESS = {"evaluation__measure": "s_f1", "evaluation__every_steps": 2, "optimiser__learning_rate": 0.3}


def of_split(path: Path, split: str) -> dict[int, dict[str, Any]]:
    """Evaluations while training, by step."""
    metrics = RunDirectory.open(path).metrics()
    return {record["step"]: record for record in metrics if record["split"] == split and not record.get("final")}


def test_held_out_text_chooses_a_checkpoint_of_its_own(tmp_path: Path) -> None:
    """Trees choose step 2, say, and text another; the test split of these small data stands for text."""
    chosen = config(run__epochs=3, data__held_out="test", **RESTLESS)
    results = trained(tmp_path / "run", chosen).results
    text = of_split(tmp_path / "run", "test")
    assert list(text) == list(of_split(tmp_path / "run", "valid"))
    assert len({record["perplexity"] for record in text.values()}) > 1
    best = min(text.values(), key=lambda record: record["perplexity"])
    assert results["held-out"] == best
    assert results["held-out"]["step"] != results["best"]["step"]
    assert "f1" not in best
    found = rankspace.load(tmp_path / "run", "held-out")
    assert found.step == best["step"]
    evaluator = Evaluator(data()["test"], "tree", Processes(), parse=False)
    assert evaluator(found.model).perplexity.perplexity == best["perplexity"]


def test_held_out_text_changes_nothing_else(tmp_path: Path) -> None:
    for split in ("", "valid", "test"):
        trained(tmp_path / f"run-{split}", config(run__epochs=2, data__held_out=split, **RESTLESS))
    for split in ("valid", "test"):
        assert of_split(tmp_path / f"run-{split}", "valid").keys() == of_split(tmp_path / "run-", "valid").keys()
        for name in ("best", "last"):
            pairs = zip(
                weights(tmp_path / "run-", name).values(),
                weights(tmp_path / f"run-{split}", name).values(),
                strict=True,
            )
            assert all(torch.equal(one, other) for one, other in pairs)
    by_valid = RunDirectory.open(tmp_path / "run-valid")
    assert len(evaluations(by_valid.path)) == len(evaluations(tmp_path / "run-"))  # one evaluation for both
    assert by_valid.card["results"]["held-out"]["perplexity"] == min(
        record["perplexity"] for record in evaluations(by_valid.path)
    )
    with pytest.raises(FormatError, match="has no checkpoint that held-out text chose"):
        rankspace.load(tmp_path / "run-", "held-out")


@pytest.mark.parametrize("key", ["data.train", "data.valid", "data.held_out", "data.test"])
def test_a_split_that_is_named_must_be_there(tmp_path: Path, key: str) -> None:
    with pytest.raises(RankspaceError) as raised:
        trained(tmp_path / "run", config().changed({key: "dev"}))
    assert str(raised.value) == "prepared data: there is no split 'dev'; there are train, valid, test."
    assert not (tmp_path / "run").exists()


def test_what_held_out_text_chose_is_remembered(tmp_path: Path) -> None:
    """A run that goes on compares with what was chosen before it stopped."""
    chosen = config(run__epochs=3, data__held_out="test", **RESTLESS)
    whole = trained(tmp_path / "whole", chosen).results
    for steps in (3, 7, 0):
        parts = trained(tmp_path / "parts", chosen.changed({"run.max_steps": steps}), resume=True).results
    seen = of_split(tmp_path / "parts", "test").values()
    assert parts["held-out"]["perplexity"] == min(record["perplexity"] for record in seen)
    assert parts["held-out"]["perplexity"] <= whole["held-out"]["perplexity"]
    assert RunDirectory.open(tmp_path / "parts").read("held-out").step == parts["held-out"]["step"]


@pytest.mark.parametrize("split", ["valid", "test"])
@pytest.mark.parametrize("frees", [True, False])
def test_an_evaluation_that_lacks_memory_has_that_of_the_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, split: str, frees: bool
) -> None:
    """It is made again once they gave it back, of either split, and training goes on as if nothing had been."""
    chosen = config(run__epochs=2, data__held_out="test")
    whole = trained(tmp_path / "whole", chosen).results
    scored, lacks, freed = Evaluator._scored, [True], list[bool]()

    def lacking_once(evaluator: Evaluator, model: Model, batch: Any) -> Any:
        if lacks and evaluator.corpus is data()[split]:
            lacks.clear()
            lacking()
        return scored(evaluator, model, batch)

    def free(_: GradientStep) -> bool:
        freed.append(frees)
        return frees

    monkeypatch.setattr(Evaluator, "_scored", lacking_once)
    monkeypatch.setattr(GradientStep, "frees_memory", free)
    if not frees:
        with pytest.raises(NotEnoughMemoryError, match="train: evaluation: not enough memory"):
            trained(tmp_path / "parts", chosen)
        return
    parts = trained(tmp_path / "parts", chosen).results
    assert freed == [True]
    for name in ("best", "held-out", "last"):
        assert parts[name]["perplexity"] == whole[name]["perplexity"]
    assert all(map(torch.equal, weights(tmp_path / "parts").values(), weights(tmp_path / "whole").values()))


def measured(num_impossible: int, of_possible: float) -> Evaluated:
    perplexity = math.inf if num_impossible else of_possible
    found = Perplexity(perplexity, of_possible, 9, 9, num_impossible, 0, -1.0)
    return Evaluated(found, None, 0, 0.0)


def test_fewer_impossible_sentences_are_better_than_any_perplexity() -> None:
    order = [measured(0, 5.0), measured(0, 9.0), measured(1, 2.0), measured(3, 1.0)]
    measures = [found.measure("perplexity") for found in order]
    assert measures == sorted(measures, key=lambda measure: measure or [])
    assert measured(9, math.nan).measure("perplexity") is None
    assert measured(0, 5.0).measure("s_f1") is None


def test_only_what_is_better_counts_as_better() -> None:
    progress, kept = Progress(), []
    for progress.step, measure in enumerate((None, None, [1.0, 7.0], [1.0, 7.0], [2.0, 3.0], [0.0, 9.0], None), 1):
        assert progress.is_best(measure) == progress.improved(measure)
        kept.append((progress.best_step, progress.num_bad))
    assert kept == [(1, 0), (1, 1), (3, 0), (3, 1), (3, 2), (6, 0), (6, 1)]


def test_s_f1_as_the_measure_needs_trees(tmp_path: Path) -> None:
    whole = data()
    bare = {split: replace(corpus, gold=None) for split, corpus in whole.splits.items()}
    for model, found, what in (
        (CHAIN, whole, "rank-hmm is a chain"),
        (TREE, PreparedData(whole.card, whole.vocabulary, bare), "the split 'valid' has no gold trees"),
    ):
        with pytest.raises(RankspaceError) as raised:
            train(config(model, evaluation__measure="s_f1"), tmp_path / "run", device="cpu", data=found)
        assert str(raised.value) == f"train: evaluation.measure is 's_f1' but {what}; measure by perplexity."
        assert not (tmp_path / "run").exists()


def test_without_a_validation_split(tmp_path: Path) -> None:
    whole = data()
    only = PreparedData(whole.card, whole.vocabulary, {"train": whole["train"]})
    results = train(config(run__epochs=1), tmp_path / "run", device="cpu", data=only).results
    assert "best" not in results
    assert rankspace.load(tmp_path / "run").step == results["steps"]


def test_preparing_the_next_step_takes_nothing() -> None:
    chosen = config(batches__accumulate=2)
    trainer = Trainer(chosen, built(chosen), data(), Processes(), Keeper(None), Quiet())
    plain = list(trainer.epochs.steps(trainer.epochs.batches(0)))
    batches = trainer.epochs.batches(0)
    steps, found = trainer.epochs.steps(batches), []
    for shares in steps:
        found.append(shares)
        position = batches.position
        steps.prepare()
        steps.prepare()
        assert batches.position == position
    assert batches.position == len(batches)
    assert len(found) == len(plain)
    for one, other in zip(found, plain, strict=True):
        assert [share.lengths for share in one] == [share.lengths for share in other]
        assert all(torch.equal(own.words, its.words) for own, its in zip(one, other, strict=True))


def test_the_weight_of_the_divergence_rises() -> None:
    chosen = config(
        {"model.name": "c-pcfg", "model.nonterminals": 2, "model.preterminals": 3, "model.size": 4}
        | {"model.latent": 2},
        objective__kl_warm_up=4,
    )
    trainer = Trainer(chosen, built(chosen), data(), Processes(), Keeper(None), Quiet())
    seen = []
    model: Any = trainer.model
    for shares, _ in zip(trainer.epochs.steps(trainer.batches), range(5), strict=False):
        trainer._train_step(shares, nothing)
        seen.append(model.kl_weight)
    assert seen == [0.25, 0.5, 0.75, 1.0, 1.0]


# Precision.


@pytest.mark.parametrize(
    ("asked", "precision"), [("auto", "highest"), ("highest", "highest"), ("high", "high"), ("medium", "medium")]
)
def test_the_precision_reaches_model_and_torch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: str, precision: str
) -> None:
    """Of steps and of evaluations between them; the best checkpoint is tested in the highest in the end."""
    seen = []
    step_whole, evaluation_whole = GradientStep.__call__, Evaluator.__call__

    def spying(step: GradientStep, shares: Sequence[Share], learning_rate: float, meanwhile: Task) -> None:
        seen.append(("step", step.model.options["precision"], torch_rounds()))
        step_whole(step, shares, learning_rate, meanwhile)

    def spying_too(evaluator: Evaluator, model: Model) -> Evaluated:
        split = next(name for name in ("valid", "test") if evaluator.corpus is data()[name])
        seen.append((split, model.options["precision"], torch_rounds()))
        return evaluation_whole(evaluator, model)

    monkeypatch.setattr(GradientStep, "__call__", spying)
    monkeypatch.setattr(Evaluator, "__call__", spying_too)
    trained(tmp_path / "run", config(run__max_steps=1, run__precision=asked))
    rounds = precision != "highest"
    assert seen == [("step", precision, rounds), ("valid", precision, rounds), ("test", "highest", False)]
    assert not torch_rounds()
    assert RunDirectory.open(tmp_path / "run").card["precision"] == [{"step": 0, "precision": precision}]
    assert rankspace.load(tmp_path / "run").model.options == {}


def torch_rounds() -> bool:
    """Whether products on a GPU may round their operands. Before 2.9 torch has one setting, for all devices."""
    backends: Any = torch.backends
    if HAS_SETTINGS:
        return bool(backends.cuda.matmul.fp32_precision == "tf32")
    return torch.get_float32_matmul_precision() != "highest"


def test_the_test_result_is_that_of_the_loaded_model_whatever_the_run_had(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With products that "medium" rounds, as a GPU does, also where torch has none that do."""
    exact = links.product

    def rounded(a: torch.Tensor, b: torch.Tensor, precision: Precision, out: torch.Tensor | None = None) -> Any:
        return exact(a.bfloat16().float(), b, precision) if precision == "medium" else exact(a, b, precision, out)

    monkeypatch.setattr(links, "product", rounded)
    results = trained(tmp_path / "run", config(run__max_steps=3, run__precision="medium")).results
    model = rankspace.load(tmp_path / "run").model
    for split, is_same in (("test", True), ("valid", False)):
        found = Evaluator(data()[split], model.KIND, Processes())(model).perplexity.perplexity
        assert (found == results["best" if split == "valid" else split]["perplexity"]) == is_same


@pytest.mark.parametrize(
    ("device", "has_kernels", "expected"),
    [("cuda", True, "medium"), ("cuda", False, "highest"), ("cpu", True, "highest"), ("cpu", False, "highest")],
)
def test_what_auto_decides(monkeypatch: pytest.MonkeyPatch, device: str, has_kernels: bool, expected: str) -> None:
    model = built(config())
    monkeypatch.setattr(type(model), "can_be_captured", lambda *_: has_kernels)
    assert config().run.precision == "auto"
    assert decided_precision("auto", model, torch.device(device)) == expected
    assert decided_precision("high", model, torch.device(device)) == "high"
    monkeypatch.setattr(type(model), "PRECISION", "high")
    assert decided_precision("auto", model, torch.device(device)) == expected.replace("medium", "high")


# EM.


@pytest.mark.parametrize("of", ["hmm", "rank-hmm", "pcfg", "rank-pcfg"])
def test_full_em_never_lowers_the_likelihood(tmp_path: Path, of: str) -> None:
    sizes = {"model.nonterminals": 3, "model.preterminals": 4, "model.states": 4, "model.rank": 3}
    chosen = config({**DIRECT, **sizes, "model.of": of}, run__epochs=5, run__log_every=1, batches__max_sentences=100)
    trained(tmp_path / "run", chosen)
    losses = [record["loss"] for record in RunDirectory.open(tmp_path / "run").metrics() if record["split"] == "train"]
    assert len(losses) == 5
    assert all(later < earlier for earlier, later in itertools.pairwise(losses))


def test_em_in_batches_is_em_of_all(tmp_path: Path) -> None:
    for name, size in (("whole", 100), ("parts", 8)):
        trained(tmp_path / name, config(DIRECT, run__epochs=2, batches__max_sentences=size))
    whole, parts = (weights(tmp_path / name) for name in ("whole", "parts"))
    for name in whole:
        torch.testing.assert_close(whole[name].exp(), parts[name].exp(), rtol=1e-4, atol=1e-6)


def test_stepwise_em_learns_and_leaves_nothing_impossible(tmp_path: Path) -> None:
    trained(tmp_path / "run", config(DIRECT, em__batch="mini", run__epochs=3))
    losses = [record["loss"] for record in RunDirectory.open(tmp_path / "run").metrics() if record["split"] == "train"]
    assert losses[-1] < 0.9 * losses[0]
    assert all(record["num_impossible"] == 0 for record in evaluations(tmp_path / "run"))
    metrics = RunDirectory.open(tmp_path / "run").metrics()
    assert not any({"gradient_norm", "learning_rate"} & record.keys() for record in metrics)


def test_counts_that_are_not_finite() -> None:
    watch = Watch(torch.device("cpu"), "a count")
    watch.begin(Place(7, 1, 3))
    watch.finite(torch.tensor(math.inf))
    with pytest.raises(NumbersError) as raised:
        watch.check()
    assert str(raised.value) == "train: step 7 (epoch 2, batch 3): a count is not finite"


# What must not occur.


def watched(losses: list[float], norm: float = 1.0) -> Watch:
    watch = Watch(torch.device("cpu"))
    watch.begin(Place(7, 1, 3))
    watch.losses(torch.tensor(losses), torch.ones(len(losses)), torch.arange(2.0, len(losses) + 2))
    watch.step(torch.tensor(norm))
    watch.begin(Place(8, 1, 4))
    watch.losses(torch.tensor([1.0]), torch.ones(1), torch.ones(1))
    return watch


@pytest.mark.parametrize(
    ("losses", "norm", "message"),
    [
        ([1.0, math.nan], 1.0, "log p of a sentence is nan"),
        ([1.0, -0.25], 1.0, "log p of a sentence is 0.25, above 0"),
        ([1.0], math.inf, "the gradient is not finite"),
    ],
)
def test_the_first_bad_step_is_named(losses: list[float], norm: float, message: str) -> None:
    with pytest.raises(NumbersError) as raised:
        watched(losses, norm).check()
    assert str(raised.value) == f"train: step 7 (epoch 2, batch 3): {message}"


def test_impossible_sentences_are_counted_and_left_out() -> None:
    watch = watched([2.0, math.inf, 3.0])
    watch.check()
    assert watch.drain() == Sums(6.0, num_sentences=3, num_predictions=2 + 4 + 1, num_impossible=1, norm=1, num_steps=1)
    assert watch.drain() == Sums()


def test_logged_figures_are_those_of_possible_sentences(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One batch of all sentences, at weights that do not move, is what evaluation finds."""
    chosen = config(
        {**DIRECT, "optimiser.name": "adam"}, run__epochs=1, run__log_every=1, batches__max_sentences=40
    ).changed({"optimiser.learning_rate": 1e-9})
    model: Any = built(chosen)
    with torch.no_grad():
        model.logits["log_emission"][:, 2] = -torch.inf
    monkeypatch.setattr("rankspace.training.runs.build_model", lambda *_: model)
    expected = Evaluator(data()["train"], "chain", Processes())(model).perplexity
    trained(tmp_path / "run", chosen)
    record = RunDirectory.open(tmp_path / "run").metrics()[0]
    assert record["num_impossible"] == expected.num_impossible > 0
    assert record["perplexity"] == pytest.approx(expected.of_possible, rel=1e-5)
    num_possible = expected.num_sentences - expected.num_impossible
    assert record["loss"] == pytest.approx(-expected.log_prob / num_possible, rel=1e-5)


def test_a_run_that_explodes_keeps_its_last_good_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = GradientStep.__call__
    path = tmp_path / "run"

    def exploding(step: GradientStep, shares: Sequence[Share], learning_rate: float, meanwhile: Task) -> None:
        if step.watch._recent[-1].step == 4:
            with torch.no_grad():
                step.model.get_parameter("ranks").fill_(math.nan)
        whole(step, shares, learning_rate, meanwhile)

    monkeypatch.setattr(GradientStep, "__call__", exploding)
    with pytest.raises(NumbersError) as raised:
        trained(path, config(run__checkpoint_steps=3))
    assert str(raised.value) == (
        f"train: step 4 (epoch 1, batch 4): log p of a sentence is nan; the checkpoint of step 3 is in "
        f"{path}/checkpoints/last. Try a lower optimiser.learning_rate, or run.precision highest."
    )
    assert rankspace.load(path).step == 3


# Data.


def test_chains_need_an_end_of_sentence(tmp_path: Path) -> None:
    whole = data()
    words = tuple(word for word in whole.vocabulary.words if word != "<eos>")
    vocabulary = type(whole.vocabulary)(words)
    with pytest.raises(RankspaceError) as raised:
        build_model(config(CHAIN), vocabulary, whole["train"])
    assert str(raised.value) == (
        "train: rank-hmm ends sentences with <eos>, which the vocabulary has not; prepare the data with --eos."
    )


def test_when_no_sentence_is_left(tmp_path: Path) -> None:
    with pytest.raises(RankspaceError) as raised:
        trained(tmp_path / "run", config(batches__min_length=90))
    assert str(raised.value) == (
        "train: no sentence of the split 'train' is left; look at batches.min_length and batches.max_length."
    )
    assert not (tmp_path / "run").exists()


def test_an_existing_folder(tmp_path: Path) -> None:
    with pytest.raises(FormatError) as raised:
        trained(tmp_path, config())
    assert str(raised.value) == f"{tmp_path}: exists already; choose another name."


def test_the_synthetic_data_are_the_same_each_time() -> None:
    one, two = synthetic_data(5), synthetic_data(5)
    assert one.vocabulary == two.vocabulary
    assert one["train"].tokens.tolist() == two["train"].tokens.tolist()
    assert [len(corpus) for corpus in one.splits.values()] == [5, 1, 1]
    assert isinstance(Batches(one["train"], max_sentences=2), Batches)


@pytest.mark.parametrize(
    ("error", "more"),
    [
        (RuntimeError("CUDA out of memory. Tried to allocate 3.50 GiB. GPU 0 has"), ", and 3.8 GB more"),
        (
            RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8000 bytes."),
            ", and 8.0 kB more",
        ),
        (MemoryError(), ""),
    ],
)
def test_a_lack_of_memory_is_told_with_the_batch(error: Exception, more: str) -> None:
    model = create("direct", vocabulary=20, of="rank-hmm", states=6, rank=5)
    with pytest.raises(NotEnoughMemoryError) as caught, enough_memory("step 7", model, [(16, 40), (2, 50)]):
        raise error
    more = more and f"{more} could not be had"
    assert caught.value.__cause__ is error
    assert str(caught.value) == (
        f"train: step 7: not enough memory for 16 sentences of up to 40 words (rank 5, float32): it takes about 70.5 "
        f"kB{more}; lower batches.max_sentences, batches.max_tokens, batches.max_length or model.rank."
    )


def test_other_errors_of_a_step_are_left_as_they_are() -> None:
    model = create("direct", vocabulary=2)
    with pytest.raises(RuntimeError, match="size mismatch"), enough_memory("step 1", model, [(1, 1)]):
        raise RuntimeError("size mismatch")
