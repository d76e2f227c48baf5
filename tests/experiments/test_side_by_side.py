"""Several runs of a table at once: real processes, with the results of runs alone, stopped and gone on with."""

import json
import multiprocessing
import os
import runpy
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from rankspace.errors import NotEnoughMemoryError, RankspaceError
from rankspace.experiments import load_table, side_by_side, table_names
from rankspace.experiments.jobs import Request, plan
from rankspace.experiments.record import options_of_row
from rankspace.experiments.runner import Runner, run_table
from rankspace.training import RunDirectory
from rankspace.training.progress import Quiet

ROOT = Path(__file__).parents[2]
ROWS = ("states-12", "states-13")


def request(output: Path, **options: Any) -> Request:
    return Request("hmm-table3", output, **{"rows": ROWS, "seeds": (1,), "quick": True, **options})


def three_runs(output: Path) -> Request:
    """One more than run at once."""
    return request(output, rows=ROWS[:1], seeds=(1, 2, 3))


def test_runs_end_as_alone(tmp_path: Path) -> None:
    asked = [request(tmp_path / name) for name in ("alone", "together")]
    alone, together = run_table(asked[0]), run_table(asked[1], workers=2)
    assert together.is_complete
    assert json.loads(asked[1].file.read_text()) == together.record
    for one, other in zip(plan(asked[0]).jobs, plan(asked[1]).jobs, strict=True):
        mine, theirs = (RunDirectory.open(job.folder).read("best").weights for job in (one, other))
        assert all(torch.equal(mine[name], theirs[name]) for name in mine)
    for before, after in zip(alone.record["rows"], together.record["rows"], strict=True):
        assert before["runs"][0]["scores"] == after["runs"][0]["scores"]
        assert (before["runs"][0]["sharing"], after["runs"][0]["sharing"]) == (1, 2)


def test_a_run_that_cannot_be_made_does_not_stop_the_one_beside_it(tmp_path: Path) -> None:
    asked = request(tmp_path)
    first, second = plan(asked).jobs
    first.folder.mkdir(parents=True)
    (first.folder / "card.json").write_text("{}")
    with pytest.raises(RankspaceError) as caught:
        run_table(asked, workers=2)
    assert str(first.folder) in str(caught.value)
    assert second.entry is not None
    assert [row["name"] for row in json.loads(asked.file.read_text())["rows"]] == [second.row.name]


def test_a_process_that_is_killed_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rankspace.experiments.side_by_side._run", die)
    with pytest.raises(RankspaceError) as caught:
        run_table(request(tmp_path), workers=2)
    assert str(caught.value).endswith("ended with exit code 7; run the same command again to go on.")


def die(*_: Any) -> None:
    os._exit(7)


@pytest.mark.parametrize("error", [MemoryError(), NotEnoughMemoryError("train: step 1: not enough memory.")])
def test_memory_that_others_take_is_no_failure_of_a_run(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = request(tmp_path, rows=ROWS[:1])
    run_table(asked, minutes=1e-6)
    [job] = plan(asked).jobs

    def greedy(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr("rankspace.experiments.runner.train", greedy)
    with pytest.raises(RankspaceError) as caught:
        Runner(asked, "cpu", Quiet, lambda _: None, sharing=3).run(job, 1.0)
    assert str(caught.value) == (
        "experiment: states-12 on synthetic, seed 1: not enough memory beside 2 other runs; give fewer --jobs."
    )
    assert job.entry is None
    assert RunDirectory.open(job.folder).card["sharing"] == 3


def test_a_run_whose_parent_is_gone_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = multiprocessing.Pipe()
    sent: list[int] = []
    monkeypatch.setattr(multiprocessing, "parent_process", lambda: SimpleNamespace(sentinel=ours))
    monkeypatch.setattr(os, "kill", lambda _, number: sent.append(number))
    waiting = threading.Thread(target=side_by_side._stop_without_parent)
    waiting.start()
    assert sent == []
    theirs.close()
    waiting.join(60)
    assert sent == [signal.SIGTERM]


@pytest.mark.skipif(os.name != "posix", reason="signals are those of POSIX")
def test_a_signal_stops_and_saves_all(tmp_path: Path) -> None:
    """As long as a run at toy size takes: the signal is sent when both have begun, and comes through before they end or
    after; either way the same command goes on to the same end."""
    command = [sys.executable, "-m", "rankspace", "experiment", "hmm-table3", "--quick", "--jobs", "2"]
    command += ["--rows", ROWS[0], "--seeds", "1,2,3", "-o", str(tmp_path)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, env=environment)
    asked = three_runs(tmp_path)
    jobs = plan(asked).jobs
    while not any(job.folder.exists() for job in jobs) and process.poll() is None:
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 128 + signal.SIGTERM
    assert errors.splitlines()[-1] == "stopped; go on with the same command"
    assert not all(job.entry is not None for job in jobs)
    for job in jobs:
        if job.folder.exists():  # a run that had ended by then keeps its best checkpoint alone
            assert RunDirectory.open(job.folder).read("last" if job.entry is None else "best").weights
    assert run_table(asked, workers=2).is_complete


@pytest.mark.skipif(os.name != "posix", reason="signals are those of POSIX")
@pytest.mark.parametrize("seconds", [0.0, 0.2, 0.5])
def test_ctrl_c_while_a_process_begins(seconds: float, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """It is importing, which takes longer, and ends without a word."""
    asked = request(tmp_path)
    job = plan(asked).jobs[0]
    run = side_by_side._Run.start(job, side_by_side.Orders(asked, "cpu", time.time() + 60, False, 1))
    time.sleep(seconds)
    run.signal(signal.SIGINT)
    assert isinstance(run.outcome(), RankspaceError)
    assert (run.process.exitcode, capfd.readouterr().err) == (-signal.SIGINT, "")
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, [])


def test_after_the_time_nothing_begins(tmp_path: Path) -> None:
    asked = three_runs(tmp_path)
    found = run_table(asked, workers=2, minutes=1e-6)
    assert found.num_done == 0
    assert sum(job.folder.exists() for job in plan(asked).jobs) <= 2
    assert run_table(asked, workers=2).is_complete


class TestUnitingRecords:
    def merged(self, *records: dict[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = runpy.run_path(str(ROOT / "benchmarks" / "merge_records.py"))["merged"](list(records))
        return found

    def test_rows_and_seeds(self, tmp_path: Path) -> None:
        """Two folders with a row each and one seed in common; the whole equals what one folder gives."""
        one = run_table(request(tmp_path / "one", rows=("states-13",), seeds=(1, 2))).record
        other = run_table(request(tmp_path / "other", seeds=(1,))).record
        found = self.merged(one, other)
        assert [(row["name"], [run["seed"] for run in row["runs"]]) for row in found["rows"]] == [
            ("states-12", [1]),
            ("states-13", [1, 2]),
        ]
        assert found["rows"][1]["statistics"]["num"] == 2
        assert found["rows"][1]["statistics"]["splits"]["test"]["perplexity"]["num"] == 2
        assert self.merged(found, found)["rows"] == found["rows"]

    def test_what_is_further_on_counts(self, tmp_path: Path) -> None:
        record = run_table(request(tmp_path, rows=("states-12",))).record
        begun = json.loads(json.dumps(record))
        begun["rows"][0]["runs"][0] |= {"state": "under way", "scores": {}}
        for records in ((record, begun), (begun, record)):
            assert self.merged(*records)["rows"][0]["runs"] == record["rows"][0]["runs"]

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"quick": False}, "some of these records are of --quick and some are not; give one kind."),
            ({"name": "gone"}, "hmm-table3 has no row 'gone'; leave it out, or give it the name it has."),
            ({"config": {}}, "states-12: these are runs of different configurations; give those of one."),
        ],
    )
    def test_what_does_not_belong_together(self, tmp_path: Path, changes: dict[str, Any], message: str) -> None:
        record = run_table(request(tmp_path, rows=("states-12",)), minutes=1e-6).record
        other = json.loads(json.dumps(record))
        (other if "quick" in changes else other["rows"][0]).update(changes)
        with pytest.raises(SystemExit) as caught:
            self.merged(record, other)
        assert str(caught.value) == message

    def test_options_that_a_record_does_not_know_have_their_defaults(self, tmp_path: Path) -> None:
        record = run_table(request(tmp_path, rows=("states-12",))).record
        older = json.loads(json.dumps(record))
        del older["rows"][0]["config"]["optimiser.average"]
        assert self.merged(older, record)["rows"] == self.merged(record)["rows"]
        older["rows"][0]["config"]["optimiser.average"] = 0.5
        with pytest.raises(SystemExit, match="different configurations"):
            self.merged(older, record)

    def test_runs_of_a_model_that_has_changed_are_left_out(self, tmp_path: Path) -> None:
        record = run_table(request(tmp_path, rows=("states-12",), seeds=(1,))).record
        former = json.loads(json.dumps(record))
        former["rows"][0] |= {"weights": 1, "runs": [{**record["rows"][0]["runs"][0], "seed": 2}]}
        [row] = self.merged(former, record)["rows"]
        assert (row["weights"], [run["seed"] for run in row["runs"]]) == (record["rows"][0]["weights"], [1])

    def test_what_runs_parse_together(self) -> None:
        """It is kept where all of these runs are, whichever record has it, and is of one table alone."""
        results = ROOT / "benchmarks" / "results"
        small, large = (
            json.loads((results / f"experiment-{name}.json").read_text()) for name in ("pcfg-recipe", "pcfg-table1")
        )
        without = json.loads(json.dumps(small)) | {"together": {}}
        for row in without["rows"]:
            row["together"] = None
        for records in ((small, without), (without, small)):
            found = self.merged(*records)
            assert found["together"] == small["together"]
            assert [row["together"] for row in found["rows"]] == [row.get("together") for row in small["rows"]]
        fewer = json.loads(json.dumps(small))
        [row] = [row for row in fewer["rows"] if row["name"] == "long"]
        del row["runs"][0]
        found = self.merged(fewer)
        assert found["together"] == {}
        assert [row["together"] for row in found["rows"] if row["name"] == "long"] == [None]
        merge = runpy.run_path(str(ROOT / "benchmarks" / "merge_records.py"))["merged"]
        assert merge([{**large, "together": {}}], [small])["together"] == {}

    def test_what_several_seeds_parse_together(self) -> None:
        """That of most of them is kept, of equally many that of the later record, and none of a former model."""
        small = json.loads((ROOT / "benchmarks" / "results" / "experiment-pcfg-recipe.json").read_text())
        small["rows"], small["together"] = [row for row in small["rows"] if row["name"] == "all-lengths"], {}

        def having(seeds: list[int], **changes: Any) -> dict[str, Any]:
            record = json.loads(json.dumps(small))
            together = {"runs": {"all-lengths": seeds}, "checkpoint": "best", "scores": {}}
            record["rows"][0] |= {"together": together, **changes}
            return record

        def kept(*records: dict[str, Any]) -> Any:
            [row] = self.merged(*records)["rows"]
            return row["together"] and row["together"]["runs"]["all-lengths"]

        assert kept(having([1, 2, 3]), having([2, 3])) == [1, 2, 3]
        assert kept(having([1, 2]), having([2, 3])) == [2, 3]
        assert kept(having([1, 2], weights=1), having([2, 3], together=None)) is None

    def test_notes_are_kept(self, tmp_path: Path) -> None:
        record = run_table(request(tmp_path, rows=("states-12",)), minutes=1e-6).record
        assert self.merged({**record, "note": "One."}, {**record, "note": "Two."}, record)["note"].startswith(
            "One. Two."
        )

    def test_a_run_counts_for_every_row_of_its_configuration(self) -> None:
        """Of two rows of another table one has a configuration of this one, but for options of the machine."""
        row = next(row for row in load_table("hmm-table2").rows if row.name == "best-14")
        config = options_of_row(row.config)
        run = {"seed": 1, "state": "finished", "scores": {}, "evaluations": [], "seconds": 1.0, "steps": 1}
        lent = {"data": "ptb-text", "config": config, "runs": [run], "title": "", "weights": 1}
        rows = [{**lent, "name": "theirs"}, {**lent, "name": "other", "config": {**config, "model.rank": 3}}]
        other = {"table": "hmm-recipe", "quick": False, "note": "Theirs.", "data": {"ptb-text": {}}, "rows": rows}
        own = {**other, "table": "hmm-table2", "note": "", "data": {}, "rows": []}
        found: dict[str, Any] = runpy.run_path(str(ROOT / "benchmarks" / "merge_records.py"))["merged"]([own], [other])
        assert [(each["name"], each["title"]) for each in found["rows"]] == [("best-14", row.title)]
        assert found["rows"][0]["runs"] == [run]
        assert (found["note"], found["data"]) == ("", {"ptb-text": {}})

    def test_records_of_several_tables(self) -> None:
        with pytest.raises(SystemExit) as caught:
            self.merged({"table": "hmm-table3"}, {"table": "hmm-table2"})
        assert str(caught.value) == "these are records of several tables: hmm-table2, hmm-table3; give those of one."

    @pytest.mark.parametrize(
        ("contents", "message"),
        [
            (None, "one.json: cannot be read (No such file or directory); give records of rankspace experiment."),
            ("{", "one.json: is damaged (no JSON); leave it out, or make it again."),
            ('{"table": "hmm-table3"}', "one.json: is no record of rankspace experiment; leave it out."),
            (
                '{"table": "gone", "quick": false, "rows": [], "data": {}, "note": ""}',
                f"experiment: there is no table 'gone'; there are {', '.join(table_names())}.",
            ),
        ],
    )
    def test_files_that_are_no_records(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, contents: str | None, message: str
    ) -> None:
        monkeypatch.chdir(tmp_path)
        if contents is not None:
            Path("one.json").write_text(contents)
        monkeypatch.setattr("sys.argv", ["merge_records.py", "out.json", "one.json"])
        with pytest.raises(SystemExit) as caught:
            runpy.run_path(str(ROOT / "benchmarks" / "merge_records.py"), run_name="__main__")
        assert caught.value.code == message
        assert not Path("out.json").exists()
