"""A checkpoint: a folder with the weights, what else training needs to go on, and a card of plain numbers.

model.safetensors      the weights that evaluation uses
optimiser.safetensors  what resuming needs besides: states of the optimiser, averages, random generators
state.json             format, version, hashes of the files above, and the place in training
"""

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from rankspace.data.prepared import check_hash, sha256
from rankspace.errors import FormatError
from rankspace.files import flush, read_card

FORMAT = "rankspace checkpoint"
VERSION = 1
WEIGHTS = "model.safetensors"
RESUMING = "optimiser.safetensors"
STATE = "state.json"
PLACE = ("step", "epoch", "batches", "schedule", "sums")  # of the state, for resuming
SYSTEM_ERROR = re.compile(r"\(os error (\d+)\)")  # as safetensors tells them
REMEDY = "choose another with --checkpoint, or allow to take one with --fallback"


@dataclass(frozen=True)
class Checkpoint:
    """Weights by name, the place in training as plain numbers (`step` is among them), and what resuming needs."""

    weights: Mapping[str, Tensor]
    state: Mapping[str, Any] = field(default_factory=dict)
    resuming: Mapping[str, Tensor] = field(default_factory=dict)

    @property
    def step(self) -> int:
        return int(self.state.get("step", 0))


def write_checkpoint(folder: Path, checkpoint: Checkpoint) -> None:
    """Writes the files of a checkpoint into a folder and waits until they are on the disk."""
    _write(folder / WEIGHTS, checkpoint.weights)
    if checkpoint.resuming:
        _write(folder / RESUMING, checkpoint.resuming)
    files = {file.name: sha256([file]) for file in sorted(folder.glob("*.safetensors"))}
    card = {"format": FORMAT, "version": VERSION, "files": files, "state": dict(checkpoint.state)}
    (folder / STATE).write_text(json.dumps(card, indent=1) + "\n", encoding="utf-8")
    flush(folder)


def read_checkpoint(folder: Path, device: str = "cpu", *, resuming: bool = False) -> Checkpoint:
    """Reads and checks a checkpoint; what resuming needs is read only if asked, always to the CPU.

    Raises FormatError for one that is missing, foreign, truncated, changed or of a later version, and if asked for what
    resuming needs, for one without.
    """
    card = _card(folder)
    try:
        files, state = dict(card["files"]), dict(card["state"])
    except (KeyError, TypeError, ValueError):
        raise FormatError(f"{folder / STATE}: is damaged; {REMEDY}.") from None
    if WEIGHTS not in files:
        raise FormatError(f"{folder / STATE}: names no {WEIGHTS}; {REMEDY}.")
    if resuming:
        _check_resuming(folder / STATE, files, state)
    weights = _tensors(folder / WEIGHTS, files[WEIGHTS], device)
    more = _tensors(folder / RESUMING, files[RESUMING], "cpu") if resuming else {}
    return Checkpoint(weights, state, more)


def _check_resuming(file: Path, files: Mapping[str, str], state: Mapping[str, Any]) -> None:
    """Raises FormatError for a checkpoint that, as the best one, has no more than weights."""
    missing = [name for name in (*PLACE, RESUMING) if name not in state and name not in files]
    if missing:
        raise FormatError(f"{file}: names no {', '.join(missing)}, so training cannot go on from it; {REMEDY}.")


def _card(folder: Path) -> dict[str, Any]:
    remedies = {"make": REMEDY, "repair": REMEDY, "upgrade": "use the rankspace that wrote it"}
    return read_card(folder / STATE, FORMAT, VERSION, what="a checkpoint", **remedies)


def _tensors(file: Path, expected: str, device: str) -> dict[str, Tensor]:
    check_hash(file, expected, STATE, REMEDY)
    try:
        return load_file(file, device)
    except SafetensorError as error:
        raise FormatError(f"{file}: is damaged ({error}); {REMEDY}.") from None


def _write(file: Path, tensors: Mapping[str, Tensor]) -> None:
    """With the permissions of any new file, which `save_file` does not give. Other threads go on meanwhile. Raises
    OSError, whatever the library has raised."""
    file.touch()
    permissions = file.stat().st_mode
    try:
        save_file(_plain(tensors), file, {"format": FORMAT})
    except SafetensorError as error:
        number = SYSTEM_ERROR.search(str(error))
        raise OSError(int(number[1]), os.strerror(int(number[1]))) if number else OSError(str(error)) from None
    file.chmod(permissions)


def _plain(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """On the CPU, each with memory of its own: safetensors keeps neither devices nor what tensors share."""
    found: dict[str, Tensor] = {}
    places: set[int] = set()
    for name, tensor in tensors.items():
        plain = tensor.detach().to("cpu").contiguous()
        found[name] = plain.clone() if plain.untyped_storage().data_ptr() in places else plain
        places.add(plain.untyped_storage().data_ptr())
    return found
