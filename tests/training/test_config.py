"""Configurations: TOML there and back, presets, and the words for what is wrong."""

import math
import re
from dataclasses import fields
from pathlib import Path

import pytest

from rankspace.errors import FormatError, RankspaceError
from rankspace.models import MODELS, describe
from rankspace.training import Config, load_config, load_preset, preset_names
from rankspace.training.config import config_from_text, config_text, flat, options_of, parsed_settings, sections
from rankspace.training.model_settings import BOUNDS, DEFAULTS
from rankspace.training.options import default_of, kind_of

PAGE = Path(__file__).parents[2] / "docs" / "training.md"


@pytest.mark.parametrize("name", preset_names())
def test_a_preset_is_read_and_written_back(name: str) -> None:
    config = load_preset(name)
    assert config_from_text(config_text(config), "text") == config
    assert flat(config)["model.name"] == config.model.name


def test_there_is_a_preset_for_every_model() -> None:
    presets = set(preset_names())
    assert {"demo", "demo-hmm", "paper-pcfg", "paper-hmm"} <= presets
    assert set(MODELS) - {"rank-pcfg", "rank-hmm"} <= presets
    assert all(load_preset(name).model.name == name for name in set(MODELS) & presets)


def test_the_table_of_settings_is_that_of_the_models() -> None:
    """A setting or default that changes in a model changes in rankspace/training/model_settings.py too."""
    assert {name: describe(name).settings for name in MODELS} == DEFAULTS
    assert set(BOUNDS) == {name for name, model in MODELS.items() if model.BOUND}
    assert all(list(DEFAULTS[name]) == list(describe(name).settings) for name in MODELS)


def test_a_model_that_only_the_registry_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(DEFAULTS, "c-pcfg")
    assert Config().changed({"model.name": "c-pcfg", "objective.kl_warm_up": 2}).model.settings["latent"] == 64


def test_the_paper() -> None:
    pcfg, hmm = load_preset("paper-pcfg"), load_preset("paper-hmm")
    assert (pcfg.optimiser.name, pcfg.optimiser.learning_rate, pcfg.optimiser.beta1) == ("adam", 0.002, 0.75)
    assert (pcfg.batches.max_sentences, pcfg.optimiser.clip, pcfg.run.epochs) == (16, 3.0, 10)
    assert (hmm.optimiser.name, hmm.optimiser.learning_rate, hmm.optimiser.beta1) == ("adamw", 0.001, 0.99)
    assert (hmm.batches.max_tokens, hmm.optimiser.clip, hmm.run.epochs) == (256, 5.0, 30)
    assert (hmm.schedule.name, hmm.schedule.factor, hmm.schedule.patience) == ("plateau", 0.5, 2)
    assert hmm.model.settings["dropout"] == 0.1


def test_settings_of_the_command_line() -> None:
    found = parsed_settings(["run.seed=3", "model.start=ranks", "optimiser.clip = 2.5", 'data.train="t=1"'])
    assert found == {"run.seed": 3, "model.start": "ranks", "optimiser.clip": 2.5, "data.train": "t=1"}
    config = Config().changed(found)
    assert (config.run.seed, config.model.settings["start"], config.optimiser.clip) == (3, "ranks", 2.5)


def test_another_model_starts_from_its_own_defaults() -> None:
    config = load_preset("demo").changed({"model.name": "hmm", "model.states": 7})
    assert config.model.settings == {"states": 7, "size": 256, "dropout": 0.0}


def test_whole_numbers_will_do_for_others() -> None:
    assert Config().changed({"optimiser.clip": 3}).optimiser.clip == 3.0
    assert isinstance(Config().changed({"optimiser.clip": 3}).optimiser.clip, float)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("optimiser.learning_rat", 1, "there is no key optimiser.learning_rat; did you mean optimiser.learning_rate?"),
        ("optimizer.clip", 1, "there is no key optimizer.clip; did you mean optimiser.clip?"),
        ("optimizer.name", "adam", "there is no key optimizer.name; did you mean optimiser.name?"),
        ("optimizer.learning_rat", 1, "there is no key optimizer.learning_rat; did you mean optimiser.learning_rate?"),
        ("batch.max_token", 1, "there is no key batch.max_token; did you mean batches.max_tokens?"),
        ("run.clip", 1, "there is no key run.clip; did you mean optimiser.clip?"),
        ("seed", 1, "there is no key seed; did you mean run.seed?"),
        ("model.rnk", 1, "there is no key model.rnk; did you mean model.rank?"),
        (
            "model.eos",
            1,
            "there is no key model.eos; there are model.name, model.nonterminals, model.preterminals, model.rank, "
            "model.size, model.start, model.initial, model.networks, model.biases, model.dropout.",
        ),
        ("optimiser.learning_rate", 0, "optimiser.learning_rate is 0.0; give more than 0."),
        ("optimiser.learning_rate", "fast", "optimiser.learning_rate is 'fast'; give a number."),
        ("optimiser.beta1", 1.0, "optimiser.beta1 is 1.0; give at least 0 and less than 1."),
        ("optimiser.name", "sgd", "optimiser.name is 'sgd'; give one of 'adam', 'adamw', 'em'."),
        ("run.precision", "low", "run.precision is 'low'; give one of 'auto', 'highest', 'high', 'medium'."),
        ("run.epochs", 2.5, "run.epochs is 2.5; give a whole number."),
        ("run.epochs", True, "run.epochs is True; give a whole number."),
        ("batches.padded", 1, "batches.padded is 1; give true or false."),
        ("data.train", 1, "data.train is 1; give text in quotes."),
        ("model.rank", "many", "model.rank is 'many'; give a whole number."),
        ("optimiser.name", "em", "optimiser.name is 'em' but model.name 'rank-pcfg'; EM is for direct models."),
        ("optimiser.learning_rate", math.inf, "optimiser.learning_rate is inf; give a finite number."),
        ("optimiser.learning_rate", 10**400, "optimiser.learning_rate is inf; give a finite number."),
        ("model.dropout", -(10**400), "model.dropout is -inf; give a finite number."),
        ("run.seed", -1, "run.seed is -1; give at least 0 and at most 4294967295."),
        ("run.seed", 2**32, "run.seed is 4294967296; give at least 0 and at most 4294967295."),
        ("run.checkpoint_minutes", math.nan, "run.checkpoint_minutes is nan; give a finite number."),
        (
            "optimiser.weight_decay",
            0.5,
            "optimiser.weight_decay is 0.5 but optimiser.name 'adam'; take 'adamw' for it.",
        ),
        (
            "objective.kl_warm_up",
            5,
            "objective.kl_warm_up is 5 but model.name 'rank-pcfg' has no KL term; leave it out.",
        ),
    ],
)
def test_what_cannot_be_set(key: str, value: object, message: str) -> None:
    with pytest.raises(RankspaceError) as raised:
        Config().changed({key: value})
    assert str(raised.value) == f"config: {message}"


def test_settings_of_models_are_finite() -> None:
    with pytest.raises(RankspaceError) as raised:
        Config().changed({"model.name": "direct", "model.spread": math.inf})
    assert str(raised.value) == "config: model.spread is inf; give a finite number."


def test_what_is_measured_must_be_computed() -> None:
    with pytest.raises(RankspaceError) as raised:
        Config().changed({"evaluation.measure": "s_f1", "evaluation.parse": False})
    assert str(raised.value) == (
        "config: evaluation.measure is 's_f1' but evaluation.parse false; nothing is parsed, set it to true."
    )


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("optimiser.average", 0.9),
        ("optimiser.clip", 1.0),
        ("optimiser.weight_decay", 0.1),
        ("schedule.name", "cosine"),
        ("schedule.warm_up", 3),
    ],
)
def test_em_takes_no_options_of_gradients(key: str, value: object) -> None:
    with pytest.raises(RankspaceError) as raised:
        load_preset("direct").changed({key: value})
    assert str(raised.value) == (
        f"config: {key} is {value!r} but optimiser.name 'em'; EM has no gradients, leave it out."
    )


@pytest.mark.parametrize("key", ["evaluation.every_steps", "run.max_steps"])
def test_full_em_goes_by_epochs(key: str) -> None:
    with pytest.raises(RankspaceError) as raised:
        load_preset("direct").changed({key: 4})
    assert str(raised.value) == (
        f"config: {key} is 4 but em.batch 'full', which learns at the ends of epochs; give run.epochs, or em.batch "
        f"'mini'."
    )
    load_preset("direct").changed({key: 4, "em.batch": "mini"})


def test_options_that_go_together() -> None:
    Config().changed({"optimiser.name": "adamw", "optimiser.weight_decay": 0.1})
    load_preset("c-pcfg").changed({"objective.kl_warm_up": 5})


def test_a_model_that_does_not_exist() -> None:
    with pytest.raises(RankspaceError) as raised:
        Config().changed({"model.name": "rank-pcgf"})
    assert str(raised.value) == "there is no model 'rank-pcgf'; did you mean 'rank-pcfg'?"


def test_a_preset_that_does_not_exist() -> None:
    with pytest.raises(RankspaceError) as raised:
        load_preset("papers")
    assert str(raised.value) == f"config: there is no preset 'papers'; there are {', '.join(preset_names())}."


def test_what_is_no_setting() -> None:
    with pytest.raises(RankspaceError) as raised:
        parsed_settings(["run.seed"])
    assert str(raised.value) == "config: --set 'run.seed' is not section.key=value."


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[run]\nepochs = 0\n", "run.epochs is 0; give at least 1."),
        ("[runs]\nepochs = 1\n", "there is no key runs.epochs; did you mean run.epochs?"),
        ("[run\n", "is no TOML (Expected ']' at the end of a table declaration (at line 1, column 5))."),
    ],
)
def test_a_bad_file(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "config.toml"
    file.write_text(text)
    with pytest.raises(FormatError) as raised:
        load_config(file)
    assert str(raised.value) == f"{file}: {message}"


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    with pytest.raises(FormatError) as raised:
        load_config(file)
    assert str(raised.value) == f"{file}: there is no such file; give a configuration in TOML, or --preset NAME."
    with pytest.raises(FormatError) as raised:
        load_config(tmp_path)
    assert str(raised.value) == f"{tmp_path}: cannot be read (Is a directory)."
    file.write_bytes(b"[run]\n# \xff\n")
    with pytest.raises(FormatError) as raised:
        load_config(file)
    assert str(raised.value) == f"{file}: is not UTF-8 (byte 8); convert it first."


def test_differences() -> None:
    other = Config().changed({"run.seed": 2, "model.rank": 5})
    assert Config().differences(other) == ["model.rank", "run.seed"]


def reference() -> list[str]:
    """The rows of the tables of docs/training.md."""
    rows = []
    for section, kind in sections().items():
        for name, entry in options_of(kind).items():
            default = str(default_of(entry)).lower() if isinstance(default_of(entry), bool) else str(default_of(entry))
            shown = f"`{default}`" if default else ""
            rows.append(f"| `{section}.{name}` | {shown} | {kind_of(entry)} | {entry.metadata['about']} |")
    return rows


def test_the_page_lists_every_option() -> None:
    found = re.findall(r"^\| `[a-z]+\.\w+` (?:\|[^|]*){3}\|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert found == reference()


def test_every_section_says_what_it_is() -> None:
    assert all(entry.type.__doc__ for entry in fields(Config))  # type: ignore[union-attr]
