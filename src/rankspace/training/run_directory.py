"""The folder of a training run. A kill at any moment leaves one that can be loaded and resumed.

config.toml     the complete configuration
card.json       format, version, model and settings, data, environment, precision, results so far, hash of the
                vocabulary
vocabulary.txt  one word a line
metrics.jsonl   one JSON object for each logged step and each evaluation, last that of the test split
curves.png      the same as a picture
checkpoints/    last, previous and best, and with data.held_out held-out

Torch is imported with the first checkpoint that is read or written.
"""

import json
import os
import re
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rankspace.data.prepared import check_hash, sha256
from rankspace.data.vocabulary import Vocabulary
from rankspace.errors import FormatError
from rankspace.files import check_way, flush, read_card, whole_directory, whole_file, writing

if TYPE_CHECKING:
    from rankspace.training.checkpoints import Checkpoint

FORMAT = "rankspace run"
VERSION = 1
SEED = re.compile("seed-(0|[1-9][0-9]*)")  # as `seed_folder` writes it
CARD, CONFIG, VOCABULARY, METRICS = "card.json", "config.toml", "vocabulary.txt", "metrics.jsonl"
CURVES = "curves.png"
CHECKPOINTS = "checkpoints"
TRAINING = "train"  # what records of training have for a split
FINAL = "final"  # what marks the record of the test split, which is of the best checkpoint
BEST, HELD_OUT = "best", "held-out"  # the checkpoints that evaluations choose
BRING_BACK = "bring it back, or train again"
NAMES = (BEST, HELD_OUT, "last", "previous")


class Good(NamedTuple):
    """A checkpoint that can be read, its name, and if another was asked for, what is wrong with that."""

    checkpoint: "Checkpoint"
    name: str
    notice: str | None


class RunDirectory:
    """A run on the disk; `create` makes one, `open` checks one that is there.

    A checkpoint is written beside its place and put there by renaming. Between two renamings the old one still stands,
    as `previous` or under a hidden name, and is found there.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.card: dict[str, Any] = {}

    @classmethod
    def create(
        cls, path: Path, config: str, card: Mapping[str, Any], vocabulary: Vocabulary, first: "Checkpoint"
    ) -> "RunDirectory":
        """Writes the folder, with a first checkpoint, whole or not at all. Raises FormatError if it exists."""
        cls.refuse(path)
        path.absolute().parent.mkdir(parents=True, exist_ok=True)
        with whole_directory(path) as folder:
            (folder / CONFIG).write_text(config, encoding="utf-8")
            (folder / METRICS).touch()
            vocabulary.save(folder / VOCABULARY)
            made = cls(folder)
            made.update_card(**card, files={VOCABULARY: sha256([folder / VOCABULARY])})
            made.save(first)
            flush(folder)
        made.path = path
        return made

    @staticmethod
    def refuse(path: Path) -> None:
        """Raises FormatError for a path that exists, or that cannot."""
        check_way(path)
        if path.exists():
            go_on = "go on with --resume, or " if (path / CARD).exists() else ""
            raise FormatError(f"{path}: exists already; {go_on}choose another name.")

    @classmethod
    def open(cls, path: Path) -> "RunDirectory":
        """Raises FormatError for a folder that is no run, or of a later version."""
        run = cls(path)
        run.card = _read_card(path)
        return run

    def update_card(self, **entries: Any) -> None:
        """Changes entries of the card, on the disk too."""
        self.card = {"format": FORMAT, "version": VERSION, **self.card, **entries}
        text = json.dumps(self.card, indent=1, ensure_ascii=False)
        with whole_file(self.path / CARD) as file:
            file.write_text(text + "\n", encoding="utf-8")

    def add_results(self, entries: Mapping[str, Any]) -> None:
        """Changes entries of the results on the card."""
        self.update_card(results={**self.card.get("results", {}), **entries})

    @property
    def config(self) -> str:
        return _read(self.path / CONFIG)

    def write_config(self, text: str) -> None:
        with whole_file(self.path / CONFIG) as file:
            file.write_text(text, encoding="utf-8")

    def vocabulary(self) -> Vocabulary:
        """Raises FormatError for one that is not as the card has it: by its hash, where that is there, and by the
        number of words of the model."""
        file = self.path / VOCABULARY
        if (expected := self._told("files", VOCABULARY)) is not None:
            check_hash(file, expected, CARD, BRING_BACK)
        vocabulary = Vocabulary.load(file)
        if (num_words := self._told("model", "settings", "vocabulary")) not in (None, len(vocabulary)):
            raise FormatError(
                f"{file}: has {len(vocabulary)} words, but the model of the run {num_words}; {BRING_BACK}."
            )
        return vocabulary

    def _told(self, *keys: str) -> Any:
        """An entry of the card; None where it has none."""
        entry: Any = self.card
        for key in keys:
            entry = entry.get(key) if isinstance(entry, Mapping) else None
        return entry

    # Checkpoints.

    def save(self, checkpoint: "Checkpoint") -> None:
        """The checkpoint becomes `last`, and what was last `previous`. Raises WritingError; all are then as before."""
        with writing(self._place("last")):
            self._save(checkpoint)

    def _save(self, checkpoint: "Checkpoint") -> None:
        flush(self.path / METRICS)  # resuming makes no records again that are before the checkpoint
        fresh, last, previous = self._written(checkpoint), self._place("last"), self._place("previous")
        hidden = self._hidden("previous")
        if last.exists():
            if previous.exists():
                shutil.rmtree(hidden, ignore_errors=True)
                os.rename(previous, hidden)
            os.rename(last, previous)
        os.rename(fresh, last)
        self._settle(hidden)

    def save_chosen(self, name: str, checkpoint: "Checkpoint") -> None:
        """The checkpoint becomes `best`, or `held-out`. Raises WritingError; all are then as before."""
        with writing(self._place(name)):
            fresh, chosen, hidden = self._written(checkpoint), self._place(name), self._hidden(name)
            if chosen.exists():
                shutil.rmtree(hidden, ignore_errors=True)
                os.rename(chosen, hidden)
            os.rename(fresh, chosen)
            self._settle(hidden)

    def read(self, name: str = BEST, device: str = "cpu", *, resuming: bool = False) -> "Checkpoint":
        """A checkpoint by name, or what stands for it (`name_of`).

        Raises FormatError for a name that does not exist and for a checkpoint that cannot be read.
        """
        from rankspace.training.checkpoints import read_checkpoint

        if name not in NAMES:
            raise FormatError(f"{self.path}: there is no checkpoint {name!r}; there are {', '.join(NAMES)}.")
        if name == HELD_OUT and not self.found(name).exists():
            raise FormatError(
                f"{self.path}: has no checkpoint that held-out text chose; choose best or last, or train with "
                f"data.held_out."
            )
        return read_checkpoint(self.found(name), device, resuming=resuming)

    def read_good(self, name: str, device: str = "cpu", *, resuming: bool = False) -> Good:
        """The checkpoint, or the first other one that can be read."""
        known = ("last", "previous") if resuming else ("last", "previous", BEST)
        order = (name, *(other for other in known if other != name))
        trouble: FormatError | None = None
        for other in order:
            try:
                found = self.read(other, device, resuming=resuming)
            except FormatError as error:
                trouble = trouble or error
            else:
                notice = f"{trouble} Took the {other} one, of step {found.step}." if trouble else None
                return Good(found, self.name_of(other), notice)
        raise trouble or FormatError(f"{self.path}: has no checkpoint.")

    def found(self, name: str) -> Path:
        """Where a checkpoint is, or what stands for it; its place where there is none."""
        others = {BEST: (HELD_OUT, "last", "previous"), "last": ("previous",), "previous": ("last",)}.get(name, ())
        ways = [self._place(name), self._hidden(name), *map(self._place, others)]
        return next((way for way in ways if way.exists()), ways[0])

    def name_of(self, name: str) -> str:
        """Of the checkpoint that stands for a name: before there is a best one, that which held-out text chose, or else
        the last; before there is a previous one, the last."""
        return self.found(name).name.removeprefix(".")

    def _written(self, checkpoint: "Checkpoint") -> Path:
        from rankspace.training.checkpoints import write_checkpoint

        fresh = self._hidden("unfinished")
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir(parents=True)
        try:
            write_checkpoint(fresh, checkpoint)
        except OSError:
            shutil.rmtree(fresh, ignore_errors=True)  # a part of it is of no use, and takes room
            raise
        return fresh

    def _settle(self, old: Path) -> None:
        flush(self.path / CHECKPOINTS)
        shutil.rmtree(old, ignore_errors=True)

    def _place(self, name: str) -> Path:
        return self.path / CHECKPOINTS / name

    def _hidden(self, name: str) -> Path:
        return self.path / CHECKPOINTS / f".{name}"

    # Metrics.

    def add_metrics(self, record: Mapping[str, Any]) -> None:
        """Adds a line; it must have a `step`. Raises WritingError."""
        with writing(self.path / METRICS), (self.path / METRICS).open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")

    def metrics(self) -> list[dict[str, Any]]:
        """All records; a last line that a kill cut off is left out."""
        records = []
        for line in _read(self.path / METRICS).splitlines():
            try:
                records.append(json.loads(line))
            except ValueError:
                continue
        return records

    def forget_metrics_after(self, step: int, evaluated_step: int) -> None:
        """Leaves the records up to a step, and of evaluations those up to another: those beyond will be made again.
        The final one stays until the run ends anew."""

        def is_kept(record: Mapping[str, Any]) -> bool:
            is_training = record.get("split", TRAINING) == TRAINING
            return bool(record.get(FINAL)) or record["step"] <= (step if is_training else min(step, evaluated_step))

        self._write_metrics(filter(is_kept, self.metrics()))

    def end_metrics(self, record: Mapping[str, Any]) -> None:
        """Adds the final line, in place of that of an earlier end."""
        self._write_metrics([*(each for each in self.metrics() if not each.get(FINAL)), {**record, FINAL: True}])

    def _write_metrics(self, records: Iterable[Mapping[str, Any]]) -> None:
        lines = [json.dumps(record) + "\n" for record in records]
        with whole_file(self.path / METRICS) as file:
            file.write_text("".join(lines), encoding="utf-8")


def seed_folder(output: Path, seed: int) -> Path:
    """Where one of several runs is."""
    return output / f"seed-{seed}"


def seed_of(folder: Path) -> int | None:
    """The seed of a folder that `seed_folder` names; None for any other, such as a copy seed-1.bak."""
    name = SEED.fullmatch(folder.name)
    return int(name[1]) if name else None


def begun_seeds(output: Path) -> list[int]:
    """The seeds of the runs in a folder that is no run itself."""
    if (output / CARD).exists():
        return []
    found = (seed_of(card.parent) for card in output.glob(f"seed-*/{CARD}"))
    return sorted(seed for seed in found if seed is not None)


def is_run(path: Path) -> bool:
    """Whether a folder has the card of a run."""
    try:
        _read_card(path)
    except FormatError:
        return False
    return True


def _read_card(folder: Path) -> dict[str, Any]:
    remedies = {
        "make": "make one with rankspace train",
        "repair": "train again, or bring back the file",
        "upgrade": "use the rankspace that wrote it",
    }
    return read_card(folder / CARD, FORMAT, VERSION, what="a run", **remedies)


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise FormatError(f"{file}: is missing; {BRING_BACK}.") from None
