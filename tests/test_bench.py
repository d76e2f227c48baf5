"""`rankspace bench chain` and `bench tree`: that they run, that they measure what they say, and what they promise."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from rankspace.bench import chain, growth, peers, tree
from rankspace.bench.comparison import Implementation, Task, check, compare, num_ticks
from rankspace.bench.growth import fitted_power
from rankspace.bench.operations import operations
from rankspace.bench.profiling import peak_bytes, phase_milliseconds
from rankspace.cli import main
from rankspace.cli.bench_tables import show_suite
from rankspace.errors import RankspaceError
from rankspace.fgg import FGG, zoo
from rankspace.inference import GenericEngine

CPU = torch.device("cpu")


def run(arguments: list[str]) -> int:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    return int(caught.value.code or 0)


def measured(benchmark: str, peer: str, enough: Callable[[Any], bool], **size: int) -> dict[str, Any]:
    """The first of up to three comparisons with a peer that is enough, else the last: others on the machine may spoil
    one.

    Each in a process of its own, where shapes are not checked at every call.
    """
    program = f"""
import json, torch
from dataclasses import replace
from rankspace.bench import {benchmark} as benchmark
torch.set_num_threads(1)
suite = benchmark.suite(benchmark.Size(**{size}), torch.device("cpu"), alone=True, repeats=3)
[every] = suite.rank_space
pair = {{name: every.implementations[name] for name in ("rankspace", "{peer}")}}
print(json.dumps(suite.compared(replace(every, implementations=pair))))
"""
    for _ in range(3):
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
        found = json.loads(done.stdout)
        if enough(found):
            break
    return dict(found)


SMALL = {
    "chain": {"states": 8, "rank": 4, "batch": 2, "length": 5, "vocabulary": 6},
    "tree": {"nonterminals": 3, "preterminals": 4, "rank": 4, "batch": 2, "length": 5, "vocabulary": 6},
}


class Quick(NamedTuple):
    record: dict[str, Any]
    announced: int
    ticks: int


@pytest.fixture(scope="module", params=["chain", "tree"])
def quick(request: pytest.FixtureRequest) -> Quick:
    """The quick suite, run once."""
    suite = {"chain": chain, "tree": tree}[request.param].quick_suite(CPU)
    ticks: list[int] = []
    return Quick(suite.run(lambda: ticks.append(1)), suite.num_runs, len(ticks))


class TestSuites:
    def test_record(self, quick: Quick) -> None:
        record = json.loads(json.dumps(quick.record))
        assert record["torch"] == torch.__version__
        assert record["device"]
        [part] = record["rank_space"]
        assert list(part["implementations"]) == ["rankspace", *chain.PEERS]
        for found in part["implementations"].values():
            assert found["milliseconds"] > 0
            assert found["peak_bytes"] > 0
            assert 0 < found["gemm_fraction"] < 1
        assert {term["term"] for term in record["growth"]} in ({"n r^2", "n m r"}, {"n^3 r", "n^2 r^2"})

    def test_packages_are_compared_or_missed(self, quick: Quick) -> None:
        wanted = 2 if quick.record["benchmark"] == "chain" else 1
        assert len(quick.record["dense"]) + len(quick.record["missing"]) == wanted

    def test_as_many_ticks_as_announced(self, quick: Quick) -> None:
        assert quick.ticks == quick.announced

    def test_tables(self, quick: Quick, capsys: pytest.CaptureFixture[str]) -> None:
        show_suite({**quick.record, "missing": ["nothing is installed."]})
        text = capsys.readouterr().out
        for expected in ("of GEMM rate", "log einsum exp", "claimed", "nothing is installed."):
            assert expected in text


class TestCommands:
    @pytest.mark.parametrize("command", ["chain", "tree"])
    def test_sizes_alone(self, command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        target = tmp_path / "result.json"
        sizes = [word for name, size in SMALL[command].items() for word in (f"--{name}", str(size))]
        assert run(["bench", command, "--alone", "--json", "-o", str(target), *sizes]) == 0
        result = json.loads(capsys.readouterr().out)
        assert json.loads(target.read_text()) == result
        assert result["benchmark"] == command
        assert [part["sizes"] for part in result["rank_space"]] == [SMALL[command]]
        assert result["growth"] == result["dense"] == result["missing"] == []

    @pytest.mark.parametrize("command", ["chain", "tree"])
    def test_device_that_is_not_there(self, command: str, capsys: pytest.CaptureFixture[str]) -> None:
        assert run(["bench", command, "--device", "abacus"]) == 2
        [line] = capsys.readouterr().err.splitlines()
        assert line.startswith(f"error: bench {command}: device 'abacus' is not to be had here; use cpu")

    def test_output_without_a_folder(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert run(["bench", "tree", "--quick", "--output", str(tmp_path / "no" / "result.json")]) == 2
        [line] = capsys.readouterr().err.splitlines()
        assert line == f"error: bench tree: there is no folder {tmp_path / 'no'} to write result.json into."


class TestPromises:
    """Ratios at the sizes of the benchmark, forward and backward, in one run; the best of three, on one thread.

    Thresholds leave room for a busy machine, below what benchmarks/results records. The chain and its peer
    (b) share three products of rank^2 * states, those of the steps, and the exponentials of both matrices: two thirds
    of the peer's time. One and a half times its speed would be the end of it.
    """

    @pytest.mark.parametrize(("benchmark", "size"), [("chain", {"rank": 128}), ("tree", {"length": 20})])
    def test_beats_autograd_through_logarithms(self, benchmark: str, size: dict[str, int]) -> None:
        """At sizes to which the benchmark varies its own, where it takes gigabytes and loses by twice as much."""

        def enough(part: Any) -> bool:
            return bool(part["faster"]["log_sum_exp"] >= 10)

        part = measured(benchmark, "log_sum_exp", enough, **size)
        assert enough(part), part["faster"]

    def test_chain_is_as_fast_as_autograd_through_products(self) -> None:
        def enough(part: Any) -> bool:
            return bool(part["faster"]["log_einsum_exp"] >= 0.75)

        assert enough(part := measured("chain", "log_einsum_exp", enough)), part["faster"]

    def test_tree_beats_autograd_through_products(self) -> None:
        def enough(part: Any) -> bool:
            return bool(part["faster"]["log_einsum_exp"] >= 2.3)

        part = measured("tree", "log_einsum_exp", enough)
        assert enough(part), part["faster"]
        assert part["smaller"]["log_einsum_exp"] >= 5  # the same in every run

    @pytest.mark.parametrize("module", [chain, tree])
    def test_costs_grow_as_claimed(self, module: Any) -> None:
        """Counts of operations. 0.1 is what lower powers (n - 1 steps, say) do to them at these sizes."""
        for term in module.terms(CPU):
            found = growth.count(term)
            assert len(set(found["values"])) >= 4
            assert found["counted"] == pytest.approx(found["claimed"], abs=0.1), found


def reference(benchmark: str, parameters: dict[str, Tensor], words: Tensor) -> Tensor:
    """log p by the generic engine."""
    grammar: FGG
    linear = [parameter.exp() for parameter in parameters.values()]
    if benchmark == "chain":
        grammar = zoo.factored_hmm(*linear, end=torch.ones_like(linear[0]))
    else:
        grammar = zoo.split_factored_pcfg(*linear)
    return GenericEngine(grammar).log_z(words)


def normalised(logits: dict[str, Tensor]) -> dict[str, Tensor]:
    """Distributions: along them, the state after the last word, which the grammar has, is nothing but a factor of 1."""
    return {name: value.log_softmax(-1) for name, value in logits.items()}


class TestPeers:
    @pytest.mark.parametrize("benchmark", ["chain", "tree"])
    @pytest.mark.parametrize("name", chain.PEERS)
    def test_same_as_the_generic_engine(self, benchmark: str, name: str) -> None:
        size = {"chain": chain.Size(5, 3, 3, 6, 7), "tree": tree.Size(3, 4, 5, 3, 6, 7)}[benchmark]
        task = {"chain": chain, "tree": tree}[benchmark].task(size, CPU)
        task = Task(task.sizes, task.words, {key: value.double() for key, value in task.parameters.items()})
        [peer] = peers.implementations(benchmark, [name]).values()
        found = task.run(lambda words, **logits: peer(words, **normalised(logits)))
        expected = task.run(lambda words, **logits: reference(benchmark, normalised(logits), words))
        for part, value in found.items():
            # float64; the two differ in the order of some hundred sums
            torch.testing.assert_close(value, expected[part], rtol=1e-10, atol=1e-12)

    def test_folder_that_is_not_there(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setattr(peers, "FOLDER", tmp_path / "peers")
        suite = chain.quick_suite(CPU)
        assert suite.missing == [
            f"There is no {tmp_path / 'peers'}: rankspace is measured alone. The peers come with a source checkout."
        ]
        assert list(suite.compared(suite.rank_space[0])["implementations"]) == ["rankspace"]
        assert suite.dense == []

    def test_package_that_is_not_there(self) -> None:
        package = peers.Package("no-such-package", "no_such_package", "nothing")
        assert peers.missing([package]) == [
            "no-such-package is not installed and not compared with; pip install no-such-package."
        ]


class TestComparison:
    task = Task({}, torch.zeros(1, 1, dtype=torch.int64), {"weight": torch.tensor([2.0])})

    @pytest.mark.parametrize(
        ("wrong", "message"),
        [
            (lambda words, weight: 3 * weight, "bench chain: rankspace and other differ by 5.0e-01 in log p"),
            (
                lambda words, weight: 2 * weight.detach() + 0 * weight,
                "bench chain: rankspace and other differ by 1.0e+00 in the gradient of weight",
            ),
        ],
    )
    def test_wrong_results_are_not_timed(self, wrong: Callable[..., Tensor], message: str) -> None:
        ticks: list[int] = []
        both = {"rankspace": Implementation(lambda words, weight: 2 * weight, 1), "other": Implementation(wrong, 1)}
        with pytest.raises(RankspaceError) as caught:
            compare("chain", self.task, both, 1, lambda: ticks.append(1))
        assert str(caught.value) == f"{message}; nothing was timed."
        assert not ticks

    def test_nan_is_not_agreement(self) -> None:
        with pytest.raises(RankspaceError, match="differ by nan in log p"):
            check("tree", {"log p": torch.tensor([torch.nan])}, "other", {"log p": torch.tensor([1.0])})

    def test_each_takes_its_turn(self) -> None:
        ticks: list[int] = []
        both = {name: Implementation(lambda words, weight: 2 * weight, 1) for name in ("rankspace", "other")}
        part = compare("chain", self.task, both, 2, lambda: ticks.append(1))
        assert len(ticks) == num_ticks(2, 2) == 6
        assert set(part["faster"]) == set(part["smaller"]) == {"other"}


class TestMeasurements:
    def test_peak_is_that_of_tensors_held_at_once(self) -> None:
        def program() -> Tensor:
            first = torch.ones(1000, 250)  # 1 MB
            second = first + 1  # 2 MB
            del first
            return second + 1  # 2 MB

        assert peak_bytes(program, CPU) == pytest.approx(2_000_000, abs=100)  # the ones are tensors, too

    def test_peak_counts_what_an_operation_holds_inside(self) -> None:
        values = torch.ones(1000, 250)
        assert peak_bytes(lambda: values.logsumexp(0), CPU) > 1_000_000  # the exponentials

    def test_operations_of_both_passes(self) -> None:
        left, right = torch.ones(4, 5, requires_grad=True), torch.ones(5, 6, requires_grad=True)
        counts = operations(lambda: (left @ right).sum().backward())
        assert counts["products"] == 3 * 2 * 4 * 5 * 6  # forward, and one for either gradient
        assert counts["elementwise"] > 0

    def test_views_move_nothing(self) -> None:
        values = torch.ones(10, 10)
        assert operations(lambda: values.T[:5].contiguous().view(-1, 2).T) == {
            "products": 0,
            "elementwise": 50,
            "sums": 0,
        }

    def test_phases(self) -> None:
        values = torch.ones(300, 300)
        times = phase_milliseconds(lambda: (values @ values).exp(), CPU)
        assert times["products"] > 0
        assert times["elementwise"] > 0

    def test_fitted_power(self) -> None:
        values = [2, 3, 5, 8]
        assert fitted_power(values, [7 * value**3 for value in values]) == pytest.approx(3, abs=1e-12)
