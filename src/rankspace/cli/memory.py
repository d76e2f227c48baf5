"""What memory holds: sentences whose charts cannot fit are refused, and a lack of memory is told with the sentence."""

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from rankspace.cli.sentences import Given
from rankspace.errors import NotEnoughMemoryError, is_lack_of_memory

if TYPE_CHECKING:
    import torch

    from rankspace.distributions.memory import Shortage
    from rankspace.training import Trained

Result = TypeVar("Result")


def within_memory(
    trained: "Trained", sentences: Sequence[Given], compute: Callable[["Trained", list[list[str]]], Result]
) -> Result:
    """What is computed of sentences. Raises NotEnoughMemoryError, with the longest sentence of the largest
    batch and the size of that, where memory is not enough.

    A chart that is larger than all the memory there is is refused beforehand, for systems end a process that tries.
    """
    from rankspace.distributions.memory import origin, size_text

    longest = max(sentences, key=lambda sentence: len(sentence.words), default=Given([], ""))
    needed, there = least_memory(trained, len(longest.words)), memory(trained.device)
    if needed > there:
        what = "the chart of {} words takes" if trained.kind == "tree" else "the vectors of {} words take"
        raise NotEnoughMemoryError(
            f"{longest.where}: {what.format(len(longest.words))} {size_text(needed)} at least, and there are "
            f"{size_text(there)}; divide the sentence, or leave it out."
        )
    words = [sentence.words for sentence in sentences]
    try:
        return compute(trained, words)
    except (MemoryError, RuntimeError, NotEnoughMemoryError) as error:
        if not is_lack_of_memory(error):
            raise
        remedy = "lower --max-tokens, or leave long sentences out"
        longest_of_batch, found = largest_batch(trained, words)
        raise found.told(sentences[longest_of_batch].where, error, remedy) from origin(error)


def least_memory(trained: "Trained", length: int) -> int:
    """Bytes of one sentence without anything beside it: the chart of a grammar, the vectors of a chain."""
    from rankspace.distributions.memory import Work
    from rankspace.models.memory import chart_bytes

    return chart_bytes(trained.model, Work((length,)))


def largest_batch(trained: "Trained", sentences: list[list[str]]) -> "tuple[int, Shortage]":
    """Of the batches that sentences are divided into, the one that takes most: the place of its longest sentence, which
    is its last, and what it takes."""
    from rankspace.distributions.memory import Work
    from rankspace.models.memory import shortage

    ends, kernels = int(trained.eos is not None), trained.model.can_be_captured(trained.device)
    found = []
    for places in trained.division(sentences):
        lengths = tuple(len(sentences[place]) + ends for place in places)
        found.append((places[-1], shortage(trained.model, Work(lengths, kernels=kernels))))
    return max(reversed(found), key=lambda each: each[1].bytes_needed or 0)


def memory(device: "torch.device") -> int:
    """Bytes of memory that a device has in all."""
    import os

    import torch

    if device.type == "cuda":
        return torch.cuda.get_device_properties(device).total_memory
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # systems that do not tell
        return sys.maxsize
