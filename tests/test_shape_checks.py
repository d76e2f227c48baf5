"""What is not as annotated is refused, in every function of the package, wherever the annotation stands."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from jaxtyping import Float, Int, TypeCheckError
from torch import Tensor

from rankspace.fgg import zoo
from rankspace.inference import scaled

pytest.importorskip("beartype")
from beartype import beartype
from beartype.roar import BeartypeCallHintViolation

from shape_checks import checked

Row = Float[Tensor, " size"]
VECTOR, MATRIX = torch.zeros(3), torch.zeros(3, 2)


def check(given: Any) -> Any:
    return checked(typechecker=beartype)(given)


@check
def times(left: Float[Tensor, "rows inner"], right: Float[Tensor, "inner columns"]) -> Float[Tensor, "rows columns"]:
    return left @ right


@check
def turned(matrix: Float[Tensor, "rows columns"]) -> Float[Tensor, "rows columns"]:
    return matrix.T


@check
def several(rows: list[Row], one: Row | None = None) -> tuple[Row, ...]:
    return (*rows, *rows[:1])


@check
def rows_of(matrix: Float[Tensor, "size columns"], start: Row) -> Iterator[Row]:
    yield from (start, *matrix)


@check
def share(part: int, whole: float = 1.0) -> float:
    return part / whole if part else "nothing"  # type: ignore[return-value]


@check
@dataclass(frozen=True)
class Pair:
    words: Int[Tensor, " length"]
    weights: Float[Tensor, " length"]


class Heir(Pair):
    pass


@check
def of_two_sizes(left: Row) -> int:
    """The sizes of an inner call are its own, also behind a function without shapes."""
    return inner(5) + sum(1 for _ in rows_of(torch.zeros(2, 2), torch.zeros(2))) + len(left)


@check
def inner(size: int) -> int:
    return len(several([torch.zeros(size)])[0])


def test_what_is_as_annotated_passes() -> None:
    assert times(MATRIX, torch.zeros(2, 5)).shape == (3, 5)
    assert turned(torch.zeros(2, 2)).shape == (2, 2)
    assert len(several([VECTOR, VECTOR], one=VECTOR)) == 3
    assert share(1, whole=2.0) == 0.5
    assert of_two_sizes(VECTOR) == 5 + 3 + 3
    assert Pair(torch.tensor([1]), torch.zeros(1)).weights.shape == (1,)


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        (times, (MATRIX, MATRIX)),  # sizes of two arguments
        (times, (MATRIX, VECTOR)),  # number of axes
        (times, (MATRIX, torch.zeros(2, 2, dtype=torch.int64))),  # numbers
        (turned, (MATRIX,)),  # sizes of argument and result
        (several, ([torch.zeros(1), torch.zeros(1)], VECTOR)),  # within a list
        (several, ([MATRIX],)),
        (rows_of, (MATRIX, torch.zeros(2))),  # before it is gone through
        (share, (1, 2)),  # no shape
        (share, (0,)),  # a result without shape
        (Pair, (torch.tensor([1, 2]), VECTOR)),  # a dataclass
        (Heir, (torch.tensor([1, 2]), VECTOR)),
    ],
)
def test_what_is_not_is_refused(function: Any, arguments: tuple[Any, ...]) -> None:
    with pytest.raises((BeartypeCallHintViolation, TypeCheckError)):
        function(*arguments)


def test_a_method_of_each_kind() -> None:
    class Kinds:
        @staticmethod
        @check
        def of_none(row: Row, other: Row) -> None: ...

        @classmethod
        @check
        def of_class(cls, row: Row, other: Row) -> None: ...

        @check
        def of_object(self, row: Row, other: Row) -> None: ...

    for method in (Kinds.of_none, Kinds.of_class, Kinds().of_object):
        method(VECTOR, VECTOR)
        with pytest.raises(BeartypeCallHintViolation):
            method(VECTOR, torch.zeros(4))


def test_the_package_is_checked() -> None:
    table = torch.full((3, 3), 1 / 3)
    with pytest.raises(BeartypeCallHintViolation):
        zoo.hmm(table[0], table[:2], table, table[0])
    with pytest.raises(BeartypeCallHintViolation):
        scaled.power_of_two(VECTOR.tolist())
