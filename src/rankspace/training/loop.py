"""The training loop: epochs of steps, with logging, evaluation, checkpoints and early stopping at their places."""

import math
import time
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor

from rankspace.data.prepared import PreparedData
from rankspace.devices import is_gpu
from rankspace.errors import NotEnoughMemoryError
from rankspace.models import Model
from rankspace.training.captured import CapturedStep
from rankspace.training.checkpoints import Checkpoint
from rankspace.training.config import Config
from rankspace.training.em import EMStep
from rankspace.training.epochs import Epochs, Share
from rankspace.training.evaluator import Evaluated, Evaluator
from rankspace.training.interruption import Interruption
from rankspace.training.keeping import Keeper
from rankspace.training.machine import memory_mb
from rankspace.training.optimisers import Schedule
from rankspace.training.processes import Processes
from rankspace.training.progress import Display
from rankspace.training.random_state import load_random_tensors, random_tensors
from rankspace.training.run_directory import BEST, HELD_OUT, TRAINING
from rankspace.training.standing import Progress
from rankspace.training.step import GradientStep, Step, Task
from rankspace.training.watch import NumbersError, Place, Sums


class Trainer:
    """Trains a model. `keeper` writes what is kept, `display` shows it; both do nothing in all but the first process.

    Weights, batches and everything drawn depend on the configuration alone, so that a run which goes on from a
    checkpoint ends, on a CPU with as many threads, with the same bits as one that was never stopped.
    """

    def __init__(
        self,
        config: Config,
        model: Model,
        data: PreparedData,
        processes: Processes,
        keeper: Keeper,
        display: Display,
    ) -> None:
        self.config, self.model, self.processes = config, model, processes
        self.keeper, self.display = keeper, display
        self.progress = Progress()
        self.epochs = Epochs(data[config.data.train], config, model.KIND, processes)
        self.schedule = Schedule(config.schedule, config.optimiser.learning_rate)
        self.step = _make_step(config, model, processes)
        self.batches = self.epochs.batches(0)
        self.record: Mapping[str, Any] = {}
        self._evaluate = self._evaluator(data, config.data.valid, config.evaluation.parse)
        if self._evaluate is not None and config.evaluation.measure == "s_f1":
            self._evaluate.check_scores(config.data.valid, model.NAME)
        self._hold_out = self._evaluator(data, config.data.held_out, parse=False)
        self._began = self._saved = self._logged = time.perf_counter()

    def _evaluator(self, data: PreparedData, split: str, parse: bool) -> Evaluator | None:
        options = self.config.evaluation
        if split not in data.splits:
            return None
        return Evaluator(
            data[split],
            self.model.KIND,
            self.processes,
            max_tokens=options.max_tokens,
            max_length=options.max_length,
            parse=parse,
        )

    @property
    def evaluates(self) -> bool:
        return self._evaluate is not None

    # The loop.

    def train(self, deadline: float = math.inf) -> None:
        """Trains to the end, or to a time on the clock `time.monotonic`. Raises InterruptionError after a signal,
        TimeUpError then, NumbersError where an invariant breaks."""
        self._began = self._saved = self._logged = time.perf_counter()
        self.model.train()
        with Interruption(deadline) as interruption:
            while not self.is_finished:
                self._train_epoch(interruption)
            self.keeper.settle()
        if self.progress.evaluated_step != self.progress.step:  # no place where a longer run would evaluate
            self._evaluation(is_planned=False)
            self.save()
            self.keeper.settle()

    @property
    def is_finished(self) -> bool:
        return bool(self.progress.stopped) or self.progress.epoch >= self.config.run.epochs or self._out_of_steps

    @property
    def epoch(self) -> int:
        """The number, from 1, of the epoch that is under way or has just ended."""
        return self.progress.epoch + (self.batches.position > 0)

    @property
    def epochs_done(self) -> float:
        return self.progress.epoch + self.batches.position / max(len(self.batches), 1)

    @property
    def _out_of_steps(self) -> bool:
        return 0 < self.config.run.max_steps <= self.progress.step

    def _train_epoch(self, interruption: Interruption) -> None:
        """What is left of the current epoch."""
        steps = self.epochs.steps(self.batches)
        for shares in steps:
            self._train_step(shares, steps.prepare)
            self._attend(interruption)
            if self.progress.stopped or self._out_of_steps:
                break
        if self.batches.position >= len(self.batches):
            self._end_epoch()
        self.save()

    def _train_step(self, shares: list[Share], meanwhile: Task) -> None:
        progress, done = self.progress, self.batches.position / len(self.batches)
        self._weigh_divergence()
        self.step.watch.begin(Place(progress.step + 1, progress.epoch, self.batches.position))
        rate = self.schedule.learning_rate(progress.step, self._share_done(done))
        self.step(shares, rate, meanwhile)
        progress.step += 1
        progress.num_words += sum(share.num_predictions for share in shares)
        if self.processes.device.type == "cpu":
            self._check()
        is_last = self.batches.position >= len(self.batches)
        if is_last or progress.step % self.config.run.log_every == 0:  # what an epoch leaves over is a record too
            self._log(rate)
        self.display.advance(progress.epoch + done, self.record)

    def _share_done(self, of_epoch: float) -> float:
        """The share of the run that is done."""
        run = self.config.run
        by_epochs = (self.progress.epoch + of_epoch) / run.epochs
        return max(by_epochs, self.progress.step / run.max_steps) if run.max_steps else by_epochs

    def _weigh_divergence(self) -> None:
        """The weight of the KL term of compound models in the coming step."""
        if hasattr(self.model, "kl_weight"):
            steps = self.config.objective.kl_warm_up
            model: Any = self.model
            model.kl_weight = min(1.0, (self.progress.step + 1) / steps) if steps else 1.0

    def _attend(self, interruption: Interruption) -> None:
        """What may fall due after a step: an evaluation, a checkpoint, a signal.

        Several processes look at the clock and at signals only where they log, for there they are at the same step.
        """
        self.keeper.check()
        run, every, step = self.config.run, self.config.evaluation.every_steps, self.progress.step
        if every and step % every == 0:
            self._evaluation()
            self.save()
        elif run.checkpoint_steps and step % run.checkpoint_steps == 0:
            self.save()
        if self.processes.world > 1 and step % run.log_every:
            return
        stop = self.processes.any(interruption.is_asked_for)
        waited = 60 * run.checkpoint_minutes < time.perf_counter() - self._saved
        if stop or self.processes.any(bool(run.checkpoint_minutes) and waited):
            self.save()
        if stop:
            self.keeper.settle()
            self.processes.any(False)  # all wait until the first has written
            raise interruption.error(f"stopped at step {step}")

    def _end_epoch(self) -> None:
        self.step.end_epoch()
        self.progress.epoch += 1
        self.batches = self.epochs.batches(self.progress.epoch)
        if not self.config.evaluation.every_steps:
            self._evaluation()

    # Records.

    def _check(self) -> None:
        self.step.settle()
        try:
            self.step.watch.check()
        except NumbersError as error:
            self.keeper.settle()
            remedy = f"{self.keeper.good()} Try a lower optimiser.learning_rate, or run.precision highest."
            raise NumbersError(f"{error}; {remedy}") from None

    def _drain(self) -> None:
        """Takes the sums from the devices of all processes, which call it together."""
        own = torch.tensor(self.step.watch.drain(), dtype=torch.float64, device=self.processes.device)
        self.progress.sums = self.progress.sums.plus(Sums(*self.processes.total(own).tolist()))

    def _log(self, rate: float) -> None:
        self._check()
        self._drain()
        progress, sums, now = self.progress, self.progress.sums, time.perf_counter()
        by_gradient = {"gradient_norm": sums.norm / max(sums.num_steps, 1), "learning_rate": rate}
        self.record = {
            "step": progress.step,
            "epoch": self.epoch,
            "split": TRAINING,
            "loss": sums.loss / max(sums.num_sentences, 1),
            "perplexity": math.exp(min(sums.loss / max(sums.num_predictions, 1), 700)),
            "num_impossible": int(sums.num_impossible),
            **({"num_again": self.step.watch.num_again} if self.step.watch.num_again else {}),
            **(by_gradient if sums.num_steps else {}),
            "words_per_second": round(progress.num_words / max(now - self._logged, 1e-9)),
            "memory_mb": memory_mb(self.processes.device),
        }
        self.keeper.record(self.record)
        progress.sums, progress.num_words, self._logged = Sums(), 0, now
        self.step.watch.num_again = 0

    def _evaluation(self, is_planned: bool = True) -> None:
        """Evaluates and keeps the best weights, and those that held-out text finds best. Schedule and early stopping
        look at planned evaluations of the former alone, so that a run which goes on from where `run.max_steps` ended it
        learns as one that was never ended."""
        self._check()
        begin, self.progress.evaluated_step = time.perf_counter(), self.progress.step
        splits, found = self.config.data, None
        with self.step.evaluated_weights():
            if self._evaluate is not None:
                found = self._within_memory(self._evaluate)
                measure = found.measure(self.config.evaluation.measure)
                is_best = self.progress.is_best(measure)
                record = self._evaluated(splits.valid, found, BEST if is_best else None)
                self.keeper.result(last=record, **({"best": record} if is_best else {}))
                if is_planned:
                    self._judge(measure)
            if self._hold_out is not None:
                known = found if splits.held_out == splits.valid else None
                text = known or self._within_memory(self._hold_out)
                is_chosen = self.progress.is_best_held_out(text.measure("perplexity"))
                chosen = HELD_OUT if is_chosen else None
                record = self._evaluated(splits.held_out, text, chosen, is_known=known is not None)
                self.keeper.result(**({HELD_OUT: record} if is_chosen else {}))
        self._logged += time.perf_counter() - begin  # words per second are those of training

    def _within_memory(self, evaluate: Evaluator) -> Evaluated:
        """An evaluation; once more without what steps keep, where that leaves too little memory."""
        try:
            return evaluate(self.model)
        except NotEnoughMemoryError:
            if not self.step.frees_memory():
                raise
        return evaluate(self.model)

    def _evaluated(self, split: str, found: Evaluated, chosen: str | None, is_known: bool = False) -> dict[str, Any]:
        """Keeps the weights as the checkpoint that they were `chosen` for, and returns the record, which is written and
        shown unless it is known."""
        place = {"step": self.progress.step, "epoch": self.epoch}
        if chosen is not None:
            self.keeper.save_chosen(chosen, lambda: Checkpoint(_copied(self.model.state_dict()), place))
        elapsed = round(self.progress.seconds + time.perf_counter() - self._began, 3)
        record = {**place, "split": split, "elapsed": elapsed, **found.record()}
        if not is_known:
            self.keeper.record(record)
            self.display.evaluated(record)
        return record

    def _judge(self, measure: list[float] | None) -> None:
        """Lets the schedule and early stopping look at the measure of a planned evaluation."""
        patience = self.config.evaluation.patience
        self.schedule.evaluated(self.progress.improved(measure))
        if patience and self.progress.num_bad >= patience:
            self.progress.stopped = f"no better evaluation in {patience}"

    # Checkpoints.

    def save(self) -> None:
        """Has a checkpoint written that `load` goes on from."""
        self._check()
        self._drain()
        now = time.perf_counter()
        self.progress.seconds, self._began = self.progress.seconds + now - self._began, now
        self.keeper.save(self.checkpoint)
        self._saved = time.perf_counter()

    def checkpoint(self) -> Checkpoint:
        tensors = {**self.step.tensors(), **random_tensors(self.processes.device)}
        with self.step.evaluated_weights():
            weights = _copied(self.model.state_dict())
        return Checkpoint(weights, self.state_dict(), _copied(tensors))

    def state_dict(self) -> dict[str, Any]:
        state = asdict(self.progress) | {"sums": list(self.progress.sums)}
        return {**state, "batches": self.batches.state_dict(), "schedule": self.schedule.state_dict()}

    def load(self, checkpoint: Checkpoint) -> None:
        """Goes to the place of a checkpoint, whose weights the model has. Raises RankspaceError if data differ."""
        state = dict(checkpoint.state)
        batches, schedule, sums = state.pop("batches"), state.pop("schedule"), state.pop("sums")
        self.progress = Progress(**state, sums=Sums(*sums))
        self.batches = self.epochs.batches(int(batches["epoch"]))
        self.batches.load_state_dict(batches)
        self.schedule.load_state_dict(schedule)
        self.step.load_tensors(checkpoint.resuming)
        load_random_tensors(checkpoint.resuming, self.processes, self.config.run.seed + self.progress.step)


def _make_step(config: Config, model: Model, processes: Processes) -> Step:
    if config.optimiser.name == "em":
        return EMStep(model, config.em, processes)
    device = processes.device
    if is_gpu(device) and processes.world == 1 and model.can_be_captured(device):
        return CapturedStep(model, config.optimiser, processes)
    return GradientStep(model, config.optimiser, processes)


def _copied(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.detach().to("cpu", copy=True) for name, tensor in tensors.items()}
