"""Where metrics go besides metrics.jsonl: TensorBoard, or Weights & Biases without a connection."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from rankspace.errors import MissingExtraError

KEYS = ("step", "split")  # of a record, which are no values


@runtime_checkable
class Tracker(Protocol):
    def add(self, record: Mapping[str, Any]) -> None:
        """Takes a record as it goes to metrics.jsonl."""

    def close(self) -> None: ...


def make_tracker(name: str, folder: Path, config: Mapping[str, Any]) -> Tracker | None:
    """A tracker by the name in run.track. Raises MissingExtraError if its package is not installed."""
    if name == "tensorboard":
        return TensorBoard(folder)
    return WeightsAndBiases(folder, config) if name == "wandb" else None


def check_tracker(name: str) -> None:
    """Raises MissingExtraError where `make_tracker` would, before the work is done."""
    if name == "tensorboard":
        _tensorboard()
    elif name == "wandb":
        _wandb()


class TensorBoard:
    """Event files in the folder tensorboard of the run."""

    def __init__(self, folder: Path) -> None:
        self._writer: Any = _tensorboard().SummaryWriter(str(folder / "tensorboard"))

    def add(self, record: Mapping[str, Any]) -> None:
        for name, value in named_values(record).items():
            self._writer.add_scalar(name, value, record["step"])

    def close(self) -> None:
        self._writer.close()


class WeightsAndBiases:
    """A run in the folder wandb of the run, kept there: `wandb sync` sends it."""

    def __init__(self, folder: Path, config: Mapping[str, Any]) -> None:
        self._run: Any = _wandb().init(mode="offline", dir=str(folder), name=folder.name, config=dict(config))

    def add(self, record: Mapping[str, Any]) -> None:
        self._run.log(named_values(record), step=record["step"])

    def close(self) -> None:
        self._run.finish()


def named_values(record: Mapping[str, Any]) -> dict[str, int | float]:
    """The numbers of a record as split/name."""
    split = record.get("split", "train")
    return {
        f"{split}/{name}": value
        for name, value in record.items()
        if name not in KEYS and isinstance(value, int | float) and not isinstance(value, bool)
    }


def _tensorboard() -> Any:
    try:
        from torch.utils import tensorboard
    except ImportError as error:
        raise _missing("tensorboard") from error
    return tensorboard


def _wandb() -> Any:
    try:
        import wandb  # type: ignore[import-not-found,unused-ignore]
    except ImportError as error:
        raise _missing("wandb") from error
    return wandb


def _missing(name: str) -> MissingExtraError:
    return MissingExtraError(
        f"train: run.track is {name!r}, but {name} is not installed; install it with pip install 'rankspace[tracking]'."
    )
