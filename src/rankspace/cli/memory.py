"""What memory holds: sentences whose charts cannot fit are refused, and a lack of memory is told with the sentence."""

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from rankspace.cli.sentences import Given
from rankspace.errors import NotEnoughMemoryError, lack_told

if TYPE_CHECKING:
    import torch

    from rankspace.distributions.memory import Shortage, Work
    from rankspace.training import Trained
    from rankspace.training.together import Marginals

Result = TypeVar("Result")


def within_memory(
    trained: "Trained",
    sentences: Sequence[Given],
    compute: Callable[["Trained", list[list[str]]], Result],
    parses: bool = False,
) -> Result:
    """What is computed of sentences. Raises NotEnoughMemoryError, with the longest sentence of the largest
    batch and the size of that, where memory is not enough: of one pass over the sentences or, for parses, of both.

    A chart that is larger than all the memory there is is refused beforehand, for systems end a process that tries.
    """
    from rankspace.distributions.memory import size_text

    longest = max(sentences, key=lambda sentence: len(sentence.words), default=Given([], ""))
    needed, there = least_memory(trained, len(longest.words), parses), memory(trained.device)
    if needed > there:
        what = "the chart of {} words takes" if trained.kind == "tree" else "the vectors of {} words take"
        raise NotEnoughMemoryError(
            f"{longest.where}: {what.format(len(longest.words))} {size_text(needed)} at least, and there are "
            f"{size_text(there)}; divide the sentence, or leave it out."
        )
    words = [sentence.words for sentence in sentences]

    def tell(error: BaseException) -> NotEnoughMemoryError:
        longest_of_batch, found = largest_batch(trained, words, parses)
        return found.told(sentences[longest_of_batch].where, error, "lower --max-tokens, or leave long sentences out")

    with lack_told(tell):
        return compute(trained, words)


def marginals_of_all(grammars: "Sequence[Trained]", sentences: Sequence[Given]) -> "list[Marginals]":
    """What spans have under grammars that parse together, each within memory."""
    from rankspace.training.together import mean_marginals

    def spans(model: "Trained", some: list[list[str]]) -> "list[Marginals]":
        return model.span_marginals(some)

    return mean_marginals(within_memory(each, sentences, spans, parses=True) for each in grammars)


def least_memory(trained: "Trained", length: int, parses: bool) -> int:
    """Bytes of one sentence without anything beside it: the chart of a grammar, the vectors of a chain."""
    from rankspace.models.memory import chart_bytes

    return chart_bytes(trained.model, work_of(trained, (length,), parses))


def largest_batch(trained: "Trained", sentences: list[list[str]], parses: bool) -> "tuple[int, Shortage]":
    """Of the batches that sentences are divided into, the one that takes most: the place of its longest sentence, which
    is its last, and what it takes."""
    from rankspace.models.memory import shortage

    ends, found = int(trained.eos is not None), []
    for places in trained.division(sentences):
        lengths = tuple(len(sentences[place]) + ends for place in places)
        found.append((places[-1], shortage(trained.model, work_of(trained, lengths, parses))))
    return max(reversed(found), key=lambda each: each[1].bytes_needed or 0)


def work_of(trained: "Trained", lengths: tuple[int, ...], parses: bool) -> "Work":
    """What is asked of the model's distribution."""
    from rankspace.distributions.memory import Work
    from rankspace.models.memory import has_kernels_for

    return Work(lengths, kernels=has_kernels_for(trained.model, parses), marginals=parses)


def memory(device: "torch.device") -> int:
    """Bytes of memory that a device has in all."""
    import os

    import torch

    from rankspace.devices import is_gpu

    if is_gpu(device):
        return torch.cuda.get_device_properties(device).total_memory
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # systems that do not tell
        return sys.maxsize
