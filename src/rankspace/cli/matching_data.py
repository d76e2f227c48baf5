"""Data for a trained model: prepared, and with its vocabulary."""

from pathlib import Path

from rankspace.data.prepared import PreparedData
from rankspace.errors import FormatError, RankspaceError
from rankspace.training import Trained
from rankspace.training.data_source import load_data
from rankspace.training.run_directory import VOCABULARY


def load_matching(run: Path, trained: Trained, source: str | None) -> PreparedData:
    """A prepared folder, `synthetic`, or by default what the run was trained on.

    Raises FormatError where there is no prepared data or its vocabulary is another one.
    """
    source = source or trained.config.data.source
    if not source:
        raise RankspaceError(f"{run}: does not say what it was trained on; give DATA.")
    data = load_data(source)
    if data.vocabulary != trained.vocabulary:
        raise FormatError(
            f"{source}: its vocabulary of {len(data.vocabulary)} words is not that of {run}, of "
            f"{len(trained.vocabulary)}; prepare it with --vocabulary {run / VOCABULARY}."
        )
    return data
