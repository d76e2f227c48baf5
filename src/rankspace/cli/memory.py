"""What memory holds: sentences whose charts cannot fit are refused, and a lack of memory is told with the sentence."""

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from rankspace.cli.sentences import Given
from rankspace.errors import RankspaceError, is_lack_of_memory

if TYPE_CHECKING:
    import torch

    from rankspace.training import Trained

BYTES = 4  # of a float32

Result = TypeVar("Result")


def within_memory(
    trained: "Trained", sentences: Sequence[Given], compute: Callable[["Trained", list[list[str]]], Result]
) -> Result:
    """What is computed of sentences. Raises RankspaceError, with the longest one, where memory is not enough.

    A chart that is larger than all the memory there is is refused beforehand, for systems end a process that tries.
    """
    longest = max(sentences, key=lambda sentence: len(sentence.words), default=Given([], ""))
    needed, there = least_memory(trained, len(longest.words)), memory(trained.device)
    if needed > there:
        raise RankspaceError(
            f"{longest.where}: the chart of {len(longest.words)} words takes {needed / 1e9:.1f} GB at least, and there "
            f"are {there / 1e9:.1f}; divide the sentence, or leave it out."
        )
    try:
        return compute(trained, [sentence.words for sentence in sentences])
    except (MemoryError, RuntimeError) as error:
        if not is_lack_of_memory(error):
            raise
        raise RankspaceError(
            f"{longest.where}: not enough memory for {len(longest.words)} words; lower --max-tokens, or leave long "
            f"sentences out."
        ) from None


def least_memory(trained: "Trained", length: int) -> int:
    """Bytes of a grammar's chart without anything beside it: two vectors, over ranks or nonterminals, for each span."""
    settings = trained.model.settings
    sizes = [settings[name] for name in ("rank", "nonterminals") if name in settings]
    return length * (length + 1) // 2 * min(sizes) * 2 * BYTES if trained.kind == "tree" else 0


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
