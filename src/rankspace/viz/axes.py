"""Panels with axes for curves: where numbers stand, which of them get a mark, and how those are written."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, floor, log, log10

from rankspace.viz.shapes import Line, Point, Shape, Text

FONT, TITLE = 10.5, 13.0
WIDTH, HEIGHT = 270.0, 180.0  # of the area of a panel in which curves are drawn
LEFT, RIGHT, TOP, BOTTOM = 46.0, 18.0, 34.0, 38.0  # around it
NUM_MARKS = 5  # about, on an axis
FEWEST_MARKS = 3  # of powers of ten and their like; a logarithmic axis with less has those of a linear one
ROOM = 0.05  # between the outermost values and the ends of the axis, relative to its length


@dataclass(frozen=True)
class Axis:
    """Numbers from `low` to `high`, which may be logarithmic, along `length` pixels."""

    low: float
    high: float
    length: float
    logarithmic: bool = False
    whole: bool = False  # marks at whole numbers alone

    @classmethod
    def of_values(cls, values: Sequence[float], length: float, may_be_logarithmic: bool) -> "Axis":
        """An axis with a little room above and below the values, of which there is at least one."""
        low, high = min(values), max(values)
        if may_be_logarithmic and 0 < low < high:
            room = (high / low) ** ROOM
            return cls(low / room, high * room, length, logarithmic=True)
        low, high = _some_room(low, high)
        room = (high - low) * ROOM
        return cls(low - room, high + room, length)

    @classmethod
    def of_steps(cls, steps: Sequence[float], length: float) -> "Axis":
        """An axis from the first step to the last, or a little further to a round number, with whole marks."""
        low, high = _some_room(min(steps), max(steps))
        step = max(_round_step((high - low) / NUM_MARKS), 1.0)
        rounded = ceil(high / step) * step
        return cls(low, rounded if rounded - high <= (high - low) / 20 else high, length, whole=True)

    def place(self, value: float) -> float:
        """Pixels from the beginning."""
        if self.logarithmic:
            return self.length * log(value / self.low) / log(self.high / self.low)
        return self.length * (value - self.low) / (self.high - self.low)

    def marks(self) -> list[float]:
        """Round numbers within the axis."""
        if self.logarithmic and len(found := self._logarithmic_marks()) >= FEWEST_MARKS:
            return found
        step = _round_step((self.high - self.low) / NUM_MARKS)
        step = float(ceil(step)) if self.whole else step
        first, last = ceil(round(self.low / step, 9)), floor(round(self.high / step, 9))  # a mark at the very end stays
        return [place * step for place in range(first, last + 1)]

    def _logarithmic_marks(self) -> list[float]:
        """1, 2, 5, 10, ..., or powers of ten alone where those are enough."""
        powers = range(floor(log10(self.low)), ceil(log10(self.high)) + 1)
        for digits in ((1,), (1, 3), (1, 2, 5)):
            found = [digit * 10.0**power for power in powers for digit in digits]
            inside = [value for value in found if self.low <= value <= self.high]
            if len(inside) >= FEWEST_MARKS:
                break
        return inside


def _some_room(low: float, high: float) -> tuple[float, float]:
    """The range itself, or around a single number one that does not go below zero if that does not."""
    if low < high:
        return low, high
    room = max(abs(low) / 10, 1.0)
    return (max(low - room, 0.0) if low >= 0 else low - room), high + room


def _round_step(least: float) -> float:
    power = 10.0 ** floor(log10(least))
    return next(digit * power for digit in (1, 2, 2.5, 5, 10) if digit * power >= least)


def written(value: float) -> str:
    """The number of a mark: 0.25, 40, 2.5k, 3M."""
    for unit, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= 10 * unit or (abs(value) >= unit and unit > 1e3):
            return f"{value / unit:.4g}{letter}"
    return f"{value:.4g}" if abs(value) >= 1e-9 else "0"


@dataclass(frozen=True)
class Panel:
    """Two axes and a title; its outer corner is the origin."""

    title: str
    across_name: str
    across: Axis
    up: Axis

    def point(self, x: float, y: float) -> Point:
        return LEFT + self.across.place(x), TOP + HEIGHT - self.up.place(y)

    def frame(self) -> list[Shape]:
        """Title, thin lines at the marks, and their numbers."""
        shapes: list[Shape] = [Text(LEFT, TOP - 16.0, self.title, TITLE, bold=True)]
        for mark in self.up.marks():
            y = TOP + HEIGHT - self.up.place(mark)
            shapes.append(Line([(LEFT, y), (LEFT + WIDTH, y)], "line", 0.75))
            shapes.append(Text(LEFT - 7.0, y + 3.5, written(mark), FONT, "soft", "end"))
        base = TOP + HEIGHT
        for mark in self.across.marks():
            x = LEFT + self.across.place(mark)
            shapes.append(Text(x, base + 17.0, written(mark), FONT, "soft", "middle"))
        shapes.append(Text(LEFT + WIDTH, base + 32.0, self.across_name, FONT, "soft", "end"))
        return shapes
