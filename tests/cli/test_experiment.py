"""`rankspace experiment`: what it prints and writes, and one line with exit code 2 for every mistake."""

import json
import re
import shutil
import signal
from collections.abc import Sequence
from pathlib import Path

import pytest

from cli.tiny_runs import Run
from experiments.raw_files import raw, treebank
from rankspace.experiments import load_table, table_names
from rankspace.experiments.datasets import dataset
from rankspace.experiments.runner import Progress
from rankspace.experiments.statistics import of_runs
from rankspace.training import InterruptionError

ROWS = ", ".join(row.name for row in load_table("hmm-table3").rows)
QUICK = ("experiment", "hmm-table3", "--quick", "--device", "cpu", "-o", "out")


@pytest.fixture(autouse=True)
def no_curves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rankspace.training.keeping.draw_curves", lambda run: None)


def test_the_tables(command: Run) -> None:
    text = command("experiment", "--list").result
    found = {line.split()[0]: line.split(maxsplit=3)[1:] for line in map(str.rstrip, rows_of(text))}
    for name in table_names():
        table = load_table(name)
        num_runs = sum(len(row.seeds) * len(row.data) for row in table.rows)
        assert found.pop(name) == [str(len(table.rows)), str(num_runs), table.title]
    assert not found
    assert command("experiment", "-o", "out") == (0, text, "")  # without a table and anything that a run would be about
    assert not list(Path().iterdir())


def test_how_many_runs_are_done(command: Run) -> None:
    command(*QUICK, "--rows", "states-12,states-14", "--quiet")
    card = Path("out/quick/hmm-table3/synthetic/states-14/seed-1/card.json")
    card.write_text(json.dumps({**json.loads(card.read_text()), "experiment": {"failed": "nan"}}))
    printed = command("experiment", "--list", "--quick", "-o", "out").result
    tables = rows_of(printed)
    assert ["table", "rows", "runs", "done", "in", "out"] in [line.split() for line in printed.splitlines()]
    assert [line.split()[1:6] for line in tables if "hmm-table3" in line] == [["4", "4", "1,", "1", "failed"]]
    assert [line.split()[1:4] for line in tables if "hmm-table2" in line] == [["14", "14", "0"]]
    rows = rows_of(command("experiment", "hmm-table3", "--list", "--quick", "-o", "out").result)
    assert {line.split()[0]: line.partition("ptb-text")[2].split() for line in rows} == {
        **{row.name: ["1", "0"] for row in load_table("hmm-table3").rows},
        "states-12": ["1", "1"],
        "states-14": ["1", "0,", "1", "failed"],
    }
    found = json.loads(command("experiment", "hmm-table3", "--list", "--json", "--quick", "-o", "out").result)
    assert {row["name"]: (row["done"], row["failed"]) for row in found["hmm-table3"]}["states-14"] == (0, 1)


def test_that_sentences_are_synthetic_is_told_before_the_first_run(
    command: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rankspace.experiments.runner.Runner.run", lambda self, job, minutes: self.say(job.title))
    asked = ("experiment", "hmm-table3", "--rows", "states-12", "--seeds", "1", "--device", "cpu", "-o", "out")
    assert command(*asked).err.splitlines() == [
        "synthetic sentences of the package, for there were no data; figures mean nothing beside the paper's; give "
        "--data for those of the table",
        "states-12 on synthetic, seed 1",
        "0 of 1 runs are done; go on with the same command",
    ]
    assert command(*asked, "--quiet").err == ""
    assert command(*asked, "--quick").err.splitlines()[0] == "states-12 on synthetic, seed 1"


def test_copies_of_runs_are_no_runs(command: Run) -> None:
    command(*QUICK, "--rows", "states-12", "--quiet")
    run = Path("out/quick/hmm-table3/synthetic/states-12/seed-1")
    for name in ("seed-1.bak", "seed-abc", "seed-01", "seed-"):
        shutil.copytree(run, run.with_name(name))
    found = json.loads(command("experiment", "hmm-table3", "--list", "--json", "--quick", "-o", "out").result)
    assert {row["name"]: row["done"] for row in found["hmm-table3"]}["states-12"] == 1
    [row] = json.loads(command(*QUICK, "--rows", "states-12", "--quiet", "--json").result)["rows"]
    assert [each["seed"] for each in row["runs"]] == [1]


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


def test_a_row_is_a_line_where_it_is_not_read_by_people(command: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS")
    output = "a-folder-with-a-name-that-is-longer-than-the-eighty-letters-of-a-line-on-a-common-terminal"
    found = command(*QUICK[:-1], output, "--rows", "states-12").result
    assert rows_of(found)[0].split()[:5] == ["states-12", "synthetic", "1", "of", "1"]
    assert rows_of(found)[-1].rstrip() == f"record  {output}/quick/experiment-hmm-table3.json"
    listed = command("experiment", "hmm-table3", "--list").result
    assert len(rows_of(listed)) == len(load_table("hmm-table3").rows)


def test_some_rows_are_listed(command: Run) -> None:
    found = command("experiment", "hmm-table3", "--list", "--rows", "states-15,states-12").result
    assert [line.split()[0] for line in rows_of(found)] == ["states-12", "states-15"]


def rows_of(printed: str) -> list[str]:
    """Lines after the rule below the names of columns."""
    lines = printed.splitlines()
    rule = next(place for place, line in enumerate(lines) if line.startswith("───"))
    return lines[rule + 1 :]


def test_seeds_are_of_those_planned_and_those_there_are(command: Run) -> None:
    command(*QUICK, "--rows", "states-12", "--quiet")
    found = command(*QUICK, "--rows", "states-12", "--seeds", "3", "--quiet").result
    assert rows_of(found)[0].split()[:5] == ["states-12", "synthetic", "2", "of", "2"]


@pytest.mark.parametrize(
    ("perplexities", "cell"),
    [((100.0, 102.0), "101.00 +- 1.41"), ((100.0, "inf"), "100.00, 1 infinite"), (("inf", "inf"), "2 infinite")],
)
def test_infinite_perplexities_are_counted(
    command: Run, monkeypatch: pytest.MonkeyPatch, perplexities: tuple[float | str, ...], cell: str
) -> None:
    runs = [
        {"seed": n, "state": "finished", "seconds": 60, "evaluations": [], "scores": {"test": {"perplexity": each}}}
        for n, each in enumerate(perplexities)
    ]
    row = {"name": "states-12", "data": "ptb-text", "planned_seeds": [0, 1], "runs": runs}
    record = {"rows": [{**row, "statistics": of_runs(runs, None)}]}
    monkeypatch.setattr("rankspace.experiments.runner.run_table", lambda *_: Progress(record, 2, 2))
    monkeypatch.delenv("COLUMNS")
    line = rows_of(command(*QUICK).result)[0]
    cells = ["states-12", "ptb-text", "2 of 2", "-", cell, "-", "-", "-", "-", "1.00 +- 0.00"]
    assert re.split("  +", line.strip()) == cells


def test_grammars_stand_beside_right_branching_trees(command: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two seeds of three are below; one that is under way has no scores."""
    scores = {"perplexity": 200.0, "bounds": {"right_branching": {"s_f1": 37.456}}}
    run = {"state": "finished", "seconds": 60, "evaluations": []}
    runs = [{**run, "seed": 0, "state": "under way", "scores": {}}] + [
        {**run, "seed": n, "scores": {"test": {**scores, "s_f1": s_f1}}} for n, s_f1 in enumerate((30, 50, 37), start=1)
    ]
    row = {"name": "n-pcfg", "data": "ptb", "planned_seeds": [0, 1, 2, 3], "runs": runs}
    together = {"runs": {"n-pcfg": [1, 2, 3]}, "checkpoint": "best", "scores": {"test": {"s_f1": 41.5}}}
    record = {"rows": [{**row, "statistics": of_runs(runs, None), "together": together}]}
    monkeypatch.setattr("rankspace.experiments.runner.run_table", lambda *_: Progress(record, 3, 4))
    monkeypatch.delenv("COLUMNS")
    _, heading, _, line, *_ = (re.split("  +", each.strip()) for each in command(*QUICK).result.splitlines())
    assert dict(zip(heading, line, strict=True)) == {
        "row": "n-pcfg",
        "data": "ptb",
        "seeds": "3 of 4",
        "perplexity valid": "-",
        "perplexity test": "200.00 +- 0.00",
        "S-F1 valid": "-",
        "S-F1 test": "39.00 +- 10.15",
        "seeds together": "41.50",
        "right-branching test": "37.46",
        "collapsed test": "2",
        "minutes": "1.00 +- 0.00",
    }


@pytest.mark.parametrize("there", [(2, 22, 23), range(2, 23)])
def test_a_part_of_the_treebank(command: Run, monkeypatch: pytest.MonkeyPatch, there: Sequence[int]) -> None:
    """It is told before torch is asked for, and nothing is written."""
    monkeypatch.delattr("rankspace.cli.experiment.device_name")
    treebank(Path("wsj"), *there)
    ran = command("experiment", "pcfg-table1", "--data", "wsj")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("error: experiment: wsj: has sections of the treebank but not ")
    assert [path.name for path in Path().iterdir()] == ["wsj"]


def test_other_data_than_those_that_are_prepared(command: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is told before torch is asked for, and no data set is left out for it."""
    monkeypatch.delattr("rankspace.cli.experiment.device_name")
    dataset("craft", raw(Path("raw")), Path("out/data"), 0)
    Path("raw/trees/craft.dev.mrg").write_text("( (S (NN dog)) )")
    assert command("experiment", "pcfg-table1", "--data", "raw", "-o", "out") == (
        2,
        "",
        "error: experiment: out/data/craft: was prepared from other files than trees/craft.dev.mrg in raw; leave out "
        "--data to go on with it, remove it and the runs on it, or give another --output.\n",
    )


def test_data_sets_by_name(command: Run) -> None:
    ran = command("experiment", "pcfg-table1", "--quick", "--on", "craft, ptb", "--rows", "n-pcfg", "-o", "out")
    assert rows_of(ran.result)[0].split()[:2] == ["n-pcfg", "synthetic"]


def test_a_signal(command: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(*arguments: object) -> None:
        raise InterruptionError("stopped at step 3; go on with: rankspace train --resume", signal.SIGINT)

    monkeypatch.setattr("rankspace.experiments.runner.run_table", stopped)
    assert command(*QUICK) == (130, "", "stopped at step 3; go on with the same command\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--quick",), "experiment: there is no table; give the NAME of one, as --list shows them."),
        (("--data", "raw"), "experiment: there is no table; give the NAME of one, as --list shows them."),
        (("table-2",), f"experiment: there is no table 'table-2'; there are {', '.join(table_names())}."),
        (("table-2", "--list"), f"experiment: there is no table 'table-2'; there are {', '.join(table_names())}."),
        (("hmm-table3", "--rows", "states-11"), f"experiment: hmm-table3 has no row 'states-11'; there are {ROWS}."),
        (
            ("hmm-table3", "--list", "--rows", "states-11"),
            f"experiment: hmm-table3 has no row 'states-11'; there are {ROWS}.",
        ),
        (
            ("--list", "--rows", "states-12"),
            "experiment: --rows are of no table; give the NAME of one before --list.",
        ),
        (
            ("pcfg-table1", "--on", "craft,gum", "--rows", "n-pcfg"),
            "experiment: no row asked for of pcfg-table1 is on 'gum'; they are on ptb, craft.",
        ),
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


def test_a_file_in_place_of_the_output_folder(command: Run) -> None:
    Path("letter").touch()
    ran = command("experiment", "hmm-table3", "--quick", "-o", "letter")
    assert ran == (2, "", "error: letter: is a file; give the name of a folder.\n")
