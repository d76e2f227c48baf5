"""How much memory `log_prob` takes, and how a lack of it is told: the one place for distributions, models, training,
commands and benchmarks.

Nothing here runs while there is memory enough.
"""

import functools
import inspect
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

import torch

from rankspace.errors import NotEnoughMemoryError, is_lack_of_memory, replaced_by
from rankspace.inference.differentiation import lack_told_in_both_passes

if TYPE_CHECKING:
    from rankspace.distributions.contract import Distribution

EMISSION = "log_emission"
TORCH_SAYS = re.compile(r"[Tt]ried to allocate ([0-9.]+) ?(bytes|[KMGT]iB)")
UNITS = {"bytes": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}

MARK = "is_within_memory"

Method = TypeVar("Method", bound=Callable[..., Any])


class Work(NamedTuple):
    """What is asked of a distribution."""

    lengths: tuple[int, ...]
    gradients: bool = False  # with its backward pass
    kernels: bool = False  # by Triton, whose charts are wider
    marginals: bool = False  # a backward pass along sentences alone, as parses take it: no parameter has a gradient

    @property
    def both_passes(self) -> bool:
        return self.gradients or self.marginals

    @property
    def num_tokens(self) -> int:
        return sum(self.lengths)

    @property
    def num_spans(self) -> int:
        return sum(length * (length + 1) // 2 for length in self.lengths)


def numbers_of_tables(tables: Mapping[str, int], vocabulary: int, work: Work) -> int:
    """Numbers that parameters of some sizes are turned into: all in linear space, of the emissions those of the words
    of the batch; with gradients as many again, and the emissions' own."""
    emission = tables[EMISSION]
    of_words = emission * min(work.num_tokens, vocabulary) // max(1, vocabulary)
    once = sum(tables.values()) - emission + of_words
    return 2 * once + emission if work.gradients else once


def numbers_of(distribution: "Distribution", work: Work) -> int:
    """Numbers that `log_prob` takes besides the parameters."""
    tables = {label: parameter.numel() for label, parameter in distribution.parameters.items()}
    in_tables = numbers_of_tables(tables, distribution.vocabulary, work)
    return in_tables + distribution.numbers_kept(distribution._memory_sizes(), work)


class Shortage(NamedTuple):
    """What memory did not hold. The size is an estimate: what is computed again in float64 or in log space takes
    more."""

    what: str  # 16 sentences of up to 40 words
    sizes: str  # rank 300, float32
    bytes_needed: int | None  # None if it is not known

    def told(self, place: str, error: BaseException, remedy: str) -> NotEnoughMemoryError:
        """The line for people. To be raised from the `origin` of the error."""
        return NotEnoughMemoryError(f"{place}: {self.account(error)}; {remedy}.")

    def account(self, error: BaseException) -> str:
        """What was not held, about how much it takes, and what torch could not get."""
        asked, sizes = bytes_asked(error), f" ({self.sizes})" if self.sizes else ""
        needed = None if self.bytes_needed is None else f"it takes about {size_text(self.bytes_needed)}"
        missing = None if asked is None else f"{size_text(asked)} more could not be had"
        size = ", and ".join(part for part in (needed, missing) if part)
        size = f": {size}" if size else ""
        return f"not enough memory for {self.what}{sizes}{size}"


def sentences_text(num: int, longest: int) -> str:
    """16 sentences of up to 40 words."""
    return f"a sentence of {longest} words" if num == 1 else f"{num} sentences of up to {longest} words"


def shortage_of(distribution: "Distribution", query: str, lengths: tuple[int, ...]) -> Shortage:
    """What a query could not hold in memory. All but log-probabilities make two passes over the sentences."""
    learns = torch.is_grad_enabled() and any(value.requires_grad for value in distribution.parameters.values())
    gradients = learns or query not in ("log_prob", "log_joint")
    wide = distribution._is_wide(query)
    dtype = torch.float64 if wide else distribution.dtype
    kernels = not wide and if_known(distribution._by_kernels)
    needed = numbers_of(distribution, Work(lengths, gradients, kernels))
    sizes = f"{size_of(distribution.WIDTH, distribution.sizes[distribution.WIDTH])}, {str(dtype).split('.')[1]}"
    return Shortage(sentences_text(len(lengths), max(lengths, default=0)), sizes, needed * dtype.itemsize)


def if_known(by_kernels: Callable[[], bool]) -> bool:
    """Whether kernels run; no where memory is too short to find that out."""
    try:
        return by_kernels()
    except (MemoryError, RuntimeError) as error:
        if not is_lack_of_memory(error):
            raise
        return False


def size_text(num_bytes: int) -> str:
    """43.2 GB."""
    for unit, size in (("GB", 10**9), ("MB", 10**6)):
        if num_bytes >= size:
            return f"{num_bytes / size:.1f} {unit}"
    return f"{num_bytes / 1000:.1f} kB"


def bytes_asked(error: BaseException | None) -> int | None:
    """What torch says that it could not allocate, if it says so, also in an error whose place another took."""
    while error is not None:
        found = TORCH_SAYS.search(str(error))
        if found:
            return round(float(found[1]) * UNITS[found[2]])
        error = replaced_by(error)
    return None


def within_memory(method: Method) -> Method:
    """A method on `words` and `lengths` whose lack of memory is told by `self._shortage(query, words, lengths)` and
    `self._remedy`, under the name of the outermost such method. Other errors pass. `is_within_memory` knows it. Runs
    within `self._arithmetic()`.

    So is a lack in the backward pass of its result, by what that keeps of the call; but for plain operations of torch,
    whose backward passes are torch's own.
    """

    @functools.wraps(method)
    def within(self: Any, *args: Any, **kwargs: Any) -> Any:
        learns = torch.is_grad_enabled()  # no longer in a backward pass

        def tell(error: BaseException) -> NotEnoughMemoryError:
            given = inspect.signature(method).bind(self, *args, **kwargs).arguments
            with torch.set_grad_enabled(learns):
                shortage = self._shortage(method.__name__, given["words"], given.get("lengths"))
            return cast(Shortage, shortage).told(f"{self._label}.{method.__name__}", error, self._remedy)

        with lack_told_in_both_passes(tell), self._arithmetic():
            return method(self, *args, **kwargs)

    setattr(within, MARK, True)
    return cast(Method, within)


def is_within_memory(method: Callable[..., Any]) -> bool:
    return getattr(method, MARK, False)


def lengths_given(words: Any, lengths: Any) -> tuple[int, ...]:
    """Of a batch that was given; those of the table where they were not to be had."""
    if lengths is None:
        return (int(words.shape[-1]),) * len(words)
    return tuple(int(length) for length in (lengths if isinstance(lengths, Sequence) else lengths.tolist()))


def size_of(axis: str, size: int) -> str:
    """rank 300, 12 states."""
    return f"rank {size}" if axis == "rank" else f"{size} {axis}s"


def lower(axis: str) -> str:
    return "a lower rank" if axis == "rank" else f"fewer {axis}s"


def num_of_axes(axes: Mapping[str, Sequence[str]], sizes: Mapping[str, int]) -> dict[str, int]:
    """Numbers in each table."""
    return {label: math.prod(sizes[axis] for axis in each) for label, each in axes.items()}
