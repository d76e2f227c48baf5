"""Figures of a row over its seeds, by hand."""

from typing import Any

import pytest

from rankspace.experiments.statistics import by_epoch, has_collapsed, minutes_to, of_runs, spread, without_trees


def run(s_f1: float, perplexity: float | str = 100.0, state: str = "finished") -> dict[str, Any]:
    bounds = {"right_branching": {"s_f1": 39.5}}
    evaluations = [{"perplexity": value, "elapsed": 60.0 * place} for place, value in enumerate(("inf", 200.0, 140.0))]
    scores = {"test": {"s_f1": s_f1, "perplexity": perplexity, "bounds": bounds}}
    return {"state": state, "seconds": 90.0, "evaluations": evaluations, "scores": scores}


def test_spread() -> None:
    assert spread([1.0, 3.0], lower=True) == {
        "mean": 2.0,
        "deviation": pytest.approx(2**0.5),
        "best": 1.0,
        "worst": 3.0,
        "num": 2,
    }
    assert spread([1.0, 3.0], lower=False) == pytest.approx(
        {"mean": 2.0, "deviation": 2**0.5, "best": 3.0, "worst": 1.0, "num": 2}
    )
    assert spread([5.0], lower=True) == {"mean": 5.0, "deviation": 0.0, "best": 5.0, "worst": 5.0, "num": 1}
    assert spread([], lower=True) is None


def test_training_by_epoch() -> None:
    """Logged every two steps, and what an epoch leaves over."""

    def logged(step: int, epoch: int, perplexity: float | str, **more: int) -> dict[str, Any]:
        return {"step": step, "epoch": epoch, "split": "train", "perplexity": perplexity, **more}

    evaluated = {"step": 3, "epoch": 1, "split": "valid", "perplexity": 7.0}
    metrics = [logged(2, 1, 400.0), logged(3, 1, 50.0, num_again=2), evaluated, logged(5, 2, 30.0, num_again=1)]
    assert by_epoch(metrics) == [
        {"epoch": 1, "perplexity": pytest.approx(200.0), "num_again": 2},  # (400 * 400 * 50)^(1/3)
        {"epoch": 2, "perplexity": pytest.approx(30.0), "num_again": 1},
    ]
    assert by_epoch([logged(1, 1, "inf")])[0]["perplexity"] == float("inf")
    assert by_epoch([evaluated]) == []


def test_collapsed_is_below_right_branching() -> None:
    assert has_collapsed(run(39.4)["scores"]["test"])
    assert not has_collapsed(run(39.5)["scores"]["test"])
    assert not has_collapsed({"perplexity": 3.0})


def test_minutes_to_a_perplexity() -> None:
    assert minutes_to(run(50.0), 200.0) == 1.0
    assert minutes_to(run(50.0), 150.0) == 2.0
    assert minutes_to(run(50.0), 100.0) is None


def test_of_runs() -> None:
    runs = [run(30.0), run(50.0), run(60.0, "inf"), run(0.0, state="failed"), run(0.0, state="under way")]
    found = of_runs(runs, 150.0)
    assert (found["num"], found["num_failed"]) == (3, 1)
    assert found["splits"]["test"]["s_f1"]["best"] == 60.0
    assert found["splits"]["test"]["num_collapsed"] == 1
    assert found["splits"]["test"]["perplexity"]["num"] == 2  # an infinite one has no mean
    assert found["minutes"]["mean"] == 1.5
    assert (found["minutes_to"]["perplexity"], found["minutes_to"]["mean"], found["minutes_to"]["num"]) == (
        150.0,
        2.0,
        3,
    )
    assert of_runs(runs, None)["minutes_to"] is None


def test_the_fastest_run_and_its_load() -> None:
    runs = [{**run(50.0), "seconds": 90.0}, {**run(50.0), "seconds": 60.0, "sharing": 3}, run(50.0, state="failed")]
    assert of_runs(runs, None)["fastest"] == {"minutes": 1.0, "sharing": 3}
    assert of_runs(runs[:1], None)["fastest"] == {"minutes": 1.5, "sharing": None}
    assert of_runs(runs[2:], None)["fastest"] is None


class TestChoosingWithoutTrees:
    def run(self, seed: int, f1: list[float], perplexity: list[float], held_out: float | None) -> dict[str, Any]:
        """A run whose S-F1 on the test split is its seed; each evaluation is a pair."""
        evaluations = [{"f1": one, "perplexity": other} for one, other in zip(f1, perplexity, strict=True)]
        scores = {"valid": {"s_f1": max(f1), "perplexity": min(perplexity)}, "test": {"s_f1": float(seed)}}
        if held_out is not None:
            scores["held-out"] = {"perplexity": held_out}
        return {"seed": seed, "state": "finished", "evaluations": evaluations, "scores": scores}

    def test_by_hand(self) -> None:
        runs = [self.run(1, [50.0, 60.0], [200.0, 150.0], 90.0), self.run(2, [52.0, 40.0], [180.0, 140.0], 80.0)]
        assert without_trees(runs) == {
            "num": 2,
            "num_same": 1,
            "valid": {"s_f1": 56.0, "perplexity": 50.0},
            "test": {"s_f1": {"seed": 1, "s_f1": 1.0}, "perplexity": {"seed": 2, "s_f1": 2.0}},
            "by_text": None,
        }

    def test_checkpoints_that_held_out_text_chose(self) -> None:
        """Seed 3 has none; of the others seed 1 has the lower perplexity there, whatever its best checkpoint has."""
        runs = [self.run(seed, [50.0], [100.0], 90.0 - seed) for seed in (1, 2, 3)]
        for run, f1, perplexity in zip(runs, (40.0, 44.0), (70.0, 75.0), strict=False):
            run["by_text"] = {"scores": {"test": {"s_f1": f1}, "held-out": {"perplexity": perplexity}}}
        found = without_trees(runs)
        assert found is not None
        assert found["by_text"]["seed"] == {"seed": 1, "s_f1": 40.0}
        assert (found["by_text"]["test"]["mean"], found["by_text"]["test"]["num"]) == (42.0, 2)
        assert (found["by_text"]["by_trees"]["mean"], found["by_text"]["by_trees"]["num"]) == (1.5, 2)

    def test_without_held_out_text_the_validation_split_counts(self) -> None:
        runs = [self.run(1, [50.0], [100.0], None), self.run(2, [51.0], [200.0], None)]
        found = without_trees(runs)
        assert found is not None
        assert [each["seed"] for each in found["test"].values()] == [2, 1]

    def test_runs_without_trees(self) -> None:
        assert without_trees([run(50.0)]) is None
        assert without_trees([]) is None
