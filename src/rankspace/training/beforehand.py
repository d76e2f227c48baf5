"""What is checked of a run before it begins or goes on. Nothing here imports torch, so mistakes are told at once."""

from collections.abc import Iterable
from pathlib import Path

from rankspace.errors import RankspaceError
from rankspace.training.config import Config, config_from_text, flat
from rankspace.training.data_source import check_source, source_name
from rankspace.training.run_directory import CONFIG, RunDirectory, seed_folder
from rankspace.training.sections import CHANGEABLE


def check_run(config: Config, folder: Path, resume: bool) -> None:
    """Raises what training into a folder would, as far as cards, configurations and names of folders tell."""
    if goes_on := resume and folder.exists():
        resumed_config(config, folder)
    else:
        RunDirectory.refuse(folder)
    check_source(source_name(config.data.source), [config.data.train] if goes_on else config.data.required)


def check_seeds(config: Config, output: Path, seeds: Iterable[int], resume: bool) -> None:
    """The same of several runs."""
    for seed in seeds:
        check_run(config.changed({"run.seed": seed}), seed_folder(output, seed), resume)


def resumed_config(config: Config, path: Path) -> Config:
    """The configuration of the run, with what may change as given. Raises RankspaceError for other changes."""
    stored = config_from_text(RunDirectory.open(path).config, str(path / CONFIG))
    given = config.changed({"data.source": source_name(config.data.source)})
    for key in given.differences(stored):
        section, _, name = key.partition(".")
        if section == "run" and name in CHANGEABLE:
            continue
        one, other = flat(given).get(key), flat(stored).get(key)
        raise RankspaceError(
            f"train: {key} is {one!r} but {other!r} in {path / CONFIG}; leave it as it is to resume, or choose another "
            f"folder."
        )
    return given
