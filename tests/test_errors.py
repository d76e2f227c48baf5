"""Which errors tell of too little memory, also where another took the place of the first."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from rankspace.errors import RankspaceError, is_lack_of_memory
from rankspace.training.machine import enough_memory

OUT_OF_MEMORY = "CUDA out of memory. Tried to allocate 3.50 GiB. GPU 0 has"
INVALID = "CUDA error: operation failed due to a previous error during capture"


@contextmanager
def capture(ends_with: Exception) -> Iterator[None]:
    """As `torch.cuda.graph` does, ends the capture whatever happened in it, which raises another error."""
    try:
        yield
    finally:
        raise ends_with


def raised(first: BaseException, then: Exception) -> BaseException:
    """What leaves a capture in which an error was raised."""
    with pytest.raises(type(then)) as caught, capture(then):
        raise first
    assert caught.value is then
    return caught.value


def caused(first: Exception, then: Exception) -> Exception:
    then.__cause__ = first
    return then


def hidden(first: Exception, then: Exception) -> Exception:
    """raise then from None."""
    then.__context__, then.__suppress_context__ = first, True
    return then


@pytest.mark.parametrize("first", [RuntimeError(OUT_OF_MEMORY), MemoryError()])
def test_an_error_in_the_place_of_a_lack_of_memory_tells_of_it(first: Exception) -> None:
    assert is_lack_of_memory(first)
    assert is_lack_of_memory(raised(first, RuntimeError(INVALID)))
    assert is_lack_of_memory(raised(raised(first, RuntimeError(INVALID)), RuntimeError("another")))
    assert is_lack_of_memory(caused(first, RuntimeError(INVALID)))


def test_other_errors_do_not() -> None:
    assert not is_lack_of_memory(RuntimeError(INVALID))
    assert not is_lack_of_memory(raised(RuntimeError("size mismatch"), RuntimeError(INVALID)))
    assert not is_lack_of_memory(raised(RuntimeError(OUT_OF_MEMORY), TypeError("a mistake while it was handled")))
    assert not is_lack_of_memory(hidden(RuntimeError(OUT_OF_MEMORY), RuntimeError(INVALID)))


def test_a_step_whose_capture_lacks_memory_is_told_with_the_batch() -> None:
    with pytest.raises(RankspaceError) as caught, enough_memory(7, [(16, 40), (2, 50)]):
        raise raised(RuntimeError(OUT_OF_MEMORY), RuntimeError(INVALID))
    assert str(caught.value) == (
        "train: step 7: not enough memory for 16 sentences of up to 40 words; lower batches.max_sentences, "
        "batches.max_tokens or batches.max_length, or the sizes of the model."
    )


def test_a_capture_that_fails_otherwise_is_left_as_it_is() -> None:
    with (
        pytest.raises(RuntimeError, match=INVALID),
        enough_memory(1, [(1, 1)]),
        capture(RuntimeError(INVALID)),
    ):
        raise RuntimeError("size mismatch")
