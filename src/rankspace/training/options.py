"""Options of a configuration: what each may be, and what is said of a value that is not."""

import difflib
import math
from dataclasses import MISSING, Field, field
from typing import Any, Literal, get_args, get_origin

from rankspace.errors import RankspaceError

Value = bool | int | float | str
Bound = int | float | None


def option(
    default: Value,
    about: str,
    *,
    at_least: Bound = None,
    above: Bound = None,
    at_most: Bound = None,
    below: Bound = None,
) -> Any:
    """A field of a section with its bounds and one line for people."""
    bounds = {"at least": at_least, "more than": above, "at most": at_most, "less than": below}
    given = {name: bound for name, bound in bounds.items() if bound is not None}
    return field(default=default, metadata={"about": about, "bounds": given})


def checked(key: str, entry: "Field[Any]", value: Any) -> Value:
    """The value of an option, a whole number made a float where one is wanted. Raises RankspaceError."""
    if get_origin(entry.type) is Literal:
        if value not in get_args(entry.type):
            raise _wrong(key, value, "one of " + ", ".join(map(repr, get_args(entry.type))))
        return str(value)
    if entry.type is float and isinstance(value, int) and not isinstance(value, bool):
        value = as_float(value)
    if not isinstance(value, entry.type) or (entry.type is int and isinstance(value, bool)):  # type: ignore[arg-type]
        names = {int: "a whole number", float: "a number", bool: "true or false", str: "text in quotes"}
        raise _wrong(key, value, names[entry.type])  # type: ignore[index]
    if isinstance(value, float) and not math.isfinite(value):
        raise _wrong(key, value, "a finite number")
    bounds: dict[str, int | float] = entry.metadata["bounds"]
    if not all(_within(value, name, bound) for name, bound in bounds.items()):
        raise _wrong(key, value, _text(bounds))
    return value  # type: ignore[no-any-return]


def as_float(value: int) -> float:
    """Infinite where a float cannot hold it."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def kind_of(entry: "Field[Any]") -> str:
    """What an option may be, in a few words."""
    if get_origin(entry.type) is Literal:
        return ", ".join(map(str, get_args(entry.type)))
    kind = {int: "whole number", float: "number", bool: "true, false", str: "text"}[entry.type]  # type: ignore[index]
    return " ".join([kind, _text(entry.metadata["bounds"])]).strip()


def default_of(entry: "Field[Any]") -> Value:
    assert entry.default is not MISSING
    return entry.default  # type: ignore[no-any-return]


def unknown_key(where: str, key: str, known: list[str]) -> RankspaceError:
    """The error for a key that does not exist, with the nearest that does: in its section, or in the one that is
    written most like it; or its name in another."""
    section, _, name = key.rpartition(".")
    sections = {other.rpartition(".")[0]: None for other in known}
    section = next(iter(difflib.get_close_matches(section, sections, 1)), section)  # itself if it is among them
    own = {other.rpartition(".")[2]: other for other in known if other.rpartition(".")[0] == section}
    close = [own[each] for each in difflib.get_close_matches(name, own, 1)]
    close += [other for other in known if other.rpartition(".")[2] == name]
    close += [] if own else difflib.get_close_matches(key, known, 1)
    remedy = f"did you mean {close[0]}?" if close else f"there are {', '.join(own.values() or known)}."
    return RankspaceError(f"{where}: there is no key {key}; {remedy}")


def _text(bounds: dict[str, int | float]) -> str:
    return " and ".join(f"{name} {bound if isinstance(bound, int) else f'{bound:g}'}" for name, bound in bounds.items())


def _within(value: Any, name: str, bound: int | float) -> bool:
    if name == "at least":
        return bool(value >= bound)
    if name == "more than":
        return bool(value > bound)
    return bool(value <= bound) if name == "at most" else bool(value < bound)


def _wrong(key: str, value: Any, wanted: str) -> RankspaceError:
    return RankspaceError(f"config: {key} is {value!r}; give {wanted}.")
