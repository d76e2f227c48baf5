"""The configuration of a run: its sections together, read from and written to TOML."""

import json
import math
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import Field, dataclass, field, fields, replace
from importlib import resources
from pathlib import Path
from typing import Any

from rankspace.errors import FormatError, RankspaceError
from rankspace.training.conflicts import check_measures, check_optimiser
from rankspace.training.model_settings import defaults_of, is_bound
from rankspace.training.options import Value, as_float, checked, unknown_key
from rankspace.training.sections import (
    BatchesConfig,
    CurriculumConfig,
    DataConfig,
    EMConfig,
    EvaluationConfig,
    ModelConfig,
    ObjectiveConfig,
    OptimiserConfig,
    RunConfig,
    ScheduleConfig,
)

PAPER = {"rank-pcfg": "paper-pcfg", "rank-hmm": "paper-hmm"}  # presets of the models that have no preset of their name
FROM_DATA = ("vocabulary", "eos")  # settings of models that are not configured


@dataclass(frozen=True)
class Config:
    """All sections. The settings of the model are made complete with its defaults, but for what the data give."""

    data: DataConfig = field(default_factory=DataConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    batches: BatchesConfig = field(default_factory=BatchesConfig)
    curriculum: CurriculumConfig = field(default_factory=CurriculumConfig)
    optimiser: OptimiserConfig = field(default_factory=OptimiserConfig)
    em: EMConfig = field(default_factory=EMConfig)
    objective: ObjectiveConfig = field(default_factory=ObjectiveConfig)
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)
    run: RunConfig = field(default_factory=RunConfig)

    def __post_init__(self) -> None:
        model, defaults = self.model, defaults_of(self.model.name)  # raises for a model that does not exist
        known = {name: value for name, value in defaults.items() if name not in FROM_DATA}
        for name in model.settings:
            if name not in known:
                raise unknown_key("config", f"model.{name}", [f"model.{other}" for other in ("name", *known)])
        object.__setattr__(self, "model", ModelConfig(model.name, {**known, **model.settings}))
        check_optimiser(
            model.name, self.optimiser, self.em, self.schedule, self.evaluation.every_steps, self.run.max_steps
        )
        check_measures(model.name, is_bound(model.name), self.objective, self.evaluation)

    def changed(self, changes: Mapping[str, Any]) -> "Config":
        """With other values for some keys, section.key. Raises RankspaceError, naming the nearest key."""
        tables: dict[str, dict[str, Any]] = {}
        for key, value in changes.items():
            section, dot, name = key.partition(".")
            if not dot:
                raise unknown_key("config", key, known_keys(self))
            tables.setdefault(section, {})[name] = value
        return _merged(self, tables)

    def differences(self, other: "Config") -> list[str]:
        """Keys of options whose values differ."""
        one, two = flat(self), flat(other)
        return [key for key in {**one, **two} if one.get(key) != two.get(key)]


def sections() -> dict[str, type[Any]]:
    """The classes of all sections but the model's, whose keys depend on its name."""
    return {entry.name: entry.type for entry in fields(Config) if entry.name != "model"}  # type: ignore[misc]


def options_of(section: type[Any]) -> dict[str, "Field[Any]"]:
    return {entry.name: entry for entry in fields(section)}


def flat(config: Config) -> dict[str, Any]:
    """Every key, section.key, with its value; the model with all its settings."""
    found: dict[str, Any] = {}
    for entry in fields(config):
        found |= {f"{entry.name}.{name}": value for name, value in _table(config, entry.name).items()}
    return found


def known_keys(config: Config) -> list[str]:
    return list(flat(config))


def config_text(config: Config) -> str:
    """A complete configuration as TOML; `config_from_text` reads it back."""
    parts = []
    for entry in fields(config):
        lines = [f"{name} = {_toml(value)}" for name, value in _table(config, entry.name).items() if value is not None]
        parts.append("\n".join([f"[{entry.name}]", *lines]))
    return "\n\n".join(parts) + "\n"


def config_from_text(text: str, where: str, start: Config | None = None) -> Config:
    """The configuration of a TOML text; what it does not name is as in `start`. Raises FormatError, with the file."""
    try:
        tables = tomllib.loads(text)
    except ValueError as error:  # also of a number of too many digits
        raise FormatError(f"{where}: is no TOML ({error}).") from None
    try:
        return _merged(start or Config(), tables)
    except RankspaceError as error:
        raise FormatError(f"{where}: {str(error).removeprefix('config: ')}") from None


def load_config(file: Path) -> Config:
    """The configuration of a TOML file. Raises FormatError."""
    try:
        return config_from_text(file.read_text(encoding="utf-8"), str(file))
    except FileNotFoundError:
        raise FormatError(f"{file}: there is no such file; give a configuration in TOML, or --preset NAME.") from None
    except OSError as error:
        raise FormatError(f"{file}: cannot be read ({error.strerror or error}).") from None
    except UnicodeDecodeError as error:
        raise FormatError(f"{file}: is not UTF-8 (byte {error.start}); convert it first.") from None


def preset_names() -> list[str]:
    folder = resources.files("rankspace.training") / "presets"
    return sorted(entry.name.removesuffix(".toml") for entry in folder.iterdir() if entry.name.endswith(".toml"))


def load_preset(name: str) -> Config:
    """A configuration that comes with the package, by its name or that of its model. Raises RankspaceError, naming
    those there are."""
    names, name = preset_names(), PAPER.get(name, name)
    if name not in names:
        raise RankspaceError(f"config: there is no preset {name!r}; there are {', '.join(names)}.")
    text = (resources.files("rankspace.training") / "presets" / f"{name}.toml").read_text(encoding="utf-8")
    return config_from_text(text, f"preset {name}")


def parsed_settings(texts: Iterable[str]) -> dict[str, Any]:
    """section.key=value, as on the command line; values as in TOML, text also without quotes."""
    changes: dict[str, Any] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise RankspaceError(f"config: --set {text!r} is not section.key=value.")
        changes[key.strip()] = _value(value.strip())
    return changes


def _value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except ValueError:  # no TOML, or a number of too many digits
        return text


def _merged(config: Config, tables: Mapping[str, Any]) -> Config:
    changes: dict[str, Any] = {}
    for name, table in tables.items():
        if name == "model":
            changes[name] = _merged_model(config.model, table)
            continue
        if name not in sections() or not isinstance(table, Mapping):
            key = f"{name}.{next(iter(table))}" if isinstance(table, Mapping) and table else name
            raise unknown_key("config", key, known_keys(config))
        known = options_of(sections()[name])
        for key in table:
            if key not in known:
                raise unknown_key("config", f"{name}.{key}", known_keys(config))
        changes[name] = replace(
            getattr(config, name), **{key: checked(f"{name}.{key}", known[key], value) for key, value in table.items()}
        )
    return replace(config, **changes)


def _merged_model(model: ModelConfig, table: Any) -> ModelConfig:
    """Settings of another model than before start from its defaults."""
    if not isinstance(table, Mapping):
        raise RankspaceError(f"config: model is {table!r}; give a section with a name.")
    settings = dict(table)
    name = settings.pop("name", model.name)
    known = defaults_of(name)
    for key, value in settings.items():
        if key in known:
            settings[key] = _setting(f"model.{key}", value, known[key])
    return ModelConfig(name, {**(model.settings if name == model.name else {}), **settings})


def _setting(key: str, value: Any, default: Any) -> Any:
    """The value of a model's setting, of the kind of its default."""
    if isinstance(default, float) and isinstance(value, int) and not isinstance(value, bool):
        value = as_float(value)
    if isinstance(value, float) and not math.isfinite(value):
        raise RankspaceError(f"config: {key} is {value!r}; give a finite number.")
    if default is None or (isinstance(value, type(default)) and isinstance(value, bool) == isinstance(default, bool)):
        return value
    names = {int: "a whole number", float: "a number", bool: "true or false", str: "text in quotes"}
    raise RankspaceError(f"config: {key} is {value!r}; give {names.get(type(default), f'a value like {default!r}')}.")


def _table(config: Config, section: str) -> dict[str, Any]:
    if section == "model":
        return {"name": config.model.name, **config.model.settings}
    return dict(vars(getattr(config, section)))


def _toml(value: Value) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)
