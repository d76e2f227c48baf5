"""`rankspace experiment`: what it prints and writes, and one line with exit code 2 for every mistake."""

import json
import signal
from pathlib import Path

import pytest

from cli.tiny_runs import Run
from rankspace.experiments import load_table, table_names
from rankspace.training import InterruptionError

ROWS = ", ".join(row.name for row in load_table("hmm-table3").rows)
QUICK = ("experiment", "hmm-table3", "--quick", "--device", "cpu", "-o", "out")


@pytest.fixture(autouse=True)
def no_curves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rankspace.training.keeping.draw_curves", lambda run: None)


def test_the_tables(command: Run) -> None:
    rows = [line.split()[:3] for line in command("experiment", "--list").result.splitlines()]
    for name in table_names():
        table = load_table(name)
        assert [name, str(len(table.rows)), table.title.split()[0]] in rows


def test_the_rows_of_a_table(command: Run) -> None:
    lines = command("experiment", "pcfg-table1", "--list").result.splitlines()
    assert [line.split()[-1] for line in lines if line.startswith("rank-pcfg ")] == ["1,2,3,4,5"]
    found = json.loads(command("experiment", "pcfg-table1", "--list", "--json").result)
    assert list(found) == ["pcfg-table1"]
    first = found["pcfg-table1"][0]
    assert (first["name"], first["extends"], first["paper"]) == ("rank-pcfg", "paper-pcfg", {"s_f1": 64.1})
    assert first["reproduction"] == {"s_f1": 57.4, "deviation": 6.0, "num": 32}
    assert not list(Path().iterdir())


def test_a_table_in_parts(command: Run) -> None:
    first = command(*QUICK, "--rows", "states-12,states-14", "--minutes", "0.000001")
    assert first.result.split()[-2:] == ["record", "out/quick/experiment-hmm-table3.json"]
    lines = first.err.splitlines()
    assert lines[:2] == ["reading synthetic", "states-12 on synthetic, seed 1"]
    assert lines[-1] == "0 of 2 runs are done; go on with the same command"
    second = command(*QUICK, "--rows", "states-12,states-14", "--quiet", "--json")
    assert second.err == ""
    record = json.loads(second.result)
    assert record == json.loads(Path("out/quick/experiment-hmm-table3.json").read_text())
    assert [(row["name"], row["statistics"]["num"]) for row in record["rows"]] == [("states-12", 1), ("states-14", 1)]
    third = command(*QUICK, "--rows", "states-14", "--seeds", "1,2")
    assert third.err.splitlines()[0] == "1 of 2 runs are done already"
    cells = [line.split() for line in third.result.splitlines()]
    assert ["states-14", "synthetic", "2", "of", "2"] in [line[:5] for line in cells]


def test_a_signal(command: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(*arguments: object) -> None:
        raise InterruptionError("stopped at step 3; go on with: rankspace train --resume", signal.SIGINT)

    monkeypatch.setattr("rankspace.experiments.runner.run_table", stopped)
    assert command(*QUICK) == (130, "", "stopped at step 3; go on with the same command\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--quick",), "experiment: there is no table; give the NAME of one, as --list shows them."),
        (("table-2",), f"experiment: there is no table 'table-2'; there are {', '.join(table_names())}."),
        (("table-2", "--list"), f"experiment: there is no table 'table-2'; there are {', '.join(table_names())}."),
        (("hmm-table3", "--rows", "states-11"), f"experiment: hmm-table3 has no row 'states-11'; there are {ROWS}."),
        (
            ("hmm-table3", "--seeds", "1,1"),
            "experiment: --seeds is '1,1'; give different whole numbers with commas, such as 1,2,3.",
        ),
        (("hmm-table3", "--minutes", "0"), "experiment: --minutes is 0; give a number above 0."),
        (("hmm-table3", "--jobs", "0"), "experiment: --jobs is 0; give 1 or more."),
        (
            ("hmm-table3", "--quick", "--data", "raw"),
            "experiment: --quick is on synthetic sentences; leave out --data.",
        ),
        (
            ("hmm-table3", "--data", "raw"),
            "experiment: raw: there is no such folder; give that of the raw files.",
        ),
        (
            ("hmm-table3", "--data", "."),
            "experiment: .: ptb-text needs lm/ptb/ptb.train.txt, lm/ptb/ptb.valid.txt, lm/ptb/ptb.test.txt, which are "
            "not there; add them, or leave out --data for synthetic sentences.",
        ),
        (("hmm-table3", "--device", "cuda"), "experiment: device 'cuda' is not to be had here; use cpu."),
    ],
)
def test_mistakes(command: Run, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], message: str) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert command("experiment", *arguments) == (2, "", f"error: {message}\n")
    assert not list(Path().iterdir())
