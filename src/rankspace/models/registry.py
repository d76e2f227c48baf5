"""Models by name."""

import difflib
import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from types import NoneType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from rankspace.errors import RankspaceError
from rankspace.models.c_pcfg import CPCFG
from rankspace.models.contract import Kind, Model
from rankspace.models.direct import Direct
from rankspace.models.hmm import NeuralHMM
from rankspace.models.l_pcfg import NeuralLPCFG
from rankspace.models.lhmm import NeuralLHMM
from rankspace.models.n_pcfg import NPCFG
from rankspace.models.rank_hmm import RankHMM
from rankspace.models.rank_pcfg import RankPCFG
from rankspace.models.simple_cpcfg import SimpleCPCFG
from rankspace.models.simple_pcfg import SimpleNPCFG
from rankspace.models.tn_pcfg import TNPCFG
from rankspace.models.vl_hmm import VLHMM

TREES: tuple[type[Model], ...] = (RankPCFG, TNPCFG, SimpleNPCFG, SimpleCPCFG, NPCFG, CPCFG, NeuralLPCFG)
CHAINS: tuple[type[Model], ...] = (RankHMM, NeuralLHMM, NeuralHMM, VLHMM)
FREE: tuple[type[Model], ...] = (Direct,)
MODELS: Mapping[str, type[Model]] = {model.NAME: model for model in (*TREES, *CHAINS, *FREE)}
NUMBERS = {int: "an integer", float: "a number", bool: "True or False"}


@dataclass(frozen=True)
class Description:
    """A model of the registry, for people."""

    name: str
    about: str
    kind: Kind  # of "direct", that of its default; a model that exists knows its own
    settings: dict[str, Any]  # those with a default; every model also takes `vocabulary`


def create(name: str, **settings: Any) -> Model:
    """A model with fresh weights (torch's global generator draws them); `vocabulary`, the number of words, is required.

    Raises RankspaceError for a model or a setting that is not known, naming the nearest, and for a value that a setting
    cannot have.
    """
    model, given = _find(name), _typed(name, settings)
    if "vocabulary" not in given:
        raise RankspaceError(f"{name}: vocabulary is missing; give the number of words.")
    return model(**given)


def check(name: str, **settings: Any) -> None:
    """Raises what `create` would, and makes nothing. `vocabulary` may be missing: then there are words enough."""
    given = {**describe(name).settings, **_typed(name, settings)}
    enough = 1 + max(0, *(value for value in given.values() if type(value) is int))
    _find(name).check_settings({"vocabulary": enough, **given})


def describe(name: str) -> Description:
    """What a model is, and its settings with their defaults."""
    model = _find(name)
    defaults = {
        setting: parameter.default
        for setting, parameter in inspect.signature(model).parameters.items()
        if parameter.default is not inspect.Parameter.empty
    }
    return Description(name, model.ABOUT, model.KIND, defaults)


def _find(name: str) -> type[Model]:
    if name not in MODELS:
        raise RankspaceError(f"there is no model {name!r};{_nearest(name, list(MODELS))}")
    return MODELS[name]


def _typed(name: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings, if the model has them, each of its kind."""
    known = get_type_hints(_find(name).__init__)
    known.pop("return")
    for setting in settings:
        if setting not in known:
            raise RankspaceError(f"{name}: there is no setting {setting!r};{_nearest(setting, list(known))}")
    return {key: _checked(f"{name}: {key}", known[key], value) for key, value in settings.items()}


def _nearest(name: str, known: list[str]) -> str:
    close = difflib.get_close_matches(name, known, 1)
    return f" did you mean {close[0]!r}?" if close else f" there are {', '.join(known)}."


def _checked(label: str, kind: Any, value: Any) -> Any:
    """The value as its setting has it: an integer will do for a number."""
    if get_origin(kind) is Literal:
        if value not in get_args(kind):
            raise RankspaceError(f"{label} is {value!r}; give one of {', '.join(map(repr, get_args(kind)))}.")
        return value
    optional = NoneType in get_args(kind)
    wanted = get_args(kind)[0] if optional else kind
    if optional and value is None:
        return value
    if wanted is float and type(value) is int:
        return float(value)
    if type(value) is not wanted:
        raise RankspaceError(f"{label} is {value!r}; give {NUMBERS[wanted]}{' or None' if optional else ''}.")
    return value
