"""`rankspace bench gpu`: its rows and formulas, and the same code that a GPU runs, at sizes that a CPU does."""

import json
import os
import runpy
import subprocess
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch

from rankspace.bench import gpu, gpu_parse, gpu_step, gpu_training
from rankspace.bench.device_clock import captured, median_ms, product_rate, rates, release
from rankspace.bench.gpu_inputs import new_model
from rankspace.bench.gpu_rows import NAMES, ROWS, Row, chosen, small, spread_lengths, swept
from rankspace.bench.gpu_run import Later, Stopwatch
from rankspace.bench.gpu_work import FORMULAS, Product, num_spans, step_bytes, step_flops
from rankspace.bench.operations import operations
from rankspace.bench.rectifiers import KeptSides, NotedSides
from rankspace.cli import main
from rankspace.cli.bench_gpu_table import cells, epoch_line, parse_line, show_gpu, training_line, whole_line
from rankspace.errors import RankspaceError

ROOT = Path(__file__).parents[1]
CPU = torch.device("cpu")
ROW = {row.name: row for row in ROWS}
SAME = {"log_p": 0.0, "gradients": 0.0}
MIDDLING: dict[str, dict[str, int]] = {
    "rank-pcfg": {"nonterminals": 60, "preterminals": 90, "rank": 40, "size": 32},
    "tn-pcfg": {"nonterminals": 60, "preterminals": 90, "rank": 40, "size": 32},
    "simple-pcfg": {"nonterminals": 40, "preterminals": 90, "size": 32},
    "n-pcfg": {"nonterminals": 10, "preterminals": 20, "size": 32},
    "rank-hmm": {"states": 150, "rank": 60, "size": 32},
    "lhmm": {"states": 150, "rank": 60, "size": 48},
}


@pytest.fixture(autouse=True)
def no_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Models run by torch, whatever tests of kernels have switched on in this process."""
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)


def run(arguments: list[str]) -> int:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    return int(caught.value.code or 0)


class TestRows:
    def test_the_table_of_aims(self) -> None:
        aims = {row.name: (row.limit_ms, row.limit_gb, row.peer and row.peer.milliseconds) for row in ROWS}
        assert aims == {
            "rank-pcfg": (6.5, 1.5, 105),
            "rank-pcfg-64": (12, 3, 234),
            "rank-pcfg-ragged": (6.5, 1.5, None),
            "simple-pcfg": (11, 2.5, 109),
            "rank-hmm": (4, 2.5, 63),
            "rank-hmm-32768": (9, 4.5, 111),
            "lhmm": (30, 4.5, 248),
            "n-pcfg": (8, 1, 190),
            "tn-pcfg": (5, 1, 201),
            "rank-pcfg-highest": (20, None, 133),
            "rank-hmm-highest": (60, None, 180),
            "length-400": (None, 20, None),
            "length-200": (None, 20, None),
        }

    def test_only_rows_of_that_name_promise_float32_accuracy(self) -> None:
        for row in ROWS:
            assert row.name.endswith("highest") == (row.precision == "highest") == row.peaked
            assert row.settings["size"] == (256 if row.model in ("rank-hmm", "lhmm") else 512)

    def test_batches(self) -> None:
        assert ROW["rank-pcfg"].batch == "16 x 40"
        assert ROW["rank-pcfg-ragged"].batch == "16 of 5..40"
        assert spread_lengths(16) == (5, 7, 9, 12, 14, 16, 19, 21, 23, 26, 28, 30, 33, 35, 37, 40)
        assert spread_lengths(1) == (5,)

    def test_sweeps_change_one_size(self) -> None:
        assert swept("rank", 250).settings["rank"] == 250
        assert swept("length", 80).lengths == (80,) * 16
        assert swept("batch", 64).lengths == (40,) * 64

    def test_some_are_chosen_in_the_order_of_the_table(self) -> None:
        assert chosen(["parse", "rank-pcfg"]) == ["rank-pcfg", "parse"]
        assert chosen([]) == list(NAMES)
        with pytest.raises(RankspaceError) as caught:
            chosen(["rank"])
        assert str(caught.value) == f"bench gpu: there is no row 'rank'; there are {', '.join(NAMES)}."

    def test_newspaper_lengths(self) -> None:
        lengths = gpu_parse.newspaper_lengths()
        assert len(lengths) == 2416
        assert lengths == sorted(lengths)
        assert (lengths[0], lengths[-1]) == (2, 60)
        assert 21 < sum(lengths) / len(lengths) < 23

    def test_batches_hold_every_sentence_within_the_budget(self) -> None:
        lengths = gpu_parse.newspaper_lengths()
        given = gpu_parse.batches(lengths, 20, CPU, max_tokens=512)
        assert [length for _, group in given for length in group] == lengths
        assert all(words.numel() <= 512 and words.shape == (len(group), max(group)) for words, group in given)


class TestFlops:
    @pytest.mark.parametrize("name", FORMULAS)
    def test_as_the_torch_path_multiplies(self, name: str) -> None:
        """Counted in a float32 step on distinct words; the formulas leave out some products with vectors."""
        order = {"order": "rank"} if name in ("rank-pcfg", "tn-pcfg", "rank-hmm") else {}
        row = replace(ROW[name], settings=MIDDLING[name], lengths=(12,) * 4, vocabulary=200, precision="highest")
        model = new_model(row, CPU).eval()
        model.options = {"backend": "torch", **order}
        words = torch.arange(48).view(4, 12)
        counted = operations(lambda: model.loss(words, row.lengths).mean().backward())["products"]
        assert step_flops(row) == pytest.approx(counted, rel=0.06)

    def test_spans(self) -> None:
        assert num_spans((2, 3, 1), 2) == 0 + 2
        assert sum(num_spans((40,), width) for width in range(2, 41)) == 779

    def test_bytes_are_those_of_operands_and_results(self) -> None:
        assert Product(2, 3, 5).numbers == 6 + 15 + 10
        assert Product(2, 3, 5, times=4).flops == 4 * 60
        row = replace(ROW["rank-hmm"], settings={"states": 8, "rank": 4, "size": 2}, lengths=(2,), vocabulary=6)
        tables, words = 2 * (8 * 2 + 2 * 4 + 8 * 4), 4 * 2 + 2 * 6 + 4 * 6
        networks = 5 * (6 * 2 + 4 + 6 * 2) + 5 * (8 * 2 + 4 + 8 * 2)
        link, steps = 4 * 8 + 8 * 4 + 4 * 4, 2 * (4 + 16 + 4)
        through_link = (4 * 2 + 2 * 4 + 4 * 4) + 2 * link
        through_tokens = 2 * ((2 * 4 + 4 * 8 + 2 * 8) + (4 * 2 + 2 * 8 + 4 * 8))
        assert step_bytes(row) in [
            2 * (3 * (tables + words + networks) + link + 2 * steps + back) for back in (through_link, through_tokens)
        ]

    def test_fractions_are_of_the_rate_of_the_precision(self) -> None:
        found: Any = {"fp32": 50.0, "tf32": 400.0, "bf16": 800.0, "copy": 4.0}
        assert product_rate("high", found) == 400
        assert product_rate("medium", found) == 800
        assert product_rate("highest", found) == pytest.approx(400 / 3)
        assert product_rate("highest", {**found, "tf32": 60.0}) == 50


class TestErrors:
    def test_limits(self) -> None:
        log_p = torch.tensor([-50.0, -500.0], dtype=torch.float64)
        row = replace(ROW["rank-pcfg"], lengths=(20, 80), precision="high")
        assert gpu_step.limit_of(row, log_p).tolist() == [1e-2, 2e-2]
        highest = gpu_step.limit_of(replace(row, precision="highest"), log_p)
        assert highest.tolist() == pytest.approx([1e-4, 5e-4])

    @pytest.mark.parametrize(
        ("differences", "lost", "expected"),
        [
            ([0.001, 0.01], 0, ""),
            ([0.03, 0.02], 0, "log p is off by 3.0e-02, more than 1.0e-02"),
            ([0.001, float("nan")], 0, "log p is off by nan, more than 1.0e-02"),
            ([0.0, 0.0], 1, "1 of 2 sentences were lost"),
        ],
    )
    def test_why_a_row_is_wrong(self, differences: list[float], lost: int, expected: str) -> None:
        limits = torch.full((2,), 1e-2, dtype=torch.float64)
        assert gpu_step.why_wrong(torch.tensor(differences, dtype=torch.float64), limits, lost) == expected

    def test_a_wrong_step_is_not_timed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(gpu_step, "LIMIT", 0.0)
        found = gpu_step.measure(small(ROW["tn-pcfg"]), CPU, 1)
        assert found["wrong"].startswith("log p is off by ")
        assert "milliseconds" not in found

    def test_a_step_with_wrong_gradients_is_not_timed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        right, factors = gpu_step._gradients, iter((-3.0, 1.0))  # of the step, of float64

        def scaled(*given: Any) -> Any:
            factor = next(factors)
            return {name: factor * each for name, each in right(*given).items()}

        monkeypatch.setattr(gpu_step, "_gradients", scaled)
        found = gpu_step.measure(small(ROW["tn-pcfg"]), CPU, 1)
        assert found["wrong"] == "gradients are off by 4.0e+00 of their norm, more than 2e-02"
        assert "milliseconds" not in found

    @pytest.mark.parametrize(("error", "expected"), [(1e-3, ""), (float("nan"), "nan"), (0.5, "5.0e-01")])
    def test_why_gradients_are_wrong(self, error: float, expected: str) -> None:
        found = gpu_step.why_gradients_are_wrong(error, 2e-2)
        assert found == (expected and f"gradients are off by {expected} of their norm, more than 2e-02")

    def test_sharp_logits_may_not_lose_all(self, monkeypatch: pytest.MonkeyPatch) -> None:
        whole = gpu_step.log_prob

        def losing(model: Any, sentences: Any) -> Any:
            log_p, lost = whole(model, sentences)
            return log_p, lost | sharp[0]

        sharp = [False]
        monkeypatch.setattr(gpu_step, "log_prob", losing)
        row = replace(small(ROW["rank-pcfg"]), precision="highest", peaked=True)
        assert gpu_step._compared(row, CPU, gpu_step.SHARPNESS)["wrong"] == ""
        sharp[0] = True
        assert gpu_step._compared(row, CPU, gpu_step.SHARPNESS)["wrong"] == "3 of 3 sentences were lost"

    def test_lack_of_memory_is_told(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def no_memory(*_: object) -> None:
            raise torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 3.50 GiB.")

        monkeypatch.setattr(gpu_step, "errors", no_memory)
        told = (
            "not enough memory for 3 sentences of up to 5 words (rank 9, float64): it takes about 75.9 kB, and 3.8 GB "
            "more could not be had; give a device with more memory"
        )
        assert gpu_step.measure(small(ROW["tn-pcfg"]), CPU, 1) == {"wrong": told}

    def test_other_errors_are_not_hidden(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def broken(*_: object) -> None:
            raise RuntimeError("sizes do not match")

        monkeypatch.setattr(gpu_step, "errors", broken)
        with pytest.raises(RuntimeError, match="sizes do not match"):
            gpu_step.measure(small(ROW["tn-pcfg"]), CPU, 1)


@pytest.fixture(scope="module")
def record() -> dict[str, Any]:
    """Everything at small sizes, by torch."""
    names = chosen(["tn-pcfg", "rank-hmm-highest", "parse", "train-rank-pcfg"])
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("TRITON_INTERPRET", raising=False)
        job, ticks = gpu.Job(names, precision="highest", quick=True, sweep=True), []
        found = gpu.run(job, CPU, lambda _: ticks.append(1))
    assert len(ticks) == job.num_runs
    return json.loads(json.dumps(found))


class TestMeasuring:
    def test_on_a_cpu_a_program_is_called(self) -> None:
        calls: list[int] = []
        program = captured(lambda: calls.append(1), CPU)
        assert median_ms(program, CPU, 3) >= 0
        release(CPU)
        assert len(calls) == 1 + 1 + 3

    def test_rates(self) -> None:
        assert all(rate > 0 for rate in rates(CPU, 16, 1).values())

    def test_rows(self, record: dict[str, Any]) -> None:
        assert [row["name"] for row in record["rows"]] == ["tn-pcfg", "rank-hmm-highest"]
        for row in [*record["rows"], *(point for points in record["sweeps"].values() for point in points)]:
            assert row["wrong"] == ""
            assert row["way"] == "eager"
            assert row["milliseconds"] > 0
            assert row["lost"] == 0
            assert row["gradient_error"] < 1e-4
            assert row["worst_weight"] in row["weights"]
            assert row["worst_weight"]["error"] < 1e-2
            assert row["replay"] == {"difference": SAME, "launches": SAME, "lost": 0}
        assert "peaked_error" in record["rows"][1]

    def test_sweeps(self, record: dict[str, Any]) -> None:
        values = {varied: [point["value"] for point in points] for varied, points in record["sweeps"].items()}
        assert values == {"length": [10, 20, 40, 80], "rank": [250, 500, 1000, 2000], "batch": [4, 16, 64]}

    def test_parses_and_training(self, record: dict[str, Any]) -> None:
        assert record["parse"]["seconds"] > 0
        assert record["parse"]["marginal_error"] < 1e-4
        [run] = record["training"]
        assert run["words_per_second"] > 0
        assert run["steps"] >= 1
        assert run["ratio"] == pytest.approx(run["words_per_second_alone"] / run["words_per_second"])
        whole = run["whole"]
        assert whole["ratio"] == pytest.approx(run["words_per_second_alone"] / whole["words_per_second"])
        assert all(seconds > 0 for seconds in whole["split"].values())
        epoch = run["epoch"]
        assert epoch["ratio"] == pytest.approx(run["words_per_second_alone"] / epoch["words_per_second"])
        assert epoch["words"] < whole["words"] / 2
        assert epoch["seconds"] == pytest.approx(sum(epoch["split"].values()))
        assert all(0 < seconds < whole["split"][name] for name, seconds in epoch["split"].items())

    def test_every_step_of_training_has_a_shape(self, monkeypatch: pytest.MonkeyPatch) -> None:
        row, watches = small(ROW["rank-hmm-highest"]), []
        data, config = gpu_training.language_data(192, 5, row.vocabulary), gpu_training.training_config(row, 2)
        monkeypatch.setattr(gpu_training, "Stopwatch", lambda device: watches.append(Stopwatch(device)) or watches[-1])
        gpu_training.timed_steps(config, data, CPU)
        shapes = gpu_training.epoch_shapes(config, data, CPU)
        assert len(watches[0].ends.seconds()) == 1 + sum(map(len, shapes))  # and when it began
        assert sum(num_words for _, num_words in shapes[0]) == sum(data["train"].lengths + 1)

    def test_a_run_whose_shapes_do_not_come_back(self) -> None:
        with pytest.raises(RankspaceError) as caught:
            gpu_training.common([], 1)
        assert str(caught.value) == "no shape of batches came up often enough to be compared; give more sentences."

    def test_tables(self, record: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
        show_gpu(record)
        text = capsys.readouterr().out
        for expected in (
            "tn-pcfg",
            "Products of this device",
            "rank-pcfg by rank",
            "Parsing 4 sentences",
            "words/s",
            "the whole call",
        ):
            assert expected in text

    @pytest.mark.skipif(find_spec("triton") is None, reason="needs triton")
    def test_the_way_of_kernels_under_the_interpreter(self) -> None:
        """In a process of its own: Triton asks for its switch when a kernel is defined."""
        program = """
import json, torch
from rankspace.bench.gpu_rows import ROWS, small
from rankspace.bench.gpu_step import measure
[row] = [row for row in ROWS if row.name == "rank-hmm-highest"]
print(json.dumps(measure(small(row), torch.device("cpu"), 1)))
"""
        environment = {**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment)
        assert done.returncode == 0, done.stderr
        found = json.loads(done.stdout)
        assert found["wrong"] == ""
        assert found["way"] == "graph"
        assert found["log_p_error"] < 1e-4

    @pytest.mark.gpu
    @pytest.mark.parametrize("name", [row.name for row in ROWS])
    def test_small_rows_as_graphs(self, name: str) -> None:
        """In float32 accuracy: logits of embeddings of 8 numbers are too large for what is asked of bfloat16."""
        row = replace(small(ROW[name]), precision="highest", peaked=False)
        there = torch.cuda.memory_allocated() / 1e9  # of tests before this one, and what products keep for each stream
        found = gpu_step.measure(row, torch.device("cuda"), 2)
        assert found["wrong"] == ""
        assert found["way"] == "graph"
        assert 0 < found["peak_gb"] < 1 + there


class TestSidesOfRectifiers:
    def test_a_unit_nearer_to_zero_than_float32_rounds_takes_the_noted_side(self) -> None:
        x = torch.tensor([-1.0, 1.0, 2.0, -1e-7, 1e-7], dtype=torch.float64, requires_grad=True)
        with NotedSides() as noted:
            torch.relu(torch.tensor([-1.0, 1.0, 2.0, 1e-7, -1e-7]))
        with KeptSides(noted.sides) as kept:
            rectified = x.relu()
        [slopes] = torch.autograd.grad(rectified.sum(), x)
        assert (kept.num_moved, kept.num_left) == (2, 0)
        assert slopes.tolist() == [0, 1, 1, 1, 0]
        torch.testing.assert_close(rectified.detach(), x.detach().relu(), rtol=0, atol=1e-6)

    def test_a_unit_that_is_not_near_keeps_its_own(self) -> None:
        x = torch.tensor([-1.0, 1e-3], dtype=torch.float64, requires_grad=True)
        with KeptSides([torch.tensor([True, False]), torch.tensor([True])]) as kept:
            rectified = torch.relu(x)
        assert kept.num_left == 1
        [slopes] = torch.autograd.grad(rectified.sum(), x)
        assert kept.num_moved == 0
        assert slopes.tolist() == [0, 1]

    def test_sides_are_kept_in_highest_alone(self) -> None:
        row = replace(small(ROW["rank-hmm-highest"]), peaked=False)
        assert gpu_step.errors(row, CPU)["moved"] == 0
        assert gpu_step.errors(replace(row, precision="medium"), CPU)["moved"] is None


def made_up(**changes: Any) -> dict[str, Any]:
    """The record of a row as if it had been measured on a GPU."""
    found = {
        "log_p_error": 2e-3,
        "gradient_error": 1e-3,
        "weights": [
            {"name": "network.bias", "error": 0.02, "share": 0.1},
            {"name": "start", "error": 0.75, "share": 1e-4},
        ],
        "worst_weight": {"name": "network.bias", "error": 0.02, "share": 0.1},
        "replay": {"difference": SAME, "launches": SAME, "lost": 0},
        "lost": 0,
        "wrong": "",
        "way": "graph",
        "milliseconds": 5.25,
        "peak_gb": 1.25,
    }
    device: Any = {"fp32": 50.0, "tf32": 400.0, "bf16": 800.0, "copy": 4.0}
    row: Row = replace(changes.pop("row", ROW["rank-pcfg"]), precision="high")
    return json.loads(json.dumps(gpu.step_record(row, {**found, **changes}, device)))


WORST = "2.0e-02 network.bias"
PARTS = {"steps": 5.0, "recording": 4.0, "evaluation": 1.5, "checkpoints": 2.5, "rest": 7.0}
LATER = Later(20_000, {"steps": 2.0, "evaluation": 0.5, "checkpoints": 0.3})


class TestRecords:
    def test_beside_peers_and_limits(self) -> None:
        row = made_up()
        assert row["faster"] == pytest.approx(20)
        assert row["smaller"] == pytest.approx(4.7 / 1.25)
        assert row["gemm_fraction"] == pytest.approx(row["gflop"] / 5.25 / 400)
        assert row["reached"]
        assert not made_up(milliseconds=6.6)["reached"]
        assert not made_up(peak_gb=1.6)["reached"]
        assert made_up(row=ROW["length-400"])["faster"] is None

    def test_cells(self) -> None:
        fraction, copied = f"{made_up()['gemm_fraction']:.0%}", f"{made_up()['copy_fraction']:.0%}"
        assert cells(made_up()) == ["high", "5.25 / 6.5", "20.0", "1.25 / 1.5", "2.0e-03", fraction, copied, WORST]
        assert cells(made_up(way="eager"))[0] == "high, eager"
        assert cells(made_up(wrong="1 of 2 sentences were lost"))[1] == "wrong"
        no_memory = {"wrong": "out of memory", "precision": "high"}
        assert cells(no_memory) == ["high", "wrong", "", "", "", "", "", ""]

    def test_lines(self) -> None:
        found = {"sentences": 2416, "words": 51233, "precision": "high", "wrong": "out of memory"}
        assert parse_line(found) == "Parsing 2,416 sentences (51,233 words), precision high: out of memory"
        found |= {"wrong": "", "seconds": 2.5, "limit_seconds": 3.0, "marginal_error": 1e-3}
        assert parse_line(found) == (
            "Parsing 2,416 sentences (51,233 words), precision high: 2.50 s (limit 3), marginals off by 1.0e-03"
        )
        steps = [gpu_training.Step((16, 40), 656, 0.011), gpu_training.Step((16, 20), 336, 0.006)]
        run = gpu_training.compared(steps, {(16, 40): 10.0, (16, 20): 5.0})
        assert training_line({"name": "train", "wrong": "", "num_again": 7, **run}) == (
            "train: 58,353 words/s in training, 66,133 by steps alone: 1.13 times as long (limit 1.15); 7 sentences "
            "computed again"
        )
        assert training_line({"name": "train", "wrong": "out of memory"}) == "train: out of memory"

    def test_the_line_of_a_whole_run(self) -> None:
        epoch = gpu_training.one_epoch(LATER, 10_000.0)
        assert epoch_line({"name": "train", "epoch": epoch}) == (
            "train, an epoch that has its graphs: 7,143 words/s, 1.40 times as long as by steps alone (limit 1.15); "
            "2.8 s: steps 2.0, evaluation 0.5, checkpoints 0.3"
        )
        assert not epoch["reached"]
        whole = gpu_training.whole_run(gpu_training.Timed([], 0, LATER, 50_000, PARTS), 10_000.0)
        assert whole_line({"name": "train", "whole": whole}) == (
            "train, the whole call: 2,500 words/s, 4.00 times as long as by steps alone; 20.0 s: steps 5.0, compiling "
            "and recording 4.0, evaluation 1.5, checkpoints 2.5, the rest 7.0"
        )


class TestCommand:
    @pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
    def test_without_a_gpu(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert run(["bench", "gpu"]) == 2
        [line] = capsys.readouterr().err.splitlines()
        assert line == "error: bench gpu: torch sees no CUDA device; run it on a machine with a GPU."

    @pytest.mark.parametrize(("place", "code"), [(None, 0), ("rows", 1), ("sweeps", 1), ("parse", 1), ("training", 1)])
    def test_the_exit_code_says_whether_something_is_wrong(
        self, record: dict[str, Any], monkeypatch: pytest.MonkeyPatch, place: str | None, code: int
    ) -> None:
        found = json.loads(json.dumps(record))
        wrong = {"rows": found["rows"][0], "sweeps": found["sweeps"]["rank"][-1], "parse": found["parse"]}
        wrong["training"] = found["training"][0]
        if place is not None:
            wrong[place]["wrong"] = "log p is off"
        monkeypatch.setattr("rankspace.cli.bench._gpu", lambda _: CPU)
        monkeypatch.setattr(gpu, "run", lambda *_: found)
        assert run(["bench", "gpu", "--json"]) == code

    def test_a_row_that_is_not_there(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert run(["bench", "gpu", "--rows", "rank-pcfg,pcfg"]) == 2
        [line] = capsys.readouterr().err.splitlines()
        assert line == f"error: bench gpu: there is no row 'pcfg'; there are {', '.join(NAMES)}."


@pytest.fixture(scope="module")
def pages() -> dict[str, Any]:
    return runpy.run_path(str(ROOT / "benchmarks" / "performance.py"))


class TestPages:
    def record(self) -> dict[str, Any]:
        points = [{**made_up(milliseconds=2.0**place), "value": 10 * 2**place} for place in range(3)]
        peaked = made_up(row=ROW["rank-hmm-highest"], peaked_error=1e-4, peaked_lost=3)
        long = made_up(row=ROW["length-200"], milliseconds=100.0)
        device = {"fp32": 50.0, "tf32": 400.0, "bf16": 800.0, "copy": 4.0}
        about = {"device": "GPU", "date": "today", "torch": "2", "triton": "3", "commit": "c"}
        parse = {"sentences": 3, "words": 9, "wrong": "", "seconds": 1.0, "limit_seconds": 3.0, "precision": "high"}
        run = gpu_training.compared([gpu_training.Step((16, 40), 656, 0.011)], {(16, 40): 10.0})
        epoch = gpu_training.one_epoch(LATER, 10_000.0)
        whole = gpu_training.whole_run(gpu_training.Timed([], 0, LATER, 50_000, PARTS), 10_000.0)
        more = {"precision": "high", "wrong": "", "num_again": 4}
        return {
            **about,
            "rates": device,
            "rows": [made_up(), made_up(row=ROW["lhmm"], wrong="out of memory"), peaked, long],
            "sweeps": {"length": points, "batch": [*points, {"wrong": "out of memory", "value": 99}]},
            "parse": {**parse, "marginal_error": 1e-3},
            "training": [
                {"model": "rank-pcfg", **more, "epoch": epoch, "whole": whole, **run},
                {"model": "lhmm", **more, "whole": whole, **run},
                {"model": "rank-hmm", **more, **run},
            ],
        }

    @pytest.mark.parametrize("name", ["docs/performance.md", "README.md"])
    def test_figures_are_those_of_the_records(self, pages: dict[str, Any], name: str) -> None:
        """`python benchmarks/performance.py` would change nothing."""
        text = (ROOT / name).read_text(encoding="utf-8")
        assert pages["with_blocks"](text) == text

    def test_blocks(self, pages: dict[str, Any]) -> None:
        record = self.record()
        text = "".join(pages[name](record) for name in ("headline", "steps", "whole_runs", "growth"))
        for expected in (
            "takes **5.2 ms**",
            "20 times less time",
            "| **5.25** | 6.5 | 105 | 20 | 1.25 | 1.5 | 4.7 | 2e-03 | 1e-03 | `network.bias` 2e-02 | same bits |",
            "than 0.5 of their own, which up to 0.9\ndoes not make a row wrong: `rank-pcfg`: `start` 8e-01;",
            "not timed: out of memory",
            "is off by 1e-04, and computed 3 of 16 sentences again.",
            "**1.00 s** (limit 3);",
            "1.10 times as long (limit 1.15); 4 sentences were computed again.",
            "An epoch that has its graphs, with its evaluation and checkpoints: 7,143 words a second, 1.40 times as "
            "long as its steps alone would take (limit 1.15). The 2.8 s are: steps 2.0, evaluation 0.5, checkpoints "
            "0.3.\n",
            "The whole call, two epochs: 2,500 words a second, 4.00 times as long as its steps alone would take. "
            "The 20.0 s are: steps 5.0, compiling and recording 4.0, evaluation 1.5, checkpoints 2.5, the rest 7.0.\n",
            "An epoch of `lhmm` with its evaluation and checkpoints: not in this record.\n"
            "- The whole call, one epoch: ",
            "The whole call of `rankspace train` of `rank-hmm`: not in this record.\n",
            "| ms | 1.00 | 2.00 | 4.00 |",
            "| words in a sentence | 10 | 20 | 40 | 200 |\n",
            "| ms | 1.00 | 2.00 | 4.00 | 100.00 |\n",
            "From 40 to 200, time grows as that size to the power 2.00.",
            "From 20 to 40, time grows as that size to the power 1.00.",
        ):
            assert expected in text

    def test_what_older_records_lack_is_shown_as_missing(self, pages: dict[str, Any]) -> None:
        record, names = self.record(), ("weights", "worst_weight", "replay")
        record["rows"] = [{name: row[name] for name in row if name not in names} for row in record["rows"]]
        text = pages["steps"](record)
        assert "| 2e-03 | 1e-03 | - | - |" in text
        assert "Weights with less" not in text

    def test_a_replay_that_differs_within_what_launches_do(self, pages: dict[str, Any]) -> None:
        assert pages["replay"]({"replay": {"difference": {"log_p": 0.0, "gradients": 3e-7}}}) == "3e-07"

    def test_plot(self, pages: dict[str, Any], tmp_path: Path) -> None:
        pytest.importorskip("matplotlib", reason="needs matplotlib")
        pages["draw"](pages["measured"](self.record()), tmp_path / "plot.png")
        assert 5_000 < (tmp_path / "plot.png").stat().st_size < 200_000

    def test_tables_have_as_many_cells_in_every_line(self, pages: dict[str, Any]) -> None:
        lines = [line for line in pages["steps"](self.record()).splitlines() if line.startswith("|")]
        assert {line.count("|") for line in lines} == {17}
