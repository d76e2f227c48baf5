"""Which errors tell of too little memory, also where another took the place of the first."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from rankspace.errors import NotEnoughMemoryError, is_lack_of_memory
from rankspace.models import create
from rankspace.training.machine import EVALUATION_LIMITS, enough_memory

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


@pytest.mark.parametrize(
    "said",
    [
        "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
        "cuDNN error: CUDNN_STATUS_ALLOC_FAILED",
        "cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED",
    ],
)
def test_libraries_that_torch_calls_lack_memory_too(said: str) -> None:
    assert is_lack_of_memory(RuntimeError(said))
    assert not is_lack_of_memory(RuntimeError(said.split("_")[0] + "_STATUS_EXECUTION_FAILED"))


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
    """With the size that the first error asked for, which is the one that capturing hid."""
    model = create("direct", vocabulary=20, of="rank-pcfg", nonterminals=3, preterminals=4, rank=5)
    last = raised(RuntimeError(OUT_OF_MEMORY), RuntimeError(INVALID))
    with pytest.raises(NotEnoughMemoryError) as caught, enough_memory("step 7", model, [(16, 40), (2, 50)]):
        raise last
    assert caught.value.__cause__ is last
    assert str(caught.value) == (
        "train: step 7: not enough memory for 16 sentences of up to 40 words (rank 5, float32): it takes about 831.8 "
        "kB, and 3.8 GB more could not be had; lower batches.max_sentences, batches.max_tokens, batches.max_length or "
        "model.rank."
    )


def test_a_lack_that_was_told_is_told_once_more_with_its_origin() -> None:
    model, first = create("direct", vocabulary=20, of="hmm", states=3), RuntimeError(OUT_OF_MEMORY)
    told = NotEnoughMemoryError("HMM.log_prob: not enough memory.")
    told.__cause__ = first
    assert is_lack_of_memory(told)
    with (
        pytest.raises(NotEnoughMemoryError) as caught,
        enough_memory("evaluation", model, [(1, 40)], EVALUATION_LIMITS, learns=False),
    ):
        raise told
    assert caught.value.__cause__ is first
    assert str(caught.value) == (
        "train: evaluation: not enough memory for a sentence of 40 words (3 states, float32): it takes about 2.3 kB, "
        "and 3.8 GB more could not be had; lower evaluation.max_tokens, evaluation.max_length or model.states."
    )


def test_a_model_of_ones_own_is_told_without_a_size() -> None:
    model = create("direct", vocabulary=20, of="hmm", states=3)
    model.settings = {**model.settings, "of": "mine"}
    with pytest.raises(NotEnoughMemoryError) as caught, enough_memory("step 1", model, [(2, 3)]):
        raise MemoryError
    assert str(caught.value) == (
        "train: step 1: not enough memory for 2 sentences of up to 3 words (float32); lower batches.max_sentences, "
        "batches.max_tokens, batches.max_length or the sizes of the model."
    )


def test_a_capture_that_fails_otherwise_is_left_as_it_is() -> None:
    with (
        pytest.raises(RuntimeError, match=INVALID),
        enough_memory("step 1", create("direct", vocabulary=2), [(1, 1)]),
        capture(RuntimeError(INVALID)),
    ):
        raise RuntimeError("size mismatch")
