"""Data for a trained model: a split of prepared data with its vocabulary."""

from pathlib import Path

from rankspace.data.corpus import Corpus
from rankspace.data.encoding import encode_trees
from rankspace.data.prepared import PreparedData
from rankspace.errors import FormatError, RankspaceError
from rankspace.training import Trained
from rankspace.training.data_source import LONGEST, SEEDS, SYNTHETIC, load_data
from rankspace.training.run_directory import VOCABULARY
from rankspace.training.shipped import find_run

LIKELY = ("valid", "test", "train")  # what to use where the split that is asked for is missing: the first there is


def load_matching(run: Path, trained: Trained, source: str | None, split: str) -> Corpus:
    """A split of a prepared folder, of `synthetic`, or by default of what the run was trained on.

    Synthetic sentences are written in the vocabulary of a run that was trained on such sentences. Raises FormatError
    where there is no prepared data or its vocabulary is another one, and RankspaceError for a split that is not there.
    """
    source = source or trained.config.data.source
    if not source:
        raise RankspaceError(f"{run}: does not say what it was trained on; give DATA.")
    data = load_data(source)
    if split not in data.splits:
        _refuse_split(source, data, split)
    if data.vocabulary == trained.vocabulary:
        return data[split]
    if source.partition(":")[0] == SYNTHETIC:
        if trained.card.get("data", {}).get("preset") != SYNTHETIC:
            raise FormatError(f"{source}: {run} was not trained on synthetic sentences; give a prepared folder.")
        return _synthetic(len(data[split]), split, trained)
    raise FormatError(
        f"{source}: its vocabulary of {len(data.vocabulary)} words is not that of {run}, of "
        f"{len(trained.vocabulary)}; prepare it with --vocabulary {find_run(run) / VOCABULARY}."
    )


def _synthetic(num_sentences: int, split: str, trained: Trained) -> Corpus:
    """Written once more: data in another vocabulary have lost the words that only the run's knows."""
    from rankspace.data.synthetic import SyntheticTreebank

    return encode_trees(SyntheticTreebank(LONGEST).trees(num_sentences, SEEDS[split]), trained.vocabulary)


def _refuse_split(source: str, data: PreparedData, split: str) -> None:
    there = next((name for name in LIKELY if name in data.splits), "train")
    raise RankspaceError(f"{source}: has no split {split!r}, but {', '.join(data.splits)}; use --split {there}.")
