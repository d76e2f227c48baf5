"""What is checked of a run before it begins or goes on. Nothing here imports torch, so mistakes are told at once."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rankspace.data.prepared import load_card
from rankspace.errors import FormatError, RankspaceError
from rankspace.training.config import Config, config_from_text, flat
from rankspace.training.data_source import check_source, is_folder, source_name
from rankspace.training.run_directory import CONFIG, RunDirectory, seed_folder
from rankspace.training.sections import CHANGEABLE

Plan = Sequence[tuple[Config, Path]]  # several runs, and their folders


def plan_of_seeds(config: Config, output: Path, seeds: Iterable[int]) -> Plan:
    """A run for each seed."""
    return [(config.changed({"run.seed": seed}), seed_folder(output, seed)) for seed in seeds]


def check_run(config: Config, folder: Path, resume: bool, output: Path | None = None) -> None:
    """Raises what training into a folder would, as far as cards, configurations and names of folders tell.

    `output` is what the command names, if that is a folder of several runs.
    """
    source = source_name(config.data.source)
    if goes_on := resume and folder.exists():
        if is_folder(source) and not Path(source).exists():
            raise FormatError(
                f"{source}: there is no such folder, and {folder} began with these data; if they are elsewhere, name "
                f"them: rankspace train FOLDER --resume -o {output or folder}"
            )
        resumed_config(config, folder)
    else:
        RunDirectory.refuse(folder)
    check_source(source, [config.data.train] if goes_on else config.data.required)


def resumed_config(config: Config, path: Path) -> Config:
    """The configuration of the run, with what may change as given: the folder of the data too, if these are the same.
    Raises RankspaceError for other changes."""
    run = RunDirectory.open(path)
    stored = config_from_text(run.config, str(path / CONFIG))
    given = config.changed({"data.source": source_name(config.data.source)})
    for key in given.differences(stored):
        section, _, name = key.partition(".")
        if section == "run" and name in CHANGEABLE:
            continue
        if key == "data.source" and is_folder(given.data.source) and is_folder(stored.data.source):
            _check_same_data(given.data.source, run, stored.data.source)
            continue
        one, other = flat(given).get(key), flat(stored).get(key)
        raise RankspaceError(
            f"train: {key} is {one!r} but {other!r} in {path / CONFIG}; leave it as it is to resume, or choose another "
            f"folder."
        )
    return given


def _check_same_data(source: str, run: RunDirectory, first: str) -> None:
    """Raises RankspaceError for data that are not those on the card of a run, by the hashes of their files."""
    began, found = _hashes(run.card.get("data", {})), _hashes(load_card(source))
    others = [name for name in began if found.get(name) != began[name] or began[name] is None]
    if others or not began:
        raise RankspaceError(
            f"train: {source}: {' and '.join(others) or 'the data'} differ from what {run.path} began with, which was "
            f"{first}; give those data, or choose another folder."
        )


def _hashes(card: Mapping[str, Any]) -> dict[str, str | None]:
    """Of the files of prepared data, by what is in them."""
    splits = {f"split {name!r}": entry for name, entry in card.get("splits", {}).items()}
    return {name: entry.get("sha256") for name, entry in {"vocabulary": card.get("vocabulary", {}), **splits}.items()}
