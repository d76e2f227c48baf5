"""What `rankspace bench gpu` asks of a step before it prints a time: gradients of each weight, and a replay."""

import math
import re
from collections.abc import Callable
from dataclasses import replace
from itertools import cycle
from typing import Any

import pytest
import torch

from rankspace.bench import gpu_step, gpu_timing, gpu_training, gpu_weights
from rankspace.bench.gpu_inputs import Sentences, new_model
from rankspace.bench.gpu_rows import ROWS, small
from rankspace.bench.gpu_timing import Difference, Outcome, Replay, Step, replayed, training_step
from rankspace.bench.gpu_weights import WeightError, gradient_errors, worst_of
from rankspace.errors import RankspaceError

CPU = torch.device("cpu")
ROW = {row.name: row for row in ROWS}


@pytest.fixture(autouse=True)
def no_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Models run by torch, whatever tests of kernels have switched on in this process."""
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)


def gradients(**values: list[float]) -> dict[str, torch.Tensor]:
    return {name: torch.tensor(each, dtype=torch.float64) for name, each in values.items()}


class TestWeights:
    def test_each_against_its_own_norm(self) -> None:
        found = gradient_errors(gradients(a=[3.0, 4.5], b=[0.5]), gradients(a=[3.0, 4.0], b=[1.0]))
        whole = math.sqrt(26)
        assert found.whole == pytest.approx(math.sqrt(0.5) / whole)
        assert [each.name for each in found.weights] == ["a", "b"]
        assert [each.error for each in found.weights] == pytest.approx([0.1, 0.5])
        assert [each.share for each in found.weights] == pytest.approx([5 / whole, 1 / whole])
        assert found.why_wrong == ""  # just within

    def test_a_network_of_noise_that_a_norm_over_all_does_not_see(self) -> None:
        found = gradient_errors(gradients(a=[1.0], b=[-0.01]), gradients(a=[1.0], b=[0.01]))
        assert found.whole <= gpu_step.GRADIENT_LIMITS["medium"]
        assert found.why_wrong == "the gradient of b is off by 2.0e+00 of its norm, more than 0.5"

    @pytest.mark.parametrize(("error", "wrong"), [(0.8, ""), (1.0, "off by 1.0e+00 of its norm, more than 0.9")])
    def test_what_is_smaller_than_bfloat16_rounds_must_not_be_missing(self, error: float, wrong: str) -> None:
        """As the transition of `lhmm` is at its size."""
        found = gradient_errors(gradients(a=[1.0], b=[3e-6 * (1 - error)]), gradients(a=[1.0], b=[3e-6]))
        assert found.why_wrong.removeprefix("the gradient of b is ") == wrong

    def test_what_is_next_to_nothing_is_not_judged(self) -> None:
        found = gradient_errors(gradients(a=[1.0], b=[-9e-7]), gradients(a=[1.0], b=[9e-7]))
        assert found.why_wrong == ""
        assert worst_of(found.weights, judged=False) == WeightError("b", 2.0, pytest.approx(9e-7))

    def test_the_worst_is_the_one_nearest_to_its_limit(self) -> None:
        found = gradient_errors(gradients(a=[1.0], b=[0.06], c=[3e-5]), gradients(a=[1.0], b=[0.1], c=[1e-4]))
        assert [each.error for each in found.weights[1:]] == pytest.approx([0.4, 0.7])
        worst = worst_of(found.weights)
        assert worst is not None
        assert worst.name == "b"

    def test_a_weight_that_gets_no_gradient(self) -> None:
        found = gradient_errors(gradients(a=[1.0]), gradients(a=[1.0], b=[0.01]))
        assert found.why_wrong == "the gradient of b is off by 1.0e+00 of its norm, more than 0.5"

    def test_a_gradient_where_there_is_none(self) -> None:
        """It has no norm to be held against, but counts in the whole."""
        found = gradient_errors(gradients(a=[1.0], b=[0.25], c=[0.0]), gradients(a=[1.0], c=[0.0]))
        assert found.whole == pytest.approx(0.25)
        assert [each.name for each in found.weights] == ["a"]

    def test_what_is_no_number_is_furthest_off(self) -> None:
        found = gradient_errors(gradients(a=[5.0], b=[math.nan]), gradients(a=[1.0], b=[1.0]))
        assert math.isnan(found.whole)
        assert found.why_wrong == "the gradient of b is off by nan of its norm, more than 0.5"

    def test_nothing_to_compare(self) -> None:
        found = gradient_errors({}, {})
        assert (found.whole, found.why_wrong, worst_of(found.weights)) == (0.0, "", None)

    def test_a_step_with_one_wrong_weight_is_not_timed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        row, right, factors = small(ROW["tn-pcfg"]), gpu_step._gradients, cycle((1.0, 1.0, -1.0, 1.0))
        right_one = gpu_step.measure(row, CPU, 1)
        some = [each for each in right_one["weights"] if gpu_weights.SHARE < each["share"] < 5e-3]
        name = some[0]["name"]

        def turned(*given: Any) -> Any:
            """The step's gradient of one weight turned around, in the second comparison."""
            found, factor = right(*given), next(factors)
            return {**found, name: factor * found[name]}

        monkeypatch.setattr(gpu_step, "_gradients", turned)
        assert gpu_step.measure(row, CPU, 1)["wrong"] == right_one["wrong"] == ""
        found = gpu_step.measure(row, CPU, 1)
        assert found["gradient_error"] < 2e-2
        assert found["wrong"] == f"the gradient of {name} is off by 2.0e+00 of its norm, more than 0.5"
        assert found["worst_weight"]["name"] == name
        assert "milliseconds" not in found


def test_sentences_that_the_backward_pass_gives_up_are_left_out_of_both(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gradients are compared without them, and they are counted."""
    row, right = small(replace(ROW["rank-hmm"], precision="highest")), gpu_step.log_prob

    def gives_up(*given: Any) -> Any:
        log_p, lost = right(*given)
        lost = lost.clone()

        def mark(slopes: torch.Tensor) -> None:
            lost[0] |= bool(slopes[0])

        log_p.register_hook(mark)
        return log_p, lost

    expected = gpu_step._compared(row, CPU, gpu_step.SHARPNESS)
    monkeypatch.setattr(gpu_step, "log_prob", gives_up)
    found = gpu_step._compared(row, CPU, gpu_step.SHARPNESS)
    assert (expected["lost"], found["lost"], found["wrong"]) == (0, 1, "")
    assert found["gradient_error"] < 1e-4


def changed(change: Callable[[Outcome], Outcome]) -> Callable[[Step, torch.device], Step]:
    """What is timed in place of a step: something that finds something else."""
    return lambda step, _: lambda: change(step().copied())


def scaled(found: Outcome) -> Outcome:
    """By 128 of what float32 rounds to, so that the difference is known in two digits."""
    return found._replace(gradients=[each * (1 + 2**-16) for each in found.gradients])


WRONG = [
    (lambda found: found._replace(log_p=found.log_p + 2**-10), r"^the step that was timed is 9\.8e-04 .* in log p$"),
    (scaled, r"^the step that was timed is 1\.5e-05 from its launches in gradients$"),
    (lambda found: found._replace(gradients=[each * math.nan for each in found.gradients]), r" is nan from "),
    (lambda found: found._replace(lost=~found.lost), r"^the step that was timed lost 3 sentences$"),
]


class TestReplay:
    @pytest.mark.parametrize(("change", "expected"), WRONG)
    def test_what_computes_something_else_has_no_time(
        self, monkeypatch: pytest.MonkeyPatch, change: Callable[[Outcome], Outcome], expected: str
    ) -> None:
        monkeypatch.setattr(gpu_timing, "_readied", changed(change))
        found = gpu_step.measure(small(ROW["tn-pcfg"]), CPU, 1)
        assert re.search(expected, found["wrong"])
        assert "milliseconds" not in found
        assert found["way"] == "eager"

    def test_dropout_is_on_and_drawn_alike(self) -> None:
        """Two steps draw differently; the runs that are compared do not."""
        row = small(replace(ROW["rank-hmm"], precision="highest"))
        sentences = Sentences.of(row, CPU)
        step = training_step(new_model(row, CPU).train(), sentences)
        assert not torch.equal(step().log_p, step().log_p)
        same = Difference(0.0, 0.0)
        assert replayed(step, step, sentences) == Replay(same, same, 0)

    def test_a_program_that_keeps_the_seed_it_was_recorded_with_is_found_out(self) -> None:
        row = small(replace(ROW["rank-hmm"], precision="highest"))
        sentences = Sentences.of(row, CPU)
        step = training_step(new_model(row, CPU).train(), sentences)
        recorded = step().copied()
        assert replayed(lambda: recorded, step, sentences).why_wrong.startswith("the step that was timed is ")

    @pytest.mark.parametrize(("factor", "is_wrong"), [(5, False), (20, True)])
    def test_launches_that_differ_leave_a_replay_room(self, factor: int, is_wrong: bool) -> None:
        replay = Replay(Difference(0.0, factor * 1e-7), Difference(0.0, 1e-7), 0)
        assert bool(replay.why_wrong) == is_wrong

    def test_a_difference_in_the_last_bit_of_a_small_number(self) -> None:
        one, nothing = torch.tensor([1e-30]), torch.zeros(1, dtype=torch.bool)
        found = [Outcome(torch.zeros(1), nothing, [each]) for each in (one, one.nextafter(torch.ones(1)))]
        assert 0 < Difference.between(*found).gradients < 1e-6

    def test_steps_alone_must_be_the_steps(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(gpu_timing, "_readied", changed(scaled))
        steps = [gpu_training.Step((2, 4), 10, 0.01)]
        with pytest.raises(RankspaceError) as caught:
            gpu_training.alone(small(ROW["tn-pcfg"]), steps, CPU, 1)
        assert str(caught.value) == "2 x 4: the step that was timed is 1.5e-05 from its launches in gradients"
