"""Whole runs: from a configuration to a run directory, begun or resumed, once or for several seeds."""

import json
import math
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from rankspace.data.corpus import Corpus
from rankspace.data.prepared import PreparedData
from rankspace.data.vocabulary import Vocabulary
from rankspace.errors import RankspaceError, WritingError
from rankspace.files import held, whole_file
from rankspace.inference.links import Precision
from rankspace.models import Model, create, describe
from rankspace.training.beforehand import Plan, plan_of_seeds, resumed_config
from rankspace.training.config import Config, config_text, flat
from rankspace.training.data_source import check_splits, data_summary, load_data, source_name
from rankspace.training.evaluator import Evaluator
from rankspace.training.interruption import InterruptionError
from rankspace.training.keeping import Keeper
from rankspace.training.loop import Trainer
from rankspace.training.machine import (
    computing_in,
    decided_precision,
    enough_memory_for_weights,
    environment,
)
from rankspace.training.processes import Processes, is_first_process, join_processes
from rankspace.training.progress import Display, Quiet
from rankspace.training.random_state import seed_process
from rankspace.training.run_directory import RunDirectory
from rankspace.training.trackers import check_tracker, make_tracker
from rankspace.training.trained import end_of, load_weights

SUMMARY = "summary.json"
GO_ON = "go on with:"


class Outcome(NamedTuple):
    """A run that is done: its folder, and the results on its card (last, best, test, steps, seconds, stopped)."""

    directory: Path
    results: dict[str, Any]


class Statistic(NamedTuple):
    """A figure of several runs; `best` and `worst` depend on what the figure is. Runs where it is infinite are counted,
    and have no part in it; None where no run is left."""

    mean: float | None
    deviation: float | None
    best: float | None
    worst: float | None
    num: int
    num_infinite: int = 0

    @classmethod
    def of(cls, values: Sequence[float], is_better: Callable[[Iterable[float]], float]) -> "Statistic":
        finite = [value for value in values if math.isfinite(value)]
        if not finite:
            return cls(None, None, None, None, 0, len(values))
        worst = max if is_better is min else min
        deviation = statistics.stdev(finite) if len(finite) > 1 else 0.0
        spread = statistics.fmean(finite), deviation, is_better(finite), worst(finite)
        return cls(*spread, len(finite), len(values) - len(finite))


def train(
    config: Config,
    output: Path | str,
    *,
    resume: bool = False,
    device: str = "auto",
    display: Display | None = None,
    data: PreparedData | None = None,
    minutes: float = math.inf,
) -> Outcome:
    """Trains as configured and writes the run to a folder; `rankspace.load` reads it.

    With `resume`, goes on with the run that is there, or begins where there is none; of the configuration only
    `run.epochs` and what concerns logging may then differ. `data` are in place of those that the configuration names.
    Under torchrun all processes call it alike. With `minutes` it stops after the step in which so many are over, data
    and model included. Raises RankspaceError for a folder that exists, data that do not fit and numbers that must not
    occur; when everything is saved, InterruptionError after SIGINT or SIGTERM, and TimeUpError after `minutes`.
    """
    deadline = time.monotonic() + 60 * minutes
    path, processes = Path(output), join_processes(device)
    shown = display if display is not None and processes.is_first else Quiet()
    goes_on = bool(processes.any(resume and path.exists()))
    if goes_on:
        config = resumed_config(config, path)
    config = config.changed({"data.source": source_name(config.data.source)})
    check_tracker(config.run.track)
    found = data if data is not None else load_data(config.data.source)
    with ExitStack() as stack:

        def hold() -> None:
            stack.enter_context(held(path))

        if goes_on:
            processes.by_first(hold)
        trainer = (_resume if goes_on else _begin)(config, path, found, processes, shown)
        try:
            if not goes_on:
                processes.by_first(hold)
            return _run(trainer, path, found, deadline)
        except KeyboardInterrupt:
            trainer.keeper.give_up()
            raise
        finally:  # the keeper lets go of the folder
            stack.callback(trainer.keeper.close, stack.pop_all().close)
            shown.end()


def train_seeds(
    config: Config, output: Path | str, seeds: Sequence[int], run: Callable[[Config, Path], Outcome]
) -> tuple[list[Outcome], dict[str, Statistic]]:
    """Several runs in sub-folders seed-1, ..., each by `run`, and the statistics of their figures (summary.json)."""
    return train_each(plan_of_seeds(config, Path(output), seeds), output, run)


def train_each(
    plan: Plan, output: Path | str, run: Callable[[Config, Path], Outcome]
) -> tuple[list[Outcome], dict[str, Statistic]]:
    """Several runs, each with its own configuration and folder, and their statistics, in the folder around them."""
    outcomes = [run(config, folder) for config, folder in plan]
    found = summary(outcomes)
    if is_first_process():
        with whole_file(Path(output) / SUMMARY) as file:
            file.write_text(json.dumps({name: one._asdict() for name, one in found.items()}, indent=1) + "\n")
    return outcomes, found


def summary(outcomes: Sequence[Outcome]) -> dict[str, Statistic]:
    """Mean, standard deviation (of one run zero), best and worst of each figure that all runs have."""
    found = {}
    for split, figure, better in (
        ("best", "perplexity", min),
        ("best", "f1", max),
        ("test", "perplexity", min),
        ("test", "f1", max),
    ):
        values = [outcome.results.get(split, {}).get(figure) for outcome in outcomes]
        if values and None not in values:
            name = f"{'valid' if split == 'best' else split} {figure}"
            found[name] = Statistic.of([float(value) for value in values], better)
    return found


def build_model(config: Config, vocabulary: Vocabulary, corpus: Corpus) -> Model:
    """The model of a configuration, its weights drawn with the seed, after it has looked at the training text.

    Raises RankspaceError for a chain on data without <eos>.
    """
    torch.manual_seed(config.run.seed)
    model = create(config.model.name, **_settings(config, vocabulary))
    if model.KIND == "chain" and vocabulary.eos is None:
        raise RankspaceError(
            f"train: {model.NAME} ends sentences with <eos>, which the vocabulary has not; prepare the data with --eos."
        )
    model.prepare(*_text(corpus, end_of(model)))
    return model


def _settings(config: Config, vocabulary: Vocabulary) -> dict[str, Any]:
    """Those of the configuration, and those that follow from the vocabulary."""
    has_end = "eos" in describe(config.model.name).settings
    return {**config.model.settings, "vocabulary": len(vocabulary), **({"eos": vocabulary.eos} if has_end else {})}


def _text(corpus: Corpus, eos: int | None) -> tuple[np.ndarray, np.ndarray]:
    """The tokens and offsets of a corpus as a model reads them: with <eos> after each sentence, if it has it."""
    if eos is None:
        return corpus.tokens, corpus.offsets
    tokens = np.insert(corpus.tokens, corpus.offsets[1:], eos).astype(np.int32)
    return tokens, corpus.offsets + np.arange(len(corpus.offsets))


def _begin(config: Config, path: Path, data: PreparedData, processes: Processes, display: Display) -> Trainer:
    processes.by_first(lambda: RunDirectory.refuse(path))  # before the work is done
    check_splits(data.splits, config.data.required)
    with _room_for(config.model.name, _settings(config, data.vocabulary)):
        model = build_model(config, data.vocabulary, data[config.data.train]).to(processes.device)
        seed_process(config.run.seed, processes)
        trainer = Trainer(config, model, data, processes, Keeper(None), display)
    card = {
        "model": {"name": model.NAME, "kind": model.KIND, "settings": model.settings, "weights": model.num_weights},
        "vocabulary": len(data.vocabulary),
        "data": data_summary(data),
        "environment": environment(processes.device, processes.world),
        "results": {},
    }
    first = trainer.checkpoint()
    run = processes.by_first(lambda: RunDirectory.create(path, config_text(config), card, data.vocabulary, first))
    return _kept(trainer, run, config, display, 0.0)


def _resume(config: Config, path: Path, data: PreparedData, processes: Processes, display: Display) -> Trainer:
    run = RunDirectory.open(path)
    if run.vocabulary() != data.vocabulary:
        raise RankspaceError(f"train: the vocabulary of the data is not that of {path}; give the data it began with.")
    settings = run.card["model"]["settings"]
    with _room_for(config.model.name, settings):
        checkpoint, _, notice = run.read_good("last", resuming=True)
        model = create(config.model.name, **settings)
        load_weights(model, checkpoint, path)
        trainer = Trainer(config, model.to(processes.device), data, processes, Keeper(None), display)
        trainer.load(checkpoint)
    if processes.is_first:
        run.forget_metrics_after(checkpoint.step, trainer.progress.evaluated_step)
        run.write_config(config_text(config))
    if notice:
        display.say(notice)
    return _kept(trainer, run if processes.is_first else None, config, display, trainer.epochs_done)


def _room_for(name: str, settings: Mapping[str, Any]) -> AbstractContextManager[None]:
    """Within, a lack of memory is told as one for a model, its gradients and what its optimiser remembers."""
    return enough_memory_for_weights("the model", name, settings)


def _kept(trainer: Trainer, run: RunDirectory | None, config: Config, display: Display, done: float) -> Trainer:
    tracker = make_tracker(config.run.track, run.path, flat(config)) if run is not None else None
    trainer.keeper = Keeper(run, tracker, trainer.progress.step)
    model = trainer.model
    title = f"{model.NAME}, {model.num_weights:,} weights, on {trainer.processes.device}"
    if trainer.epochs.num_left_out:
        title += f"; {trainer.epochs.num_left_out:,} sentences are too short or too long to train on"
    if not trainer.evaluates:
        title += f"; there is no split {config.data.valid!r}, so nothing is evaluated"
    display.begin(title, config.run.epochs, done)
    if trainer.progress.step:
        is_done = run is not None and trainer.is_finished and run.card["results"].get("finished")
        display.say(_finished(trainer) if is_done else f"going on from step {trainer.progress.step}")
    elif warning := _warm_up_beyond_the_end(trainer):
        display.say(warning)
    return trainer


def _warm_up_beyond_the_end(trainer: Trainer) -> str | None:
    """That the learning rate will never get to its value; the bound on it is rounded up to two digits."""
    warm_up, rate = trainer.config.schedule.warm_up, trainer.config.optimiser.learning_rate
    num_steps = trainer.epochs.num_steps_of_run(warm_up)
    if not 0 < num_steps < warm_up:
        return None
    bound = rate * num_steps / warm_up
    unit = 10.0 ** (math.floor(math.log10(bound)) - 1)
    return (
        f"schedule.warm_up is {warm_up} steps and the run has {num_steps}: the learning rate stays below "
        f"{math.ceil(bound / unit) * unit:.2g} of {rate:g}; give fewer"
    )


def _finished(trainer: Trainer) -> str:
    """That there is nothing to do, and what to raise for more."""
    progress, run = trainer.progress, trainer.config.run
    if progress.stopped:
        return f"the run is finished at step {progress.step}: {progress.stopped}; to train longer, begin another"
    name = "epochs" if progress.epoch >= run.epochs else "max_steps"
    value = getattr(run, name)
    return f"the run is finished: run.{name} is {value}; to go on, raise it, as by --set run.{name}={2 * value}"


def _run(trainer: Trainer, path: Path, data: PreparedData, deadline: float) -> Outcome:
    with _told_how_to_go_on(trainer, path):
        with computing_in(_precision(trainer), trainer.model):
            trainer.train(deadline)
        progress = trainer.progress
        done = {"steps": progress.step, "epochs": progress.epoch, "seconds": round(progress.seconds, 3)}
        trainer.keeper.result(finished=True, stopped=progress.stopped, **done, **_tested(trainer, path, data))
        trainer.keeper.settle()
    results: dict[str, Any] = trainer.processes.told(lambda: RunDirectory.open(path).card["results"])
    return Outcome(path, results)


@contextmanager
def _told_how_to_go_on(trainer: Trainer, path: Path) -> Iterator[None]:
    """Within, a run that has a checkpoint is told to go on from it: after a signal, or when it cannot be written to."""
    how = f"{GO_ON} rankspace train --resume --output {path}"
    try:
        yield
    except InterruptionError as stopped:
        stopped.args = (f"{stopped}; {how}",)
        raise
    except WritingError as error:
        problem = str(error).removesuffix(".")
        raise WritingError(f"{problem}; {trainer.keeper.good()} Put that right, and {how}", error.reason) from error


def _precision(trainer: Trainer) -> Precision:
    """What the steps to come, and evaluations between them, are computed in; the card tells it."""
    precision = decided_precision(trainer.config.run.precision, trainer.model, trainer.processes.device)
    run, step = trainer.keeper.run, trainer.progress.step
    if run is not None and not trainer.is_finished:
        run.update_card(precision=_precisions(run.card.get("precision", []), step, precision))
    return precision


def _precisions(told: list[dict[str, Any]], step: int, precision: Precision) -> list[dict[str, Any]]:
    """Precisions, each with the step after which it began, of a run that goes on from a step in another or the same."""
    earlier = [each for each in told if each["step"] < step]
    if earlier and earlier[-1]["precision"] == precision:
        return earlier
    return [*earlier, {"step": step if earlier else 0, "precision": precision}]


def _tested(trainer: Trainer, path: Path, data: PreparedData) -> dict[str, Any]:
    """The best checkpoint on the test split, if there is one, in the highest precision, whatever the run had.
    Processes read it from the first, which wrote it."""
    split, options, processes = trainer.config.data.test, trainer.config.evaluation, trainer.processes
    is_done = processes.told(lambda: RunDirectory.open(path).card["results"].get("steps") == trainer.progress.step)
    if split not in data.splits or is_done:
        return {}
    own = {name: tensor.clone() for name, tensor in trainer.model.state_dict().items()}
    place = processes.told(lambda: {"epoch": trainer.epoch, **_load_best(trainer.model, path)})
    processes.same(trainer.model.state_dict().values())
    evaluator = Evaluator(
        data[split], trainer.model.KIND, processes, max_tokens=options.max_tokens, parse=options.parse
    )
    with computing_in("highest", trainer.model):
        found = evaluator(trainer.model)
    record = {**place, "split": split, **found.record()}
    trainer.model.load_state_dict(own)
    trainer.keeper.end(record)
    trainer.display.evaluated(record)
    return {"test": record}


def _load_best(model: Model, path: Path) -> dict[str, int]:
    """Gives a model the best weights of a run; the step and epoch that they are of, as their checkpoint says."""
    best = RunDirectory.open(path).read("best")
    load_weights(model, best, path)
    return {name: int(best.state[name]) for name in ("step", "epoch") if name in best.state}
