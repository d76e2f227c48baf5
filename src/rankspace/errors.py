"""Every error this package raises on purpose. Each message names the operation, the place and the remedy."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

LACKS = "out of memory", "allocate memory", "not enough memory", "ALLOC_FAILED", "ALLOCATION_FAILED"  # as torch says it
BEYOND_COUNTING = (  # the same of sizes that 64 bits do not hold
    "Storage size calculation overflowed",
    "multiplication overflow",
    "Overflow when unpacking",
)


class RankspaceError(ValueError):
    """A mistake in what the caller gave us. The command line prints it as one line and exits with code 2."""


class GrammarError(RankspaceError):
    """A grammar that breaks a definition: the message names the rule and the label."""


class ShapeError(RankspaceError):
    """Sizes that do not fit: the message names both sizes and where each comes from."""


class FormatError(RankspaceError):
    """A file that cannot be read: the message names the file and the place in it."""


class WritingError(FormatError):
    """A file or folder that cannot be written: the message names it and gives the reason of the system."""

    def __init__(self, message: str, reason: str = "") -> None:
        super().__init__(message)
        self.reason = reason


class DecompositionError(RankspaceError):
    """A rank decomposition that does not fit its factor or does not reach the wanted error."""


class DivergenceError(RankspaceError):
    """A sum-product that is infinite, or that the iteration could not bring to the promised accuracy."""


class NotEnoughMemoryError(RankspaceError):
    """A batch that memory does not hold: the message gives its sizes, about how much it takes, and what to reduce. What
    torch said is its cause."""


class MissingExtraError(RankspaceError):
    """An optional dependency that is not installed: the message gives the command that installs it."""


def is_lack_of_memory(error: BaseException) -> bool:
    """Whether an error tells of too little memory. torch has no class of its own for that on a CPU; its other errors
    that speak of memory are none of this kind.

    An error of torch that took the place of such a one tells of it too: a CUDA graph whose capture ran out of memory
    cannot be ended, and raises that.
    """
    if isinstance(error, (MemoryError, NotEnoughMemoryError)) or is_beyond_counting(error):
        return True
    if not isinstance(error, RuntimeError):
        return False
    if any(words in str(error) for words in LACKS):
        return True
    replaced = replaced_by(error)
    return replaced is not None and is_lack_of_memory(replaced)


def is_beyond_counting(error: BaseException) -> bool:
    """Whether an error of torch tells of a tensor that no memory could hold: its size is no number of 64 bits."""
    return isinstance(error, (RuntimeError, TypeError)) and any(words in str(error) for words in BEYOND_COUNTING)


def replaced_by(error: BaseException) -> BaseException | None:
    """The error in whose place another was raised."""
    return error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def origin(error: BaseException) -> BaseException:
    """The error that a told one came from."""
    while isinstance(error, NotEnoughMemoryError) and error.__cause__ is not None:
        error = error.__cause__
    return error


@contextmanager
def lack_told(tell: Callable[[BaseException], NotEnoughMemoryError]) -> Iterator[None]:
    """Within, a lack of memory is told by a function of the error, which may have been told already. Other errors
    pass."""
    try:
        yield
    except (MemoryError, RuntimeError, TypeError, NotEnoughMemoryError) as error:
        if not is_lack_of_memory(error):
            raise
        raise tell(error) from origin(error)
