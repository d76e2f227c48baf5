"""`rankspace train`: what it writes and prints, and one line with exit code 2 for every mistake."""

import errno
import itertools
import json
import math
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

import rankspace
from rankspace.cli import main
from rankspace.seeds import LARGEST_SEED
from rankspace.training import RunDirectory, checkpoints, preset_names
from rankspace.training.evaluator import Evaluated
from rankspace.training.runs import Statistic
from short_memory import lacking


class Ran(NamedTuple):
    code: int
    out: str
    err: str


Run = Callable[..., Ran]

CONFIG = """
[data]
source = "synthetic:30"

[model]
name = "rank-hmm"
states = 4
rank = 3
size = 4

[run]
epochs = 1
log_every = 1
"""


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Runs the command in this process, in a folder of its own, with a configuration, as if output went to a file."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setattr("rankspace.training.keeping.draw_curves", lambda run: None)
    Path("config.toml").write_text(CONFIG)

    def command(*arguments: str) -> Ran:
        with pytest.raises(SystemExit) as left:
            main(("train", *arguments))
        assert isinstance(left.value.code, int)
        return Ran(left.value.code, *capsys.readouterr())

    return command


def test_a_run(run: Run) -> None:
    ran = run("--config", "config.toml", "-o", "out", "--device", "cpu", "--set", "run.max_steps=2", "--seed", "5")
    assert ran.code == 0
    rows = [line.split() for line in ran.out.splitlines()]
    assert ["step", "perplexity", "S-F1", "corpus", "F1", "sentences"] in rows
    assert ["run", "out"] in rows
    assert ran.err.splitlines()[0].startswith("rank-hmm, ")
    assert ran.err.splitlines()[1].startswith("step 1  epoch 1  train  loss ")
    assert sorted(path.name for path in Path("out").iterdir()) == [
        "card.json",
        "checkpoints",
        "config.toml",
        "metrics.jsonl",
        "vocabulary.txt",
    ]
    trained = rankspace.load("out")
    assert (trained.config.run.seed, trained.config.run.max_steps, trained.config.data.source) == (5, 2, "synthetic:30")


def test_what_is_said_of_an_epoch(run: Run) -> None:
    """A line for what it leaves over comes before its evaluation."""
    ran = run("--config", "config.toml", "-o", "out", "--device", "cpu", "--set", "run.log_every=9")
    assert [line.split()[:5] for line in ran.err.splitlines()[1:]] == [
        ["step", "2", "epoch", "1", "train"],
        ["step", "2", "epoch", "1", "valid"],
        ["step", "2", "epoch", "1", "test"],
    ]


def test_json_and_resuming(run: Run) -> None:
    first = run("--config", "config.toml", "-o", "out", "--device", "cpu", "--quiet", "--json")
    assert (first.code, first.err) == (0, "")
    results = json.loads(first.out)
    assert results["directory"] == "out"
    assert results["epochs"] == 1
    more = run("--resume", "-o", "out", "--device", "cpu", "--set", "run.epochs=2", "--json", "--quiet")
    assert json.loads(more.out)["epochs"] == 2
    assert json.loads(more.out)["steps"] == 2 * results["steps"]
    assert RunDirectory.open(Path("out")).metrics()[-1]["epoch"] == 2


def test_seeds(run: Run) -> None:
    ran = run("--config", "config.toml", "-o", "out", "--device", "cpu", "-q", "--json", "--seeds", "1,2,3")
    assert ran.code == 0
    found = json.loads(ran.out)
    assert [each["directory"] for each in found["runs"]] == ["out/seed-1", "out/seed-2", "out/seed-3"]
    values = [each["test"]["perplexity"] for each in found["runs"]]
    summary = found["summary"]["test perplexity"]
    assert summary["mean"] == pytest.approx(sum(values) / 3)
    assert (summary["best"], summary["worst"], summary["num"]) == (min(values), max(values), 3)
    assert json.loads(Path("out/summary.json").read_text())["test perplexity"] == summary
    again = run("--config", "config.toml", "-o", "out", "--device", "cpu", "-q", "--resume", "--seeds", "1,2,3")
    rows = [line.split() for line in again.out.splitlines()]
    shown = [f"{summary[name]:.2f}" for name in ("mean", "deviation", "best", "worst")]
    assert ["test", "perplexity", *shown, "3"] in rows


def test_a_seed_with_an_impossible_sentence(
    run: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its figure is infinite; those of the other seeds are told all the same."""
    found = Evaluated.record

    def spoilt(evaluated: Evaluated) -> dict[str, Any]:
        record = found(evaluated)
        return record | ({"perplexity": "inf"} if next(turn) else {})

    monkeypatch.setattr(Evaluated, "record", spoilt)
    options = ("--config", "config.toml", "-o", "out", "--device", "cpu", "-q", "--seeds", "1,2,3", "--resume")
    turn = itertools.chain([False, True], itertools.repeat(False))  # of valid, then test
    out = run(*options).out
    rows = [line.split() for line in out.splitlines()]
    assert [row[-4:] for row in rows if row[:2] == ["test", "perplexity"]] == [["2,", "and", "1", "infinite"]]
    assert [row[-1] for row in rows if row[:2] == ["valid", "perplexity"]] == ["3"]
    summary = json.loads(Path("out/summary.json").read_text())["test perplexity"]
    results = [RunDirectory.open(Path(f"out/seed-{seed}")).card["results"]["test"] for seed in (1, 2, 3)]
    assert results[0]["perplexity"] == "inf"
    assert summary["mean"] == pytest.approx(sum(each["perplexity"] for each in results[1:]) / 2)
    assert (summary["num"], summary["num_infinite"]) == (2, 1)


def test_seeds_of_which_none_has_a_finite_figure() -> None:
    assert Statistic.of([math.inf, math.inf], min) == Statistic(None, None, None, None, 0, 2)
    assert Statistic.of([3.0], max) == Statistic(3.0, 0.0, 3.0, 3.0, 1)


def test_runs_without_an_evaluation(run: Run) -> None:
    options = ("--config", "config.toml", "--device", "cpu", "-q", "--set", "data.valid=", "--set", "data.test=")
    assert [line.split()[0] for line in run(*options, "-o", "out").out.splitlines()] == ["steps", "run"]
    assert run(*options, "-o", "many", "--seeds", "1,2").out == "2 runs; there is no figure that all of them have\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("-o", "out"), "train: there is no configuration; give --preset NAME, --config FILE, or --resume a run."),
        (("--preset", "demo"), "train: there is no place for the run; give --output DIR."),
        (
            ("--preset", "demo", "--config", "config.toml", "-o", "out"),
            "train: both --preset and --config are given; give one of them.",
        ),
        (
            ("synthetic:20", "--preset", "demo", "-o", "out", "--set", "data.source=synthetic:30"),
            "train: both DATA and --set data.source are given; give one of them.",
        ),
        (
            ("--preset", "demo", "-o", "out", "--set", " run.seed = 3", "--seed", "4"),
            "train: both --seed and --set run.seed are given; give one of them.",
        ),
        (
            ("--preset", "demo", "-o", "out", "--set", "run.seed=3", "--seeds", "4,5"),
            "train: both --seeds and --set run.seed are given; give one of them.",
        ),
        (
            ("--preset", "demo", "-o", "out", "--seed", "3", "--seeds", "4,5"),
            "train: both --seed and --seeds are given; give one of them.",
        ),
        (
            ("--preset", "domo", "-o", "out"),
            f"config: there is no preset 'domo'; there are {', '.join(preset_names())}.",
        ),
        (
            ("--config", "config.toml", "-o", "out", "--set", "run.epoch=3"),
            "config: there is no key run.epoch; did you mean run.epochs?",
        ),
        (
            ("--config", "config.toml", "-o", "out", "--seeds", "1,x"),
            "train: --seeds is '1,x'; give different whole numbers with commas, such as 1,2,3.",
        ),
        (
            ("--config", "config.toml", "-o", "out", "--seeds", "1,99999999999999999999"),
            "train: --seeds has 99999999999999999999; give whole numbers from 0 to 4294967295.",
        ),
        (
            ("--config", "config.toml", "-o", "out", "--seeds", "9" * 5000),
            f"train: --seeds has {'9' * 5000}; give whole numbers from 0 to 4294967295.",
        ),
        (
            ("--config", "config.toml", "-o", "out", "--set", "run.seed=9223372036854775807"),
            "config: run.seed is 9223372036854775807; give at least 0 and at most 4294967295.",
        ),
        (
            ("--config", "config.toml", "-o", "out", "--set", f"run.seed={10**23}"),
            "config: run.seed is 100000000000000000000000; give at least 0 and at most 4294967295.",
        ),
        (
            ("--config", "config.toml", "-o", "out", "--device", "cpu", "--set", "model.rank=99999999999999999999999"),
            "train: the model: no memory holds rank-hmm with model.rank = 99999999999999999999999; lower model.rank.",
        ),
        (
            ("--config", "config.toml", "-o", "out", "--device", "cpu", "--set", "model.size=100000000000"),
            "train: the model: no memory holds rank-hmm with model.size = 100000000000; lower model.size.",
        ),
        (
            ("nowhere", "--config", "config.toml", "-o", "out"),
            "{here}/nowhere: there is no such folder; make it with data prepare.",
        ),
        (
            ("synthetic:many", "--config", "config.toml", "-o", "out"),
            "train: 'synthetic:many' has no number of sentences; write synthetic:2000.",
        ),
        (
            ("--preset", "hmm", "-o", "out"),
            "train: there are no data; give a prepared folder, synthetic or synthetic:SENTENCES.",
        ),
        (
            ("--config", "config.toml", "-o", "config.toml/out"),
            "config.toml/out: 'config.toml' is a file, in which nothing can be; choose another place.",
        ),
        (
            ("--config", "no.toml", "-o", "out"),
            "no.toml: there is no such file; give a configuration in TOML, or --preset NAME.",
        ),
        (
            ("--config", "config.toml", "-o", "out", "--device", "cuda"),
            "train: --device is cuda, but torch sees no CUDA device; use --device cpu.",
        ),
    ],
)
def test_mistakes(run: Run, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], message: str) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    ran = run(*arguments)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == f"error: {message.format(here=Path.cwd())}\n"
    assert not Path("out").exists()


def test_more_digits_than_python_reads(run: Run) -> None:
    digits, most = "9" * 5000, sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(4300)  # Python's default, which other packages change
    try:
        ran = run("--config", "config.toml", "-o", "out", "--set", f"run.seed={digits}")
    finally:
        sys.set_int_max_str_digits(most)
    assert ran == (2, "", f"error: config: run.seed is '{digits}'; give a whole number.\n")


def test_the_largest_seed(run: Run) -> None:
    seed = str(LARGEST_SEED)
    options = ["--config", "config.toml", "--device", "cpu", "-q", "--set", "run.max_steps=1"]
    assert run(*options, "-o", "out", "--seed", seed).code == 0
    assert run(*options, "-o", "many", "--seeds", seed).code == 0
    assert run("--resume", "-o", "out", "--device", "cpu", "-q", "--set", "run.max_steps=2").code == 0


def test_a_device_by_its_number(run: Run) -> None:
    ran = run("--config", "config.toml", "-o", "out", "--device", "cuda:7")
    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert ran.err.startswith("error: Invalid value for '--device': ")
    assert "'cuda:7' is not one of 'auto', 'cpu', 'cuda'; see 'rankspace train --help'." in ran.err


def test_a_model_that_memory_does_not_hold(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.nn.Module.to", lacking)
    ran = run("--config", "config.toml", "-o", "out", "--device", "cpu", "-q")
    message = (
        "train: the model: not enough memory for rank-hmm with 1,148 weights (rank 3, float32): it takes about 18.4 kB"
        ", and 3.8 GB more could not be had; lower model.rank."
    )
    assert ran == (2, "", f"error: {message}\n")


def full_disk(after: int, act: Callable[..., Any]) -> Callable[..., Any]:
    """A function in whose later calls there is no room."""
    calls = itertools.count()

    def acting(*arguments: Any, **options: Any) -> Any:
        if next(calls) >= after:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return act(*arguments, **options)

    return acting


TWO_EPOCHS = ["--config", "config.toml", "--device", "cpu", "-q", "--set", "run.epochs=2"]
NO_ROOM = "cannot be written (No space left on device)"


@pytest.mark.parametrize(
    ("after", "place", "step"), [(2, "checkpoints/best", 0), (3, "checkpoints/last", 0), (5, "checkpoints/best", 2)]
)
def test_a_full_disk(run: Run, monkeypatch: pytest.MonkeyPatch, after: int, place: str, step: int) -> None:
    """The files of a checkpoint are the weights and, but for the best one, what resuming needs; the first checkpoint is
    written with the folder."""
    with monkeypatch.context() as patch:
        patch.setattr("rankspace.training.checkpoints._write", full_disk(after, checkpoints._write))
        ran = run(*TWO_EPOCHS, "-o", "out")
    good = f"the checkpoint of step {step} is in out/checkpoints/last"
    how = "Put that right, and go on with: rankspace train --resume --output out"
    assert ran == (2, "", f"error: out/{place}: {NO_ROOM}; {good}. {how}\n")
    assert RunDirectory.open(Path("out")).read("last", resuming=True).step == step
    assert not Path("out/checkpoints/.unfinished").exists()
    assert run("--resume", "-o", "out", "--device", "cpu", "-q").code == 0
    assert run(*TWO_EPOCHS, "-o", "whole").code == 0
    weights = [RunDirectory.open(Path(name)).read("last").weights for name in ("out", "whole")]
    assert all(torch.equal(one, other) for one, other in zip(*(each.values() for each in weights), strict=True))


def test_a_full_disk_at_a_record(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    opened, full = Path.open, full_disk(0, Path.open)
    with monkeypatch.context() as patch:
        patch.setattr(
            Path, "open", lambda path, mode="r", **rest: (full if mode == "a" else opened)(path, mode, **rest)
        )
        ran = run(*TWO_EPOCHS, "-o", "out", "--seeds", "1,2")
    place, good = "out/seed-1/metrics.jsonl", "the checkpoint of step 0 is in out/seed-1/checkpoints/last"
    how = "Put that right, and go on with the same command and --resume"
    assert ran == (2, "", f"error: {place}: {NO_ROOM}; {good}. {how}\n")
    assert run(*TWO_EPOCHS, "-o", "out", "--seeds", "1,2", "--resume").code == 0


def test_a_disk_that_was_full_before(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is nothing to go on from, and nothing is left."""
    before = sorted(os.listdir())
    monkeypatch.setattr("os.fsync", full_disk(0, os.fsync))
    assert run(*TWO_EPOCHS, "-o", "out") == (2, "", f"error: out: {NO_ROOM}.\n")
    assert sorted(os.listdir()) == before


def test_folders_that_are_there_already(run: Run) -> None:
    """Those of all seeds are looked at before the first run."""
    Path("out/seed-2").mkdir(parents=True)
    ran = run("--config", "config.toml", "-o", "out", "--seeds", "1,2")
    assert ran == (2, "", "error: out/seed-2: exists already; choose another name.\n")
    assert not Path("out/seed-1").exists()
    assert run("--config", "config.toml", "-o", "out") == (2, "", "error: out: exists already; choose another name.\n")


def test_what_may_not_change_is_told_before_the_data_are_read(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run("--config", "config.toml", "-o", "out", "--device", "cpu", "-q").code == 0
    monkeypatch.delattr("rankspace.training.runs.load_data")
    ran = run("--resume", "-o", "out", "--set", "model.rank=9")
    message = "model.rank is 9 but 3 in out/config.toml; leave it as it is to resume, or choose another folder."
    assert ran == (2, "", f"error: train: {message}\n")
    ran = run("--config", "config.toml", "-o", "out")
    assert ran == (2, "", "error: out: exists already; go on with --resume, or choose another name.\n")


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("run.epochs=1", "the run is finished: run.epochs is 1; to go on, raise it, as by --set run.epochs=2"),
        ("run.max_steps=1", "the run is finished: run.max_steps is 1; to go on, raise it, as by --set run.max_steps=2"),
    ],
)
def test_resuming_a_finished_run(run: Run, setting: str, message: str) -> None:
    first = run("--config", "config.toml", "-o", "out", "--device", "cpu", "--set", setting)
    again = run("--resume", "-o", "out", "--device", "cpu")
    assert again.err.splitlines()[1:] == [message]
    assert (again.code, again.out.splitlines()[:-2]) == (0, first.out.splitlines()[:-2])  # but for the seconds


def test_resuming_a_run_that_stopped_early(run: Run) -> None:
    settings = ("run.epochs=9", "evaluation.patience=1", "optimiser.learning_rate=9")
    options = [part for setting in settings for part in ("--set", setting)]
    assert run("--config", "config.toml", "-o", "out", "--device", "cpu", "-q", *options).code == 0
    step = RunDirectory.open(Path("out")).card["results"]["steps"]
    again = run("--resume", "-o", "out", "--device", "cpu")
    message = f"the run is finished at step {step}: no better evaluation in 1; to train longer, begin another"
    assert again.err.splitlines()[1:] == [message]


def test_prepared_data(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    Path("train.txt").write_text("The dog sleeps\nThe cat sleeps\n" * 4)
    with pytest.raises(SystemExit):
        main(("data", "prepare", "train.txt", "-o", "prepared", "--lower-case", "--eos"))
    capsys.readouterr()
    assert run("prepared", "--config", "config.toml", "-o", "out", "--device", "cpu", "-q").code == 0
    trained = rankspace.load("out")
    assert trained.encode([["THE", "Dog"]])[0].tolist() == [[2, 3, 4, 1]] or trained.encode([["THE"]])[1] == [2]
    assert trained.config.data.source == str(Path.cwd() / "prepared")
    for key in ("train", "valid", "held_out", "test"):
        ran = run("prepared", "--config", "config.toml", "-o", "other", "--set", f"data.{key}=dev")
        assert ran == (2, "", "error: prepared data: there is no split 'dev'; there are train.\n")
    options = ["--config", "config.toml", "-o", "other", "--device", "cpu", "-q", "--set", "data.valid="]
    assert run("prepared", *options).code == 0


class TestMovedData:
    """A run goes on wherever its data are, if they are the same."""

    TEXT = "the dog sleeps\nthe cat sleeps\n" * 4

    @pytest.fixture
    def prepare(self, run: Run, capsys: pytest.CaptureFixture[str]) -> Callable[[str, str], None]:
        def command(text: str, output: str) -> None:
            Path("train.txt").write_text(text)
            with pytest.raises(SystemExit):
                main(("data", "prepare", "train=train.txt", "valid=train.txt", "-o", output, "--eos"))
            capsys.readouterr()

        return command

    def test_another_folder_of_the_same_data(self, run: Run, prepare: Callable[[str, str], None]) -> None:
        prepare(self.TEXT, "first")
        whole = run("first", "--config", "config.toml", "-o", "whole", "--set", "run.epochs=2", "-q", "--json")
        assert run("first", "--config", "config.toml", "-o", "out", "-q").code == 0
        Path("first").rename("second")
        ran = run("second", "--resume", "-o", "out", "--set", "run.epochs=2", "-q", "--json")
        assert (ran.code, ran.err) == (0, "")
        assert json.loads(ran.out)["best"]["perplexity"] == json.loads(whole.out)["best"]["perplexity"]
        assert rankspace.load("out").config.data.source == str(Path.cwd() / "second")
        assert run("--resume", "-o", "out", "-q").code == 0

    def test_what_differs_is_told(self, run: Run, prepare: Callable[[str, str], None]) -> None:
        prepare(self.TEXT, "first")
        prepare(self.TEXT * 2, "longer")
        assert run("first", "--config", "config.toml", "-o", "out", "-q").code == 0
        before = Path("out/config.toml").read_text()
        ran = run("longer", "--resume", "-o", "out", "-q")
        here = Path.cwd()
        message = (
            f"train: {here}/longer: split 'train' and split 'valid' differ from what out began with, which was "
            f"{here}/first; give those data, or choose another folder."
        )
        assert ran == (2, "", f"error: {message}\n")
        assert Path("out/config.toml").read_text() == before

    def test_synthetic_sentences_are_no_folder(self, run: Run, prepare: Callable[[str, str], None]) -> None:
        prepare(self.TEXT, "first")
        assert run("--config", "config.toml", "-o", "out", "-q").code == 0
        message = (
            f"data.source is '{Path.cwd()}/first' but 'synthetic:30' in out/config.toml; leave it as it is to resume, "
            f"or choose another folder."
        )
        assert run("first", "--resume", "-o", "out", "-q") == (2, "", f"error: train: {message}\n")

    def test_data_that_are_gone(self, run: Run, prepare: Callable[[str, str], None]) -> None:
        prepare(self.TEXT, "first")
        assert run("first", "--config", "config.toml", "-o", "out", "-q").code == 0
        Path("first").rename("second")
        message = (
            f"{Path.cwd()}/first: there is no such folder, and out began with these data; if they are elsewhere, name "
            f"them: rankspace train FOLDER --resume -o out"
        )
        assert run("--resume", "-o", "out", "-q") == (2, "", f"error: {message}\n")


class TestResumingSeeds:
    def test_all_that_were_begun(self, run: Run) -> None:
        assert run("--config", "config.toml", "-o", "out", "-q", "--seeds", "2,10").code == 0
        Path("out/summary.json").unlink()
        ran = run("--resume", "-o", "out", "--set", "run.epochs=2", "--json")
        assert ran.code == 0
        assert ran.err.splitlines()[0] == "out: going on with what was begun: seed-2, seed-10"
        found = json.loads(ran.out)
        assert [(each["directory"], each["epochs"]) for each in found["runs"]] == [
            ("out/seed-2", 2),
            ("out/seed-10", 2),
        ]
        assert json.loads(Path("out/summary.json").read_text()) == found["summary"]
        assert [rankspace.load(f"out/seed-{seed}").config.run.seed for seed in (2, 10)] == [2, 10]
        assert run("--resume", "-o", "out", "-q").out.splitlines()[1].split()[:2] == ["mean", "standard"]

    def test_each_by_its_own_configuration(self, run: Run) -> None:
        assert run("--config", "config.toml", "-o", "out", "-q", "--seeds", "1,2").code == 0
        assert run("--resume", "-o", "out/seed-2", "-q", "--set", "run.epochs=2").code == 0
        found = json.loads(run("--resume", "-o", "out", "-q", "--json").out)
        assert [each["epochs"] for each in found["runs"]] == [1, 2]

    def test_mistakes(self, run: Run) -> None:
        assert run("--config", "config.toml", "-o", "out", "-q", "--seeds", "1,2").code == 0
        message = (
            "model.rank is 9 but 3 in out/seed-1/config.toml; leave it as it is to resume, or choose another folder."
        )
        assert run("--resume", "-o", "out", "--set", "model.rank=9") == (2, "", f"error: train: {message}\n")
        Path("empty").mkdir()
        message = "empty: is no run: it has no card.json; make one with rankspace train."
        assert run("--resume", "-o", "empty") == (2, "", f"error: {message}\n")
