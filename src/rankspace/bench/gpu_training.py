"""The training runs of `rankspace bench gpu`: how near the loop of `rankspace train` comes to the time of its steps.

A run on sentences that a grammar of the package draws has the time of each of its steps taken, from when the device is
done with one to when it is done with the next: loading, optimiser, logging and idling included. Steps of the commonest
shapes, from when their graphs are recorded, are then held against the step alone (without an optimiser) at the same
shapes. That leaves out what comes on top of steps: of the same run, `gpu_run` tells what its last epoch takes with its
evaluation and checkpoints, and where all of the time goes.
"""

import functools
import itertools
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from rankspace.bench.device_clock import release
from rankspace.bench.gpu_inputs import new_model
from rankspace.bench.gpu_rows import Row
from rankspace.bench.gpu_run import Later, Stopwatch, later_epoch, split
from rankspace.bench.gpu_step import lacking
from rankspace.bench.gpu_timing import time_of_steps
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
from rankspace.training.run_directory import RunDirectory

LIMIT = 1.15  # how much longer a step may take in training
COMPARED = 10  # shapes whose steps are also measured alone
LONGEST = 40
NUM_EPOCHS = 2  # of which the last has its graphs from the start, or most of them
NUM_SENTENCES = 18000  # of which some are longer than that: a thousand steps of 16
BEGINS = {"rank-pcfg": {"model.initial": "xavier"}}  # as in the published code, which has embeddings of 512 as well
HELD_OUT = 12  # sentences to train on for each that is evaluated, about as in the Penn treebank


class Step(NamedTuple):
    """A step whose shape had been seen at least twice before."""

    shape: Shape
    num_words: int
    seconds: float


class Timed(NamedTuple):
    """The steps of a run, how many of its sentences had to be done again (`training/captured.py`), its last epoch, and
    of all of it the words and where the seconds went."""

    steps: list[Step]
    num_again: int
    later: Later
    num_words: int
    split: dict[str, float]


def measure(row: Row, quick: bool, device: torch.device) -> dict[str, Any]:
    """Words per second of training and of the same steps alone, and how much longer training takes."""
    record: dict[str, Any] = {"model": row.model, "settings": dict(row.settings), "precision": row.precision}
    num, longest = (200, 5) if quick else (NUM_SENTENCES, 2 * LONGEST)
    data = language_data(num, longest, row.vocabulary)
    config = training_config(row, 4 if quick else NUM_EPOCHS)
    try:
        timed = timed_steps(config, data, device)
        steps = common(timed.steps, 1 if quick else COMPARED)
        release(device)
        found = compared(steps, alone(row, steps, device, 3 if quick else 10))
        alone_rate = found["words_per_second_alone"]
        more = {"epoch": one_epoch(timed.later, alone_rate), "whole": whole_run(timed, alone_rate)}
        return record | found | more | {"num_again": timed.num_again, "wrong": ""}
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
    """The text of a training split, and some to evaluate: sentences drawn from the grammar that comes with the package,
    cut to a length.

    Their words are as hard to predict as those of the text it learned. (What is easier, or has nothing to be learned,
    drives probabilities so far apart within an epoch that sentences leave the range of float32 and are done again.)
    """
    words = Vocabulary((UNKNOWN, END, *(f"w{number}" for number in range(2, vocabulary))))
    splits = {"train": _drawn(num, longest, words, 0), "valid": _drawn(-(-num // HELD_OUT), longest, words, 1)}
    return PreparedData(make_card("drawn", Preprocessing(eos=True), [], splits), words, splits)


def _drawn(num: int, longest: int, words: Vocabulary, seed: int) -> Corpus:
    trained = load("craft-small")
    drawn = [each.words[:longest] for each in trained.sample(num, 2 * LONGEST, seed=seed)]
    sentences = [each for each in drawn if len(each) > 1]
    numbers = [trained.vocabulary.index[word] % (len(words) - 2) + 2 for each in sentences for word in each]
    return Corpus(words, np.array(numbers, dtype=np.int32), offsets_of([len(each) for each in sentences]))


def training_config(row: Row, num_epochs: int) -> Config:
    """The preset of the model at the sizes and in the precision of the row; an evaluation at the end of each epoch.

    With embeddings of 512 numbers, a grammar whose symbols begin standard normal is soon so sure of itself that some
    sentences leave the range of float32; one that begins as in the published code is not.
    """
    return load_preset(row.model).changed(
        {
            **BEGINS.get(row.model, {}),
            **{f"model.{name}": value for name, value in row.settings.items()},
            "run.precision": row.precision,
            "run.epochs": num_epochs,
            "run.checkpoint_minutes": 0.0,
            "batches.max_length": LONGEST,
            "schedule.name": "constant",
        }
    )


def timed_steps(config: Config, data: PreparedData, device: torch.device) -> Timed:
    """Trains, and gives the steps whose shape has its graph, but for the first of each epoch, which waits until what
    the checkpoint of the last has is copied."""
    watch = Stopwatch(device)
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        with watch.watching():
            train(config, run, device=device.type, display=watch, data=data)
        num_again = sum(record.get("num_again", 0) for record in RunDirectory(run).metrics())
    ends, epochs = watch.ends.seconds(), epoch_shapes(config, data, device)
    batches = [batch for epoch in epochs for batch in epoch]
    has_graph = recorded_before([shape for shape, _ in batches])
    first = set(itertools.accumulate(map(len, epochs), initial=0))
    steps = [
        Step(shape, num_words, ends[place + 1] - ends[place])
        for place, (shape, num_words) in enumerate(batches)
        if has_graph[place] and place not in first
    ]
    num_words = [num_words for _, num_words in batches]
    later = later_epoch(len(batches) - len(epochs[-1]), num_words, ends, has_graph, watch.pauses)
    return Timed(steps, num_again, later, sum(num_words), split(watch.seconds, ends, has_graph, watch.pauses))


def recorded_before(shapes: Sequence[Shape]) -> list[bool]:
    """Which of the batches of a run have a graph: the first of a shape is run as it is, the second recorded."""
    seen: Counter[Shape] = Counter()
    found = []
    for shape in shapes:
        found.append(seen[shape] > 1)
        seen[shape] += 1
    return found


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
    """Milliseconds of the step of each shape, by itself. Raises RankspaceError where what was timed is not the step."""
    model = new_model(row, device).train()
    found = {}
    for batch, length in sorted({step.shape for step in steps}):
        timed = time_of_steps(model, replace(row, lengths=(length,) * batch), device, rounds)
        if timed.replay.why_wrong:
            raise RankspaceError(f"{batch} x {length}: {timed.replay.why_wrong}")
        found[batch, length] = timed.milliseconds
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


def one_epoch(later: Later, words_per_second_alone: float) -> dict[str, Any]:
    """The rate of an epoch whose shapes have their graphs, evaluation and checkpoints included, and how many times as
    long it takes as steps alone (of the shapes that were compared) would for its words."""
    ratio = words_per_second_alone * later.seconds / later.num_words
    return {
        "words": later.num_words,
        "seconds": later.seconds,
        "words_per_second": later.num_words / later.seconds,
        "ratio": ratio,
        "limit": LIMIT,
        "reached": ratio <= LIMIT,
        "split": later.split,
    }


def whole_run(timed: Timed, words_per_second_alone: float) -> dict[str, Any]:
    """The rate over all of a call of `train`, and how many times as long it takes as steps alone (of the shapes that
    were compared) would for its words."""
    seconds = sum(timed.split.values())
    return {
        "words": timed.num_words,
        "seconds": seconds,
        "words_per_second": timed.num_words / seconds,
        "ratio": words_per_second_alone * seconds / timed.num_words,
        "split": timed.split,
    }
