"""Training curves: panels for what the records have, a line for each run and split, axes with round numbers."""

from math import exp
from typing import Any

import pytest

from rankspace.errors import RankspaceError
from rankspace.viz import training_curves
from rankspace.viz.axes import Axis, written
from rankspace.viz.curves import MAX_POINTS
from rankspace.viz.shapes import Line, Rectangle
from viz.elements import flat, groups, is_within, texts


def records(offset: float = 0.0) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for step in range(1, 101):
        loss = 5 - step / 50 + offset
        found.append({"step": step, "split": "train", "loss": 20 * loss, "perplexity": exp(loss)})
        if step % 20 == 0:
            found.append(
                {"step": step, "split": "valid", "epoch": step // 20, "perplexity": exp(7 - step / 20), "f1": step / 2}
            )
    return found


def test_there_is_a_panel_for_each_value_and_a_line_for_each_split() -> None:
    picture = training_curves({"run": records()})
    assert [group.note for group in groups(picture, "curve")] == [
        "run, train: loss per word", "run, train: perplexity", "run, valid: perplexity", "run, valid: F1"
    ]  # fmt: skip
    assert {"loss per word", "perplexity, log scale", "F1", "step"} <= set(texts(picture))
    assert [group.note for group in groups(picture, "entry")] == ["train", "valid"]
    assert [group.note for group in groups(picture, "best")] == [
        "run, valid: best perplexity 7.389 at 100", "run, valid: best F1 50 at 100"
    ]  # fmt: skip
    assert picture.description == "training curves: best loss per word 3; best perplexity 7.389; best F1 50"
    assert is_within(picture)


def test_the_result_of_a_run_is_no_point_of_its_curves() -> None:
    final = {"step": 100, "split": "test", "perplexity": 9.0, "f1": 60.0, "final": True}
    assert training_curves({"run": [*records(), final]}) == training_curves({"run": records()})


def test_a_loss_per_sentence_is_drawn_only_where_there_is_no_perplexity() -> None:
    train = [{"step": step, "loss": float(step)} for step in (1, 2)]
    valid = [{"step": 2, "split": "valid", "perplexity": 9.0}]
    assert [group.note for group in groups(training_curves({"run": train}), "curve")] == ["run, train: loss"]
    assert [group.note for group in groups(training_curves({"run": train + valid}), "curve")] == [
        "run, valid: perplexity"
    ]


def test_panels_share_their_steps() -> None:
    train = [{"step": step, "perplexity": 9.0} for step in (10, 50)]
    valid = [{"step": step, "split": "valid", "f1": float(step)} for step in (20, 30)]
    sheets = [training_curves({"run": train}), training_curves({"run": train + valid})]
    assert [texts(sheet).count("50") for sheet in sheets] == [1, 2]


def test_runs_have_their_colours_and_a_legend() -> None:
    picture = training_curves({f"seed {seed}": records(seed) for seed in range(3)}, "title")
    colours = {shape.colour for group in groups(picture, "curve") for shape in flat([group]) if isinstance(shape, Line)}
    assert colours == {"series_1", "series_2", "series_3"}
    assert [group.note for group in groups(picture, "entry")] == ["seed 0", "seed 1", "seed 2", "train", "valid"]
    assert "title" in texts(picture)
    assert is_within(picture)


def test_missing_values_are_passed_over_and_those_not_finite_break_the_line() -> None:
    values: list[Any] = [3.0, None, 2.0, "inf", float("nan"), 2.5, 2.25, "nan", 2.0]
    picture = training_curves({"run": [{"loss": value, "epoch": epoch} for epoch, value in enumerate(values)] + [{}]})
    (curve,) = groups(picture, "curve")
    assert [type(shape) for shape in curve.shapes] == [Line, Line, Rectangle]
    assert "epoch" in texts(picture)


def test_records_without_step_and_epoch_are_counted() -> None:
    assert "record" in texts(training_curves({"run": [{"f1": 1}, {"f1": 2.0}]}))


def test_one_value_is_a_dot() -> None:
    picture = training_curves({"run": [{"step": 0, "loss": 0.0}]})
    assert [type(shape) for group in groups(picture, "curve") for shape in group.shapes] == [Rectangle]
    assert is_within(picture)


def test_many_points_are_drawn_as_means() -> None:
    noisy = [{"step": step, "loss": step % 2 + 0.0} for step in range(10 * MAX_POINTS)]
    (line,) = flat([*groups(training_curves({"run": noisy}), "curve")])
    assert isinstance(line, Line)
    assert len(line.points) == MAX_POINTS
    assert len({round(y, 6) for _, y in line.points}) == 1


def test_names_are_escaped() -> None:
    picture = training_curves({"<a>": records(), "b&": records()})
    assert {"<a>", "b&"} <= set(texts(picture))


def test_nothing_to_draw_is_refused() -> None:
    for runs in ({}, {"run": []}, {"run": [{"step": 1, "loss": "nan"}]}):
        with pytest.raises(RankspaceError) as caught:
            training_curves(runs)  # type: ignore[arg-type]
        assert str(caught.value) == (
            "training_curves: no record has a finite number for one of loss, perplexity, f1; give some that do."
        )


@pytest.mark.parametrize(
    ("axis", "marks"),
    [
        (Axis(0.0, 10.0, 100.0), [0, 2, 4, 6, 8, 10]),
        (Axis(2.9, 6.1, 100.0), [3, 4, 5, 6]),
        (Axis(-0.02, 0.02, 100.0), [-0.02, -0.01, 0, 0.01, 0.02]),
        (Axis(0.0, 3.0, 100.0, whole=True), [0, 1, 2, 3]),
        (Axis(0.0, 12.0, 100.0, whole=True), [0, 3, 6, 9, 12]),
        (Axis(3.0, 90.0, 100.0, logarithmic=True), [3, 10, 30]),
        (Axis(20.0, 90000.0, 100.0, logarithmic=True), [100, 1000, 10000]),
        (Axis(15.0, 240.0, 100.0, logarithmic=True), [20, 50, 100, 200]),
        (Axis(110.0, 410.0, 100.0, logarithmic=True), [200, 300, 400]),
        (Axis(99.0, 103.0, 100.0, logarithmic=True), [99, 100, 101, 102, 103]),
    ],
)
def test_marks_are_round_numbers(axis: Axis, marks: list[float]) -> None:
    assert axis.marks() == pytest.approx(marks, abs=1e-12)
    assert all(-1e-9 <= axis.place(mark) <= 100 + 1e-9 for mark in axis.marks())


def test_perplexities_have_a_logarithmic_axis_however_near_they_are() -> None:
    """On a linear one the first few values press all others together."""
    found = [{"step": step, "split": "valid", "perplexity": value} for step, value in enumerate((900, 150, 130, 120))]
    assert "perplexity, log scale" in texts(training_curves({"run": found}))
    assert "perplexity, log scale" in texts(training_curves({"run": found[2:]}))
    assert "perplexity" in texts(training_curves({"run": found[3:]}))  # a single number has a linear one
    assert Axis.of_values([900.0, 150.0, 130.0, 120.0], 100.0, True).place(150.0) > 14


def test_the_last_step_gets_its_mark() -> None:
    assert Axis.of_steps([0.0, 1999.0], 100.0).marks()[-1] == 2000
    assert Axis.of_steps([5.0], 100.0).marks() == [4, 5, 6]


@pytest.mark.parametrize(
    ("value", "text"), [(0.0, "0"), (0.25, "0.25"), (2000.0, "2000"), (12500.0, "12.5k"), (3e6, "3M"), (-40.0, "-40")]
)
def test_numbers_at_marks_are_short(value: float, text: str) -> None:
    assert written(value) == text
