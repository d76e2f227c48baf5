"""Rank space or state space: which order of the same sums is cheaper, counted from sizes alone.

Both orders compute the same log Z. The state order carries vectors over the states through the factored link and never
multiplies the factors out; the rank order multiplies them out once per batch and carries vectors over the ranks.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from rankspace.errors import RankspaceError

Shape = Literal["chain", "tree"]
Order = Literal["rank", "state"]


class Term(NamedTuple):
    """One named part of a cost: all products of one kind, over the whole batch."""

    name: str
    flops: int
    bytes: int


@dataclass(frozen=True)
class Cost:
    """What one order does for one batch; see `plan` for what is counted."""

    terms: tuple[Term, ...]

    @property
    def flops(self) -> int:
        return sum(term.flops for term in self.terms)

    @property
    def bytes(self) -> int:
        return sum(term.bytes for term in self.terms)

    def roofline(self, flops_per_byte: float) -> float:
        """Time in units of one flop: that of the arithmetic or that of the memory traffic, whichever is longer."""
        return max(float(self.flops), flops_per_byte * self.bytes)

    def bound(self, flops_per_byte: float) -> Literal["flops", "bytes"]:
        return "flops" if self.flops >= flops_per_byte * self.bytes else "bytes"


@dataclass(frozen=True)
class Problem:
    """The sizes of one batch. Where symbols are not split, `num_heads` and `num_leaves` both are `num_states`."""

    shape: Shape
    num_states: int  # m
    num_heads: int  # the states that head a binary rule: nonterminals
    num_leaves: int  # the states that emit a word: preterminals
    rank: int  # r
    num_words: int  # distinct words of the batch
    lengths: tuple[int, ...]
    bytes_per_number: int
    flops_per_byte: float


@dataclass(frozen=True)
class Plan:
    """The order to use, and the costs of both."""

    problem: Problem
    state: Cost
    rank: Cost

    @property
    def order(self) -> Order:
        """The cheaper one; the state order where they are equal, for it keeps no products."""
        return "rank" if self._time(self.rank) < self._time(self.state) else "state"

    @property
    def speedup(self) -> float:
        """Cost of the dearer order over that of the cheaper one."""
        cheap, dear = sorted((self._time(self.rank), self._time(self.state)))
        return dear / cheap if cheap > 0 else (1.0 if dear == 0 else float("inf"))

    def explain(self) -> str:
        """Several lines for people: the choice, by how much, and the terms of both costs."""
        problem = self.problem
        other = "state" if self.order == "rank" else "rank"
        states = str(problem.num_states)
        if problem.num_heads != problem.num_states:
            states += f" ({problem.num_heads} nonterminals, {problem.num_leaves} preterminals)"
        lines = [
            f"{problem.shape}: {self.order} order; {other} order would cost {self.speedup:.3g} times as much",
            f"  states {states}, rank {problem.rank}, sentences {len(problem.lengths)}, tokens {sum(problem.lengths)}, "
            f"distinct words {problem.num_words}, flops per byte {problem.flops_per_byte:g}",
        ]
        for name, cost in (("rank", self.rank), ("state", self.state)):
            bound = cost.bound(problem.flops_per_byte)
            lines.append(f"  {name + ' order':<24}{cost.flops:>10.3g} flops {cost.bytes:>10.3g} bytes, {bound} bind")
            lines += [f"    {name:<22}{flops:>10.3g} flops {size:>10.3g} bytes" for name, flops, size in cost.terms]
        return "\n".join(lines)

    def _time(self, cost: Cost) -> float:
        return cost.roofline(self.problem.flops_per_byte)


def plan(
    shape: Shape,
    *,
    states: int,
    rank: int,
    vocabulary: int,
    length: int | Sequence[int],
    batch: int | None = None,
    nonterminals: int | None = None,
    preterminals: int | None = None,
    distinct_words: int | None = None,
    bytes_per_number: int = 4,
    flops_per_byte: int | float = 10,
) -> Plan:
    """Counts both orders of the rank-space HMM ("chain") or PCFG ("tree") on one batch, forward pass only.

    `length` is that of all `batch` sentences (default 1), or the length of each. `nonterminals` and `preterminals`
    split the states of a tree. `distinct_words` defaults to as many as the tokens and the vocabulary allow.
    `flops_per_byte`: how many flops the device does while it moves one byte. The default is near that of an H200 in
    plain float32 (51 TFLOP/s and 4.3 TB/s make 12); with tensor cores it is far more. The orders are compared by
    max(flops, flops_per_byte * bytes).

    A product [a, b] by [b, c] counts 2abc flops and moves ab + bc + ac numbers: both operands read and the result
    written, once. m states (of a tree: h nonterminals, p preterminals; both m without the split), rank r, n words:

        chain, both     start vector [r, m] by [m, 1], once; emission: r multiplications for each token (3r numbers)
               state    to states [m, r] and to ranks [r, m], for each token but the first of its sentence
               rank     link [r, m] by [m, r], once; step [r, r], for each token but the first of its sentence
        tree, both      split sum: r multiplications and r additions for each split (2r numbers read), and r numbers
                        written for each span of two words or more
               state    two products [r, p] for each token; head [h, r] for each span of two words or more; two
                        products [r, h] for each of these but the whole sentence; root [1, h] for each sentence
               rank     once: two links [r, h] by [h, r], two word tables [r, p] by [p, n], root link [1, h] by [h, r];
                        two products [r, r] for each span of two words or more but the whole sentence; root [1, r] for
                        each sentence

    A chain goes step by step and a tree width by width: what has the same step or width is one product, its matrix read
    once. Left out: the last sum of a chain over its ranks (r additions a sentence, in both orders), and the one-word
    sentences of a tree, which no binary rule derives. Raises `RankspaceError` for sizes that make no sense.
    """
    if shape not in ("chain", "tree"):
        raise RankspaceError(f"plan: shape is {shape!r}; give 'chain' or 'tree'.")
    for name, number in (("states", states), ("rank", rank), ("vocabulary", vocabulary)):
        _check_positive(name, number)
    _check_positive("bytes_per_number", bytes_per_number)
    _check_positive("flops_per_byte", flops_per_byte)
    lengths = _all_lengths(length, batch)
    if shape == "tree":
        lengths = tuple(length for length in lengths if length > 1)
    heads, leaves = _split_states(shape, states, nonterminals, preterminals)
    words = _num_words(distinct_words, vocabulary, sum(lengths))
    problem = Problem(shape, states, heads, leaves, rank, words, lengths, bytes_per_number, float(flops_per_byte))
    count_state, count_rank = (_chain_state, _chain_rank) if shape == "chain" else (_tree_state, _tree_rank)
    return Plan(problem, count_state(problem), count_rank(problem))


class _Meter:
    """Adds up products under their names."""

    def __init__(self, bytes_per_number: int) -> None:
        self.bytes_per_number = bytes_per_number
        self.flops: Counter[str] = Counter()
        self.numbers: Counter[str] = Counter()

    def product(self, name: str, rows: int, inner: int, columns: int) -> None:
        """[rows, inner] by [inner, columns]; nothing at all without columns."""
        if columns:
            self.add(name, 2 * rows * inner * columns, rows * inner + inner * columns + rows * columns)

    def add(self, name: str, flops: int, numbers: int) -> None:
        self.flops[name] += flops
        self.numbers[name] += numbers

    def cost(self) -> Cost:
        each = self.bytes_per_number
        return Cost(tuple(Term(name, flops, self.numbers[name] * each) for name, flops in self.flops.items()))


class _Width(NamedTuple):
    """All spans of one width, two or more, in all sentences."""

    spans: int
    whole: int  # those that are a whole sentence
    splits: int  # ways to cut them in two, all together


def _widths(lengths: Sequence[int]) -> Iterator[_Width]:
    """Width 2, 3, ...: a sentence of n words has n - width + 1 spans of a width, each with width - 1 splits."""
    for width in range(2, max(lengths, default=0) + 1):
        spans = sum(length - width + 1 for length in lengths if length >= width)
        yield _Width(spans, lengths.count(width), spans * (width - 1))


def _steps(lengths: Sequence[int]) -> Iterator[int]:
    """Step 0, 1, ...: how many sentences have a word there."""
    for step in range(max(lengths, default=0)):
        yield sum(length > step for length in lengths)


def _chain_state(problem: Problem) -> Cost:
    meter, states, rank = _Meter(problem.bytes_per_number), problem.num_states, problem.rank
    meter.product("start", rank, states, 1)
    for step, sentences in enumerate(_steps(problem.lengths)):
        if step > 0:
            meter.product("to states", states, rank, sentences)
            meter.product("to ranks", rank, states, sentences)
        meter.add("emission", rank * sentences, 3 * rank * sentences)
    return meter.cost()


def _chain_rank(problem: Problem) -> Cost:
    meter, states, rank = _Meter(problem.bytes_per_number), problem.num_states, problem.rank
    meter.product("link, once", rank, states, rank)
    meter.product("start", rank, states, 1)
    for step, sentences in enumerate(_steps(problem.lengths)):
        if step > 0:
            meter.product("step", rank, rank, sentences)
        meter.add("emission", rank * sentences, 3 * rank * sentences)
    return meter.cost()


def _tree_state(problem: Problem) -> Cost:
    meter, heads, rank = _Meter(problem.bytes_per_number), problem.num_heads, problem.rank
    for side in ("left", "right"):
        meter.product(f"{side} words", rank, problem.num_leaves, sum(problem.lengths))
    for width in _widths(problem.lengths):
        _split_sum(meter, rank, width)
        meter.product("head", heads, rank, width.spans)
        for side in ("left", "right"):
            meter.product(f"{side} children", rank, heads, width.spans - width.whole)
        meter.product("root", 1, heads, width.whole)
    return meter.cost()


def _tree_rank(problem: Problem) -> Cost:
    meter, heads, rank = _Meter(problem.bytes_per_number), problem.num_heads, problem.rank
    for side in ("left", "right"):
        meter.product(f"{side} link, once", rank, heads, rank)  # Fig. 4: H = V U^T, I = W U^T
        meter.product(f"{side} words, once", rank, problem.num_leaves, problem.num_words)  # J = V E^T, K = W E^T
    meter.product("root link, once", 1, heads, rank)  # L = (U s)^T
    for width in _widths(problem.lengths):
        _split_sum(meter, rank, width)
        for side in ("left", "right"):
            meter.product(f"{side} children", rank, rank, width.spans - width.whole)
        meter.product("root", 1, rank, width.whole)
    return meter.cost()


def _split_sum(meter: _Meter, rank: int, width: _Width) -> None:
    meter.add("split sum", 2 * rank * width.splits, 2 * rank * width.splits + rank * width.spans)


def _all_lengths(length: int | Sequence[int], batch: int | None) -> tuple[int, ...]:
    if isinstance(length, int):
        _check_positive("length", length)
        if batch is not None:
            _check_positive("batch", batch)
        return (length,) * (1 if batch is None else batch)
    if batch is not None and batch != len(length):
        raise RankspaceError(
            f"plan: batch is {batch} but there are {len(length)} lengths; leave batch out when every length is given."
        )
    for i, number in enumerate(length):
        _check_positive(f"length {i}", number)
    return tuple(length)


def _split_states(shape: Shape, states: int, nonterminals: int | None, preterminals: int | None) -> tuple[int, int]:
    """(states that head a rule, states that emit a word)."""
    if nonterminals is None and preterminals is None:
        return states, states
    if shape == "chain":
        raise RankspaceError("plan: a chain has no nonterminals and preterminals; give states alone.")
    if nonterminals is None or preterminals is None:
        raise RankspaceError("plan: only one of nonterminals and preterminals is given; give both or neither.")
    _check_positive("nonterminals", nonterminals)
    _check_positive("preterminals", preterminals)
    if nonterminals + preterminals != states:
        raise RankspaceError(
            f"plan: states is {states} but nonterminals {nonterminals} and preterminals {preterminals} make "
            f"{nonterminals + preterminals}; give states as their sum."
        )
    return nonterminals, preterminals


def _num_words(distinct_words: int | None, vocabulary: int, num_tokens: int) -> int:
    if distinct_words is None:
        return min(vocabulary, num_tokens)
    _check_positive("distinct_words", distinct_words)
    if distinct_words > vocabulary:
        raise RankspaceError(
            f"plan: distinct_words is {distinct_words} but the vocabulary has {vocabulary}; give at most that many."
        )
    return distinct_words


def _check_positive(name: str, number: int | float) -> None:
    if not number > 0:
        raise RankspaceError(f"plan: {name} is {number}; give a positive number.")
