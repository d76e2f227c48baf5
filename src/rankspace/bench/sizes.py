"""Sizes of models and batches: dataclasses of integers, varied one number at a time."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from typing import Any, TypeVar

AnySize = TypeVar("AnySize", bound=Any)


def named(size: Any) -> dict[str, int]:
    """The numbers of a size by name."""
    return asdict(size)


def around(size: AnySize, *groups: Sequence[str]) -> Iterator[AnySize]:
    """The size itself, then for each group of its numbers with these halved and quartered."""
    yield size
    for names in groups:
        for divisor in (2, 4):
            yield replace(size, **{name: max(2, getattr(size, name) // divisor) for name in names})


def over(size: AnySize, name: str, values: Sequence[int], shrink: int) -> list[AnySize]:
    """The size at several values of one number, all numbers divided by `shrink`."""
    small = replace(size, **{key: max(2, number // shrink) for key, number in named(size).items()})
    return [replace(small, **{name: max(2, value // shrink)}) for value in values]
