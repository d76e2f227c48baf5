"""The parses of `rankspace bench gpu`: a test set of newspaper lengths, from words to trees on the host."""

import time
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from rankspace.bench.device_clock import forget_peak, peak_gb, release
from rankspace.bench.gpu_inputs import new_model
from rankspace.bench.gpu_rows import RANK_PCFG, Row, small
from rankspace.bench.gpu_step import lacking
from rankspace.errors import NotEnoughMemoryError, is_lack_of_memory
from rankspace.inference.links import Precision
from rankspace.models import Model
from rankspace.training.machine import matmul_precision
from rankspace.training.trained import MAX_TOKENS
from rankspace.trees import Tree

LIMIT_SECONDS = 3.0
LIMIT = 1e-2  # of the probability of a span
CHECKED = 4  # sentences of a batch that are compared with float64
# (shortest, longest, sentences): 2,416 sentences as long as those of a section of the Wall Street Journal without
# punctuation, 21.2 words in the mean.
BANDS = (
    (2, 5, 90),
    (6, 10, 250),
    (11, 15, 380),
    (16, 20, 480),
    (21, 25, 470),
    (26, 30, 350),
    (31, 35, 210),
    (36, 40, 110),
    (41, 50, 60),
    (51, 60, 16),
)

Batch = tuple[Int[Tensor, "batch length"], tuple[int, ...]]


def newspaper_lengths() -> list[int]:
    """The lengths of all sentences, rising: within each band every length as often as any other."""
    return sorted(
        shortest + place % (longest - shortest + 1) for shortest, longest, num in BANDS for place in range(num)
    )


def measure(quick: bool, device: torch.device, precision: Precision = "high") -> dict[str, Any]:
    """Seconds from words to trees, the rule tables computed anew for each batch; the error of marginals comes first."""
    row = replace(small(RANK_PCFG) if quick else RANK_PCFG, precision=precision)
    lengths = [2, 3, 3, 5] if quick else newspaper_lengths()
    record = {"settings": dict(row.settings), "precision": precision, "sentences": len(lengths), "words": sum(lengths)}
    try:
        with matmul_precision(precision):
            return record | _measured(row, lengths, device) | {"limit_seconds": None if quick else LIMIT_SECONDS}
    except (RuntimeError, NotEnoughMemoryError) as error:
        if not is_lack_of_memory(error):
            raise
        longest = batches(lengths, row.vocabulary, torch.device("cpu"))[-1][1]
        return {**record, "wrong": lacking(row, longest, error)}
    finally:
        release(device)


def _measured(row: Row, lengths: Sequence[int], device: torch.device) -> dict[str, Any]:
    model, given = new_model(row, device).eval(), batches(lengths, row.vocabulary, device)
    error = marginal_error(model, [given[0], given[len(given) // 2], given[-1]])
    release(device)
    if not error <= LIMIT:
        return {"marginal_error": error, "wrong": f"marginals are off by {error:.1e}, more than {LIMIT:.0e}"}
    parse(model, given)
    forget_peak(device)
    seconds = sorted(_seconds(model, given) for _ in range(3))[1]
    trees = parse(model, given)
    none = sum(tree is None for tree in trees)
    wrong = f"{none} of {len(lengths)} sentences have no tree" if none else ""
    if wrong:
        return {"marginal_error": error, "wrong": wrong}
    found = {
        "marginal_error": error,
        "batches": len(given),
        "seconds": seconds,
        "peak_gb": peak_gb(device),
        "wrong": "",
    }
    return {**found, "reached": seconds <= LIMIT_SECONDS}


def batches(lengths: Sequence[int], vocabulary: int, device: torch.device, max_tokens: int = MAX_TOKENS) -> list[Batch]:
    """Random words, cut into batches as `rankspace parse` does: rising lengths, a budget of words with padding."""
    groups: list[list[int]] = [[]]
    for length in lengths:
        if (len(groups[-1]) + 1) * length > max_tokens:
            groups.append([])
        groups[-1].append(length)
    generator = torch.Generator().manual_seed(0)
    return [
        (torch.randint(vocabulary, (len(group), max(group)), generator=generator).to(device), tuple(group))
        for group in groups
        if group
    ]


def parse(model: Model, given: Sequence[Batch]) -> list[Tree | None]:
    """The tree of the most expected spans of every sentence."""
    trees: list[Tree | None] = []
    for words, lengths in given:
        with torch.no_grad():
            posed = model.pose(words, lengths)
        query: Any = posed.distribution
        trees += query.mbr(posed.words, posed.lengths)
    return trees


def _seconds(model: Model, given: Sequence[Batch]) -> float:
    """Trees are on the host in the end, so there is nothing left to wait for."""
    begin = time.perf_counter()
    parse(model, given)
    return time.perf_counter() - begin


def marginal_error(model: Model, given: Sequence[Batch]) -> float:
    """The largest difference to float64 of the probability of a span, in the last sentences of some batches."""
    reference = deepcopy(model).double()
    reference.options = {"backend": "torch"}
    largest = 0.0
    for words, lengths in given:
        some, their = words[-CHECKED:], lengths[-CHECKED:]
        found, expected = (_marginals(each, some, their) for each in (model, reference))
        largest = max(largest, float((found.double() - expected).abs().max()))
    return largest


def _marginals(model: Model, words: Int[Tensor, "batch length"], lengths: tuple[int, ...]) -> Tensor:
    with torch.no_grad():
        posed = model.pose(words, lengths)
    query: Any = posed.distribution
    found: Tensor = query.span_marginals(posed.words, posed.lengths)
    return found.detach()
