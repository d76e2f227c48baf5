"""What the kernels of a training step have to read, write and compute, by formulas.

Bytes are those of each number once for each launch, caches or not; in sums over splits each row of a chart once for
each program that sums with it, for between programs nothing but the cache keeps it (kernels/README.md, Splits: bytes).
Exponents, row numbers and other numbers of which there is one to a row are left out where rows are long, and so are
parts of sums over words. A multiplication and an addition are two flops; kernels that go over their numbers once have
few, and none are counted.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import NamedTuple

from rankspace.bench.device_clock import Rate
from rankspace.bench.gpu_rows import Row
from rankspace.kernels.chain_sides import STRIP
from rankspace.kernels.tree_chart import padded
from rankspace.kernels.tree_tiles import WIDTHS, inside_steps, outside_steps


class Work(NamedTuple):
    """Of all launches of a kernel in a step. `rate`: of the units that do the arithmetic. `is_product`: whether
    `bench/gpu_work.py` has the flops among those of the model's products."""

    bytes: int
    flops: int = 0
    rate: Rate = "fp32"
    is_product: bool = False

    def milliseconds(self, rates: Mapping[Rate, float]) -> dict[str, float]:
        """What memory and what arithmetic would take at the rates of a device, in TB/s and TFLOP/s."""
        return {"memory": self.bytes / rates["copy"] / 1e9, "arithmetic": self.flops / rates[self.rate] / 1e9}


class Sizes(NamedTuple):
    """Of a step; `number` and `slope` are the bytes of a number in charts, tables and operands, and of a derivative of
    a logit."""

    lengths: tuple[int, ...]
    rank: int  # of a tree's, filled up as its chart is
    states: int  # or children of a rank
    head: int  # numbers in the table of a rank-space grammar's heads
    emitters: int  # what words come from
    vocabulary: int
    number: int
    slope: int

    @property
    def tokens(self) -> int:
        return sum(self.lengths)

    @property
    def sentences(self) -> int:
        return len(self.lengths)

    @property
    def longest(self) -> int:
        return max(self.lengths)


def sizes_of(row: Row) -> Sizes:
    settings = row.settings
    symbols = settings.get("preterminals", 0)
    rank = settings.get("rank", settings.get("nonterminals", 0))
    states = settings["states"] if not symbols else symbols + settings["nonterminals"]
    return Sizes(
        row.lengths,
        padded(rank) if symbols else rank,
        states,
        settings["nonterminals"] * rank if symbols and "rank" in settings else 0,
        symbols or (rank if row.model == "rank-hmm" else states),
        row.vocabulary,
        2 if row.precision == "medium" else 4,
        4 if row.precision == "highest" else 2,
    )


def vocabulary_work(sizes: Sizes) -> dict[str, Work]:
    """Logits are float32, their derivatives bfloat16 but in "highest", where they are float32 as well."""
    logits, wanted = sizes.vocabulary * sizes.emitters, sizes.tokens * sizes.emitters
    return {
        "_sum_portion": Work(4 * logits),
        "_copy_rows": Work(8 * wanted),
        "_logit_slopes": Work((4 + sizes.slope) * (logits + wanted) + 4 * wanted),
    }


# Trees of low rank.


def tree_work(sizes: Sizes) -> dict[str, Work]:
    """Both sides of a token's row are read in float32; charts have the dtype of operands."""
    both, rules = 2 * sizes.rank, 2 * sizes.rank * sizes.states + sizes.head
    whole = sizes.sentences * sizes.rank * sizes.number  # alpha of whole sentences
    spans = sum(length * (length + 1) // 2 for length in sizes.lengths)
    return vocabulary_work(sizes) | {
        "_lay_words": Work(sizes.tokens * both * (4 + sizes.number)),
        "_sum_by_word": Work(sizes.tokens * both * (sizes.number + 4)),
        "_softmax_rows": Work(rules * (4 + sizes.number)),
        "_softmax_rows_backward": Work(rules * 3 * sizes.number),  # derivatives of operands are operands
        "_split_sums": _of_rows(completed_inside(sizes.lengths), sizes),
        "_begin_sums": _of_rows(begun_inside(sizes.lengths), sizes),
        "_outside_sums": _of_rows(completed_outside(sizes.lengths), sizes),
        "_begin_outside_sums": _of_rows(begun_outside(sizes.lengths), sizes),
        "_tops": Work(whole + 4 * sizes.rank + 16 * sizes.tokens),  # the root; words and what was taken out of them
        "_top_slopes": Work(8 + 33 * sizes.sentences),
        "_root_gradient": Work(whole + 4 * sizes.rank),
        "_doubts": Work(16 * (spans - sizes.sentences)),  # marks, where no sentence has one
    }


class Rows(NamedTuple):
    """Of a chart, that programs read and write; and pairs of them that are multiplied and added."""

    moved: int
    pairs: int

    def plus(self, moved: int, pairs: int, times: int = 1) -> "Rows":
        return Rows(self.moved + times * moved, self.pairs + times * pairs)


def _of_rows(rows: Rows, sizes: Sizes) -> Work:
    """A pair is multiplied with a power of two as well."""
    return Work(rows.moved * sizes.rank * sizes.number, 3 * rows.pairs * sizes.rank)


def completed_inside(lengths: tuple[int, ...]) -> Rows:
    """`split_sums`: a span reads two rows for each split that is left, and its sum if that was begun, and writes it."""
    found = Rows(0, 0)
    for step in inside_steps(max(lengths)):
        spans = sum(max(length - step.width + 1, 0) for length in lengths)
        terms = 2 * (step.width - 1 - step.known) if step.known else step.width - 1
        found = found.plus(spans * (2 * terms + (step.known > 0) + 1), spans * terms)
    return found


def begun_inside(lengths: tuple[int, ...]) -> Rows:
    """`begin_sums`: a program has the spans of some widths that begin at one place, and reads for each split one left
    row and a right row for each span."""
    found = Rows(0, 0)
    for step in inside_steps(max(lengths)):
        for length, num in Counter(lengths).items() if step.ahead else ():
            for begin in range(length - step.ahead + 1):
                ends = range(begin + step.ahead, min(begin + step.ahead + WIDTHS - 1, length) + 1)
                cuts = range(begin + 1, min(begin + step.width, length - 1) + 1)
                pairs = sum(0 < end - cut <= step.width for end in ends for cut in cuts)
                found = found.plus(len(cuts) + pairs + len(ends), pairs, num)
    return found


def completed_outside(lengths: tuple[int, ...]) -> Rows:
    """`outside_sums`: a span reads, as a left and as a right child, a parent and a sibling for each parent that is left
    (of whole sentences the sibling alone), and what was begun, and writes both sums."""
    found = Rows(0, 0)
    for step in outside_steps(max(lengths)):
        most = step.known - 1 - step.width if step.known else max(lengths) - step.width
        for length, num in Counter(lengths).items():
            spans = max(length - step.width + 1, 0)
            pairs = 2 * sum(min(begin, most) for begin in range(spans))
            wholes = 2 * (0 < length - step.width <= most)
            found = found.plus(2 * pairs - wholes + 2 * spans * (1 + (step.known > 0)), pairs, num)
    return found


def begun_outside(lengths: tuple[int, ...]) -> Rows:
    """`begin_outside_sums`: a program has, of one side, the spans of some widths that begin at one place, and reads for
    each end of parents one parent (whole sentences have none) and a sibling for each span."""
    found = Rows(0, 0)
    for step in outside_steps(max(lengths)):
        for length, num in Counter(lengths).items() if step.ahead else ():
            for begin in range(length - step.ahead + WIDTHS):
                widths = range(step.ahead - WIDTHS + 1, min(step.ahead, length - begin) + 1)
                parents = max(length - begin - step.width + 1, 0)
                read = parents - (begin == 0 and parents > 0) + parents * len(widths)
                found = found.plus(2 * (read + len(widths)), 2 * parents * len(widths), num)
    return found


# Chains.


def chain_work(sizes: Sizes) -> dict[str, Work]:
    """What chains over ranks and over states share."""
    over = sizes.tokens * sizes.emitters  # ranks of rank-hmm, states of lhmm
    tables = 2 * sizes.states * sizes.rank
    return vocabulary_work(sizes) | {
        "_lay_words": Work(8 * over),
        "_predictions": Work(8 * over),
        "_ends": Work(8 * sizes.sentences * sizes.emitters + 28 * sizes.tokens),  # of words five numbers
        "_doubts": Work(13 * sizes.tokens),  # marks, where no sentence has one
        "_after_product": Work((12 + sizes.number) * over),
        "_after_product_back": Work((16 + sizes.number) * over),
        "_softmax_rows": Work(tables * (4 + sizes.number)),
        "_softmax_rows_backward": Work(tables * (4 + 2 * sizes.number)),
    }


def rank_hmm_work(sizes: Sizes) -> dict[str, Work]:
    """In bfloat16 steps have the product in them, and only the first and the last have none."""
    square, times = sizes.rank**2, sizes.longest - 1
    each, flops = sizes.sentences * sizes.rank, 2 * times * sizes.sentences * square
    found = chain_work(sizes) | {"_row_sums": Work(4 * square), "_divided": Work(8 * square)}
    if sizes.number != 2:
        return found
    return found | {
        "_after_product": Work((8 + sizes.number) * each + 4 * sizes.rank),
        "_after_product_back": Work((12 + sizes.number) * each),
        "_linked_step": Work(times * (2 * square + 12 * each), flops, "bf16", True),
        "_linked_step_back": Work(times * (2 * square + 16 * each), flops, "bf16", True),
    }


def lhmm_work(sizes: Sizes) -> dict[str, Work]:
    """`both_products` gives a product over states, and one over ranks in parts; the first and the last time have one of
    them alone, by `product_in_shares`. Logits of B are summed as those of the vocabulary are."""
    over, table = sizes.tokens * sizes.states, sizes.states * sizes.rank
    launches = max(2 * sizes.longest - 3, 0)
    parts = 4 * sizes.sentences * sizes.rank * -(-sizes.states // STRIP)
    rows = sizes.sentences * (sizes.states * (sizes.number + 4) + sizes.rank * sizes.number)
    flops = 2 * sizes.sentences * table
    return chain_work(sizes) | {
        "_sum_portion": Work(4 * (sizes.vocabulary * sizes.emitters + table)),
        "_masses": Work(12 * over),
        "_finish": Work((12 + 4 + sizes.number) * over),
        "_step_beside": Work((12 + sizes.number) * over),
        "_both_products": Work(launches * (table * sizes.number + parts + rows), 2 * launches * flops, "bf16", True),
        "_product_in_shares": Work(0, 2 * flops, "bf16", True),  # bytes are counted
    }


# Trees with a full rule tensor.


def dense_work(sizes: Sizes) -> dict[str, Work]:
    """As in the table of kernels/README.md, in float32: pairs [span, m, m] of spans of three words or more, splits with
    two words or more on either side, and the links of words."""
    nonterminals = sizes.states - sizes.emitters
    square = nonterminals**2
    spans = sum(length - width + 1 for length in sizes.lengths for width in range(3, length + 1))
    splits = sum((length - width + 1) * (width - 3) for length in sizes.lengths for width in range(4, length + 1))
    return vocabulary_work(sizes) | {
        "_pair_sums": Work(4 * spans * square + 8 * splits * nonterminals, 2 * splits * square, is_product=True),
        "_span_vectors": Work(spans * (8 * square + 12 * nonterminals), 4 * spans * square, is_product=True),
        "_dense_outside_sums": Work(
            8 * (splits + spans) * square + 4 * spans * nonterminals, 4 * (splits + spans) * square, is_product=True
        ),
        "_link_slopes": Work(
            8 * sizes.tokens * square + 16 * spans * nonterminals, 4 * spans * square, is_product=True
        ),
    }


WORK: Mapping[str, Callable[[Sizes], dict[str, Work]]] = {
    "rank-pcfg": tree_work,
    "tn-pcfg": tree_work,
    "simple-pcfg": tree_work,
    "rank-hmm": rank_hmm_work,
    "lhmm": lhmm_work,
    "n-pcfg": dense_work,
}


def work_of(row: Row) -> dict[str, Work]:
    """By kernel."""
    return WORK[row.model](sizes_of(row))
