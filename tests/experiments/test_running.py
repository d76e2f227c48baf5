"""Tables are run row by row, stopped and gone on with, and what is done stays done."""

import errno
import json
import math
import os
import shutil
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from experiments.raw_files import raw, treebank
from rankspace.errors import RankspaceError
from rankspace.evaluation import score
from rankspace.experiments import jobs
from rankspace.experiments.datasets import dataset
from rankspace.experiments.jobs import Request, plan
from rankspace.experiments.runner import run_table
from rankspace.experiments.toy import NUM_SENTENCES, toy_row
from rankspace.training import RunDirectory, TimeUpError, Together, load, train
from rankspace.training.epochs import Share
from rankspace.training.step import GradientStep, Task


def request(output: Path, name: str, *rows: str, **options: Any) -> Request:
    return Request(name, output, rows=rows, **{"quick": True, **options})


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return dict(RunDirectory.open(folder).read("best").weights)


@pytest.mark.parametrize(
    ("name", "row", "splits"),
    [
        ("hmm-table2", "recipe-xavier", ["valid", "test"]),
        ("hmm-table3", "states-12", ["valid", "test"]),
        ("pcfg-table1", "rank-pcfg-code", ["valid", "test", "all", "held-out", "text-test"]),
        ("pcfg-figure6", "preterminals-1000", ["valid", "test", "all", "held-out", "text-test"]),
    ],
)
def test_a_row_of_each_table(tmp_path: Path, name: str, row: str, splits: list[str]) -> None:
    asked = request(tmp_path, name, row)
    found = run_table(asked)
    assert (found.num_done, found.num_jobs, found.is_complete) == (1, 1, True)
    assert json.loads((tmp_path / "quick" / f"experiment-{name}.json").read_text()) == found.record
    assert found.record["environment"].keys() >= {"commit", "device", "torch", "python", "rankspace"}
    assert "synthetic" in found.record["note"]
    assert found.record["data"]["synthetic"]["preset"] == "synthetic"
    [entry] = found.record["rows"]
    assert (entry["name"], entry["data"], entry["statistics"]["num"]) == (row, "synthetic", 1)
    assert "data.source" not in entry["config"]
    [run] = entry["runs"]
    assert (run["seed"], run["state"], len(run["evaluations"])) == (1, "finished", 2)
    assert (entry["config"]["run.precision"], run["precision"]) == ("auto", [{"step": 0, "precision": "highest"}])
    assert list(run["scores"]) == splits
    assert all(0 < each["elapsed"] <= run["seconds"] for each in run["evaluations"])
    has_trees = [split for split in splits if "s_f1" in run["scores"][split]]
    assert has_trees == ([] if name.startswith("hmm") else ["valid", "test", "all"])
    for split in has_trees:
        assert run["scores"][split].keys() >= {"s_f1_longer", "corpus_f1", "bounds", "perplexity"}
        by_label = run["scores"][split]["by_label"]
        assert 2 < len(by_label) <= 8
        assert all(each["num_gold"] and 0 <= each["recall"] <= 100 for each in by_label.values())


def test_scores_are_those_of_the_best_checkpoint(tmp_path: Path) -> None:
    found = run_table(request(tmp_path, "hmm-table3", "states-13"))
    [run] = found.record["rows"][0]["runs"]
    chosen = next(each for each in run["evaluations"] if each["step"] == run["chosen"]["step"])
    assert run["scores"]["valid"]["perplexity"] == pytest.approx(chosen["perplexity"], rel=1e-6)


def test_where_trees_choose_a_checkpoint_held_out_text_chooses_another(tmp_path: Path) -> None:
    found = run_table(request(tmp_path, "pcfg-table1", "rank-pcfg"))
    [run] = found.record["rows"][0]["runs"]
    metrics = RunDirectory.open(next(tmp_path.glob("**/card.json")).parent).metrics()
    by_text = {record["step"]: record["perplexity"] for record in metrics if record["split"] == "held-out"}
    assert len(by_text) == len(run["evaluations"]) == 2
    assert run["by_text"]["step"] == min(by_text, key=lambda step: by_text[step])
    scores = run["by_text"]["scores"]
    assert scores.keys() == run["scores"].keys()
    assert scores["held-out"]["perplexity"] == pytest.approx(min(by_text.values()), rel=1e-6)
    assert 0 <= scores["test"]["s_f1"] <= 100


def test_a_chain_has_one_chosen_checkpoint(tmp_path: Path) -> None:
    found = run_table(request(tmp_path, "hmm-table3", "states-12"))
    assert "by_text" not in found.record["rows"][0]["runs"][0]


def test_a_stopped_row_goes_on_to_the_same_weights(tmp_path: Path) -> None:
    """Every call has time for one step, and for no other run after the one that it ends."""
    rows = ("best-14", "lhmm-14")
    asked = request(tmp_path / "stopped", "hmm-table2", *rows)
    whole = run_table(request(tmp_path / "whole", "hmm-table2", *rows)).record
    first = run_table(asked, minutes=1e-9)
    assert (first.num_done, first.is_complete) == (0, False)
    assert [run["state"] for row in first.record["rows"] for run in row["runs"]] == ["under way"]
    num_calls = 1
    while not (found := run_table(asked, minutes=1e-9)).num_done:
        num_calls += 1
    assert (num_calls, found.num_done, len(found.record["rows"])) == (4, 1, 1)
    found = run_table(asked)
    for row in rows:
        one, other = (tmp_path / name / "quick/hmm-table2/synthetic" / row / "seed-1" for name in ("whole", "stopped"))
        assert RunDirectory.open(one).read("best").step == 4  # the last one
        assert weights(one).keys() == weights(other).keys()
        assert all(torch.equal(tensor, weights(other)[name]) for name, tensor in weights(one).items())
    for mine, others in zip(whole["rows"], found.record["rows"], strict=True):
        assert mine["runs"][0]["scores"] == others["runs"][0]["scores"]


def test_a_row_goes_on_in_the_precision_it_was_begun_in(tmp_path: Path) -> None:
    asked = request(tmp_path, "hmm-table3", "states-12")
    run_table(asked, minutes=1e-9)
    file = tmp_path / "quick/hmm-table3/synthetic/states-12/seed-1/config.toml"
    text = file.read_text()
    file.write_text(text.replace('precision = "auto"', 'precision = "medium"'))
    [row] = run_table(asked).record["rows"]
    assert (row["runs"][0]["state"], row["config"]["run.precision"]) == ("finished", "medium")


def test_a_row_has_the_precision_it_says(tmp_path: Path) -> None:
    [row] = run_table(request(tmp_path, "precision", "hmm-medium", seeds=(1,))).record["rows"]
    assert row["runs"][0]["precision"] == [{"step": 0, "precision": "medium"}]


def test_time_ends_a_run_after_its_step(tmp_path: Path) -> None:
    [job] = plan(request(tmp_path, "hmm-table3", "states-12")).jobs
    config = job.row.config.changed({"data.source": "synthetic:24"})
    with pytest.raises(TimeUpError) as raised:
        train(config, tmp_path / "run", device="cpu", minutes=0.0)
    assert str(raised.value) == f"stopped at step 1; go on with: rankspace train --resume --output {tmp_path / 'run'}"
    assert raised.value.exit_code == 0
    assert RunDirectory.open(tmp_path / "run").read("last").step == 1


def test_what_is_finished_is_skipped_and_keeps_its_best_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    before = run_table(request(tmp_path, "hmm-table3", "states-12", "states-13")).record
    folder = tmp_path / "quick/hmm-table3/synthetic/states-12/seed-1"
    assert [path.name for path in (folder / "checkpoints").iterdir()] == ["best"]
    shutil.rmtree(folder / "checkpoints")  # as in a copy of what is small
    monkeypatch.delattr("rankspace.experiments.runner.train")
    again = run_table(request(tmp_path, "hmm-table3", "states-12"), say=said.append)
    assert (again.is_complete, said) == (True, ["1 of 1 runs are done already"])
    assert again.record["rows"] == before["rows"]  # the row that was not asked for too


def test_toy_rows_plan_one_seed(tmp_path: Path) -> None:
    [row] = run_table(request(tmp_path, "hmm-table3", "states-12")).record["rows"]
    assert (row["planned_seeds"], [run["seed"] for run in row["runs"]]) == ([1], [1])


def test_seeds_and_their_statistics(tmp_path: Path) -> None:
    [row] = run_table(request(tmp_path, "hmm-table3", "states-12", seeds=(3, 12))).record["rows"]
    assert [run["seed"] for run in row["runs"]] == [3, 12]
    values = [run["scores"]["test"]["perplexity"] for run in row["runs"]]
    found = row["statistics"]["splits"]["test"]["perplexity"]
    assert (found["mean"], found["best"], found["worst"]) == (sum(values) / 2, min(values), max(values))
    assert row["statistics"]["minutes_to"] == {"perplexity": 149.8, "num": 0}


def test_seeds_parse_together(tmp_path: Path) -> None:
    """All that are finished, by the checkpoints that held-out text chose; once, and again where there are more."""
    asked = partial(request, tmp_path, "pcfg-table1", "rank-pcfg")
    [row] = run_table(asked(seeds=(1,))).record["rows"]
    assert row["together"] is None
    [row] = run_table(asked(seeds=(2,))).record["rows"]
    file = tmp_path / "quick" / "pcfg-table1" / "synthetic" / "rank-pcfg" / "together.json"
    found = row["together"]
    assert found == json.loads(file.read_text())
    assert (found["runs"], found["checkpoint"]) == ({"rank-pcfg": [1, 2]}, "held-out")
    grammars = [load(file.parent / f"seed-{seed}", "held-out") for seed in (1, 2)]
    corpus = dataset("synthetic", None, tmp_path / "quick" / "data", NUM_SENTENCES).data["test"]
    trees = Together(grammars).parse([corpus.words(number) for number in range(len(corpus))])
    expected = score([corpus.spans(number) or [] for number in range(len(corpus))], trees, corpus.lengths.tolist())
    assert found["scores"]["test"]["s_f1"] == expected.s_f1
    file.write_text(json.dumps({**found, "scores": {}}))
    [row] = run_table(asked(seeds=(1, 2))).record["rows"]
    assert row["together"]["scores"] == {}  # it was known
    card = RunDirectory.open(file.parent / "seed-2")
    card.update_card(experiment={**card.card["experiment"], "made": "again"})
    [row] = run_table(asked(seeds=(1, 2))).record["rows"]
    assert row["together"]["scores"]["test"]["s_f1"] == expected.s_f1  # of other runs, by their cards
    file.write_text("{")
    [row] = run_table(asked(seeds=(3,))).record["rows"]
    assert row["together"]["runs"] == {"rank-pcfg": [1, 2, 3]}


def test_rows_parse_together(tmp_path: Path) -> None:
    """All that parse, on one data set, those of earlier calls included."""
    assert run_table(request(tmp_path, "pcfg-table1", "rank-pcfg")).record["together"] == {}
    record = run_table(request(tmp_path, "pcfg-table1", "n-pcfg", seeds=(1, 2))).record
    found = record["together"]["synthetic"]
    assert found["runs"] == {"rank-pcfg": [1], "n-pcfg": [1, 2]}
    folder = tmp_path / "quick" / "pcfg-table1" / "synthetic"
    assert found == json.loads((folder / "together.json").read_text())
    grammars = [load(folder / name, "held-out") for name in ("rank-pcfg/seed-1", "n-pcfg/seed-1", "n-pcfg/seed-2")]
    corpus = dataset("synthetic", None, tmp_path / "quick" / "data", NUM_SENTENCES).data["valid"]
    trees = Together(grammars).parse([corpus.words(number) for number in range(len(corpus))])
    expected = score([corpus.spans(number) or [] for number in range(len(corpus))], trees, corpus.lengths.tolist())
    assert found["scores"]["valid"]["s_f1"] == expected.s_f1


def test_what_time_does_not_suffice_for_is_left(tmp_path: Path) -> None:
    asked, said = partial(request, tmp_path, "pcfg-table1", "rank-pcfg"), list[str]()
    run_table(asked(seeds=(1, 2)))
    (tmp_path / "quick" / "pcfg-table1" / "synthetic" / "rank-pcfg" / "together.json").unlink()
    found = run_table(asked(seeds=(1, 2)), minutes=-1.0, say=said.append)
    assert found.record["rows"][0]["together"] is None
    assert said[-1] == "runs that are to parse together are left; go on with the same command"
    assert run_table(asked(seeds=(1, 2))).record["rows"][0]["together"] is not None


def test_seeds_without_their_checkpoints_do_not_parse_together(tmp_path: Path) -> None:
    """As of a folder that was copied without them: the runs count, and a line says what is missing."""
    asked, said = partial(request, tmp_path, "pcfg-table1", "rank-pcfg"), list[str]()
    run_table(asked(seeds=(1,)))
    folder = tmp_path / "quick" / "pcfg-table1" / "synthetic" / "rank-pcfg" / "seed-1"
    shutil.rmtree(folder / "checkpoints")
    found = run_table(asked(seeds=(1, 2)), say=said.append)
    assert (found.is_complete, found.record["rows"][0]["together"]) == (True, None)
    assert said[-1].startswith("rank-pcfg on synthetic: runs do not parse together: ")
    assert str(folder) in said[-1]


def test_chains_do_not_parse_together(tmp_path: Path) -> None:
    [row] = run_table(request(tmp_path, "hmm-table3", "states-12", seeds=(1, 2))).record["rows"]
    assert row["together"] is None


def test_a_run_whose_numbers_fail_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = GradientStep.__call__

    def broken(step: GradientStep, shares: Sequence[Share], learning_rate: float, meanwhile: Task) -> None:
        if step.model.NAME == "lhmm":
            for weight in step.model.parameters():
                weight.data.fill_(math.nan)
        whole(step, shares, learning_rate, meanwhile)

    monkeypatch.setattr(GradientStep, "__call__", broken)
    asked, said = request(tmp_path, "hmm-table2", "best-14", "lhmm-14", "hmm-4096"), list[str]()
    found = run_table(asked, say=said.append)
    assert found.is_complete
    states = {row["name"]: (row["runs"][0]["state"], row["runs"][0]["failed"]) for row in found.record["rows"]}
    failed = "train: step 1 (epoch 1, batch 1): log p of a sentence is nan"
    assert states == {"best-14": ("finished", ""), "lhmm-14": ("failed", failed), "hmm-4096": ("finished", "")}
    assert f"lhmm-14 on synthetic, seed 1: failed: {failed}" in said
    assert run_table(asked).record["rows"] == found.record["rows"]


class TestRealData:
    """Rows at toy size on files, whatever the data."""

    @pytest.fixture(autouse=True)
    def small(self, monkeypatch: pytest.MonkeyPatch) -> None:
        whole = jobs.load_table

        def toy_table(name: str) -> Any:
            table = whole(name)
            return replace(table, rows=tuple(toy_row(row) for row in table.rows))

        monkeypatch.setattr(jobs, "load_table", toy_table)

    def test_sections_of_the_treebank(self, tmp_path: Path) -> None:
        folder, said = treebank(tmp_path / "wsj", *range(2, 24)), list[str]()
        asked = request(tmp_path / "out", "pcfg-table1", "n-pcfg", folder=folder, quick=False)
        found = run_table(asked, say=said.append)
        [row] = found.record["rows"]
        assert (row["data"], list(row["runs"][0]["scores"])) == ("wsj", ["valid", "test"])
        assert found.record["note"] == ""
        assert said[0] == (
            f"left out: {folder}: craft needs trees/craft.train.mrg, trees/craft.dev.mrg, trees/craft.test.mrg, which "
            f"are not there; add them, or leave out --data for synthetic sentences."
        )

    def test_data_sets_come_one_after_the_other(self, tmp_path: Path) -> None:
        asked = request(tmp_path / "out", "pcfg-table1", "n-pcfg", "tn-pcfg", folder=raw(tmp_path / "raw"), quick=False)
        assert [(job.data, job.row.name) for job in plan(asked).jobs] == [
            ("ptb", "tn-pcfg"),
            ("ptb", "n-pcfg"),
            ("craft", "tn-pcfg"),
            ("craft", "n-pcfg"),
        ]

    def test_synthetic_sentences_do_not_come_beside_others(self, tmp_path: Path) -> None:
        asked = request(tmp_path / "out", "pcfg-table1", "n-pcfg", quick=False)
        assert [job.data for job in plan(asked).jobs] == ["synthetic"]
        dataset("craft", raw(tmp_path / "raw"), asked.prepared, 0)
        found = plan(asked)
        assert ([job.data for job in found.jobs], found.left_out) == (
            ["craft"],
            ["experiment: ptb is not prepared; give --data."],
        )

    def test_data_sets_by_name(self, tmp_path: Path) -> None:
        asked = request(
            tmp_path / "out", "pcfg-table1", "n-pcfg", "rank-pcfg-rate", folder=raw(tmp_path / "raw"), quick=False
        )

        def planned(*on: str, **options: Any) -> list[tuple[str, str]]:
            return [(job.data, job.row.name) for job in plan(replace(asked, on=on, **options)).jobs]

        assert planned("craft") == [("craft", "n-pcfg")]
        assert planned("craft", "ptb") == planned() == [("ptb", "n-pcfg"), ("ptb", "rank-pcfg-rate"), *planned("craft")]
        assert planned("craft", quick=True) == [("synthetic", "n-pcfg")]
        folder = treebank(tmp_path / "wsj", *range(2, 24))
        rows = [("wsj", "n-pcfg"), ("wsj", "rank-pcfg-rate")]
        assert planned("ptb", folder=folder) == planned("wsj", folder=folder) == rows

    def test_a_data_set_that_is_asked_for_is_not_left_out(self, tmp_path: Path) -> None:
        folder = raw(tmp_path / "raw")
        asked = request(tmp_path / "out", "pcfg-table1", "n-pcfg", folder=folder, on=("ptb", "craft"), quick=False)
        (folder / "trees" / "craft.dev.mrg").unlink()
        with pytest.raises(RankspaceError, match=r"craft needs trees/craft\.dev\.mrg, which is not there"):
            plan(asked)
        found = plan(replace(asked, on=("ptb",)))
        assert ([job.data for job in found.jobs], found.left_out) == (["ptb"], [])
        dataset("ptb", folder, asked.prepared, 0)
        with pytest.raises(RankspaceError) as error:
            plan(replace(asked, folder=None))
        assert str(error.value) == "experiment: craft is not prepared; give --data."

    @pytest.mark.parametrize(
        ("on", "rows", "known"), [("wsj", ("n-pcfg",), "ptb, craft"), ("craft", ("rank-pcfg-rate",), "ptb")]
    )
    def test_data_sets_that_no_row_is_on(self, tmp_path: Path, on: str, rows: tuple[str, ...], known: str) -> None:
        asked = request(tmp_path / "out", "pcfg-table1", *rows, folder=raw(tmp_path / "raw"), on=(on,), quick=False)
        with pytest.raises(RankspaceError) as error:
            plan(asked)
        assert str(error.value) == f"experiment: no row asked for of pcfg-table1 is on {on!r}; they are on {known}."

    def test_a_run_goes_on_where_the_data_have_moved(self, tmp_path: Path) -> None:
        folder = raw(tmp_path / "raw")
        asked = request(tmp_path / "out", "hmm-table3", "states-12", folder=folder, quick=False)
        assert not run_table(asked, minutes=1e-9).is_complete
        (tmp_path / "out").rename(tmp_path / "moved")
        assert run_table(replace(asked, output=tmp_path / "moved", folder=None)).is_complete

    def test_no_data_set_at_all(self, tmp_path: Path) -> None:
        with pytest.raises(RankspaceError, match=r"ptb-text needs lm/ptb/ptb\.train\.txt, "):
            run_table(request(tmp_path / "out", "hmm-table3", folder=tmp_path, quick=False))


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An output with a run that was stopped."""
    output = tmp_path_factory.mktemp("stopped")
    run_table(request(output, "hmm-table3", "states-12"), minutes=1e-9)
    return output


class TestDamage:
    """Told with the remedy that fits: the folder is removed, and the same command makes it again."""

    def told(self, asked: Request) -> str:
        with pytest.raises(RankspaceError) as error:
            run_table(asked)
        return str(error.value)

    @pytest.mark.parametrize(
        ("file", "problem"),
        [
            ("card.json", ": is no run: it has no card.json"),
            ("config.toml", "/config.toml: is missing"),
            ("metrics.jsonl", "/metrics.jsonl: is missing"),
            ("checkpoints", "/checkpoints/last: there is no such folder"),
        ],
    )
    def test_what_a_run_lacks(self, stopped: Path, tmp_path: Path, file: str, problem: str) -> None:
        shutil.copytree(stopped, tmp_path, dirs_exist_ok=True)
        asked = request(tmp_path, "hmm-table3", "states-12")
        [job] = plan(asked).jobs
        part = job.folder / file
        shutil.rmtree(part) if part.is_dir() else part.unlink()
        assert self.told(asked) == f"{job.folder}{problem}; remove {job.folder} and run the same command again."
        shutil.rmtree(job.folder)
        assert run_table(asked, minutes=1e-9).num_jobs == 1

    @pytest.mark.parametrize(
        ("file", "problem"),
        [
            ("checkpoints/last/model.safetensors", "is truncated or changed: its hash is not that of state.json"),
            ("config.toml", "is no TOML (Invalid value (at end of document))"),
            ("card.json", "is damaged (no JSON)"),
            ("vocabulary.txt", "is truncated or changed: its hash is not that of card.json"),
        ],
    )
    def test_what_is_truncated(self, stopped: Path, tmp_path: Path, file: str, problem: str) -> None:
        shutil.copytree(stopped, tmp_path, dirs_exist_ok=True)
        asked = request(tmp_path, "hmm-table3", "states-12")
        [job] = plan(asked).jobs
        shutil.rmtree(job.folder / "checkpoints/previous", ignore_errors=True)
        (job.folder / file).write_text("a = [")
        assert self.told(asked) == (
            f"{job.folder / file}: {problem}; remove {job.folder} and run the same command again."
        )

    def test_a_full_disk(self, stopped: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        shutil.copytree(stopped, tmp_path, dirs_exist_ok=True)
        asked = request(tmp_path, "hmm-table3", "states-12")
        [job] = plan(asked).jobs

        def write(*_: Any) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        with monkeypatch.context() as patch:
            patch.setattr("rankspace.training.checkpoints._write", write)
            place = job.folder / "checkpoints"
            assert self.told(asked) in (
                f"{place / name}: cannot be written (No space left on device); put that right, and run the same "
                f"command again."
                for name in ("best", "last")
            )
        assert run_table(asked, minutes=1e-9).num_jobs == 1

    def test_a_run_of_another_version_is_kept(self, stopped: Path, tmp_path: Path) -> None:
        shutil.copytree(stopped, tmp_path, dirs_exist_ok=True)
        asked = request(tmp_path, "hmm-table3", "states-12")
        file = plan(asked).jobs[0].folder / "card.json"
        file.write_text(json.dumps({**json.loads(file.read_text()), "version": 2}))
        text = "has version 2, but this rankspace reads 1; use the rankspace that wrote it."
        assert self.told(asked) == f"{file}: {text}"

    @pytest.mark.parametrize("with_data", [False, True])
    def test_prepared_data(self, tmp_path: Path, with_data: bool) -> None:
        folder = raw(tmp_path / "raw")
        asked = request(tmp_path / "out", "hmm-table3", "states-12", folder=folder if with_data else None, quick=False)
        dataset("ptb-text", folder, asked.prepared, 0)
        place = asked.prepared / "ptb-text"
        remedy = f"remove {place} and run the same command again{'' if with_data else ', with --data'}."
        (place / "train.safetensors").write_bytes(b"")
        assert self.told(asked) == (
            f"{place / 'train.safetensors'}: is truncated or changed: its hash is not that of the card; {remedy}"
        )
        (place / "card.json").write_text("{")
        assert self.told(asked) == f"{place / 'card.json'}: is damaged (no JSON); {remedy}"

    def test_raw_files_are_not_removed(self, tmp_path: Path) -> None:
        folder = raw(tmp_path / "raw")
        (folder / "trees/craft.dev.mrg").write_text("( (S (NN dog)")
        asked = request(tmp_path / "out", "pcfg-table1", "n-pcfg", folder=folder, on=("craft",), quick=False)
        assert self.told(asked).endswith("add the missing ), and indent all lines of a tree but its first.")
