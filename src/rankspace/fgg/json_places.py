"""Parsed JSON whose parts know where they stand, so that every complaint about a file names the place.

Place(data)["grammar"]["rules"].elements()[2]["lhs"].text()      # or FormatError: grammar.rules[2].lhs: ...
"""

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from rankspace.errors import FormatError


@dataclass(frozen=True)
class Place:
    """A value of a parsed file and the path that leads to it from the top: `grammar.rules[2].lhs`."""

    value: Any
    path: str = ""

    def error(self, message: str) -> FormatError:
        """A complaint about this place, to be raised."""
        return FormatError(f"{self.path}: {message}" if self.path else message)

    def __getitem__(self, key: str) -> "Place":
        found = self.get(key)
        if found is None:
            raise self.error(f"the key {json.dumps(key)} is missing.")
        return found

    def get(self, key: str) -> "Place | None":
        """The value of a key of this object, or None if it has no such key."""
        self._expect(dict, "an object")
        return Place(self.value[key], self._path_to(key)) if key in self.value else None

    def items(self) -> Iterator[tuple[str, "Place"]]:
        """Keys and values of this object, in order."""
        self._expect(dict, "an object")
        return ((key, Place(value, self._path_to(key))) for key, value in self.value.items())

    def elements(self) -> list["Place"]:
        """The elements of this list."""
        self._expect(list, "a list")
        return [Place(value, f"{self.path}[{i}]") for i, value in enumerate(self.value)]

    def text(self) -> str:
        """This string."""
        self._expect(str, "a string")
        return str(self.value)

    def texts(self) -> tuple[str, ...]:
        """This list of strings."""
        return tuple(element.text() for element in self.elements())

    def integer(self) -> int:
        """This whole number."""
        self._expect(int, "a whole number")
        return int(self.value)

    def _expect(self, kind: type, name: str) -> None:
        if type(self.value) is not kind:  # True is an int for isinstance
            raise self.error(f"expected {name}, found {described(self.value)}.")

    def _path_to(self, key: str) -> str:
        plain = key.isprintable() and not any(letter in key for letter in ' ."[]:')
        if not plain or not key:
            return f"{self.path}[{json.dumps(key)}]"
        return f"{self.path}.{key}" if self.path else key


def described(value: object) -> str:
    """A value of a parsed file in a few words, on one line."""
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return "a list"
    kind = (
        "" if value is None or isinstance(value, bool) else "the string " if isinstance(value, str) else "the number "
    )
    text = json.dumps(value)
    return kind + (text if len(text) <= 40 else f"{text[:37]}...")


class _Repeating(dict[str, Any]):
    """An object of the file in which a key occurs twice."""

    repeated = ""


def parse(content: bytes) -> Place:
    """The top of a JSON file in UTF-8, with or without a byte order mark.

    Raises FormatError, with line and column or with the path, on anything that is not JSON and on objects that have a
    key twice. NaN, Infinity and whole numbers beyond float64 are let through: whoever reads them can name the place.
    """
    try:
        text = content.decode("utf-8-sig")
        top = Place(json.loads(text, object_pairs_hook=_as_object, parse_int=_as_integer))
        _refuse_repeats(top)
    except UnicodeDecodeError as error:
        raise FormatError(f"byte {error.start} is not UTF-8 ({error.reason}).") from None
    except json.JSONDecodeError as error:
        raise FormatError(f"line {error.lineno}, column {error.colno}: not JSON ({error.msg}).") from None
    except RecursionError:
        raise FormatError("lists and objects are nested too deeply.") from None
    return top


def _as_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) == len(pairs):
        return result
    repeating = _Repeating(result)
    repeating.repeated = Counter(key for key, _ in pairs).most_common(1)[0][0]
    return repeating


def _as_integer(digits: str) -> int | float:
    return int(digits) if len(digits) < 400 else float(digits)  # infinite; Python converts 4,300 digits at most


def _refuse_repeats(place: Place) -> None:
    """Raises at the first object with a key twice; numbers, of which there may be millions, are not looked at."""
    if isinstance(place.value, _Repeating):
        raise place.error(f"the key {json.dumps(place.value.repeated)} occurs twice; keys are distinct.")
    if isinstance(place.value, dict):
        for _, child in place.items():
            _refuse_repeats(child)
    elif isinstance(place.value, list) and any(isinstance(element, dict | list) for element in place.value):
        for element in place.elements():
            _refuse_repeats(element)
