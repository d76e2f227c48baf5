"""Log-probabilities of some words under a softmax over the whole vocabulary, from portions of its logits, and back.

Logits lie word by word, [word, symbol]: those of a wanted word are a row, copied from the very portion that the
normalisers sum. Every sum is over words, along the first axis, in parts that are put together in a fixed order.
"""

from typing import NamedTuple, no_type_check

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Int
from torch import Tensor

from rankspace.kernels.multiples import multiple_of

SYMBOLS = 256  # of a program that sums over words
WORDS = 8  # at a time
PARTS = 2048  # programs that sum one portion, about
BLOCK = 2048


class Sums(NamedTuple):
    """For each part of the vocabulary and each symbol: the largest logit, and the sum of exp(logit - largest)."""

    largest: Float[Tensor, "part symbol"]
    total: Float[Tensor, "part symbol"]


def sum_portion(
    logits: Float[Tensor, "word symbol"], bias: Float[Tensor, "word"] | None, num_programs: int = PARTS
) -> Sums:
    """Sums over one portion of the vocabulary, in about `num_programs` programs. Reads the logits once."""
    num_words, num_symbols = logits.shape
    across = triton.cdiv(num_symbols, SYMBOLS)
    step = WORDS * triton.cdiv(triton.cdiv(num_words, max(1, num_programs // across)), WORDS)
    parts = triton.cdiv(num_words, step)
    found = Sums(*(logits.new_empty(parts, num_symbols) for _ in range(2)))
    unit = multiple_of(num_symbols)
    _sum_portion[(parts, across)](
        logits,
        logits if bias is None else bias,
        found.largest,
        found.total,
        num_words,
        num_symbols // unit,
        step,
        UNIT=unit,
        BIASED=bias is not None,
        WORDS=WORDS,
        SYMBOLS=SYMBOLS,
    )
    return found


@triton.jit(do_not_specialize=["num_words", "step"])
@no_type_check
def _sum_portion(
    logits,
    bias,
    largest,
    total,
    num_words,
    num_symbols,
    step,
    UNIT: tl.constexpr,
    BIASED: tl.constexpr,
    WORDS: tl.constexpr,
    SYMBOLS: tl.constexpr,
):
    part = tl.program_id(0)
    num_symbols *= UNIT
    symbols = tl.program_id(1) * SYMBOLS + tl.arange(0, SYMBOLS)
    exists = symbols < num_symbols
    last = tl.minimum((part + 1) * step, num_words)
    top = tl.full([WORDS, SYMBOLS], float("-inf"), tl.float32)
    sums = tl.zeros([WORDS, SYMBOLS], tl.float32)
    for first in range(part * step, last, WORDS):
        words = first + tl.arange(0, WORDS)
        mask = (words < last)[:, None] & exists[None, :]
        at = words.to(tl.int64)[:, None] * num_symbols + symbols[None, :]
        entries = tl.load(logits + at, mask=mask, other=float("-inf"))
        if BIASED:
            entries += tl.load(bias + words, mask=words < last, other=0.0)[:, None]
        higher = tl.maximum(top, entries)
        finite = tl.where(higher == float("-inf"), 0.0, higher)
        sums = sums * tl.exp(top - finite) + tl.exp(entries - finite)
        top = higher
    whole = tl.max(top, 0)
    finite = tl.where(whole == float("-inf"), 0.0, whole)
    at = part.to(tl.int64) * num_symbols + symbols
    tl.store(largest + at, whole, mask=exists)
    tl.store(total + at, tl.sum(sums * tl.exp(top - finite[None, :]), 0), mask=exists)


def sum_portion_by_torch(logits: Float[Tensor, "word symbol"], bias: Float[Tensor, "word"] | None) -> Sums:
    """What `sum_portion` must equal, with one part."""
    logits = logits if bias is None else logits + bias[:, None]
    largest = logits.amax(0, keepdim=True)
    total = (logits - largest.where(largest > -torch.inf, 0)).exp().sum(0, keepdim=True)
    return Sums(largest, total)


def normalisers(sums: Sums) -> Float[Tensor, "symbol"]:
    """Logarithm of the sum of exp(logit) over all parts."""
    top = sums.largest.amax(0)
    finite = top.where(top > -torch.inf, 0)
    return finite + ((sums.largest - finite).exp() * sums.total).sum(0).log()


def copy_rows(
    logits: Float[Tensor, "portion symbol"],
    bias: Float[Tensor, "portion"] | None,
    words: Int[Tensor, "word"],
    first: int,
    found: Float[Tensor, "word symbol"],
) -> None:
    """Copies the logits of those wanted words that lie in a portion, which begins at the word `first`."""
    num_symbols, unit = logits.shape[1], multiple_of(logits.shape[1])
    _copy_rows[(len(words), triton.cdiv(num_symbols, BLOCK))](
        logits,
        logits if bias is None else bias,
        words,
        found,
        first,
        len(logits),
        num_symbols // unit,
        UNIT=unit,
        BIASED=bias is not None,
        BLOCK=BLOCK,
    )


@triton.jit(do_not_specialize=["first", "num_here"])
@no_type_check
def _copy_rows(
    logits,
    bias,
    words,
    found,
    first,
    num_here,
    num_symbols,
    UNIT: tl.constexpr,
    BIASED: tl.constexpr,
    BLOCK: tl.constexpr,
):
    wanted = tl.program_id(0)
    num_symbols *= UNIT
    symbols = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    row = tl.load(words + wanted) - first
    if (row >= 0) & (row < num_here):
        exists = symbols < num_symbols
        entries = tl.load(logits + row.to(tl.int64) * num_symbols + symbols, mask=exists, other=0.0)
        if BIASED:
            entries += tl.load(bias + row)
        tl.store(found + wanted.to(tl.int64) * num_symbols + symbols, entries, mask=exists)


def copy_rows_by_torch(
    logits: Float[Tensor, "portion symbol"],
    bias: Float[Tensor, "portion"] | None,
    words: Int[Tensor, "word"],
    first: int,
    found: Float[Tensor, "word symbol"],
) -> None:
    """What `copy_rows` must equal."""
    logits = logits if bias is None else logits + bias[:, None]
    here = (words >= first) & (words < first + len(logits))
    found[here] = logits[words[here] - first]


class Wanted(NamedTuple):
    """The wanted words in rising order: equal ones follow each other, as they did."""

    word: Int[Tensor, "word"]
    place: Int[Tensor, "word"]  # among the wanted words as they were given
    stop: Int[Tensor, "word"]  # where the equal ones end


def in_order(words: Int[Tensor, "word"]) -> Wanted:
    """Sorted on the device."""
    found, place = torch.sort(words, stable=True)
    return Wanted(found, place, torch.searchsorted(found, found, right=True))


class LogitSlopes(NamedTuple):
    """What the derivatives with respect to logits are made of.

    sum of the slopes of a word - p(word | symbol) * total
    """

    normaliser: Float[Tensor, "symbol"]
    slopes: Float[Tensor, "word symbol"]
    total: Float[Tensor, "symbol"]  # of all slopes of a symbol
    wanted: Wanted


def logit_slopes(
    logits: Float[Tensor, "portion symbol"],
    bias: Float[Tensor, "portion"] | None,
    given: LogitSlopes,
    first: int,
    found: Float[Tensor, "portion symbol"],
) -> Float[Tensor, "portion"]:
    """Fills `found`, of any dtype: derivatives with respect to the logits of a portion that begins at the word `first`.
    Gives their sums over symbols, those with respect to the bias, before they are rounded.

    Reads 4 bytes a logit and writes what the dtype takes, then again for the wanted words, all of which may be used.
    """
    num_symbols, unit = logits.shape[1], multiple_of(logits.shape[1])
    block = min(BLOCK, triton.next_power_of_2(num_symbols))
    sums = logits.new_empty(len(logits), triton.cdiv(num_symbols, block))
    for wanted, num_programs in ((False, len(logits)), (True, len(given.wanted.word))):
        _logit_slopes[(num_programs, sums.shape[1])](
            logits,
            logits if bias is None else bias,
            given.normaliser,
            given.slopes,
            given.total,
            *given.wanted,
            found,
            sums,
            first,
            len(logits),
            num_symbols // unit,
            UNIT=unit,
            BIASED=bias is not None,
            WANTED=wanted,
            BLOCK=block,
        )
    return sums.sum(1)


@triton.jit(do_not_specialize=["first", "num_here"])
@no_type_check
def _logit_slopes(
    logits,
    bias,
    normaliser,
    slopes,
    total,
    wanted_word,
    wanted_place,
    wanted_stop,
    found,
    sums,
    first,
    num_here,
    num_symbols,
    UNIT: tl.constexpr,
    BIASED: tl.constexpr,
    WANTED: tl.constexpr,
    BLOCK: tl.constexpr,
):
    program = tl.program_id(0)
    num_symbols *= UNIT
    symbols = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    exists = symbols < num_symbols
    word = program
    here = True
    if WANTED:  # the first of equal words adds up their slopes
        word = tl.load(wanted_word + program).to(tl.int32) - first
        before = tl.load(wanted_word + program - 1, mask=program > 0, other=-1).to(tl.int32) - first
        here = (word >= 0) & (word < num_here) & (word != before)
    if here:
        at = word.to(tl.int64) * num_symbols + symbols
        entries = tl.load(logits + at, mask=exists, other=float("-inf"))
        if BIASED:
            entries += tl.load(bias + word)
        shares = tl.exp(entries - tl.load(normaliser + symbols, mask=exists, other=0.0))
        result = -shares * tl.load(total + symbols, mask=exists, other=0.0)
        if WANTED:
            for one in range(program, tl.load(wanted_stop + program).to(tl.int32)):
                row = tl.load(wanted_place + one).to(tl.int64)
                result += tl.load(slopes + row * num_symbols + symbols, mask=exists, other=0.0)
        tl.store(found + at, result.to(found.dtype.element_ty), mask=exists)
        tl.store(sums + word * tl.num_programs(1) + tl.program_id(1), tl.sum(tl.where(exists, result, 0.0), 0))


def logit_slopes_by_torch(
    logits: Float[Tensor, "portion symbol"],
    bias: Float[Tensor, "portion"] | None,
    given: LogitSlopes,
    first: int,
    found: Float[Tensor, "portion symbol"],
) -> Float[Tensor, "portion"]:
    """What `logit_slopes` must equal."""
    logits = logits if bias is None else logits + bias[:, None]
    result = -(logits - given.normaliser).exp() * given.total
    for word, place in zip(given.wanted.word.tolist(), given.wanted.place.tolist(), strict=True):
        if first <= word < first + len(logits):
            result[word - first] += given.slopes[place]
    found.copy_(result)
    return result.sum(1)
