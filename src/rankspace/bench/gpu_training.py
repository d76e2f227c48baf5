"""The training runs of `rankspace bench gpu`: how near the loop of `rankspace train` comes to the time of its steps.

A run on sentences that a grammar of the package draws has the time of each of its steps taken, from when the device is
done with one to when it is done with the next: loading, optimiser, logging and idling included. Steps of the commonest
shapes, from when their graphs are recorded, are then held against the step alone (without an optimiser) at the same
shapes.
"""

import functools
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from rankspace.bench.device_clock import Marks, release
from rankspace.bench.gpu_rows import Row
from rankspace.bench.gpu_step import lacking, new_model, time_of_steps
from rankspace.data.corpus import Corpus, offsets_of
from rankspace.data.preparation import make_card
from rankspace.data.prepared import PreparedData
from rankspace.data.preprocessing import Preprocessing
from rankspace.data.vocabulary import END, UNKNOWN, Vocabulary
from rankspace.errors import RankspaceError, is_lack_of_memory
from rankspace.models import MODELS
from rankspace.training import Config, load, load_preset, train
from rankspace.training.captured import Shape, padded_shape
from rankspace.training.epochs import Epochs
from rankspace.training.processes import join_processes
from rankspace.training.progress import Quiet
from rankspace.training.run_directory import RunDirectory

LIMIT = 1.15  # how much longer a step may take in training
COMPARED = 10  # shapes whose steps are also measured alone
LONGEST = 40
NUM_SENTENCES = 6000  # of which a sixth is longer than that: some 300 steps of 16


class Stopwatch(Quiet):
    """When the device was done with each step."""

    def __init__(self, device: torch.device) -> None:
        self.ends = Marks(device)

    def advance(self, epochs: float, record: Mapping[str, Any]) -> None:
        self.ends.set()


class Step(NamedTuple):
    """A step whose shape had been seen at least twice before."""

    shape: Shape
    num_words: int
    seconds: float


class Timed(NamedTuple):
    """The steps of a run, and how many of its sentences had to be done again (`training/captured.py`)."""

    steps: list[Step]
    num_again: int


def measure(row: Row, quick: bool, device: torch.device) -> dict[str, Any]:
    """Words per second of training and of the same steps alone, and how much longer training takes."""
    record: dict[str, Any] = {"model": row.model, "settings": dict(row.settings), "precision": row.precision}
    num, longest = (200, 5) if quick else (NUM_SENTENCES, 2 * LONGEST)
    data = language_data(num, longest, row.vocabulary)
    config = training_config(row, 4 if quick else 1)
    try:
        timed = timed_steps(config, data, device)
        steps = common(timed.steps, 1 if quick else COMPARED)
        release(device)
        found = compared(steps, alone(row, steps, device, 3 if quick else 10))
        return record | found | {"num_again": timed.num_again, "wrong": ""}
    except (RuntimeError, RankspaceError) as error:
        if is_lack_of_memory(error):
            return {**record, "wrong": lacking(row, row.lengths, error)}
        if not isinstance(error, RankspaceError):
            raise
        return {**record, "wrong": str(error)}
    finally:
        release(device)


@functools.cache
def language_data(num: int, longest: int, vocabulary: int) -> PreparedData:
    """The text of a training split: sentences drawn from the grammar that comes with the package, cut to a length.

    Their words are as hard to predict as those of the text it learned. (What is easier, or has nothing to be learned,
    drives probabilities so far apart within an epoch that sentences leave the range of float32 and are done again.)
    """
    words = Vocabulary((UNKNOWN, END, *(f"w{number}" for number in range(2, vocabulary))))
    trained = load("craft-small")
    drawn = [each.words[:longest] for each in trained.sample(num, 2 * LONGEST, seed=0)]
    sentences = [each for each in drawn if len(each) > 1]
    numbers = [trained.vocabulary.index[word] % (vocabulary - 2) + 2 for each in sentences for word in each]
    splits = {"train": Corpus(words, np.array(numbers, dtype=np.int32), offsets_of([len(each) for each in sentences]))}
    return PreparedData(make_card("drawn", Preprocessing(eos=True), [], splits), words, splits)


def training_config(row: Row, num_epochs: int) -> Config:
    """The preset of the model at the sizes and in the precision of the row, with nothing to evaluate."""
    return load_preset(row.model).changed(
        {
            **{f"model.{name}": value for name, value in row.settings.items()},
            "run.precision": row.precision,
            "run.epochs": num_epochs,
            "run.checkpoint_minutes": 0.0,
            "batches.max_length": LONGEST,
            "schedule.name": "constant",
        }
    )


def timed_steps(config: Config, data: PreparedData, device: torch.device) -> Timed:
    """Trains, and gives the steps whose shape has its graph, but for the first of each epoch, which waits for the
    checkpoint of the last."""
    watch = Stopwatch(device)
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        train(config, run, device=device.type, display=watch, data=data)
        num_again = sum(record.get("num_again", 0) for record in RunDirectory(run).metrics())
    seen: Counter[Shape] = Counter()
    found, ends = [], iter(watch.ends.seconds())
    for shapes in epoch_shapes(config, data, device):
        before = None
        for shape, num_words in shapes:
            end = next(ends)
            if before is not None and seen[shape] > 1:
                found.append(Step(shape, num_words, end - before))
            seen[shape] += 1
            before = end
    return Timed(found, num_again)


def epoch_shapes(config: Config, data: PreparedData, device: torch.device) -> list[list[tuple[Shape, int]]]:
    """The shape that each batch of each epoch is filled up to, and its words, <eos> included."""
    kind, corpus = MODELS[config.model.name].KIND, data[config.data.train]
    epochs = Epochs(corpus, config, kind, join_processes(device.type))
    found = []
    for epoch in range(config.run.epochs):
        numbers = [corpus.lengths[batch] for batch in epochs.batches(epoch).plan()]
        found.append(
            [
                (padded_shape(len(lengths), int(lengths.max()) + (kind == "chain")), int(lengths.sum()) + len(lengths))
                for lengths in numbers
            ]
        )
    return found


def common(steps: Sequence[Step], num_shapes: int) -> list[Step]:
    """The steps of the commonest shapes. Raises RankspaceError where there are none."""
    if not steps:
        raise RankspaceError("no shape of batches came up often enough to be compared; give more sentences.")
    shapes = {shape for shape, _ in Counter(step.shape for step in steps).most_common(num_shapes)}
    return [step for step in steps if step.shape in shapes]


def alone(row: Row, steps: Sequence[Step], device: torch.device, rounds: int) -> dict[Shape, float]:
    """Milliseconds of the step of each shape, by itself."""
    model = new_model(row, device).train()
    found = {}
    for batch, length in sorted({step.shape for step in steps}):
        found[batch, length] = time_of_steps(model, replace(row, lengths=(length,) * batch), device, rounds)[1]
        release(device)
    return found


def compared(steps: Sequence[Step], milliseconds: Mapping[Shape, float]) -> dict[str, Any]:
    """Rates over all steps, and the ratio of the times."""
    words = sum(step.num_words for step in steps)
    training, by_itself = sum(step.seconds for step in steps), sum(milliseconds[step.shape] for step in steps) / 1000
    return {
        "steps": len(steps),
        "words_per_second": words / training,
        "words_per_second_alone": words / by_itself,
        "ratio": training / by_itself,
        "limit": LIMIT,
        "reached": training / by_itself <= LIMIT,
        "shapes": [
            {"batch": batch, "length": length, "milliseconds": each} for (batch, length), each in milliseconds.items()
        ],
    }
