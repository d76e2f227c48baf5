"""Models by name."""

import difflib
import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rankspace.errors import RankspaceError
from rankspace.models.contract import Kind, Model
from rankspace.models.rank_hmm import RankHMM
from rankspace.models.rank_pcfg import RankPCFG

MODELS: Mapping[str, type[Model]] = {model.NAME: model for model in (RankPCFG, RankHMM)}


@dataclass(frozen=True)
class Description:
    """A model of the registry, for people."""

    name: str
    about: str
    kind: Kind
    settings: dict[str, Any]  # those with a default; every model also takes `vocabulary`


def create(name: str, **settings: Any) -> Model:
    """A model with fresh weights (torch's global generator draws them); `vocabulary`, the number of words, is required.

    Raises RankspaceError for a model or a setting that is not known, naming the nearest.
    """
    model = _find(name)
    known = inspect.signature(model).parameters
    for setting in settings:
        if setting not in known:
            raise RankspaceError(f"{name}: there is no setting {setting!r};{_nearest(setting, list(known))}")
    if "vocabulary" not in settings:
        raise RankspaceError(f"{name}: vocabulary is missing; give the number of words.")
    return model(**settings)


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


def _nearest(name: str, known: list[str]) -> str:
    close = difflib.get_close_matches(name, known, 1)
    return f" did you mean {close[0]!r}?" if close else f" there are {', '.join(known)}."
