"""Every table and every row is what it says it is."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from rankspace.bench import gpu_rows, pages
from rankspace.errors import FormatError, RankspaceError
from rankspace.experiments import load_table, table_names, tables
from rankspace.experiments.record import planned_record
from rankspace.experiments.statistics import figure
from rankspace.experiments.toy import NUM_SENTENCES, toy_row
from rankspace.models import MODELS
from rankspace.training import load_preset, preset_names

NAMES = (
    "craft-small",
    "hmm-recipe",
    "hmm-table2",
    "hmm-table3",
    "pcfg-figure6",
    "pcfg-recipe",
    "pcfg-table1",
    "precision",
)
ROWS = [(table, row.name) for table in NAMES for row in load_table(table).rows]
FOLDER = Path(tables.__file__).parent
RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"
ONE_THING = {  # keys that a row may change together, and why they are one thing
    "a curriculum begins somewhere and grows": {"curriculum.start", "curriculum.growth"},
    "the betas of Adam are chosen together": {"optimiser.beta1", "optimiser.beta2"},
    "AdamW is Adam that has decay": {"optimiser.name", "optimiser.weight_decay"},
    "these mean nothing without their schedule": {
        f"schedule.{key}" for key in ("name", "factor", "patience", "lowest")
    },
    "a warm-up of one epoch has as many steps as there are batches": {"batches.max_tokens", "schedule.warm_up"},
}
EPOCHS = {512: 1860, 1024: 919}  # steps of an epoch of the PTB text, by the tokens of a batch
RECIPE = ("batches", "optimiser", "objective", "evaluation", "run")  # sections


def row_of(table: str, name: str) -> tables.Row:
    [row] = load_table(table).chosen([name])
    return row


def settings(table: str, *names: str) -> list[tuple[Any, ...]]:
    return [tuple(row.config.model.settings[name] for name in names) for row in load_table(table).rows]


def test_there_is_a_row_for_every_file() -> None:
    assert table_names() == list(NAMES)
    for name in NAMES:
        files = {file.stem for file in (FOLDER / name).glob("*.toml")} - {"table"}
        assert {row.name for row in load_table(name).rows} == files


@pytest.mark.parametrize(("table", "name"), ROWS)
def test_a_row(table: str, name: str) -> None:
    row = row_of(table, name)
    assert row.extends in preset_names()
    assert row.config.model.name in MODELS
    assert row.seeds == tuple(range(1, len(row.seeds) + 1))
    assert re.fullmatch("[a-z0-9-]+", row.name)
    assert row.title
    if row.ablation_of is not None:
        whole = row_of(table, row.ablation_of)
        assert (row.extends, row.config.model.name) == (whole.extends, whole.config.model.name)
        assert set(row.config.differences(whole.config)) <= set(row.changes)
        assert row.config.differences(whole.config)


@pytest.mark.parametrize(("table", "name"), ROWS)
def test_an_ablation_differs_in_one_thing(table: str, name: str) -> None:
    row = row_of(table, name)
    if row.ablation_of is not None:
        changed = set(row.config.differences(row_of(table, row.ablation_of).config))
        assert len(changed) == 1 or any(changed <= keys for keys in ONE_THING.values()), changed


@pytest.mark.parametrize(("table", "name"), [each for each in ROWS if each[0].startswith("hmm")])
def test_a_warm_up_takes_an_epoch(table: str, name: str) -> None:
    config = row_of(table, name).config
    if config.schedule.warm_up and name not in ("recipe-14", "recipe-xavier"):  # which had 908 steps, and say so
        assert config.schedule.warm_up == EPOCHS[config.batches.max_tokens]


@pytest.mark.parametrize(("table", "name"), ROWS)
def test_a_row_at_toy_size(table: str, name: str) -> None:
    row = row_of(table, name)
    toy = toy_row(row)
    assert (toy.name, toy.seeds, toy.config.run.epochs) == (row.name, (1,), 2)
    assert max(value for value in toy.config.model.settings.values() if isinstance(value, int)) <= NUM_SENTENCES


class TestWhatTheIssueAsksFor:
    def test_rows_of_table_2_have_the_figures_of_the_paper(self) -> None:
        """By the paper's recipe and by ours, of which the seeds are four."""
        for names in (("rank-hmm-14", "rank-hmm-15"), ("best-14", "best-15")):
            found = [row_of("hmm-table2", name) for name in names]
            figures = [(row.paper["valid"], row.paper["test"]) for row in found]
            assert figures == [(135.6, 127.0), (137.0, 126.4)]
            assert [row.config.model.settings["states"] for row in found] == [2**14, 2**15]
        ours = [row_of("hmm-table2", name) for name in ("best-14", "best-15", "best-rank-8192")]
        assert [row.seeds for row in ours] == [(1, 2, 3, 4)] * 3

    def test_the_recipe_is_the_preset_and_among_the_ingredients(self) -> None:
        for name, ingredient in (
            ("best-14", "normal-rate-5-decay-size-512"),
            ("best-15", "wide-states-15"),
            ("best-rank-8192", "wide-rank-8192"),
        ):
            assert not row_of("hmm-recipe", ingredient).config.differences(row_of("hmm-table2", name).config)
        assert row_of("hmm-table2", "best-rank-8192").config == load_preset("best-hmm")

    def test_the_preset_for_grammars_is_the_row_that_parses_best(self) -> None:
        """By the trees of the validation split, of all rows of the paper's model that have been run on them; the preset
        needs no trees."""
        names = ("pcfg-table1", "pcfg-figure6")
        made = [planned_record(load_table(name), pages.record(RESULTS, f"experiment-{name}")) for name in names]
        rows = [row for found in made for row in found["rows"] if row["data"] == "ptb"]
        rows = [row for row in rows if row["config"]["model.name"] == "rank-pcfg"]
        s_f1 = {row["name"]: figure(row, "valid", "s_f1") for row in rows}
        means = {name: found["mean"] for name, found in s_f1.items() if found}
        best = row_of("pcfg-figure6", max(means, key=means.__getitem__)).config
        assert load_preset("best-pcfg").changed({"evaluation.measure": "s_f1"}) == best

    def test_every_ingredient_of_the_recipe_has_an_ablation(self) -> None:
        """There are rows that differ in it alone, or in it and what goes with it."""
        rows = {row.name: row for row in load_table("hmm-recipe").rows}
        pairs = [row.config.differences(rows[row.ablation_of].config) for row in rows.values() if row.ablation_of]
        changed = {key for each in pairs for key in each}
        assert set(load_preset("best-hmm").differences(load_preset("paper-hmm"))) <= changed

    def test_precisions_have_runs_of_every_model_of_the_benchmark(self) -> None:
        """In the precision of its row there and in "highest", otherwise the same."""
        rows = {row.name: row for row in load_table("precision").rows}
        pairs = {(row.config.model.name, row.config.run.precision) for row in rows.values() if row.ablation_of}
        assert pairs == {(row.model, row.precision) for row in gpu_rows.ROWS if row.precision != "highest"}
        for row in rows.values():
            whole = row if row.ablation_of is None else rows[row.ablation_of]
            assert whole.config.run.precision == "highest"
            assert set(row.config.differences(whole.config)) <= {"run.precision"}

    def test_baselines(self) -> None:
        rows = {row.name: row.config.model for row in load_table("hmm-table2").rows}
        assert (rows["hmm-4096"].name, rows["hmm-4096"].settings["states"]) == ("hmm", 4096)
        exchanged = rows["lhmm-exchanged"]
        assert (exchanged.name, exchanged.settings["states"], exchanged.settings["rank"]) == ("lhmm", 2048, 2**15)
        found = {(rows[name].settings["states"], rows[name].settings["clusters"]) for name in rows if "vl-hmm" in name}
        assert found == {(2**power, clusters) for power in (14, 15) for clusters in ("brown", "uniform")}

    def test_baselines_by_our_recipe(self) -> None:
        """Everything that is not the model's is as in the row of our recipe."""
        best = row_of("hmm-table2", "best-14").config
        rows = {row.name: row.config for row in load_table("hmm-table2").rows}
        names = [name for name, config in rows.items() if config.model.name != "rank-hmm"]
        assert len(names) == 7
        for name in names:
            assert [getattr(rows[name], part) for part in RECIPE] == [getattr(best, part) for part in RECIPE]
            assert (rows[name].schedule.name, rows[name].schedule.warm_up) == ("cosine", best.schedule.warm_up)
        lhmm = {"states": 2**14, "rank": 2048, "size": 256, "dropout": 0.1, "state_dropout": 0.1, "form": "features"}
        assert rows["lhmm-14"].model.settings == lhmm

    def test_table_3(self) -> None:
        assert settings("hmm-table3", "states", "rank") == [(2**power, 2048) for power in range(12, 16)]
        best = row_of("hmm-table2", "best-14").config
        for row in load_table("hmm-table3").rows:
            assert set(row.config.differences(best)) <= {"model.states", "model.rank"}

    def test_table_1(self) -> None:
        rows = load_table("pcfg-table1").rows
        assert [row.config.model.name for row in rows[:5]] == [
            "rank-pcfg",
            "simple-pcfg",
            "tn-pcfg",
            "n-pcfg",
            "c-pcfg",
        ]
        assert {row.data for row in rows[:5]} == {("ptb", "craft")}
        assert len(rows[0].seeds) == 5
        assert [row.paper["s_f1"] for row in rows[:5]] == [64.1, 65.1, 57.7, 50.8, 55.2]
        assert rows[0].reproduction == {"s_f1": 57.4, "deviation": 6.0, "num": 32}

    def test_as_in_the_published_code(self) -> None:
        row, whole = (row_of("pcfg-table1", name) for name in ("rank-pcfg-code", "rank-pcfg"))
        assert (row.seeds, row.data, row.ablation_of) == ((1, 2, 3, 4), ("ptb", "craft"), None)
        changed = {"initial": "xavier", "networks": "rectified", "biases": "uniform", "start": "embedding", "size": 512}
        assert {key: row.config.model.settings[key] for key in changed} == changed
        assert set(row.config.differences(whole.config)) == {f"model.{key}" for key in changed}
        small, like = (row_of("pcfg-recipe", name) for name in ("all-lengths-long-code", "all-lengths-long"))
        assert {key: small.config.model.settings[key] for key in changed} == {**changed, "size": 128}
        assert set(small.config.differences(like.config)) == {f"model.{key}" for key in changed.keys() - {"size"}}

    def test_as_many_nonterminals_as_ranks(self) -> None:
        simple, whole = (row_of("pcfg-table1", name).config.model for name in ("simple-pcfg-1000", "rank-pcfg"))
        assert simple.settings["nonterminals"] == whole.settings["rank"]
        assert simple.settings["preterminals"] == whole.settings["preterminals"]

    def test_batches_of_small_grammars(self) -> None:
        for name in ("n-pcfg", "c-pcfg"):
            row = row_of("pcfg-table1", name)
            assert set(row.config.differences(load_preset(name))) == {"batches.max_sentences", "evaluation.measure"}
            assert row.config.batches.max_sentences == 16

    def test_models_of_the_package(self) -> None:
        rows = load_table("craft-small").rows
        assert [(row.name, row.config.model.name, row.data) for row in rows] == [
            ("pcfg", "simple-pcfg", ("craft",)),
            ("hmm", "rank-hmm", ("craft-text",)),
        ]

    def test_figure_6(self) -> None:
        found = settings("pcfg-figure6", "nonterminals", "preterminals", "rank")
        assert len(found) >= 5
        assert all(preterminals == 2 * nonterminals and rank == 1000 for nonterminals, preterminals, rank in found)


class TestMistakes:
    def complaint(self, monkeypatch: pytest.MonkeyPatch, row: Mapping[str, Any]) -> str:
        whole = {"title": "t", "extends": "paper-hmm", "seeds": [1], "data": ["ptb"]}
        about = {"title": "t", "rows": ["row"], "splits": ["test"]}
        monkeypatch.setattr(tables, "_read", lambda table, name: about if name == "table" else {**whole, **row})
        with pytest.raises(FormatError) as error:
            load_table("hmm-table2")
        return str(error.value).removeprefix("experiment hmm-table2/row.toml: ")

    def test_in_rows(self, monkeypatch: pytest.MonkeyPatch) -> None:
        presets = ", ".join(preset_names())
        for row, message in (
            (
                {"seed": 1},
                "there is no key seed; there are ablation_of, about, config, data, extends, paper, reproduction, "
                "seeds, title.",
            ),
            ({"ablation_of": "x"}, "ablation_of is 'x'; give the name of a row before it."),
            ({"data": ["gum"]}, "data has 'gum'; there are ptb-text, ptb, craft, craft-text."),
            ({"extends": "paper"}, f"there is no preset 'paper'; there are {presets}."),
            ({"config": {"run": {"epoch": 1}}}, "there is no key run.epoch; did you mean run.epochs?"),
        ):
            assert self.complaint(monkeypatch, row) == message

    def test_names(self) -> None:
        with pytest.raises(RankspaceError) as error:
            load_table("table-2")
        assert str(error.value) == f"experiment: there is no table 'table-2'; there are {', '.join(NAMES)}."
        with pytest.raises(RankspaceError) as error:
            load_table("hmm-table3").chosen(["states-12", "states-11"])
        assert str(error.value) == (
            "experiment: hmm-table3 has no row 'states-11'; there are states-12, states-13, states-14, states-15."
        )
