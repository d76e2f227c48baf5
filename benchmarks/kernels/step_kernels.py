"""What each kernel takes of a training step, and which fraction of its limit that is.

    python benchmarks/kernels/step_kernels.py [--rows NAME ...] [--output FILE]

The steps are those of `rankspace bench gpu`, in training mode, launched from Python under torch's profiler. A kernel's
limit is the bytes of `BYTES`, or of all that the functions of `WHOLE_TABLES` are given and give, at the rate of a
copy, measured in the same run: what it has to read and write, each number once; above 100 % a cache served some of
them. Kernels whose work is arithmetic, or that wait for each other (sums over splits, steps of a chain), are measured
by `tree_tiles.py` and `rank_hmm_step.py`, and have their times and launches here. So have products, and kernels that
take no longer than a launch.
"""

import argparse
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import torch
from torch.utils._pytree import tree_leaves

from rankspace.bench.device_clock import rates, release
from rankspace.bench.gpu_rows import ROWS, Row
from rankspace.bench.gpu_step import Sentences, new_model, padded_step
from rankspace.bench.measurement import circumstances
from rankspace.kernels import chain_tall, halves, rectifying
from rankspace.kernels.chain_sides import STRIP
from rankspace.kernels.tree_chart import padded
from rankspace.training.machine import matmul_precision

GPU = torch.device("cuda")
STEPS = ("rank-pcfg", "rank-pcfg-highest", "simple-pcfg", "rank-hmm-32768", "lhmm", "n-pcfg")
LEAST = 2e-3  # milliseconds: what is shown
LONGEST = 90  # letters of a kernel's name that are kept: torch's have hundreds
WHOLE_TABLES = {  # kernels whose functions read all they are given and write all they give
    "_plus_rectified": (rectifying, "plus_rectified"),
    "_passed_back": (rectifying, "passed_back"),
    "_halves": (halves, "halves"),
    "_add_up": (chain_tall, "add_up"),
    "_product_in_shares": (chain_tall, "product_in_shares"),
}


class Sizes(NamedTuple):
    """Of a step; `number` are the bytes of a number in charts, tables and operands."""

    tokens: int
    sentences: int
    spans: int
    rank: int  # of a tree's, filled up as its chart is
    states: int  # or children of a rank
    head: int  # numbers in the table of a rank-space grammar's heads
    emitters: int  # what words come from
    vocabulary: int
    size: int
    number: int


def sizes_of(row: Row) -> Sizes:
    settings = row.settings
    symbols = settings.get("preterminals", 0)
    rank = settings.get("rank", settings.get("nonterminals", 0))
    states = settings["states"] if not symbols else symbols + settings["nonterminals"]
    return Sizes(
        sum(row.lengths),
        len(row.lengths),
        sum(length * (length + 1) // 2 for length in row.lengths),
        padded(rank) if symbols else rank,
        states,
        settings["nonterminals"] * rank if symbols and "rank" in settings else 0,
        symbols or (rank if row.model == "rank-hmm" else states),
        row.vocabulary,
        settings["size"],
        2 if row.precision == "medium" else 4,
    )


def vocabulary_bytes(sizes: Sizes) -> dict[str, int]:
    """Logits are float32, their derivatives bfloat16 but in "highest", where they are float32 as well."""
    logits, wanted = sizes.vocabulary * sizes.emitters, sizes.tokens * sizes.emitters
    slopes = 2 if sizes.number == 2 else 4
    return {
        "_sum_portion": 4 * logits,
        "_copy_rows": 8 * wanted,
        "_logit_slopes": (4 + slopes) * (logits + wanted) + 4 * wanted,
    }


def tree_bytes(sizes: Sizes) -> dict[str, int]:
    """Both sides of a token's row are read in float32; charts have the dtype of operands."""
    row = 2 * sizes.rank
    rules = 2 * sizes.rank * sizes.states + sizes.head
    return vocabulary_bytes(sizes) | {
        "_lay_words": sizes.tokens * row * (4 + sizes.number),
        "_sum_by_word": sizes.tokens * row * (sizes.number + 4),
        "_softmax_rows": rules * (4 + sizes.number),
        "_softmax_rows_backward": rules * 3 * sizes.number,  # derivatives of operands are operands
    }


def chain_bytes(sizes: Sizes) -> dict[str, int]:
    over = sizes.tokens * sizes.emitters  # ranks of rank-hmm, states of lhmm
    tables = 2 * sizes.states * sizes.rank
    parts = 4 * sizes.sentences * -(-sizes.states // STRIP)  # of sums over states, of a rank
    return vocabulary_bytes(sizes) | {
        "_lay_words": 12 * over,  # reads them twice
        "_predictions": 8 * over,
        "_masses": 12 * over,
        "_finish": (12 + 4 + sizes.number) * over,
        "_after_product": (12 + sizes.number) * over,
        "_step_beside": (12 + sizes.number) * over,
        "_both_products": 2 * max(row_steps(sizes) - 1, 0) * sizes.rank * (sizes.states * sizes.number + parts),
        "_softmax_rows": tables * (4 + sizes.number),
        "_softmax_rows_backward": tables * (4 + 2 * sizes.number),
        "_row_sums": 4 * sizes.rank**2,
        "_divided": (4 + 2 * sizes.number) * sizes.rank**2,
    }


def row_steps(sizes: Sizes) -> int:
    """Words of a sentence, where all are equally long."""
    return sizes.tokens // sizes.sentences


def dense_bytes(sizes: Sizes) -> dict[str, int]:
    """As in the table of kernels/README.md, in float32, of equally long sentences: pairs [span, m, m] of spans of three
    words or more, splits with two words or more on either side, and the links of words."""
    nonterminals, length = sizes.states - sizes.emitters, row_steps(sizes)
    spans = sizes.sentences * sum(length - width + 1 for width in range(3, length + 1))
    splits = sizes.sentences * sum((length - width + 1) * (width - 3) for width in range(4, length + 1))
    return vocabulary_bytes(sizes) | {
        "_pair_sums": 4 * spans * nonterminals**2 + 8 * splits * nonterminals,
        "_span_vectors": spans * (8 * nonterminals**2 + 12 * nonterminals),
        "_dense_outside_sums": 8 * splits * nonterminals**2 + 4 * spans * nonterminals,
        "_link_slopes": 8 * sizes.tokens * nonterminals**2 + 16 * spans * nonterminals,
    }


BYTES: Mapping[str, Callable[[Sizes], dict[str, int]]] = {
    "rank-pcfg": tree_bytes,
    "simple-pcfg": tree_bytes,
    "rank-hmm": chain_bytes,
    "lhmm": chain_bytes,
    "n-pcfg": dense_bytes,
}


@contextmanager
def counted_bytes() -> Iterator[Counter[str]]:
    """What the functions of `WHOLE_TABLES` read and write within, by kernel."""
    found: Counter[str] = Counter()

    def counting(kernel: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def run(*given: Any) -> Any:
            result = function(*given)
            tables = [each for each in tree_leaves((given, result)) if isinstance(each, torch.Tensor)]
            found[kernel] += sum({each.data_ptr(): each.numel() * each.element_size() for each in tables}.values())
            return result

        return run

    with ExitStack() as stack:
        for kernel, (module, name) in WHOLE_TABLES.items():
            stack.enter_context(patch.object(module, name, counting(kernel, getattr(module, name))))
        yield found


def kernel_times(row: Row) -> tuple[dict[str, tuple[float, int]], Counter[str]]:
    """Milliseconds and launches of each kernel of a step, and counted bytes, by name."""
    with matmul_precision(row.precision):
        step = padded_step(new_model(row, GPU).train(), Sentences.of(row, GPU))
        for _ in range(2):
            step()
        with counted_bytes() as counted:
            step()
        torch.cuda.synchronize()
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
            step()
            torch.cuda.synchronize()
    found: dict[str, tuple[float, int]] = defaultdict(lambda: (0.0, 0))
    for event in profile.events():
        if event.device_type == torch.autograd.DeviceType.CUDA:
            time, count = found[event.name]
            found[event.name] = time + event.device_time / 1e3, count + 1
    return dict(found), counted


def shares(row: Row, copy: float) -> list[dict[str, Any]]:
    """The kernels of a step, longest first; `copy` in TB/s."""
    times, counted = kernel_times(row)
    work = BYTES[row.model](sizes_of(row)) | counted
    records = []
    for name, (time, count) in sorted(times.items(), key=lambda each: -each[1][0]):
        if time < LEAST:
            continue
        limit = work[name] / copy / 1e9 if name in work else None
        records.append(
            {
                "kernel": name[:LONGEST],
                "milliseconds": time,
                "launches": count,
                "megabytes": work[name] / 1e6 if name in work else None,
                "of_limit": None if limit is None else limit / time,
            }
        )
    return records


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", nargs="+", default=list(STEPS))
    parser.add_argument("--output", type=Path)
    given = parser.parse_args()
    limits, steps = rates(GPU), {}
    for row in (row for row in ROWS if row.name in given.rows):
        steps[row.name] = shares(row, limits["copy"])
        print(f"{row.name}, {row.precision}", flush=True)
        for found in steps[row.name]:
            share = "" if found["of_limit"] is None else f"{found['megabytes']:9.1f} MB {found['of_limit']:6.0%}"
            print(
                f"  {found['milliseconds']:7.3f} ms x{found['launches']:4d} {share:20} {found['kernel']}",
                flush=True,
            )
        release(GPU)
    if given.output:
        given.output.write_text(json.dumps({**circumstances(GPU), "limits": limits, "steps": steps}, indent=1) + "\n")


if __name__ == "__main__":
    main()
